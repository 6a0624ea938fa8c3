# The functions that the other tests rely on.
# Promises: -
use strict;
use warnings;
use IPC::Run ();
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils ();
use Test::More;

my $node = new_node('main', start => 0);

# More than a pipe can buffer: psql always exits before all of it is written.
my $sql = 'SELECT 1' . ' ' x 1_000_000;
my ($out, $err) = ('before', '');

is($node->psql('postgres', $sql), 2, 'psql() returns 2 if the server is down');
is($node->psql('postgres', $sql, stdout => \$out, stderr => \$err), 2,
	'psql() with an output returns 2 if the server is down');
is($out, '', 'stdout is empty if the server is down');
isnt($err, '', 'stderr has an error if the server is down');
my @result = $node->psql('postgres', $sql);
is(@result, 3, 'psql() in list context returns three values');
is_deeply([ @result[ 0, 1 ] ], [ 2, '' ], 'psql() in list context returns status 2 and empty output');
ok(!eval { $node->safe_psql('postgres', $sql); 1 }, 'safe_psql() dies if the server is down');

# A signal, for example of a child that exits, must not end a wait.
$node->start;
my $wire = LeWire->new($node);
local $SIG{ALRM} = sub { };
alarm 1;
$wire->query('SELECT pg_sleep(1.5), 1');
is(eval { $wire->wait('Z') }, '|1', 'a wait continues after a signal') or diag($@);
$wire->quit;
$node->stop;

# Services of packages that a run has installed must not start at boot afterwards.
my $etc = PostgreSQL::Test::Utils::tempdir();
my $script = <<'SH';
. test/common.sh
trap - EXIT
le_as_root() { "$@"; }
LE_ETC=$1
mkdir -p $1/systemd/system/multi-user.target.wants $1/rc2.d
cd $1/systemd/system/multi-user.target.wants
ln -s /x/mine.service
links=$(le_boot_links)
ln -s /x/etcd.service; ln -s /x/postgresql.service; ln -s /x/postgresql@15-main.service
ln -s /x/redis-server.service ../redis.service
ln -s ../init.d/haproxy $1/rc2.d/S01haproxy; ln -s ../init.d/postgresql $1/rc2.d/S01postgresql
le_boot_undo "$links"
le_boot_undo "$(le_boot_links)"
cd $1; find . -type l | sort
SH
my ($left, $said) = ('', '');
IPC::Run::run([ 'bash', '-c', $script, '-', $etc ], '>', \$left, '2>', \$said);
is($left, join('', map { "./$_\n" } 'rc2.d/S01postgresql', map { "systemd/system/multi-user.target.wants/$_" } 'mine.service', 'postgresql.service', 'postgresql@15-main.service'),
	q{links that existed before stay, and so do those of PostgreSQL's own service});
is($said, "== not started at boot: S01haproxy etcd.service redis.service\n", 'each removed link is reported once');
done_testing();
