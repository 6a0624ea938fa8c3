# The state after a crash. A lease with a TTL of up to five minutes starts its TTL again, because renewals are not
# written; a longer lease keeps the time that was written last, so that restarts cannot keep a dead lease alive. Tokens
# are never assigned twice. A release may be undone, a grant never.
# Promises: T, D, L
use strict;
use warnings;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

# Times left are compared with what has passed by the clock of this test, however long that was.  Nobody but who has to
# flushes the log.
my $node = new_node('main', conf => "wal_writer_delay = 10s\nautovacuum = off\n");
my %token;

sub seconds_left
{
	return $node->safe_psql('postgres', "SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = '$_[0]'");
}

# Acquiring again, for less, writes the time that is left.
my $start = time;
$token{long} = $node->safe_psql('postgres', q{SELECT acquire_lock('long', '1 h', owner => 'me')});
$token{short} = $node->safe_psql('postgres', q{SELECT acquire_lock('short', '5 min', owner => 'me')});
$token{several} = $node->safe_psql('postgres', q{SELECT acquire_locks(ARRAY['several', 'others'], '1 h', owner => 'me')});
$token{changed} = $node->safe_psql('postgres', q{SELECT acquire_lock('changed', '1 min')});
$node->safe_psql('postgres', "SELECT renew_lock('changed', $token{changed}, '4 min')");
wait_until(sub { time > $start + 3 });
$node->safe_psql('postgres', q{SELECT acquire_lock('long', '10 min', owner => 'me')});
$node->safe_psql('postgres', q{SELECT acquire_lock('short', '4 min', owner => 'me')});
$node->safe_psql('postgres', q{SELECT acquire_locks(ARRAY['several', 'others'], '10 min', owner => 'me')});

$node->stop('immediate');
my $restarted = time;
$node->start;
is($node->safe_psql('postgres', "SELECT is_held('$_', $token{$_})"), 't', "$_ is held") foreach sort keys %token;
my %left = map { $_ => seconds_left($_) } qw(long several short changed);
my ($whole, $again) = map { time - $_ + 0.5 } $start, $restarted;
cmp_ok($left{long}, '<', 3600 - 2, 'the time left of an hour is not an hour');
cmp_ok($left{long}, '>', 3600 - $whole, 'but what was left');
cmp_ok($left{several}, '<', 3600 - 2, 'nor is that of several locks');
cmp_ok($left{several}, '>', 3600 - $whole, 'but what was left');
cmp_ok($left{short}, '>', 300 - $again, 'five minutes start anew');
cmp_ok($left{changed}, '>', 240 - $again, 'a TTL that was changed is the changed one');

# What was released a moment before is held to its TTL; not so what was handed on, and what nobody may get back.
subtest 'releases before a crash' => sub {
	my $s = session($node);
	my %held = (back => 1, later => 1);
	my %t = map { $_ => $s->query("SELECT acquire_lock('r $_')") } qw(back commit durable handed hold later);
	$t{long} = $s->query(q{SELECT acquire_lock('r long', '301 s')});

	# it looks every ten seconds, which may be just then
	stop_walwriter($node);

	$s->query("SET lock_election.durable_release = on; SELECT release_lock('r durable', $t{durable})");
	$s->query('RESET lock_election.durable_release');
	is($s->query("SELECT release_lock('r handed', $t{handed})"), 't', 'released');
	my $next = $s->query(q{SELECT acquire_lock('r handed')});
	$s->query("SELECT release_lock('r hold', $t{hold}, hold_for => '1 h')");
	$s->query("SELECT release_lock('r long', $t{long})");
	$s->query("BEGIN; CREATE TEMP TABLE t (); SELECT release_lock('r commit', $t{commit}); COMMIT");
	is($s->query("SELECT release_lock('r $_', $t{$_})"), 't', "$_: released") foreach qw(back later);
	is($s->query("SELECT is_held('r $_', $t{$_})"), 'f', "$_: for now") foreach sort keys %t;
	$node->stop('immediate');
	$s->quit;
	$node->start;
	foreach my $name (sort keys %t)
	{
		next if $name eq 'commit';    # its COMMIT may have flushed the release, or not
		is($node->safe_psql('postgres', "SELECT is_held('r $name', $t{$name})"), $held{$name} ? 't' : 'f', "$name: after the crash");
	}
	is($node->safe_psql('postgres', "SELECT is_held('r handed', $next)"), 't', 'the next holder holds on');
	is($node->safe_psql('postgres', q{SELECT try_acquire_lock('r hold') IS NULL}), 't', 'hold_for holds on');
	$node->safe_psql('postgres', q{SELECT force_release_lock(name) FROM lock_election.locks WHERE name LIKE 'r %'});
};

