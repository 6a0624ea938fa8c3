# A thousand threads of one session of the library: their simultaneous requests are sent in one statement.
# Promises: M, Q
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "log_statement = all\n");
$node->safe_psql('postgres', 'CREATE ROLE worker LOGIN; GRANT pg_signal_backend TO worker');

my $too_many = q{BEGIN;
	SELECT count(*) FROM try_acquire_each(ARRAY(SELECT 'probe ' || n FROM generate_series(1, 51) n));
	ROLLBACK};

# Only sessions of the library are counted, by their names in the log.
sub statements
{
	return scalar grep { / liblockelection LOG:  (execute|statement)/ } split /\n/, slurp_file($node->logfile);
}

sub set_limit
{
	my ($sql) = @_;
	$node->safe_psql('postgres', "$sql; SELECT pg_reload_conf()");
	return;
}

client_test('together', $node->connstr('postgres') . ' user=worker', do => {
	statements => \&statements,
	limit => sub {
		set_limit('ALTER SYSTEM SET lock_election.max_locks_per_role = 50');
		# the manager reads the new setting at its next wakeup
		wait_until(sub { error_of($too_many, user => 'worker') =~ /too many locks/ }) or die 'there is no limit';
		return;
	},
	no_limit => sub { set_limit('ALTER SYSTEM RESET lock_election.max_locks_per_role'); return; },
});
nothing_left($node);
$node->stop;
done_testing();
