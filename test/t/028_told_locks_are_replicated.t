# A client that learns that a lock is held waits until the grant is replicated, like the client that acquired it.
# Otherwise a promotion could revoke what was reported.
# Promises: D
use strict;
use warnings;
use LeTest;
use Test::More;

my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
my $receiver = wal_receiver($standby);
$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$primary->reload;
wait_for_sql($primary, q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'});

# This session does not wait for the standby.
my $local = session($primary, connstr => q{options='-c synchronous_commit=local'});
my $old_lock = $local->query(q{SELECT acquire_lock('old lock', '1 min')});
my $old_place = $local->query(q{SELECT token FROM enqueue_lock('old place', '1 min')});
my $old_lease = $local->query(q{SELECT grant_lease('1 min')});
$primary->wait_for_catchup($standby, 'flush', $primary->lsn('insert'));

kill 'STOP', $receiver;
my $lock = $local->query(q{SELECT acquire_lock('lock', '1 min', owner => 'me')});
my $place = $local->query(q{SELECT token FROM enqueue_lock('place', '1 min')});
my $lease = $local->query(q{SELECT grant_lease('1 min')});
my $on_lease = $local->query("SELECT acquire_lock('on lease', NULL, lease => $lease)");
my $term = $local->query(q{SELECT campaign('election', 'a', '1 min')});
my $several = $local->query(q{SELECT acquire_locks(ARRAY['a', 'b'], '1 min')});

my @calls = (
	"is_held('lock', $lock)", "renew_lock('lock', $lock) IS NOT NULL",
	"renew_lock('lock', $lock, '2 min') IS NOT NULL", "acquire_lock('lock', '1 min', owner => 'me') = $lock",
	"fence_lock('lock', $lock) IS NOT NULL", "await_lock('place', $place)",
	"keep_alive($lease) IS NOT NULL", "lease_time_to_live($lease) IS NOT NULL", "(SELECT count(*) = 1 FROM lease_holds($lease))",
	"acquire_lock('on lease', NULL, lease => $lease) = $on_lease", "renew_lock('b', $several) IS NOT NULL",
	"is_leader('election', $term)", "renew_leadership('election', $term) IS NOT NULL",
	"await_leadership('election', $term)", "(SELECT term = $term FROM current_leader('election'))");

# A primary that is cut off must not continue to confirm leases.
push @calls, "renew_lock('old lock', $old_lock) IS NOT NULL", "keep_alive($old_lease) IS NOT NULL", "(SELECT count(*) = 0 FROM lease_holds($old_lease))", "await_lock('old place', $old_place)";
my %session = map { $_ => session($primary) } @calls;

$session{$_}->async("SELECT $_") foreach @calls;
foreach my $call (@calls)
{
	my $s = $session{$call};

	wait_until(
		sub {
			return $s->ready || $local->query("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $s->pid) eq 't';
		});
	ok(!$s->ready, "$call waits");
}
kill 'CONT', $receiver;
foreach my $call (@calls)
{
	is($session{$call}->wait, 't', "$call returns when the standby continues");
	is($session{$call}->error =~ s/^(?:psql:\S+ )?(?:WARNING:  25P01|NOTICE:  00000).*//msr, '',
		"$call returns without an error");
	$session{$call}->quit;
}
$local->quit;
$standby->stop;
$primary->stop;
done_testing();
