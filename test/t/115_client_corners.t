# The library in a child process, without a connection, and with a server that rejects requests: arguments, failures,
# due work, messages of libpq, missing functions, a revoked lease.
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
