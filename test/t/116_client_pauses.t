# How often a session of the library asks: pauses after errors, silence while there is nothing to do.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

client_test('pauses', $node->connstr('postgres'), kinds => [any_kind()]);
nothing_left($node);
$node->stop;
done_testing();
