# The rights that the page on shared servers grants to a role are sufficient and necessary for lockctl and for programs
# with the library.
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

my $node = new_node('main');
ctl_node($node);
my @blocks = grep { $_->{section} eq 'Roles' && $_->{word} eq 'sql' } blocks_of(slurp_file('docs/operation/shared-server.md'));
my ($few, $all) = grep { $_->{text} =~ /^GRANT EXECUTE/m } @blocks;

$node->safe_psql('postgres', "CREATE ROLE workers;\n$few->{text}CREATE ROLE worker LOGIN IN ROLE workers");

sub as_worker { my ($rc, $out, $err) = ctl({ env => { PGUSER => 'worker' } }, @_); return "$rc $out$err"; }

sub sql_as_worker { return $node->safe_psql('postgres', $_[0], connstr => $node->connstr('postgres') . ' user=worker'); }

like(sql_as_worker(q{SELECT acquire_lock('x') IS NOT NULL}), qr/t/, 'the few rights are sufficient for acquire_lock()');
is(sql_as_worker(q{SELECT release_lock('x', token) FROM lock_election.locks}), 't',
	'the few rights are sufficient for release_lock()');
like(as_worker('lock', '--try', 'x', '--', 'true'), qr/^69 .*permission denied for function grant_lease/,
	'the few rights are not sufficient for lockctl');

$node->safe_psql('postgres', $all->{text});
foreach my $case (
	[qw(lock --try x -- echo ran)], [qw(lock --wait 60 x -- echo ran)], [qw(lock --shared x -- echo ran)],
	[qw(lock --permits 2 x -- echo ran)], [qw(elect --try x me -- echo ran)], [qw(elect --wait 60 x me -- echo ran)])
{
	is(as_worker(@$case), "0 ran\n", "lockctl @$case");
}
my (undef, $token) = split ' ', as_worker(qw(acquire x));
is(as_worker(qw(renew x), $token), "0 00:00:30\n", 'lockctl acquire and renew');
is(as_worker(qw(held x), $token), '0 ', 'lockctl held');
is(as_worker(qw(release x), $token), '0 ', 'lockctl release');
my (undef, $lease) = split ' ', as_worker(qw(lease grant));
like(as_worker(qw(lease ttl), $lease), qr/^0 00:0/, 'lease ttl');
like(as_worker(qw(lease keep-alive --once), $lease), qr/^0 00:01:00/, 'lease keep-alive');
is(as_worker(qw(lease revoke), $lease), '0 ', 'lease revoke');

# The tests of the library read all rows through this connection; only their sessions use the role.
$ENV{LE_TEST_DIRECT} = $node->connstr('postgres');
my $connstr = $node->connstr('postgres') . ' user=worker';
client_test('holds', $connstr, kinds => [any_kind()]);
client_test('runner', $connstr, kinds => [any_kind()]);
client_test('survive', $connstr, kinds => [any_kind()], do => server_control($node));
nothing_left($node);
$node->stop;
done_testing();
