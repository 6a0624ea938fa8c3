# Sessions of the library whose name resolution hangs: the program has its own resolver.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main', conf => "listen_addresses = '127.0.0.1'\n");

client_test('resolver', 'host=db.test port=' . $node->port . ' dbname=postgres', do => {
	cut => sub {
		$node->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()});
		return;
	} });
nothing_left($node, undef, timeout => 20);
$node->stop;
done_testing();
