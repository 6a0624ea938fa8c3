# A standby is promoted: acknowledged changes are kept, tokens continue to grow, and clients reconnect. 023_standby.t
# tests what a standby shows and confirms before that.
# Promises: T, D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# A token of a lock that is free again afterwards.
sub token { return one($_[0], q{SELECT t FROM acquire_lock('t') t WHERE release_lock('t', t)}); }

# Another standby of this node. No status message by itself: whoever waits for one waits for ever.
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

# It gets nothing more, and has no reason to stop anything.
sub disconnect
{
	my ($standby) = @_;

	$standby->append_conf('postgresql.conf', q{primary_conninfo = ''});
	$standby->reload;
	return wait_for_sql($standby, 'SELECT count(*) = 0 FROM pg_stat_wal_receiver');
}

# Promoted, with a manager.
sub promote
{
	my ($node) = @_;

	$node->promote;
	return wait_for_sql($node, 'SELECT count(*) > 0 FROM lock_election.manager');
}

# A client that knows both, and goes to the one that can write.
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

subtest 'what was acknowledged is there' => sub {
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
	is($s[0]->query(qq{SELECT proclaim('boss', $t{term}, 'still first')}), 't', 'proclaimed');
	$t{closed} = $s[0]->query(q{SELECT acquire_lock('closed', '1 h')});
	is($s[0]->query(qq{SELECT release_lock('closed', $t{closed}, hold_for => '1 h')}), 't', 'closed for an hour');
	$t{gone} = $s[0]->query(q{SELECT acquire_lock('gone', '1 h')});
	is($s[0]->query(qq{SELECT release_lock('gone', $t{gone})}), 't', 'released');
	is($s[0]->query('SELECT advance_revision((SELECT revision + 1000 * 2^28 FROM lock_election.manager)::bigint) > 0'), 't', 'advanced');
	my $last = $t{last} = $s[0]->query(q{SELECT acquire_lock('last', '1 h')});

	# those who wait are told
	$s[2]->async(q{SELECT acquire_lock('held', '1 h', owner => 'waiter')});
	$s[3]->async(qq{SELECT await_lock('held', $t{q1}, NULL)});
	$s[4]->async(q{SELECT campaign('boss', 'third', wait => '1 h')});
	wait_for_sql($a, q{SET synchronous_commit = local; SELECT count(*) = 5 FROM lock_election.waiters});
	$a->stop('immediate');
	foreach my $i (2 .. 4)
	{
		is($s[$i]->wait, undef, 'a wait ends with its server');
		like($s[$i]->error, qr/57P02|terminating connection|server closed the connection/, 'and says why');
	}
	$_->quit foreach @s;
	promote($b);

	# by what another history of one timeline may have counted, and by the minutes since the last start
	is(one($b, qq{SELECT is_held('last', $last)}), 't', 'the last one is held');    # the manager has loaded all, and told that
	my $passed = one($b, 'SELECT incarnation FROM lock_election.manager') - ($last >> 28);
	cmp_ok($passed, '>=', 128, 'tokens are ahead of those that the old primary may have given out since then');
	cmp_ok($passed, '<', 128 + 60, 'and not much further');
	is(one($b, qq{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks}),
		'boss closed g1 g2 held last leased owned permit shared', 'held or closed are these');
	is(one($b, qq{SELECT is_held('$_', $t{$_})}), 't', "$_ is held") foreach qw(held shared owned permit leased last);
	is(one($b, qq{SELECT renew_lock('g2', $t{group}) > '59 min'}), 't', 'several are renewed');
	is(one($b, qq{SELECT keep_alive($t{lease}) > '59 min'}), 't', 'the lease lives');
	is(one($b, q{SELECT candidate, term FROM current_leader('boss')}), "still first|$t{term}", 'the leader leads');
	is(one($b, q{SELECT string_agg(how, ' ' ORDER BY change) FROM election_history('boss')}), 'elected proclaimed', 'the history is there');
	is(one($b, q{SELECT try_acquire_lock('closed', '1 h') IS NULL}), 't', 'what is closed stays so');
	is(one($b, q{SELECT acquire_permit('permit', 2, '1 h', '0') IS NOT NULL AND acquire_permit('permit', 2, '1 h', '0') IS NULL}), 't', 'one permit is left');
	is(one($b, q{SELECT acquire_lock('owned', '1 h', owner => 'me')}), $t{owned}, 'the owner gets its token again');

	# a client goes on with its places, in their order
	my $client = client($a, $b);
	is($client->query(qq{SELECT await_lock('held', $t{q2})}), 'f', 'the second place');
	is($client->query(qq{SELECT string_agg(token::text, ' ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'held'}),
		"$t{q1} $t{q2}", 'is behind the first one');
	$client->async(qq{SELECT await_lock('held', $t{q1}, NULL)});
	wait_for_sql($b, q{SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = } . $client->pid);
	is(one($b, qq{SELECT release_lock('held', $t{held})}), 't', 'the holder releases');
	is($client->wait, 't', 'the first place is granted');
	is($client->query(qq{SELECT release_lock('held', $t{q1}); SELECT await_lock('held', $t{q2})}), "t\nt", 'and then the second');
	is($client->query(qq{SELECT resign('boss', $t{term}); SELECT await_leadership('boss', $t{candidate})}), "t\nt", 'the candidate is elected');
	is(one($b, q{SELECT candidate FROM current_leader('boss')}), 'second', 'and seen');
	$client->quit;
	cmp_ok(token($b), '>', $last, 'tokens go on');
	one($b, q{SELECT force_release_lock(name) FROM lock_election.locks WHERE kind = 'lock'; SELECT force_resign('boss')});
};

# The tail of the log is lost, and the old primary goes on by itself for a while.
subtest 'asynchronous' => sub {
	my $highest = token($b);
	my ($primary, $old) = ($b, $a);

	# A -> B -> A -> B: back again each time, by pg_rewind and by a new base backup
	foreach my $round (1 .. 3)
	{
		my $standby;
		if ($round == 1)
		{
			one($primary, 'CHECKPOINT'); # pg_rewind looks for the new timeline there
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

		# Acknowledged locally, never sent. Each crash is another incarnation, up to 64 of them lie below those of
		# the next timeline; here all but two at once.
		my $known = one($primary, 'SELECT incarnation FROM _lock_election.meta');
		foreach my $crash (1 .. 3)
		{
			one($primary, "SELECT advance_revision(($known + 64)::bigint << 28)") if $crash == 3;
			my $lost = one($primary, "SELECT acquire_lock('lost$crash', '1 h', '5 s')");
			cmp_ok($lost, '>', $highest, "round $round: the old primary, $crash");
			$highest = $lost;
			$primary->stop('immediate');
			$primary->start if $crash < 3;
		}
		promote($standby);
		my $new = token($standby);
		cmp_ok($highest >> 28, '==', $known + 64, "round $round: 64 lost incarnations");
		cmp_ok($new, '>', $highest, "round $round: tokens go on above the lost tail");
		is(one($standby, q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'kept', "round $round: which is lost");
		$highest = $new;

		# nor does a crash right after it repeat anything
		$standby->stop('immediate');
		$standby->start;
		cmp_ok(token($standby), '>', $highest, "round $round: and above that after a crash");
		$highest = token($standby);
		($primary, $old) = ($standby, $primary);
	}
	$b = $primary;
};

# A database that has run for days is behind the clock; its primary's crash, which its standby has not heard of, catches up
# with that. So must the standby, and go beyond it.
subtest 'within a minute' => sub {
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
	cmp_ok(token($d), '>', $last, 'tokens go on above the lost tail');
	$_->stop foreach $c, $d;
};

done_testing();
