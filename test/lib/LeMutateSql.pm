# Random mutations of SQL and PL/pgSQL, like LeMutate for C: finds all sites in a file to which an operator of this list
# applies. Mutants that cannot be installed do not count.
#
#   statement    left out                               condition   of IF, ELSIF, WHEN, WHILE, CASE, negated
#   logical      AND to OR and back, NOT left out        conjunct    an "AND .." left out
#   null         IS NULL to IS NOT NULL and back         relational  < to <= and >=, = to <>, and so on
#   arithmetic   + to -, * to /, << to >>                constant    a number +-1, true to false and back
#   lock         FOR UPDATE and the like, SKIP LOCKED, ON CONFLICT DO NOTHING left out
#   order        ORDER BY, DESC, LIMIT, DISTINCT left out
#   extreme      greatest to least, max to min, and back
#
# Never in comments, texts, and log messages.
package LeMutateSql;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(sql_sites);

my %relational = ('<' => [ '<=', '>=' ], '<=' => [ '<', '>' ], '>' => [ '>=', '<=' ], '>=' => [ '>', '<' ], '=' => ['<>'], '<>' => ['=']);
my %arithmetic = ('+' => '-', '-' => '+', '*' => '/', '/' => '*', '%' => '*', '<<' => '>>', '>>' => '<<', '&' => '|');
my %extreme = (greatest => 'least', least => 'greatest', min => 'max', max => 'min', bool_or => 'bool_and');

# Replaces comments and the contents of quotes by blanks. Positions do not change.
sub code_of
{
	my ($text) = @_;

	return $text =~ s{(--[^\n]*)|('(?:[^']|'')*')}{ defined $1 ? ' ' x length $1 : "'" . ($2 =~ s/[^\n]/ /gr =~ s/^ (.*) $/$1/sr) . "'" }gser;
}

