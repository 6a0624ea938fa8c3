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

# 2084 in minutes: nothing in this test goes up because time does.
use constant FAR => 31_000_000;

my $node = new_node('main', conf => "autovacuum = off\n");

# A token of a lock that is free again afterwards.
sub token { my ($db, $of) = @_; return one($of // $node, q{SELECT t FROM acquire_lock('t') t WHERE release_lock('t', t)}, $db); }

sub incarnation { my ($db, $of) = @_; return token($db, $of) >> 28; }

# Nobody has a chance to write anything more.
sub kill_server
{
	kill 'KILL', split /\n/, one(q{SELECT pid FROM pg_stat_activity WHERE backend_type IN ('lock_election manager', 'walwriter')});
	$node->stop('immediate');
	$_->quit foreach @_; # before another server inherits their pipes
	return $node->start;
}

subtest 'advance_revision' => sub {
	my $next = one('SELECT advance_revision(1)');
	my $token = token();
	cmp_ok($token, '>=', $next, 'says what is next');
	is(one("SELECT advance_revision($next)"), $token + 1, 'a lower one changes nothing');
	is(one('SELECT advance_revision(' . ($token + 10) . ')'), $token + 10, 'raises the counter');
	is(token(), $token + 10, 'to that token');
	is(one("SELECT advance_revision($token + 10000000000)"), $token + 10000000000, 'raises the incarnation');
	is(token(), $token + 10000000000, 'to that token');

	# for the superuser, and whom he allows it
	one('CREATE ROLE worker LOGIN; CREATE ROLE keeper LOGIN; GRANT EXECUTE ON FUNCTION advance_revision TO keeper');
	like(error_of('SET ROLE worker; SELECT advance_revision(1)'), qr/ERROR:  42501: /, 'not for everyone');
	is(error_of('SET ROLE keeper; SELECT advance_revision(1)'), '', 'can be granted');
};

subtest 'the server dies right after the answer' => sub {
	my $min = FAR - 100_000;

	foreach my $level ('off', 'local')
	{
		$min += 10_000;
		my $s = session($node, connstr => "options='-c synchronous_commit=$level'");
		stop_walwriter($node);
		my $held = $s->query(q{SELECT acquire_lock('held', '1 h', owner => 'me')});
		is($s->query("SELECT advance_revision(${min}::bigint << 28)"), $min << 28, "$level: advanced");
		kill_server($s);
		cmp_ok(incarnation(), '>=', $min, "$level: stays");
		is(one("SELECT is_held('held', $held)"), 't', "$level: as what was acquired before does");
		one(q{SELECT force_release_lock('held')});
	}

	# in the transaction that rolls back, too
	$min += 10_000;
	one("BEGIN; SELECT advance_revision(${min}::bigint << 28); ROLLBACK");
	kill_server();
	cmp_ok(incarnation(), '>=', $min, 'not undone by a rollback');
};

subtest 'lock_election.min_durability' => sub {
	$node->append_conf('postgresql.conf', "lock_election.min_durability = local\n");
	$node->reload;
	wait_for_sql($node, 'SHOW lock_election.min_durability', 'local');
	my $s = session($node, connstr => "options='-c synchronous_commit=off'");
	stop_walwriter($node);
	my $token = $s->query(q{SELECT acquire_lock('held', '1 h')});
	kill_server($s);
	is(one("SELECT is_held('held', $token)"), 't', 'what was acquired with synchronous_commit = off is there after a crash');
	cmp_ok(token(), '>', $token, 'and tokens go on');
	one(q{SELECT force_release_lock('held')});
};

# The batch that should have stored it has failed: the next one has to.
subtest 'it cannot be written' => sub {
	my $min = incarnation() + 5000;
	my $locker = session($node);

	$locker->query('BEGIN; LOCK _lock_election.meta');
	like(error_of("SELECT advance_revision(${min}::bigint << 28)"), qr/ERROR:  55P03: the tables of extension lock_election are locked/, 'is an error');
	$locker->query('COMMIT');
	$locker->quit;
	my $token = token();
	kill_server();
	cmp_ok(token(), '>', $token, 'and nothing is forgotten');
	is(one("SELECT advance_revision(($min + 100)::bigint << 28)"), ($min + 100) << 28, 'works again');
};

subtest 'the manager, the server, the extension' => sub {
	my $token = token();
	my $next = sub {
		my ($what) = @_;
		my $now = token();
		cmp_ok($now, '>', $token, $what);
		is(($now >> 28) - ($token >> 28), 1, "$what: by the next incarnation, where the clock is behind");
		$token = $now;
	};
	my $manager = one('SELECT pid FROM lock_election.manager');

	kill 'TERM', $manager;
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
	$next->('the manager leaves');
	$manager = one('SELECT pid FROM lock_election.manager');
	kill 'KILL', $manager;
	# the server may answer for a moment before it notices
	$node->poll_query_until('postgres', "SELECT pid <> $manager FROM lock_election.manager");
	$next->('the manager is killed');

	# one row each, whatever somebody has left there
	my $stored = 'SELECT count(*), bool_and(m.incarnation = f.incarnation), max(m.incarnation) = (SELECT incarnation FROM lock_election.manager),
		bool_and(database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND timeline = 1 AND taken_at <= now())
		FROM _lock_election.meta AS m, _lock_election.incarnation_floor AS f';
	# it is asked after it has answered: then it has told what it is
	my $is_stored = sub {
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		one(q{SELECT is_held('t', 1)});
		return is(one($stored), '1|t|t|t', $_[0]);
	};
	$is_stored->('its incarnation is stored');
	$manager = manager_pid();
	one('INSERT INTO _lock_election.incarnation_floor SELECT incarnation - n FROM _lock_election.incarnation_floor, generate_series(0, 2) AS n');
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
	$is_stored->('lower ones that a dump has brought are gone');
	my $brought = one('SELECT incarnation + 1000 FROM lock_election.manager');
	$manager = manager_pid();
	one("INSERT INTO _lock_election.incarnation_floor SELECT $brought - n FROM generate_series(0, 2) AS n");
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager");
	$is_stored->('higher ones as well');
	is(one('SELECT incarnation FROM lock_election.manager'), $brought + 1, 'and the next is above the highest');
	one('ALTER TABLE _lock_election.meta DISABLE TRIGGER USER; INSERT INTO _lock_election.meta SELECT * FROM _lock_election.meta;
		ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_row');
	replace_manager();
	$is_stored->('and a second row of meta');
	cmp_ok(token(), '>', $token, 'all of it goes upwards');
	$token = token();
	$node->restart;
	$next->('a restart');
	$node->stop('immediate');
	$node->start;
	$next->('a crash');
	one('DROP EXTENSION lock_election; CREATE EXTENSION lock_election');
	$next->('dropped and created');

	# the one case in which nobody knows any more
	one('DROP EXTENSION lock_election');
	$node->restart;
	one('CREATE EXTENSION lock_election');
	cmp_ok(token(), '<', $token, 'dropped, restarted and created: from the clock');
	is(one("SELECT advance_revision($token + 1)"), $token + 1, 'advance_revision');
	cmp_ok(token(), '>', $token, 'goes on from there');
};

subtest 'dumps and copies' => sub {
	my $file = $node->basedir . '/dump.sql';
	my $token = token();

	$node->command_ok([ 'pg_dump', '-f', $file, '-d', $node->connstr('postgres') ], 'pg_dump');
	one('CREATE DATABASE restored');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $file ], 'restored into another database');
	cmp_ok(token('restored'), '>', $token, 'its tokens go on');
	one('DROP EXTENSION lock_election CASCADE', 'restored');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-c', 'DROP SCHEMA public CASCADE; CREATE SCHEMA public', '-f', $file ], 'once more');
	cmp_ok(token('restored'), '>', $token, 'its tokens go on');
	cmp_ok(one('DROP DATABASE restored') . token(), '>', $token, 'as those of the original do');

	my $copied = token();
	one('CREATE DATABASE copy TEMPLATE postgres');
	cmp_ok(token('copy'), '>', $copied, 'a copy goes on');
	my $of_copy = token('copy');
	one('CREATE DATABASE copy2 TEMPLATE copy');
	cmp_ok(token('copy2'), '>', $of_copy, 'and a copy of it');
	one('DROP DATABASE copy; DROP DATABASE copy2');

	my $other = new_node('other', extension => 0, conf => "autovacuum = off\n");
	$other->command_ok([ 'psql', '-Xq', '-d', $other->connstr('postgres'), '-c', 'CREATE ROLE keeper; CREATE ROLE worker', '-f', $file ], 'restored into another cluster');
	cmp_ok(token('postgres', $other), '>', $token, 'its tokens go on');
	$other->stop;
};

# A copy of the files, taken while the server was stopped in order, is put back: what the server has done since is not
# stored anywhere.
subtest 'an older copy of the files is put back' => sub {
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
		cmp_ok($held, '>', $highest, "no token repeats, $time");
		is(one($cold, "SELECT is_held('held', $highest) OR release_lock('held', $highest)"), 'f', 'nor is an old one good for anything') if $time > 1;
		$highest = $token;
		$cold->stop;
		rmtree($cold->data_dir);
		PostgreSQL::Test::RecursiveCopy::copypath($copy, $cold->data_dir);
		chmod(0700, $cold->data_dir);
	}
};

