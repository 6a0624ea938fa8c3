# What docs/operation/high-availability.md tells to do, and what it says that one sees then: a cluster that gets lock_election while
# it runs, failsafe_mode, the loss of all standbys with min_durability = remote, and a long query on a standby.
# Promises: -
# Needs: python3-etcd, patroni, etcd-server, haproxy, pgbouncer
use strict;
use warnings;
use IPC::Run ();
use LeHa;
use LeTest;
use Test::More;
use Time::HiRes qw(sleep);

my $missing = LeHa::missing();
plan skip_all => $missing if defined $missing;

my $ha = LeHa->new(bare => 1, dcs => { ttl => 20, loop_wait => 2, retry_timeout => 5 });

sub health { my ($i) = @_; return $ha->sql($i, q{SET synchronous_commit = local; SELECT coalesce(problem, 'ok') FROM lock_election.health()}); }

sub standbys { my $leader = $ha->leader; return grep { $_ != $leader } 1 .. 3; }

sub comes_to
{
	my ($code, $expected, $name) = @_;
	my $last = '';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_until(sub { $last = $code->(); return $last eq $expected }, 60);
	return is($last, $expected, $name);
}

subtest 'a cluster that exists' => sub {
	my $primary = $ha->leader;
	my $pending = sub { return join ' ', map { $_->{pending_restart} ? $_->{name} : () } $ha->members };

	$ha->sql($primary, 'CREATE EXTENSION lock_election');
	like($ha->{error}, qr/WARNING: .*shared_preload_libraries/s, 'too early: a warning');
	$ha->sql($primary, q{SELECT try_acquire_lock('a')});
	like($ha->{error}, qr/ERROR: .*shared_preload_libraries/s, 'and no locks');
	$ha->sql($primary, 'DROP EXTENSION lock_election');
	$ha->ctl('edit-config', '--force', '-p', 'shared_preload_libraries=lock_election', '-p', 'max_worker_processes=16', 'ha');
	comes_to($pending, 'node1 node2 node3', 'all wait for a restart');
	foreach my $i (standbys(), $primary)
	{
		$ha->ctl('restart', '--force', 'ha', "node$i");
		$ha->wait_for("node$i is back", sub { $ha->all_running });
	}
	is($pending->(), '', 'none waits for a restart');
	is($ha->leader, $primary, 'the primary is the same');
	$ha->ctl('edit-config', '--force', '-s', 'synchronous_mode=true', '-p', 'lock_election.min_durability=remote', 'ha');
	comes_to(sub { $ha->sql($primary, 'SHOW lock_election.min_durability') }, 'remote', 'the setting is there');
	$ha->set_mode('remote');    # the same; now the cluster is waited for in that mode
	$ha->sql($primary, 'CREATE EXTENSION lock_election');
	comes_to(sub { health($primary) }, 'ok', 'health() of the primary');
	comes_to(sub { health($_[0] // (standbys())[0]) }, 'this is a standby: it shows locks, and grants none', 'of a standby');
	is($ha->sql($_, q{SELECT library_version IS NOT NULL FROM lock_election.health()}), 't', "node$_ has the library") foreach standbys();
	my $token = $ha->sql($primary, q{SELECT acquire_lock('a', '10 min')});
	$ha->ctl('switchover', '--force', 'ha');
	$ha->wait_for('all', sub { $ha->leader($primary) && $ha->all_running });
	comes_to(sub { health($ha->leader) }, 'ok', 'and of the next primary');
	is($ha->sql($ha->leader, "SELECT renew_lock('a', $token) IS NOT NULL"), 't', 'the old token is renewed there');
	$ha->sql($ha->leader, "SELECT release_lock('a', $token)");
};

$ha->set_mode('sync');
subtest 'failsafe_mode' => sub {
	my $primary = $ha->leader;

	ok($ha->rest($primary, 'config', 'PATCH', '{"failsafe_mode": true}')->{success}, 'on');
	sleep 10;
	$ha->signal('STOP', $ha->{pid}{etcd});
	my %answers;
	for (1 .. 30)
	{
		$answers{ $ha->sql($primary, q{SELECT release_lock('b', acquire_lock('b', '10 s', '5 s'))}) || 'no answer' }++;
		sleep 1;
	}
	is(join(' ', map { "$_ $answers{$_}" } sort keys %answers), 't 30', 'locks are granted all the time without etcd');
	$ha->signal('CONT', $ha->{pid}{etcd});
	$ha->wait_for('all', sub { $ha->all_running });
	is($ha->leader, $primary, 'by the same primary');
};

subtest 'all standbys are lost, with min_durability = remote' => sub {
	my $primary = $ha->leader;
	my @standbys = standbys();

	$ha->ctl('edit-config', '--force', '-p', 'lock_election.min_durability=remote', 'ha');
	comes_to(sub { $ha->sql($primary, 'SHOW lock_election.min_durability') }, 'remote', 'reloaded');
	like($ha->sql($primary, 'SHOW synchronous_standby_names'), qr/node/, 'a synchronous standby is defined');
	is(health($primary), 'ok', 'all is well');
	foreach my $i (@standbys)
	{
		$ha->kill_agent($i);
		$ha->kill_server($i);
	}
	comes_to(sub { $ha->sql($primary, 'SET synchronous_commit = local; SHOW synchronous_standby_names') }, '', 'Patroni gives them up');
	is(health($primary), 'no synchronous standby is defined, and lock_election.min_durability is remote', 'health() says so');
	$ha->sql($primary, q{SELECT acquire_lock('c')});
	like($ha->{error}, qr/no synchronous standby is defined/, 'no lock');
	is($ha->sql($primary, 'CREATE TABLE other (n int); SELECT 1'), 1, 'all else goes on');
	$ha->start_patroni($_) foreach @standbys;
	$ha->wait_for('all', sub { $ha->all_running }, 120);
	comes_to(sub { health($primary) }, 'ok', 'back');
	is($ha->sql($primary, q{SELECT release_lock('c', acquire_lock('c'))}), 't', 'locks as well');
};

subtest 'a long query on a standby' => sub {
	my $primary = $ha->leader;
	my ($standby) = standbys();
	my ($out, $err) = ('', '');

	$ha->sql($primary, q{SELECT count(acquire_lock('n' || i, '1 s')) FROM generate_series(1, 300) i});
	my $query = IPC::Run::start([ 'psql', '-XAtqd', $ha->conninfo($standby), '-v', 'VERBOSITY=verbose',
			'-c', 'BEGIN ISOLATION LEVEL REPEATABLE READ', '-c', q{SELECT 'seen', count(*) FROM lock_election.locks}, '-c', 'SELECT pg_sleep(60)' ],
		'<', '/dev/null', '>', \$out, '2>', \$err);
	wait_until(sub { $query->pump_nb; return $out =~ /seen/ }, 20);
	like($out, qr/seen/, 'has read the locks');
	sleep 2;
	$ha->sql($primary, q{SELECT count(acquire_lock('m' || i, '1 s')) FROM generate_series(1, 300) i});
	sleep 2;
	$ha->sql($primary, 'VACUUM _lock_election.slot');
	$ha->sql($primary, q{CREATE TABLE later (n int)});
	my $lag = sub { return $ha->sql($standby, q{SELECT extract(epoch FROM clock_timestamp() - replayed_at)::int FROM lock_election.health()}) };
	my $longest = 0;
	wait_until(sub { $ha->sql($primary, 'INSERT INTO later VALUES (1)'); my $now = $lag->(); $longest = $now if $now > $longest; $query->pump_nb; return $err =~ /ERROR/ }, 50);
	diag "replay was behind by up to $longest s";
	cmp_ok($longest, '>', 10, 'stalls replay');
	like($err, qr/ERROR:  40001: canceling statement due to conflict with recovery/, 'for max_standby_streaming_delay, and is cancelled');
	comes_to(sub { $lag->() < 5 ? 'caught up' : 'behind' }, 'caught up', 'then replay goes on');
	eval { $query->kill_kill };
};

$ha->stop;
done_testing();
