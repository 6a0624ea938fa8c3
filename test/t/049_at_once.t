# A process that is woken up continues immediately, not only at its next timeout.
# Promises: -
use strict;
use warnings;
use LeTest;
use Test::More;

my $node = new_node('main', conf => "autovacuum = off\nfsync = off\n");
my ($s, $holder) = map { session($node) } 1 .. 2;

# In milliseconds. A process that has just begun to sleep checks for work by itself after 50 ms, other processes later.
# On a busy machine, many tries are slow, but not all.
use constant AT_ONCE => 25;

sub quickest
{
	my ($test_name, $measure) = @_;
	my $quickest;

	foreach my $try (1 .. 100)
	{
		my $ms = $measure->();
		$quickest = $ms if !defined $quickest || $ms < $quickest;
		last if $quickest < AT_ONCE;
	}
	cmp_ok($quickest, '<', AT_ONCE, $test_name);
	return;
}

# Returns SQL that runs a statement and returns its duration in milliseconds, measured by the server.
sub timed { return "DO \$\$ DECLARE start timestamptz := clock_timestamp(); BEGIN $_[0] PERFORM set_config('test.ms', (1000 * extract(epoch FROM clock_timestamp() - start))::text, false); END \$\$; SELECT current_setting('test.ms')"; }

# Requests to a manager that has just begun to sleep, nine of ten.
my $request = q{PERFORM is_held('x', 1); };
quickest('a request wakes up the manager immediately', sub { return $s->query(timed($request x 10)) / 9; });

# A session that has just begun to wait, because the lock is held for 5 ms. A try in which it did not wait does not
# count.
quickest(
	'a grant wakes up the waiter immediately',
	sub {
		my $token = $holder->query(q{SELECT acquire_lock('x', '1 h')});

		$s->async(timed(q{PERFORM acquire_lock('x', '1 h'); }));
		$holder->query("DO \$\$ BEGIN PERFORM pg_sleep(0.005); PERFORM release_lock('x', $token); END \$\$");
		my $ms = $s->wait;
		$s->query(q{SELECT release_lock('x')});
		return $ms > 2 ? $ms : 1000;
	});

$_->quit foreach $s, $holder;
nothing_left($node);
$node->stop;
done_testing();