# The second one discards what the first has done.  That there has been another one it knows from the archive; or it does
# not, and has the clock.
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
		is(one($recovered, q{SELECT string_agg(name, ' ') FROM lock_election.locks}), 'before', 'recovered');
		my $token = token('postgres', $recovered);
		cmp_ok($token, '>', $highest, "no token repeats, archive_mode = $archiving");
		$highest = $token;
		$recovered->stop;
		$recovered->clean_node if $recovered->can('clean_node');
	}
};

# What a dump brings may be the last incarnation that there is, and one more; advance_revision() does not go so far.
subtest 'the last incarnation' => sub {
	my $last = 2**25 - 1;
	my $spent = new_node('spent', conf => "autovacuum = off\n");

	like(error_of($spent, "SELECT advance_revision(${last}::bigint << 28)"), qr/ERROR:  22023: min is out of range/, 'cannot be asked for');
	one($spent, "INSERT INTO _lock_election.incarnation_floor VALUES ($last)");
	like(error_of($spent, q{SELECT acquire_lock('x', wait => '1 s')}), qr/ERROR:  57P03: the lock_election manager of database "postgres" is not running/, 'none is left');
	like(slurp_file($spent->logfile), qr/ERROR:  incarnation @{[ $last + 1 ]} of lock_election is out of range/, 'the log says why');
	one($spent, 'DELETE FROM _lock_election.incarnation_floor');
	one($spent, 'INSERT INTO _lock_election.incarnation_floor VALUES (' . ($last - 1) . ')');
	ok(wait_until(sub { error_of($spent, q{SELECT acquire_lock('x', wait => '1 s')}) eq '' }), 'one is left');
	is(one($spent, 'SELECT incarnation FROM lock_election.manager'), $last, 'the last one');
	$spent->stop;
};

# The files of all tables are taken along: meta's too, whose OID of the database is the same in the new cluster.
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
	cmp_ok(token('postgres', $new), '>', $token, 'tokens go on');
	is(one($new, "SELECT is_held('held', $held)"), 't', 'locks are held');
	is(one($new, q{SELECT try_acquire_lock('held') IS NULL}), 't', 'and exclude others');
	$new->stop;
};

done_testing();
