# How often a session of the library sends: pauses after errors, and silence without work.
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
