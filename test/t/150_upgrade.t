# The library and the SQL have different versions: after an upgrade of the package without a restart of the server,
# after a restart without ALTER EXTENSION UPDATE, or after a downgrade. Locks continue, nothing is lost, and errors name
# the missing command. The next version is made from this one, see test/upgrade.
# Promises: D
use strict;
use warnings;
use File::Copy qw(copy);
use LeShadows;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($this) = slurp_file('lock_election.control') =~ /^default_version = '(\d+\.\d+)'/m;
my $next = $this =~ s/(\d+)$/$1 + 1/er;
my $pg_config = $ENV{PG_CONFIG};
chomp(my $bin = `$pg_config --bindir`);
my ($root, $version_dir) = $bin =~ m{^(.*)(/usr/lib/postgresql/[^/]+)/bin$} or plan skip_all => 'not an installation of our own';
my $dir = PostgreSQL::Test::Utils::tempdir();

# --- installations: one with a package that is upgraded, and one with the next version from the start ---

sub quietly { my ($cmd) = @_; my $out = `$cmd 2>&1`; die "$cmd: $out" if $?; return; }

mkdir "$dir/next" or die $!;
quietly("tar --exclude=./build --exclude='*.o' --exclude='*.d' --exclude='*.so' --exclude=./tmp_check -cf - . | tar -C $dir/next -xf -");
quietly("test/upgrade/make-next $dir/next");
quietly("make -C $dir/next -s -j2 COPT='-O0 -U_FORTIFY_SOURCE -Wno-maybe-uninitialized' PG_CONFIG=$pg_config all");
quietly("cp -a $root/usr $dir/usr; mkdir $dir/new; cp -a $root/usr $dir/new/usr");
quietly("make -C $dir/next -s COPT='-O0 -U_FORTIFY_SOURCE -Wno-maybe-uninitialized' PG_CONFIG=$dir/new$version_dir/bin/pg_config install");

# Replaces a file in the way of dpkg: renames a new file to the old name.
sub install_file
{
	my ($from, $to) = @_;
	unlink "$to.dpkg-new";
	copy($from, "$to.dpkg-new") or die "$from: $!";
	rename("$to.dpkg-new", $to) or die "$to: $!";
	return;
}

