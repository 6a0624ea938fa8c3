# The simulator of the core, with fixed seeds: a failure prints the seed that replays it.
use strict;
use warnings;
use Test::More;

plan skip_all => 'no simulator' unless -x 'build/sim';
my $steps = $ENV{STEPS} // 20000;
foreach my $seed (split ' ', $ENV{SEED} // '1 2 3 4 5 6 7 8')
{
	my $out = `build/sim --seed $seed --steps $steps 2>&1`;
	ok($? == 0, "seed $seed, $steps steps") or diag($out);
}
done_testing();
