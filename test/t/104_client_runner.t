# Runners, observers and the watchdog of the library.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

client_test('runner', $node->connstr('postgres'));
nothing_left($node);
$node->stop;
done_testing();
