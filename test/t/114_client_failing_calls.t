# Calls of the library to the C library, the kernel and libpq that fail, one at a time: each call of the program returns
# what the header says, nothing leaks, and the session continues.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my $node = new_node('main', conf => "max_worker_processes = 20\nlock_election.max_databases = 10\n");
my ($kind) = grep { $_ eq 'address' } client_kinds();

client_test('failing_calls', $node->connstr('postgres'), kinds => [ $kind // any_kind() ]);
$node->stop;
done_testing();
