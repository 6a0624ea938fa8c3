# evict_lock() and evict_leader(): an evicted lock cannot be renewed, and is not granted to anybody before its holder's
# deadline.
# Promises: M, D, L, G
use strict;
use warnings;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\n", init => [ allows_streaming => 1 ]);
my ($holder, $next, $dba) = map { session($node) } 1 .. 3;

# Evicts the lock, and returns "expires_at" as another session sees it. The holder may work until then.
sub evict
{
	my ($name, $kind) = @_;
	my $by = ($kind // 'lock') eq 'lock' ? 'evict_lock' : 'evict_leader';

	is($dba->query("SELECT $by('$name')"), 1, "$name: evicted");
	return $dba->query("SELECT expires_at FROM lock_election.locks WHERE evicted AND name = '$name'");
}

sub held { return $dba->query("SELECT is_held('$_[0]', $_[1])"); }

# --- the end of an evicted holder ---

subtest 'an evicted holder releases its lock' => sub {
	my $t = $holder->query(q{SELECT acquire_lock('x', '1 h')});
	$next->async(q{SELECT acquire_lock('x', '1 h')});
	waiting($next);
	evict('x');
	is($dba->query(q{SELECT evict_lock('x')}), 0, 'a second eviction evicts nobody');
	is(held('x', $t), 't', 'an evicted lock is still held');
	is($holder->query("SELECT renew_lock('x', $t) IS NULL"), 't', 'an evicted lock cannot be renewed');
	$holder->query("SELECT await_lock('x', $t)");
	like($holder->error, qr/LE001: token $t of lock "x" was evicted\nDETAIL:  evict_lock\(\) evicted it, so it can no longer be renewed\. It remains held until it is released or expires\./, 'an evicted lock cannot be awaited');
	is($holder->query(q{SELECT try_acquire_lock('x') IS NULL}), 't', 'an evicted lock cannot be acquired again by its holder');
	is($dba->query('SELECT count(*) FROM lock_election.waiters'), 1, 'the waiter is not granted an evicted lock that is held');
	$holder->query("BEGIN; SELECT fence_lock('x', $t); COMMIT");
	is($holder->error, '', 'an evicted lock can be fenced');
	is($holder->query("SELECT release_lock('x', $t)"), 't', 'an evicted lock can be released');
	my $u = $next->wait;
	cmp_ok($u, '>', $t, 'the waiter is granted the lock immediately after the release');
	is($dba->query(q{SELECT evicted FROM lock_election.locks}), 'f', 'the next holder is not evicted');
	$next->query("SELECT release_lock('x', $u)");
};

# A client renews all its locks as often as it can; the evicted one ends nevertheless, but not before its deadline. One
# statement acquires and evicts, so that no time passes in between.
my %lives = (
	'a lease of its own' => [ q{SELECT acquire_lock('x', '5 s'), acquire_lock('y', '1 h'), 0}, q{SELECT true} ],
	'a lease of two names' => [ q{SELECT t, t, 0 FROM acquire_locks(ARRAY['x', 'y'], '5 s') t}, q{SELECT renew_lock('y', %t) IS NULL} ],
	'a named lease' => [ q{SELECT acquire_lock('x', lease => l), acquire_lock('y', lease => l), l FROM grant_lease('5 s') l}, q{SELECT keep_alive(%l) BETWEEN '0' AND (SELECT coalesce((SELECT expires_at - clock_timestamp() + interval '1 s' FROM lock_election.locks WHERE name = 'x' AND evicted), '5 s'))} ]);
foreach my $kind (sort keys %lives)
{
	subtest "an evicted holder ends at its deadline, on $kind" => sub {
		my ($acquire, $keep) = @{ $lives{$kind} };
		my ($x, $y, $lease, $evicted) = split /\|/, $holder->query("SELECT *, evict_lock('x') FROM ($acquire OFFSET 0) AS held (x, y, l)");
		my ($kept, $asked) = (1, 0);

		$keep = $keep =~ s/%t/$y/r =~ s/%l/$lease/r;
		is($evicted, 1, 'the holder is evicted');
		my $until = $dba->query(q{SELECT expires_at FROM lock_election.locks WHERE name = 'x'});
		$next->async(q{SELECT acquire_lock('x', '1 h') || '|' || clock_timestamp()});
		is($holder->query("SELECT string_agg(name, ' ') FROM lease_holds($lease)"), 'y', 'the lease no longer lists the evicted lock') if $lease;
		wait_until(sub { $kept &&= $holder->query($keep) eq 't'; return $next->ready; }, undef, 0.1);
		ok($kept, 'the other lock of the client is renewed, unless both names are one holder');
		my ($u, $at) = split /\|/, $next->wait;
		cmp_ok($u, '>', $x, 'the waiter is granted the lock');
		is($dba->query("SELECT '$at' >= '$until'::timestamptz"), 't', 'the lock is not granted before the deadline of the evicted holder');
		is($holder->query("SELECT renew_lock('x', $x) IS NULL, is_held('y', $y)"), 't|' . ($kind =~ /two/ ? 'f' : 't'), 'the evicted lock is lost; the other lock only if it is the same holder');
		$dba->query('SELECT force_release_lock(name) FROM lock_election.locks');
		$dba->query('SELECT revoke_lease(lease) FROM lock_election.leases');
	};
}

subtest 'an evicted leader' => sub {
	my $term = $holder->query(q{SELECT campaign('e', 'me', '2 s')});

	evict('e', 'election');
	is($dba->query(q{SELECT candidate, evicted FROM lock_election.elections}), 'me|t', 'an evicted leader still leads');
	is($holder->query("SELECT renew_leadership('e', $term) IS NULL, proclaim('e', $term, 'still me')"), 't|t', 'an evicted leader cannot renew, but can proclaim');
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.elections', 0);
	is($dba->query(q{SELECT string_agg(how || ' ' || candidate, ', ' ORDER BY change) FROM election_history('e')}),
		'elected me, proclaimed still me, evicted still me', 'the history shows the eviction as the end of the term');
	$holder->query("SELECT await_leadership('e', $term)");
	like($holder->error, qr/LE001: term $term of election "e" was evicted\nDETAIL:  evict_leader\(\) evicted it, so it can no longer be renewed\. Nobody holds it now\./, 'await_leadership() reports the eviction');
};

subtest 'a holder that is bound to a connection' => sub {
	my $t = $holder->query(q{SELECT acquire_lock('x', '1 h', mode => 'shared')});
	my $bound = session($node);
	my $pid = $bound->pid;
	my $b = $bound->query(q{SELECT acquire_lock('x', NULL, mode => 'shared')});

	$dba->query(q{SELECT evict_lock('x')});
	like($dba->error, qr/55000: lock "x" cannot be evicted: it is bound to a connection\nDETAIL:  Token $b has no ttl.*\nHINT:  pg_terminate_backend\($pid\) ends/, 'a bound holder cannot be evicted');
	is($holder->query("SELECT renew_lock('x', $t) IS NOT NULL"), 't', 'the other holder of that name is not evicted either');
	$dba->query("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', 1);
	evict('x');
	$holder->query("SELECT release_lock('x', $t)");
	$holder->query(q{SELECT campaign('e', 'me', NULL)});
	$dba->query(q{SELECT evict_leader('e')});
	like($dba->error, qr/55000: election "e" cannot be evicted.*\nDETAIL:  Term \d+ has no ttl.*\nHINT:  pg_terminate_backend\(@{[ $holder->pid ]}\)/, 'a bound leader cannot be evicted');
	$dba->query(q{SELECT force_resign('e')});
};

subtest '20000 holders' => sub {
	$holder->query(q{SELECT count(acquire_lock('many', '1 h', mode => 'shared', owner => 'o' || i)) FROM generate_series(1, 20000) i});
	my $log = -s $node->logfile;
	is($dba->query(q{SELECT evict_lock('many')}), 20_000, '20000 holders are evicted, in several steps');
	is($dba->query(q{SELECT count(*) FILTER (WHERE evicted), count(*) FROM lock_election.locks}), '20000|20000', 'all 20000 holders are evicted');
	ok($node->log_contains(qr/LOG:  role "\S+" has evicted 20000 holder\(s\) of lock "many" in database "postgres"/, $log), 'the eviction is logged');
	is($dba->query(q{SELECT force_release_lock('many')}), 20_000, 'all evicted holders end by force');
};

# --- evictions survive crashes ---

# Once an eviction was reported, it remains, no matter what the client does and how often the server crashes.
foreach my $crash ('the manager', 'the server')
{
	subtest "an eviction, while $crash crashes repeatedly" => sub {
		($holder, $dba) = map { session($node) } 1 .. 2;
		my $own = $holder->query(q{SELECT acquire_lock('own', '6 s')});
		my $lease = $holder->query(q{SELECT grant_lease('6 s')});
		my $leased = $holder->query("SELECT acquire_lock('leased', lease => $lease)");
		my $kept = $holder->query("SELECT acquire_lock('kept', lease => $lease)");
		my $long = $holder->query(q{SELECT acquire_lock('long', '1 h')});
		my $until = $dba->query(q{SELECT max(expires_at) FROM lock_election.locks WHERE name IN ('own', 'leased')});

		stop_walwriter($node);
		evict($_) foreach qw(own leased long);
		my ($early, $ends, $renewed) = (0, 0, 0);
		while ($dba->query(q{SELECT count(*) FROM lock_election.locks WHERE name IN ('own', 'leased')}) > 0 && $ends < 20)
		{
			if ($crash eq 'the server')
			{
				$node->stop('immediate');
				$node->start;
				($holder, $dba) = map { session($node) } 1 .. 2;
				wait_for_sql($node, 'SELECT count(*) FROM lock_election.manager', 1);
			}
			else
			{
				replace_manager();
			}
			$ends++;
			$early ||= $dba->query(qq{SELECT clock_timestamp() < '$until' AND (SELECT count(*) FROM lock_election.locks WHERE name IN ('own', 'leased')) < 2}) eq 't';
			$renewed ||= $holder->query("SELECT renew_lock('own', $own) IS NOT NULL OR renew_lock('leased', $leased) IS NOT NULL OR renew_lock('long', $long) IS NOT NULL") eq 't';

			# Without renewals, the remaining time decreases while the manager runs.
			wait_until(
				sub {
					$holder->query("SELECT keep_alive($lease)");
					return $dba->query(q{SELECT uptime >= 2000 FROM _lock_election.meta}) eq 't'
					  || $dba->query(q{SELECT count(*) FROM lock_election.locks WHERE name IN ('own', 'leased')}) eq '0';
				});
		}
		ok(!$renewed, "after $ends crashes, no evicted lock is renewed");
		ok(!$early, 'no evicted holder ends before its deadline');
		cmp_ok($ends, '<', 20, 'evicted holders end although their lease is kept alive');
		is(held('kept', $kept), 't', 'the other lock of the lease is still held');
		is($dba->query(q{SELECT evicted AND time_left BETWEEN '50 min' AND '1 h' FROM lock_election.locks WHERE name = 'long'}), 't', 'an evicted holder with a long TTL keeps its remaining time');
		$dba->query('SELECT force_release_lock(name) FROM lock_election.locks');
		$dba->query('SELECT revoke_lease(lease) FROM lock_election.leases');
	};
}

# --- standby ---

subtest 'an eviction on a standby, before and after its promotion' => sub {
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	my $t = $holder->query(q{SELECT acquire_lock('x', '1 h')});
	my $lease = $holder->query(q{SELECT grant_lease('1 h')});
	my $u = $holder->query("SELECT acquire_lock('y', lease => $lease)");
	my $until = join '|', map { evict($_) } qw(x y);
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($standby->safe_psql('postgres', q{SELECT string_agg(name, ',' ORDER BY name) FROM lock_election.locks WHERE evicted}), 'x,y', 'the standby shows the evicted locks');
	is($standby->safe_psql('postgres', qq{SELECT bool_and(abs(extract(epoch FROM expires_at - u)) < 10) FROM lock_election.locks l
		JOIN unnest(string_to_array('$until', '|')::timestamptz[], '{x,y}'::text[]) AS w(u, n) ON n = l.name}), 't', 'the standby shows their deadlines');
	$node->stop('immediate');
	$standby->promote;
	wait_for_sql($standby, 'SELECT count(*) FROM lock_election.manager', 1);
	is($standby->safe_psql('postgres', "SELECT is_held('x', $t), is_held('y', $u), renew_lock('x', $t) IS NULL, renew_lock('y', $u) IS NULL, keep_alive($lease) IS NOT NULL"),
		't|t|t|t|t', 'evicted locks cannot be renewed after the promotion, and are still held');
	$standby->stop;
};

done_testing();
