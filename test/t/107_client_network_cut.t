# The network of a session of the library is cut without a reset.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

plan skip_all => 'no network of our own' unless can_silence();

my $node = new_node('main', start => 0, conf => "listen_addresses = '*'\n");
$node->append_conf('pg_hba.conf', 'host all all 10.98.0.0/24 trust');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');
my $address = '10.98.0.1';

add_host($address);
client_test('cut', "host=$address port=" . $node->port . ' dbname=postgres', do => {
	cut => sub { silence_host($address); return; },
	mend => sub { add_host($address); return; },
	direct => sub { return $node->connstr('postgres'); },
});
nothing_left($node, undef, timeout => 20);
$node->stop;
done_testing();
