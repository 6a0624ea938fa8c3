# The validity of a renewal is the one that the server returned, and a wait limits the time in the queue, not the first
# reply.
# Promises: L
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');
client_test('promises', $node->connstr('postgres'));
nothing_left($node);
$node->stop;
done_testing();
