# What the library does in a child process, without a connection, and with what it cannot know: arguments, looks and
# renewals that fail, what is urgent, messages of libpq.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

client_test('corners', $node->connstr('postgres'));
nothing_left($node);
$node->stop;
done_testing();
