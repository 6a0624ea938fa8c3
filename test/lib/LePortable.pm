# Runs the checks of the C edition's contract on the portable edition: pgTAP scripts, and regression tests with their
# expected files, each in a fresh database of a running server.  Parts for one edition only are left out.
package LePortable;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();

our @EXPORT = qw(common_part contract_files contract_broken);

# Returns the pgTAP scripts and the regression tests.
sub contract_files { return (sort(glob 'test/pgtap/*.sql'), grep { !/--/ } sort glob 'sql/*.sql'); }

# Returns the part of a file that applies to both editions.
sub common_part
{
	my ($path) = @_;
	my $part = '';

	IPC::Run::run([ 'test/lib/portable-part', $path ], '>', \$part) or die "$path: malformed";
	return $part;
}

sub run_psql
{
	my ($connstr, $sql, @options) = @_;
	my $out = '';
	local $SIG{PIPE} = 'IGNORE'; # psql may end before it has read everything

	eval { IPC::Run::run([ 'psql', '-X', @options, '-d', $connstr ], '<', \$sql, '>&', \$out); 1 } or $out .= "ERROR:  $@";
	return $out;
}

# Runs one file in a database that has the edition. Returns the differences or failures, or ''.
sub contract_broken
{
	my ($connstr, $file) = @_;

	if ($file =~ /pgtap/)
	{
		run_psql($connstr, 'CREATE EXTENSION pgtap', '-q');
		my @lines = split /\n/, run_psql($connstr, common_part($file), '-q', '-v', 'ON_ERROR_STOP=1');
		my $bad = join '', map { "$_\n" } grep { /^ ?not ok|ERROR:|^#/ } @lines;

		return $bad || (10 > grep({ /^ ?ok / } @lines) ? "few checks\n" : '');
	}

	# Same settings as pg_regress.
	local @ENV{qw(PGTZ PGDATESTYLE PGOPTIONS)} = ('PST8PDT', 'Postgres, MDY', ($ENV{PGOPTIONS} // '') . ' -c intervalstyle=postgres_verbose');
	my $expected = common_part('expected/' . $file =~ s{.*/|\.sql$}{}gr . '.out');
	my $results = run_psql($connstr, common_part($file), '-aq');
	return '' if $results eq $expected;
	my ($diff, $dir) = ('', $ENV{TMPDIR} // '/tmp');
	foreach my $side ([ expected => $expected ], [ results => $results ])
	{
		open my $f, '>', "$dir/$side->[0].$$" or die $!;
		print $f $side->[1];
		close $f;
	}
	IPC::Run::run([ 'diff', '-U3', "$dir/expected.$$", "$dir/results.$$" ], '>', \$diff);
	unlink "$dir/expected.$$", "$dir/results.$$";
	return $diff;
}

1;
