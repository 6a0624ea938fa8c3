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
is(@questions, 12, 'CONTRIBUTING.md asks 12 questions');
is_deeply([ sort keys %answers ], [ sort @questions ],
	'test/lib/answers has an answer to each question, and no others');

# "evict.t" is named by `055_evict.t` and by `test/t/055_evict.t`, in a table or in a picture.
my ($table) = $contributing =~ /(^\| change \| see \|\n.*?)^$/ms;
my %named = map { s{.*/}{}r => 1 } "$table$architecture" =~ m{([\w/-]+\.(?:[cht]|sql))\b}g;

foreach my $question (@questions)
{
	foreach my $answer (@{ $answers{$question} // [] })
	{
		my ($file, $name) = @$answer;
		my $text = -f $file ? slurp_file($file) : '';
		# The definition of a function begins a line.
		my $found = $name =~ /^[a-z]\w*\($/ ? $text =~ /^\Q$name\E/m : index($text, $name) >= 0;

		ok($found, "$question $file contains $name");
		ok($named{ $file =~ s{.*/}{}r }, "the map names $file");
		$opened{$file} = 1;
	}
}
cmp_ok(@map + keys(%opened), '<=', 20, 'few files must be opened to answer all questions');

# The page for users of a scheduler, framework or ORM. The test that a row links must run or name each program or module
# of the row, and each example of a framework must have a row.
my $page = 'docs/how-to/frameworks.md';
my (%shown, $rows);

foreach my $row (grep { /^\| / && !/^\| I use \|/ } split /\n/, slurp_file($page))
{
	my ($what, $how, $test) = $row =~ /^\| (.*?) \| (.*) \| (.*) \|$/;
	my ($by) = $test =~ /\]\(\.\.\/\.\.\/(\S+)\)$/;
	my @files = $how =~ /\]\(\.\.\/\.\.\/([^)#]+)(?:#[^)]*)?\)/g;

	$rows++;
	next if $test eq 'not run';
	ok($by && -f $by, "$page, $what: the linked test exists: $test");
	foreach my $file (@files)
	{
		my ($name) = $file =~ m{([^/]+?)(?:/main\.go|\.\w+)?$};

		$shown{$file} = 1;
		ok(-e $file, "$file exists");
		# A README is run block by block; the test names it by the first word of the row.
		$name = lc($what =~ /^(\w+)/ && $1) if $name eq 'README';
		ok(slurp_file($by) =~ /(?<![A-Za-z\d-])\Q$name\E(?![a-z])/, "$by names $name") if $by && -f $by;
	}
}
cmp_ok($rows, '>', 20, "$page has more than 20 rows");
my $basic = qr{/(?:barrier|leader|minutely|fenced|worker|queue)\.(?:py|mjs)$};
ok($shown{$_}, "$page links $_") foreach grep { !/$basic/ } glob('clients/{python,node}/examples/*.{py,mjs}'), 'clients/php/src/LockElectionStore.php';
done_testing();
