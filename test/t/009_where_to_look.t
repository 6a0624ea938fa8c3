# A contributor can find the code: test/lib/answers has the answers to the questions of CONTRIBUTING.md, the map names
# each of their files, and there are few of these.
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
done_testing();
