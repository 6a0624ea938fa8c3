# The list of mutants keeps up with the code: each can still be seeded, and names tests that are there.
# Whether they are caught is seen by `make mutants`.
# Promises: -
use strict;
use warnings;
use LeMutants;
use Test::More;

foreach my $m (map { read_mutants($_) } 'test/mutants/list', glob 'clients/conformance/mutants-*.list')
{
	my $mutated = eval { mutate($m, slurp($m->{file})) };
	my @missing = grep { $_ ne 'sim' && !-f $_ } @{ $m->{tests} };

	is($@ . join(' ', @missing), '', "$m->{name}: $m->{story}");
}
done_testing();
