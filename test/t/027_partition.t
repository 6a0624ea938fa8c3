# A primary that is cut off from its synchronous standby continues to run, but confirms nothing: after the promotion of
# the standby, two clients never both have a confirmed lease that is valid by their own clocks.
# Promises: M, D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time clock_gettime CLOCK_MONOTONIC);

use constant TTL => 9;

# The standby sends no status messages by itself, so a wait that depends on them never ends.
my $conf = "autovacuum = off\nwal_receiver_status_interval = 1d\nwal_sender_timeout = 0\nwal_retrieve_retry_interval = 100ms\n";
my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => $conf);
$primary->backup('base');
my %standby = map { $_ => PostgreSQL::Test::Cluster->new($_) } qw(s1 s2);
foreach my $name (sort keys %standby)
{
	$standby{$name}->init_from_backup($primary, 'base', has_streaming => 1);
	$standby{$name}->start;
}

# Runs a statement that must not wait for the standby itself.
sub see { return one($primary, "SET synchronous_commit = local; $_[0]"); }

sub synchronous
{
	my ($names, $count) = @_;

	see("ALTER SYSTEM SET synchronous_standby_names = '$names'");
	$primary->reload;
	return wait_for_sql($primary, "SELECT count(*) = $count FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')");
}

# Cuts the connection between primary and standby; mend() restores it.
sub cut
{
	my ($standby) = @_;

	one($standby, q{ALTER SYSTEM SET primary_conninfo = ''});
	$standby->reload;
	return wait_for_sql($primary, q{SELECT count(*) = 0 FROM pg_stat_replication WHERE application_name = '} . $standby->name . q{'});
}

sub mend
{
	my ($standby) = @_;

	one($standby, 'ALTER SYSTEM RESET primary_conninfo');
	$standby->reload;
	return wait_for_sql($primary, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND application_name = '} . $standby->name . q{'});
}

sub at_level { return session($primary, connstr => "options='-c synchronous_commit=$_[0]'"); }

