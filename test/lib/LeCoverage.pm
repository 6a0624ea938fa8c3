# Which test files reach a line, according to the records of test/mutants/coverage.sh.
package LeCoverage;

use strict;
use warnings;

use Exporter 'import';
use LeMutants qw(slurp);
use LeMutate qw(code_of functions);

our @EXPORT = qw(read_coverage tests_for);

# Reads the records. Returns { dir, tests => { test => { seconds, rc, lines => { file => { line => 1 } } } },
#   reached => { file => { line => number of tests that reach it } } }
sub read_coverage
{
	my ($dir) = @_;
	my %of;

	foreach my $record (glob("$dir/*.lines"))
	{
		my ($head, @lines) = split(/\n/, slurp($record));
		my ($test) = $record =~ m{/([^/]+)\.lines$};

		$test =~ s{^test-(\w+)-}{test/$1/};
		next unless -e $test && $head =~ /^digest \w+ seconds ([\d.]+) rc (\d+)$/;
		$of{$test} = { seconds => $1, rc => $2 };
		foreach (@lines) { my ($file, @n) = split(/:? /); $of{$test}{lines}{$file} = { map { $_ => 1 } @n }; }
	}
	my %reached;
	foreach my $lines (map { $_->{lines} } values %of)
	{
		foreach my $file (keys %$lines) { $reached{$file}{$_}++ foreach keys %{ $lines->{$file} }; }
	}
	return { dir => $dir, tests => \%of, reached => \%reached };
}

# Finds the lines of the recorded sources that correspond to the site: those with the same text in its function. Returns
# them, and all lines of the function.
sub old_lines
{
	my ($coverage, $site, $text) = @_;
	my $file = "$coverage->{dir}/$site->{file}";
	my $old = -e $file ? slurp($file) : '';
	my @new = split(/\n/, $text);
	my @lines = statement_lines($site->{line}, \@new);

	return (\@lines, [ lines_of($site->{function}, $old) ]) if $old eq $text;
	my @of_old = split(/\n/, $old);
	my @function = lines_of($site->{function}, $old);
	return ([ grep { $of_old[ $_ - 1 ] eq $new[ $site->{line} - 1 ] } @function ], \@function);
}

sub lines_of
{
	my ($function, $text) = @_;
	my ($f) = grep { $_->{name} eq $function } functions(code_of($text));

	return () unless $f;
	my $first = 1 + (substr($text, 0, $f->{from}) =~ tr/\n//);
	return $first .. $first + (substr($text, $f->{from}, $f->{to} - $f->{from}) =~ tr/\n//);
}

# For a statement of several lines, the compiler counts the first line or any other one. Returns all of them.
sub statement_lines
{
	my ($line, $text) = @_;
	my @lines = ($line);

	push @lines, $lines[-1] - 1 while $lines[-1] > 1 && $text->[ $lines[-1] - 2 ] =~ /[^;{}:)\s]\s*$/ && $text->[ $lines[-1] - 2 ] !~ m{\*/\s*$};
	return @lines;
}

# Returns how specific a test is to a site: the sum over the reached lines of the file, and again of the function, of 1
# / number of tests that reach the line.
sub about
{
	my ($coverage, $test, $file, @function) = @_;
	my $mine = $coverage->{tests}{$test}{lines}{$file};
	my $reached = $coverage->{reached}{$file};
	my $sum = 0;

	$sum += 1 / $reached->{$_} foreach keys %$mine;
	$sum += 1 / $reached->{$_} foreach grep { $mine->{$_} } @function;
	return $sum;
}

# Returns the tests that reach the site's line; if there are none, those that reach its function; if there are none,
# those that reach its file, because lines reached by processes that are killed or call _exit() are not recorded. Tests
# that failed without a mutant are left out. Fast tests, and tests specific to this function and file, come first.
sub tests_for
{
	my ($coverage, $site, $text) = @_;
	my $tests = $coverage->{tests};
	my $file = $site->{file};
	my @passed = grep { !$tests->{$_}{rc} && $tests->{$_}{lines}{$file} } keys %$tests;
	my ($line, $function) = old_lines($coverage, $site, $text);

	foreach my $lines ($line, $function, undef)
	{
		my @found = grep { my $reached = $tests->{$_}{lines}{$file}; !$lines || grep { $reached->{$_} } @$lines } @passed;

		# The overhead of a test counts as five seconds.
		my %cost = map { $_ => (5 + $tests->{$_}{seconds}) / about($coverage, $_, $file, @$function)**2 } @found;

		return sort { $cost{$a} <=> $cost{$b} || $a cmp $b } @found if @found;
	}
	return ();
}

1;
