# Sessions of the library continue while the extension gets another schema, and end as usual if it was created again.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main');

foreach my $kind (client_kinds())
{
	$node->safe_psql('postgres', "CREATE DATABASE $kind");
	$node->safe_psql($kind, 'CREATE SCHEMA locks0; CREATE EXTENSION lock_election SCHEMA locks0');
	client_test('moved', $node->connstr($kind), kinds => [$kind]);
}
$node->stop;
done_testing();
