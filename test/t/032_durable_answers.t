# No reply is sent before its flush and its standby's confirmation: for every call and kind of lease, granted
# immediately, after a wait, or after the manager has reloaded its tables. A release that a crash undoes for at most
# five minutes waits for no flush.
# Promises: D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

# --- the calls ---

# In a statement: %n is a name of its own, %k the kind of lease, %v the last value that the setup returned, and %h the
# value before that. The setup runs in a session that waits for nothing. Flag "always": the change must be durable even
# if the lock is bound to its connection.
my $lock = q{SELECT acquire_lock('%n', %k, owner => 'me')};
my $term = q{SELECT campaign('%n', 'c', %k, owner => 'me')};
my $several = q{SELECT acquire_lock('%n b', '1 h'); SELECT token FROM enqueue_locks(ARRAY['%n', '%n b'], %k)};
my $places = q{SELECT acquire_lock('%n', '1 h'); SELECT token FROM enqueue_lock('%n', %k)};

# Calls that reveal the state.
my @reveals = (
	[ 'is_held', $lock, q{SELECT is_held('%n', %v)} ],
	[ 'renew_lock', $lock, q{SELECT renew_lock('%n', %v) IS NOT NULL} ],
	[ 'acquire_lock, once more', $lock, q{SELECT acquire_lock('%n', %k, owner => 'me') = %v} ],
	[ 'fence_lock', $lock, q{SELECT fence_lock('%n', %v) IS NOT NULL} ],
	[ 'release_lock in a transaction', $lock, q{BEGIN; SELECT release_lock('%n', %v); SET LOCAL synchronous_commit = off; COMMIT} ],
	[ 'release_locks in a transaction', q{SELECT acquire_locks(ARRAY['%n', '%n b'], %k)},
		q{BEGIN; SELECT release_locks(ARRAY['%n', '%n b'], %v); SET LOCAL synchronous_commit = off; COMMIT} ],
	[ 'release_each in a transaction', q{SELECT acquire_locks(ARRAY['%n', '%n b'], %k)},
		q{BEGIN; SELECT bool_and(released) FROM release_each(ARRAY['%n', '%n b'], ARRAY[%v, %v]); SET LOCAL synchronous_commit = off; COMMIT} ],
	[ 'try_acquire_each, once more', $lock, q{SELECT (SELECT bool_and(token = %v) FROM try_acquire_each(ARRAY['%n'], %k, owner => 'me'))} ],
	[ 'renew_lock of one of several', q{SELECT acquire_locks(ARRAY['%n', '%n b'], %k)}, q{SELECT renew_lock('%n b', %v) IS NOT NULL} ],
	[ 'await_lock, granted', q{SELECT token FROM enqueue_lock('%n', %k)}, q{SELECT await_lock('%n', %v)} ],
	[ 'await_lock, queued', $places, q{SELECT NOT await_lock('%n', %v)} ],
	[ 'await_locks, granted', q{SELECT token FROM enqueue_locks(ARRAY['%n', '%n b'], %k)}, q{SELECT await_locks(ARRAY['%n', '%n b'], %v)} ],
	[ 'await_locks, queued', $several, q{SELECT NOT await_locks(ARRAY['%n', '%n b'], %v)} ],
	[ 'evict_lock, again', qq{$lock; SELECT evict_lock('%n')}, q{SELECT evict_lock('%n') = 0} ],
	[ 'is_leader', $term, q{SELECT is_leader('%n', %v)} ],
	[ 'renew_leadership', $term, q{SELECT renew_leadership('%n', %v) IS NOT NULL} ],
	[ 'campaign, once more', $term, q{SELECT campaign('%n', 'c', %k, owner => 'me') = %v} ],
	[ 'fence_leader', $term, q{SELECT fence_leader('%n', %v) IS NOT NULL} ],
	[ 'await_leadership', q{SELECT term FROM enqueue_candidate('%n', 'c', %k)}, q{SELECT await_leadership('%n', %v)} ],
	[ 'current_leader', $term, q{SELECT (SELECT term = %v FROM current_leader('%n'))} ],
	[ 'current_leader, vacant', q{SELECT resign('%n', campaign('%n', 'c', %k))}, q{SELECT (SELECT count(*) = 0 FROM current_leader('%n'))}, 'always' ],
	[ 'election_history', $term, q{SELECT (SELECT max(term) = %v FROM election_history('%n'))}, 'always' ]);
