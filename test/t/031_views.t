# The contents of the views, who may see them, and how they are filled page by page while grants continue.
# Promises: -
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils qw(append_to_file);
use Test::More;
use Time::HiRes qw(time);

use constant { LOCKS => 20_000, WAITERS => 500 };

my $node = new_node('main', conf => "autovacuum = off\nmax_connections = 600\n");
my $s = session($node);
my $user = $s->query('SELECT current_user');

$s->query('CREATE ROLE nosy; CREATE ROLE auditor IN ROLE pg_read_all_stats; CREATE ROLE worker');

# --- locks and waiters ---

my @holders = map { session($node) } 1 .. 4;
my @waiters = map { session($node) } 1 .. 3;
my $named = $holders[0]->query(q{SELECT acquire_lock('excl', ttl => '1 hour', owner => 'worker-1')});
$holders[0]->query(q{SELECT acquire_lock('excl', ttl => '1 hour', owner => 'worker-1')});
my $bound = $holders[1]->query(q{SELECT acquire_lock('both', ttl => NULL, mode => 'shared')});
my $second = $holders[2]->query(q{SELECT acquire_lock('both', mode => 'shared', owner => 'reader')});
my $worker = $holders[3]->query(q{SET ROLE worker \; SELECT acquire_lock('theirs', owner => 'them')});

is($s->query('SELECT kind, name, slot, mode, owner, role, token, lease, holds, waiters, pid, fenced_by FROM lock_election.locks ORDER BY name, slot'),
	join("\n",
		"lock|both|0|shared||$user|$bound||1|0|@{[ $holders[1]->pid ]}|{}",
		"lock|both|1|shared|reader|$user|$second||1|0|@{[ $holders[2]->pid ]}|{}",
		"lock|excl|0|exclusive|worker-1|$user|$named||2|0|@{[ $holders[0]->pid ]}|{}",
		"lock|theirs|0|exclusive|them|worker|$worker||1|0|@{[ $holders[3]->pid ]}|{}"),
	'locks: each holder has a row');
is($s->query(q{SELECT name, slot, time_left > '59 min' AND time_left <= '1 h', acquired_at BETWEEN now() - interval '5 min' AND now()
		FROM lock_election.locks WHERE name IN ('both', 'excl') ORDER BY 1, 2}),
	"both|0||t\nboth|1|f|t\nexcl|0|t|t", 'locks: times are right, and a bound lock has no time_left');

