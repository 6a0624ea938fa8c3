# Very many holds and waiters in one session of the library.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "log_statement = all\n");

# Only sessions of the library are counted, by their names in the log.
sub statements
{
	return scalar grep { / liblockelection LOG:  (execute|statement)/ } split /\n/, slurp_file($node->logfile);
}

client_test('many', $node->connstr('postgres'), do => { statements => \&statements });
nothing_left($node);
$node->stop;
done_testing();