my ($share, $lib) = map { s/^\Q$root\E//r } map { chomp; $_ } map { scalar `$pg_config --$_` } qw(sharedir pkglibdir);

sub install_package
{
	my ($version) = @_;
	my $from = $version eq $next ? "$dir/new" : $root;

	install_file("$from$lib/lock_election.so", "$dir$lib/lock_election.so");
	install_file("$from$share/extension/lock_election.control", "$dir$share/extension/lock_election.control");
	unlink glob("$dir$share/extension/lock_election--*.sql");
	install_file($_, "$dir$share/extension/" . s{.*/}{}r) foreach glob("$from$share/extension/lock_election--*.sql");
	return;
}

install_package($this);
my $node = new_node('main', install => "$dir$version_dir", conf => "autovacuum = off\n");

# Runs a statement that can fail. Returns its output and errors.
sub attempt
{
	my ($sql, $in) = @_;
	my ($out, $err);

	($in // $node)->psql('postgres', $sql, stdout => \$out, stderr => \$err);
	return $out . $err;
}

sub attempt_in
{
	my ($db, $sql) = @_;
	my ($out, $err);

	$node->psql($db, $sql, stdout => \$out, stderr => \$err);
	return $out . $err;
}

# --- locks that must survive ---

my %token;

sub set_up
{
	$token{held} = one($node, q{SELECT acquire_lock('held', '1 h', owner => 'me')});
	$token{lease} = one($node, q{SELECT grant_lease('1 h')});
	$token{leased} = one($node, "SELECT acquire_lock('leased', lease => $token{lease})");
	$token{$_} = one($node, q{SELECT token FROM enqueue_lock('held', '1 h')}) foreach 'first', 'second';
	$token{term} = one($node, q{SELECT campaign('boss', 'alice', '1 h')});
	one($node, q{SELECT release_lock('closed', acquire_lock('closed'), hold_for => '1 h')});
	return;
}

sub check
{
	my ($name, $in) = @_;
	my $sql = sub { return attempt($_[0], $in); };

	is($sql->("SELECT is_held('held', $token{held}), is_held('leased', $token{leased}), lease_time_to_live($token{lease}) IS NOT NULL"),
		't|t|t', "$name: held");
	is($sql->(q{SELECT string_agg(token::text, ' ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'held'}),
		"$token{first} $token{second}", "$name: the queue");
	is($sql->(q{SELECT candidate, term FROM current_leader('boss')}), "alice|$token{term}", "$name: the leader")
	  or diag($sql->(q{SELECT * FROM election_history('boss')}));
	is($sql->(q{SELECT try_acquire_lock('held') IS NULL, try_acquire_lock('closed') IS NULL}), 't|t', "$name: held and closed names are not granted");
	is($sql->(q{SELECT release_lock('new', acquire_lock('new')) FROM generate_series(1, 10)}), join("\n", ('t') x 10), "$name: new locks work");
	is($sql->(q{SELECT acquires > 0 FROM lock_election.stat}), 't', "$name: the views");
	return;
}

sub wait_for_manager { return wait_for_sql($_[0] // $node, 'SELECT count(*) = 1 FROM lock_election.manager'); }

set_up();
check('before');

# --- upgrades ---

subtest 'the package is upgraded, the server not restarted' => sub {
	install_package($next);
	check('new files');
	like(attempt('ALTER EXTENSION lock_election UPDATE'),
		qr/still runs version \Q$this\E of the lock_election library.*\nHINT:  Restart the server/, 'ALTER EXTENSION advises to restart the server');
	one($node, 'CREATE DATABASE other');
	my ($out, $err);
	$node->psql('other', 'CREATE EXTENSION lock_election', stdout => \$out, stderr => \$err);
	like($err, qr/HINT:  Restart the server/, 'CREATE EXTENSION advises to restart the server');
	is(one($node, q{SELECT extversion FROM pg_extension WHERE extname = 'lock_election'}), $this, 'the version of the SQL has not changed');
	one($node, 'SELECT pg_terminate_backend(pid) FROM lock_election.manager');
	wait_for_manager();
	check('a new manager');
};

subtest 'the server is restarted, the SQL is older than the library' => sub {
	my $from = -s $node->logfile;

	$node->restart;
	wait_for_manager();
	is(one($node, 'SHOW lock_election.version'), $next, 'the new library is loaded');
	check('old SQL');
	like(substr(slurp_file($node->logfile), $from),
		qr/have different versions\n.*HINT:  The SQL of extension lock_election is of version \Q$this\E, the server's library of \Q$next\E: run ALTER EXTENSION lock_election UPDATE\./,
		'the log advises ALTER EXTENSION');
};

# Each transaction reads a counter and writes it back under a lock. The count is correct only if all exclude each
# other.
subtest 'ALTER EXTENSION UPDATE under load' => sub {
	my $script = "$dir/load.sql";
	my $waiter = session($node);
	my $bound = session($node);

	one($node, 'CREATE TABLE counter AS SELECT 0 AS n');
	append_to_file($script, <<'SQL');
SELECT acquire_lock('counter', '1 min') AS token \gset
SELECT n AS n FROM counter \gset
UPDATE counter SET n = :n + 1;
SELECT release_lock('counter', :token);
SELECT acquire_lock('l' || :client_id) AS token \gset
SELECT release_lock('l' || :client_id, :token);
SQL
	$token{bound} = $bound->query(q{SELECT acquire_lock('bound', NULL)});
	$waiter->async(q{SELECT acquire_lock('leased')});
	wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.waiters WHERE name = 'leased'});
	my $load = IPC::Run::start([ 'pgbench', '-n', '-c', '4', '-T', '3', '-f', $script, $node->connstr('postgres') ],
		'>', \my $out, '2>', \my $err);
	wait_for_sql($node, 'SELECT n > 20 FROM counter');
	one($node, 'ALTER EXTENSION lock_election UPDATE');
	check('under load');
	ok($load->finish, 'no client has seen an error') or diag($err);
	my ($done) = $out =~ /transactions actually processed: (\d+)/;
	is(one($node, 'SELECT n FROM counter'), $done, 'the transactions have excluded each other');
	is(one($node, "SELECT is_held('bound', $token{bound})"), 't', 'a lock bound to a connection is held');
	is(one($node, 'SELECT lock_election.library_version(), added FROM lock_election.stat'), "$next|42", 'the new function and column work');
	is(one($node, q{SELECT release_lock('new', acquire_lock('new')); SELECT count(*) > 0 FROM _lock_election.slot WHERE note = 'new'}), "t\nt", 'the new column is stored');
	ok(!$waiter->ready, 'the waiter still waits');
	is(one($node, "SELECT release_lock('leased', $token{leased})"), 't', 'the lock is released to the waiter');
	$token{leased} = $waiter->wait;
	cmp_ok($token{leased}, '>', $token{second}, 'the waiter is granted');
	$_->quit foreach $waiter, $bound;
};

subtest 'another restart' => sub {
	my $leased = one($node, "SELECT release_lock('leased', $token{leased}); SELECT acquire_lock('leased', lease => $token{lease})");

	$token{leased} = $leased =~ s/.*\n//r;
	$node->restart;
	wait_for_manager();
	check('new SQL');
};

# --- downgrades: an older package is installed, or a standby with an older package was promoted ---

subtest 'the library is older than the SQL' => sub {
	my $from = -s $node->logfile;
	my $hint = qr/HINT:  The SQL of extension lock_election is of version \Q$next\E, the server's library of \Q$this\E: install version \Q$next\E of the package, unless it is there already, and restart the server\./;

	install_package($this);
	$node->restart;
	wait_for_manager();
	is(one($node, 'SHOW lock_election.version'), $this, 'the old library is loaded');
	check('old library');
	like(substr(slurp_file($node->logfile), $from), $hint, 'the log advises to install the new package');
	is(one($node, 'SELECT added IS NULL FROM lock_election.stat'), 't',
		'a column that the library does not know is NULL');
	my $answer = attempt('SELECT lock_election.library_version()');
	like($answer, qr/ERROR:  could not find function "\w+" in file ".*lock_election\.so"/, 'a function that the library does not have');

	# a table that this library cannot write, as a later version could have changed it
	one($node, 'ALTER TABLE _lock_election.slot ALTER ttl TYPE numeric');
	$from = -s $node->logfile;
	like(attempt(q{SELECT acquire_lock('x')}), qr/"_lock_election\.slot" has been altered/, 'an acquire fails if the library cannot write the table');
	like(substr(slurp_file($node->logfile), $from), qr/"_lock_election\.slot" has been altered\n.*$hint/, 'the log names the altered table');
	one($node, 'SELECT pg_terminate_backend(pid) FROM lock_election.manager');
	like(attempt(q{SELECT try_acquire_lock('x')}), qr/is not running\n.*\n.*HINT:  See the server log/, 'no manager starts with the altered table');
	one($node, 'ALTER TABLE _lock_election.slot ALTER ttl TYPE bigint');
	wait_for_manager();
	check('undone');
};

subtest 'forward again' => sub {
	install_package($next);
	$node->restart;
	wait_for_manager();
	check('next');
	is(one($node, 'SELECT lock_election.library_version()'), $next, 'the new function works again');
};

subtest "a role creates objects that shadow those of PostgreSQL in the script's search_path" => sub {
	my $from;

	one($node, "CREATE DATABASE $_") foreach 'shadowed', 'plain';
	make_shadows($node, $_, 'public', used_types($node)) foreach 'shadowed', 'plain';
	$from = -s $node->logfile;
	is(attempt_in('shadowed', "CREATE EXTENSION lock_election VERSION '$this'; ALTER EXTENSION lock_election UPDATE"), '', 'ALTER EXTENSION with shadowing objects');
	is(attempt_in('shadowed', 'SELECT added FROM lock_election.stat'), '42', 'the new column with shadowing objects');
	is(attempt_in('plain', "SET search_path = public, pg_catalog;\n" . plain_scripts("$dir/next/sql", 'public')),
		'', 'the statements of the scripts, with shadowing objects first in the search_path');
	is(shadows_that_ran($node, $from), '', 'no shadowing object was called');
	is(depends_on_shadows($node, $_), '',
		"no object depends on a shadowing object in database $_") foreach 'shadowed', 'plain';
	one($node, "DROP DATABASE $_ WITH (FORCE)") foreach 'shadowed', 'plain';
};

# --- pg_upgrade, to a new library, and back ---

subtest 'pg_upgrade, and the way back' => sub {
	my $old = new_node('old');
	my $new = new_node('new', install => "$dir/new$version_dir", start => 0);
	my ($bin_old, $bin_new) = map { $_->config_data('--bindir') } $old, $new;

	$node->stop;
	$node = $old;
	set_up();
	$old->stop;
	chdir $old->basedir;
	$old->command_ok([ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin_old, '-B', $bin_new,
			'-s', $old->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
	$new->start;
	wait_for_manager($new);
	is(attempt(q{SELECT extversion FROM pg_extension WHERE extname = 'lock_election'}, $new), $this,
		'the SQL has the old version after pg_upgrade');
	check('upgraded', $new);
	is(attempt('ALTER EXTENSION lock_election UPDATE', $new), '', 'ALTER EXTENSION after pg_upgrade');
	check('altered', $new);
	my $newest = attempt(q{SELECT acquire_lock('there', '1 h')}, $new);
	cmp_ok($newest, '>', $token{term}, 'tokens grow after pg_upgrade');
	my $revision = attempt('SELECT revision FROM lock_election.manager', $new);
	$new->stop;

	$old->start;
	wait_for_manager();
	check('back');
	one($node, "SELECT advance_revision($revision)");
	cmp_ok(one($node, q{SELECT acquire_lock('there')}), '>', $newest, 'after the way back, tokens are higher than those of the upgraded server');
	$old->stop;
};

done_testing();