# Checks when leases end. The views show the current time; the tables show the time when the row was written.
{
	my $h = session($node);
	my $lease = $h->query(q{SELECT grant_lease('1 h')});
	my $short = $h->query(q{SELECT acquire_lock('short', '10 min')});
	my $live = sub { return $s->query("SELECT expires_at FROM lock_election.locks WHERE name = '$_[0]'"); };
	my $stored = sub { return $s->query("SELECT expires_at FROM _lock_election.slot WHERE name = '$_[0]' AND mode <> 0"); };
	my $same = sub { return $s->query("SELECT abs(extract(epoch FROM '$_[0]'::timestamptz - '$_[1]')) < 1"); };

	$h->query("SELECT acquire_lock('leased', lease => $lease); SELECT campaign('expiring', 'c', '5 min'); SELECT campaign('bound', 'c', NULL)");
	is($s->query(q{SELECT name, expires_at FROM lock_election.locks WHERE name = 'both' AND slot = 0}), 'both|infinity',
		'expires_at of a bound lock is infinity');
	is($same->($live->('short'), $s->query(q{SELECT acquired_at + interval '10 min' FROM lock_election.locks WHERE name = 'short'})), 't', 'expires_at is the acquire time plus the TTL');
	is($same->($live->('short'), $stored->('short')), 't', 'expires_at in the table is the same');
	is($s->query(q{SELECT bool_and(abs(extract(epoch FROM expires_at - clock_timestamp() - time_left)) < 1) FROM lock_election.locks WHERE time_left IS NOT NULL}), 't',
		'time_left agrees with expires_at');
	my $before = $s->query('SELECT clock_timestamp()');
	$h->query("SELECT renew_lock('short', $short, '20 min')");
	is($s->query("SELECT '" . $live->('short') . "'::timestamptz - interval '20 min' BETWEEN '$before' AND clock_timestamp()"), 't', 'a renewal with a longer TTL moves expires_at');
	my $written = $stored->('short');
	$h->query("SELECT pg_sleep(1.1); SELECT renew_lock('short', $short)");
	is($s->query("SELECT '" . $live->('short') . "'::timestamptz > '$written'::timestamptz + interval '1 s'"), 't', 'a renewal with the same TTL moves expires_at');
	is($stored->('short'), $written, 'a renewal with the same TTL does not write the row');
	is($s->query(q{SELECT expires_at FROM _lock_election.slot WHERE name = 'both' AND slot = 0}), 'infinity',
		'expires_at of a bound lock is infinity in the table');
	is($stored->('leased'), '', 'expires_at of a lock on a named lease is NULL in the table');
	is($same->($live->('leased'), $s->query(qq{SELECT expires_at FROM lock_election.leases WHERE lease = $lease})), 't', 'a lock on a named lease expires with the lease');
	is($same->($live->('leased'), $s->query(qq{SELECT expires_at FROM _lock_election.lease WHERE id = $lease})), 't', 'expires_at in the table of leases is the same');
	is($s->query(q{SELECT election, CASE WHEN isfinite(expires_at) THEN (abs(extract(epoch FROM expires_at - elected_at - interval '5 min')) < 1)::text ELSE expires_at::text END
			FROM lock_election.elections ORDER BY 1}), "bound|infinity\nexpiring|true", 'elections: expires_at');
	is($s->query(q{SELECT abs(extract(epoch FROM expires_at - clock_timestamp() - valid_for)) < 1 FROM current_leader('expiring')}), 't', 'current_leader: expires_at agrees with valid_for');
	is($s->query(q{SELECT expires_at, valid_for IS NULL FROM current_leader('bound')}), 'infinity|t',
		'current_leader: expires_at of a bound leader is infinity');
	$h->query("SELECT release_lock('short', $short); SELECT revoke_lease($lease); SELECT force_resign('expiring'); SELECT force_resign('bound')");
	is($s->query(q{SELECT count(*) FROM _lock_election.slot WHERE mode = 0 AND expires_at IS NOT NULL}), 0,
		'a free row has no expires_at');
	$h->quit;
}

$waiters[0]->async(q{SELECT acquire_lock('both', owner => 'writer')});
waiting($waiters[0]);
$waiters[1]->async(q{SET ROLE worker \; SELECT acquire_lock('both', mode => 'shared', owner => 'late')});
waiting($waiters[1]);
$waiters[2]->async(q{SELECT acquire_lock('excl')});
waiting($waiters[2]);
my $both = sprintf '{%d,%d}', map { $_->pid } @holders[ 1, 2 ];
is($s->query('SELECT kind, name, queue_position, mode, owner, role, pid, blocked_by FROM lock_election.waiters'),
	join("\n",
		"lock|both|1|exclusive|writer|$user|@{[ $waiters[0]->pid ]}|$both",
		"lock|both|2|shared|late|worker|@{[ $waiters[1]->pid ]}|$both",
		"lock|excl|1|exclusive||$user|@{[ $waiters[2]->pid ]}|{@{[ $holders[0]->pid ]}}"),
	'waiters: all are shown in queue order');
is($s->query(q{SELECT count(*) FROM lock_election.waiters WHERE waiting_since BETWEEN now() - interval '5 min' AND clock_timestamp()}),
	'3', 'waiters: waiting_since');
is($s->query('SELECT name, slot, waiters FROM lock_election.locks ORDER BY 1, 2'), "both|0|2\nboth|1|2\nexcl|0|1\ntheirs|0|0",
	'locks: number of waiters');

# --- privileges of the views ---

my $see_locks = 'SELECT name, slot, mode, owner, role, token, holds, waiters, pid FROM lock_election.locks ORDER BY name, slot';
my $see_waiters = 'SELECT name, queue_position, mode, owner, role, pid, blocked_by FROM lock_election.waiters';
my ($all_locks, $all_waiters) = map { $s->query($_) } $see_locks, $see_waiters;

