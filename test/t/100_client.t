# The library in C, with a server that is well.
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

client_test('holds', $node->connstr('postgres'));
nothing_left($node);
$node->stop;
done_testing();