my @lease_reveals = (
	[ 'keep_alive', q{SELECT grant_lease('1 min')}, q{SELECT keep_alive(%v) IS NOT NULL} ],
	[ 'lease_time_to_live', q{SELECT grant_lease('1 min')}, q{SELECT lease_time_to_live(%v) IS NOT NULL} ],
	[ 'lease_holds, held', q{SELECT acquire_lock('%n', %k), %l}, q{SELECT (SELECT count(*) = 1 FROM lease_holds(%l) WHERE granted)} ],
	[ 'lease_holds, queued', $places, q{SELECT (SELECT count(*) = 1 FROM lease_holds(%l) WHERE queue_position = 1)} ],
	[ 'keep_alive, long', q{SELECT grant_lease('1 h')}, q{SELECT keep_alive(%v) IS NOT NULL} ]);

# Calls that change the state. Flag "lazy": a crash may undo it, unless the TTL is long.
my @writes = (
	[ 'acquire_lock', '', q{SELECT acquire_lock('%n', %k) > 0} ],
	[ 'try_acquire_lock', '', q{SELECT try_acquire_lock('%n', %k) > 0} ],
	[ 'acquire_permit', '', q{SELECT acquire_permit('%n', 2, %k) > 0} ],
	[ 'acquire_locks', '', q{SELECT acquire_locks(ARRAY['%n', '%n b'], %k) > 0} ],
	[ 'try_acquire_each', '', q{SELECT (SELECT bool_and(token > 0) FROM try_acquire_each(ARRAY['%n', '%n b'], %k))} ],
	[ 'try_acquire_each, some', q{SELECT acquire_lock('%n', '1 h')}, q{SELECT (SELECT count(token) = 1 FROM try_acquire_each(ARRAY['%n', '%n b'], %k, owner => 'me'))} ],
	[ 'enqueue_each, granted', '', q{SELECT (SELECT bool_and(granted) FROM enqueue_each(ARRAY['%n', '%n b'], %k))} ],
	[ 'enqueue_each, queued', q{SELECT acquire_lock('%n b', '1 h')}, q{SELECT (SELECT NOT bool_and(granted) FROM enqueue_each(ARRAY['%n b'], %k))} ],
	[ 'enqueue_lock, granted', '', q{SELECT (SELECT granted FROM enqueue_lock('%n', %k))} ],
	[ 'enqueue_lock, queued', q{SELECT acquire_lock('%n', '1 h')}, q{SELECT (SELECT NOT granted FROM enqueue_lock('%n', %k))} ],
	[ 'enqueue_permit', '', q{SELECT (SELECT granted FROM enqueue_permit('%n', 2, %k))} ],
	[ 'enqueue_locks, granted', '', q{SELECT (SELECT granted FROM enqueue_locks(ARRAY['%n', '%n b'], %k))} ],
	[ 'enqueue_locks, queued', q{SELECT acquire_lock('%n b', '1 h')}, q{SELECT (SELECT NOT granted FROM enqueue_locks(ARRAY['%n', '%n b'], %k))} ],
	[ 'campaign', '', q{SELECT campaign('%n', 'c', %k) > 0} ],
	[ 'enqueue_candidate', '', q{SELECT (SELECT elected FROM enqueue_candidate('%n', 'c', %k))} ],
	[ 'set_permits', q{SELECT acquire_permit('%n', 2, %k)}, q{SELECT set_permits('%n', 3) = 2}, 'always' ],
	[ 'proclaim', $term, q{SELECT proclaim('%n', %v, 'd')}, 'always' ],
	[ 'release_lock', $lock, q{SELECT release_lock('%n', %v)}, 'lazy' ],
	[ 'release_lock, hold_for', $lock, q{SELECT release_lock('%n', %v, hold_for => '1 h')}, 'always' ],
	[ 'release_lock, a place', $places, q{SELECT release_lock('%n', %v)}, 'lazy' ],
	[ 'release_locks', q{SELECT acquire_locks(ARRAY['%n', '%n b'], %k)}, q{SELECT release_locks(ARRAY['%n', '%n b'], %v)}, 'lazy' ],
	[ 'release_each', $lock, q{SELECT released FROM release_each(ARRAY['%n'], ARRAY[%v])}, 'lazy' ],
	[ 'release_each in a query', $lock, q{SELECT (SELECT released FROM release_each(ARRAY['%n'], ARRAY[%v]))}, 'lazy' ],
	[ 'resign', $term, q{SELECT resign('%n', %v)}, 'lazy' ],
	[ 'evict_lock', $lock, q{SELECT evict_lock('%n') = 1} ],
	[ 'evict_leader', $term, q{SELECT evict_leader('%n') = 1} ],
	[ 'force_release_lock', $lock, q{SELECT force_release_lock('%n') = 1}, 'always' ],
	[ 'force_resign', $term, q{SELECT force_resign('%n') = 1}, 'always' ],
	[ 'COMMIT', $lock, q{SET synchronous_commit = off; BEGIN; SELECT release_lock('%n', %v); SET LOCAL synchronous_commit = on; COMMIT; RESET synchronous_commit}, 'lazy' ],
	[ 'COMMIT, hold_for', $lock,
		q{SET synchronous_commit = off; BEGIN; SELECT release_lock('%n', %v, hold_for => '1 h'); SET LOCAL synchronous_commit = on; COMMIT; RESET synchronous_commit}, 'always' ]);