$s->query('SET ROLE nosy');
is($s->query($see_locks), join("\n", "both|0|shared||$user||1|2|", "both|1|shared||$user||1|2|", "excl|0|exclusive||$user||2|1|",
	'theirs|0|exclusive||worker||1|0|'), 'locks: another role does not see owner, token and process');
is($s->query($see_waiters), join("\n", "both|1|exclusive||$user||{}", 'both|2|shared||worker||{}', "excl|1|exclusive||$user||{}"),
	'waiters: another role does not see owner and process');
is($s->query('SELECT count(*) FROM lock_election.manager, lock_election.stat'), '1',
	'manager and stat can be read by all roles');
foreach my $table (qw(slot meta incarnation_floor))
{
	$s->query("SELECT * FROM _lock_election.$table");
	like($s->error, qr/ERROR:  42501/, "table $table cannot be read by other roles");
}
$s->query('SELECT lock_election.stat_reset()');
like($s->error, qr/ERROR:  42501/, 'stat_reset cannot be called by other roles');
my $lease = $s->query('RESET ROLE; SELECT grant_lease()');
$s->query('SET ROLE nosy');
is($s->query('SELECT lease IS NULL, locks IS NULL, waiting IS NULL FROM lock_election.leases WHERE role = ' . "'$user'::regrole"), 't|t|t',
	'leases: another role sees neither the number nor the counts of a lease');
$s->query("RESET ROLE; SELECT revoke_lease($lease)");
$s->query('SET ROLE worker');
is($s->query($see_locks), join("\n", "both|0|shared||$user||1|2|", "both|1|shared||$user||1|2|", "excl|0|exclusive||$user||2|1|",
	"theirs|0|exclusive|them|worker|$worker|1|0|@{[ $holders[3]->pid ]}"), 'locks: a role sees its own locks');
$s->query('RESET ROLE; SET ROLE auditor');
is($s->query($see_locks), $all_locks, 'locks: pg_read_all_stats sees all columns');
is($s->query($see_waiters), $all_waiters, 'waiters: pg_read_all_stats sees all columns');
$s->query('RESET ROLE');

# Reads the views in transactions of each kind, and twice in one statement.
foreach my $begin ('BEGIN READ ONLY', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY')
{
	$s->query($begin);
	is($s->query($see_locks), $all_locks, "locks: $begin");
	is($s->query($see_waiters), $all_waiters, "waiters: $begin");
	$s->query('COMMIT');
}
is($s->query('SELECT count(*) FROM lock_election.locks a JOIN lock_election.locks b USING (name, slot) JOIN lock_election.waiters w USING (name)'),
	'5', 'the views can be joined');

# --- fenced by ---

$holders[0]->query('BEGIN');
is($holders[0]->query("SELECT release_lock('excl', $named, all_holds => true)"), 't',
	'release_lock() in a transaction fences the token');
is($s->query(q{SELECT fenced_by FROM lock_election.locks WHERE name = 'excl'}), "{@{[ $holders[0]->pid ]}}",
	'locks: fenced_by shows the session with the pending release');
is($s->query(q{SET ROLE nosy \; SELECT name FROM lock_election.locks WHERE fenced_by <> '{}' \; RESET ROLE}), '', 'locks: another role does not see fenced_by');
$holders[0]->query('COMMIT');
like($waiters[2]->wait, qr/^\d+$/, 'the waiter is granted the lock at the commit');
is($s->query(q{SELECT pid, owner, waiters, fenced_by FROM lock_election.locks WHERE name = 'excl'}), "@{[ $waiters[2]->pid ]}||0|{}", 'locks: the next holder is shown');

# A role and a connection that do not exist any more.
$holders[3]->quit;
is($s->query(q{SELECT owner, pid, connected FROM lock_election.locks WHERE name = 'theirs'}), "them|@{[ $holders[3]->pid ]}|f", 'locks: connected is false after the connection of a named owner has ended')
  if wait_until(sub { $s->query(q{SELECT connected FROM lock_election.locks WHERE name = 'theirs'}) eq 'f' });
$s->query('SELECT pg_terminate_backend(' . $waiters[1]->pid . ')');
wait_until(sub { $s->query(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'both'}) eq '1' }) or die 'the waiter does not end';
$s->query('SELECT oid AS role_oid FROM pg_roles WHERE rolname = \'worker\' \gset');
$s->query('DROP ROLE worker');
is($s->query(q{SELECT role::text = :'role_oid' FROM lock_election.locks WHERE name = 'theirs'}), 't',
	'locks: a dropped role is shown as a number');

