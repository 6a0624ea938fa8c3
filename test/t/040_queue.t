# The queue for clients that do not block a connection: places keep their order beside blocked calls, last as long as they
# are asked for, survive a crash, and their grants are announced.
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\n");

sub one { return $node->safe_psql('postgres', $_[0]); }

sub manager_pid { return one('SELECT pid FROM lock_election.manager'); }

sub notifier_pid { return one(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election notifier'}); }

sub wait_for_waiters
{
	my ($n, $name) = @_;
	return wait_for_sql($node, "SELECT count(*) = $n FROM lock_election.waiters WHERE name = '$name'");
}

# Enters a queue; returns the token.
sub enqueue
{
	my ($s, $name, $more) = @_;
	return $s->query("SELECT token FROM enqueue_lock('$name'" . ($more // '') . ')');
}

sub await
{
	my ($s, $name, $token, $more) = @_;
	return $s->query("SELECT await_lock('$name', $token" . ($more // '') . ')');
}

# The tokens that have been announced to this session, in order.
sub announced
{
	my ($s) = @_;
	my $out = $s->query('SELECT 1');
	return map { /"token":"(\d+)"/ } grep { /^Asynchronous notification/ } split /\n/, $out;
}

sub wait_for_announced
{
	my ($s, $n) = @_;
	my @tokens;
	wait_until(sub { push @tokens, announced($s); return @tokens >= $n; }, 10);
	return @tokens;
}

sub end_all
{
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
	$_->quit foreach @_;
	nothing_left($node);
	is(one('SELECT count(*) FROM lock_election.queue'), '0', 'no row is left in the queue');
	return;
}

subtest 'enqueue and await' => sub {
	my ($holder, $s, $listener) = map { session($node) } 1 .. 3;
	my $free = $s->query(q{SELECT granted, queue_position, channel FROM enqueue_lock('free')});
	my $channel = one(q{SELECT 'le_' || left(encode(sha256(convert_to('lock x', 'UTF8')), 'hex'), 32)});

	like($free, qr/^t\|0\|le_[0-9a-f]{32}$/, 'a free lock is granted at once');
	is(one('SELECT count(*) FROM lock_election.queue'), '0', 'without a row in the queue');
	my $held = $holder->query(q{SELECT acquire_lock('x')});
	$listener->query("LISTEN $channel");
	my ($token, @place) = split /\|/, $s->query(q{SELECT * FROM enqueue_lock('x')});
	is("@place", "f 1 $channel", 'else there is a place, and a channel that anybody can compute');
	is(enqueue($s, 'x') > $token ? 't' : 'f', 't', 'the next has a higher token');
	is(one(q{SELECT string_agg(queue_position::text, ' ') FROM lock_election.waiters WHERE name = 'x'}), '1 2', 'the view shows both');
	is(await($s, 'x', $token), 'f', 'not yet');
	is($s->query("SELECT is_held('x', $token)"), 'f', 'a place is not held');
	$s->query("SELECT renew_lock('x', $token)");
	like($s->error, qr/55000/, 'and not renewed');
	$holder->query("SELECT release_lock('x', $held)");
	is(await($s, 'x', $token), 't', 'granted');
	is(await($s, 'x', $token), 't', 'as often as it is asked');
	is_deeply([ wait_for_announced($listener, 1) ], [$token], 'one grant, one notification');
	is($s->query("SELECT release_lock('x', $token)"), 't', 'released like any other');
	my $gone = await($s, 'x', $token);
	like($s->error, qr/LE001: token $token neither holds lock "x" nor waits/, 'then it is gone');
	end_all($holder, $s, $listener);
};

$node->stop;
done_testing();
