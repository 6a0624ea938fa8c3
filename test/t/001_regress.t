# The pg_regress and isolation tests, in a server of our own; `make installcheck` runs them on an existing one. Runs all
# tests or the given ones, after the one that prepares the database (0_).
# Promises: -
use strict;
use warnings;
use Cwd qw(cwd);
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Several of these tests may run at the same time.
my ($only) = map { m{([^/]+)\.\w+$} } @ARGV;
my $node = new_node(defined $only ? "main_$only" : 'main', extension => 0);

sub run_suite
{
	my ($dir, $suffix, $program, $database, $input_dir) = @_;
	my @names = map { m{([^/]+)\.\w+$} } grep { my $file = $_; !@ARGV || grep { $_ eq $file || $file =~ m{/0_} } @ARGV } grep { !/--/ } sort glob("$dir/*.$suffix");
	my $output_dir = PostgreSQL::Test::Utils::tempdir();
	return unless @names;

	my $out = `$program --inputdir=$input_dir --outputdir=$output_dir --bindir= --host=@{[ $node->host ]} --port=@{[ $node->port ]} --dbname=$database --load-extension=lock_election @names 2>&1`;
	foreach my $name (@names)
	{
		# "test x ... ok" before PostgreSQL 16, "ok 1 - x" since 16
		like($out, qr/^(?:test \Q$name\E +\.\.\. ok\b|ok \d+ +[-+] \Q$name\E\b)/m, "$dir/$name");
	}
	diag(-f "$output_dir/regression.diffs" ? slurp_file("$output_dir/regression.diffs") : $out) if $? != 0;
	return;
}

my $dir = $ENV{PG_REGRESS} =~ s{/regress/pg_regress$}{}r;
ok(1, 'the server is running');
run_suite('sql', 'sql', "$dir/regress/pg_regress", 'contrib_regression', '.');

# The isolation tests expect specs/ and expected/ in the same directory.
my $isolation_dir = PostgreSQL::Test::Utils::tempdir();
symlink(cwd() . '/test/specs', "$isolation_dir/specs") or die "symlink: $!";
symlink(cwd() . '/expected', "$isolation_dir/expected") or die "symlink: $!";
run_suite('test/specs', 'spec', "$dir/isolation/pg_isolation_regress", 'isolation_regression', $isolation_dir);
$node->stop;
done_testing();
