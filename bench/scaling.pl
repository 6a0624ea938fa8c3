# scaling.pl RESULTS DOCUMENT: puts the tables that scaling.sh has left in RESULTS between their marks in DOCUMENT.
use strict;
use warnings;

my ($results, $document) = @ARGV;

sub slurp
{
	my ($file) = @_;

	open(my $in, '<', $file) or die "$file: $!";
	local $/;
	return scalar <$in>;
}

my ($about, @tables) = split /^## (\w+)\n/m, slurp($results);
my %table = @tables;
my $text = slurp($document);

s/^\s+|\s+\z//g foreach $about, values %table;
$text =~ s/(<!-- about -->\n).*?(?=<!-- end -->)/$1\n$about\n\n/s;
$text =~ s/(<!-- table: (\w+) -->\n)(.*?)(?=<!-- end -->)/$1 . ($table{$2} ? "\n$table{$2}\n\n" : $3)/gse;
open(my $out, '>', $document) or die "$document: $!";
print $out $text;
close $out or die "$document: $!";
