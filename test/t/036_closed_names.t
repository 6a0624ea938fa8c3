# A name that is closed by hold_for or expiry_grace: what the views show, and who can open it.
# Promises: C
use strict;
use warnings;
use LeTest;
use Test::More;

my $node = new_node('main', init => [ allows_streaming => 1 ]);
my ($s, $t, $w) = map { session($node) } 1 .. 3;
my $in = sub { return "closed_until BETWEEN clock_timestamp() + interval '$_[0]' AND clock_timestamp() + interval '$_[1]'"; };

$s->query('CREATE ROLE worker; CREATE ROLE other; CREATE ROLE killer IN ROLE pg_signal_backend');

sub close_name
{
	my ($name, $hold_for, $role) = @_;
	my $token = $s->query(qq{SET ROLE $role \\; SELECT acquire_lock('$name')});

	is($s->query(qq{SELECT release_lock('$name', $token, hold_for => '$hold_for') \\; RESET ROLE}), 't',
		"the lock is released and closed: $name");
	return;
}

sub wait_for_waiter
{
	wait_for_sql($node, "SELECT count(*) FROM lock_election.waiters WHERE name = '$_[0]'", '1');
	return;
}

# --- closed names in the views ---

close_name('job', '10 min', 'worker');
is($s->query("SELECT kind, name, slot, mode, role, token, holds, waiters, @{[ $in->('9 min', '10 min') ]} FROM lock_election.locks"),
	'lock|job|||worker|||0|t', 'locks: a closed name without holder is shown');
is($s->query('SELECT count(*) FROM lock_election.elections'), '0', 'elections: a closed name is not shown');
$s->query(q{SELECT await_lock('job', 1)});
like($s->error, qr/LE001: .*\nDETAIL:  .*Nobody holds it now\./, 'LE001: a closed name counts as not held');
$t->async(q{SELECT acquire_lock('job')});
wait_for_waiter('job');
is($s->query("SELECT blocked_by, @{[ $in->('9 min', '10 min') ]} FROM lock_election.waiters"), '{0}|t',
	'waiters: blocked_by contains 0 for a closed name');
is($s->query(q{SELECT waiters FROM lock_election.locks WHERE name = 'job'}), '1',
	'locks: the closed name has a waiter');

# The views need several pages for these. A page may end between a name and its first waiter.
my $many = q{SELECT 'closed ' || repeat('-', i % 97) || i AS name FROM generate_series(1, 600) i};
is($s->query("WITH held AS MATERIALIZED (SELECT name, acquire_lock(name) AS token FROM ($many) n) SELECT count(release_lock(name, token, hold_for => '10 min')) FROM held"),
	'600', 'many names are closed');
is($s->query("SELECT count((enqueue_lock(name, '1 h')).token) FROM ($many) n"), '600', 'each closed name has a waiter');
is($s->query(q{SELECT count(*), count(DISTINCT name), count(mode), min(waiters), max(waiters) FROM lock_election.locks WHERE name LIKE 'closed %'}),
	'600|600|0|1|1', 'locks: each closed name is shown once');
is($s->query(q{SELECT count(*), count(DISTINCT name) FROM lock_election.waiters WHERE name LIKE 'closed %'}), '600|600',
	'waiters: each waiter is shown once');
$s->query("SELECT force_release_lock(name) FROM ($many) n"); # opens the name: the waiter is granted the lock
is($s->query("SELECT count(*) FROM ($many) n WHERE force_release_lock(name) = 1"), '600',
	'each waiter holds its lock after the name is opened');

# --- opening a closed name ---

$s->query(q{SET ROLE other \; SELECT force_release_lock('job')});
like($s->error, qr/ERROR:  42501: .*\n?/, 'another role cannot open the name');
$s->query('RESET ROLE');
is($s->query('SELECT count(*) FROM lock_election.waiters'), '1', 'the waiter still waits');
is($s->query(q{SET ROLE worker \; SELECT force_release_lock('job') \; RESET ROLE}), '0',
	'the role that closed the name opens it, which ends no holder');
like($s->error, qr/NOTICE:  00000: lock "job" was closed, and is open again/, 'opening a name gives a notice');
like($t->wait, qr/^\d+$/, 'the waiter is granted the lock');
is($s->query('SELECT name, mode, closed_until FROM lock_election.locks'), 'job|exclusive|',
	'locks: a held lock is not closed');
