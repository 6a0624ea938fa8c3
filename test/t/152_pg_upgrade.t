# pg_upgrade to another major version, with locks, permits, groups, leases, queue places, a leader, a closed name and
# versions: all of them are kept, and tokens grow. From each older version of test/postgresql-versions that is installed
# here.
# Promises: D, T
# Needs: older-majors
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my @older = split / /, $ENV{LE_OLDER_MAJORS} // '';
my ($major) = `$ENV{PG_CONFIG} --version` =~ /^PostgreSQL (\d+)/;
plan skip_all => "no PostgreSQL older than $major is installed here, to upgrade from" unless @older;

# The state that must be the same after the upgrade. Its tokens are those of the old cluster.
sub state_of
{
	my ($node, $token) = @_;

	return $node->safe_psql('postgres', <<"SQL");
SELECT 'held', is_held('held', $token->{held}), is_held('leased', $token->{leased}), is_held('permits', $token->{permit}),
	is_held('g1', $token->{group}), is_held('g2', $token->{group}), lease_time_to_live($token->{lease}) > '50 min';
SELECT 'locks', kind, name, mode, token, owner, lease FROM lock_election.locks ORDER BY name, token;
SELECT 'places', name, token, queue_position FROM lock_election.waiters ORDER BY name, queue_position;
SELECT 'leader', candidate, term FROM current_leader('boss');
SELECT 'history', change, how, candidate, term FROM election_history('boss');
SELECT 'refused', try_acquire_lock('held') IS NULL, try_acquire_lock('closed') IS NULL, acquire_permit('permits', 2, wait => '0') IS NULL;
SELECT 'versions', * FROM read_versioned('key');
SELECT 'row', * FROM product;
SQL
}

foreach my $from (@older)
{
	my ($old_major) = $from =~ /(\d+)$/;

	subtest "from $old_major" => sub {
		# The template has the new version. From 18 on, initdb switches checksums on; both clusters must agree.
		delete local $ENV{INITDB_TEMPLATE};
		my $old = new_node("old_$old_major", install => $from);
		my $checksums = one($old, 'SHOW data_checksums') eq 'on';
		my @extra = $major < 18 ? ($checksums ? '--data-checksums' : ()) : $checksums ? () : '--no-data-checksums';
		my $new = new_node("new_$old_major", init => [ extra => \@extra ], start => 0);
		my ($bin_old, $bin_new) = map { $_->config_data('--bindir') } $old, $new;
		my %token;

		like(one($old, 'SHOW server_version'), qr/^$old_major\D/, 'the old server runs');
		$token{held} = one($old, q{SELECT acquire_lock('held', '1 h', owner => 'me')});
		$token{lease} = one($old, q{SELECT grant_lease('1 h')});
		$token{leased} = one($old, "SELECT acquire_lock('leased', lease => $token{lease})");
		$token{permit} = one($old, q{SELECT acquire_permit('permits', 2, ttl => '1 h')});
		one($old, q{SELECT acquire_permit('permits', 2, ttl => '1 h')});
		$token{group} = one($old, q{SELECT acquire_locks(ARRAY['g1', 'g2'], '1 h')});
		one($old, q{SELECT FROM enqueue_lock('held', '1 h')}) foreach 1, 2;
		$token{term} = one($old, q{SELECT campaign('boss', 'alice', '1 h')});
		one($old, q{SELECT release_lock('closed', acquire_lock('closed'), hold_for => '1 h')});
		one($old, q{SELECT compare_and_set('key', 0, 'a'), compare_and_set('key', 1, 'b')});
		$old->safe_psql('postgres', q{CREATE TABLE product (name text, version int NOT NULL DEFAULT 1);
			CREATE TRIGGER guard BEFORE UPDATE ON product FOR EACH ROW EXECUTE FUNCTION version_guard();
			INSERT INTO product VALUES ('x'); UPDATE product SET name = 'y', version = 1});
		my $before = state_of($old, \%token);
		my $last = one($old, q{SELECT acquire_lock('last')});
		my $last_but_released = one($old, q{SELECT acquire_lock('released')});
		is(one($old, "SELECT release_lock('last', $last), release_lock('released', $last_but_released)"), 't|t', 'the two last locks are released');
		$old->stop;

		chdir $old->basedir;
		$new->command_ok([ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin_old, '-B', $bin_new,
				'-s', $old->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
		$new->start;
		wait_for_sql($new, 'SELECT count(*) = 1 FROM lock_election.manager');
		like(one($new, 'SHOW server_version'), qr/^$major\D/, 'the new server runs');
		is(state_of($new, \%token), $before, 'the state is the same after pg_upgrade');
		cmp_ok(one($new, q{SELECT acquire_lock('last')}), '>', $last_but_released, 'tokens grow');

		# All of it can be used.
		one($new, "SELECT release_lock('held', $token{held})");
		is(one($new, q{SELECT count(*) FROM lock_election.locks WHERE name = 'held' AND token > } . $token{held}), '1', 'the first place is granted');
		is(one($new, "SELECT resign('boss', $token{term})"), 't', 'the leader resigns');
		cmp_ok(one($new, q{SELECT campaign('boss', 'bob', '1 h')}), '>', $token{term}, 'terms grow');
		is(one($new, q{SELECT compare_and_set('key', 1, 'c') IS NULL, compare_and_set('key', 2, 'c')}), 't|3', 'versions continue');
		is(one($new, "SELECT keep_alive($token{lease}) IS NOT NULL, release_lock('g1', $token{group})"), 't|t', 'the lease is renewed, and the group is released');
		$new->restart;
		wait_for_sql($new, 'SELECT count(*) = 1 FROM lock_election.manager');
		is(one($new, "SELECT is_held('leased', $token{leased})"), 't', 'the lock is held after another restart');
		$new->stop;
	};
}
done_testing();
