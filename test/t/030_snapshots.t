# A statement that consists only of a waiting call gives up its snapshot, so that VACUUM and CREATE INDEX CONCURRENTLY
# can continue. All other statements keep it: a statement that reads after the wait must see all rows.
# Promises: F
use strict;
use warnings;
use LeTest;
use LeWire;
use PostgreSQL::Test::Utils;
use Test::More;

use constant { TEXT => 25, VARCHAR => 1043, UNKNOWN => 0 };

my $node = new_node('main', conf => "autovacuum = off\ndeadlock_timeout = 100ms\n");
my $control = session($node);
my $holder = session($node);

# A wait that keeps its snapshot for a minute while the other cases are tested. It has a database of its own, where it
# blocks nothing.
one('CREATE DATABASE kept');
one('CREATE EXTENSION lock_election', 'kept');
my @minute = map { session($node, dbname => 'kept') } 1 .. 2;
$minute[0]->query(q{SELECT acquire_lock('a minute', '1 h')});
$minute[1]->query(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class});
$minute[1]->async(q{SELECT acquire_lock('a minute', '1 h')});

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, filler text NOT NULL) WITH (fillfactor = 50);
INSERT INTO t SELECT i, 0, repeat('x', 200) FROM generate_series(1, 2000) i;
CREATE TABLE one (name text NOT NULL);
INSERT INTO one VALUES ('x');
CREATE TABLE log (id int, token bigint);
SELECT lo_create(1);