$s->query(q{SELECT force_release_lock('job')});
is($s->error, '', 'there is no notice if the name was not closed');
like(slurp($node), qr/role "worker" has opened lock "job" again in database "postgres"/,
	'the log shows the role that opened the name');

close_name('other job', '10 min', 'worker');
is($s->query(q{SET ROLE killer \; SELECT force_release_lock('other job') \; RESET ROLE}), '0',
	'a member of pg_signal_backend opens the name');
like($s->query(q{SELECT try_acquire_lock('other job')}), qr/^\d+$/, 'a lock on the opened name is granted');
$s->query(q{SELECT force_release_lock('other job')});

# A shared lock is closed by one of its two holders.
{
	my $one = $s->query(q{SELECT acquire_lock('both', mode => 'shared', ttl => '1 h')});
	my $two = $t->query(q{SELECT acquire_lock('both', mode => 'shared')});

	$t->query("SELECT release_lock('both', $two, hold_for => '10 min')");
	is($s->query("SELECT mode, @{[ $in->('9 min', '10 min') ]} FROM lock_election.locks"), 'shared|t',
		'locks: a held lock that is closed has one row');
	$w->async(q{SELECT acquire_lock('both', mode => 'shared')});
	wait_for_waiter('both');
	is($s->query('SELECT blocked_by FROM lock_election.waiters'), '{0,' . $s->pid . '}',
		'waiters: blocked_by contains 0 and the holder');
	is($s->query(q{SELECT force_release_lock('both')}), '1', 'force_release_lock() ends the holder and opens the name');
	like($w->wait, qr/^\d+$/, 'the waiter is granted the lock');
	$s->query(q{SELECT force_release_lock('both')});
}