my @own_writes = ([ 'renew_lock with a TTL', $lock, q{SELECT renew_lock('%n', %v, '40 min') IS NOT NULL} ]);
my @lease_writes = (
	[ 'grant_lease', '', q{SELECT grant_lease('1 min') > 0} ],
	[ 'revoke_lease', q{SELECT grant_lease('5 min')}, q{SELECT revoke_lease(%v)}, 'lazy' ],
	[ 'revoke_lease, long', q{SELECT grant_lease('301 s')}, q{SELECT revoke_lease(%v)} ],
	[ 'advance_revision', '', q{SELECT advance_revision(((SELECT incarnation FROM lock_election.manager) + 1) << 28) > 0} ]);

# Calls that wait, and the call of another session that ends the wait.
my @waits = (
	[ 'acquire_lock', q{SELECT acquire_lock('%n', '1 h')}, q{SELECT acquire_lock('%n', %k) > 0}, '', q{SELECT release_lock('%n', %v)} ],
	[ 'acquire_permit', q{SELECT acquire_permit('%n', 1, '1 h')}, q{SELECT acquire_permit('%n', 1, %k) > 0}, '', q{SELECT release_lock('%n', %v)} ],
	[ 'acquire_locks', q{SELECT acquire_lock('%n b', '1 h')}, q{SELECT acquire_locks(ARRAY['%n', '%n b'], %k) > 0}, '', q{SELECT release_lock('%n b', %v)} ],
	[ 'await_lock', $places, q{SELECT await_lock('%n', %v, '1 h')}, '', q{SELECT release_lock('%n', %h)} ],
	[ 'await_locks', $several, q{SELECT await_locks(ARRAY['%n', '%n b'], %v, '1 h')}, '', q{SELECT release_lock('%n b', %h)} ],
	[ 'campaign', q{SELECT campaign('%n', 'a', '1 h')}, q{SELECT campaign('%n', 'c', %k) > 0}, '', q{SELECT resign('%n', %v)} ],
	[ 'await_leadership', q{SELECT campaign('%n', 'a', '1 h'); SELECT term FROM enqueue_candidate('%n', 'c', %k)},
		q{SELECT await_leadership('%n', %v, '1 h')}, '', q{SELECT resign('%n', %h)} ]);

