# Runs the simulator of the core: fixed seeds, new seeds, some of the interleavings of tiny worlds, and seeded faults
# that it must find. SIM_SECONDS is the duration; default: a minute in all. A failure is shown with the shortest history
# that was found, and the command that reproduces it.
# Promises: M, T, Q, R, W, D, E, L, G
# Needs: simulator
use strict;
use warnings;
use LeTest;
use Test::More;
use Time::HiRes qw(time);

plan skip_all => 'no simulator' unless -x 'build/sim' && -x 'build/sim-fast';

my $seconds = $ENV{SIM_SECONDS} // budget(60);
my $fresh = int(time() * 1000) % 2**40;

# Runs the simulator, checks its exit status, and shows its output if it fails.
sub sim
{
	my ($name, $program, @args) = @_;
	my $out = `$program @args 2>&1`;

	ok($? == 0, $name) or diag($out);
	return $out;
}

# The runs are limited by time, so that a slow machine does fewer worlds instead of taking longer.
my $out = sim('fixed seeds, under sanitizers', 'build/sim', '--seed 1 --seeds 1000000 --steps 20000 --seconds', $seconds * 0.3);
note((() = $out =~ /^seed/mg) . ' worlds');
$out = sim("fresh seeds from $fresh on", 'build/sim-fast', "--seed $fresh --seeds 1000000 --steps 20000 --seconds", $seconds * 0.3);
note((() = $out =~ /^seed/mg) . ' worlds');
$out = sim('fresh seeds, work in steps', 'build/sim-fast', "--no-model --seed $fresh --seeds 1000000 --steps 20000 --seconds", $seconds * 0.15);
note((() = $out =~ /^seed/mg) . ' worlds');
note(sim('some interleavings of tiny worlds', 'build/sim-fast', "--exhaustive --every 500 --seed $fresh --seconds", $seconds * 0.25));

sim('worlds that once failed, under sanitizers', 'build/sim', '--seed 2 --only 3-5');

# Seeded faults: a store that loses rows, and a waiter that is not woken up. The simulator must find them, and must
# reduce the thousands of steps to a few.
foreach my $what (qw(row wake-up))
{
	foreach my $model ('', '--no-model')
	{
		$out = `build/sim-fast $model --break $what --steps 20000 --seeds 20 2>&1`;
		is($? >> 8, 1, "the simulator finds the fault: $what $model");
		my ($steps) = $out =~ /^minimised to (\d+) steps/m;
		SKIP:
		{
			skip 'no time to minimise the history', 1 if $out =~ /, not to the end$/m;
			cmp_ok($steps // 99, '<=', 80, "the minimised history is short: $what $model") or diag($out);
		}
		my ($command) = $out =~ /^to see it again: (.*)/m;
		my ($failure) = $out =~ /\n(seed [^\n]*)\nto see it again/;
		my $again = `$command --no-minimise 2>&1`;
		is($? >> 8, 1, "the printed command reproduces the failure: $what $model");
		like($again, qr/^\Q$failure\E$/m, "the reproduced failure is the same: $what $model");
	}
}
done_testing();