# The role that closed a name can open it even if others also hold the lock. This is no attempt to end the others.
{
	$s->query(q{SELECT acquire_lock('both', mode => 'shared', ttl => '1 h')});
	my $theirs = $t->query(q{SET ROLE worker \; SELECT acquire_lock('both', '1 h', mode => 'shared')});

	is($t->query("SELECT release_lock('both', $theirs, hold_for => '10 min')"), 't',
		'one of two roles closes the name');
	is($t->query(q{SELECT force_release_lock('both')}), '0', 'the role that closed the name opens it');
	like($t->error, qr/NOTICE:  00000: lock "both" was closed, and is open again\n(?!.*ERROR)/s,
		'opening the name raises no error');
	$t->query(q{SELECT force_release_lock('both')});
	like($t->error, qr/ERROR:  42501: permission denied to end the holder of lock "both"/, q{without a closed name, ending the other role's holder raises an error});
	$t->query('RESET ROLE');
	is($s->query(q{SELECT mode, closed_until FROM lock_election.locks WHERE name = 'both'}), 'shared|',
		'the other role still holds the lock');
	$s->query(q{SELECT force_release_lock('both')});
}

# A fenced holder closes the name when its fence ends.
{
	my $token = $t->query(q{SELECT acquire_lock('fenced')});

	$t->query("BEGIN; SELECT fence_lock('fenced', $token)");
	$s->query("SELECT release_lock('fenced', $token, hold_for => '10 min')");
	is($s->query("SELECT fenced_by, @{[ $in->('9 min', '10 min') ]} FROM lock_election.locks"), '{' . $t->pid . '}|t', 'locks: a fenced holder will close the name');
	my $ends = q{SELECT expires_at, time_left, expires_at BETWEEN acquired_at AND clock_timestamp() FROM lock_election.locks};
	my ($ended, $later);
	# A stall of the manager on a busy machine extends also leases that have ended.
	foreach my $try (1 .. 5)
	{
		$ended = $s->query($ends);
		$later = $s->query("SELECT pg_sleep(0.01) \\; $ends");
		last if $later eq "\n$ended";
	}
	like($ended, qr/\|00:00:00\|t$/, 'locks: expires_at of a lapsed holder is the time of its release');
	is($later, "\n$ended", 'locks: expires_at of a lapsed holder does not move');
	$s->query(q{SELECT force_release_lock('fenced')});
	$t->query('COMMIT');
	like($s->query(q{SELECT acquire_lock('fenced', wait => '20 s')}), qr/^\d+$/,
		'a name that was opened while it was fenced is open after the fence');
	$s->query(q{SELECT force_release_lock('fenced')});
}

# The same if a new manager has loaded the row meanwhile, with and without force_release_lock().
foreach my $force ('', 'forced')
{
	my $token = $t->query(q{SELECT acquire_lock('loaded')});
	my $pid = $s->query('SELECT pid FROM lock_election.manager');

	$t->query("BEGIN; SELECT fence_lock('loaded', $token)");
	$s->query("SELECT release_lock('loaded', $token, hold_for => '10 min')");
	$s->query(q{SELECT force_release_lock('loaded')}) if $force;
	$s->query("SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	is($s->query(q{SELECT fenced_by FROM lock_election.locks}), '{' . $t->pid . '}', 'the lock is still fenced with a new manager');
	$t->query('COMMIT');
	wait_for_sql($node, q{SELECT count(mode) = 0 FROM lock_election.locks});
	is($s->query(qq{SELECT @{[ $in->('9 min', '10 min') ]} FROM lock_election.locks}), $force ? '' : 't', $force ? 'the name is open after the fence' : 'the name is closed after the fence');
	$s->query(q{SELECT force_release_lock('loaded')});
}

# --- closed and opened names after a crash ---

close_name('kept', '10 min', 'worker');
close_name('opened', '10 min', 'worker');
$s->query(q{SELECT force_release_lock('opened')});
$node->backup('copy');
$_->quit foreach $s, $t, $w;
$node->stop('immediate');
$node->start;
$s = session($node);
is($s->query("SELECT name, role, @{[ $in->('9 min', '10 min') ]} FROM lock_election.locks"), 'kept|worker|t',
	'after a crash, the closed name is still closed, and the opened one is open');
$s->query(q{SET ROLE worker \; SELECT force_release_lock('kept') \; RESET ROLE});
like($s->query(q{SELECT try_acquire_lock('kept')}), qr/^\d+$/, 'the role can open the name after the crash');
$s->query(q{SELECT force_release_lock('kept')});

# On a standby.
{
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	my $r;

	$standby->init_from_backup($node, 'copy', has_streaming => 1);
	$standby->start;
	close_name('shown', '10 min', 'worker');
	$node->wait_for_catchup($standby);
	$r = session($standby);
	is($r->query("SELECT name, mode, role, @{[ $in->('9 min', '10 min') ]} FROM lock_election.locks"), 'shown||worker|t', 'a standby shows the closed name');
	is($r->query('SELECT count(*) FROM lock_election.elections'), '0', 'a standby shows no leader of a closed name');
	$r->quit;
	$standby->stop;
	$s->query(q{SELECT force_release_lock('shown')});
}

# expiry_grace also closes an election: it has no leader, and no candidate can be elected.
$s->query(q{ALTER SYSTEM SET lock_election.expiry_grace = '10 min'});
$s->query('SELECT pg_reload_conf()');
wait_for_sql($node, 'SHOW lock_election.expiry_grace', '10min');
{
	# Repeated until the manager has reloaded the setting.
	ok(wait_until(sub {
		$s->query(q{SELECT campaign('e', 'me', ttl => '100 ms')});
		$s->query('SELECT pg_sleep(0.2)');
		return $s->query(q{SELECT closed_until > clock_timestamp() + interval '9 min' FROM lock_election.locks WHERE kind = 'election'}) eq 't';
	}), 'an election whose term expired is closed for expiry_grace');
	is($s->query(q{SELECT count(*) FROM current_leader('e')}) . $s->query('SELECT count(*) FROM lock_election.elections'), '00', 'a closed election has no leader');
	is($s->query(q{SELECT force_resign('e')}), '0', 'force_resign() opens the election');
	like($s->query(q{SELECT campaign('e', 'me', wait => '0')}), qr/^\d+$/, 'the next candidate is elected');
	$s->query(q{SELECT force_resign('e')});
}
$s->quit;
nothing_left($node);
$node->stop;
done_testing();

sub slurp { return PostgreSQL::Test::Utils::slurp_file($_[0]->logfile); }