# Names and owners with special characters.
foreach my $name (q{it's}, 'two words', "line\nbreak", '"quoted"', 'ünïcödé ☃', 'C:\\temp', '%s%n', 'x' x 255)
{
	# The statement ends with a semicolon, so that psql does not parse a backslash as a command.
	my $hex = unpack 'H*', $name;
	$s->query("SELECT acquire_lock(\$le\$$name\$le\$, owner => \$le\$$name\$le\$);");
	is($s->query("SELECT name = owner FROM lock_election.locks WHERE convert_to(name, 'UTF8') = '\\x$hex';"), 't', 'locks: name and owner are shown unchanged: ' . ($name =~ s/\n/ /r));
	is($s->query("SELECT force_release_lock(\$le\$$name\$le\$);"), '1', 'the lock is released by its name');
}

# --- the tables cannot be written by hand ---

foreach my $table (qw(slot meta))
{
	foreach my $sql ("DELETE FROM _lock_election.$table", "TRUNCATE _lock_election.$table", "INSERT INTO _lock_election.$table SELECT * FROM _lock_election.$table",
		'UPDATE _lock_election.' . ($table eq 'slot' ? 'slot SET holds = 2' : 'meta SET boot = 1'),
		"SET session_replication_role = replica \\; DELETE FROM _lock_election.$table")
	{
		$s->query($sql);
		like($s->error, qr/ERROR:  \w{5}: /, "rejected: $sql");
	}
}
$s->query('RESET session_replication_role');
is($s->query(q{SELECT count(*) FROM _lock_election.slot WHERE mode <> 0}), '4', 'the tables are unchanged');

# Clean up
$s->query('SELECT pg_terminate_backend(' . $_->pid . ')'), $_->quit foreach $waiters[0], $waiters[2], @holders[ 0 .. 2 ];
$s->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
nothing_left($node);

# --- manager ---

# The manager publishes its counters after its replies. This request gets its reply later, so that the counters of
# earlier requests are published.
sub published { return $s->query('SELECT count(*) FROM lock_election.leases'); }

# The manager may still be busy with something.
published();
my $one_row;
wait_until(sub {
		$one_row = $s->query(q{SELECT m.database, m.incarnation = m.revision >> 28, m.memory > 0, m.started BETWEEN pg_postmaster_start_time() AND now(),
			a.backend_type, a.datname, a.state FROM lock_election.manager m JOIN pg_stat_activity a USING (pid)});
		return $one_row =~ /idle$/;
	}, 20);
is($one_row, 'postgres|t|t|t|lock_election manager|postgres|idle', 'manager: one row, as in pg_stat_activity');
is($s->query(q{SELECT stats_reset BETWEEN pg_postmaster_start_time() - interval '1 min' AND now() FROM lock_election.stat}), 't', 'stat: stats_reset is the start of the server');
my $revision = $s->query('SELECT revision FROM lock_election.manager');
my $token = $s->query(q{SELECT acquire_lock('m')});
published();
is($s->query("SELECT revision > $token, $token >= $revision FROM lock_election.manager"), 't|t',
	'manager: revision is the next token');
$s->query("SELECT release_lock('m', $token)");

# --- stat ---

# Returns the counters that changed in a step, and by how much. A busy machine may also stall the manager.
my $counters = q{SELECT c.key, (c.value #>> '{}') FROM lock_election.stat s, LATERAL jsonb_each(to_jsonb(s) - 'stats_reset' - 'write_time') c ORDER BY 1};
sub counters { published(); return { map { split /\|/, $_ } split /\n/, $s->query($counters) }; }

sub moves
{
	my ($title, $code, $expected, @exact) = @_;
	my $before = counters();

	$code->();
	my $after = counters();
	my %gained = map { $_ => $after->{$_} - $before->{$_} } grep { $after->{$_} != $before->{$_} } keys %$after;
	my %batch = map { $_ => delete $gained{$_} // 0 } qw(batches transaction_ids rows_written flushes stalls);

	is_deeply(\%gained, $expected, "stat: $title") or diag(explain(\%batch));
	return \%batch;
}

# Free rows are deleted a moment later. The test waits for this, because the deletion would be counted.
wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot WHERE mode = 0', '0');
my $t = session($node);
my $walwriter = stop_walwriter($node);    # or it may flush before the session does
my $written = moves('acquire', sub { $token = $s->query(q{SELECT acquire_lock('a', owner => 'me')}) }, { acquires => 1, grants => 1 });
is("@$written{qw(batches transaction_ids rows_written flushes)}", '1 1 1 1',
	'an acquire takes one batch, one transaction id, one row and one flush');
kill 'CONT', $walwriter;
$written = moves('renew', sub { $s->query("SELECT renew_lock('a', $token)") foreach 1 .. 5 }, { renewals => 5 });
is("$written->{transaction_ids} $written->{rows_written} $written->{flushes}", '0 0 0', 'renewals write nothing');
$written = moves('look', sub { $s->query("SELECT is_held('a', $token)"); $s->query('SELECT * FROM lock_election.locks') }, { checks => 1 });
is("$written->{transaction_ids} $written->{rows_written} $written->{flushes}", '0 0 0', 'reads write nothing');
$written = moves('not granted', sub { $t->query(q{SELECT try_acquire_lock('a')}) }, { acquires => 1 });
is("$written->{transaction_ids} $written->{rows_written} $written->{flushes}", '0 0 0',
	'an acquire that is not granted writes nothing');
my ($mine, $answer);
foreach my $case (
	[ 'a lease', q{SELECT grant_lease('1 h', 'mine')}, 1 ],
	[ 'a lock on a lease', q{SELECT acquire_lock('leased', lease => ?)}, 1 ],
	[ 'a place that waits', q{SELECT enqueue_lock('leased')}, 1 ],
	[ 'a term: the lock, and its history', q{SELECT campaign('rows', 'me')}, 2 ])
{
	my ($what, $sql, $rows) = @$case;
	my $before = counters();

	$answer = $t->query($sql =~ s/\?/$mine/r);
	$mine //= $answer;
	is($t->error, '', "$what is created");
	is(counters()->{rows_written} - $before->{rows_written}, $rows, "rows written by $what");
}
$t->query("SELECT revoke_lease($mine)");    # the place is granted the lock
$t->query("SELECT resign('rows', $answer), force_release_lock('leased')");
is($t->query('SELECT string_agg(name, NULL) FROM lock_election.locks'), 'a', 'only one lock is left');
moves('a wait that runs out', sub { $t->query(q{SELECT acquire_lock('a', wait => '100 ms')}) }, { acquires => 1, waits => 1, timeouts => 1 });
moves('hand-off', sub {
		$t->async(q{SELECT acquire_lock('a', owner => 'next')});
		waiting($t);
		$s->query("SELECT release_lock('a', $token)");
		$token = $t->wait;
	}, { acquires => 1, waits => 1, releases => 1, grants => 1, handoffs => 1 });
moves('force', sub { $s->query(q{SELECT force_release_lock('a')}) }, { forced => 1 });
moves('expiry', sub {
		$s->query(q{SELECT acquire_lock('a', ttl => '100 ms')});
		wait_until(sub { $s->query('SELECT count(*) FROM lock_election.locks') eq '0' }) or die 'the lock does not expire';
	}, { acquires => 1, grants => 1, expiries => 1 });
moves('rollback', sub { $s->query('BEGIN'); $s->query(q{SELECT acquire_lock('a')}); $s->query('ROLLBACK') ; nothing_left($node, 'the rollback releases the lock') },
	{ acquires => 1, grants => 1, undone => 1 });
$written = moves('bound to the connection',
	sub { $s->query(q{SELECT acquire_lock('a', ttl => NULL)}); $s->query(q{SELECT release_lock('a')}) },
	{ acquires => 1, grants => 1, releases => 1 });
is($written->{flushes}, 0, 'a bound lock forces no flush');
$written = moves('synchronous_commit = off',
	sub { $s->query('SET synchronous_commit = off'); $token = $s->query(q{SELECT acquire_lock('a')}); $s->query('RESET synchronous_commit') },
	{ acquires => 1, grants => 1 });
is($written->{flushes}, 0, 'a session with synchronous_commit = off forces no flush');
$t->query("SELECT release_lock('a', $token)");
moves('a bad argument', sub { $s->query(q{SELECT acquire_lock('')}) }, {});
is($s->query('SELECT write_time > 0, write_time < 1000 * extract(epoch FROM clock_timestamp() - stats_reset), failed_batches FROM lock_election.stat'), 't|t|0',
	'stat: write_time is plausible, and no batch failed');

# --- histogram, and the current number of holders and waiters ---

# Returns the counts of the non-empty buckets of one histogram, and whether each agrees with durations between $least
# and $most.
sub buckets
{
	my ($name, $least, $most) = @_;
	published();
	return $s->query(qq{SELECT string_agg(format('%s %s', n, le >= $least AND above < $most AND sum BETWEEN $least AND $most), ', ' ORDER BY le) FROM
			(SELECT le, sum, count - lag(count, 1, 0::bigint) OVER (ORDER BY le) AS n, lag(le, 1, 0::float8) OVER (ORDER BY le) AS above
			 FROM lock_election.histogram WHERE name = '$name') h WHERE n <> 0});
}
published();
$s->query('SELECT lock_election.stat_reset()');
is($s->query('SELECT name, count(*), max(le), max(count), max(sum) FROM lock_election.histogram GROUP BY name ORDER BY name'),
	join("\n", map { "$_|19|Infinity|0|0" } qw(fruitless_wait hold term wait)), 'histogram: all buckets exist before any event');
my $held_before = $s->query('SELECT held, waiting, oldest_wait FROM lock_election.manager');
is($held_before, '0|0|', 'manager: nothing is held, and no call waits');
my $start = time;
$token = $s->query(q{SELECT acquire_lock('a', owner => 'me')});
$s->query(q{SELECT campaign('e', 'me', ttl => '1 h')});
$t->async(q{SELECT acquire_lock('a')});
waiting($t);
published();
is($s->query(q{SELECT m.held, m.waiting, m.oldest_wait = w.waiting_since, m.oldest_wait BETWEEN now() - interval '1 min' AND now()
		FROM lock_election.manager m, lock_election.waiters w}), '2|1|t|t', 'manager: numbers of holders and waiters, and the start of the oldest wait');
$s->query(q{SELECT pg_sleep(0.4)});
$s->query("SELECT release_lock('a', $token)");
$token = $t->wait;
my $took = time - $start;
is(buckets('wait', 0.4, $took), '1 t', 'histogram: a wait of 0.4 s is counted');
is(buckets('hold', 0.4, $took), '1 t', 'histogram: the hold that it waited for is counted');
is($s->query(q{SELECT oldest_wait IS NULL AND waiting = 0 FROM lock_election.manager}), 't',
	'manager: no call waits any more');
$start = time;
$s->query(q{SELECT acquire_lock('a', wait => '150 ms')});
is(buckets('fruitless_wait', 0.15, time - $start), '1 t', 'histogram: a wait that timed out is counted');
$s->query("SELECT release_lock('a', $token)");
published();
is($s->query(q{SELECT leader_changes FROM lock_election.stat}), '1', 'stat: a new leader is counted');
$s->query(q{SELECT force_resign('e')});
published();
is($s->query(q{SELECT max(count) FROM lock_election.histogram WHERE name = 'term'}), '1',
	'histogram: the term is counted');
is($s->query(q{SET ROLE nosy \; SELECT count(*) FROM lock_election.histogram \; RESET ROLE}), '76',
	'histogram can be read by all roles');

# A new manager knows since when a blocked call waits.
$token = $s->query(q{SELECT acquire_lock('a', ttl => '1 h')});
$t->async(q{SELECT acquire_lock('a')});
waiting($t);
published();
my $since = $s->query('SELECT oldest_wait FROM lock_election.manager');
wait_for_sql($node, q{SELECT oldest_wait < clock_timestamp() - interval '1 s' FROM lock_election.manager});
my $old_manager = $s->query('SELECT pid FROM lock_election.manager');
$s->query("SELECT pg_terminate_backend($old_manager)");
wait_for_sql($node, "SELECT pid <> $old_manager AND waiting = 1 FROM lock_election.manager");
is($s->query("SELECT abs(extract(epoch FROM oldest_wait - '$since')) < 0.9 FROM lock_election.manager"), 't',
	'manager: a blocked call keeps its start after a restart');
$s->query("SELECT release_lock('a', $token)");
$token = $t->wait;
$s->query(q{SELECT force_release_lock('a')});

$s->query('SELECT pg_stat_reset()');
isnt($s->query('SELECT acquires FROM lock_election.stat'), '0', 'pg_stat_reset() does not reset the counters');
wait_for_sql($node, 'SELECT count(*) FROM _lock_election.slot WHERE mode = 0', '0');
published();
$s->query('SELECT lock_election.stat_reset()');
is(join(' ', sort grep { $_ ne '0' } values %{ counters() }), '', 'stat_reset: all counters are zero');
is($s->query('SELECT count(*) FROM lock_election.histogram WHERE count <> 0 OR sum <> 0'), '0',
	'stat_reset: the histograms are empty');
is($s->query(q{SELECT write_time, stats_reset BETWEEN now() - interval '1 min' AND now() FROM lock_election.stat}), '0|t', 'stat_reset: stats_reset is the current time');
$s->query('CREATE ROLE keeper; GRANT EXECUTE ON FUNCTION lock_election.stat_reset() TO keeper; SET ROLE keeper');
$s->query('SELECT lock_election.stat_reset()');
is($s->error, '', 'stat_reset can be granted to a role');
$s->query('RESET ROLE');
$t->quit;

# --- many locks, and many waiters for one lock ---

my $dir = PostgreSQL::Test::Utils::tempdir();
my @crowds;

# Starts clients that all wait for lock "hot", and release it when they are granted it.
sub crowd
{
	my ($name, $clients) = @_;
	my %crowd = (out => '', err => '');

	append_to_file("$dir/$name", <<"SQL");
SELECT acquire_lock('hot', ttl => '5 min', owner => '$name-' || :client_id) AS token \\gset
SELECT release_lock('hot', :token);
SQL
	$crowd{run} = IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-t', 1, '-f', "$dir/$name", $node->connstr('postgres') ],
		'>', \$crowd{out}, '2>', \$crowd{err});
	push @crowds, \%crowd;
	return;
}

sub queue_is
{
	my ($count) = @_;

	wait_until(sub { $s->query(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'hot'}) >= $count })
	  or die "not $count waiters: $crowds[-1]{err}";
	return;
}

$s->query(q{SELECT acquire_lock('hot', ttl => NULL)});
crowd('mover', WAITERS / 2);
queue_is(WAITERS / 2);
crowd('stayer', WAITERS / 2);
queue_is(WAITERS);
$s->query('SET synchronous_commit = off');
is($s->query("SELECT count(acquire_lock('l' || i, ttl => '1 hour')) FROM generate_series(1, @{[ LOCKS ]}) i"), LOCKS, 'many locks are acquired');
my $everything = 'SELECT count(*), count(DISTINCT (name, slot)) FROM lock_election.locks';
is($s->query(q{SELECT count(*), count(DISTINCT pid), count(DISTINCT owner), min(queue_position), max(queue_position), count(DISTINCT queue_position)
		FROM lock_election.waiters WHERE name = 'hot'}),
	join('|', WAITERS, WAITERS, WAITERS, 1, WAITERS, WAITERS), 'waiters: each waiter is shown once');
is($s->query($everything), join('|', (LOCKS + 1) x 2), 'locks: each lock is shown once');
is($s->query(q{SELECT waiters FROM lock_election.locks WHERE name = 'hot'}), WAITERS,
	'locks: the number of waiters is right');

# Leases on several pages of the view, with a page without any lease between them.
{
	my $owner = q{CASE WHEN i % 7 > 0 THEN repeat('o', i % 240 + 1) END};

	$s->query("CREATE TEMP TABLE granted AS SELECT i, grant_lease((i + 100) * interval '1 min', owner => $owner) AS lease FROM generate_series(1, 3000) i");
	is($s->query('SELECT count(*) FROM granted WHERE i BETWEEN 500 AND 1700 AND revoke_lease(lease)'), 1201, 'many leases are revoked');
	is($s->query(qq{SELECT count(*), count(i), count(DISTINCT lease), bool_and(ttl = (i + 100) * interval '1 min' AND owner IS NOT DISTINCT FROM $owner),
			bool_and(time_left BETWEEN ttl - interval '5 min' AND ttl AND abs(extract(epoch FROM expires_at - clock_timestamp() - time_left)) < 30)
			FROM lock_election.leases LEFT JOIN granted USING (lease)}), '1799|1799|1799|t|t', 'leases: each of the others is shown as it was granted');
	is($s->query('SELECT count(*) FROM granted WHERE revoke_lease(lease)'), 1799, 'the other leases can be revoked');
	is($s->query('SELECT count(*) FROM lock_election.leases'), 0, 'leases: none is left');
}

# Grants continue during a reading, not only between two readings: there are more grants than readings.
{
	my $readings = 20;
	my @readers = map { session($node) } 1 .. 2;
	my $t = session($node);
	my $grants = 0;

	$_->async('SELECT count(*) FROM lock_election.locks \; ' x $readings . 'SELECT 1') foreach @readers;
	until ($readers[0]->ready && $readers[1]->ready)
	{
		$t->query(q{SELECT release_lock('g', acquire_lock('g'))});
		$grants++;
	}
	$_->wait, $_->quit foreach @readers;
	$t->quit;
	note("$grants grants");
	cmp_ok($grants, '>', 2 * $readings, 'grants continue while views are read');
}

is($s->query(q{SELECT count(force_release_lock(name)) FROM lock_election.locks WHERE name <> 'hot'}), LOCKS, 'all locks can be released while the view is read');
is($s->query($everything), '1|1', 'released locks are not shown any more');

# The first half of the queue is granted the lock one by one while the second half is read repeatedly: each of its
# waiters is shown once each time.
{
	my @lookers = map { session($node) } 1 .. 2;

	$s->query('CREATE TABLE seen (rows int, waiters int, moved bigint); CREATE TABLE looks AS SELECT handoffs AS before FROM lock_election.stat');
	$_->async(<<'SQL') foreach @lookers;
DO $$
DECLARE
	look seen%ROWTYPE;
BEGIN
	LOOP
		SELECT count(*), count(DISTINCT pid) INTO look.rows, look.waiters FROM lock_election.waiters WHERE owner LIKE 'stayer%';
		look.moved := (SELECT handoffs - before FROM lock_election.stat, looks);
		INSERT INTO seen VALUES (look.*);
		EXIT WHEN look.moved > 200;
	END LOOP;
END $$
SQL
	wait_until(sub { $s->query('SELECT count(*) FROM pg_stat_activity WHERE query LIKE \'DO %\' AND state = \'active\'') eq '2' }) or die 'the readers are not active';
	$s->query(q{SELECT release_lock('hot')});
	is($_->wait, '', 'a reading of the moving queue succeeds') foreach @lookers;
	is($s->query('SELECT DISTINCT rows, waiters FROM seen WHERE moved <= 200'), join('|', (WAITERS / 2) x 2), 'each waiter that stays in the queue is shown once in each reading')
	  or diag($s->query('SELECT rows, waiters, count(*) FROM seen GROUP BY 1, 2'));
	note('looks while it moved: ' . $s->query('SELECT count(*) FROM seen WHERE moved > 0'));
	$_->quit foreach @lookers;
}
foreach my $crowd (@crowds)
{
	$crowd->{run}->finish;
	like($crowd->{out}, qr{actually processed: (\d+)/\1$}m,
		'all waiters of the crowd were granted the lock') or diag($crowd->{err});
}
$s->quit;
nothing_left($node);
$node->stop;
done_testing();
