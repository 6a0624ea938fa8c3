# The commands that .github and .devcontainer run exist; the workflow's matrix has all versions of PostgreSQL. If
# actionlint is installed, it accepts the workflow.
# Promises: -
use strict;
use warnings;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $file = '.github/workflows/ci.yml';
my $workflow = slurp_file($file);
my @versions = map { /^(\d+) (\S+)$/ ? { major => $1, suite => $2 } : () } split /\n/, slurp_file('test/postgresql-versions');

# The step that creates the matrix, run as in the workflow.
my ($step) = $workflow =~ /^      - id: list\n        run: \|\n((?: {10}.*\n)+)/m or die 'no step';
my $output = PostgreSQL::Test::Utils::tempdir() . '/output';
{
	local $ENV{GITHUB_OUTPUT} = $output;
	is(system('bash', '-e', '-c', $step), 0, 'the step runs');
}
my ($systems) = slurp_file($output) =~ /\Asystems=(.*)\n\z/ or die 'no output';
is_deeply(decode_json($systems), \@versions, 'one job for each version');

# Programs that the workflow runs, and variables that the script uses.
like(slurp_file('test/versions.sh'), qr/^SUITES=.*^COMMANDS=/ms, 'test/versions.sh has its variables');
ok(-x $_, "$_ is executable") foreach $workflow =~ m{\b(test/versions\.sh)$}m, $workflow =~ m{COMMANDS: (\S+)$}m;

my $container = decode_json(slurp_file('.devcontainer/devcontainer.json'));
ok(-e $_, "$_ exists") foreach $container->{onCreateCommand} =~ /TESTS=(\S+)/;

SKIP:
{
	skip 'actionlint is not installed', 1 if !grep { -x "$_/actionlint" } split /:/, $ENV{PATH};
	my $out;
	ok(IPC::Run::run([ 'actionlint', '-no-color', $file ], '>&', \$out), 'actionlint') or diag($out);
}

done_testing();
