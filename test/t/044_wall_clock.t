# The server's clock is set a day forward and a day back: no lease ends early or late. Tokens do not go back when the
# server is started with a wrong clock.
# Promises: T, L
use strict;
use warnings;
use Cwd;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use constant DAY => 86_400;

# The servers add this offset in seconds to the time of day, see test/lib/clock.c.
my $dir = PostgreSQL::Test::Utils::tempdir();
my $clock = "$dir/clock";

system_or_bail('make', '-s', 'build/clock.so');

sub set_clock
{
	my $out;

	open($out, '+<', $clock) or open($out, '>', $clock) or die $!;
	syswrite($out, pack('q', $_[0])) == 8 or die $!;
	close($out);
	return;
}

my $node = new_node('main', start => 0);

sub start_behind
{
	my ($server) = @_;

	set_clock(-2 * DAY);
	return start_node($server);
}

sub start_node
{
	my $server = shift // $node;
	local $ENV{LD_PRELOAD} = getcwd() . '/build/clock.so';
	local $ENV{LE_CLOCK} = $clock;

	return $server->start;
}

sub days_off { return int((shift->query('SELECT extract(epoch FROM clock_timestamp())') - time) / DAY + 1000.5) - 1000; }

# Checks the time that the manager writes into a row, because it may differ from the time that sessions see.
sub manager_days_off
{
	my ($session) = @_;
	my $acquired = $session->query(q{SELECT extract(epoch FROM acquired_at) FROM _lock_election.slot WHERE name = 'stamp' AND mode <> 0})
	  if $session->query(q{SELECT acquire_lock('stamp', '1 h')});

	$session->query(q{SELECT force_release_lock('stamp')});
	return int(($acquired - time) / DAY + 1000.5) - 1000;
}

set_clock(0);
start_node();
$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');
my ($s, $waiter, $limited) = map { session($node) } 1 .. 3;
my $token = 0;

foreach my $days (1, 0, -1, 2)
{
	my $title = "the clock goes to day $days";
	my $highest = $token;

	$s->query(q{SELECT acquire_lock('limited', '10 min'); SELECT acquire_lock('bound', NULL)});
	my $start = time;
	$token = $s->query(q{SELECT acquire_lock('short', '5 s')});
	cmp_ok($token, '>', $highest, "$title: tokens increase");
	$waiter->async(q{SELECT acquire_lock('short', '10 min')});
	$limited->async(q{SELECT acquire_lock('limited', wait => '5 s')});
	wait_until(sub { $s->query('SELECT count(*) FROM lock_election.waiters') eq '2' }) or die 'the sessions do not wait';
	set_clock($days * DAY);
	is(days_off($s), $days, $title);
	is(manager_days_off($s), $days, "$title: the manager sees the same day");

	is($s->query("SELECT is_held('short', $token)"), 't', "$title: the lock is held");
	like($s->query("SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = 'short'"), qr/^[0-4]\./, "$title: time_left is the rest of the TTL");
	ok(!$waiter->ready && !$limited->ready, "$title: both sessions still wait");
	like($waiter->wait, qr/^\d+$/, "$title: the waiter is granted the lock");
	cmp_ok(time - $start, '>=', 5, "$title: the lock does not expire before its TTL");
	cmp_ok(time - $start, '<', 30, "$title: the lock expires soon after its TTL");
	is($limited->wait, '', "$title: a wait times out");
	cmp_ok(time - $start, '<', 30, "$title: the wait does not last much longer");
	is($s->query(q{SELECT release_lock('bound') AND release_lock('limited')}), 't',
		"$title: other locks are still held");
	$waiter->query(q{SELECT release_lock('short')});
}

# A crash, and a start with a clock of years before. The stored incarnation, which counts minutes, is ahead of that
# clock.
$_->quit foreach $s, $waiter, $limited;
$node->stop('immediate');
set_clock(-800 * DAY);
start_node();
cmp_ok($node->safe_psql('postgres', q{SELECT release_lock('late', token) AND token > } . "$token FROM acquire_lock('late') token"),
	'eq', 't', 'tokens increase after a crash, with a clock of years ago');
nothing_left($node);

# The clock is set back once more. A name that was closed before, and a name that a lock from before closes afterwards,
# must not stay closed for longer than requested.
$node->safe_psql('postgres', q{SELECT release_lock('closed', acquire_lock('closed'), '2 s')});
my $held = $node->safe_psql('postgres', q{SELECT acquire_lock('held', '10 min')});
$node->stop;
set_clock(-1200 * DAY);
start_node();
is($node->safe_psql('postgres', "SELECT release_lock('held', $held, '2 s')"), 't',
	'a lock acquired before the clock was set back is released');
foreach my $name ('closed', 'held')
{
	is($node->safe_psql('postgres', "SELECT release_lock('$name', acquire_lock('$name', wait => '20 s'))"), 't',
		"$name: the name opens in time");
}
nothing_left($node);

# Standbys whose clocks are two days behind are promoted after a restart of the primary that was not replicated. A
# standby knows the time of the primary's last commits or, if it was restarted since then, of its last checkpoint.
set_clock(0);
$node->stop;
my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");
my @standbys = map { PostgreSQL::Test::Cluster->new($_) } 'standby', 'restarted';
$primary->safe_psql('postgres', 'ALTER TABLE _lock_election.meta DISABLE TRIGGER USER; UPDATE _lock_election.meta SET incarnation = incarnation - 100000; ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_write; ALTER TABLE _lock_election.meta ENABLE ALWAYS TRIGGER refuse_row');
$primary->backup('base');
foreach my $standby (@standbys)
{
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	start_behind($standby);
}
$primary->safe_psql('postgres', q{SELECT acquire_lock('seen', '1 h')});
$primary->safe_psql('postgres', 'CHECKPOINT');
foreach my $standby (@standbys)
{
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	$standby->append_conf('postgresql.conf', q{primary_conninfo = ''});
	$standby->reload;
	wait_for_sql($standby, 'SELECT count(*) = 0 FROM pg_stat_wal_receiver');
}
$standbys[1]->stop;    # This creates a restartpoint.
start_behind($standbys[1]);
is($standbys[1]->safe_psql('postgres', 'SELECT pg_last_xact_replay_timestamp() IS NULL'), 't', 'the restarted standby has replayed no commit since its start');
$primary->restart;
$token = $primary->safe_psql('postgres', q{SELECT acquire_lock('lost', '1 h')});
$primary->stop;
foreach my $standby (@standbys)
{
	my $title = $standby->name;

	$standby->promote;
	wait_for_sql($standby, 'SELECT count(*) > 0 FROM lock_election.manager');
	cmp_ok($standby->safe_psql('postgres', q{SELECT extract(epoch FROM clock_timestamp())}), '<', time - DAY, "$title: the clock of the standby is behind");
	cmp_ok($standby->safe_psql('postgres', q{SELECT acquire_lock('lost', '1 h')}), '>', $token, "$title: tokens increase with the promotion");
	$standby->stop;
}
done_testing();
