# Which test files reach a line, by what test/mutants/coverage.sh has recorded.
package LeCoverage;

use strict;
use warnings;

use Exporter 'import';
use LeMutants qw(slurp);
use LeMutate qw(code_of functions);

our @EXPORT = qw(read_coverage tests_for);

# A hash of { test => { seconds, rc, lines => { file => { line => 1 } } } }
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
	return { dir => $dir, tests => \%of };
}

# The line of the recorded sources that this one was: by its text, in its function; else all lines of the function.
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

# The compiler counts for a statement of several lines the first of them, or any.
sub statement_lines
{
	my ($line, $text) = @_;
	my @lines = ($line);

	push @lines, $lines[-1] - 1 while $lines[-1] > 1 && $text->[ $lines[-1] - 2 ] =~ /[^;{}:)\s]\s*$/ && $text->[ $lines[-1] - 2 ] !~ m{\*/\s*$};
	return @lines;
}

# The tests that reach the site's line, else those that reach its function, else those that reach its file: what
# processes reach that are killed, or call _exit(), is not recorded.  Those that failed without a mutant are left out.
# The quick ones first, and those that are about this file: they reach more of its lines than others do.
sub tests_for
{
	my ($coverage, $site, $text) = @_;
	my $tests = $coverage->{tests};
	my @passed = grep { !$tests->{$_}{rc} && $tests->{$_}{lines}{ $site->{file} } } keys %$tests;

	foreach my $lines (old_lines($coverage, $site, $text), undef)
	{
		my @found = grep { my $reached = $tests->{$_}{lines}{ $site->{file} }; !$lines || grep { $reached->{$_} } @$lines } @passed;

		my %cost = map { $_ => $tests->{$_}{seconds} / keys(%{ $tests->{$_}{lines}{ $site->{file} } })**2 } @found;

		return sort { $cost{$a} <=> $cost{$b} || $a cmp $b } @found if @found;
	}
	return ();
}

1;
