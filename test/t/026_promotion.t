# A standby is promoted: acknowledged changes are kept, tokens continue to grow, and clients reconnect. 023_standby.t
# tests what a standby shows and confirms before that.
# Promises: T, D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# Returns a token of a lock that is free again afterwards.
sub token { return one($_[0], q{SELECT t FROM acquire_lock('t') t WHERE release_lock('t', t)}); }

# Creates another standby of this node. It sends no status messages by itself, so a wait that depends on them never
# ends.
sub new_standby
{
	my ($primary, $name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''\nwal_receiver_status_interval = 1d\n");
	$standby->start;
	return $standby;
}

sub synchronous
{
	my ($node, $names, $count) = @_;

	one($node, "ALTER SYSTEM SET synchronous_standby_names = '$names'");
	$node->reload;
	return wait_for_sql($node, "SELECT count(*) = $count FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')");
}

# Cuts off the standby. The standby receives nothing more, but keeps running.
sub disconnect
{
	my ($standby) = @_;

	$standby->append_conf('postgresql.conf', q{primary_conninfo = ''});
	$standby->reload;
	return wait_for_sql($standby, 'SELECT count(*) = 0 FROM pg_stat_wal_receiver');
}

# Promotes the standby and waits for its manager.
sub promote
{
	my ($node) = @_;

	$node->promote;
	return wait_for_sql($node, 'SELECT count(*) > 0 FROM lock_election.manager');
}

# Connects a client that knows both servers, and uses the one that accepts writes.
sub client
{
	my @nodes = @_;
	my $hosts = join ',', map { $_->host } @nodes;
	my $ports = join ',', map { $_->port } @nodes;

	return session($nodes[0], connstr => "host=$hosts port=$ports target_session_attrs=read-write connect_timeout=10");
}

my $a = new_node('a', init => [ allows_streaming => 1 ], conf => "autovacuum = off\nwal_log_hints = on\nwal_keep_size = '64MB'\n");
my $b = new_standby($a, 'b');
my @s;

subtest 'acknowledged changes are kept' => sub {
	synchronous($a, '*', 1);
	@s = map { client($a, $b) } 1 .. 5;
	my %call = (
		held => q{acquire_lock('held', '1 h')},
		shared => q{acquire_lock('shared', '1 h', mode => 'shared')},
		owned => q{acquire_lock('owned', '1 h', owner => 'me')},
		permit => q{acquire_permit('permit', 2, '1 h')},
		group => q{acquire_locks('{g1, g2}', '1 h')},
		lease => q{grant_lease('1 h')},
		term => q{campaign('boss', 'first', '1 h')});
	my %t = map { $_ => $s[0]->query("SELECT $call{$_}") } sort keys %call;

	$t{leased} = $s[0]->query("SELECT acquire_lock('leased', lease => $t{lease})");
	$t{$_} = $s[1]->query(qq{SELECT token FROM enqueue_lock('held', '1 h', owner => '$_')}) foreach qw(q1 q2);
	$t{candidate} = $s[1]->query(q{SELECT term FROM enqueue_candidate('boss', 'second', '1 h')});
	is($s[0]->query(qq{SELECT proclaim('boss', $t{term}, 'still first')}), 't', 'proclaim() succeeds on the primary');
	$t{closed} = $s[0]->query(q{SELECT acquire_lock('closed', '1 h')});
	is($s[0]->query(qq{SELECT release_lock('closed', $t{closed}, hold_for => '1 h')}), 't',
		'a name is closed for an hour on the primary');
	$t{gone} = $s[0]->query(q{SELECT acquire_lock('gone', '1 h')});
	is($s[0]->query(qq{SELECT release_lock('gone', $t{gone})}), 't', 'a lock is released on the primary');
	is($s[0]->query('SELECT advance_revision((SELECT revision + 1000 * 2^28 FROM lock_election.manager)::bigint) > 0'), 't', 'advance_revision() succeeds on the primary');
	my $last = $t{last} = $s[0]->query(q{SELECT acquire_lock('last', '1 h')});

	# Waiting calls get an error.
	$s[2]->async(q{SELECT acquire_lock('held', '1 h', owner => 'waiter')});
	$s[3]->async(qq{SELECT await_lock('held', $t{q1}, NULL)});
	$s[4]->async(q{SELECT campaign('boss', 'third', wait => '1 h')});
	wait_for_sql($a, q{SET synchronous_commit = local; SELECT count(*) = 5 FROM lock_election.waiters});
	$a->stop('immediate');
	foreach my $i (2 .. 4)
	{
		is($s[$i]->wait, undef, 'a wait ends with its server');
		like($s[$i]->error, qr/57P02|terminating connection|server closed the connection/,
			'the error of the wait names the reason');
	}
	$_->quit foreach @s;
	promote($b);

	# The incarnation increases by a block, for what another history of this timeline may have counted, and by the
	# minutes since the last start.
	is(one($b, qq{SELECT is_held('last', $last)}), 't',
		'the last acquired lock is held');    # the manager has loaded all rows
	my $passed = one($b, 'SELECT incarnation FROM lock_election.manager') - ($last >> 28);
	cmp_ok($passed, '>=', 128, 'the incarnation is ahead of those that the old primary may have used');
	cmp_ok($passed, '<', 128 + 60, 'the incarnation is not much further ahead');
	is(one($b, qq{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}),
		'boss closed g1 g2 held last leased owned permit shared', 'view locks shows all held locks and closed names');
	is(one($b, qq{SELECT is_held('$_', $t{$_})}), 't', "$_ is held") foreach qw(held shared owned permit leased last);
	is(one($b, qq{SELECT renew_lock('g2', $t{group}) > '59 min'}), 't', 'a lease of several names can be renewed');
	is(one($b, qq{SELECT keep_alive($t{lease}) > '59 min'}), 't', 'the named lease is alive');
	is(one($b, q{SELECT candidate, term FROM current_leader('boss')}), "still first|$t{term}",
		'the leader still leads');
	is(one($b, q{SELECT string_agg(how, ' ' ORDER BY change) FROM election_history('boss')}), 'elected proclaimed',
		'the history is complete');
	is(one($b, q{SELECT try_acquire_lock('closed', '1 h') IS NULL}), 't', 'the closed name stays closed');
	is(one($b, q{SELECT acquire_permit('permit', 2, '1 h', '0') IS NOT NULL AND acquire_permit('permit', 2, '1 h', '0') IS NULL}), 't', 'one permit is free');
	is(one($b, q{SELECT acquire_lock('owned', '1 h', owner => 'me')}), $t{owned},
		'the named owner gets its token again');

	# A client continues with its places, which keep their order.
	my $client = client($a, $b);
	is($client->query(qq{SELECT await_lock('held', $t{q2})}), 'f', 'the second place is not granted the lock yet');
	is($client->query(qq{SELECT string_agg(token::text, ' ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'held'}),
		"$t{q1} $t{q2}", 'the places keep their order');
	$client->async(qq{SELECT await_lock('held', $t{q1}, NULL)});
	wait_for_sql($b, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $client->pid);
	is(one($b, qq{SELECT release_lock('held', $t{held})}), 't', 'the holder releases the lock');
	is($client->wait, 't', 'the first place is granted the lock');
	is($client->query(qq{SELECT release_lock('held', $t{q1}); SELECT await_lock('held', $t{q2})}), "t\nt", 'the second place is granted the lock after the first');
	is($client->query(qq{SELECT resign('boss', $t{term}); SELECT await_leadership('boss', $t{candidate})}), "t\nt", 'the candidate is elected');
	is(one($b, q{SELECT candidate FROM current_leader('boss')}), 'second', 'current_leader() returns the new leader');
	$client->quit;
	cmp_ok(token($b), '>', $last, 'tokens increase');
	one($b, q{SELECT force_release_lock(name) FROM lock_election.locks WHERE kind = 'lock'; SELECT force_resign('boss')});
};

# The last part of the WAL is lost, and the old primary continues by itself for a while.
subtest 'asynchronous' => sub {
	my $highest = token($b);
	my ($primary, $old) = ($b, $a);

	# The roles change from A to B, to A, to B. Each time, the old primary becomes the standby by pg_rewind or by a new
	# base backup.
	foreach my $round (1 .. 3)
	{
		my $standby;
		if ($round == 1)
		{
			one($primary, 'CHECKPOINT'); # so that pg_rewind sees the new timeline
			$old->command_ok([ 'pg_rewind', '--no-sync', '-D', $old->data_dir, '--source-server', $primary->connstr('postgres') ],
				'the old primary is rewound');
			$old->append_conf('postgresql.conf', 'port = ' . $old->port . "\nwal_receiver_status_interval = 1d\n");
			$old->enable_streaming($primary);
			$old->start;
			$standby = $old;
		}
		else
		{
			$standby = new_standby($primary, "n$round");
		}
		one($primary, q{SELECT acquire_lock('kept', '1 h', owner => 'me')});
		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
		disconnect($standby);

		# Acknowledged by the primary, never sent to the standby. Each crash uses another incarnation. Up to 64 of them
		# lie below those of the next timeline; here all but two are used at once.
		my $known = one($primary, 'SELECT incarnation FROM _lock_election.meta');
		foreach my $crash (1 .. 3)
		{
			one($primary, "SELECT advance_revision(($known + 64)::bigint << 28)") if $crash == 3;
			my $lost = one($primary, "SELECT acquire_lock('lost$crash', '1 h', '5 s')");
			cmp_ok($lost, '>', $highest, "round $round: tokens of the old primary increase, crash $crash");
			$highest = $lost;
			$primary->stop('immediate');
			$primary->start if $crash < 3;
		}
		promote($standby);
		my $new = token($standby);
		cmp_ok($highest >> 28, '==', $known + 64, "round $round: 64 incarnations are lost");
		cmp_ok($new, '>', $highest, "round $round: tokens of the new primary are above the lost ones");
		is(one($standby, q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'kept', "round $round: locks that were not replicated are lost");
		$highest = $new;

		# A crash immediately after the promotion does not repeat tokens either.
		$standby->stop('immediate');
		$standby->start;
		cmp_ok(token($standby), '>', $highest, "round $round: tokens increase after a crash of the new primary");
		$highest = token($standby);
		($primary, $old) = ($standby, $primary);
	}
	$b = $primary;
};

# The incarnation of a database that has run for days is behind the clock. A crash of the primary, which its standby
# does not know of, makes it catch up with the clock. The standby must do the same, and go beyond it.
subtest 'a promotion within a minute of a crash of the primary' => sub {
	my $c = new_node('c', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");
	my $d = new_standby($c, 'd');

	one($c, "ALTER TABLE _lock_election.$_ DISABLE TRIGGER USER; UPDATE _lock_election.$_ SET incarnation = incarnation - 5000; ALTER TABLE _lock_election.$_ ENABLE TRIGGER USER")
	  foreach qw(meta incarnation_floor);
	$c->wait_for_catchup($d, 'replay', $c->lsn('insert'));
	disconnect($d);
	$c->stop('immediate');
	$c->start;
	token($c) foreach 1 .. 3;
	my $last = token($c);
	promote($d);
	cmp_ok(token($d), '>', $last, 'tokens of the new primary are above the lost ones');
	$_->stop foreach $c, $d;
};

done_testing();
