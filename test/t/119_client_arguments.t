# The library's errors for invalid arguments, and its encodings; no error shows a password.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
local $ENV{PGSERVICEFILE} = PostgreSQL::Test::Utils::tempdir() . '/services';
append_to_file($ENV{PGSERVICEFILE}, "[somewhere]\nhost=127.0.0.1\n");
client_test('arguments', $node->connstr('postgres'));
nothing_left($node);
$node->stop;
done_testing();
