# Tokens only grow, whatever happens to the server, its database or its clock; and after advance_revision, if the server
# cannot know the last token.
# Promises: T
use strict;
use warnings;
use File::Path qw(rmtree);
use LeTest;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

# The year 2084 in minutes: tokens in this test do not grow because of the time.
use constant FAR => 31_000_000;

my $node = new_node('main', conf => "autovacuum = off\n");

# Returns a token of a lock that is free again afterwards.
sub token { my ($db, $of) = @_; return one($of // $node, q{SELECT t FROM acquire_lock('t') t WHERE release_lock('t', t)}, $db); }

sub incarnation { my ($db, $of) = @_; return token($db, $of) >> 28; }

# Kills the server so that it cannot write anything more, and starts it again.
sub kill_server
{
	kill 'KILL', split /\n/, one(q{SELECT pid FROM pg_stat_activity WHERE backend_type IN ('lock_election manager', 'walwriter')});
	$node->stop('immediate');
	$_->quit foreach @_; # Before the start, because the new server would inherit their pipes.
	return $node->start;
}

subtest 'advance_revision' => sub {
	my $next = one('SELECT advance_revision(1)');
	my $token = token();
	cmp_ok($token, '>=', $next, 'advance_revision() returns the next token');
	is(one("SELECT advance_revision($next)"), $token + 1, 'advance_revision() to a lower token changes nothing');
	is(one('SELECT advance_revision(' . ($token + 10) . ')'), $token + 10, 'advance_revision() raises the counter');
	is(token(), $token + 10, 'the next token is the one to which the counter was raised');
	is(one("SELECT advance_revision($token + 10000000000)"), $token + 10000000000,
		'advance_revision() raises the incarnation');
	is(token(), $token + 10000000000, 'the next token is the one to which the incarnation was raised');

	# By default, only a superuser can call it.
	one('CREATE ROLE worker LOGIN; CREATE ROLE keeper LOGIN; GRANT EXECUTE ON FUNCTION advance_revision TO keeper');
	like(error_of('SET ROLE worker; SELECT advance_revision(1)'), qr/ERROR:  42501: /,
		'a role cannot call advance_revision() by default');
	is(error_of('SET ROLE keeper; SELECT advance_revision(1)'), '', 'advance_revision() can be granted to a role');
};

subtest 'the server crashes immediately after advance_revision()' => sub {
	my $min = FAR - 100_000;

	foreach my $level ('off', 'local')
	{
		$min += 10_000;
		my $s = session($node, connstr => "options='-c synchronous_commit=$level'");
		stop_walwriter($node);
		my $held = $s->query(q{SELECT acquire_lock('held', '1 h', owner => 'me')});
		is($s->query("SELECT advance_revision(${min}::bigint << 28)"), $min << 28, "$level: the incarnation is raised");
		kill_server($s);
		cmp_ok(incarnation(), '>=', $min, "$level: the incarnation stays after the crash");
		is(one("SELECT is_held('held', $held)"), 't', "$level: a lock acquired before is still held");
		one(q{SELECT force_release_lock('held')});
	}

	# The same in a transaction that is rolled back.
	$min += 10_000;
	one("BEGIN; SELECT advance_revision(${min}::bigint << 28); ROLLBACK");
	kill_server();
	cmp_ok(incarnation(), '>=', $min, 'a rollback does not undo advance_revision()');
};

subtest 'lock_election.min_durability' => sub {
	$node->append_conf('postgresql.conf', "lock_election.min_durability = local\n");
	$node->reload;
	wait_for_sql($node, 'SHOW lock_election.min_durability', 'local');
	my $s = session($node, connstr => "options='-c synchronous_commit=off'");
	stop_walwriter($node);
	my $token = $s->query(q{SELECT acquire_lock('held', '1 h')});
	kill_server($s);
	is(one("SELECT is_held('held', $token)"), 't',
		'a lock acquired with synchronous_commit = off survives a crash with min_durability = local');
	cmp_ok(token(), '>', $token, 'tokens increase after the crash');
	one(q{SELECT force_release_lock('held')});
};

# The batch that should have stored the incarnation has failed, so the next batch must store it.
subtest 'advance_revision() cannot be written' => sub {
	my $min = incarnation() + 5000;
	my $locker = session($node);

	$locker->query('BEGIN; LOCK _lock_election.meta');
	like(error_of("SELECT advance_revision(${min}::bigint << 28)"), qr/ERROR:  55P03: the tables of extension lock_election are locked/, 'advance_revision() fails while a table is locked');
	$locker->query('COMMIT');
	$locker->quit;
	my $token = token();
	kill_server();
	cmp_ok(token(), '>', $token, 'tokens increase after the failed call and a crash');
	is(one("SELECT advance_revision(($min + 100)::bigint << 28)"), ($min + 100) << 28,
		'advance_revision() works again');
};

subtest 'restarts of the manager and the server, and a new extension' => sub {
	my $token = token();
	my $next = sub {
		my ($what) = @_;
		my $now = token();
		cmp_ok($now, '>', $token, $what);
		is(($now >> 28) - ($token >> 28), 1,
			"$what: the incarnation increases by one, because it is ahead of the clock");
		$token = $now;
	};
	my $manager = one('SELECT pid FROM lock_election.manager');

	kill 'TERM', $manager;
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
	$next->('the manager exits');
	$manager = one('SELECT pid FROM lock_election.manager');
	kill 'KILL', $manager;
	# The server may still accept connections for a moment before it notices.
	$node->poll_query_until('postgres', "SELECT pid <> $manager FROM lock_election.manager");
	$next->('the manager is killed');

	# meta and incarnation_floor must have one row each, whatever rows a restore has added.
	my $stored = 'SELECT count(*), bool_and(m.incarnation = f.incarnation), max(m.incarnation) = (SELECT incarnation FROM lock_election.manager),
		bool_and(database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND timeline = 1 AND taken_at <= now())
		FROM _lock_election.meta AS m, _lock_election.incarnation_floor AS f';
	# A request makes sure that the manager has started completely.
	my $is_stored = sub {
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		one(q{SELECT is_held('t', 1)});
		return is(one($stored), '1|t|t|t', $_[0]);
	};
	$is_stored->('the incarnation is stored');
	$manager = manager_pid();
	one('INSERT INTO _lock_election.incarnation_floor SELECT incarnation - n FROM _lock_election.incarnation_floor, generate_series(0, 2) AS n');
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
	$is_stored->('lower incarnations of a restored dump are deleted');
	my $brought = one('SELECT incarnation + 1000 FROM lock_election.manager');
	$manager = manager_pid();
	one("INSERT INTO _lock_election.incarnation_floor SELECT $brought - n FROM generate_series(0, 2) AS n");
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
	$is_stored->('higher incarnations of a restored dump are deleted');
	is(one('SELECT incarnation FROM lock_election.manager'), $brought + 1,
		'the next incarnation is above the highest one of the dump');
	one('ALTER TABLE _lock_election.meta DISABLE TRIGGER USER; INSERT INTO _lock_election.meta SELECT * FROM _lock_election.meta;
		ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_row');
	replace_manager();
	$is_stored->('a second row of meta is deleted');
	cmp_ok(token(), '>', $token, 'tokens increase after all these changes');
	$token = token();
	$node->restart;
	$next->('the server is restarted');
	$node->stop('immediate');
	$node->start;
	$next->('the server crashes');
	one('DROP EXTENSION lock_election; CREATE EXTENSION lock_election');
	$next->('the extension is dropped and created');

	# The one case in which the server does not know the last token.
	one('DROP EXTENSION lock_election');
	$node->restart;
	one('CREATE EXTENSION lock_election');
	cmp_ok(token(), '<', $token,
		'tokens start from the clock if the extension is dropped, the server restarted and the extension created');
	is(one("SELECT advance_revision($token + 1)"), $token + 1, 'advance_revision() sets the token');
	cmp_ok(token(), '>', $token, 'tokens continue from there');
};

subtest 'dumps and copies of databases' => sub {
	my $file = $node->basedir . '/dump.sql';
	my $token = token();

	$node->command_ok([ 'pg_dump', '-f', $file, '-d', $node->connstr('postgres') ], 'pg_dump');
	one('CREATE DATABASE restored');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $file ], 'the dump is restored into another database');
	cmp_ok(token('restored'), '>', $token, 'tokens increase in the restored database');
	one('DROP EXTENSION lock_election CASCADE', 'restored');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-c', 'DROP SCHEMA public CASCADE; CREATE SCHEMA public', '-f', $file ], 'the dump is restored again');
	cmp_ok(token('restored'), '>', $token, 'tokens increase in the database that was restored again');
	cmp_ok(one('DROP DATABASE restored') . token(), '>', $token, 'tokens increase in the original database');

	my $copied = token();
	one('CREATE DATABASE copy TEMPLATE postgres');
	cmp_ok(token('copy'), '>', $copied, 'tokens increase in a copy');
	my $of_copy = token('copy');
	one('CREATE DATABASE copy2 TEMPLATE copy');
	cmp_ok(token('copy2'), '>', $of_copy, 'tokens increase in a copy of the copy');
	one('DROP DATABASE copy; DROP DATABASE copy2');

	my $other = new_node('other', extension => 0, conf => "autovacuum = off\n");
	$other->command_ok([ 'psql', '-Xq', '-d', $other->connstr('postgres'), '-c', 'CREATE ROLE keeper; CREATE ROLE worker', '-f', $file ], 'the dump is restored into another cluster');
	cmp_ok(token('postgres', $other), '>', $token, 'tokens increase in the other cluster');
	$other->stop;
};

# A copy of the files, taken after a clean shutdown, is restored. Nothing of what the server did after the copy is
# stored anywhere.
subtest 'an older copy of the files is restored' => sub {
	my $cold = new_node('cold', conf => "autovacuum = off\n");
	my $copy = $cold->basedir . '/copy';
	my $highest = 0;

	$cold->stop;
	PostgreSQL::Test::RecursiveCopy::copypath($cold->data_dir, $copy);
	foreach my $time (1 .. 3)
	{
		$cold->start;
		my $held = one($cold, q{SELECT acquire_lock('held', '1 h', wait => '0')});
		my $token = token('postgres', $cold);
		cmp_ok($held, '>', $highest, "no token repeats after restore $time");
		is(one($cold, "SELECT is_held('held', $highest) OR release_lock('held', $highest)"), 'f', 'tokens of the time before the restore are not valid') if $time > 1;
		$highest = $token;
		$cold->stop;
		rmtree($cold->data_dir);
		PostgreSQL::Test::RecursiveCopy::copypath($copy, $cold->data_dir);
		chmod(0700, $cold->data_dir);
	}
};

# The second recovery discards what happened after the first one. It knows of the first one from the archive; without an
# archive, it relies on the clock.
subtest 'two recoveries to one point in time' => sub {
	my $archived = new_node('archived', init => [ has_archiving => 1, allows_streaming => 1 ], conf => "autovacuum = off\n");
	my $highest;

	$archived->backup('base');
	one($archived, q{SELECT acquire_lock('before', '1 h')});
	one($archived, q{SELECT pg_create_restore_point('here')});
	one($archived, 'SELECT pg_switch_wal()');
	$highest = token('postgres', $archived);
	$archived->stop;
	foreach my $archiving ('off', 'on', 'on')
	{
		my $recovered = PostgreSQL::Test::Cluster->new('recovered');

		$recovered->init_from_backup($archived, 'base', has_restoring => 1, standby => 0);
		$recovered->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_timeline = '1'\nrecovery_target_action = 'promote'\narchive_mode = $archiving\n");
		$recovered->enable_archiving if $archiving eq 'on';
		$recovered->append_conf('postgresql.conf', sprintf(q{archive_command = 'cp "%%p" "%s/%%f"'}, $archived->archive_dir) . "\n") if $archiving eq 'on';
		$recovered->start;
		wait_for_sql($recovered, 'SELECT count(*) > 0 FROM lock_election.manager');
		is(one($recovered, q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'before',
			'the lock before the restore point is recovered');
		my $token = token('postgres', $recovered);
		cmp_ok($token, '>', $highest, "no token repeats with archive_mode = $archiving");
		$highest = $token;
		$recovered->stop;
		$recovered->clean_node if $recovered->can('clean_node');
	}
};

# A restored dump may contain the last possible incarnation, after which there is none. advance_revision() does not
# accept it.
subtest 'the last incarnation' => sub {
	my $last = 2**25 - 1;
	my $spent = new_node('spent', conf => "autovacuum = off\n");

	like(error_of($spent, "SELECT advance_revision(${last}::bigint << 28)"), qr/ERROR:  22023: min is out of range/, 'advance_revision() rejects the last incarnation');
	one($spent, "INSERT INTO _lock_election.incarnation_floor VALUES ($last)");
	like(error_of($spent, q{SELECT acquire_lock('x', wait => '1 s')}), qr/ERROR:  57P03: the lock_election manager of database "postgres" is not running/, 'no manager starts if no incarnation is left');
	like(slurp_file($spent->logfile), qr/ERROR:  incarnation @{[ $last + 1 ]} of lock_election is out of range/, 'the log contains the reason');
	one($spent, 'DELETE FROM _lock_election.incarnation_floor');
	one($spent, 'INSERT INTO _lock_election.incarnation_floor VALUES (' . ($last - 1) . ')');
	ok(wait_until(sub { error_of($spent, q{SELECT acquire_lock('x', wait => '1 s')}) eq '' }),
		'a manager starts if one incarnation is left');
	is(one($spent, 'SELECT incarnation FROM lock_election.manager'), $last, 'the manager has the last incarnation');
	$spent->stop;
};

# pg_upgrade copies the files of all tables, also of meta; the database has the same OID in the new cluster.
subtest 'pg_upgrade' => sub {
	my $held = one(q{SELECT acquire_lock('held', '1 h', owner => 'me')});
	my $token = token();
	my $new = new_node('new', start => 0);
	my $bin = $node->config_data('--bindir');

	$node->stop;
	chdir $node->basedir;
	$node->command_ok([ 'pg_upgrade', '--no-sync', '-d', $node->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin,
			'-s', $node->host, '-p', $node->port, '-P', $new->port ], 'pg_upgrade');
	$new->start;
	cmp_ok(token('postgres', $new), '>', $token, 'tokens increase after pg_upgrade');
	is(one($new, "SELECT is_held('held', $held)"), 't', 'locks are held after pg_upgrade');
	is(one($new, q{SELECT try_acquire_lock('held') IS NULL}), 't',
		'a held lock is not granted to others after pg_upgrade');
	$new->stop;
};

done_testing();
