# The parts of the library that need no session: time, texts, structs, errors, notifications, states to be told.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');
client_test('parts', $node->connstr('postgres'));
$node->stop;
done_testing();
