# lockctl through PgBouncer in transaction mode, which swallows LISTEN.
# Promises: -
# Needs: lockctl, pgbouncer
use strict;
use warnings;
use LeCtl;
use LePooler;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

find_pgbouncer();

my $node = new_node('main');
ctl_node($node);
my ($dir, $port) = start_pgbouncer($node,
	databases => { postgres => 'pool_mode=transaction pool_size=2' },
	settings => ['max_client_conn = 100']);

my @pooled = ('-h', $dir, '-p', $port);
my ($rc, $out);

is(ctl(@pooled, 'lock', 'x', '--', 'sh', '-c', 'exit 7'), 7, 'a command');
my $holder = start_ctl(@pooled, 'lock', 'x', '--ttl', '3s', '--', 'sleep', 1000);
wait_held('x');
is(ctl(@pooled, 'lock', '--try', 'x', 'true'), 3, '--try does not acquire a held lock');
my @waiters = map { start_ctl(@pooled, 'lock', 'x', '--', 'echo', "waiter $_") } 1 .. 3;
wait_waiting('x', 3);
my $start = boottime();
wait_until(sub { boottime() > $start + 4 });
ok(!$holder->ended, 'the lock is held for longer than its TTL');
$holder->kill('TERM');
is($holder->wait, 143, 'the holder exits after SIGTERM');
is(join('', map { $_->wait . $_->out } @waiters), "0waiter 1\n0waiter 2\n0waiter 3\n",
	'waiters are granted in order without LISTEN');
chomp(my $token = (ctl(@pooled, 'acquire', 'x'))[1]);
is(ctl(@pooled, 'held', 'x', $token), 0, 'acquire');
is(ctl(@pooled, 'release', 'x', $token), 0, 'release');
append_to_file("$dir/sum", "0\n");
my @add = ('sh', '-c', 'read n <"$0"; sleep 0.005; echo $((n + 1)) >"$0"', "$dir/sum");
my @processes = map { start_ctl(@pooled, 'lock', 'sum', '--', @add) } 1 .. 10;
is(join(' ', map { $_->wait(120) } @processes), join(' ', (0) x 10), '10 processes exit with 0');
is(slurp_file("$dir/sum"), "10\n", 'no addition is lost');
nothing_left($node);
$node->stop;
done_testing();
