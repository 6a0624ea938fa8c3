# What a renewal promises is what the server returned to it, and a wait bounds the time in the queue, not the first answer.
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
