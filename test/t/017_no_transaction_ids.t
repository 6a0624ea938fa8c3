# PostgreSQL assigns no transaction IDs: renewals and reads succeed, whatever their sessions requested before, requests
# that must write fail, health() reports the reason, and everything continues after a VACUUM.
# Promises: A, D, L
# Needs: faults
use strict;
use warnings;
use LePoints;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', faults => 1, conf => "autovacuum = off\nwal_level = logical\n");
my ($holder, $other, $free);
my $problem = q{SELECT problem LIKE 'nothing can be written: the database assigns no transaction IDs%', cannot_write_since IS NOT NULL
	FROM lock_election.health()};

# Leave ids for a few hundred transactions. The replication slot prevents VACUUM from making more available.
one(q{SELECT FROM pg_create_logical_replication_slot('keeps', 'pgoutput')});
my $mine = one(q{SELECT acquire_lock('mine', '4 s', owner => 'me')});
my $long = one(q{SELECT acquire_lock('long', '1 h', owner => 'me')});
my $next = one(q{SELECT min(datfrozenxid::text::bigint) FROM pg_database}) + 2**31 - 3_000_000 - 500;
$node->stop('fast');
open my $clog, '>', $node->data_dir . sprintf('/pg_xact/%04X', $next / 2**20) or die $!;
print $clog "\0" x 2**18;
close $clog;
system_or_bail('pg_resetwal', '-x', $next, $node->data_dir);
$node->start;
($holder, $other, $free) = map { session($node) } 1 .. 3;
points_by(\$free);

my ($start, $renewed, $refused) = (time, 0, 0);
while (!$refused && time - $start < $PostgreSQL::Test::Utils::timeout_default)
{
	$holder->query("SELECT renew_lock('mine', $mine), renew_lock('long', $long)");
	$other->query(q{BEGIN; CREATE TEMP TABLE t(); ROLLBACK; SELECT release_lock('y', acquire_lock('y', '1 h'))}) foreach 1 .. 20;
	$refused = $other->error =~ /ERROR:  54000/;
}
ok($refused, 'the server has run out of transaction ids');
is(one($problem), 't|t', 'health() reports the missing transaction ids');
($start, $refused) = (time, 0);
while (time - $start < 9)
{
	$renewed++ if $holder->query("SELECT renew_lock('mine', $mine) = '4 s', renew_lock('long', $long) = '1 h', is_held('long', $long)") eq 't|t|t';
	$other->query(q{SELECT acquire_lock('z', '1 h')});
	$refused++ if $other->error =~ /ERROR:  54000/;
}
cmp_ok($refused, '>', 1, 'requests that must write fail');
is($renewed, $refused, 'renewals and reads succeed each time');

# The manager has replied to a renewal and is about to reject other requests when the next renewal arrives.
stop_at('outage-looked');
is($holder->query("SELECT renew_lock('mine', $mine)"), '00:00:04', 'a renewal succeeds');
stopped('outage-looked');
$holder->async("SELECT renew_lock('mine', $mine)");
asking($holder);
go_on('outage-looked');
is($holder->wait, '00:00:04', 'a renewal that arrives during the outage check is not rejected') or diag $holder->error;

# The backend rings after its request has already got the reply, so the manager looks at its mailbox again. The next
# renewal takes its time before that look, and is posted after it.
stop_at('request-before-ring', $holder->pid);
$holder->async("SELECT renew_lock('mine', $mine)") for 1, 2;
stopped('request-before-ring');
stop_at('outage-looked');
stopped('outage-looked');
go_on('outage-looked');
stop_at('manager-took');
stop_at('request-timed', $holder->pid);
go_on('request-before-ring');
stopped($_) foreach 'manager-took', 'request-timed';
stop_at('outage-looked');
go_on('manager-took');
stopped('outage-looked');
go_on('request-timed');
asking($holder);
go_on('outage-looked');
foreach my $renewal ('a renewal with a reply before its ring', 'a renewal posted after the look')
{
	is($holder->wait, '00:00:04', "$renewal is not rejected") or diag $holder->error;
}

one(q{SELECT pg_drop_replication_slot('keeps')});
$node->psql($_, 'VACUUM FREEZE') foreach qw(postgres template1);
wait_until(
	sub {
		$holder->query("SELECT renew_lock('mine', $mine)");
		return one(q{SELECT ok FROM lock_election.health()}) eq 't';
	});
is($other->query(q{SELECT release_lock('z', acquire_lock('z', wait => '20 s'))}), 't',
	'an acquire succeeds after VACUUM');
is($holder->query("SELECT is_held('mine', $mine), is_held('long', $long)"), 't|t', 'the renewed locks are still held');
is($holder->query("SELECT release_lock('mine', $mine), release_lock('long', $long)"), 't|t',
	'the renewed locks are released');
nothing_left($node);
$_->quit foreach $holder, $other, $free;
done_testing();
