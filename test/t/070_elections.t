# Leader election: candidates are elected in order, no matter how a leader ends; a leader or value that was shown
# survives.
# Promises: Q
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");

# Candidate and term of the leader, as a session without privileges on it sees them.
sub leader { return one("SELECT candidate || ' ' || term FROM current_leader('$_[0]')"); }

sub wait_for_candidates
{
	my ($n, $election) = @_;
	return wait_for_sql($node, "SELECT count(*) = $n FROM lock_election.waiters WHERE kind = 'election' AND name = '$election'");
}

sub campaign
{
	my ($s, $election, $candidate, $more) = @_;
	return $s->query("SELECT campaign('$election', '$candidate'" . ($more // '') . ')');
}

# Starts a campaign, and waits until it is in the queue.
sub campaigning
{
	my ($s, $election, $candidate, $more) = @_;
	$s->async("SELECT campaign('$election', '$candidate'" . ($more // '') . ')');
	return wait_for_sql($node, 'SELECT count(*) FROM lock_election.waiters WHERE pid = ' . $s->pid, '1');
}

sub enqueue
{
	my ($s, $election, $candidate, $more) = @_;
	return $s->query("SELECT term FROM enqueue_candidate('$election', '$candidate'" . ($more // '') . ')');
}

sub end_all
{
	one('SELECT force_resign(election) FROM lock_election.elections');
	$_->quit foreach @_;
	return nothing_left($node);
}

sub server_is
{
	my ($what, $where) = @_;
	return wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $where");
}

subtest 'candidates are elected in order' => sub {
	my ($first, @blocked) = map { session($node) } 1 .. 3;
	my $queue = session($node);
	my $term = campaign($first, 'e', 'first');
	my @queued;

	is(leader('e'), "first $term", 'in a free election, the first candidate is elected immediately');
	campaigning($blocked[0], 'e', 'blocked 0');
	push @queued, enqueue($queue, 'e', 'queued 0');
	campaigning($blocked[1], 'e', 'blocked 1');
	push @queued, enqueue($queue, 'e', 'queued 1');
	wait_for_candidates(4, 'e');
	is(one('SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $_->pid), 't', 'a blocked campaign holds no snapshot')
	  foreach @blocked;
	is($queue->query(q{SELECT campaign('e', 'late', wait => '0')}), '', 'a campaign without a wait does not overtake the candidates');
	is($queue->query(q{SELECT campaign('e', 'late', wait => '100 ms')}), '', 'a campaign with a short wait times out');
	is(leader('e'), "first $term", 'the leader is unchanged');

	is($first->query("SELECT resign('e', $term)"), 't', 'the leader resigns');
	my $next = $blocked[0]->wait;
	cmp_ok($next, '>', $term, 'the first candidate is elected, with a higher term');
	is(leader('e'), "blocked 0 $next", 'the new leader is visible');
	is($first->query("SELECT proclaim('e', $term, 'ghost')") . $first->query("SELECT resign('e', $term)"), 'ff', 'a past term can neither proclaim nor resign');
	is($first->query("SELECT renew_leadership('e', $term)"), '', 'a past term cannot be renewed');
	is(leader('e'), "blocked 0 $next", 'the past term has changed nothing');

	$blocked[0]->query("BEGIN; SELECT resign('e', $next)");
	is($queue->query("SELECT await_leadership('e', $queued[0])"), 'f', 'a candidate is not elected before the transaction of a resign commits');
	$blocked[0]->query('ROLLBACK');
	is(leader('e'), "blocked 0 $next", 'a rollback undoes a resign');
	is($blocked[0]->query("BEGIN; SELECT resign('e', $next); COMMIT"), 't', 'a resign in a transaction commits');
	is($queue->query("SELECT await_leadership('e', $queued[0], '10 s')"), 't', 'a candidate is elected after the commit of a resign');
	is(leader('e'), "queued 0 $queued[0]", 'a place is elected with the value that it was enqueued with');
	is($queue->query("SELECT await_leadership('e', $queued[1])"), 'f', 'the second place is not elected');
	is($queue->query("SELECT resign('e', $queued[0])"), 't', 'the elected place resigns');
	my $last = $blocked[1]->wait;
	is(leader('e'), "blocked 1 $last", 'the next blocked call is elected');
	ok($next < $queued[0] && $queued[0] < $last && $last < $queued[1], 'terms are in the order of the queue');
	is($queue->query("SELECT resign('e', $queued[1])"), 't', 'a place is released');
	is($blocked[1]->query("SELECT resign('e', $last)"), 't', 'the last leader resigns');
	is(leader('e'), '', 'the election has no leader');
	end_all($first, @blocked, $queue);
};

subtest 'transactions' => sub {
	my ($a, $b) = map { session($node) } 1 .. 2;

	$a->query('BEGIN');
	my $term = campaign($a, 'e', 'a');
	is(leader('e'), "a $term", 'an uncommitted campaign is elected immediately');
	is(campaign($a, 'e', 'a again'), $term, 'a second campaign in the same transaction returns the same term');
	is(leader('e'), "a again $term", 'a second campaign proclaims its value');
	campaigning($b, 'e', 'b');
	$a->query('ROLLBACK');
	my $next = $b->wait;
	is(leader('e'), "b $next", 'after a rollback, the next candidate is elected');
	$b->query("SELECT resign('e', $next)");

	$a->query('BEGIN; SAVEPOINT s');
	campaign($a, 'e', 'a');
	$a->query('ROLLBACK TO s');
	wait_for_sql($node, q{SELECT count(*) FROM current_leader('e')}, '0');
	pass('ROLLBACK TO ends a term that began after the savepoint');
	$term = campaign($a, 'e', 'a', q{, owner => 'a'});
	$a->query('COMMIT');

	# A campaign cancels a resign of the same transaction.
	$a->query("BEGIN; SELECT resign('e', $term)");
	is(campaign($a, 'e', 'a after all', q{, owner => 'a'}), $term, 'a campaign after a resign in the same transaction returns the same term');
	$a->query('COMMIT');
	is(leader('e'), "a after all $term", 'the leader is unchanged after the commit');
	$a->query("BEGIN; SELECT proclaim('e', $term, 'said'); ROLLBACK");
	is(leader('e'), "said $term", 'a rollback does not undo a proclaim');
	$a->query("BEGIN; SELECT campaign('e', 'said again', owner => 'a'); ROLLBACK");
	is(leader('e'), "said again $term", 'a rollback of a second campaign does not end the term');
	$a->query("BEGIN; SELECT resign('e', $term); PREPARE TRANSACTION 'p'");
	like($a->error, qr/0A000: cannot PREPARE a transaction that has acquired, released or fenced a lock or an election/, 'PREPARE TRANSACTION is rejected after a resign');
	is(one("SELECT is_leader('e', $term)"), 't', 'the rejected PREPARE TRANSACTION does not end the term');
	end_all($a, $b);
};

subtest 'the same owner, or lease, again' => sub {
	my ($a, $b, $c) = map { session($node) } 1 .. 3;
	my $term = campaign($a, 'e', 'one', q{, owner => 'worker'});

	is(campaign($b, 'e', 'two', q{, owner => 'worker'}), $term, 'a second campaign by the same owner on another connection returns the same term');
	is(leader('e'), "two $term", 'a second campaign by the same owner proclaims its value');
	campaigning($c, 'e', 'other', q{, owner => 'other'});
	is(campaign($b, 'e', 'three', q{, owner => 'worker'}), $term, 'a second campaign by the same owner does not wait behind other candidates');
	$a->kill;
	is(leader('e'), "three $term", 'the term of a named owner outlives its first connection');
	is($b->query("SELECT resign('e', $term)"), 't', 'one resign ends the term after several campaigns');
	my $other = $c->wait;
	is(leader('e'), "other $other", 'the next candidate is elected after that resign');
	$c->query("SELECT resign('e', $other)");

	my $lease = $b->query(q{SELECT grant_lease('1 min')});
	$term = campaign($b, 'e', 'on a lease', ", lease => $lease");
	is(campaign($c, 'e', 'still', ", lease => $lease"), $term, 'a second campaign on the same lease returns the same term');
	is(leader('e'), "still $term", 'a second campaign on the same lease proclaims its value');
	$b->query(qq{SELECT campaign('e', 'no', '1 min', wait => '0')});
	is(leader('e'), "still $term", 'a campaign without owner and lease is another candidate, also on the same connection');
	$b->query("SELECT renew_leadership('e', $term, '2 min')");
	like($b->error, qr/22023: election "e" has another kind of lease/, 'a term on a named lease cannot be renewed with a TTL of its own');
	$b->query("SELECT resign('e', $term)");

	# A connection that waits for itself.
	$term = campaign($b, 'e', 'me');
	campaigning($b, 'e', 'me', q{, wait => '3 s'});
	is($b->wait, '', 'a second campaign of an unnamed leader waits');
	like($b->error, qr/NOTICE:  00000: election "e" is already held by this connection/, 'a second campaign of an unnamed leader gets a notice');
	end_all($b, $c);
};

subtest 'ends of terms' => sub {
	my ($next, $s, $bound) = map { session($node) } 1 .. 3;

	# The TTL expires.
	my $term = campaign($s, 'e', 'short', q{, '1 h'});
	campaigning($next, 'e', 'next');
	my $start = time;
	shorten($s, 'e', $term, '1 s', 'renew_leadership');
	my $new = $next->wait;
	cmp_ok(time - $start, '>=', 1, 'the next candidate is not elected before the TTL of the leader expires');
	is(leader('e'), "next $new", 'the next candidate is elected after the TTL of the leader');
	is($s->query("SELECT is_leader('e', $term)") . $s->query("SELECT renew_leadership('e', $term)"), 'f', 'the expired term is not leading, and cannot be renewed');
	$next->query("SELECT resign('e', $new)");

	# The connection ends.
	campaign($bound, 'e', 'bound', ', NULL');
	campaigning($next, 'e', 'next');
	$bound->kill('KILL');
	$new = $next->wait;
	is(leader('e'), "next $new", 'with ttl => NULL, the next candidate is elected when the client is killed');
	$next->query("SELECT resign('e', $new)");

	# The lease ends.
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	campaign($s, 'e', 'leased', ", lease => $lease");
	campaigning($next, 'e', 'next');
	is($s->query("SELECT revoke_lease($lease)"), 't', 'the lease is revoked');
	$new = $next->wait;
	is(leader('e'), "next $new", 'the next candidate is elected when the lease of the leader is revoked');

	# Candidates whose lease has ended are skipped.
	$lease = $s->query(q{SELECT grant_lease('1 h')});
	my $dead = enqueue($s, 'e', 'dead', ", lease => $lease");
	my ($blocked, $alive) = (session($node), session($node));
	campaigning($blocked, 'e', 'dead, too', ", lease => $lease");
	campaigning($alive, 'e', 'alive');
	$s->query("SELECT revoke_lease($lease)");
	$blocked->wait;
	like($blocked->error, qr/LE001: the wait for election "e" was ended/, 'a blocked campaign fails immediately when its lease is revoked');
	$s->query("SELECT await_leadership('e', $dead)");
	like($s->error, qr/LE001: term $dead neither holds election "e" nor waits/, 'a place of a revoked lease is reported as lost');
	$next->query("SELECT resign('e', $new)");
	$new = $alive->wait;
	is(leader('e'), "alive $new", 'a candidate whose lease was revoked is not elected');
	$s->query("SELECT campaign('e', 'dead', lease => $lease)");
	like($s->error, qr/LE001: lease $lease does not exist/, 'a revoked lease cannot be used for another campaign');

	# force_resign() ends the term.
	campaigning($next, 'e', 'next');
	is(one(q{SELECT force_resign('e')}), '1', 'force_resign() ends one term');
	$new = $next->wait;
	is(leader('e'), "next $new", 'the next candidate is elected after force_resign()');

	# A candidate is cancelled.
	campaigning($blocked, 'e', 'cancelled');
	campaigning($alive, 'e', 'alive');
	one('SELECT pg_cancel_backend(' . $blocked->pid . ')');
	$blocked->wait;
	like($blocked->error, qr/57014/, 'a blocked campaign is cancelled');
	$next->query("SELECT resign('e', $new)");
	$new = $alive->wait;
	is(leader('e'), "alive $new", 'a cancelled candidate is skipped');
	$blocked->query(q{SET lock_timeout = '100 ms'});
	campaign($blocked, 'e', 'late');
	like($blocked->error, qr/55P03/, 'lock_timeout ends a campaign');
	wait_for_candidates(0, 'e');
	end_all($next, $s, $blocked, $alive);
};

subtest 'campaigns without a wait' => sub {
	my ($leader, @others) = map { session($node) } 1 .. 3;
	my $term = campaign($leader, 'e', 'leader', q{, wait => '0'});

	is(campaign($_, 'e', 'other', q{, wait => '0'}), '', 'a campaign without a wait fails, and leaves no place') foreach @others;
	wait_for_candidates(0, 'e');
	$leader->query("SELECT resign('e', $term)");
	is(leader('e'), '', 'nobody is elected after the leader resigns');
	$_->async(q{SELECT campaign('e', 'other', wait => '0')}) foreach @others;
	my @terms = grep { $_ ne '' } map { $_->wait } @others;
	is(@terms, 1, 'one of two simultaneous campaigns is elected');
	is(leader('e'), "other $terms[0]", 'the elected campaign is visible');
	end_all($leader, @others);
};

subtest 'fences' => sub {
	my ($leader, $next, $s) = map { session($node) } 1 .. 3;

	one(q{CREATE TABLE work (v int); CREATE TRIGGER g BEFORE INSERT OR UPDATE ON work FOR EACH ROW EXECUTE FUNCTION fence_guard('e', 'election')});
	my $term = campaign($leader, 'e', 'leader', q{, '1 h'});
	campaigning($next, 'e', 'next');
	$leader->query("BEGIN; SELECT fence_leader('e', $term)");
	shorten($s, 'e', $term, '500 ms', 'renew_leadership');
	wait_for_sql($node, "SELECT is_leader('e', $term)", 'f');
	is(leader('e'), '', 'an expired term that is fenced does not lead');
	is(one(q{SELECT waiting || ' ' || (fenced_by = ARRAY[} . $leader->pid . q{]) FROM lock_election.elections}), '1 true', 'the view shows the process that fences the election');
	ok(!$next->ready, 'no candidate is elected while the expired term is fenced');
	$leader->query('INSERT INTO work VALUES (1)');
	is($leader->error, '', 'the fencing transaction can write after the TTL');
	$s->query("SELECT fence_leader('e', $term)");
	like($s->error, qr/LE001: election "e" is not held by term $term/, 'another session cannot fence the expired term');
	ok(!$next->ready, 'no candidate is elected after that attempt');
	$leader->query('COMMIT');
	my $new = $next->wait;
	is(leader('e'), "next $new", 'the candidate is elected after the commit of the fencing transaction');
	$leader->query("BEGIN; SELECT fence_leader('e', $term); INSERT INTO work VALUES (2)");
	like($leader->error, qr/LE001/, 'the previous leader cannot fence its term any more');
	$leader->query('ROLLBACK');
	$leader->query('INSERT INTO work VALUES (2)');
	like($leader->error, qr/55000: cannot write to table "work": this transaction has not fenced election "e".*fence_leader\(election, term\)/s, 'the guard rejects a write without a fence');
	is(one('SELECT count(*) FROM work'), '1', 'only the fenced write is committed');

	# A lock with the same name is another object.
	$s->query(q{BEGIN; SELECT fence_lock('e', acquire_lock('e')); INSERT INTO work VALUES (3)});
	like($s->error, qr/55000/, 'the fence of a lock of the same name does not count');
	$s->query('ROLLBACK');
	$next->query("BEGIN; SELECT fence_leader('e', $new)");
	my $err = '';
	$node->psql('postgres', q{SELECT force_resign('e')}, stderr => \$err);
	like($err, qr/NOTICE:  election "e" is fenced by the transaction of process @{[ $next->pid ]}/, 'force_resign() reports the process that fences');
	$next->query('ROLLBACK');
	wait_for_sql($node, q{SELECT count(*) FROM lock_election.elections}, '0');
	one('DROP TABLE work');
	end_all($leader, $next, $s);
};

subtest 'elections and other roles' => sub {
	one('CREATE ROLE other LOGIN');
	my ($a, $b) = (session($node), session($node, user => 'other'));
	my $term = campaign($a, 'e', 'a', q{, owner => 'me'});

	is($b->query(q{SELECT candidate || ' ' || term FROM current_leader('e')}), "a $term", 'another role sees the leader');
	foreach my $call ("proclaim('e', $term, 'b')", "renew_leadership('e', $term)", "resign('e', $term)", "fence_leader('e', $term)")
	{
		$b->query("SELECT $call");
		like($b->error, qr/42501: election "e" is held by another role\nHINT:  An election belongs to the role that acquired it: SET ROLE to that role, or use force_resign\(\)/, "another role is rejected: $call");
	}
	$b->query(q{SELECT force_resign('e')});
	like($b->error, qr/42501: permission denied to end the holder of election "e"/, 'another role cannot force a resign');
	campaigning($b, 'e', 'b', q{, owner => 'me'});
	is(leader('e'), "a $term", 'the same owner name of another role is another candidate');
	$a->query("SELECT resign('e', $term)");
	my $new = $b->wait;
	is(leader('e'), "b $new", 'the candidate of another role is elected after the resign');
	$a->query("SELECT proclaim('e', $new, 'a')");
	is($a->error =~ /42501/ ? 1 : 0, 1, 'a superuser cannot proclaim for another role');
	end_all($a, $b);
	one('DROP ROLE other');
};

subtest 'the manager restarts' => sub {
	my ($leader, @blocked) = map { session($node) } 1 .. 3;
	my $term = campaign($leader, 'e', 'leader', q{, '1 h', owner => 'l'});

	campaigning($blocked[0], 'e', 'blocked 0');
	my $queued = enqueue($leader, 'e', 'queued', q{, '1 h'});
	campaigning($blocked[1], 'e', 'blocked 1');
	my $pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid;
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	wait_for_candidates(3, 'e');
	is(leader('e'), "leader $term", 'the leader is unchanged after a restart of the manager');
	is($leader->query("SELECT proclaim('e', $term, 'proclaimed')"), 't', 'the leader proclaims after a restart of the manager');
	$leader->query("SELECT resign('e', $term)");
	my $new = $blocked[0]->wait;
	is(leader('e'), "blocked 0 $new", 'the first blocked campaign is elected after a restart of the manager');
	$blocked[0]->query("SELECT resign('e', $new)");
	is($leader->query("SELECT await_leadership('e', $queued, '10 s')"), 't', 'the place is elected after a restart of the manager');
	is(leader('e'), "queued $queued", 'the place is elected with its value');
	$leader->query("SELECT resign('e', $queued)");
	$blocked[1]->wait;
	end_all($leader, @blocked);
};

# A batch that cannot be written must not be visible to any session.
subtest 'a proclaim that fails is not shown' => sub {
	my ($leader, $s, $locker) = map { session($node) } 1 .. 3;
	my $term = campaign($leader, 'e', 'old', q{, '1 h'});
	my $pid = one('SELECT pid FROM lock_election.manager');

	$locker->query('BEGIN; LOCK _lock_election.slot IN SHARE MODE');
	kill 'STOP', $pid;
	$leader->async("SELECT proclaim('e', $term, 'new')");
	server_is('a request', 'pid = ' . $leader->pid . " AND state = 'active' AND wait_event_type = 'Extension'");
	$s->async(q{SELECT candidate FROM current_leader('e')});
	server_is('a request', 'pid = ' . $s->pid . " AND state = 'active' AND wait_event_type = 'Extension'");
	kill 'CONT', $pid;
	$leader->wait;
	like($leader->error, qr/55P03/, 'a proclaim that cannot be written fails');
	is($s->wait, 'old', 'a reader of the same batch sees the old value');
	$locker->query('ROLLBACK');
	is(leader('e'), "old $term", 'the old value remains after the failed proclaim');
	is($leader->query("SELECT proclaim('e', $term, 'new')"), 't', 'a proclaim succeeds when the table is unlocked');
	is(leader('e'), "new $term", 'the new value is visible');
	end_all($leader, $s, $locker);
};

subtest 'a crash' => sub {
	my ($s, $bound) = map { session($node) } 1 .. 2;
	my $term = campaign($s, 'e', 'leader', q{, '1 h', owner => 'l'});
	my $queued = enqueue($s, 'e', 'queued', q{, '1 h'});

	campaign($bound, 'bound', 'bound', ', NULL');
	$s->query("SELECT proclaim('e', $term, 'proclaimed')");
	$node->stop('immediate');
	$_->quit foreach $s, $bound;
	$node->start;
	is(leader('e'), "proclaimed $term", 'after a crash, the leader and its value are kept');
	is(leader('bound'), '', 'after a crash, a leader bound to a connection is gone');
	is(one("SELECT await_leadership('e', $queued)"), 'f', 'after a crash, a candidate keeps its place');
	is(one(q{SELECT campaign('e', 'again', owner => 'l')}), $term, 'after a crash, the leader gets its term with a campaign by the same owner');
	is(one("SELECT resign('e', $term)"), 't', 'after a crash, the leader resigns');
	is(one("SELECT await_leadership('e', $queued, '10 s')"), 't', 'after a crash, the place is elected');
	is(leader('e'), "queued $queued", 'after a crash, the place is elected with its value');

	# A reader waits for the flush of a term even if the leader does not (synchronous_commit = off).
	$s = session($node);
	$s->query('SET synchronous_commit = off');
	my $lazy = campaign($s, 'lazy', 'lazy', q{, '1 h'});
	is(leader('lazy'), "lazy $lazy", 'another session sees a leader that did not wait for the flush');
	$node->stop('immediate');
	$s->quit;
	$node->start;
	is(leader('lazy'), "lazy $lazy", 'a leader that was seen survives a crash');
	end_all();
};

subtest 'standbys' => sub {
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	my $on_standby = sub { return $standby->safe_psql('postgres', $_[0]); };
	my $receiver = sub {
		my $pid = wal_receiver($standby);
		kill $_[0], $pid;
		return $pid;
	};
	my $syncrep = sub { wait_for_sql($node, "SELECT count(*) = $_[0] FROM pg_stat_activity WHERE wait_event = 'SyncRep'"); };

	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	# Sessions start after the standby, because the server that is started would keep their input open.
	my ($s, $late) = map { session($node) } 1 .. 2;
	my $term = campaign($s, 'e', 'leader', q{, '1 h', owner => 'l'});
	$s->query("SELECT proclaim('e', $term, 'proclaimed')");
	campaign($s, 'other', 'other');
	$s->query(q{SELECT acquire_lock('vacant')});
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($on_standby->(q{SELECT candidate, term, elected_at IS NOT NULL, valid_for FROM current_leader('e')}), "proclaimed|$term|t|", 'current_leader() on a standby');
	is($on_standby->(q{SELECT expires_at = (SELECT expires_at FROM _lock_election.slot WHERE kind = 2 AND name = 'e' AND mode > 0), abs(extract(epoch FROM expires_at - elected_at - interval '1 h')) < 60
			FROM current_leader('e')}), 't|t', 'on a standby, expires_at is the last written deadline');
	is($on_standby->(q{SELECT expires_at = (SELECT expires_at FROM current_leader('e')), valid_for IS NULL FROM lock_election.elections WHERE election = 'e'}), 't|t',
		'on a standby, the view elections shows the same deadline');
	is($on_standby->(q{SELECT count(*) FROM current_leader('vacant')}), '0', 'on a standby, current_leader() returns no row for a lock');
	is($on_standby->(q{SELECT election || ' ' || candidate || ' ' || term FROM lock_election.elections WHERE election = 'e'}), "e proclaimed $term", 'on a standby, the view elections shows the leader');
	foreach my $call (q{campaign('e', 'x')}, q{enqueue_candidate('e', 'x')}, q{await_leadership('e', 1)}, q{proclaim('e', 1, 'x')}, q{renew_leadership('e', 1)},
		q{resign('e', 1)}, q{is_leader('e', 1)}, q{fence_leader('e', 1)}, q{force_resign('e')})
	{
		my $err = '';
		$standby->psql('postgres', "SELECT $call", stderr => \$err, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
		like($err, qr/25006/, "rejected on a standby: $call");
	}
	my $fenced = campaign($s, 'fenced', 'fenced', q{, '1 h'});
	$s->query("BEGIN; SELECT fence_leader('fenced', $fenced)");
	shorten($late, 'fenced', $fenced, '500 ms', 'renew_leadership');
	wait_for_sql($node, "SELECT is_leader('fenced', $fenced)", 'f');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($on_standby->(q{SELECT count(*) FROM current_leader('fenced')}), '0', 'on a standby, an expired term that is fenced does not lead');
	$s->query('ROLLBACK');

	# A reader of the leader waits for the standby, depending on its own synchronous_commit.
	$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
	$node->reload;
	wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});
	my $pid = $receiver->('STOP');
	my $local = session($node, connstr => "options='-c synchronous_commit=local'");
	my $unconfirmed = campaign($local, 'sync', 'unconfirmed', q{, '1 h'});
	is($local->query(q{SELECT term FROM current_leader('sync')}), $unconfirmed, 'a session with synchronous_commit = local sees the leader before the standby has confirmed');
	$late->async(q{SELECT term FROM current_leader('sync')});
	$syncrep->(1);
	ok(!$late->ready, 'other sessions do not see the leader before the standby has confirmed');
	$s->async("SELECT proclaim('e', $term, 'for sure')");
	$syncrep->(2);
	ok(!$s->ready, 'a proclaim does not return before the standby has confirmed');
	kill 'CONT', $pid;
	is($late->wait, $unconfirmed, 'other sessions see the leader after the standby has confirmed');
	is($s->wait, 't', 'the proclaim returns after the standby has confirmed');

	# A term ends while a reader waits for the standby.
	$pid = $receiver->('STOP');
	campaign($local, 'short', 'short', q{, '3 s'});
	$late->async(q{SELECT count(*) FROM current_leader('short')});
	$syncrep->(1);
	wait_for_sql($node, q{SET synchronous_commit = local; SELECT count(*) = 0 FROM lock_election.elections WHERE election = 'short'});
	kill 'CONT', $pid;
	is($late->wait, '0', 'a term that has ended while the reader waited is not shown');

	$node->stop('immediate');
	$_->quit foreach $s, $late, $local;
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->promote;
	wait_for_sql($standby, 'SELECT count(*) > 0 FROM lock_election.manager');
	is($on_standby->(q{SELECT candidate || ' ' || term FROM current_leader('e')}), "for sure $term", 'after a promotion, the leader and its value are kept');
	is($on_standby->(q{SELECT term FROM current_leader('sync')}), $unconfirmed, 'after a promotion, a leader that was shown is kept');
	is($on_standby->("SELECT resign('e', $term)"), 't', 'after a promotion, the leader resigns');
	$standby->stop;
};

done_testing();