# Of those who stood for election until a moment before: nobody asks them whether they still would.
subtest 'candidates that have withdrawn before a crash' => sub {
	my $s = session($node);
	my $leader = $s->query(q{SELECT campaign('e', 'leader', '1 min')});
	my %ttl = (back => '1 min', durable => '1 min', long => '301 s');
	my %term = map { $_ => $s->query("SELECT term FROM enqueue_candidate('e', '$_', '$ttl{$_}')") } sort keys %ttl;

	is($s->query("SELECT resign('e', $term{long})"), 't', 'withdrawn: a long TTL');
	is($s->query("SET lock_election.durable_release = on; SELECT resign('e', $term{durable})"), 't', 'with durable_release');
	stop_walwriter($node);
	is($s->query("RESET lock_election.durable_release; SELECT resign('e', $term{back})"), 't', 'with neither');
	is($s->query('SELECT count(*) FROM lock_election.waiters'), '0', 'nobody waits');
	$node->stop('immediate');
	$s->quit;
	$node->start;
	is($node->safe_psql('postgres', 'SELECT string_agg(token::text, $$ $$) FROM lock_election.waiters'), $term{back}, 'one is back after the crash');
	is($node->safe_psql('postgres', "SELECT resign('e', $leader); SELECT candidate, term, valid_for > '50 s' FROM current_leader('e')"),
		"t\nback|$term{back}|t", 'and is elected, for its TTL');
	is($node->safe_psql('postgres', q{SELECT force_resign('e')}), '1', 'until somebody ends it');
};

# Each start takes a new incarnation, whatever was before it.
sub next_token { return $node->safe_psql('postgres', q{SELECT acquire_lock('token', wait => '0')}) || die; }

my $last = $token{changed};
foreach my $how ('immediate', 'fast', 'immediate')
{
	$node->stop($how);
	$node->start;
	$node->safe_psql('postgres', q{SELECT force_release_lock('token')});
	my $next = next_token();
	cmp_ok($next >> 28, '>', $last >> 28, "a start after '$how' takes a new incarnation");
	$last = $next;
}

# A row keeps the session and the transaction that it was written in. After a restart others have their process numbers,
# count their transactions from the first again, and roll back: beside a manager that has loaded the rows meanwhile.
subtest 'transactions of an earlier life' => sub {
	my @sessions = map { session($node) } 1 .. 10;

	$sessions[$_]->query("SELECT acquire_lock('kept $_', '1 h')") foreach 0 .. 9;
	$_->quit foreach @sessions;
	$node->restart;
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	@sessions = map { session($node) } 1 .. 10;
	$sessions[$_]->query("BEGIN; SELECT acquire_lock('undone $_', '1 h')") foreach 0 .. 9;
	my $pid = $node->safe_psql('postgres', 'SELECT pid FROM lock_election.manager');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_for_sql($node, "SELECT pid <> $pid FROM lock_election.manager");
	$_->query('ROLLBACK') foreach @sessions;
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks WHERE name LIKE 'undone%'});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM lock_election.locks WHERE name LIKE 'kept%'}), 10, 'end nothing of ours');
	$_->quit foreach @sessions;
};
$node->stop;
done_testing();
