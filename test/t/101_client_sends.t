# The messages of a session of the library: deadlines, lost replies, limits of waits, pauses.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

client_test('sent', $node->connstr('postgres'), kinds => [any_kind()]);
nothing_left($node);
$node->stop;
done_testing();
