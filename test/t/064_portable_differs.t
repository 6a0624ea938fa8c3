# Compares the two editions: random programs of several sessions of different roles get the same replies from the C
# extension and from the portable edition, except for times and token numbers.
#   LE_SEED=7 or LE_SEED=7-300    runs the programs of these seeds, and no others
# Promises: M, Q, T, E, H
use strict;
use warnings;
use LePrograms;
use LeTest;
use LeWire;
use Test::More;
use Time::HiRes qw(time);

# Servers: one without limits, and one with limits that are soon reached. Each has both editions, in databases c and p.
my %limits = (max_waiters_per_lock => 3, max_locks_per_role => 12, max_leases_per_role => 5, max_ttl => '2d', max_hold_for => '1h');
my @users = ('r1', 'r1', 'r2', 'operator', 'member');
my @engines = ('c', 'p');
my (%servers, $server);
# Per engine: symbols by number, and numbers by symbol.
my (%symbol, %number);
my (@log, $different, $late);

sub new_server
{
	my ($name, %limits) = @_;
	my $node = new_node($name, extension => 0, conf => join '', "log_statement = none\n", map { "lock_election.$_ = '$limits{$_}'\n" } sort keys %limits);

	one($node, 'CREATE ROLE r1 LOGIN; CREATE ROLE r2 LOGIN; CREATE ROLE operator LOGIN; GRANT pg_signal_backend TO operator; CREATE ROLE member LOGIN;
		GRANT r1 TO member; CREATE DATABASE c; CREATE DATABASE p');
	one($node, 'CREATE EXTENSION lock_election', 'c');
	install_portable($node, 'p');
	one($node, "SELECT lock_election.configure('$_', '$limits{$_}')", 'p') foreach sort keys %limits;
	return { node => $node, map { my $db = $_; $db => [ map { LeWire->new($node, dbname => $db, user => $_, settings => { statement_timeout => '8s' }) } @users ], "$db-super" => LeWire->new($node, dbname => $db) } @engines };
}

sub ask
{
	my ($wire, $sql) = @_;

	$wire->query($sql);
	return $wire->wait('Z');
}

sub symbol_of
{
	my ($engine, $number) = @_;
	my $next = 'T' . keys %{ $symbol{$engine} };

	$number{$engine}{$next} = $number unless exists $symbol{$engine}{$number};
	return $symbol{$engine}{$number} //= $next;
}

# A reply with symbols in place of tokens, and only the SQLSTATE of an error.
sub canonical
{
	my ($engine, $wire, $out) = @_;

	$out = join ' ', $out eq '' ? () : $out, $wire->error =~ /^(?:ERROR|WARNING) (\w{5}) /mg;
	$out =~ s/\b(\d{13,18})\b/symbol_of($engine, $1)/ge;
	return $out;
}

# The statement with numbers in place of symbols.
sub sql_of { my ($engine, $sql) = @_; $sql =~ s/\b(T\d+)\b/$number{$engine}{$1} \/\/ 77/ge; return $sql; }

sub tokens { return scalar keys %{ $symbol{c} }; }

# Returns the replies of both engines. Session -1 is that of the superuser.
sub both
{
	my ($i, $sql) = @_;

	return map {
		my $wire = $i < 0 ? $server->{"$_-super"} : $server->{$_}[$i];
		canonical($_, $wire, ask($wire, sql_of($_, $sql)));
	} @engines;
}

sub agree
{
	my ($i, $sql, $c, $p) = @_;

	# If two arguments are invalid, each edition may report another one.
	$p = $c if "$c $p" =~ /^(?:22023 53400|53400 22023)$/ && $sql =~ /'3 days'|'2 days'/;
	push @log, "$i: $sql\n      $c";
	return 1 if $c eq $p;
	$different = "session $i: $sql\n  C:        $c\n  portable: $p\nbefore:\n" . join "\n", @log[ ($#log > 40 ? $#log - 40 : 0) .. $#log - 1 ];
	return 0;
}

sub compare { my ($i, $sql) = @_; return agree($i, $sql, both($i, $sql)); }

# Compares the state of both engines, as one of the sessions sees it. Changes that were rolled back are only in the
# history of the C edition.
sub compare_state
{
	my ($program) = @_;
	my $i = int rand @users;
	my $sql = <<"SQL";
SELECT string_agg(s, E'\\n' ORDER BY s COLLATE "C") FROM (
	SELECT concat_ws(' ', 'hold', kind, name, mode, holds, coalesce(owner, '-'), waiters, evicted, coalesce(role::text, '-'), coalesce(token::text, '-'),
		coalesce(lease::text, '-'), closed_until IS NOT NULL, time_left > '50 min', cardinality(fenced_by)) AS s FROM lock_election.locks
	UNION ALL SELECT concat_ws(' ', 'place', kind, name, queue_position, mode, coalesce(owner, '-'), role, coalesce(token::text, '-'), coalesce(lease::text, '-'), closed_until IS NOT NULL)
		FROM lock_election.waiters
	UNION ALL SELECT concat_ws(' ', 'election', election, candidate, term, coalesce(owner, '-'), role, waiting, evicted, cardinality(fenced_by)) FROM lock_election.elections
	UNION ALL SELECT concat_ws(' ', 'lease', lease, coalesce(owner, '-'), role, ttl, locks, waiting) FROM lock_election.leases) x
SQL
	my $history = "SELECT how, candidate, term, ended_at IS NOT NULL FROM election_history('$program->{election}') h
		WHERE NOT EXISTS (SELECT FROM election_history('$program->{election}') u WHERE u.term = h.term AND u.how = 'undone') ORDER BY change";
	my ($c, $p) = map { s/(?<=T)(\d+)/sprintf '%04d', $1/ger } both($i, $sql);

	$c = join "\n", sort split /\n/, $c;
	$p = join "\n", sort split /\n/, $p;
	return 1 if $c eq $p && (($c, $p) = both($i, $history))[0] eq $p;
	my %in_p = map { $_ => 1 } split /\n/, $p;
	my %in_c = map { $_ => 1 } split /\n/, $c;
	$different = "state, as session $i sees it\n  C:        " . join("\n            ", grep { !$in_p{$_} } split /\n/, $c)
	  . "\n  portable: " . join("\n            ", grep { !$in_c{$_} } split /\n/, $p) . "\nbefore:\n" . join "\n", @log[ ($#log > 40 ? $#log - 40 : 0) .. $#log ];
	return 0;
}

# --- steps ---

# The portable edition removes expired entries only when a call comes across them.
sub reap { ask($server->{'p-super'}, 'SELECT lock_election.reap()'); return; }

# Waits until the query returns true in both engines.
sub until_both
{
	my ($sql, $what) = @_;

	foreach my $engine (@engines)
	{
		my $wire = $server->{"$engine-super"};
		wait_until(sub { ask($wire, sql_of($engine, $sql)) eq 't' }, undef, 0.01) and next;
		$different = "$what is not seen in $engine\nbefore:\n" . join "\n", @log;
		return;
	}
	return 1;
}

# A transaction block. No other session runs statements in between, because a critical section lasts until its end.
sub transaction
{
	my ($program, $i) = @_;
	my ($released, @savepoints) = (0);

	compare($i, 'BEGIN') or return;
	foreach (1 .. 1 + int rand 4)
	{
		if (rand() < 0.3)
		{
			push @savepoints, 's' . @savepoints;
			compare($i, "SAVEPOINT $savepoints[-1]") or return;
		}
		# A release ends the lock at commit in the C edition, but immediately in the portable edition.
		$released ||= rand() < 0.2;
		compare($i, $program->in_transaction($released)) or return;
		if (@savepoints && rand() < 0.3)
		{
			compare($i, (rand() < 0.5 ? 'ROLLBACK TO ' : 'RELEASE ') . $savepoints[-1]) or return;
			pop @savepoints if rand() < 0.5 || $log[-1] =~ /RELEASE/;
		}
	}
	return compare($i, LePrograms::pick('COMMIT', 'COMMIT', 'ROLLBACK'));
}

# A fence, and statements of other sessions while it exists.
sub fenced
{
	my ($program, $i) = @_;
	my $token = $program->token;
	my $name = LePrograms::pick('a', 'b', 'c');
	my $fence = LePrograms::pick("fence_lock('$name', $token)", "fence_lock('$name', $token)", "fence_leader('$program->{election}', $token)");
	my @others = grep { $_ != $i } 0 .. $#users;

	compare($i, 'BEGIN') && compare($i, "SELECT $fence") or return;
	foreach (1 .. int rand 4)
	{
		compare(LePrograms::pick(@others), rand() < 0.5 ? $program->releases : $program->statement) or return;
	}
	return compare($i, LePrograms::pick('COMMIT', 'ROLLBACK'));
}

# A lock or a place expires.
sub expires
{
	my ($program, $i) = @_;
	my $name = LePrograms::pick('a', 'b', 'c', 'p');
	my $token = tokens();
	my $sql = rand() < 0.5
	  ? $name eq 'p' ? "SELECT acquire_permit('p', 2, '100 ms', wait => '0')" : "SELECT try_acquire_lock('$name', '100 ms'" . LePrograms::pick('', q{, mode => 'shared'}) . ')'
	  : $name eq 'p' ? q{SELECT * FROM enqueue_permit('p', 2, '100 ms')} : "SELECT * FROM enqueue_lock('$name', '100 ms')";
	my $begin = time;

	compare($i, $sql) or return;
	return 1 if tokens() == $token;
	until_both("SELECT NOT EXISTS (SELECT FROM lock_election.locks WHERE token = T$token) AND NOT EXISTS (SELECT FROM lock_election.waiters WHERE token = T$token)", 'the end of a lease') or return;
	foreach (1 .. int rand 2)
	{
		compare(int rand @users, LePrograms::pick("SELECT try_acquire_lock('$name')", "SELECT is_held('$name', T$token)", "SELECT renew_lock('$name', T$token)",
				"SELECT release_lock('$name', T$token)", "SELECT await_lock('$name', T$token)", "SELECT force_release_lock('$name')")) or return;
	}
	reap();
	return 1;
}

# A lease with several entries expires.
sub lease_expires
{
	my ($program, $i) = @_;
	my $begin = time;
	my $number = tokens();
	my @before = @{ $program->{leases} };

	compare($i, q{SELECT grant_lease('700 ms')}) or return;
	return 1 if tokens() == $number;
	$program->{leases} = ["T$number"];
	foreach (1 .. 1 + int rand 4)
	{
		my $ok = compare($i, rand() < 0.8 ? $program->acquires : $program->sync);
		if (time > $begin + 0.5)
		{
			# This machine is too slow for such a short lease.
			$late = 1;
			$different = undef;
			return;
		}
		return if !$ok;
	}
	$program->{leases} = \@before;
	until_both("SELECT NOT EXISTS (SELECT FROM lock_election.leases WHERE lease = T$number)", 'the end of a lease') or return;
	reap();
	return compare($i, "SELECT keep_alive(T$number)");
}

# One session waits for a lock that another one releases.
sub waits
{
	my ($program, $i) = @_;
	my $name = LePrograms::pick('a', 'b', 'c');
	my $j = LePrograms::pick(grep { $_ != $i && $users[$_] ne 'operator' } 0 .. $#users);
	my $token = tokens();
	my $begin = time;

	compare($j, "SELECT try_acquire_lock('$name', '1 h')") or return;
	return 1 if tokens() == $token;
	my $sql = "SELECT acquire_lock('$name', '1 h', wait => '5 s')";
	$server->{$_}[$i]->query($sql) foreach @engines;
	foreach my $wire (map { $server->{$_}[$i] } @engines)
	{
		until_both(q{SELECT wait_event IS NOT NULL AND state = 'active' FROM pg_stat_activity WHERE pid = } . $wire->pid, 'a wait') or return;
	}
	compare($j, "SELECT release_lock('$name', T$token)") or return;
	return agree($i, $sql, map { canonical($_, $server->{$_}[$i], $server->{$_}[$i]->wait('Z')) } @engines);
}

# A session that uses SET ROLE to a role of which it is a member.
sub as_a_member
{
	my ($program) = @_;

	compare(4, 'SET ROLE r1') or return;
	foreach (1 .. 1 + int rand 3) { compare(4, $program->statement) or return; }
	return compare(4, 'RESET ROLE');
}

# Releases everything in both engines.
sub begin
{
	%symbol = %number = @log = ();
	($different, $late) = ();
	foreach my $engine (@engines)
	{
		my $super = $server->{"$engine-super"};
		ask($_, 'ROLLBACK; RESET ROLE; SELECT pg_advisory_unlock_all()') foreach @{ $server->{$engine} };
		ask($super, "SELECT force_release_role(r::regrole) FROM unnest('{r1,r2,operator,member}'::text[]) r");
		wait_until(sub { ask($super, 'SELECT (SELECT count(*) FROM lock_election.locks) + (SELECT count(*) FROM lock_election.leases)') eq '0' }) or die "not all of $engine is released";
	}
	return;
}

# Runs the program of this seed.
sub run
{
	my ($seed) = @_;

	srand($seed);
	$server = $servers{ $seed % 4 == 3 ? 'limited' : 'free' };
	begin();
	my $program = LePrograms->new($seed, tokens => \&tokens);

	foreach my $i (0 .. 2)
	{
		compare($i, q{SELECT grant_lease('1 h')}) or return;
		$program->lease_is('T' . (tokens() - 1));
	}
	foreach my $step (1 .. 40)
	{
		my $i = int rand @users;
		my $kind = rand;
		my $ok =
		    $kind < 0.08 ? transaction($program, $i)
		  : $kind < 0.12 ? fenced($program, $i)
		  : $kind < 0.14 ? expires($program, $i)
		  : $kind < 0.145 ? lease_expires($program, $i)
		  : $kind < 0.16 ? waits($program, $i)
		  : $kind < 0.18 ? as_a_member($program)
		  :               compare($i, $program->statement);
		return unless $ok && ($step < 40 && rand() < 0.7 || compare_state($program));
	}
	return;
}

# --- programs that once had different replies ---

# Sessions and statements. "! T0" waits until T0 has expired.
my @once = (
	[ 'another role gets no details about expired tokens', q{0: SELECT try_acquire_lock('a', '100 ms')}, q{0: SELECT try_acquire_lock('b', '1 h')}, q{0: SELECT * FROM enqueue_lock('b', '100 ms')},
		'! T0', '! T2', q{2: SELECT await_lock('a', T0)}, q{2: SELECT await_lock('b', T2)}, q{2: SELECT renew_lock('a', T0)}, q{2: SELECT renew_lock('b', T2)}, '2: BEGIN',
		q{2: SELECT fence_lock('a', T0)}, '2: ROLLBACK', q{2: SELECT release_lock('b', T2)}, q{2: SELECT release_lock('a', T0)} ],
	[ 'an expired place has no position', q{0: SELECT try_acquire_lock('a', '1 h')}, q{0: SELECT * FROM enqueue_lock('a', '1 h')}, q{0: SELECT * FROM enqueue_lock('a', '100 ms')}, '! T2',
		q{1: SELECT * FROM enqueue_lock('a', '1 h')} ],
	[ 'a ttl is checked even if a lease is given', q{0: SELECT grant_lease('1 h')}, q{0: SELECT try_acquire_lock('a', '1 year', lease => T0)}, q{0: SELECT * FROM enqueue_lock('a', NULL, lease => T0)} ],
	[ 'a release of several names, only some of which are waited for', q{0: SELECT try_acquire_lock('b', '1 h')}, q{1: SELECT * FROM enqueue_locks('{b}', '1 h')}, q{1: SELECT release_locks('{b,a}', T1)},
		q{1: SELECT * FROM enqueue_locks('{a,b}', '1 h')}, q{1: SELECT release_locks('{b}', T2)} ],
	[ 'a place for several names is released', q{0: SELECT try_acquire_lock('a', '1 h')}, q{2: SELECT * FROM enqueue_locks('{a,b,c}', '1 h')}, q{1: SELECT * FROM enqueue_lock('c', '1 h')},
		q{1: SELECT await_lock('c', T2)}, q{2: SELECT release_locks('{a,b,c}', T1)} ],
	[ 'a name is closed while it has another holder', q{0: SELECT acquire_permit('p', 2, '1 h')}, q{1: SELECT acquire_permit('p', 2, '1 h')}, q{2: SELECT * FROM enqueue_permit('p', 2, '1 h')},
		q{1: SELECT release_lock('p', T1, '1 h')} ],
	[ 'only some of the holders may be forced', q{0: SELECT acquire_permit('p', 3, '1 h')}, q{2: SELECT acquire_permit('p', 3, '1 h')}, q{2: SELECT evict_lock('p')}, q{1: SELECT force_release_lock('p')},
		q{1: SELECT force_release_lock('p')}, q{1: SELECT evict_lock('p')} ],
	[ 'force_resign() does not end the next leader', q{0: SELECT campaign('e', 'x', '1 h')}, q{4: SELECT * FROM enqueue_candidate('e', 'y', '1 h')}, q{4: SELECT force_resign('e')}, q{4: SELECT is_leader('e', T1)} ],
	[ 'force_release_role() ends everything of a role', q{0: SELECT grant_lease('1 h')}, q{0: SELECT try_acquire_lock('a', '1 h', lease => T0)}, q{0: SELECT try_acquire_lock('b', '1 h')}, q{0: SELECT release_lock('b', T2, '1 h')},
		q{4: SELECT try_acquire_lock('c', '1 h', mode => 'shared')}, q{1: SELECT * FROM enqueue_lock('c', '1 h')}, q{3: SELECT * FROM enqueue_lock('c', '1 h', mode => 'shared')},
		q{0: SELECT try_acquire_lock('d', '100 ms')}, '! T6', q{0: SELECT force_release_role('r1')}, q{0: SELECT force_release_role('r2')} ],
	[ 'shared => NULL means exclusive', q{0: SELECT advisory_acquire('x', '0', shared => NULL)}, q{1: SELECT advisory_acquire('x', '0', shared => true)}, q{0: SELECT advisory_release('x', shared => NULL)} ],
	[ 'numbers of leases and calls of lease_sync()', '0: SELECT event FROM lease_sync(0, 1)', q{0: SELECT grant_lease('1 h')}, '0: SELECT event FROM lease_sync(T0, 0)', '0: SELECT event FROM lease_sync(T0, 1, wait => NULL)',
		q{0: SELECT item, event, name, token FROM lease_sync(T0, 2, items => '{1,try_candidate,e,NULL,o,x}')},
		q{0: SELECT item, event, name, token FROM lease_sync(T0, 3, items => '{1,proclaim,e,T1,NULL,y,2,proclaim,e,77,NULL,y}')},
		q{0: SELECT item, event, name, token, queue_position FROM lease_sync(T0, 4, items => '{1,enqueue_candidate,e,NULL,o2,x}')},
		q{0: SELECT item, event, name, token, queue_position FROM lease_sync(T0, 5) ORDER BY token} ],
	[ 're-entry in a transaction, for several names', '0: BEGIN', q{0: SELECT * FROM enqueue_locks('{a,b,c}', '1 h')}, q{0: SELECT * FROM try_acquire_each('{a,c}', '1 h', mode => 'shared')}, '0: COMMIT',
		q{0: SELECT * FROM try_acquire_each('{a,c}', '1 h', mode => 'shared')} ],
	[ 're-entry in a transaction, on a lease', q{0: SELECT grant_lease('1 h')}, '0: BEGIN', q{0: SELECT acquire_locks('{a,b}', '1 h')}, q{0: SELECT try_acquire_lock('b', '1 h', lease => T0)}, '0: ROLLBACK',
		'0: BEGIN', q{0: SELECT try_acquire_lock('b', '1 h', lease => T0)}, q{0: SELECT try_acquire_lock('b', '1 h')}, '0: ROLLBACK' ],
	[ 're-entry prefers the entry on the given lease', q{0: SELECT grant_lease('1 h')}, q{0: SELECT * FROM enqueue_lock('a', '1 h', 'shared', owner => 'o')},
		q{0: SELECT * FROM enqueue_lock('a', '1 h', 'shared', owner => 'o', lease => T0)}, q{0: SELECT try_acquire_lock('a', '1 h', 'shared', owner => 'o', lease => T0)},
		q{0: SELECT try_acquire_lock('a', '1 h', 'shared', owner => 'o')} ],
	[ 'similar requests on a lease that are no repetition', q{0: SELECT grant_lease('1 h')}, q{0: SELECT acquire_locks('{a,b}', '1 h', mode => 'shared', lease => T0)},
		q{0: SELECT * FROM enqueue_locks('{b,a}', '1 h', lease => T0)}, q{0: SELECT * FROM enqueue_locks('{b}', '1 h', mode => 'shared', lease => T0)}, q{0: SELECT * FROM enqueue_lock('a', '1 h', lease => T0)},
		q{0: SELECT * FROM enqueue_lock('a', '1 h', mode => 'shared', lease => T0)}, q{0: SELECT * FROM enqueue_candidate('e', 'x', '1 h', lease => T0)},
		q{0: SELECT * FROM enqueue_candidate('e', 'y', '1 h', lease => T0)}, q{0: SELECT candidate FROM current_leader('e')} ],
	[ 'single names of a place for several names', q{0: SELECT try_acquire_lock('a', '1 h')}, q{2: SELECT * FROM enqueue_locks('{a,b,c}', '1 h')}, q{0: SELECT await_locks('{b,d}', T1)}, q{0: SELECT await_locks('{b,a}', T1)},
		q{2: SELECT await_locks('{b,d}', T1)}, q{2: SELECT * FROM release_each('{a,b,d}', ARRAY[T1, T1, T1]::bigint[])}, q{2: SELECT * FROM enqueue_locks('{b,c}', '1 h')}, q{0: SELECT await_locks('{b,d}', T2)},
		q{3: SELECT evict_lock('b')}, q{0: SELECT await_locks('{b}', T2)}, q{0: SELECT await_lock('b', T2)}, q{2: SELECT await_locks('{b}', T2)} ],
	[ 'the newest of several entries of one owner', q{0: SELECT * FROM enqueue_lock('a', '1 h', mode => 'shared', owner => 'o')}, q{0: SELECT * FROM enqueue_lock('a', '1 h', mode => 'shared', owner => 'o')},
		q{0: SELECT try_acquire_lock('a', '1 h', mode => 'shared', owner => 'o')} ],
	[ 'the token of a place where that of a holder is expected', q{0: SELECT try_acquire_lock('a', '1 h')}, q{1: SELECT * FROM enqueue_lock('a', '1 h')}, '1: BEGIN', q{1: SELECT fence_lock('a', T1)}, '1: ROLLBACK', '2: BEGIN',
		q{2: SELECT fence_lock('a', T1)}, '2: ROLLBACK', q{1: SELECT renew_lock('a', T1)}, q{2: SELECT renew_lock('a', T1)}, q{0: SELECT campaign('e', 'x', '1 h')},
		q{1: SELECT * FROM enqueue_candidate('e', 'y', '1 h')}, q{1: SELECT proclaim('e', T3, 'z')}, q{2: SELECT proclaim('e', T3, 'z')} ],
	[ 'an election that is rolled back', '0: BEGIN', q{0: SELECT campaign('e', 'x', '1 h')}, q{0: SELECT * FROM enqueue_candidate('e', 'z', '1 h')}, '0: ROLLBACK', q{1: SELECT campaign('e', 'y', '1 h')} ],
	[ 'a repeated campaign by the leader', q{0: SELECT campaign('e', 'x', '1 h', owner => 'o')}, q{0: SELECT campaign('e', 'y', '1 h', owner => 'o')} ],
	[ 'a key of another role', q{0: SELECT compare_and_set('once', 0, 'v')}, q{2: SELECT compare_and_set('once', 0, 'v')}, q{2: SELECT compare_and_set('once', 1, 'v')}, q{1: SELECT compare_and_set('once', 0, 'v')} ],
	[ 'set_permits() of a name that is used in another way', q{0: SELECT set_permits('a', 3)}, q{0: SELECT try_acquire_lock('a', '1 h')}, q{0: SELECT set_permits('a', 3)}, q{2: SELECT set_permits('a', 3)},
		q{3: SELECT set_permits('a', 3)}, q{0: SELECT acquire_permit('p', 1, '1 h')}, q{2: SELECT * FROM enqueue_permit('p', 1, '1 h')}, q{0: SELECT release_lock('p', T1, '1 h')},
		q{2: SELECT set_permits('p', 2)}, q{0: SELECT set_permits('p', 2)}, q{0: SELECT set_permits('p', 2)} ],
);

sub run_once
{
	my ($what, @steps) = @_;

	$server = $servers{free};
	begin();
	foreach my $step (@steps)
	{
		my ($i, $sql) = $step =~ /^(\d): (.*)/s;

		if (defined $i)
		{
			compare($i, $sql) or return;
		}
		elsif ($step =~ /(T\d+)/)
		{
			until_both("SELECT NOT EXISTS (SELECT FROM lock_election.locks WHERE token = $1) AND NOT EXISTS (SELECT FROM lock_election.waiters WHERE token = $1)", 'the end of a lease') or return;
		}
	}
	reap();
	return compare_state({ election => 'e' });
}

# --- selection of programs ---

%servers = (free => new_server('free'), limited => new_server('limited', %limits));
my $named = $ENV{LE_SEED};
my $random = 1000 + int rand 1_000_000;
my @seeds = !defined $named ? (1 .. 20, $random) : $named =~ /^(\d+)-(\d+)$/ ? ($1 .. $2) : $named;
my ($programs, $failed) = (0, 0);

foreach my $program (defined $named ? () : @once)
{
	run_once(@$program);
	is($different, undef, $program->[0]);
}
note "LE_SEED=$random is the only program with a new seed" if !defined $named;
foreach my $seed (@seeds)
{
	run($seed);
	$programs++ unless $late;
	next unless defined $different;
	$failed++;
	diag "LE_SEED=$seed: $different";
	last if $failed >= ($ENV{LE_DIFFERENCES} // 1);
}
cmp_ok($programs, '>', @seeds / 2, "more than half of the programs were run: $programs");
is($failed, 0, 'both editions give the same replies');
done_testing();
