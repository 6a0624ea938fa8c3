# Events that sessions of the library survive: restarts, killed backends, locked tables, a stopped server.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

client_test('survive', $node->connstr('postgres'), do => server_control($node));
nothing_left($node, undef, timeout => 30);
$node->stop;
done_testing();
