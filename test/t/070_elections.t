# Leader election: candidates are elected in order, however a leader ends; what was shown or proclaimed is kept.
# Promises: Q
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");

# Candidate and term of the leader, as anybody sees them.
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

# Starts a campaign that has to wait.
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

	is(leader('e'), "first $term", 'a free election: elected at once');
	campaigning($blocked[0], 'e', 'blocked 0');
	push @queued, enqueue($queue, 'e', 'queued 0');
	campaigning($blocked[1], 'e', 'blocked 1');
	push @queued, enqueue($queue, 'e', 'queued 1');
	wait_for_candidates(4, 'e');
	is(one('SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $_->pid), 't', 'a campaign that waits holds no snapshot')
	  foreach @blocked;
	is($queue->query(q{SELECT campaign('e', 'late', wait => '0')}), '', 'nobody overtakes them');
	is($queue->query(q{SELECT campaign('e', 'late', wait => '100 ms')}), '', 'a wait ends');
	is(leader('e'), "first $term", 'the leader leads on');

	is($first->query("SELECT resign('e', $term)"), 't', 'resign');
	my $next = $blocked[0]->wait;
	cmp_ok($next, '>', $term, 'the first of them is elected, with a higher term');
	is(leader('e'), "blocked 0 $next", 'and seen');
	is($first->query("SELECT proclaim('e', $term, 'ghost')") . $first->query("SELECT resign('e', $term)"), 'ff', 'a past term neither proclaims nor resigns');
	is($first->query("SELECT renew_leadership('e', $term)"), '', 'nor is it renewed');
	is(leader('e'), "blocked 0 $next", 'and nothing has changed');

	$blocked[0]->query("BEGIN; SELECT resign('e', $next)");
	is($queue->query("SELECT await_leadership('e', $queued[0])"), 'f', 'a resignation in a transaction');
	$blocked[0]->query('ROLLBACK');
	is(leader('e'), "blocked 0 $next", 'is taken back by its rollback');
	is($blocked[0]->query("BEGIN; SELECT resign('e', $next); COMMIT"), 't', 'and takes effect');
	is($queue->query("SELECT await_leadership('e', $queued[0], '10 s')"), 't', 'with the commit');
	is(leader('e'), "queued 0 $queued[0]", 'a place is elected with the text it came with');
	is($queue->query("SELECT await_leadership('e', $queued[1])"), 'f', 'and no other');
	is($queue->query("SELECT resign('e', $queued[0])"), 't', 'resigned');
	my $last = $blocked[1]->wait;
	is(leader('e'), "blocked 1 $last", 'the next blocked call');
	ok($next < $queued[0] && $queued[0] < $last && $last < $queued[1], 'terms are in the order of the queue');
	is($queue->query("SELECT resign('e', $queued[1])"), 't', 'a candidate withdraws');
	is($blocked[1]->query("SELECT resign('e', $last)"), 't', 'the last one resigns');
	is(leader('e'), '', 'vacant');
	end_all($first, @blocked, $queue);
};

subtest 'transactions' => sub {
	my ($a, $b) = map { session($node) } 1 .. 2;

	$a->query('BEGIN');
	my $term = campaign($a, 'e', 'a');
	is(leader('e'), "a $term", 'elected at once');
	is(campaign($a, 'e', 'a again'), $term, 'again in the same transaction: the same term');
	is(leader('e'), "a again $term", 'a proclaim');
	campaigning($b, 'e', 'b');
	$a->query('ROLLBACK');
	my $next = $b->wait;
	is(leader('e'), "b $next", 'a rollback gives it to the next');
	$b->query("SELECT resign('e', $next)");

	$a->query('BEGIN; SAVEPOINT s');
	campaign($a, 'e', 'a');
	$a->query('ROLLBACK TO s');
	wait_for_sql($node, q{SELECT count(*) FROM current_leader('e')}, '0');
	pass('ROLLBACK TO undoes it');
	$term = campaign($a, 'e', 'a', q{, owner => 'a'});
	$a->query('COMMIT');

	# taken back
	$a->query("BEGIN; SELECT resign('e', $term)");
	is(campaign($a, 'e', 'a after all', q{, owner => 'a'}), $term, 'campaigning again takes a resignation back');
	$a->query('COMMIT');
	is(leader('e'), "a after all $term", 'the leader stays');
	$a->query("BEGIN; SELECT proclaim('e', $term, 'said'); ROLLBACK");
	is(leader('e'), "said $term", 'what was proclaimed is not unsaid by a rollback');
	$a->query("BEGIN; SELECT campaign('e', 'said again', owner => 'a'); ROLLBACK");
	is(leader('e'), "said again $term", 'nor the leader lost by that of a second campaign');
	$a->query("BEGIN; SELECT resign('e', $term); PREPARE TRANSACTION 'p'");
	like($a->error, qr/0A000: cannot PREPARE a transaction that has acquired, released or fenced a lock or an election/, 'no PREPARE TRANSACTION');
	is(one("SELECT is_leader('e', $term)"), 't', 'which changes nothing');
	end_all($a, $b);
};

subtest 'the same owner, or lease, again' => sub {
	my ($a, $b, $c) = map { session($node) } 1 .. 3;
	my $term = campaign($a, 'e', 'one', q{, owner => 'worker'});

	is(campaign($b, 'e', 'two', q{, owner => 'worker'}), $term, 'from another connection: the same term');
	is(leader('e'), "two $term", 'a proclaim');
	campaigning($c, 'e', 'other', q{, owner => 'other'});
	is(campaign($b, 'e', 'three', q{, owner => 'worker'}), $term, 'also with others in the queue');
	$a->kill;
	is(leader('e'), "three $term", 'it outlives its first connection');
	is($b->query("SELECT resign('e', $term)"), 't', 'resigned once, whatever the number of campaigns');
	my $other = $c->wait;
	is(leader('e'), "other $other", 'hands over');
	$c->query("SELECT resign('e', $other)");

	my $lease = $b->query(q{SELECT grant_lease('1 min')});
	$term = campaign($b, 'e', 'on a lease', ", lease => $lease");
	is(campaign($c, 'e', 'still', ", lease => $lease"), $term, 'the same lease: the same term');
	is(leader('e'), "still $term", 'a proclaim');
	$b->query(qq{SELECT campaign('e', 'no', '1 min', wait => '0')});
	is(leader('e'), "still $term", 'without an owner or a lease it is another one, also in the same connection');
	$b->query("SELECT renew_leadership('e', $term, '2 min')");
	like($b->error, qr/22023: election "e" has another kind of lease/, 'the TTL is the lease\'s');
	$b->query("SELECT resign('e', $term)");

	# one that waits for itself
	$term = campaign($b, 'e', 'me');
	campaigning($b, 'e', 'me', q{, wait => '3 s'});
	is($b->wait, '', 'a second campaign of an unnamed leader waits');
	like($b->error, qr/NOTICE:  00000: election "e" is already held by this connection/, 'with a notice');
	end_all($b, $c);
};

subtest 'how a leader ends' => sub {
	my ($next, $s, $bound) = map { session($node) } 1 .. 3;

	# its TTL
	my $term = campaign($s, 'e', 'short', q{, '1 h'});
	campaigning($next, 'e', 'next');
	my $start = time;
	shorten($s, 'e', $term, '1 s', 'renew_leadership');
	my $new = $next->wait;
	cmp_ok(time - $start, '>=', 1, 'never before its TTL');
	is(leader('e'), "next $new", 'the end of a TTL');
	is($s->query("SELECT is_leader('e', $term)") . $s->query("SELECT renew_leadership('e', $term)"), 'f', 'the old one is told');
	$next->query("SELECT resign('e', $new)");

	# its connection
	campaign($bound, 'e', 'bound', ', NULL');
	campaigning($next, 'e', 'next');
	$bound->kill('KILL');
	$new = $next->wait;
	is(leader('e'), "next $new", 'ttl => NULL: the end of the client');
	$next->query("SELECT resign('e', $new)");

	# its lease
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	campaign($s, 'e', 'leased', ", lease => $lease");
	campaigning($next, 'e', 'next');
	is($s->query("SELECT revoke_lease($lease)"), 't', 'revoke_lease');
	$new = $next->wait;
	is(leader('e'), "next $new", 'the end of a lease');

	# a candidate whose lease has ended is passed over
	$lease = $s->query(q{SELECT grant_lease('1 h')});
	my $dead = enqueue($s, 'e', 'dead', ", lease => $lease");
	my ($blocked, $alive) = (session($node), session($node));
	campaigning($blocked, 'e', 'dead, too', ", lease => $lease");
	campaigning($alive, 'e', 'alive');
	$s->query("SELECT revoke_lease($lease)");
	$blocked->wait;
	like($blocked->error, qr/LE001: the wait for election "e" was ended/, 'a campaign is told of its lease\'s end at once');
	$s->query("SELECT await_leadership('e', $dead)");
	like($s->error, qr/LE001: term $dead neither holds election "e" nor waits/, 'as is a candidate');
	$next->query("SELECT resign('e', $new)");
	$new = $alive->wait;
	is(leader('e'), "alive $new", 'a candidate whose lease has ended never wins');
	$s->query("SELECT campaign('e', 'dead', lease => $lease)");
	like($s->error, qr/LE001: lease $lease does not exist/, 'nor does it come back');

	# an administrator
	campaigning($next, 'e', 'next');
	is(one(q{SELECT force_resign('e')}), '1', 'force_resign');
	$new = $next->wait;
	is(leader('e'), "next $new", 'an administrator');

	# a candidate that goes away
	campaigning($blocked, 'e', 'cancelled');
	campaigning($alive, 'e', 'alive');
	one('SELECT pg_cancel_backend(' . $blocked->pid . ')');
	$blocked->wait;
	like($blocked->error, qr/57014/, 'a candidate is cancelled');
	$next->query("SELECT resign('e', $new)");
	$new = $alive->wait;
	is(leader('e'), "alive $new", 'and passed over');
	$blocked->query(q{SET lock_timeout = '100 ms'});
	campaign($blocked, 'e', 'late');
	like($blocked->error, qr/55P03/, 'lock_timeout ends a campaign');
	wait_for_candidates(0, 'e');
	end_all($next, $s, $blocked, $alive);
};

subtest 'unfair election' => sub {
	my ($leader, @others) = map { session($node) } 1 .. 3;
	my $term = campaign($leader, 'e', 'leader', q{, wait => '0'});

	is(campaign($_, 'e', 'other', q{, wait => '0'}), '', 'refused, without a place in the queue') foreach @others;
	wait_for_candidates(0, 'e');
	$leader->query("SELECT resign('e', $term)");
	is(leader('e'), '', 'so that nobody is elected');
	$_->async(q{SELECT campaign('e', 'other', wait => '0')}) foreach @others;
	my @terms = grep { $_ ne '' } map { $_->wait } @others;
	is(@terms, 1, 'until one of them tries');
	is(leader('e'), "other $terms[0]", 'and is seen');
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
	is(leader('e'), '', 'its TTL is over: nobody leads');
	is(one(q{SELECT waiting || ' ' || (fenced_by = ARRAY[} . $leader->pid . q{]) FROM lock_election.elections}), '1 true', 'the view tells who is in the way');
	ok(!$next->ready, 'nobody is elected');
	$leader->query('INSERT INTO work VALUES (1)');
	is($leader->error, '', 'the leader may write');
	$s->query("SELECT fence_leader('e', $term)");
	like($s->error, qr/LE001: election "e" is not held by term $term/, 'nobody fences a past term');
	ok(!$next->ready, 'still not');
	$leader->query('COMMIT');
	my $new = $next->wait;
	is(leader('e'), "next $new", 'until it has committed');
	$leader->query("BEGIN; SELECT fence_leader('e', $term); INSERT INTO work VALUES (2)");
	like($leader->error, qr/LE001/, 'too late');
	$leader->query('ROLLBACK');
	$leader->query('INSERT INTO work VALUES (2)');
	like($leader->error, qr/55000: cannot write to table "work": this transaction has not fenced election "e".*fence_leader\(election, term\)/s, 'the guard');
	is(one('SELECT count(*) FROM work'), '1', 'nothing was written');

	# a lock of the same name is no leader
	$s->query(q{BEGIN; SELECT fence_lock('e', acquire_lock('e')); INSERT INTO work VALUES (3)});
	like($s->error, qr/55000/, 'the fence of a lock of that name does not count');
	$s->query('ROLLBACK');
	$next->query("BEGIN; SELECT fence_leader('e', $new)");
	my $err = '';
	$node->psql('postgres', q{SELECT force_resign('e')}, stderr => \$err);
	like($err, qr/NOTICE:  election "e" is fenced by the transaction of process @{[ $next->pid ]}/, 'force_resign tells who fences');
	$next->query('ROLLBACK');
	wait_for_sql($node, q{SELECT count(*) FROM lock_election.elections}, '0');
	one('DROP TABLE work');
	end_all($leader, $next, $s);
};

subtest 'another role' => sub {
	one('CREATE ROLE other LOGIN');
	my ($a, $b) = (session($node), session($node, user => 'other'));
	my $term = campaign($a, 'e', 'a', q{, owner => 'me'});

	is($b->query(q{SELECT candidate || ' ' || term FROM current_leader('e')}), "a $term", 'sees who leads');
	foreach my $call ("proclaim('e', $term, 'b')", "renew_leadership('e', $term)", "resign('e', $term)", "fence_leader('e', $term)")
	{
		$b->query("SELECT $call");
		like($b->error, qr/42501: election "e" is held by another role\nHINT:  An election belongs to the role that acquired it: SET ROLE to that role, or use force_resign\(\)/, $call);
	}
	$b->query(q{SELECT force_resign('e')});
	like($b->error, qr/42501: permission denied to end the holder of election "e"/, 'force_resign');
	campaigning($b, 'e', 'b', q{, owner => 'me'});
	is(leader('e'), "a $term", 'the same owner of another role is a candidate like any other');
	$a->query("SELECT resign('e', $term)");
	my $new = $b->wait;
	is(leader('e'), "b $new", 'and elected in its turn');
	$a->query("SELECT proclaim('e', $new, 'a')");
	is($a->error =~ /42501/ ? 1 : 0, 1, 'a superuser does not speak for it either');
	end_all($a, $b);
	one('DROP ROLE other');
};

subtest 'the manager is killed' => sub {
	my ($leader, @blocked) = map { session($node) } 1 .. 3;
	my $term = campaign($leader, 'e', 'leader', q{, '1 h', owner => 'l'});

	campaigning($blocked[0], 'e', 'blocked 0');
	my $queued = enqueue($leader, 'e', 'queued', q{, '1 h'});
	campaigning($blocked[1], 'e', 'blocked 1');
	my $pid = one('SELECT pid FROM lock_election.manager');
	kill 'TERM', $pid;
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	wait_for_candidates(3, 'e');
	is(leader('e'), "leader $term", 'the leader stays');
	is($leader->query("SELECT proclaim('e', $term, 'proclaimed')"), 't', 'and proclaims');
	$leader->query("SELECT resign('e', $term)");
	my $new = $blocked[0]->wait;
	is(leader('e'), "blocked 0 $new", 'candidates keep their order');
	$blocked[0]->query("SELECT resign('e', $new)");
	is($leader->query("SELECT await_leadership('e', $queued, '10 s')"), 't', 'and their places');
	is(leader('e'), "queued $queued", 'and texts');
	$leader->query("SELECT resign('e', $queued)");
	$blocked[1]->wait;
	end_all($leader, @blocked);
};

# A batch that cannot be written: nothing of it may have been shown.
subtest 'what is not written is not shown' => sub {
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
	is($s->wait, 'old', 'and has not been seen');
	$locker->query('ROLLBACK');
	is(leader('e'), "old $term", 'the old text');
	is($leader->query("SELECT proclaim('e', $term, 'new')"), 't', 'then it can');
	is(leader('e'), "new $term", 'and is seen');
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
	is(leader('e'), "proclaimed $term", 'what was answered is there');
	is(leader('bound'), '', 'what hung on a connection is not');
	is(one("SELECT await_leadership('e', $queued)"), 'f', 'a candidate has its place');
	is(one(q{SELECT campaign('e', 'again', owner => 'l')}), $term, 'the leader comes back');
	is(one("SELECT resign('e', $term)"), 't', 'resigns');
	is(one("SELECT await_leadership('e', $queued, '10 s')"), 't', 'and hands over');
	is(leader('e'), "queued $queued", 'with the text');

	# not answered before it was on disk, whoever asks: a leader that did not care himself
	$s = session($node);
	$s->query('SET synchronous_commit = off');
	my $lazy = campaign($s, 'lazy', 'lazy', q{, '1 h'});
	is(leader('lazy'), "lazy $lazy", 'seen by somebody who cares');
	$node->stop('immediate');
	$s->quit;
	$node->start;
	is(leader('lazy'), "lazy $lazy", 'it does not vanish');
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
	# not before: the server would keep their input open
	my ($s, $late) = map { session($node) } 1 .. 2;
	my $term = campaign($s, 'e', 'leader', q{, '1 h', owner => 'l'});
	$s->query("SELECT proclaim('e', $term, 'proclaimed')");
	campaign($s, 'other', 'other');
	$s->query(q{SELECT acquire_lock('vacant')});
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($on_standby->(q{SELECT candidate, term, elected_at IS NOT NULL, valid_for FROM current_leader('e')}), "proclaimed|$term|t|", 'current_leader');
	is($on_standby->(q{SELECT expires_at = (SELECT expires_at FROM _lock_election.slot WHERE kind = 2 AND name = 'e' AND mode > 0), abs(extract(epoch FROM expires_at - elected_at - interval '1 h')) < 60
			FROM current_leader('e')}), 't|t', 'its expires_at is what was written last');
	is($on_standby->(q{SELECT expires_at = (SELECT expires_at FROM current_leader('e')), valid_for IS NULL FROM lock_election.elections WHERE election = 'e'}), 't|t',
		'in the view, too');
	is($on_standby->(q{SELECT count(*) FROM current_leader('vacant')}), '0', 'vacant');
	is($on_standby->(q{SELECT election || ' ' || candidate || ' ' || term FROM lock_election.elections WHERE election = 'e'}), "e proclaimed $term", 'the view');
	foreach my $call (q{campaign('e', 'x')}, q{enqueue_candidate('e', 'x')}, q{await_leadership('e', 1)}, q{proclaim('e', 1, 'x')}, q{renew_leadership('e', 1)},
		q{resign('e', 1)}, q{is_leader('e', 1)}, q{fence_leader('e', 1)}, q{force_resign('e')})
	{
		my $err = '';
		$standby->psql('postgres', "SELECT $call", stderr => \$err, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
		like($err, qr/25006/, $call);
	}
	my $fenced = campaign($s, 'fenced', 'fenced', q{, '1 h'});
	$s->query("BEGIN; SELECT fence_leader('fenced', $fenced)");
	shorten($late, 'fenced', $fenced, '500 ms', 'renew_leadership');
	wait_for_sql($node, "SELECT is_leader('fenced', $fenced)", 'f');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($on_standby->(q{SELECT count(*) FROM current_leader('fenced')}), '0', 'one that is only fenced does not lead there either');
	$s->query('ROLLBACK');

	# who learns of a leader waits for it as long as the leader did himself
	$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
	$node->reload;
	wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});
	my $pid = $receiver->('STOP');
	my $local = session($node, connstr => "options='-c synchronous_commit=local'");
	my $unconfirmed = campaign($local, 'sync', 'unconfirmed', q{, '1 h'});
	is($local->query(q{SELECT term FROM current_leader('sync')}), $unconfirmed, 'whoever does not care sees it');
	$late->async(q{SELECT term FROM current_leader('sync')});
	$syncrep->(1);
	ok(!$late->ready, 'others not before the standby has it');
	$s->async("SELECT proclaim('e', $term, 'for sure')");
	$syncrep->(2);
	ok(!$s->ready, 'nor is a proclaim answered');
	kill 'CONT', $pid;
	is($late->wait, $unconfirmed, 'then it is shown');
	is($s->wait, 't', 'and answered');

	# a term that ends meanwhile: the next leader, or none
	$pid = $receiver->('STOP');
	campaign($local, 'short', 'short', q{, '3 s'});
	$late->async(q{SELECT count(*) FROM current_leader('short')});
	$syncrep->(1);
	wait_for_sql($node, q{SET synchronous_commit = local; SELECT count(*) = 0 FROM lock_election.elections WHERE election = 'short'});
	kill 'CONT', $pid;
	is($late->wait, '0', 'one whose term has ended meanwhile is not shown');

	$node->stop('immediate');
	$_->quit foreach $s, $late, $local;
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->promote;
	wait_for_sql($standby, 'SELECT count(*) > 0 FROM lock_election.manager');
	is($on_standby->(q{SELECT candidate || ' ' || term FROM current_leader('e')}), "for sure $term", 'after a promotion the leader leads on');
	is($on_standby->(q{SELECT term FROM current_leader('sync')}), $unconfirmed, 'as does the one that was shown');
	is($on_standby->("SELECT resign('e', $term)"), 't', 'and resigns');
	$standby->stop;
};

done_testing();