sub wait_for_syncrep
{
	my ($n) = @_;
	return wait_for_sql($primary, "SET synchronous_commit = local; SELECT count(*) = $n FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
}

# Sleeping workers have their own wait event. They never wait for replication.
sub workers_do_not_wait
{
	my ($what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(see(q{SELECT string_agg(DISTINCT wait_event_type, ' ') FROM pg_stat_activity WHERE backend_type LIKE 'lock_election%'}), 'Extension', $what);
}

# Standbys confirm that they have applied the commit, also for commits of the extension.
subtest 'remote_apply' => sub {
	my $s = at_level('remote_apply');

	synchronous('s1', 1);
	my $lease = $s->query(q{SELECT grant_lease('1 h')});
	foreach my $call (q{acquire_lock('a', '1 h') > 0}, qq{keep_alive($lease) IS NOT NULL}, q{release_lock('a')}, q{campaign('e', 'me', '1 h') > 0},
		qq{revoke_lease($lease)}, q{force_resign('e') = 1}, 'advance_revision(1) > 0')
	{
		is($s->query("SELECT $call", 30), 't', $call);
		is($s->error, '', "$call returns without delay");
	}
	my $token = $s->query(q{SELECT acquire_lock('seen', '1 h')});
	is(one($standby{s1}, q{SELECT string_agg(token::text, ' ') FROM lock_election.locks}), $token, 'the standby shows the lock when the call returns');
	is($s->query("SELECT renew_lock('seen', $token) IS NOT NULL", 30), 't', 'a renewal returns');
	is($s->query("SELECT release_lock('seen', $token)", 30), 't', 'a release returns');
	$s->quit;
};

subtest 'a quorum' => sub {
	synchronous('ANY 1 (s1, s2)', 2);
	my %s = map { $_ => at_level($_) } qw(off local remote_write on remote_apply);

	cut($standby{s1});
	like($s{$_}->query(qq{SELECT acquire_lock('one $_', '1 h')}), qr/^\d+$/, "$_: one of two standbys is enough") foreach sort keys %s;
	cut($standby{s2});
	foreach my $level (qw(off local))
	{
		like($s{$level}->query(qq{SELECT acquire_lock('none $level', '1 h')}), qr/^\d+$/,
			"$level: an acquire waits for no standby");
		is($s{$level}->query(qq{SELECT release_lock('none $level')}), 't', "$level: a release waits for no standby");
	}
	my @waiting = qw(remote_write on remote_apply);
	$s{$_}->async(qq{SELECT acquire_lock('none $_', '1 h')}) foreach @waiting;
	wait_for_syncrep(3);
	workers_do_not_wait('the manager waits for no standby');

	# The notifier does not wait either, nor do sessions that wait for no standby.
	my $place = $s{local}->query(q{SELECT acquire_lock('held', '1 h'); SELECT token FROM enqueue_lock('held')}) =~ s/.*\n//r;
	$s{local}->query(q{LISTEN x; SELECT release_lock('held')});
	is($s{local}->query("SELECT await_lock('held', $place)"), 't',
		'a place is granted the lock while other sessions wait for a standby');
	wait_for_sql($primary, q{SET synchronous_commit = local; SELECT hints_sent > 0 FROM lock_election.stat});
	workers_do_not_wait('the notifier waits for no standby');
	ok(!grep({ $s{$_}->ready } @waiting), 'sessions that wait for a standby still wait');
	mend($standby{s2});
	like($s{$_}->wait, qr/^\d+$/, "$_: the acquire returns after one standby is reconnected") foreach @waiting;
	mend($standby{s1});
	see(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach values %s;
};

subtest 'the primary is cut off and still running' => sub {
	synchronous('s1', 1);
	cut($standby{s2});
	my $ttl = TTL . ' s';
	my @levels = qw(remote_write on remote_apply);
	my %client = map { $_ => at_level($_) } @levels;
	my @asking = map { at_level('on') } 1 .. 19;
	my $renewing = at_level('remote_write');
	my (%token, %valid_until, $lease, $term);

	# A client may believe in its lease until one TTL after it sent its last successful call.
	foreach my $level (@levels)
	{
		$valid_until{$level} = clock_gettime(CLOCK_MONOTONIC) + TTL;
		$token{$level} = $client{$level}->query("SELECT acquire_lock('job $level', '$ttl')");
	}
	$lease = $client{on}->query('SELECT grant_lease()');
	$term = $client{on}->query(q{SELECT campaign('boss', 'me', '1 min')});
	$client{on}->query(qq{SELECT acquire_lock('hung on it', lease => $lease)});
	my $both = $client{on}->query("SELECT acquire_lock('both', '$ttl')");
	my $reign = $client{on}->query("SELECT campaign('both', 'me', '$ttl')");

	# Calls that are sent after the connection is cut.
	cut($standby{s1});
	my @calls = (
		qq{renew_lock('job on', $token{on})}, qq{is_held('job on', $token{on})}, qq{keep_alive($lease)}, qq{renew_leadership('boss', $term)},
		qq{is_leader('boss', $term)}, qq{acquire_lock('new')}, q{try_acquire_lock('newer')}, q{acquire_locks('{n1, n2}')}, q{acquire_permit('p', 1)},
		q{enqueue_lock('place')}, q{campaign('other', 'me')}, 'grant_lease()', qq{acquire_lock('x', lease => $lease)}, qq{acquire_lock('hung on it', lease => $lease)}, qq{proclaim('boss', $term, 'me')},
		qq{fence_lock('job on', $token{on})}, qq{lease_time_to_live($lease)}, qq{lease_holds($lease)}, q{current_leader('boss')});
	$asking[$_]->async("SET statement_timeout = '10 s'; SELECT $calls[$_]") foreach 0 .. $#calls;
	$renewing->async(qq{SELECT renew_lock('job remote_write', $token{remote_write})});
	$client{remote_apply}->async(qq{SELECT renew_lock('job remote_apply', $token{remote_apply})});
	wait_for_syncrep(@calls + 2);

	my $promoted = clock_gettime(CLOCK_MONOTONIC);
	$standby{s1}->promote;
	wait_for_sql($standby{s1}, 'SELECT count(*) > 0 FROM lock_election.manager');
	is(one($standby{s1}, "SELECT renew_lock('both', $both, '1 h'), renew_leadership('both', $reign, '1 h')"), '01:00:00|01:00:00', 'the new primary renews leases');
	my %next;
	foreach my $level (@levels)
	{
		$next{$level} = session($standby{s1});
		$next{$level}->async("SELECT acquire_lock('job $level', '1 h')");
	}
	my $left = one($standby{s1}, q{SELECT extract(epoch FROM min(time_left)) FROM lock_election.locks WHERE name LIKE 'job%'});
	cmp_ok($left, '>', TTL - 0.5 - (clock_gettime(CLOCK_MONOTONIC) - $promoted),
		'leases start with their full TTL on the new primary');
	foreach my $level (@levels)
	{
		my $new = $next{$level}->wait;
		my $now = clock_gettime(CLOCK_MONOTONIC);
		cmp_ok($now, '>', $valid_until{$level}, "$level: the next holder is granted the lock after the lease of the old holder ended by its own clock");
		cmp_ok($new, '>', $token{$level}, "$level: the next holder has a higher token");
	}

	# The old primary has confirmed nothing since the connection was cut.
	foreach my $i (0 .. $#calls)
	{
		is($asking[$i]->wait, '', "$calls[$i]: returns nothing");
		like($asking[$i]->error, qr/ERROR:  57014: canceling wait for the replication of (a lock|an election)\n/, "$calls[$i]: the error says that replication was awaited");
	}
	ok(!$renewing->ready && !$client{remote_apply}->ready, 'calls without a timeout still wait');
	workers_do_not_wait('the manager of the old primary waits for no standby');
	like(at_level('local')->query(q{SELECT acquire_lock('for nobody else', '1 h')}), qr/^\d+$/, 'a lock can be acquired at level local on the old primary');

	# The old primary immediately reports that a lease has ended, even if the new primary has renewed that lease.
	wait_for_sql($primary, q{SET synchronous_commit = local; SELECT count(*) = 0 FROM lock_election.locks WHERE name = 'both'});
	my $asks = at_level('on');
	$asks->query(q{SET statement_timeout = '30 s'});
	is($asks->query("SELECT $_"), '', "$_: NULL on the old primary") foreach "renew_lock('both', $both)", "renew_leadership('both', $reign)";
	is($asks->query("SELECT $_"), 'f', "$_: false on the old primary") foreach "is_held('both', $both)", "is_leader('both', $reign)", "release_lock('both', $both)";
	$asks->query("SELECT await_lock('both', $both)");
	like($asks->error, qr/ERROR:  LE001/, 'await_lock() raises LE001 on the old primary');
	is($asks->query(q{SELECT try_acquire_lock('for nobody else')}) . $asks->error, '', 'a failed try_acquire_lock() does not wait on the old primary');
	$asks->quit;
	is(one($standby{s1}, "SELECT is_held('both', $both), is_leader('both', $reign)"), 't|t', 'the lock and the leadership are held on the new primary');

	# The old primary can be stopped.
	$primary->stop('fast');
	foreach my $s ($renewing, $client{remote_apply})
	{
		is($s->wait, undef, 'the waiting call returns nothing');
		like($s->error, qr/FATAL:  57P01: |server closed the connection/, 'the waiting call ends with the server');
	}
	$_->quit foreach values(%client), values(%next), @asking, $renewing;
};

$_->stop foreach values %standby;
done_testing();
