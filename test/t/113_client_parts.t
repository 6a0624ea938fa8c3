# Parts of the library that need no session, and turns without a server: time, texts, structs, errors, deadlines,
# requests, and replies.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');
client_test('parts', $node->connstr('postgres'));
client_test('turns', $node->connstr('postgres'));
$node->stop;
done_testing();
