# The library behind PgBouncer in transaction mode, where LISTEN is swallowed.
use strict;
use warnings;
use LeClient;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'pgbouncer is not installed' unless defined $pgbouncer;

my $node = new_node('main', conf => "log_statement = all\n");
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $dir = PostgreSQL::Test::Utils::tempdir();
my $user = getpwuid($<);
my $target = 'host=' . $node->host . ' port=' . $node->port . " dbname=postgres user=$user";
append_to_file("$dir/pgbouncer.ini", <<"INI");
[databases]
postgres = $target pool_mode=transaction pool_size=4
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
max_client_conn = 50
server_login_retry = 1
ignore_startup_parameters = extra_float_digits,options
INI
my ($in, $log) = ('', '');
my $pooler = IPC::Run::start([ $pgbouncer, "$dir/pgbouncer.ini" ], '<', \$in, '>&', \$log);
wait_until(sub { $pooler->pump_nb; return -S "$dir/.s.PGSQL.$port" || !$pooler->pumpable; });
die $log unless -S "$dir/.s.PGSQL.$port";
END { $pooler->kill_kill if $pooler; }

$ENV{LE_TEST_DIRECT} = $node->connstr('postgres');
client_test('holds', "host=$dir port=$port dbname=postgres user=$user");
client_test('runner', "host=$dir port=$port dbname=postgres user=$user", kinds => ['plain']);
my $text = slurp_file($node->logfile);
unlike($text, qr/LISTEN/, 'nobody listens');
like($text, qr/is_held/, 'grants are asked for');
nothing_left($node);

# the killed backends of this one are connections of the pool
client_test('survive', "host=$dir port=$port dbname=postgres user=$user", kinds => ['plain'], do => server_control($node));
nothing_left($node);
$pooler->kill_kill;
$node->stop;
done_testing();