CREATE FUNCTION in_plpgsql() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN acquire_lock('x'); END $$;
CREATE FUNCTION in_perform() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM acquire_lock('x'); RETURN 1; END $$;
CREATE FUNCTION in_execute(name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE token bigint; BEGIN EXECUTE 'SELECT acquire_lock($1)' INTO token USING name; RETURN token; END $$;
CREATE FUNCTION in_loop() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE token bigint; BEGIN FOR token IN SELECT acquire_lock('x') LOOP RETURN token; END LOOP; END $$;
CREATE FUNCTION in_cursor() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE c CURSOR FOR SELECT acquire_lock('x'); token bigint; BEGIN OPEN c; FETCH c INTO token; RETURN token; END $$;
CREATE FUNCTION in_query() RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT acquire_lock('x'); END $$;
CREATE FUNCTION in_sql() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT acquire_lock('x') $$;
CREATE FUNCTION in_handler() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN RETURN acquire_lock('x'); EXCEPTION WHEN division_by_zero THEN RETURN 0; END $$;
CREATE FUNCTION inlined(name text) RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT acquire_lock(name) $$;
CREATE FUNCTION rows_seen() RETURNS text LANGUAGE plpgsql AS $$
BEGIN RETURN CASE WHEN (SELECT count(*) FROM t) = 2000 THEN 'x' ELSE 'wrong' END; END $$;
CREATE FUNCTION rows_seen_stable() RETURNS text STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN rows_seen(); END $$;
CREATE FUNCTION open_stable(INOUT c refcursor) STABLE LANGUAGE plpgsql AS $$ BEGIN OPEN c FOR SELECT id FROM t ORDER BY id; END $$;
CREATE FUNCTION open_volatile(INOUT c refcursor) LANGUAGE plpgsql AS $$ BEGIN OPEN c FOR SELECT id FROM t ORDER BY id; END $$;
CREATE PROCEDURE in_procedure() LANGUAGE plpgsql AS $$ BEGIN PERFORM acquire_lock('x'); END $$;
CREATE PROCEDURE after_commit() LANGUAGE plpgsql AS $$ BEGIN COMMIT; PERFORM acquire_lock('x'); END $$;
CREATE FUNCTION in_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM acquire_lock('x'); RETURN NEW; END $$;
CREATE TABLE before_row (id int);
CREATE TRIGGER b BEFORE INSERT ON before_row FOR EACH ROW EXECUTE FUNCTION in_trigger();
CREATE TABLE after_row (id int);
CREATE TRIGGER a AFTER INSERT OR UPDATE ON after_row FOR EACH ROW EXECUTE FUNCTION in_trigger();
CREATE TABLE at_commit (id int);
CREATE CONSTRAINT TRIGGER d AFTER INSERT ON at_commit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION in_trigger();
CREATE FUNCTION in_trigger_cursor() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 1; NEW.id := in_cursor() * 0; RETURN NEW; END $$;
CREATE TABLE at_commit_cursor (id int);
CREATE CONSTRAINT TRIGGER d AFTER INSERT ON at_commit_cursor DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION in_trigger_cursor();
CREATE FUNCTION after_scan(name text) RETURNS text STABLE LANGUAGE plpgsql AS $$
DECLARE before text; after text;
BEGIN
	SELECT count(*) || '|' || count(DISTINCT id) || '|' || sum(v) INTO before FROM t;
	PERFORM acquire_lock(name);
	SELECT count(*) || '|' || count(DISTINCT id) || '|' || sum(v) INTO after FROM t;
	RETURN CASE WHEN before = after THEN after ELSE before || ' then ' || after END;
END $$;
CREATE FUNCTION fast_path() RETURNS text STABLE LANGUAGE plpgsql AS $$
DECLARE token bigint := in_cursor();
BEGIN RETURN (SELECT count(*) || '|' || count(DISTINCT id) || '|' || sum(v) FROM t); END $$;
SQL

# The holder acquires lock x; let_go() releases it.
sub hold { $holder->query(q{SELECT acquire_lock('x', ttl => NULL)}); return; }

sub let_go { $holder->query(q{SELECT release_lock('x')}); return; }

sub until_waiting
{
	my (@pids) = @_;

	foreach my $pid (@pids)
	{
		wait_until(sub { $control->query("SELECT count(*) FROM lock_election.waiters WHERE pid = $pid") eq '1' })
		  or die "process $pid does not wait";
	}
	return;
}

sub xmin { return $control->query("SELECT backend_xmin FROM pg_stat_activity WHERE pid = $_[0]"); }

sub forget { $control->query(q{SELECT force_release_lock('x')}); return; }

my $warning = qr/WARNING:  01000: this (?:statement|transaction) continues with a snapshot that is older than the grant of lock "x"
DETAIL:  It might not see the changes that the previous holder committed\.
HINT:  Acquire it in a statement of its own, in READ COMMITTED, or before the transaction begins\.$/m;

# One case: title, statements, options. The last statement of the list waits.
sub wait_case
{
	my ($title, $statements, %opts) = @_;
	my @before = @$statements;
	my $sql = pop @before;
	my $s = session($node);

	hold();
	$s->query($_) foreach @before;
	is($s->error, '', "$title: earlier statements succeed") if @before;
	$s->async($sql);
	until_waiting($s->pid);
	if ($opts{given_up})
	{
		is(xmin($s->pid), '', "$title: the snapshot is given up");
	}
	else
	{
		isnt(xmin($s->pid), '', "$title: the snapshot is kept");
	}
	let_go();
	my $answer = $s->wait;
	unlike($s->error, qr/ERROR/, "$title: the lock is granted");
	like($answer, $opts{answer}, "$title: the result") if $opts{answer};
	if ($opts{warning})
	{
		like($s->error, $warning, "$title: a warning is given");
	}
	else
	{
		is($s->error, '', "$title: no warning") unless $opts{notice};
	}
	$s->query($opts{after}) if $opts{after};
	is($s->error, '', "$title: the last statement succeeds") if $opts{after};
	$s->quit;
	forget();
	return;
}

my $token = qr/^\d+$/;
my @bare = (given_up => 1, answer => $token);

# --- the snapshot is given up ---

wait_case('bare call', [q{SELECT acquire_lock('x')}], @bare);
wait_case('bare call with arguments', [q{SELECT acquire_lock(name => 'x', ttl => '1 min', wait => '1 min', owner => 'me')}], @bare);
wait_case('shared', [q{SELECT acquire_lock('x', mode => 'shared')}], @bare);
wait_case('bound to the connection', [q{SELECT acquire_lock('x', ttl => NULL)}], @bare);
wait_case('arguments that read tables', ['BEGIN', q{SELECT acquire_lock(rows_seen())}], @bare, after => 'COMMIT');
wait_case('arguments of stable functions', [q{SELECT acquire_lock(rows_seen_stable()::varchar)}], @bare);
wait_case('transaction block', ['BEGIN', q{SELECT acquire_lock('x')}], @bare, after => 'COMMIT');
wait_case('after other statements', [ 'BEGIN', 'SELECT count(*) FROM t', 'INSERT INTO log VALUES (1)', q{SELECT acquire_lock('x')} ],
	@bare, after => 'COMMIT');
wait_case('after a savepoint', [ 'BEGIN', 'SAVEPOINT s', 'SELECT count(*) FROM t', q{SELECT acquire_lock('x')} ], @bare, after => 'COMMIT');
wait_case('after a closed cursor', [ 'BEGIN', 'DECLARE c CURSOR FOR SELECT id FROM t', 'FETCH 1 FROM c', 'CLOSE c', q{SELECT acquire_lock('x')} ],
	@bare, after => 'COMMIT');
wait_case('beside a cursor WITH HOLD of an earlier transaction',
	[ 'DECLARE c CURSOR WITH HOLD FOR SELECT id FROM t', q{SELECT acquire_lock('x')} ], @bare);
wait_case('several statements in one message', [q{SELECT count(*) FROM t \; SELECT acquire_lock('x') \; SELECT count(*) FROM t}],
	given_up => 1, answer => qr/^2000\n\d+\n2000$/);
wait_case('read only', ['BEGIN READ ONLY', q{SELECT acquire_lock('x')}], @bare, after => 'COMMIT');
wait_case('an inlined function', [q{SELECT inlined('x')}], @bare);

# --- the snapshot is kept ---

wait_case('REPEATABLE READ block', ['BEGIN ISOLATION LEVEL REPEATABLE READ', q{SELECT acquire_lock('x')}], warning => 1, after => 'COMMIT');
wait_case('SERIALIZABLE block', ['BEGIN ISOLATION LEVEL SERIALIZABLE', q{SELECT acquire_lock('x')}], warning => 1, after => 'COMMIT');
wait_case('REPEATABLE READ, nothing but the call', [ q{SET default_transaction_isolation = 'repeatable read'}, q{SELECT acquire_lock('x')} ]);
wait_case('PL/pgSQL, expression', ['SELECT in_plpgsql()'], answer => $token);
wait_case('PL/pgSQL, PERFORM', ['SELECT in_perform()'], answer => $token);
wait_case('PL/pgSQL, EXECUTE USING', [q{SELECT in_execute('x')}], answer => $token);
wait_case('PL/pgSQL, loop', ['SELECT in_loop()'], answer => $token);
wait_case('PL/pgSQL, cursor', ['SELECT in_cursor()'], answer => $token);
wait_case('PL/pgSQL, RETURN QUERY', ['SELECT in_query()'], answer => $token);
wait_case('PL/pgSQL, block with a handler', ['SELECT in_handler()'], answer => $token);
wait_case('SQL function that is not inlined', ['SELECT in_sql()'], answer => $token);
wait_case('an argument that acquires', [q{SELECT acquire_lock(left('y' || in_plpgsql(), 1))}], answer => $token, after => q{SELECT release_lock('y')});
wait_case('cursor', ['BEGIN', q{DECLARE c CURSOR FOR SELECT acquire_lock('x')}, 'FETCH c'], after => 'COMMIT');
wait_case('cursor WITH HOLD', [q{DECLARE c CURSOR WITH HOLD FOR SELECT acquire_lock('x')}]);
wait_case('cursor WITH HOLD at commit', ['BEGIN', q{DECLARE c CURSOR WITH HOLD FOR SELECT acquire_lock('x')}, 'COMMIT']);
wait_case('EXPLAIN ANALYZE', [q{EXPLAIN ANALYZE SELECT acquire_lock('x')}]);
wait_case('EXECUTE', [q{PREPARE p AS SELECT acquire_lock('x')}, 'EXECUTE p'], answer => $token);
wait_case('DO', [q{DO $$ BEGIN PERFORM acquire_lock('x'); END $$}]);
wait_case('CALL', ['CALL in_procedure()']);
wait_case('CALL, after a COMMIT', ['CALL after_commit()']);
wait_case('CREATE TABLE AS', [q{CREATE TEMP TABLE made AS SELECT acquire_lock('x') AS token}]);
wait_case('COPY', [q{COPY (SELECT acquire_lock('x')) TO STDOUT}], answer => $token);
wait_case('BEFORE trigger', ['INSERT INTO before_row VALUES (1)']);
wait_case('AFTER trigger', ['INSERT INTO after_row VALUES (1)']);
wait_case('deferred trigger', ['BEGIN', 'INSERT INTO at_commit VALUES (1)', 'COMMIT']);
wait_case('deferred trigger of a single statement', ['INSERT INTO at_commit VALUES (1)']);
wait_case('deferred trigger, SET CONSTRAINTS', ['BEGIN', 'INSERT INTO at_commit VALUES (1)', 'SET CONSTRAINTS ALL IMMEDIATE'], after => 'COMMIT');
wait_case('INSERT', [q{INSERT INTO log VALUES (2, acquire_lock('x'))}]);
wait_case('INSERT .. SELECT', [q{INSERT INTO log SELECT 2, acquire_lock('x')}]);
wait_case('INSERT .. SELECT FROM', [q{INSERT INTO log SELECT id, acquire_lock('x', wait => NULL, owner => 'me') FROM t WHERE id <= 2}], warning => 1);
wait_case('UPDATE', [q{UPDATE one SET name = name WHERE acquire_lock('x', owner => 'me') > 0}], warning => 1);
wait_case('FROM a table', [q{SELECT acquire_lock(name) FROM one}], warning => 1, answer => $token);
wait_case('FROM a table, call on its own', [q{SELECT acquire_lock('x') FROM one}], warning => 1, answer => $token);
wait_case('FROM a table, in a function', [q{SELECT in_perform() FROM one}], warning => 1, answer => $token);
wait_case('FROM a table, in an expression of a function', [q{SELECT in_plpgsql() FROM one}], warning => 1, answer => $token);
wait_case('FROM a function', [q{SELECT * FROM acquire_lock('x')}], answer => $token);
wait_case('FROM generate_series', [q{SELECT acquire_lock('x', owner => 'me') FROM generate_series(1, 3)}]);
wait_case('FROM a table, in the argument of a function',
	[q{SELECT left(name, in_perform()::int) FROM one}], warning => 1, answer => qr/^x$/);
wait_case('a function that is not volatile', [q{SELECT after_scan('x')}], warning => 1);
wait_case('AFTER trigger of an UPDATE', ['UPDATE after_row SET id = 2 WHERE id = 1']);
wait_case('deferred trigger with a cursor', ['INSERT INTO at_commit_cursor VALUES (1)']);
wait_case('argument from a subselect', [q{SELECT acquire_lock((SELECT name FROM one))}], warning => 1, answer => $token);
wait_case('subselect', [q{SELECT (SELECT acquire_lock('x'))}], answer => $token);
wait_case('subselect of a table', [q{SELECT (SELECT acquire_lock(name) FROM one)}], warning => 1, answer => $token);
wait_case('UNION', [q{SELECT acquire_lock('x') UNION ALL SELECT 1}]);
wait_case('UNION with a table', [q{SELECT acquire_lock('x') UNION ALL SELECT id FROM t WHERE id = 1}], warning => 1);
wait_case('two targets', [q{SELECT acquire_lock('x'), 1}]);
wait_case('two calls', [q{SELECT acquire_lock('y'), acquire_lock('x')}], after => q{SELECT release_lock('y')});
wait_case('COALESCE', [q{SELECT COALESCE(acquire_lock('x'), 0)}]);
wait_case('CASE', [q{SELECT CASE WHEN now() IS NOT NULL THEN acquire_lock('x') END}]);
wait_case('IS NOT NULL', [q{SELECT acquire_lock('x') IS NOT NULL}], answer => qr/^t$/);
wait_case('cast', [q{SELECT acquire_lock('x')::text}], answer => $token);
wait_case('WHERE', [q{SELECT 1 WHERE acquire_lock('x') > 0}]);
wait_case('LIMIT', [q{SELECT acquire_lock('x') LIMIT 1}], answer => $token);
wait_case('DISTINCT', [q{SELECT DISTINCT acquire_lock('x')}], answer => $token);
wait_case('set-returning argument', [q{SELECT acquire_lock(unnest(ARRAY['x']))}], answer => $token);
wait_case('CTE', [q{WITH c AS MATERIALIZED (SELECT acquire_lock('x') AS token) SELECT token FROM c}], answer => $token);
wait_case('CTE that writes', [q{WITH c AS (INSERT INTO log VALUES (3) RETURNING id) SELECT acquire_lock('x')}], warning => 1);
wait_case('open cursor in the transaction', [ 'BEGIN', 'DECLARE c CURSOR FOR SELECT id FROM t', q{SELECT acquire_lock('x')} ], after => 'COMMIT');
wait_case('open cursor of an outer subtransaction',
	[ 'BEGIN', 'DECLARE c CURSOR FOR SELECT id FROM t', 'SAVEPOINT s', q{SELECT acquire_lock('x')} ], after => 'COMMIT');
wait_case('open large object', [ 'BEGIN', q{SELECT lo_open(1, x'40000'::int)}, q{SELECT acquire_lock('x')} ], after => 'COMMIT');
wait_case('large object opened by an argument', [ 'BEGIN', q{SELECT acquire_lock(left('x', 1 + lo_open(1, x'40000'::int)))} ], after => 'COMMIT');
wait_case('exported snapshot', [ 'BEGIN', 'SELECT pg_export_snapshot()', q{SELECT acquire_lock('x')} ], after => 'COMMIT');
wait_case('cursor opened by a stable argument', [ 'BEGIN', q{SELECT acquire_lock(left(open_stable('x')::text, 1))} ], after => 'COMMIT');
wait_case('cursor opened by a volatile argument', [ 'BEGIN', q{SELECT acquire_lock(left(open_volatile('x')::text, 1))} ], after => 'COMMIT');

# --- granted without a wait ---

# One case: title, statements, of which the last but one acquires, and whether that gives the warning.
foreach my $case (
	[ 'bare call', [ q{SELECT acquire_lock('x')}, 'SELECT 1' ], 0 ],
	[ 'transaction block', [ 'BEGIN', 'SELECT count(*) FROM t', q{SELECT acquire_lock('x')}, 'COMMIT' ], 0 ],
	[ 'beside an open cursor', [ 'BEGIN', 'DECLARE c CURSOR FOR SELECT id FROM t', q{SELECT acquire_lock('x')}, 'COMMIT' ], 0 ],
	[ 'in a function', [ 'SELECT in_perform()', 'SELECT 1' ], 0 ],
	[ 'INSERT', [ q{INSERT INTO log VALUES (4, acquire_lock('x'))}, 'SELECT 1' ], 0 ],
	[ 'INSERT beside a CTE that updates', [ q{WITH c AS (UPDATE one SET name = name RETURNING name) INSERT INTO log SELECT 5, acquire_lock(name) FROM c}, 'SELECT 1' ], 1 ],
	[ 'a refused try', [ 'BEGIN', q{SELECT try_acquire_lock('taken') FROM one}, 'COMMIT' ], 0 ],
	[ 'acquired before already', [ 'BEGIN', q{SELECT acquire_lock('x')}, q{SELECT acquire_lock('x') FROM one}, 'COMMIT' ], 0 ],
	[ 'FROM a table', [ q{SELECT acquire_lock(name) FROM one}, 'SELECT 1' ], 1 ],
	[ 'two of one statement', [ q{SELECT acquire_lock(name), acquire_lock('y') FROM one}, 'SELECT 1' ], 1 ],
	[ 'enqueue FROM a table', [ q{SELECT (enqueue_lock(name)).granted FROM one}, 'SELECT 1' ], 1 ],
	[ 'FROM a table, in a function', [ 'SELECT in_perform() FROM one', 'SELECT 1' ], 1 ],
	[ 'UPDATE', [ q{UPDATE one SET name = name WHERE acquire_lock('x') > 0}, 'SELECT 1' ], 1 ],
	[ 'a function that is not volatile', [ q{SELECT after_scan('x')}, 'SELECT 1' ], 1 ],
	[ 'many of one statement', [ q{SELECT try_acquire_lock('x', owner => 'me' || id) FROM t}, 'SELECT 1' ], 1 ],
	[ 'REPEATABLE READ, first statement', [ 'BEGIN ISOLATION LEVEL REPEATABLE READ', q{SET LOCAL work_mem = '1MB'}, q{SELECT acquire_lock('x')}, 'COMMIT' ], 0 ],
	[ 'REPEATABLE READ, nothing but the call', [ q{SET default_transaction_isolation = 'repeatable read'}, q{SELECT acquire_lock('x')}, 'SELECT 1' ], 0 ],
	[ 'REPEATABLE READ, after another statement', [ 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1', q{SELECT acquire_lock('x')}, 'COMMIT' ], 1 ],
	[ 'SERIALIZABLE, after another statement', [ 'BEGIN ISOLATION LEVEL SERIALIZABLE', 'SELECT 1', q{SELECT try_acquire_lock('x')}, 'COMMIT' ], 1 ],
	[ 'REPEATABLE READ, after a cursor', [ 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'DECLARE c CURSOR FOR SELECT 1', q{SELECT acquire_lock('x')}, 'COMMIT' ], 1 ],
	[ 'REPEATABLE READ, in a function', [ 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT in_perform()', 'COMMIT' ], 1 ],
	[ 'REPEATABLE READ, FROM a table', [ 'BEGIN ISOLATION LEVEL REPEATABLE READ', q{SELECT acquire_lock(name) FROM one}, 'COMMIT' ], 1 ])
{
	my ($title, $statements, $warns) = @$case;
	my @before = @$statements;
	my $after = pop @before;
	my $acquire = pop @before;
	my $s = session($node);

	$control->query(q{SELECT acquire_lock('taken')}) if $title =~ /refused/;
	$s->query($_) foreach @before;
	is($s->error, '', "without a wait, $title: earlier statements succeed");
	$s->query($acquire);
	is(scalar(() = $s->error =~ /$warning/g), $warns,
		"without a wait, $title: " . ($warns ? 'one warning' : 'no warning'));
	unlike($s->error, qr/WARNING/, "without a wait, $title: no other warning") unless $warns;
	is(scalar(() = $s->error =~ /WARNING/g), $warns, "without a wait, $title: no second warning") if $warns;
	my $whose = $title =~ /REPEATABLE|SERIALIZABLE/ ? 'transaction' : 'statement';
	like($s->error, qr/this $whose continues/,
		"without a wait, $title: the warning names the owner of the snapshot") if $warns;
	$s->query($after);
	is($s->error, '', "without a wait, $title: the last statement succeeds");
	$s->quit;
	$control->query(q{SELECT force_release_lock(name) FROM lock_election.locks});
}

# Two statements are bound before the first is executed, so the second one reads with a snapshot that is older than the
# grant.
foreach my $waits (0, 1)
{
	my $how = $waits ? 'after a wait' : 'without a wait';

	foreach my $case (
		[ 'bound before', 'SELECT count(*) FROM one', qr/^WARNING 01000 this transaction continues with a snapshot/ ],
		[ 'bound before, reads no table', 'SELECT 1', qr/^$/ ],
		[ 'bound before and given up', undef, qr/^$/ ])
	{
		my ($title, $second, $warns) = @$case;
		my $w = LeWire->new($node);

		hold() if $waits;
		$w->parse('s1', q{SELECT acquire_lock('x')});
		$w->parse('s2', $second // 'SELECT count(*) FROM one');
		$w->together(
			sub {
				$w->bind('p1', 's1');
				$w->bind('p2', 's2');
				$w->bind('', 's2') unless defined $second;
				$w->execute('p1');
				$w->execute('p2') if defined $second;
				$w->sync;
			});
		if ($waits)
		{
			until_waiting($w->pid);
			let_go();
		}
		$w->wait('Z');
		like($w->error, $warns, "$title, $how");
		$w->quit;
		forget();
	}
}

# The warning is given only for portals that are bound when the lock is granted and have not been dropped or executed
# before. Steps: bind (b), close (c), execute (e) of portals. Portal 1 acquires the lock, portals 2 and 3 read.
{
	my $w = LeWire->new($node);

	foreach my $case (
		[ 'e1', 0 ], [ 'b2 e1', 1 ], [ 'e1', 0 ], [ 'b2 c2 e1', 0 ], [ 'b2 e2 e1', 0 ], [ 'b2 b3 c2 e1 e3', 1 ], [ 'b2 b3 c3 e1 e2', 1 ],
		[ 'b2 b3 c2 c3 e1', 0 ], [ 'b2 b3 c3 c2 e1', 0 ], [ 'b2 b3 e3 e1 e2', 1 ], [ 'b2 b3 e2 e1 e3', 1 ], [ 'b2 b3 e2 e3 e1', 0 ])
	{
		my ($steps, $warns) = @$case;

		$w->together(
			sub {
				$w->parse('s0', 'SELECT 1');
				$w->parse('s1', q{SELECT acquire_lock('x')});
				$w->parse('s2', 'SELECT count(*) FROM one');
				$w->bind('p1', 's1');
				foreach (split ' ', $steps)
				{
					my ($do, $n) = split //;

					$w->bind("p$n", 's2') if $do eq 'b';
					$w->message('C', "Pp$n\0") if $do eq 'c';
					$w->execute("p$n") if $do eq 'e';
				}
				$w->bind('', 's0');
				$w->execute('');
				$w->message('C', "Ss$_\0") foreach 0 .. 2;
				$w->sync;
			});
		$w->wait('Z');
		like($w->error, $warns ? qr/^WARNING 01000 this transaction continues with a snapshot/ : qr/^$/, "bound: $steps");
		forget();
	}
	$w->quit;
}

# --- the extended protocol ---

# Bare calls with Parse, Bind and Execute: title, plan, statement, types, values.
foreach my $case (
	[ 'unnamed', '', 'SELECT acquire_lock($1)', [UNKNOWN], ['x'] ],
	[ 'varchar', '', 'SELECT acquire_lock($1)', [VARCHAR], ['x'] ],
	[ 'varchar cast', '', 'SELECT acquire_lock($1::varchar, $2::interval, wait => $3::interval)', [], [ 'x', '1 min', undef ] ],
	[ 'generic plan', 'generic', 'SELECT acquire_lock($1)', [TEXT], ['x'] ],
	[ 'generic plan, varchar', 'generic', 'SELECT acquire_lock($1)', [VARCHAR], ['x'] ],
	[ 'generic plan, all varchar', 'generic', 'SELECT acquire_lock($1, $2::interval, $3::interval, $4, $5)', [ (VARCHAR) x 5 ], [ 'x', '1 min', '1 min', 'exclusive', 'me' ] ],
	[ 'generic plan, varchar(10) cast', 'generic', 'SELECT acquire_lock($1::varchar(10))', [], ['x'] ],
	[ 'custom plan', 'custom', 'SELECT acquire_lock($1::varchar)', [], ['x'] ])
{
	my ($title, $plan, $sql, $types, $values) = @$case;
	my $w = LeWire->new($node);

	$w->query("SET plan_cache_mode = force_${plan}_plan"), $w->wait('Z') if $plan;
	$w->parse('s', $sql, @$types);
	$w->sync;
	$w->wait('Z');
	foreach my $round (1 .. 2)
	{
		hold();
		$w->bind('', 's', @$values);
		$w->execute('');
		$w->sync;
		until_waiting($w->pid);
		is(xmin($w->pid), '', "extended protocol, $title, call $round: the snapshot is given up");
		let_go();
		like($w->wait('Z'), $token, "extended protocol, $title, call $round: the lock is granted");
		is($w->error, '', "extended protocol, $title, call $round: no warning");
		forget();
	}
	$w->quit;
}

# In a transaction block, a portal and its snapshot outlive its call. The snapshot after the wait is a new one, so it
# does not hold back VACUUM.
{
	my $w = LeWire->new($node);

	hold();
	$w->query('BEGIN');
	$w->wait('Z');
	$w->parse('', q{SELECT acquire_lock('x')});
	$w->bind('p', '');
	$w->execute('p');
	$w->sync;
	until_waiting($w->pid);
	$node->safe_psql('postgres', 'UPDATE t SET v = v + 1 WHERE id = 1') foreach 1 .. 3;
	my $next = $control->query('SELECT pg_snapshot_xmax(pg_current_snapshot())');
	let_go();
	like($w->wait('Z'), $token, 'a portal that is not closed: the lock is granted');
	my $xmin = xmin($w->pid);
	isnt($xmin, '', 'a portal that is not closed has a snapshot after the wait');
	cmp_ok($xmin || 0, '>=', $next, 'the snapshot of the portal is newer than the wait');
	$w->query('COMMIT');
	$w->wait('Z');
	$w->quit;
	forget();
}

# Updates all rows, and removes all versions that no snapshot can see, twice.
sub churn
{
	foreach (1 .. 2)
	{
		$node->safe_psql('postgres', 'UPDATE t SET v = v + 1');
		$node->safe_psql('postgres', 'VACUUM t');
	}
	return;
}

# A portal that is suspended during the wait continues to read with its snapshot.
{
	my $w = LeWire->new($node);

	$w->parse('rows', 'SELECT id FROM t');
	$w->bind('p', 'rows');
	$w->execute('p', 1);
	$w->flush;
	my $rows = $w->wait('s');
	hold();
	$w->parse('', q{SELECT acquire_lock('x')});
	$w->bind('', '');
	$w->execute('');
	$w->flush;
	until_waiting($w->pid);
	isnt(xmin($w->pid), '', 'the snapshot is kept if a portal is suspended');
	churn();
	let_go();
	like($w->wait('C'), $token, 'the lock is granted while a portal is suspended');
	$w->execute('p', 0);
	$w->sync;
	$rows .= "\n" . $w->wait('Z');
	my %ids = map { $_ => 1 } split /\n/, $rows;
	is(scalar(keys %ids) . ' of ' . scalar(split /\n/, $rows), '2000 of 2000', 'a suspended portal misses no row');
	$w->quit;
	forget();
}

# --- no row is missed ---

# In each of these cases, a query continues to read t after the wait. The function is called for each row, and waits for
# id 1.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION f_perform(id int) RETURNS int STABLE LANGUAGE plpgsql AS $$
BEGIN IF id = 1 THEN PERFORM acquire_lock('x'); END IF; RETURN id; END $$;
CREATE FUNCTION f_expression(id int) RETURNS int STABLE LANGUAGE plpgsql AS $$
DECLARE token bigint; BEGIN IF id = 1 THEN token := acquire_lock('x'); END IF; RETURN id; END $$;
CREATE FUNCTION f_execute(id int) RETURNS int STABLE LANGUAGE plpgsql AS $$
DECLARE token bigint; BEGIN IF id = 1 THEN EXECUTE 'SELECT acquire_lock($1)' INTO token USING 'x'; END IF; RETURN id; END $$;
CREATE FUNCTION f_cursor(id int) RETURNS int STABLE LANGUAGE plpgsql AS $$
DECLARE c CURSOR FOR SELECT acquire_lock('x'); token bigint;
BEGIN IF id = 1 THEN OPEN c; FETCH c INTO token; CLOSE c; END IF; RETURN id; END $$;
CREATE FUNCTION f_handler(id int) RETURNS int STABLE LANGUAGE plpgsql AS $$
BEGIN
	BEGIN IF id = 1 THEN PERFORM acquire_lock('x'); END IF; EXCEPTION WHEN division_by_zero THEN NULL; END;
	RETURN id;
END $$;
CREATE FUNCTION f_nested(id int) RETURNS int STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN f_perform(id); END $$;
CREATE FUNCTION f_sql(id int) RETURNS int STABLE LANGUAGE sql AS $$ SELECT acquire_lock('x') WHERE id = 1; SELECT id $$;
CREATE FUNCTION f_sql_call() RETURNS bigint STABLE LANGUAGE sql AS $$ SELECT acquire_lock('x'); SELECT 1::bigint $$;
CREATE FUNCTION f_sql_case(id int) RETURNS int STABLE LANGUAGE plpgsql AS $$
BEGIN IF id = 1 THEN PERFORM f_sql_call(); END IF; RETURN id; END $$;
CREATE FUNCTION f_volatile(id int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$
BEGIN IF id = 1 THEN PERFORM acquire_lock('x'); END IF; RETURN id; END $$;
CREATE FUNCTION f_inlined(id int) RETURNS int VOLATILE LANGUAGE sql AS $$
SELECT CASE WHEN id = 1 THEN (acquire_lock('x') * 0 + 1)::int ELSE id END $$;
CREATE FUNCTION scan_stable() RETURNS text STABLE LANGUAGE plpgsql AS $$
DECLARE r record; n int := 0; s bigint := 0;
BEGIN
	FOR r IN SELECT id, v FROM t LOOP
		IF r.id = 1 THEN PERFORM acquire_lock('x'); END IF;
		n := n + 1; s := s + r.v;
	END LOOP;
	RETURN n || '|' || n || '|' || s;
END $$;
CREATE FUNCTION scan_volatile() RETURNS text VOLATILE LANGUAGE plpgsql AS $$
DECLARE r record; n int := 0; s bigint := 0; token bigint;
BEGIN
	FOR r IN SELECT id, v FROM t LOOP
		IF r.id = 1 THEN token := acquire_lock('x'); END IF;
		n := n + 1; s := s + r.v;
	END LOOP;
	RETURN n || '|' || n || '|' || s;
END $$;
CREATE PROCEDURE scan_procedure(INOUT answer text) LANGUAGE plpgsql AS $$
BEGIN answer := scan_volatile(); END $$;
SQL

sub misses_nothing
{
	my ($title, @statements) = @_;
	my $s = session($node);
	my $last = pop @statements;
	my $expected = $control->query(q{SELECT '2000|2000|' || sum(v) FROM t});

	hold();
	$s->query($_) foreach @statements;
	$s->async($last);
	until_waiting($s->pid);
	churn();
	let_go();
	is((split /\n/, $s->wait // 'dead')[-1], $expected, "$title: each row once, as of the start of the statement");
	unlike($s->error, qr/ERROR/, "$title: no error");
	$s->quit;
	forget();
	return;
}

my $scan = q{SELECT count(*), count(DISTINCT id), sum(v) FROM (SELECT %s AS id, v FROM t OFFSET 0) s};
foreach my $function (qw(f_perform f_expression f_execute f_cursor f_handler f_nested f_sql f_sql_case f_volatile f_inlined))
{
	misses_nothing($function, sprintf $scan, "$function(id)");
}
misses_nothing('call in CASE', sprintf $scan, q{CASE WHEN id = 1 THEN (acquire_lock('x') * 0 + 1)::int ELSE id END});
misses_nothing('index scan', 'SET enable_seqscan = off', 'SET enable_bitmapscan = off',
	q{SELECT count(*), count(DISTINCT id), sum(v) FROM (SELECT f_perform(id) AS id, v FROM t WHERE id > 0 ORDER BY id OFFSET 0) s});
misses_nothing('call in a join', q{SELECT count(*), count(DISTINCT id), sum(v) FROM (SELECT acquire_lock('x') AS token) l, t WHERE l.token > 0});
misses_nothing('call in a FROM clause', q{SELECT count(*), count(DISTINCT id), sum(v) FROM acquire_lock('x') l, t WHERE l > 0});
misses_nothing('call in a materialized CTE',
	q{WITH l AS MATERIALIZED (SELECT acquire_lock('x') AS token) SELECT count(*), count(DISTINCT id), sum(v) FROM t WHERE (SELECT token FROM l) > 0});
misses_nothing('call in an InitPlan', q{SELECT count(*), count(DISTINCT id), sum(v) FROM t WHERE (SELECT acquire_lock('x')) > 0});
misses_nothing('loop in a stable function', 'SELECT scan_stable()');
misses_nothing('loop in a volatile function', 'SELECT scan_volatile()');
misses_nothing('loop in a procedure', q{CALL scan_procedure('')});
misses_nothing('stable function that reads again', q{SELECT after_scan('x')});
misses_nothing('EXECUTE', 'PREPARE p AS ' . sprintf($scan, 'f_perform(id)'), 'EXECUTE p');
misses_nothing('cursor', 'BEGIN', 'DECLARE c CURSOR FOR ' . sprintf($scan, 'f_perform(id)'), 'FETCH ALL FROM c');
misses_nothing('CREATE TABLE AS',
	q{CREATE TEMP TABLE got AS SELECT f_perform(id) AS id, v FROM t \; SELECT count(*), count(DISTINCT id), sum(v) FROM got});

# A function called by the fast path, without a query. It continues to read with the snapshot of the call.
{
	my $w = LeWire->new($node);
	my $expected = $control->query(q{SELECT '2000|2000|' || sum(v) FROM t});

	hold();
	$w->call($control->query(q{SELECT 'fast_path'::regproc::oid}));
	until_waiting($w->pid);
	isnt(xmin($w->pid), '', 'fast path: the snapshot is kept');
	churn();
	let_go();
	is($w->wait('Z'), $expected, "fast path: each row once, as of the call");
	$w->quit;
	forget();
}

# A release in such a function takes effect only when its transaction ends.
{
	my $w = LeWire->new($node);
	my $s = session($node);
	my $gate = session($node);

	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION release_by_cursor() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE c CURSOR FOR SELECT release_lock('x'); released boolean;
BEGIN OPEN c; FETCH c INTO released; CLOSE c; PERFORM pg_advisory_xact_lock(2); RETURN released; END $$;
SQL
	$gate->query('SELECT pg_advisory_lock(2)');
	$w->query(q{SELECT acquire_lock('x', ttl => NULL)});
	$w->wait('Z');
	$w->call($control->query(q{SELECT 'release_by_cursor'::regproc::oid}));
	wait_until(sub { $control->query("SELECT wait_event FROM pg_stat_activity WHERE pid = @{[ $w->pid ]}") eq 'advisory' })
	  or die 'the function does not wait for the advisory lock';
	is($s->query(q{SELECT try_acquire_lock('x')}), '',
		'fast path: a release with a cursor takes effect only at the commit');
	$gate->query('SELECT pg_advisory_unlock(2)');
	is($w->wait('Z'), 't', 'fast path: the call returns after its release');
	like($s->query(q{SELECT acquire_lock('x', wait => '20 s')}), $token,
		'fast path: the lock is free after the commit');
	$_->quit foreach $w, $s, $gate;
	forget();
}

# Cursors that are open before the wait are read after it.
foreach my $open (
	[ 'DECLARE', 'DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id', q{SELECT acquire_lock('x')} ],
	[ 'FETCH before', "DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id \\; FETCH 1 FROM c \\; MOVE PRIOR c", q{SELECT acquire_lock('x')} ],
	[ 'stable function in an argument', 'SELECT 1', q{SELECT acquire_lock(left('x' || open_stable('c'), 1))} ],
	[ 'volatile function in an argument', 'SELECT 1', q{SELECT acquire_lock(left('x' || open_volatile('c'), 1))} ],
	[ 'stable function in a wrapped argument', 'SELECT 1', q{SELECT inlined(left('x' || open_stable('c'), 1))} ])
{
	my ($title, $before, $sql) = @$open;
	my $s = session($node);

	hold();
	$s->query('BEGIN');
	$s->query($before);
	is($s->error, '', "open cursor, $title: the cursor is opened");
	$s->async($sql);
	until_waiting($s->pid);
	churn();
	let_go();
	like($s->wait, $token, "open cursor, $title: the lock is granted");
	my @ids = split /\n/, $s->query('FETCH ALL FROM c');
	is_deeply(\@ids, [ 1 .. 2000 ], "open cursor, $title: misses no row");
	$s->quit;
	forget();
}

# --- VACUUM and CREATE INDEX CONCURRENTLY while sessions wait ---

# Starts waiters of each kind that gives up its snapshot. No transaction has read t, because its lock on t would also
# block some commands.
sub many_waiters
{
	my @waiters;

	foreach my $before ([], ['BEGIN'], [ 'BEGIN', 'SELECT count(*) FROM one' ], [ 'BEGIN', 'SAVEPOINT s' ])
	{
		my $s = session($node);
		$s->query($_) foreach @$before;
		$s->async(q{SELECT acquire_lock('x')});
		push @waiters, $s;
	}
	foreach my $type (UNKNOWN, VARCHAR)
	{
		my $w = LeWire->new($node);
		$w->query('SET plan_cache_mode = force_generic_plan');
		$w->wait('Z');
		$w->parse('s', 'SELECT acquire_lock($1)', $type);
		$w->bind('', 's', 'x');
		$w->execute('');
		$w->sync;
		push @waiters, $w;
	}
	until_waiting(map { $_->pid } @waiters);
	return @waiters;
}

# Ends the sessions. They are terminated instead of granted the lock, because some are in a transaction block.
sub end_waiters
{
	$control->query("SELECT pg_terminate_backend(pid) FROM lock_election.waiters WHERE name = 'x'");
	wait_until(sub { $control->query('SELECT count(*) FROM lock_election.waiters') eq '0' }) or die 'the waiters do not end';
	return;
}

sub command_in
{
	my ($sql, $milliseconds) = @_;
	my ($out, $err);

	$node->psql('postgres', "SET statement_timeout = $milliseconds; $sql", stdout => \$out, stderr => \$err);
	return $err;
}

hold();
my @waiters = many_waiters();
$node->safe_psql('postgres', 'UPDATE t SET v = v + 1');
like(command_in('VACUUM (VERBOSE) t', 10_000), qr/tuples: \d{4,} removed, 2000 remain, 0 are dead but not yet removable/,
	'VACUUM removes the dead rows while sessions wait');
is(command_in('CREATE INDEX CONCURRENTLY beside ON t (v)', 10_000), '',
	'CREATE INDEX CONCURRENTLY ends while sessions wait');
is(command_in('REINDEX INDEX CONCURRENTLY beside', 10_000), '', 'REINDEX CONCURRENTLY ends while sessions wait');
is(command_in('DROP INDEX CONCURRENTLY beside', 10_000), '', 'DROP INDEX CONCURRENTLY ends while sessions wait');
is($control->query("SELECT count(*) FROM lock_election.waiters WHERE name = 'x'"), '6',
	'the sessions still wait after these commands');
end_waiters();

# The manager is replaced: waiting calls take no new snapshot while they wait for the next one.
@waiters = many_waiters();
my $manager = $control->query('SELECT pid FROM lock_election.manager');
$control->query("SELECT pg_terminate_backend($manager)");
wait_until(sub { $control->query("SELECT count(*) FROM lock_election.manager WHERE pid <> $manager") eq '1' }) or die 'no manager';
until_waiting(map { $_->pid } @waiters);
is($control->query('SELECT count(backend_xmin) FROM pg_stat_activity JOIN lock_election.waiters USING (pid)'), '0',
	'waiting calls have no snapshot after a restart of the manager');
end_waiters();
let_go();

# A session that waits for itself gets a notice, for which it takes no snapshot.
{
	my $s = session($node);

	$s->query(q{SELECT acquire_lock('own')});
	$s->async(q{SELECT acquire_lock('own')});
	until_waiting($s->pid);
	is(xmin($s->pid), '', 'a session that waits for itself gives up its snapshot');
	$control->query(q{SELECT force_release_lock('own')});
	like($s->wait, $token, 'a session that waits for itself is granted the lock by force');
	like($s->error, qr/NOTICE:  00000: .*already held by this connection/,
		'a session that waits for itself gets a notice');
	$s->quit;
	$control->query(q{SELECT force_release_lock('own')});
}

# The same for a permit.
{
	my $s = session($node);

	$holder->query(q{SELECT acquire_permit('pool', 1, ttl => NULL)});
	$s->async(q{SELECT acquire_permit('pool', 1)});
	until_waiting($s->pid);
	is(xmin($s->pid), '', 'a wait for a permit gives up the snapshot');
	$holder->query(q{SELECT release_lock('pool')});
	like($s->wait, $token, 'the permit is granted');
	is($s->error, '', 'the grant of the permit gives no warning');
	$s->query(q{SELECT release_lock('pool')});
	$holder->query(q{SELECT acquire_permit('pool', 1, ttl => NULL)});
	$s->async(q{SELECT acquire_permit('pool', 1) FROM one});
	until_waiting($s->pid);
	isnt(xmin($s->pid), '', 'permit, FROM a table: the snapshot is kept');
	$holder->query(q{SELECT release_lock('pool')});
	like($s->wait, $token, 'permit, FROM a table: the permit is granted');
	like($s->error, qr/WARNING/, 'permit, FROM a table: a warning is given');
	$s->query(q{SELECT release_lock('pool')});
	$s->quit;
}

# For comparison: PostgreSQL's advisory locks, and a wait that keeps its snapshot, do block these commands.
foreach my $control_case ([ 'pg_advisory_lock', 'SELECT pg_advisory_lock(1)', 'SELECT pg_advisory_lock(1)', 'SELECT pg_advisory_unlock(1)' ],
	[ 'acquire_lock in a function', q{SELECT acquire_lock('x', ttl => NULL)}, 'SELECT in_plpgsql()', q{SELECT release_lock('x')} ])
{
	my ($title, $take, $wait, $release) = @$control_case;
	my $s = session($node);

	$holder->query($take);
	$s->async($wait);
	wait_until(sub { $control->query("SELECT wait_event_type IN ('Lock', 'Extension') FROM pg_stat_activity WHERE pid = @{[ $s->pid ]}") eq 't' })
	  or die "$title does not wait";
	isnt(xmin($s->pid), '', "$title: a waiter has a snapshot");
	$node->safe_psql('postgres', 'UPDATE t SET v = v + 1');
	like(command_in('VACUUM (VERBOSE) t', 10_000), qr/2000 are dead but not yet removable/, "$title: VACUUM removes nothing while a session waits");
	like(command_in('CREATE INDEX CONCURRENTLY beside ON t (v)', 1_000), qr/canceling statement due to statement timeout/,
		"$title: CREATE INDEX CONCURRENTLY does not end while a session waits");
	$node->safe_psql('postgres', 'DROP INDEX IF EXISTS beside');
	$holder->query($release);
	$s->wait;
	$s->quit;
	forget();
}

# --- data that is visible after the wait ---

{
	my $s = session($node);

	$node->safe_psql('postgres', 'CREATE TABLE money (v int); INSERT INTO money VALUES (0)');
	hold();
	$s->query('BEGIN');
	is($s->query('SELECT v FROM money'), '0', 'the value before the wait');
	$s->async(q{SELECT acquire_lock('x')});
	until_waiting($s->pid);
	$holder->query('UPDATE money SET v = 1');
	let_go();
	my $got = $s->wait;
	like($got, $token, 'the waiting statement returns a token');
	is($s->query(q{SELECT is_held('x', } . $got . ')'), 't', 'the token holds the lock');
	is($s->query('SELECT v FROM money'), '1', 'the next statement sees what the previous holder has committed');
	$s->query('COMMIT');
	is(xmin($s->pid), '', 'no snapshot is kept after the transaction');
	$s->quit;
	forget();
}

# Statements after the call in the same message also see it.
{
	my $s = session($node);

	hold();
	$s->async(q{SELECT acquire_lock('x') \; SELECT v FROM money \; UPDATE money SET v = v + 1 RETURNING v});
	until_waiting($s->pid);
	$holder->query('UPDATE money SET v = 10');
	let_go();
	like($s->wait, qr/^\d+\n10\n11$/,
		'later statements of the same message see what the previous holder has committed');
	$s->quit;
	forget();
}

# After a wait without a grant, the transaction still works.
{
	my $s = session($node);

	hold();
	$s->query('BEGIN');
	is($s->query(q{SELECT acquire_lock('x', wait => '100 ms')}), '', 'the wait times out');
	is($s->error, '', 'a timed-out wait gives no warning');
	is($s->query('SELECT count(*) FROM t'), '2000', 'the transaction continues after a timed-out wait');
	$s->query('SAVEPOINT s');
	$s->query(q{SET LOCAL lock_timeout = '100 ms'});
	$s->query(q{SELECT acquire_lock('x')});
	like($s->error, qr/55P03/, 'a wait is ended by lock_timeout');
	$s->query('ROLLBACK TO s');
	is($s->query('SELECT count(*) FROM t'), '2000', 'the transaction continues from its savepoint after lock_timeout');
	$s->query('COMMIT');
	let_go();
	$s->quit;
}

$holder->quit;
$control->quit;
nothing_left($node);

my $held = qr/LOG:  a wait for (.*) has held a snapshot for 60 seconds$/m;
ok(wait_until(sub { return $node->log_contains($held); }, 120),
	'a wait that has held a snapshot for a minute is logged');
$minute[0]->query(q{SELECT release_lock('a minute')});
like($minute[1]->wait, qr/^\d+$/, 'the logged wait is granted the lock');
$_->quit foreach @minute;
is(join(' and ', slurp_file($node->logfile) =~ /$held/g), 'lock "a minute"',
	'the log has one such message, and none of another wait');
$node->stop;
done_testing();
