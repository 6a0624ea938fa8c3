# The page on clients is the output of its generator for the recorded run. The generator detects a scenario without a
# row, a feature without a scenario, and a missing test. All clients describe a lost lock with the texts of the
# protocol.
# Promises: -
# Needs: python3
use strict;
use warnings;
use Cwd;
use File::Path qw(make_path);
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'Python 3.11 is needed' if system('python3 -c "import tomllib" 2>/dev/null');

my $here = 'clients/conformance';
my $suite = getcwd() . "/$here";

my ($page, $problems) = run_command([ 'python3', "$here/table.py" ]);
is($problems, '', 'the generator finds evidence for each claim of features.toml');
is(slurp_file('docs/reference/clients.md'), "$page\n", 'docs/reference/clients.md is the output of `make client-table`');

my @wrong = (
	[ 'a scenario without a row', 'scenarios/more.toml', sub { "[more]\n" }, 'scenario more has no row in features.toml' ],
	[ 'a row with an unknown scenario', 'features.toml', sub { $_[0] =~ s/"grant", /"grant", "gone", /r }, 'features.toml: there is no scenario gone' ],
	[ 'a missing test', 'features.toml', sub { $_[0] =~ s/010_waits/010_gone/r }, 'features.toml, lock, sql: there is no test test/t/010_gone.t' ],
	[ 'a missing test of a client', 'features.toml', sub { $_[0] =~ s/orm_test/orm_gone/r }, 'features.toml, orm, go: there is no test clients/go/examples/orm/orm_gone.go' ],
	[ 'an unknown key', 'features.toml', sub { $_[0] =~ s/^lockctl =/lockclt =/mr }, q{features.toml, lock: what is ['lockclt']?} ],
	[ 'a client without a run', 'recorded.json', sub { $_[0] =~ s/^ +"go": .*\n//mr }, 'recorded.json has no run of go' ],
	[ 'a client without a run on the portable edition', 'recorded-portable.json', sub { $_[0] =~ s/^ +"go": .*\n//mr }, 'recorded-portable.json has no run of go' ],
	[ 'a feature that no client has passed', 'recorded.json', sub { $_[0] =~ s/^( +"fork": .*)/$1 =~ s{"passed"}{"not supported"}gr/emr }, 'features.toml, fork: no client has passed its scenarios' ],
	[ 'a failed scenario', 'recorded.json', sub { $_[0] =~ s/^( +"fork": .*"python-sync": )"passed"/$1"failed"/mr }, 'recorded.json: python-sync has failed fork' ],
);

foreach my $case (@wrong)
{
	my ($name, $file, $change, $problem) = @$case;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	make_path("$dir/$here");
	symlink(getcwd() . "/$_", "$dir/$_") or die $! foreach 'test', grep { $_ ne $here } glob 'clients/*';
	system_or_bail('cp', '-r', "$suite/$_", "$dir/$here") foreach qw(features.toml recorded.json recorded-portable.json scenarios);
	my $old = -e "$dir/$here/$file" ? slurp_file("$dir/$here/$file") : '';
	my $new = $change->($old);
	isnt($new, $old, "$name: the file is changed");
	unlink "$dir/$here/$file";
	append_to_file("$dir/$here/$file", $new);
	my ($out, $err) = run_command([ 'python3', "$here/table.py", $dir ]);
	is($err, $problem, "$name: the generator reports the problem");
	is($out, '', "$name: no page is printed");
}

# The rows of the table match the record.
my $record = decode_json(slurp_file("$here/recorded.json"));
foreach my $case ([ fork => 'A forked child' ], [ grant => 'Exclusive locks: one holder' ])
{
	my ($scenario, $words) = @$case;
	my ($row) = $page =~ /^- \Q$words\E(.*?)(?=^- |^$)/ms;
	my ($without) = $row =~ /\(no: ([^;)]*)/;
	my %without = map { $_ => 1 } split /,\s+/, $without // '';

	foreach my $client ([ c => 'C' ], [ go => 'Go' ], [ java => 'Java' ], [ node => 'Node.js' ])
	{
		my ($tag, $name) = @$client;

		is($without{$name} // 0, $record->{scenarios}{$scenario}{$tag} eq 'passed' ? 0 : 1, "$scenario, $tag");
	}
}

# The merged record consists of complete runs: a client that fails, or does not run all scenarios, keeps its previous
# run.
my $merge = <<'PYTHON';
import sys
sys.path.insert(0, "clients/conformance/harness")
import record
def run(client, **results):
    return [{"client": client, "mode": None, "version": "2", "scenario": s, "result": r} for s, r in results.items()]
old = record.merge({}, run("c", a="passed", b="passed") + run("go", a="passed", b="not supported"), ["a", "b"], "15.1", "old")
new = record.merge(old, run("c", a="passed", b="failed") + run("go", a="passed", b="passed") + run("java", a="passed"),
                   ["a", "b"], "15.2", "new")
print({tag: run["date"] for tag, run in new["runs"].items()}, new["scenarios"])
PYTHON
my ($merged, $error) = run_command([ 'python3', '-c', $merge ]);
is($error, '', 'the records are merged without an error');
is($merged,
	"{'c': 'old', 'go': 'new'} {'a': {'c': 'passed', 'go': 'passed'}, 'b': {'c': 'passed', 'go': 'passed'}}",
	'only clients with a complete run get a new record');

# The texts of rule 10.4, or their beginnings if the code composes the rest.
my ($rule) = slurp_file('docs/reference/client-protocol.md') =~ /^- \*\*10\.4\*\* (.*?)(?=^- |^$)/ms;
my @texts = $rule =~ /`([^`]+)`/g;
is(scalar(@texts), 4, 'rule 10.4 has four texts for a lost lock');
foreach my $sources ('src/client/*.c', 'clients/python/src/lock_election/*.py', 'clients/go/*.go', 'clients/node/src/*.ts',
	'clients/java/core/src/main/java/lockelection/*.java', 'clients/ruby/lib/lock_election/*.rb', 'clients/rust/src/*.rs')
{
	my $code = join '', map { slurp_file($_) } grep { !/_test\.go$/ } glob $sources;
	my @missing = grep { index($code, substr($_, 0, 20)) < 0 } @texts;
	is("@missing", '', "$sources: contains the texts of rule 10.4");
}

done_testing();
