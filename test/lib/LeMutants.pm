# Reads the list of mutants, test/mutants/list, whose format is explained at its top.
package LeMutants;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(read_mutants mutate needs slurp spew);

my @fields = qw(name story file tests);

sub slurp
{
	my ($file) = @_;
	local $/;

	open(my $in, '<', $file) or die "$file: $!\n";
	return <$in>;
}

sub spew
{
	my ($file, $text) = @_;

	open(my $out, '>', $file) or die "$file: $!\n";
	print $out $text;
	close($out) or die "$file: $!\n";
	return;
}

# Returns the needs of a test, from its line "# Needs: faults, lockctl".
sub needs
{
	my ($test) = @_;

	return $test eq 'sim' || slurp($test) !~ /^# Needs: (.*)$/m ? () : split /, /, $1;
}

# Returns a list of { name, story, file, tests => [..], timeout, old, new }. Dies if the list is malformed.
sub read_mutants
{
	my ($list) = @_;
	my (@mutants, %seen, $part);

	open(my $in, '<', $list) or die "$list: $!\n";
	while (my $line = <$in>)
	{
		if ($line =~ /^-- (old|new|end)$/)
		{
			$part = $1 eq 'end' ? undef : $1;
			$mutants[-1]{$part} = '' if $part;
		}
		elsif ($part) { $mutants[-1]{$part} .= $line; }
		elsif ($line =~ /^(\w+): +(.*\S)$/)
		{
			push @mutants, {} if $1 eq 'name';
			$mutants[-1]{$1} = $2;
		}
		elsif ($line !~ /^(#.*)?$/) { die "$list:$.: what is this?\n"; }
	}
	foreach my $m (@mutants)
	{
		my $name = $m->{name};

		defined $m->{$_} or die "$list: $name has no $_\n" foreach @fields, 'old', 'new';
		die "$list: $name is there twice\n" if $seen{$name}++;
		die "$list: $name changes nothing\n" if $m->{old} eq $m->{new};
		$m->{tests} = [ split ' ', $m->{tests} ];
	}
	return @mutants;
}

# Returns the text of the file with the fault. The old text must occur exactly once.
sub mutate
{
	my ($m, $text) = @_;
	my $found = () = $text =~ /\Q$m->{old}\E/g;

	die "mutant $m->{name}: its old text is in $m->{file} $found times, not once\n" if $found != 1;
	return $text =~ s/\Q$m->{old}\E/$m->{new}/r;
}

1;
