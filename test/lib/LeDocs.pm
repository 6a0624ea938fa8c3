# The blocks of a document, and how one of psql is run and compared.  Everything is exported.
#
# A block is fenced, and its word after the fence says what it is, and how the site colours it:
#
#   psql     sessions of psql.  A prompt begins a statement: "=> " in the session that a section begins with, "other=> " in
#            a second one, and so on; lines without a prompt go on with it, up to its ";".  What follows is its output, as
#            psql prints it without a row count.  A statement with the comment "-- waits" is not answered at once: its
#            output stands behind the next prompt of that session, which has no more than a comment.
#   sql      statements without output, for the session that a section begins with
#   sh, c, python, ini, cron    see 082_documents.t
#   bash, console, plpgsql, py, ruby, go, java, js, systemd, yaml, text    not run here, or not at all
#
# The sessions of a section are closed at its end, which is the next heading of the first three levels.
#
# In outputs these are equal to each other: tokens, if the same stands for the same; moments, durations with fractions of a
# second, numbers of processes.  A token of the text that is used in a statement becomes the one that was shown in its place.

package LeDocs;

use strict;
use warnings;
use Exporter 'import';
our @EXPORT = qw(blocks_of statements_of same_output);

# { section, line, word, text } of each block, in order.
sub blocks_of
{
	my ($text) = @_;
	my ($section, $number, $before, $in_list, $indent, @blocks, $block) = ('', 0, '', 0);

	foreach my $line (split /\n/, $text)
	{
		$number++;
		if ($block && $line =~ /^$indent```\s*$/)
		{
			push @blocks, $block;
			undef $block;
		}
		elsif ($block) { $block->{text} .= $line =~ s/^$indent//r . "\n"; }
		elsif ($line =~ /^((?: {4})*)```(\w*)\s*$/)
		{
			$indent = $1;
			$block = { section => $section, line => $number, word => $2, text => '' };
		}
		elsif ($line =~ /^ {4,}\S/ && $before eq '' && !$in_list) { die "line $number is a block without a fence\n"; }
		elsif ($line =~ /^#{1,3} (.*)/) { $section = $1; }
		$in_list = $line =~ /^(?:[-*]|\d+\.) / || $in_list && $line =~ /^(?: |$)/ if !$block;
		$before = $line;
	}
	return @blocks;
}

# { who, sql, output, waits } of each statement of a block of psql.
sub statements_of
{
	my ($text) = @_;
	my @statements;

	foreach my $line (split /\n/, $text)
	{
		if ($line =~ /^(\w*)=> ?(.*)/) { push @statements, { who => $1, sql => $2, output => [], done => complete($2) }; }
		elsif (!@statements) { die "a block of psql begins with: $line\n"; }
		elsif (!$statements[-1]{done})
		{
			$statements[-1]{sql} .= "\n$line";
			$statements[-1]{done} = complete($line);
		}
		else { push @{ $statements[-1]{output} }, $line; }
	}
	$_->{waits} = $_->{sql} =~ /-- waits/ foreach @statements;
	return @statements;
}

# Does a statement end with this line?
sub complete
{
	my ($line) = @_;

	return $line =~ /(?:;|\\\w+)\s*(?:--.*)?$/ || $line =~ /^\s*(?:--.*)?$/;
}

my @classes = (
	qr/^-?\d\d:\d\d:\d\d\.\d+$/,                     # a duration that is not a round one
	qr/^\d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d$/,       # the time of a moment
	qr/^\d{4}-\d\d-\d\d$/,
	qr/^\{?\d{3,7}\}?[.;:,)]?$/,                     # a process
	qr/^\d+\.\d$/,                                   # a number of seconds
);

sub words_of
{
	my ($line) = @_;

	$line =~ s/^\s+|\s+$//g;
	return $line =~ /^[-+]+$/ ? ('---') : split /\s+|(?=\|)|(?<=\|)/, $line;
}

# Compare the lines; tokens of the first, as keys of %$tokens, become those of the second.  Returns the difference, or ''.
sub same_output
{
	my ($expected, $actual, $tokens) = @_;
	my @expected = grep { /\S/ } @$expected;
	my @actual = grep { /\S/ } @$actual;

	return scalar(@actual) . ' lines instead of ' . scalar(@expected) if @expected != @actual;
	foreach my $i (0 .. $#expected)
	{
		my @want = words_of($expected[$i]);
		my @have = words_of($actual[$i]);

		return "'$actual[$i]' instead of '$expected[$i]'" if @want != @have;
		foreach my $j (0 .. $#want)
		{
			my ($want, $have) = ($want[$j], $have[$j]);

			if ($want =~ /(\d{14,16})/)
			{
				my $token = $1;

				$tokens->{$token} = $1 if !exists $tokens->{$token} && $have =~ /(\d{14,16})/;
				$want =~ s/(\d{14,16})/$tokens->{$1} \/\/ $1/ge;
			}
			next if $want eq $have || grep { $want =~ $_ && $have =~ $_ } @classes;
			return "'$have' instead of '$want' in '$expected[$i]'";
		}
	}
	return '';
}

1;