# Returns the names and positions of the bodies of functions, blocks, views, and grants.
sub bodies
{
	my ($code) = @_;
	my @found;

	while ($code =~ /^CREATE OR REPLACE FUNCTION ([\w.]+)\(.*?AS \$\$(.*?)\$\$;/gms) { push @found, [ $1, $-[2], $+[2] ]; }
	while ($code =~ /^DO \$\$(.*?)\$\$;/gms) { push @found, [ 'block', $-[1], $+[1] ]; }
	while ($code =~ /^CREATE OR REPLACE VIEW ([\w.]+) AS(.*?);$/gms) { push @found, [ $1, $-[2], $+[2] ]; }
	while ($code =~ /^((?:GRANT|REVOKE) [^;]*;)/gm) { push @found, [ 'rights', $-[1], $+[1] ]; }
	return @found;
}

sub tokens
{
	my ($code, $from, $to) = @_;
	my $body = substr($code, $from, $to - $from);
	my @tokens;

	while ($body =~ /\G\s*([A-Za-z_]\w*|\d[\d.]*|'[^']*'|:=|::|<=|>=|<>|<<|>>|\|\||->>|\S)/g)
	{
		push @tokens, { t => $1, pos => $from + $-[1], end => $from + $+[1] };
	}
	# Count the depth of brackets, and of CASE .. END.
	my ($depth, $case) = (0, 0);
	foreach my $i (0 .. $#tokens)
	{
		my $t = $tokens[$i]{t};

		$depth-- if $t =~ /^[)\]]$/;
		$case++ if uc $t eq 'CASE' && !begins_statement(\@tokens, $i);
		@{ $tokens[$i] }{ 'depth', 'case' } = ($depth, $case);
		$depth++ if $t =~ /^[(\[]$/;
		$case-- if uc $t eq 'END' && $case > 0;
	}
	return @tokens;
}

sub begins_statement
{
	my ($tokens, $i) = @_;

	return $i == 0 || $tokens->[ $i - 1 ]{t} =~ /^(?:;|THEN|ELSE|LOOP|BEGIN)$/ && !$tokens->[ $i - 1 ]{case};
}

sub sql_sites
{
	my ($file, $text) = @_;
	my $code = code_of($text);
	my @sites;

	foreach my $body (bodies($code))
	{
		my ($name, $from, $to) = @$body;
		my @t = (tokens($code, $from, $to), { t => '', pos => $to, end => $to, depth => 0, case => 0 });
		my $add = sub {
			my ($operator, $pos, $end, $new) = @_;

			$new .= "\n" x ((substr($text, $pos, $end - $pos) =~ tr/\n//) - ($new =~ tr/\n//));
			push @sites, { file => $file, function => $name, operator => $operator, pos => $pos, len => $end - $pos, new => $new,
				line => 1 + (substr($text, 0, $pos) =~ tr/\n//) };
		};

		if ($name eq 'rights') { $add->('statement', $from, $to, ''); next; }
		my @silent = silent(\@t);
		statements(\@t, $text, $add, \@silent);
		token_sites(\@t, $_, $text, $add) foreach grep { !$silent[$_] } 1 .. $#t - 1;
	}
	return @sites;
}

# Marks the tokens of log messages.
sub silent
{
	my ($t) = @_;
	my @silent;

	for (my $i = 0; $i < $#$t; $i++)
	{
		next unless "$t->[$i]{t} $t->[$i + 1]{t}" =~ /^RAISE (?:LOG|NOTICE)$/;
		for (; $i < @$t && $t->[$i]{t} ne ';'; $i++) { $silent[$i] = 1; }
	}
	return @silent;
}

sub statements
{
	my ($t, $text, $add, $silent) = @_;

	foreach my $i (1 .. $#$t - 1)
	{
		next if $silent->[$i] || !begins_statement($t, $i) || $t->[$i]{depth};
		next unless $t->[$i]{t} =~ /^(?:PERFORM|UPDATE|DELETE|INSERT|SELECT|RAISE|EXIT|CONTINUE|EXECUTE)$/
		  || "$t->[$i]{t} $t->[$i + 1]{t}" =~ /^(?:RETURN (?:QUERY|NEXT)|[a-z]\w* (?::=|\.|\[))$/;
		my $end = $i;
		$end++ while $end < $#$t && !($t->[$end]{t} eq ';' && !$t->[$end]{depth});
		$add->('statement', $t->[$i]{pos}, $t->[$end]{end}, 'NULL;') if $t->[$end]{t} eq ';';
	}
	return;
}

# Returns the index of the last token of the operand that begins after token $i: the operand ends before the first token
# of the same depth that cannot be part of it.
sub operand_end
{
	my ($t, $i) = @_;
	my ($depth, $case, $between) = (@{ $t->[$i] }{ 'depth', 'case' }, 0);
	my $k = $i + 1;

	for (; $k <= $#$t; $k++)
	{
		last if $t->[$k]{depth} < $depth || $t->[$k]{case} < $case;
		next if $t->[$k]{depth} > $depth || $t->[$k]{case} > $case;
		$between = 1 if $t->[$k]{t} eq 'BETWEEN';
		if ($t->[$k]{t} eq 'AND' && $between) { $between = 0; next; }
		last if $t->[$k]{t} =~ /^(?:AND|OR|THEN|LOOP|ORDER|GROUP|LIMIT|FOR|RETURNING|UNION|;|,|INTO|END|WHEN|ELSE|HAVING|WINDOW|WHERE|AS)$/;
	}
	return $k - 1;
}

sub token_sites
{
	my ($t, $i, $text, $add) = @_;
	my ($token, $next) = @$t[ $i, $i + 1 ];
	my $w = $token->{t};
	my $spaced = substr($text, $token->{pos} - 1, 1) =~ /\s/ && substr($text, $token->{end}, 1) =~ /\s/;
	my $site = sub { my ($operator, $new) = @_; $add->($operator, $token->{pos}, $token->{end}, $new); };

	if ($relational{$w} && $spaced && $next->{t} ne '>')
	{
		return if $w eq '=' && $i > 1 && $t->[ $i - 2 ]{t} =~ /^(?:SET|,)$/; # assignment of an UPDATE
		 $site->('relational', $_) foreach @{ $relational{$w} };
	}
	elsif ($arithmetic{$w} && $spaced) { $site->('arithmetic', $arithmetic{$w}); }
	elsif ($w eq 'AND' && !is_between($t, $i))
	{
		my $end = operand_end($t, $i);

		$site->('logical', 'OR');
		$add->('conjunct', $token->{pos}, $t->[$end]{end}, '') if $end > $i;
	}
	elsif ($w eq 'OR' && ($i == 0 || $t->[ $i - 1 ]{t} ne 'CREATE')) { $site->('logical', 'AND'); }
	elsif ($w eq 'IS' && $next->{t} eq 'NULL') { $add->('null', $token->{pos}, $next->{end}, 'IS NOT NULL'); }
	elsif ($w eq 'IS' && $next->{t} eq 'NOT' && $t->[ $i + 2 ]{t} eq 'NULL') { $add->('null', $token->{pos}, $t->[ $i + 2 ]{end}, 'IS NULL'); }
	elsif ($w eq 'NOT' && $t->[ $i - 1 ]{t} !~ /^(?:IS|DO)$/) { $site->('logical', ''); }
	elsif ($w =~ /^(?:IF|ELSIF|WHEN|WHILE)$/ && $t->[ $i - 1 ]{t} ne 'END')
	{
		my $end = operand_end_of_condition($t, $i);

		$add->('condition', $next->{pos}, $t->[$end]{end}, 'NOT (' . substr($text, $next->{pos}, $t->[$end]{end} - $next->{pos}) . ')')
		  if $end > $i + 1 && $next->{t} !~ /^(?:OTHERS|SQLSTATE)$/; # not the value of a simple CASE
	}
	elsif ($w =~ /^\d+$/ && $t->[ $i - 1 ]{t} !~ /^[\[\$]$/)
	{
		$site->('constant', $w + 1);
		$site->('constant', $w - 1);
	}
	elsif ($w eq 'true' || $w eq 'false') { $site->('constant', $w eq 'true' ? 'false' : 'true'); }
	elsif ($extreme{$w} && $next->{t} eq '(') { $site->('extreme', $extreme{$w}); }
	elsif ($w eq 'FOR' && $next->{t} =~ /^(?:UPDATE|NO|KEY|SHARE)$/)
	{
		my $end = $i + 1;
		$end++ while $t->[ $end + 1 ]{t} =~ /^(?:NO|KEY|UPDATE|SHARE|OF|p|SKIP|LOCKED)$/;
		$add->('lock', $token->{pos}, $t->[$end]{end}, '');
	}
	elsif ($w eq 'SKIP' && $next->{t} eq 'LOCKED') { $add->('lock', $token->{pos}, $next->{end}, ''); }
	elsif ($w eq 'ON' && $next->{t} eq 'CONFLICT' && $t->[ $i + 2 ]{t} eq 'DO') { $add->('lock', $token->{pos}, $t->[ $i + 3 ]{end}, ''); }
	elsif ($w eq 'ORDER' || $w eq 'LIMIT')
	{
		my $k = $i + 1;
		$k++ while $k <= $#$t && !($t->[$k]{depth} < $token->{depth} || $t->[$k]{depth} == $token->{depth} && $t->[$k]{t} =~ /^(?:LIMIT|FOR|OFFSET|LOOP|;|INTO|RANGE|ROWS)$/);
		$add->('order', $token->{pos}, $t->[ $k - 1 ]{end}, '');
	}
	elsif ($w eq 'DESC' || $w eq 'DISTINCT' && $t->[ $i - 1 ]{t} ne 'IS' && $t->[ $i - 1 ]{t} ne 'NOT') { $site->('order', ''); }
	return;
}

sub is_between
{
	my ($t, $i) = @_;

	for (my $k = $i - 1; $k >= 0 && $t->[$k]{depth} >= $t->[$i]{depth}; $k--)
	{
		next if $t->[$k]{depth} > $t->[$i]{depth};
		return 1 if $t->[$k]{t} eq 'BETWEEN';
		return 0 if $t->[$k]{t} =~ /^(?:AND|OR|WHERE|IF|WHEN|;|THEN)$/;
	}
	return 0;
}

sub operand_end_of_condition
{
	my ($t, $i) = @_;
	my $k = $i + 1;

	$k++ while $k <= $#$t && !($t->[$k]{depth} <= $t->[$i]{depth} && $t->[$k]{case} <= $t->[$i]{case} && $t->[$k]{t} =~ /^(?:THEN|LOOP|;)$/);
	return $k - 1;
}

1;
