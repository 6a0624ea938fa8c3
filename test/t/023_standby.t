# A standby shows the locks and keeps them when it is promoted. If it is synchronous, calls that require it wait for it.
# Promises: D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub on_primary { return $primary->safe_psql('postgres', $_[0]); }

sub catch_up
{
	return $primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
}

# Stops or continues the replies of the standby.
sub signal_receiver
{
	my ($signal) = @_;
	my $pid = wal_receiver($standby);
	kill $signal, $pid;
	return $pid;
}

# Waits until n sessions wait for the standby.
sub wait_for_syncrep
{
	my ($n) = @_;
	return wait_for_sql($primary, "SELECT count(*) = $n FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
}

subtest 'views and functions on a standby' => sub {
	on_primary(q{SELECT acquire_lock('shown', '1 h', owner => 'me')});
	catch_up();
	is($standby->safe_psql('postgres', q{SELECT kind, name, mode, owner FROM lock_election.locks}), 'lock|shown|exclusive|me', 'view locks shows the lock');
	is($standby->safe_psql('postgres', q{SELECT count(*) FROM lock_election.waiters}), 0, 'view waiters is empty');
	is($standby->safe_psql('postgres', q{SELECT count(*) FROM lock_election.manager}), 0, 'view manager is empty');
	is(error_of($standby, q{SELECT * FROM lock_election.stat}), '', 'view stat can be read');
	foreach my $call (q{acquire_lock('x')}, q{try_acquire_lock('x')}, q{release_lock('x')}, q{renew_lock('x', 1)}, q{is_held('x', 1)}, q{force_release_lock('x')}, q{advance_revision(1)})
	{
		like(error_of($standby, "SELECT $call"), qr/ERROR:  25006: /, $call);
	}

	# The standby does not guess the meaning of an invalid row.
	foreach my $mode (99, 1)
	{
		on_primary(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER; UPDATE _lock_election.slot SET mode = $mode WHERE name = 'shown';
			ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
		catch_up();
		my $row = $standby->safe_psql('postgres', q{SELECT ctid FROM _lock_election.slot WHERE name = 'shown'});
		my $error = error_of($standby, 'SELECT * FROM lock_election.locks');
		$mode == 1 ? is($error, '', 'the repaired row can be read') : like($error, qr/ERROR:  XX001: invalid row \Q$row\E in table "_lock_election\.slot"\n/, 'an invalid row is an error');
	}
	on_primary(q{SELECT force_release_lock('shown')});

	# A closed name is shown only until its time, even if its row has not been deleted yet.
	my $manager = one($primary, 'SELECT pid FROM lock_election.manager');
	on_primary(q{SELECT release_lock('closed', acquire_lock('closed'), hold_for => '1 h')});
	on_primary(q{SELECT release_lock('soon', acquire_lock('soon'), hold_for => '1 s')});
	stop_asleep($manager);
	catch_up();
	ok(wait_for_sql($standby, q{SELECT string_agg(concat_ws(' ', name, mode), ',') FROM lock_election.locks}, 'closed'),
		'only names that are still closed are shown');
	kill 'CONT', $manager;
	on_primary(q{SELECT force_release_lock('closed')});
};

# Compares all columns except those that only a primary knows. The primary computes times from the manager's clock; the
# standby shows the stored times, which may differ slightly.
subtest 'a standby shows rows as they were written' => sub {
	my $s = session($primary, connstr => q{application_name='who it was' host=} . $primary->host);
	my $columns = 'SELECT kind, name, slot, mode, owner, role, token, lease, holds, pid, application_name, client_addr
		FROM lock_election.locks ORDER BY 1, 2, 3';
	my $times = q{SELECT name, slot, extract(epoch FROM acquired_at), extract(epoch FROM closed_until),
		CASE WHEN name NOT IN ('leased', 'one', 'another') THEN extract(epoch FROM expires_at) END FROM lock_election.locks ORDER BY kind, 1, 2};
	my $log = -s $primary->logfile;
	my $lease = $s->query(q{SELECT grant_lease('1 h')});

	$s->query($_) foreach (q{SELECT acquire_lock('twice', '1 h', owner => 'me')}) x 2, q{SELECT acquire_permit('permit', 2, '1 h')},
	  (q{SELECT acquire_lock('shared', '1 h', mode => 'shared')}) x 2, "SELECT acquire_lock('leased', lease => $lease)",
	  q{SELECT acquire_lock('bound', NULL)}, q{SELECT campaign('election', 'who', '1 h')},
	  q{SELECT release_lock('closed', acquire_lock('closed'), hold_for => '1 h')},
	  "SELECT campaign('leased', 'who', lease => $lease)", q{SELECT acquire_locks('{one,another}', '1 h')};
	my @wanted = map { $s->query($_) } $columns, $times;
	catch_up();
	my @shown = map { $standby->safe_psql('postgres', $_) } $columns, $times;
	is($shown[0], $wanted[0], 'the standby shows the rows of the primary');
	is($standby->safe_psql('postgres', 'SELECT count(*), count(time_left), count(waiters), count(connected) FROM lock_election.locks'),
		'11|0|0|0', 'columns that only the primary knows are NULL');
	my ($is, $was) = map { [ split /[\n|]/, $_, -1 ] } $shown[1], $wanted[1];
	my $close = 1; # seconds of difference, plus the time for which the manager did not run on a busy machine
	$close += $_ / 1000 foreach slurp_file($primary->logfile, $log) =~ /all leases are extended by (\d+) ms/g;
	my @differ = grep { $is->[$_] ne $was->[$_] && !("$is->[$_] $was->[$_]" =~ /^[\d.]+ [\d.]+$/ && abs($is->[$_] - $was->[$_]) < $close) } 0 .. $#$was;
	is("@$is[@differ]", "@$was[@differ]", 'the times are those of the primary');
	is($standby->safe_psql('postgres', q{SELECT count(*), count(expires_at) FROM lock_election.locks WHERE name = 'leased'}),
		'2|0', 'expires_at is NULL on a named lease');
	is($standby->safe_psql('postgres', q{SELECT candidate, term = (SELECT term FROM current_leader('election')), valid_for
			FROM lock_election.elections WHERE election = 'election'}), 'who|t|', 'the leader is shown');
	is($standby->safe_psql('postgres', q{SELECT candidate, expires_at FROM current_leader('leased')}), 'who|',
		'current_leader() has no expires_at on a named lease');

	# Addresses of each kind, and texts that the extension does not write.
	foreach my $case (
		[ '4711 ::1 app', '4711|app|::1' ],
		[ '4711 10.0.0.1 two words', '4711|two words|10.0.0.1' ],
		[ '4711 - ', '4711||' ],
		[ '4711 nowhere app', '4711|app|' ])
	{
		my ($acquirer, $expected) = @$case;

		on_primary(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
			UPDATE _lock_election.slot SET acquirer = '$acquirer' WHERE name = 'twice' AND mode <> 0;
			ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write;
			ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
		catch_up();
		is($standby->safe_psql('postgres', q{SELECT pid, application_name, client_addr FROM lock_election.locks WHERE name = 'twice'}),
			$expected, "acquired by '$acquirer'");
	}
	on_primary(q{SELECT force_release_role(current_user::regrole)});
	$s->quit;
};

subtest 'an asynchronous standby is not waited for' => sub {
	my $pid = signal_receiver('STOP');
	like(on_primary(q{SET synchronous_commit = remote_apply; SELECT acquire_lock('async', '1 h')}), qr/^\d+$/, 'an acquire does not wait for an asynchronous standby');
	is(on_primary(q{SELECT force_release_lock('async')}), 1,
		'a release by force does not wait for an asynchronous standby');
	kill 'CONT', $pid;
};

subtest 'a synchronous standby' => sub {
	$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
	$primary->reload;
	wait_for_sql($primary, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});
	my ($local, $held) = map { session($primary, connstr => "options='-c synchronous_commit=local'") } 1 .. 2;

	# The remaining time of the first lock is stored now and then, that of the second is not.
	my $token = $held->query(q{SELECT acquire_lock('renewed', '1 h')});
	my $short_token = $held->query(q{SELECT acquire_lock('short', '2 min')});

	foreach my $level ('on', 'remote_write', 'remote_apply')
	{
		my ($s, $other, $bound, $renewing) =
		  map { session($primary, connstr => "options='-c synchronous_commit=$level'") } 1 .. 4;

		like($s->query(qq{SELECT acquire_lock('before', '1 h')}), qr/^\d+$/, "$level: an acquire is confirmed");
		is($s->query(q{SELECT release_lock('before')}), 't', "$level: a release is confirmed");

		my $receiver = signal_receiver('STOP');
		$s->async(q{SELECT acquire_lock('sync', '1 h')});
		wait_for_syncrep(1);
		is($local->query(q{SELECT try_acquire_lock('sync') IS NULL}), 't',
			"$level: the lock is granted on the primary");

		# Sessions at level local are not delayed.
		my @released = map { $local->query(q{SELECT acquire_lock('local', '1 h')}); $local->query(q{SELECT release_lock('local')}) } 1 .. 20;
		is("@released", join(' ', ('t') x 20), "$level: a session at level local does not wait");
		my $bound_token = $bound->query(q{SELECT acquire_lock('bound', NULL)});
		like($bound_token, qr/^\d+$/, "$level: a bound lock does not wait");
		is($bound->query("SET statement_timeout = '10 s'; SELECT is_held('bound', $bound_token)"), 't', "$level: is_held() of a bound lock does not wait");
		$bound->query(q{SELECT release_lock('bound')});

		# Replies that reveal a grant, and renewals, also wait for the standby.
		$other->async("SELECT renew_lock('renewed', $token) IS NOT NULL");
		wait_for_syncrep(2);
		$renewing->async("SELECT renew_lock('short', $short_token) IS NOT NULL");
		wait_for_syncrep(3);
		is($held->query("SELECT renew_lock('renewed', $token) IS NOT NULL"), 't', "$level: a renewal at level local does not wait");
		ok(!$s->ready && !$other->ready && !$renewing->ready, "$level: the acquire and both renewals still wait");

		on_primary('SELECT pg_cancel_backend(' . $s->pid . ')');
		$s->wait;
		like($s->error, qr/ERROR:  57014: .*\nDETAIL:  .*granted locally/, "$level: a cancelled acquire fails");
		wait_for_sql($primary, q{SET synchronous_commit = local; SELECT count(*) = 0 FROM lock_election.locks WHERE name = 'sync'});
		pass("$level: a cancelled acquire releases the lock");
		on_primary('SELECT pg_cancel_backend(' . $other->pid . ')');
		$other->wait;
		like($other->error, qr/ERROR:  57014: /, "$level: a renewal is cancelled");
		unlike($other->error, qr/given back/, "$level: the cancelled renewal mentions no grant");
		is($local->query("SELECT is_held('renewed', $token)"), 't',
			"$level: the lock is still held after the cancelled renewal");

		# Another acquire of the same owner also waits for the standby, and waiters for the lock are granted it later.
		$s->async(q{SELECT acquire_lock('sync', '1 h', owner => 'me')});
		wait_for_syncrep(2);
		$other->async(q{SELECT acquire_lock('sync', '1 h', owner => 'me')});
		wait_for_syncrep(3);
		$local->async(q{SELECT acquire_lock('sync', '1 h')});
		wait_for_sql($primary, q{SELECT count(*) = 1 FROM lock_election.waiters});
		on_primary('SELECT pg_terminate_backend(' . $s->pid . ')');
		is($s->wait, undef, "$level: a waiting connection is terminated");
		kill 'CONT', $receiver;
		my $again = $other->wait;
		is($renewing->wait, 't', "$level: the other renewal is confirmed when the standby continues");
		like($again, qr/^\d+$/, "$level: the acquire of the same owner is confirmed when the standby continues");
		is($other->query("SELECT release_lock('sync', $again)"), 't', "$level: the lock is released");
		like($local->wait, qr/^\d+$/, "$level: the waiter is granted the lock");
		$local->query(q{SELECT release_lock('sync')});
		$_->quit foreach $s, $other, $bound, $renewing;
	}

	$held->query("SELECT release_lock('short', $short_token)");

	# A grant fails if its lease ends while the grant waits for the standby.
	my $short = session($primary);
	my $renewed = $held->query(q{SELECT acquire_lock('short renewed', '1 h')});
	my %late = (
		q{SELECT acquire_lock('short', '500 ms')} => 'lock "short"',
		q{SELECT acquire_locks('{short a,short b}', '500 ms')} => 'lock "short a"',
		q{SELECT acquire_permit('short permit', 1, '500 ms')} => 'lock "short permit"',
		q{SELECT token FROM try_acquire_each('{short each}', '500 ms')} => 'lock "short each"',
		q{SELECT token FROM enqueue_lock('short place', '500 ms')} => 'lock "short place"',
		q{SELECT campaign('short', 'me', '500 ms')} => 'election "short"',
		"SELECT renew_lock('short renewed', $renewed, '500 ms')" => 'lock "short renewed"',
		q{SELECT grant_lease('500 ms')} => qr/lease "\d+"/);
	my %asks = map { $_ => session($primary) } keys %late;
	my $receiver = signal_receiver('STOP');
	my $all_asked = sub { return $local->query(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) + grep({ $_->ready } values %asks) == keys %asks; };
	$asks{$_}->async($_) foreach keys %asks;
	wait_until($all_asked) or die 'some calls do not wait'; # on a busy machine, some may have ended already
	wait_for_sql($primary, q{SET synchronous_commit = local; SELECT count(*) = 0 FROM lock_election.locks WHERE name LIKE 'short%'});
	wait_for_sql($primary, q{SET synchronous_commit = local; SELECT count(*) = 0 FROM lock_election.leases});
	kill 'CONT', $receiver;
	foreach my $call (sort keys %late)
	{
		is($asks{$call}->wait, '', "$call: nothing is returned");
		like($asks{$call}->error, qr/ERROR:  LE001: $late{$call} was lost while waiting for durability\n/,
			"$call: LE001");
		like($asks{$call}->error, qr/DETAIL:  It expired before the flush completed or the standbys confirmed it\.\n/, "$call: the detail explains the loss");
		$asks{$call}->quit;
	}

	# A fenced lock is not lost.
	my %fences = (
		fence => q{SELECT fence_lock('fence', :t) IS NOT NULL},
		release => q{SELECT release_lock('release', :t)},
		each => q{SELECT released FROM release_each('{each}', ARRAY[:t])},
		several => q{SELECT release_locks('{several}', :t)});
	my $ttl = 1;
	my %answers;
	do
	{
		# On a busy machine, the TTL may end before the fence.
		$ttl *= 2;
		$receiver = signal_receiver('STOP');
		%asks = map { $_ => session($primary) } keys %fences;
		foreach my $name (keys %asks)
		{
			$asks{$name}->async("SET synchronous_commit = local; SELECT acquire_lock('$name', '$ttl s') AS t \\gset\n"
				  . "SET synchronous_commit = on; BEGIN; $fences{$name}");
		}
		wait_until($all_asked) or die 'some calls do not wait';
		wait_for_sql($primary, q{SET synchronous_commit = local;
			SELECT count(*) = 0 FROM lock_election.locks WHERE time_left > '0' AND name <> 'renewed'});
		kill 'CONT', $receiver;
		%answers = map { $_ => $asks{$_}->wait . $asks{$_}->error } keys %asks;
		$_->quit foreach values %asks;
	} while ($ttl < 60 && grep { /LE001: lock "\w+" is not held|42601: |^f/ } values %answers);
	is($answers{$_}, 't', "$fences{$_}: succeeds although the TTL ends while it waits") foreach sort keys %fences;

	# is_held() reveals a grant.
	$receiver = signal_receiver('STOP');
	$local->query(q{SELECT acquire_lock('seen', '1 h')});
	my $seen = $local->query(q{SELECT token FROM lock_election.locks WHERE name = 'seen'});
	$short->async("SELECT is_held('seen', $seen)");
	wait_for_syncrep(1);
	ok(!$short->ready, 'is_held() waits, because it reveals a grant');
	kill 'CONT', $receiver;
	is($short->wait, 't', 'is_held() returns after the standby has confirmed');

	# A release, with a lease that a crash must not bring back, and with a shorter one.
	foreach my $ttl ('1 h', '1 min')
	{
		$seen = $short->query("SELECT acquire_lock('free', '$ttl')");
		$receiver = signal_receiver('STOP');
		$short->async("SELECT release_lock('free', $seen)");
		wait_for_syncrep(1);
		on_primary('SELECT pg_cancel_backend(' . $short->pid . ')');
		$short->wait;
		unlike($short->error, qr/given back/, "$ttl: a cancelled release does not give back a grant");
		kill 'CONT', $receiver;
	}
	on_primary(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach $local, $held, $short;
	nothing_left($primary);
};

subtest 'promotion' => sub {
	my @s = map { session($primary) } 1 .. 2;
	my %token;

	$token{$_} = $s[0]->query("SELECT acquire_lock('$_', '1 h')") foreach qw(a b);
	$token{short} = $s[0]->query(q{SELECT acquire_lock('short', '1 min')});
	my $highest = $s[1]->query(q{SELECT acquire_lock('bound', NULL)});
	$s[1]->async(q{SELECT acquire_lock('a', '1 h')});
	wait_for_sql($primary, q{SELECT count(*) = 1 FROM lock_election.waiters});

	# The lease must have its full TTL after the promotion.
	wait_for_sql($primary, q{SELECT time_left < '58 s' FROM lock_election.locks WHERE name = 'short'});
	my $incarnation = on_primary('SELECT incarnation FROM lock_election.manager');
	my $stopped = time;
	$primary->stop('immediate');
	$_->quit foreach @s;
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->promote;
	wait_for_sql($standby, 'SELECT count(*) > 0 FROM lock_election.manager');
	my ($names, $left) = split /\|/, $standby->safe_psql('postgres', q{SELECT string_agg(name, ' ' ORDER BY name), extract(epoch FROM min(time_left)) FROM lock_election.locks});
	is($names, 'a b short', 'locks with a TTL exist after the promotion');
	cmp_ok($left, '>', 59.5 - (time - $stopped), 'they have their full TTL after the promotion');
	is($standby->safe_psql('postgres', "SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
	is($standby->safe_psql('postgres', q{SELECT try_acquire_lock('a') IS NULL}), 't',
		'a held lock is not granted to another session');
	my $new = $standby->safe_psql('postgres', q{SELECT acquire_lock('new', '1 h')});
	cmp_ok($new, '>', $highest, 'tokens increase with the promotion');
	cmp_ok($new >> 28, '>=', (int($incarnation / 64) + 1) * 64, 'the promotion skips a block of incarnations');
	is($standby->safe_psql('postgres', "SELECT release_lock('a', $token{a})"), 't',
		'a lock can be released after the promotion');
	is($standby->safe_psql('postgres', q{SELECT acquire_lock('a', '1 h') IS NOT NULL}), 't',
		'a lock can be acquired after the promotion');
	is($standby->safe_psql('postgres', q{SELECT release_lock('bound', acquire_lock('bound', '1 h', wait => '20 s'))}), 't', 'a bound lock is free after the promotion');

	# A restart stays on the same timeline, so it does not skip a block of incarnations.
	$standby->restart;
	my $newer = $standby->safe_psql('postgres', q{SELECT acquire_lock('newer', '1 h')});
	cmp_ok($newer, '>', $new, 'tokens increase with a restart');
	cmp_ok($newer >> 28, '<', ($new >> 28) + 64, 'a restart skips fewer incarnations than a promotion');
};

$standby->stop;
done_testing();
