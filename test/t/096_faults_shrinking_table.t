# A table is rewritten while faults occur: an error, the end of the manager, a crash. No lock is lost, and the table is
# small at the end.
# Promises: D
# Needs: faults
use strict;
use warnings;
use LeTest;
use Test::More;

my $node = new_node('main', faults => 1, conf => "autovacuum = off\nmax_wal_size = 2GB\n");

sub size { return one(q{SELECT pg_relation_size('_lock_election.slot')}); }

# Creates dead rows, and deletes the rows of these names.
sub bloat
{
	my $names = join(', ', map { "'$_'" } 'none', @_);

	one(qq{BEGIN; ALTER TABLE _lock_election.slot DISABLE TRIGGER USER;
		INSERT INTO _lock_election.slot (token, acquired_at, ttl, time_left, lease, session, role, slot, holds, permits, kind, mode, name, value)
			SELECT 1, now(), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 'dead ' || i, repeat('x', 4000) FROM generate_series(1, 9000) i;
		DELETE FROM _lock_election.slot WHERE name LIKE 'dead %' OR name IN ($names);
		ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.slot ENABLE ALWAYS TRIGGER refuse_row; COMMIT});
	return;
}

my %token = map { $_ => one("SELECT acquire_lock('$_', '1 h', owner => 'me')") } 'a', 'b', 'c';
my $place = one(q{SELECT token FROM enqueue_lock('a', '1 h')});

# Expects that all locks and places are kept, and that rows can be written. A lock that was released just before a crash
# may be held again, because the release was not flushed.
sub all_there
{
	my ($name) = @_;

	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks WHERE name <> 'beat'}), 'a b c', "$name: three locks are held");
	is(one("SELECT is_held('$_', $token{$_})"), 't', "$name: $_ is held") foreach sort keys %token;
	is(one("SELECT await_lock('a', $place)"), 'f', "$name: the place exists");
	one("SELECT release_lock('c', $token{c})");
	$token{c} = one(q{SELECT acquire_lock('c', '1 h', owner => 'me')});
	ok($token{c}, "$name: a row is written");
	return;
}

# The action "kill" crashes the whole server.
foreach my $case ([ 'shrink-new-file', 'error' ], [ 'shrink-copied', 'fatal' ], [ 'shrink-copied', 'kill' ], [ 'shrink-done', 'error' ], [ 'shrink-done', 'kill' ],
	[ 'shrink-committed', 'kill' ])
{
	my ($point, $action) = @$case;
	my $log = -s $node->logfile;

	bloat() if size() < 64 * 1024 * 1024;
	one("SELECT fault_set('$point', '$action')");
	ok( wait_until(
			sub {
				my ($out, $err);

				# Keeps the manager busy. The fault may happen at any time.
				$node->psql('postgres', q{SELECT release_lock('beat', acquire_lock('beat'))}, stdout => \$out, stderr => \$err);
				return PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /\bfault\b|terminated by signal 9/;
			}),
		"$action at $point: the fault happens");
	ok(wait_until(sub { ($node->psql('postgres', 'SELECT 1'))[0] == 0 }), "$action at $point: the server is available");
	all_there("$action at $point");
}

ok( wait_until(
		sub {
			one(q{SELECT release_lock('beat', acquire_lock('beat'))});
			return size() < 1024 * 1024;
		}),
	'the table is small at the end');
all_there('after the table has become small');

# --- the table is rewritten by an administrator ---

# The manager loads the table again. This does not count as a failed batch, unless the load fails.
sub failed_batches { return one('SELECT failed_batches FROM lock_election.stat'); }

my $failed = failed_batches();
one('VACUUM FULL _lock_election.slot');
all_there('VACUUM FULL');
is(failed_batches(), $failed, 'no batch fails after VACUUM FULL');
one('VACUUM FULL _lock_election.slot');
one(q{SELECT fault_set('reload-begun', 'error')});
like(($node->psql('postgres', q{SELECT acquire_lock('beat')}))[2], qr/fault/, 'a request gets an error if the load fails');
is(failed_batches(), $failed + 1, 'a failed load counts as a failed batch');
all_there('after a failed load');

# --- a row is deleted manually ---

# The manager must not copy the table at each check only because rows are not where they were. The first check may
# happen at the commit.
my $log;
my $errors = sub { return scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /manager +ERROR: .* was changed by another program/g) };
my $beat = sub { one(q{SELECT release_lock('beat', acquire_lock('beat'))}); return; };
foreach (1 .. 10)
{
	$log = -s $node->logfile;
	$failed = failed_batches();
	bloat('b');
	wait_until(sub { $beat->(); return $errors->() > 0 || failed_batches() > $failed });
	last if $errors->() > 0;

	# On a busy machine, a batch may not have got the table lock in time, so the whole table was loaded again, and the
	# lock is lost.
	$token{b} = one(q{SELECT acquire_lock('b', '1 h', owner => 'me')});
}
is($errors->(), 1, 'a check reports the deleted row');
my $looks = time;
wait_until(sub { $beat->(); return time > $looks + 11 });
is($errors->(), 1, 'the next two checks do not report it again');
replace_manager();
is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks WHERE name <> 'beat'}), 'a c', 'the next manager does not know the deleted lock');
$token{b} = one(q{SELECT acquire_lock('b', '1 h', owner => 'me')});

one('SELECT pg_terminate_backend(pid, 60000) FROM lock_election.manager') if $ENV{COVERAGE}; # a crash loses its coverage counts
$node->stop('immediate');
$node->start;
all_there('after one more crash');
$node->stop;
done_testing();
