# The state after a crash. A lease with a TTL of up to five minutes starts its TTL again, because renewals are not
# written; a longer lease keeps the time that was written last, so that restarts cannot keep a dead lease alive. Tokens
# are never assigned twice. A release may be undone, a grant never.
# Promises: T, D, L
use strict;
use warnings;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

# The test compares remaining times with its own clock, however long the steps take. The WAL is flushed only by those
# that must.
my $node = new_node('main', conf => "wal_writer_delay = 10s\nautovacuum = off\n");
my %token;

sub seconds_left
{
	return $node->safe_psql('postgres', "SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = '$_[0]'");
}

# Acquiring again with a shorter TTL writes the remaining time.
my $start = time;
$token{long} = $node->safe_psql('postgres', q{SELECT acquire_lock('long', '1 h', owner => 'me')});
$token{short} = $node->safe_psql('postgres', q{SELECT acquire_lock('short', '5 min', owner => 'me')});
$token{several} = $node->safe_psql('postgres', q{SELECT acquire_locks(ARRAY['several', 'others'], '1 h', owner => 'me')});
$token{changed} = $node->safe_psql('postgres', q{SELECT acquire_lock('changed', '1 min')});
$node->safe_psql('postgres', "SELECT renew_lock('changed', $token{changed}, '4 min')");
wait_until(sub { time > $start + 3 });
$node->safe_psql('postgres', q{SELECT acquire_lock('long', '10 min', owner => 'me')});
$node->safe_psql('postgres', q{SELECT acquire_lock('short', '4 min', owner => 'me')});
$node->safe_psql('postgres', q{SELECT acquire_locks(ARRAY['several', 'others'], '10 min', owner => 'me')});

