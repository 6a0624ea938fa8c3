# The list of mutants matches the code: each mutant can still be seeded, and names tests that exist. `make mutants`
# checks whether tests catch them. The list contains no mutant that the random mutations could produce.
# Promises: -
use strict;
use warnings;
use LeMutants;
use LeMutate;
use Test::More;

my (%text, %sites);

# Removes comments, whitespace and braces.
sub bare
{
	my ($code) = @_;

	return $code =~ s{/\*.*?\*/}{}gsr =~ s/[\s{}]//gr;
}

# Returns the operator of the random mutation that produces the same code as this mutant, or undef.
sub drawn_as
{
	my ($m, $mutated) = @_;
	my $text = $text{ $m->{file} } //= slurp($m->{file});
	my $at = index($text, $m->{old});

	$sites{ $m->{file} } //= [ sites($m->{file}, $text) ];
	foreach my $site (grep { $_->{pos} >= $at && $_->{pos} < $at + length($m->{old}) } @{ $sites{ $m->{file} } })
	{
		return $site->{operator} if bare(mutated($site, $text)) eq bare($mutated);
	}
	return undef;
}

foreach my $m (map { read_mutants($_) } 'test/mutants/list', glob 'clients/conformance/mutants-*.list')
{
	my $mutated = eval { mutate($m, slurp($m->{file})) };
	my @missing = grep { $_ ne 'sim' && !-f $_ } @{ $m->{tests} };

	is($@ . join(' ', @missing), '', "$m->{name}: $m->{story}");
	is(drawn_as($m, $mutated), undef, "$m->{name}: no random mutation produces it") if defined $mutated && $m->{file} =~ m{^src/.*\.c$};
}
done_testing();
