# A contributor can find the code: test/lib/answers has the answers to the questions of CONTRIBUTING.md, the map names
# each of their files, and there are few of these. docs/how-to/frameworks.md links examples that exist, and tests that run them.
# Promises: -
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;

# The map: the table in CONTRIBUTING.md, and docs/design/architecture.md.
my @map = qw(CONTRIBUTING.md docs/design/architecture.md);
my ($contributing, $architecture) = map { slurp_file($_) } @map;
my ($asked) = $contributing =~ /^## Can you find it\?\n(.*?)^## /ms;
my @questions = $asked =~ /^\d+\. (.*)$/mg;
my (%answers, %opened, $question);

foreach my $line (grep { !/^#/ } split /\n/, slurp_file('test/lib/answers'))
{
	if ($line =~ /^\t(\S+)\t(.+)$/) { push @{ $answers{$question} }, [ $1, $2 ]; }
	else { $question = $line; }
}
is(@questions, 12, 'questions');
is_deeply([ sort keys %answers ], [ sort @questions ], 'each has its answer, and no other one');

# "evict.t" is named by `055_evict.t` and by `test/t/055_evict.t`, in a table or in a picture
my ($table) = $contributing =~ /(^\| change \| see \|\n.*?)^$/ms;
my %named = map { s{.*/}{}r => 1 } "$table$architecture" =~ m{([\w/-]+\.(?:[cht]|sql))\b}g;

foreach my $question (@questions)
{
	foreach my $answer (@{ $answers{$question} // [] })
	{
		my ($file, $name) = @$answer;
		my $text = -f $file ? slurp_file($file) : '';
		# a function begins a line where it is defined
		my $found = $name =~ /^[a-z]\w*\($/ ? $text =~ /^\Q$name\E/m : index($text, $name) >= 0;

		ok($found, "$question $file has $name");
		ok($named{ $file =~ s{.*/}{}r }, "and the map names $file");
		$opened{$file} = 1;
	}
}
cmp_ok(@map + keys(%opened), '<=', 20, 'files to open for all of them');

# The page for users of a scheduler, framework or ORM: the test that a row links runs, or names, each program or module of
# the row; and no example of a framework is without a row.
my $page = 'docs/how-to/frameworks.md';
my (%shown, $rows);

foreach my $row (grep { /^\| / && !/^\| I use \|/ } split /\n/, slurp_file($page))
{
	my ($what, $how, $test) = $row =~ /^\| (.*?) \| (.*) \| (.*) \|$/;
	my ($by) = $test =~ /\]\(\.\.\/\.\.\/(\S+)\)$/;
	my @files = $how =~ /\]\(\.\.\/\.\.\/([^)#]+)(?:#[^)]*)?\)/g;

	$rows++;
	next if $test eq 'not run';
	ok($by && -f $by, "$page, $what: $test");
	foreach my $file (@files)
	{
		my ($name) = $file =~ m{([^/]+?)(?:/main\.go|\.\w+)?$};

		$shown{$file} = 1;
		ok(-e $file, "$file is there");
		# those of READMEs are run as blocks, and named by their first word
		$name = lc($what =~ /^(\w+)/ && $1) if $name eq 'README';
		ok(slurp_file($by) =~ /(?<![A-Za-z\d-])\Q$name\E(?![a-z])/, "$by names $name") if $by && -f $by;
	}
}
cmp_ok($rows, '>', 20, "$page has rows");
my $basic = qr{/(?:barrier|leader|minutely|fenced|worker|queue)\.(?:py|mjs)$};
ok($shown{$_}, "$page shows $_") foreach grep { !/$basic/ } glob('clients/{python,node}/examples/*.{py,mjs}'), 'clients/php/src/LockElectionStore.php';
done_testing();
