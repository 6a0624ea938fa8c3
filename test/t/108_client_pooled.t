# The library behind PgBouncer in transaction mode, which swallows LISTEN.
# Promises: -
# Needs: client, pgbouncer
use strict;
use warnings;
use LeClient;
use LePooler;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

find_pgbouncer();

my $node = new_node('main', conf => "log_statement = all\n");
my $user = getpwuid($<);
my ($dir, $port) = start_pgbouncer($node,
	databases => { postgres => 'pool_mode=transaction pool_size=4' },
	settings => [ 'max_client_conn = 50', 'server_login_retry = 1' ]);

$ENV{LE_TEST_DIRECT} = $node->connstr('postgres');
client_test('holds', "host=$dir port=$port dbname=postgres user=$user");
client_test('runner', "host=$dir port=$port dbname=postgres user=$user", kinds => [any_kind()]);
my $text = slurp_file($node->logfile);
unlike($text, qr/LISTEN/, 'no session sends LISTEN');
like($text, qr/lease_sync/, 'sessions ask for grants with lease_sync');
nothing_left($node);

# here, the killed backends are connections of the pool
client_test('survive', "host=$dir port=$port dbname=postgres user=$user", kinds => [any_kind()], do => server_control($node));
nothing_left($node);
stop_pgbouncer();
$node->stop;
done_testing();
