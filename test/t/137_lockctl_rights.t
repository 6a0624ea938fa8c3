# In a database without rights for everybody, the grants of the page on shared servers are sufficient for lockctl, the
# views, health() and programs with the library; and doctor distinguishes missing rights from problems that they hide.
# Promises: -
# Needs: client, lockctl
use strict;
use warnings;
use LeClient;
use LeCtl;
use LeDocs;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "fsync = on\n");
ctl_node($node);
my ($rc, $out, $err);

# Rights are revoked before and after the extension is created, as hardening guides recommend.
$node->safe_psql('postgres', 'CREATE ROLE workers; CREATE ROLE worker LOGIN IN ROLE workers; CREATE DATABASE hard');
my $hard = sub { return $node->safe_psql('hard', @_); };
$hard->(q{
	ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
	REVOKE ALL ON SCHEMA public FROM PUBLIC;
	CREATE SCHEMA locks;
	CREATE EXTENSION lock_election SCHEMA locks;
	REVOKE ALL ON SCHEMA locks, lock_election FROM PUBLIC;
	REVOKE ALL ON ALL TABLES IN SCHEMA lock_election FROM PUBLIC;
	REVOKE ALL ON ALL FUNCTIONS IN SCHEMA locks, lock_election FROM PUBLIC});

sub worker { return ctl({ env => { PGUSER => 'worker', PGDATABASE => 'hard' } }, @_); }

# Runs doctor; returns its exit code, the checks by result, and the text.
sub findings
{
	my ($rc, $out) = worker('doctor');
	my %is;

	push @{ $is{$1} }, $2 while $out =~ /^(ok|note|WRONG) +(\w+)/mg;
	return ($rc, { map { $_ => "@{ $is{$_} }" } keys %is }, $out);
}

my ($code, $found, $text) = findings();
is($code, 1, 'doctor of a role without any right exits with 1');
is_deeply([ @$found{qw(note WRONG)} ], [ 'manager rights waits counters', 'health' ],
	'doctor reports only checks that need the missing rights') or diag($text);
is(() = $text =~ /worker may not/g, 4, 'doctor names the role');
is(() = $text =~ /-> GRANT USAGE ON SCHEMA lock_election/g, 4, 'doctor advises GRANT USAGE');
unlike($text, qr/ALTER EXTENSION|max_worker_processes|none runs|no failed batch/,
	'doctor gives no advice that would not help');
like((worker('status'))[2], qr/permission denied/, 'status prints the error of the server');

# The statements of the page, unchanged.
my @blocks = map { $_->{text} } grep { $_->{section} eq 'Roles' && $_->{word} eq 'sql' && $_->{text} =~ /^GRANT (?:USAGE|EXECUTE)/m && $_->{text} !~ /acquire_report/ }
  blocks_of(slurp_file('docs/operation/shared-server.md'));
is(scalar(@blocks), 3, 'three lists of rights');
$hard->('GRANT USAGE ON SCHEMA locks TO workers');
$hard->("SET search_path = locks;\n" . s/^DO .*?^END \$\$;\n//smr) foreach @blocks[ 0, 1 ];
($code, $found, $text) = findings();
is_deeply([ $code, @$found{qw(note WRONG)} ], [ 1, 'manager waits counters', 'health' ], 'the rights of clients are not sufficient for all checks of doctor') or diag($text);
is(join('', worker(qw(lock --try x -- echo ran))), "0ran\n", 'the rights of clients are sufficient to lock');
$hard->($blocks[2]);
($code, $found, $text) = findings();
is_deeply([ $code, @$found{qw(note WRONG)} ], [ 0, undef, undef ],
	'with all rights, doctor reports no problem') or diag($text);

foreach my $case (
	[qw(lock --wait 60 x -- echo ran)], [qw(lock --shared x -- echo ran)], [qw(lock --and y x -- echo ran)], [qw(lock --try --permits 2 x -- echo ran)],
	[qw(lock --try --hold-for 1ms x -- echo ran)], [qw(elect --wait 60 x me -- echo ran)])
{
	is(join('', worker(@$case)), "0ran\n", "@$case");
}
foreach my $case (['locks'], ['waiters'], ['elections'], ['status'], [qw(watch --count 1)], [qw(lease list)])
{
	is((worker('-o', $_, @$case))[0], 0, "@$case as $_") foreach qw(table json csv);
}
foreach my $view (split /\n/, $hard->(q{SELECT viewname FROM pg_views WHERE schemaname = 'lock_election'}))
{
	is($hard->("SELECT count(*) >= 0 FROM lock_election.$view", connstr => $node->connstr('hard') . ' user=worker'), 't', "view $view");
}
is($hard->('SELECT ok FROM lock_election.health()', connstr => $node->connstr('hard') . ' user=worker'), 't', 'health()');
$ENV{LE_TEST_DIRECT} = $node->connstr('hard') . q{ options='-c search_path=locks,public'};
client_test('holds', $node->connstr('hard') . q{ user=worker options='-c search_path=locks'}, kinds => [any_kind()]);

# doctor prints the problem of health() unchanged, whatever its length.
subtest 'doctor follows health()' => sub {
	my $problem = 'a table is locked: ' . join ' ', map { "process $_" } 1 .. 300;

	$hard->("ALTER EXTENSION lock_election DROP FUNCTION lock_election.health(); ALTER FUNCTION lock_election.health() RENAME TO own_health;
		CREATE FUNCTION lock_election.health(OUT ok boolean, OUT problem text, OUT request_wait interval, OUT standby_wait interval, OUT blocked_by integer)
		LANGUAGE sql AS 'SELECT false, ''$problem'', NULL::interval, NULL::interval, NULL::integer';
		GRANT EXECUTE ON FUNCTION lock_election.health TO workers");
	($code, $found, $text) = findings();
	is_deeply([ $code, $found->{WRONG} ], [ 1, 'health' ], 'a problem of health() is the only one that doctor reports');
	like($text, qr/^WRONG +health +\Q$problem\E/m, 'doctor prints the whole problem');
	unlike($text, qr/\(null\)|waited for ,/, 'doctor does not print unknown values');
	$hard->('DROP FUNCTION lock_election.health(); ALTER FUNCTION lock_election.own_health() RENAME TO health; ALTER EXTENSION lock_election ADD FUNCTION lock_election.health()');
};

nothing_left($node);
$node->stop;
done_testing();