$node->stop('immediate');
my $restarted = time;
$node->start;
is($node->safe_psql('postgres', "SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
my %left = map { $_ => seconds_left($_) } qw(long several short changed);
my ($whole, $again) = map { time - $_ + 0.5 } $start, $restarted;
cmp_ok($left{long}, '<', 3600 - 2, 'the remaining time of a lease of an hour is less than an hour');
cmp_ok($left{long}, '>', 3600 - $whole, 'the lease of an hour keeps its remaining time');
cmp_ok($left{several}, '<', 3600 - 2, 'the remaining time of several locks is less than an hour');
cmp_ok($left{several}, '>', 3600 - $whole, 'several locks keep their remaining time');
cmp_ok($left{short}, '>', 300 - $again, 'a TTL of five minutes starts again');
cmp_ok($left{changed}, '>', 240 - $again, 'a changed TTL starts again with the changed value');

# A lock released just before the crash may be held again until the end of its TTL. This must not happen if the lock was
# granted to the next holder, or if its release had to be durable.
subtest 'releases before a crash' => sub {
	my $s = session($node);
	my %held = (back => 1, later => 1);
	my %t = map { $_ => $s->query("SELECT acquire_lock('r $_')") } qw(back commit durable handed hold later);
	$t{long} = $s->query(q{SELECT acquire_lock('r long', '301 s')});

	# The WAL writer flushes every ten seconds, which could be during this test.
	stop_walwriter($node);

	$s->query("SET lock_election.durable_release = on; SELECT release_lock('r durable', $t{durable})");
	$s->query('RESET lock_election.durable_release');
	is($s->query("SELECT release_lock('r handed', $t{handed})"), 't',
		'the lock is released before it is acquired again');
	my $next = $s->query(q{SELECT acquire_lock('r handed')});
	$s->query("SELECT release_lock('r hold', $t{hold}, hold_for => '1 h')");
	$s->query("SELECT release_lock('r long', $t{long})");
	$s->query("BEGIN; CREATE TEMP TABLE t (); SELECT release_lock('r commit', $t{commit}); COMMIT");
	is($s->query("SELECT release_lock('r $_', $t{$_})"), 't', "$_: the lock is released") foreach qw(back later);
	is($s->query("SELECT is_held('r $_', $t{$_})"), 'f',
		"$_: the lock is not held before the crash") foreach sort keys %t;
	$node->stop('immediate');
	$s->quit;
	$node->start;
	foreach my $name (sort keys %t)
	{
		next if $name eq 'commit';    # its COMMIT may or may not have flushed the release
		is($node->safe_psql('postgres', "SELECT is_held('r $name', $t{$name})"), $held{$name} ? 't' : 'f', "$name: expected state after the crash");
	}
	is($node->safe_psql('postgres', "SELECT is_held('r handed', $next)"), 't',
		'the next holder still holds the lock after the crash');
	is($node->safe_psql('postgres', q{SELECT try_acquire_lock('r hold') IS NULL}), 't',
		'hold_for still keeps the name closed after the crash');
	$node->safe_psql('postgres', q{SELECT force_release_lock(name) FROM lock_election.locks WHERE name LIKE 'r %'});
};

# Candidates that withdrew just before the crash, and may be candidates again after it.
subtest 'candidates that have withdrawn before a crash' => sub {
	my $s = session($node);
	my $leader = $s->query(q{SELECT campaign('e', 'leader', '1 min')});
	my %ttl = (back => '1 min', durable => '1 min', long => '301 s');
	my %term = map { $_ => $s->query("SELECT term FROM enqueue_candidate('e', '$_', '$ttl{$_}')") } sort keys %ttl;

	is($s->query("SELECT resign('e', $term{long})"), 't', 'a candidate with a long TTL withdraws');
	is($s->query("SET lock_election.durable_release = on; SELECT resign('e', $term{durable})"), 't',
		'a candidate withdraws with durable_release');
	stop_walwriter($node);
	is($s->query("RESET lock_election.durable_release; SELECT resign('e', $term{back})"), 't',
		'a candidate withdraws with neither');
	is($s->query('SELECT count(*) FROM lock_election.waiters'), '0', 'no candidate waits before the crash');
	$node->stop('immediate');
	$s->quit;
	$node->start;
	is($node->safe_psql('postgres', 'SELECT string_agg(token::text, $$ $$) FROM lock_election.waiters'), $term{back}, 'only the last candidate is back after the crash');
	is($node->safe_psql('postgres', "SELECT resign('e', $leader); SELECT candidate, term, valid_for > '50 s' FROM current_leader('e')"),
		"t\nback|$term{back}|t", 'the candidate that is back is elected for its TTL');
	is($node->safe_psql('postgres', q{SELECT force_resign('e')}), '1', 'force_resign() ends its term');
};

# Each start uses a new incarnation, however the server was stopped.
sub next_token { return $node->safe_psql('postgres', q{SELECT acquire_lock('token', wait => '0')}) || die; }

my $last = $token{changed};
foreach my $how ('immediate', 'fast', 'immediate')
{
	$node->stop($how);
	$node->start;
	$node->safe_psql('postgres', q{SELECT force_release_lock('token')});
	my $next = next_token();
	cmp_ok($next >> 28, '>', $last >> 28, "a start after '$how' uses a new incarnation");
	$last = $next;
}

# A row stores the session and the transaction that wrote it. After a restart, other sessions have the same proc numbers
# and count their transactions from one again. Their rollbacks, with a manager that has loaded the rows meanwhile, must
# not end the old holders.
subtest 'sessions and transactions of the time before a restart' => sub {
	my @sessions = map { session($node) } 1 .. 10;

	$sessions[$_]->query("SELECT acquire_lock('kept $_', '1 h')") foreach 0 .. 9;
	$_->quit foreach @sessions;
	$node->restart;
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	@sessions = map { session($node) } 1 .. 10;
	$sessions[$_]->query("BEGIN; SELECT acquire_lock('undone $_', '1 h')") foreach 0 .. 9;
	my $pid = $node->safe_psql('postgres', 'SELECT pid FROM lock_election.manager');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	$_->query('ROLLBACK') foreach @sessions;
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks WHERE name LIKE 'undone%'});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_election.locks WHERE name LIKE 'kept%'}), 10, 'rollbacks of new sessions do not end locks of old sessions');
	$_->quit foreach @sessions;
};
$node->stop;
done_testing();
