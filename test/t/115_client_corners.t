# What the library does in a child process, without a connection, and where the server refuses: arguments, failures,
# what is due, messages of libpq, functions that are missing, a lease that was revoked.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

client_test('corners', $node->connstr('postgres'), do => server_control($node));
nothing_left($node);
$node->stop;
done_testing();
