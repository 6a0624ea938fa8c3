# The plots are what bench/plot.py draws from the recorded data, without texts that overlap, and they are dark where the page
# is.
# Promises: -
# Needs: python3-matplotlib
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $python = '/usr/bin/python3';
my ($version) = run_command([ $python, '-c', 'import matplotlib; print(matplotlib.__version__)' ]);
plan skip_all => 'python3-matplotlib is not installed' if $version eq '';

my $dir = PostgreSQL::Test::Utils::tempdir();
my @drawn;

sub draw
{
	my (@arguments) = @_;
	my ($out, $err) = run_command([ $python, 'bench/plot.py', @arguments ]);

	is($err, '', "@arguments: no texts overlap");
}

foreach my $results ('bench/results', 'bench/results/flush-1000')
{
	my $work = "$dir/" . $results =~ s{/}{-}gr;

	mkdir $work or die "$work: $!";
	system_or_bail('cp', "$results/results.csv", $work);
	append_to_file("$work/about", '');
	system_or_bail('perl', 'bench/report.pl', $work, "$work/about");
	draw('bench', "$work/plots", $work, 3);
	draw('scaling', "$results/scaling.tsv", $work) if -e "$results/scaling.tsv";
	push @drawn, map { [ $_, $results . s{.*(?=/)}{}r ] } glob("$work/*.svg");
}
foreach my $data (glob('bench/results/bad-night/*.tsv'))
{
	my ($name) = $data =~ m{([^/]*)\.tsv$};

	draw('night', $data, "$dir/$name.svg", $name);
	push @drawn, [ "$dir/$name.svg", "docs/monitoring/$name.svg" ];
}
is_deeply([ sort map { $_->[1] } @drawn ], [ sort glob('bench/results/*.svg bench/results/*/*.svg docs/monitoring/*.svg') ],
	'each plot is drawn from recorded data');

# Another version of matplotlib draws the same picture with other SVG code.
foreach my $pair (@drawn)
{
	my ($new, $published) = map { slurp_file($_) } @$pair;
	my ($by) = $published =~ m{Matplotlib v([\d.]+)};
	my $texts = sub { [ sort $_[0] =~ m{<text[^>]*>([^<]*)}g ] };

	is_deeply($texts->($new), $texts->($published), "$pair->[1]: the texts");
	ok($new eq $published, "$pair->[1]: the same bytes") if $by eq $version;
}
like(slurp_file($_), qr/<style>\@media \(prefers-color-scheme: dark\)/, "$_ has colors for dark mode")
	foreach glob('docs/pictures/*.svg'), map { $_->[1] } @drawn;

# A tick for each of 20 numbers.
my $many = "$dir/many.tsv";
append_to_file($many, join '', map { "databases\tone\t$_\t1\n" } 1001 .. 1020);
my ($out, $err) = run_command([ $python, 'bench/plot.py', 'scaling', $many, $dir ]);
like($err, qr/1002 and 1001 overlap/, 'texts that overlap are noticed');

done_testing();
