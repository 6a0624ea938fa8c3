# Reads the blocks of a document, and runs and compares psql blocks.  Everything is exported.
#
# A block is fenced. The word after the fence is its kind, and selects the site's colours:
#
#   psql     sessions of psql.  A prompt begins a statement: "=> " in the first session of a section, "other=> " in
#            a second one, and so on. Lines without a prompt continue the statement, up to its ";".  The output follows,
#            as psql prints it without a row count.  A statement with the comment "-- waits" gets no immediate reply:
#            its output follows the next prompt of that session, which has at most a comment.
#   sql      statements without output, for the first session of a section
#   sh, c, python, ini, cron    see 082_documents.t
#   bash, console, plpgsql, py, ruby, go, java, js, systemd, yaml, text    not run here, or not at all
#
# The sessions of a section are closed at its end, which is the next heading of the first three levels.
#
# The comparison of outputs accepts different tokens, if equal ones stay equal, and different times, durations with
# fractions of a second, and process numbers.  If a statement uses a token of the text, the actual token replaces it.

package LeDocs;

use strict;
use warnings;
use Exporter 'import';
our @EXPORT = qw(blocks_of statements_of same_output);

# Returns { section, line, word, text } of each block, in order.
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

# Returns { who, sql, output, waits } of each statement of a psql block.
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

# Returns whether a statement ends with this line.
sub complete
{
	my ($line) = @_;

	return $line =~ /(?:;|\\\w+)\s*(?:--.*)?$/ || $line =~ /^\s*(?:--.*)?$/;
}

my @classes = (
	qr/^-?\d\d:\d\d:\d\d\.\d+$/,                     # a duration with fractions of a second
	qr/^\d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d$/,       # a time of day
	qr/^\d{4}-\d\d-\d\d$/,
	qr/^\{?\d{3,7}\}?[.;:,)]?$/,                     # a process id
	qr/^\d+\.\d$/,                                   # a number of seconds
);

sub words_of
{
	my ($line) = @_;

	$line =~ s/^\s+|\s+$//g;
	return $line =~ /^[-+]+$/ ? ('---') : split /\s+|(?=\|)|(?<=\|)/, $line;
}

# Compares the lines. Tokens of the expected lines, which are the keys of %$tokens, are replaced by those of the actual
# lines. Returns the difference, or ''.
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
