# The shard of a name: le_shard() agrees with PostgreSQL's own SHA-256.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');
client_test('shard', $node->connstr('postgres'));
$node->stop;
done_testing();