# %l is a named lease of five minutes.
my %kind = (own => q{'1 min'}, long => q{'1 h'}, lease => 'NULL, lease => %l', bound => 'NULL');
my $names = 0;

sub case
{
	my ($kind, $row) = @_;
	my ($name, $setup, $call, $flags, $free) = @$row;
	my %flag = map { $_ => 1 } split / /, $flags // '';
	my %case = (title => "$name, $kind", lazy => $flag{lazy} && $kind ne 'long', free_to_go => $kind eq 'bound' && !$flag{always});
	my $n = 'n' . ++$names;

	@case{ 'setup', 'call', 'free' } = map { ($_ // '') =~ s/%n/$n/gr =~ s/%k/$kind{$kind}/gr } $setup, $call, $free;
	return \%case;
}

sub cases
{
	my ($rows, %of) = @_;

	# A bound lock can be acquired once more only by its own connection, and it has no remaining time after an eviction.
	return map {
		my $kind = $_;
		map { case($kind, $_) } grep { $kind ne 'bound' || $_->[0] !~ /once more|^evict/ } @$rows, @{ $of{$kind} // [] }
	} sort keys %kind;
}

sub reveal_cases { return cases(\@reveals, lease => \@lease_reveals); }

sub write_cases
{
	my @cases = cases(\@writes, own => \@own_writes, long => \@own_writes, lease => \@lease_writes);

	$_->{writes} = 1 foreach @cases;
	return @cases;
}

# --- running the calls ---

# Announcing and writing pages would flush the WAL. Therefore nothing is announced, and all pages fit into memory.
my $node = new_node('primary', init => [ allows_streaming => 1 ], conf => <<'CONF');
autovacuum = off
bgwriter_lru_maxpages = 0
lock_election.notify = none
max_connections = 200
shared_buffers = 64MB
wal_receiver_timeout = 0
wal_sender_timeout = 0
CONF
$node->backup('base');
my $local;    # a session that waits for nothing

sub prepare
{
	my ($case) = @_;
	my ($h, $v) = ('', '');

	my $lease = $case->{setup} . $case->{call} =~ /%l/ ? $local->query(q{SELECT grant_lease('5 min')}) : '';
	$_ = s/%l/$lease/gr foreach @$case{ 'setup', 'call' };
	($h, $v) = ('', split /\n/, $local->query($case->{setup}))[ -2, -1 ] if $case->{setup};
	die "$case->{title}: " . $local->error if $local->error =~ /ERROR/;
	$_ = s/%v/$v/gr =~ s/%h/$h/gr foreach @$case{ 'call', 'free' };
	return;
}

sub answer_of
{
	my ($case) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $answer = $case->{session}->wait;
	is($case->{session}->error =~ s/^(?:WARNING:  25P01|psql:\S+ NOTICE:  00000: [^\n]* was acquired by owner).*//msr . $answer, 't', "$case->{title}: returns");
	return;
}

# Returns the processes with this wait event. Type Extension means that they wait for the manager; since PostgreSQL 17,
# the event has its own name.
sub event
{
	my %waits = map { $_ => 1 } split /\n/, $local->query("SELECT pid FROM pg_stat_activity WHERE '$_[0]' IN (wait_event_type, wait_event) AND state = 'active'");
	return \%waits;
}

sub syncrep { return event('SyncRep'); }

# Makes a batch fail, so that the manager loads its tables again.
my $ttl = 1;

sub reload
{
	my $other = session($node, connstr => q{options='-c synchronous_commit=off'});
	my $failed = $local->query('SELECT failed_batches FROM lock_election.stat');

	my $locked_row = $local->query(q{SELECT acquire_lock('cannot be written', '1 s', owner => 'row')});
	$other->query("BEGIN; SELECT FROM _lock_election.slot WHERE token = $locked_row FOR UPDATE");
	$local->query("SELECT renew_lock('cannot be written', $locked_row, '" . ++$ttl . " h')");
	like($local->error, qr/ERROR:  55P03: /, 'a batch fails');
	$other->query('ROLLBACK');
	$other->quit;
	cmp_ok($local->query('SELECT failed_batches FROM lock_election.stat'), '>', $failed, 'the failed batch is counted, so the tables are loaded again');
	return;
}

sub restart_manager
{
	my $pid = $local->query('SELECT pid FROM lock_election.manager');

	kill 'TERM', $pid;
	wait_for_sql($node, "SET synchronous_commit = local; SELECT pid <> $pid FROM lock_election.manager");
	return;
}

sub clean
{
	$local->query($_)
	  foreach q{SELECT force_release_lock(name) FROM lock_election.locks WHERE kind = 'lock'},
	  q{SELECT force_resign(name) FROM lock_election.locks WHERE kind = 'election'}, q{SELECT revoke_lease(lease) FROM lock_election.leases};
	return;
}

# --- the flush ---

# Only the wait of a reply itself flushes anything, because the WAL writer is stopped. So the WAL position that is
# flushed when the call returns must be beyond the position before the change.
subtest 'flushed' => sub {
	my $s = session($node);
	my $insert = q{SELECT pg_current_wal_insert_lsn()};
	my $flushed = sub {
		my ($case, $before, $out) = @_;
		my ($answer, $lsn) = $out =~ /\A(.*)\n(\S+)\z/s;

		local $Test::Builder::Level = $Test::Builder::Level + 1;
		is($answer, 't', "$case->{title}: returns");
		is($local->query("SELECT '$lsn'::pg_lsn > '$before'"), 't', "$case->{title}: the WAL is flushed");
	};

	$local = session($node, connstr => q{options='-c synchronous_commit=off'});

	my $walwriter = stop_walwriter($node);
	foreach my $how ('at once', 'after a load')
	{
		foreach my $case ($how eq 'at once' ? (write_cases(), reveal_cases()) : reveal_cases())
		{
			next if $case->{lazy} || $case->{free_to_go};
			my $before = $local->query($insert);
			prepare($case);
			$before = $local->query($insert) if $case->{writes};
			if ($how eq 'after a load')
			{
				$case->{title} .= ", $how";
				reload();
			}
			$flushed->($case, $before, $s->query("$case->{call}; SELECT pg_current_wal_flush_lsn()"));
		}
		clean();
	}
	foreach my $durable ('off', 'on')
	{
		$s->query("SET lock_election.durable_release = $durable");
		# Another process may flush at the same time. A reply that waits for a flush is flushed in each try.
		my @tries = map { [ grep { $_->{lazy} && !$_->{free_to_go} } write_cases() ] } 1 .. ($durable eq 'on' ? 1 : 3);
		foreach my $i (0 .. $#{ $tries[0] })
		{
			my $title = "$tries[0][$i]{title}, durable_release $durable";
			my @flushed;
			foreach my $case (map { $_->[$i] } @tries)
			{
				prepare($case);
				my $before = $local->query($insert);
				my ($answer, $lsn) = split /\n/, $s->query("$case->{call}; SELECT pg_current_wal_flush_lsn()");
				is($answer, 't', "$title: returns");
				push @flushed, $local->query("SELECT '$lsn'::pg_lsn > '$before'");
				last if $flushed[-1] eq 'f';
			}
			is($flushed[-1], $durable eq 'on' ? 't' : 'f', $durable eq 'on' ? "$title: the WAL is flushed" : "$title: the WAL is not flushed") or diag($title);
			note("$title: by another process, $#flushed times") if $durable eq 'off' && $#flushed;
		}
		clean();
	}
	$s->query('RESET lock_election.durable_release');
	foreach my $case (cases(\@waits))
	{
		next if $case->{free_to_go};
		prepare($case);
		$s->async("$case->{call}; SELECT pg_current_wal_flush_lsn()");
		wait_until(sub { event('Extension')->{ $s->pid } });
		my $before = $local->query($insert);
		is($local->query($case->{free}), 't', "$case->{title}: the other session ends the wait");
		$flushed->($case, $before, $s->wait);
	}

	# A lease that was flushed long ago, and locks that were added to it later.
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	foreach my $more (q{SELECT count(*) FROM try_acquire_each(ARRAY(SELECT 'hung ' || i FROM generate_series(1, 100) AS i), lease => %l)},
		q{SELECT acquire_lock('queue', '1 h'); SELECT token FROM enqueue_lock('queue', lease => %l)}, q{SELECT campaign('boss', 'c', lease => %l)})
	{
		is($s->query("SELECT (SELECT count(*) FROM lease_holds($lease)) >= 0"), 't',
			'the current locks of the lease are flushed');
		my $before = $local->query($insert);
		$local->query($more =~ s/%l/$lease/r);
		$flushed->({ title => "lease_holds after $more" }, $before, $s->query("SELECT count(*) > 0 FROM lease_holds($lease); SELECT pg_current_wal_flush_lsn()"));
	}
	kill 'CONT', $walwriter;
	clean();
	$_->quit foreach $s, $local;
};

# --- the standby ---

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my $receiver = wal_receiver($standby);
$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$node->reload;
wait_for_sql($node, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});
$local = session($node, connstr => q{options='-c synchronous_commit=local'});
my @sessions;

# Checks that all calls wait while the standby does not reply, and return when it does.
sub wait_for_the_standby
{
	my (@cases) = @_;
	my @waiting = grep { !$_->{free_to_go} } @cases;
	my $n = 0;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $case (@cases)
	{
		$case->{session} = $sessions[ $n++ ] //= session($node);
		$case->{session}->async($case->{call});
	}
	if ($cases[0]{free})
	{
		wait_until(sub { my $waits = event('Extension'); return !grep { !$waits->{ $_->{session}->pid } } @cases });
		foreach my $case (@cases)
		{
			is($local->query($case->{free}), 't', "$case->{title}: the other session ends the wait");
		}
	}
	wait_until(sub { my $waits = syncrep(); return !grep { !$waits->{ $_->{session}->pid } && !$_->{session}->ready } @waiting });
	my $waits = syncrep();
	ok($waits->{ $_->{session}->pid } && !$_->{session}->ready, "$_->{title}: waits") foreach @waiting;
	foreach my $case (@cases)
	{
		answer_of($case) if $case->{free_to_go};
	}
	kill 'CONT', $receiver;
	answer_of($_) foreach @waiting;
	return;
}

foreach my $kind (sort keys %kind)
{
	my $of = sub { return grep { $_->{title} =~ /, $kind$/ } @_; };

	subtest "replicated: $kind" => sub {
		foreach my $after (sub { }, \&reload, \&restart_manager)
		{
			my @cases = $of->(reveal_cases());

			kill 'STOP', $receiver;
			prepare($_) foreach @cases;
			$after->();
			wait_for_the_standby(@cases);
			clean();
		}
		my @cases = $of->(write_cases());
		prepare($_) foreach @cases;
		kill 'STOP', $receiver;
		wait_for_the_standby(@cases);
		clean();

		@cases = $of->(cases(\@waits));
		prepare($_) foreach @cases;
		kill 'STOP', $receiver;
		wait_for_the_standby(@cases);
		clean();
	};
}

# --- a standby that does not confirm ---

subtest 'waits for a standby that does not confirm are cancelled' => sub {
	my ($s, $other) = map { session($node) } 1 .. 2;
	my $ttl = '1 min';
	my $holder = $s->query("SELECT acquire_lock('held', '1 h')");
	my $token = $s->query("SELECT acquire_lock('renewed', '$ttl', owner => 'me')");
	my $place = $s->query("SELECT token FROM enqueue_lock('held', '$ttl')");
	my $lease = $s->query("SELECT grant_lease('$ttl')");
	my $leader = $s->query("SELECT campaign('renewed', 'c', '$ttl')");
	my $several = $s->query("SELECT acquire_locks('{a, b}', '$ttl', owner => 'me')");
	my $long = $s->query("SELECT acquire_lock('long', '1 h')");
	my $spare = $s->query(q{SELECT acquire_lock('spare', '1 h')});
	my $term = $s->query(q{SELECT campaign('spare', 'c', '1 h')});
	my $revoked = $s->query(q{SELECT grant_lease('1 h')});
	$s->query(q{SELECT acquire_lock('forced', '1 h'), campaign('forced', 'c', '1 h'), acquire_permit('permits', 2, '1 h')});
	my $granted = qr/It was granted locally, but might not have been replicated; it will be released\./;
	my $extended = qr/It was renewed locally, but the renewal might not have been replicated: do not rely on it\./;
	my $done = qr/The request has taken effect locally, but might not have been replicated\./;
	my @calls = (
		[ "renew_lock('renewed', $token)", 'a lock', $extended ],
		[ "renew_lock('renewed', $token, '10 min')", 'a lock', $extended ],
		[ "acquire_lock('renewed', '$ttl', owner => 'me')", 'a lock', $granted ],
		[ "acquire_lock('renewed', '20 min', owner => 'me')", 'a lock', $granted ],
		[ "renew_lock('long', $long)", 'a lock', $extended ],
		[ "keep_alive($lease)", 'a lock', $extended ],
		[ "renew_leadership('renewed', $leader)", 'an election', $extended ],
		[ "renew_lock('a', $several)", 'a lock', $extended ],
		[ "acquire_locks('{a, b}', '$ttl', owner => 'me')", 'a lock', $granted ],
		[ "proclaim('renewed', $leader, 'd')", 'an election', $done ],
		[ "release_lock('spare', $spare, hold_for => '1 h')", 'a lock', $done ],
		[ "resign('spare', $term)", 'an election', $done ],
		[ q{force_release_lock('forced')}, 'a lock', $done ],
		[ q{force_resign('forced')}, 'an election', $done ],
		[ q{set_permits('permits', 3)}, 'a lock', $done ],
		[ "revoke_lease($revoked)", 'a lock', $done ],
		[ q{grant_lease('10 min')}, 'a lock', $done ],
		[ q{advance_revision(((SELECT incarnation FROM lock_election.manager) + 1) << 28)}, 'a lock', $done ]);

	# Runs a statement, and cancels it when it waits for the standby. Returns its result and messages.
	my $cancelled = sub {
		my ($session, $sql) = @_;
		my $pid = $session->pid;

		$session->async($sql);
		wait_until(sub { syncrep()->{$pid} }) or die "does not wait: $sql";
		$local->query("SELECT pg_cancel_backend($pid)");
		return $session->wait . $session->error;
	};

	kill 'STOP', $receiver;
	foreach my $case (@calls)
	{
		my ($call, $what, $detail) = @$case;

		like($cancelled->($s, "SELECT $call"), qr/ERROR:  57014: canceling wait for the replication of $what\nDETAIL:  $detail\n/, "$call is cancelled");
		unlike($s->error, qr/WARNING|already committed/, 'the error is the only message');
	}
	like($cancelled->($s, "SELECT await_lock('held', $place)"),
		qr/^psql:\S+ ERROR:  57014: .*DETAIL:  The state that this server reports might not have been replicated\./s, 'a place is not confirmed');

	# In a transaction.
	$s->query('BEGIN');
	like($cancelled->($s, "SELECT release_lock('renewed', $token)"), qr/^psql:\S+ ERROR:  57014: /, 'a release at commit is not confirmed');
	$s->query('ROLLBACK');
	is($local->query("SELECT is_held('renewed', $token)"), 't', 'the lock is still held after the cancelled release');
	$s->query("SET synchronous_commit = local; BEGIN; SELECT release_lock('renewed', $token); SET LOCAL synchronous_commit = on");
	like($cancelled->($s, 'COMMIT'), qr/WARNING:  .*canceling wait for synchronous replication.*\nDETAIL:  .*already committed locally/,
		'a cancelled COMMIT with a release gives the warning of PostgreSQL');
	$s->query('RESET synchronous_commit');

	# A grant.
	like($cancelled->($s, "SELECT acquire_lock('new', '1 h')"), qr/^psql:\S+ ERROR:  57014: .*it will be released/s, 'a cancelled grant is released');
	unlike($s->error, qr/committed/, 'there is no message about a commit');

	# A session that is terminated: its grant is released without a message; its COMMIT gives a warning.
	my ($ends, $commits) = map { session($node) } 1 .. 2;
	my $log = -s $node->logfile;

	$commits->query("SET synchronous_commit = local; BEGIN; SELECT release_lock('long', $long); SET LOCAL synchronous_commit = on");
	$ends->async(q{SELECT acquire_lock('new', '1 h')});
	$commits->async('COMMIT');
	ok(wait_until(sub { my $waits = syncrep(); return $waits->{ $ends->pid } && $waits->{ $commits->pid } }), 'two sessions wait for the standby');
	$local->query('SELECT pg_terminate_backend(' . $_->pid . ')') foreach $ends, $commits;
	ok(wait_until(sub { !grep { kill 0, $_->pid } $ends, $commits }), 'the terminated sessions end');
	ok(wait_until(sub { $local->query(q{SELECT count(*) FROM lock_election.locks WHERE name IN ('new', 'long')}) eq '0' }), 'the locks of the terminated sessions are released');
	ok($node->log_contains(qr/WARNING:  .*replication and terminating connection\n.*DETAIL:  .*already committed locally/, $log), 'the log contains a warning about the commit');
	unlike(slurp_file($node->logfile, $log), qr/canceling wait for the replication/,
		'the log contains no message about the grant');
	kill 'CONT', $receiver;
	$_->wait foreach $ends, $commits;
	$long = $s->query("SET synchronous_commit = local; SELECT acquire_lock('long', '1 h')");
	$s->query('RESET synchronous_commit');

	# A message after a commit must not raise an error, even if the client's encoding lacks a character of a name in it.
	unreadable_commits('utf8');
	my $latin = session($node, dbname => 'utf8');
	$latin->query(q{SET client_encoding = 'LATIN1'; SET synchronous_commit = local;
		SELECT acquire_lock('r' || i, '1 h') FROM generate_series(1, 6) AS i});
	kill 'STOP', $receiver;
	foreach my $i (1 .. 6)
	{
		is($cancelled->($latin, qq{DO \$\$ BEGIN PERFORM release_lock('r$i'); PERFORM set_config('synchronous_commit', 'on', true); CALL commits(); END \$\$}),
			'', "a procedure that commits is cancelled without a message that the client cannot convert: $i");
	}
	kill 'CONT', $receiver;
	is($latin->query(q{SELECT release_lock('r', acquire_lock('r', '1 h'))}), 't', 'the transactions are committed, and the session still works');
	$latin->quit;
	one('DROP DATABASE utf8');

	# Everything works when the standby continues.
	is($s->query("SELECT renew_lock('long', $long)"), '01:00:00', 'a renewal succeeds when the standby continues');
	is($s->query("SELECT release_lock('held', $holder)"), 't', 'a release succeeds when the standby continues');
	clean();
	$_->quit foreach $s, $other;
};

$_->quit foreach @sessions, $local;
$standby->stop;
$node->stop;
done_testing();
