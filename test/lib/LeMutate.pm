# Random mutations of C: finds all sites in a file to which an operator of this list applies, by its tokens. LeObjects
# detects mutants that do not compile, or compile to the same object.
#
#   relational   < to <= and >=, == to !=, and so on       logical   && to || and back, ! left out
#   arithmetic   + to -, * to /, << to >>, ++ to --, & to |, += to -= and back          constant  a number +-1, true to false
#   statement    left out: an assignment, a call, break    flag      |= left out, or one of the flags of a | b
#   call         its value is 0                            return    at a statement, with 0
#   swap         two neighbouring arguments of one type    condition negated, of if and while
#
# Never in comments, texts, preprocessor lines, declarations without a value, assertions, fault points, log messages.
package LeMutate;

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter 'import';

our @EXPORT_OK = qw(code_of functions);
our @EXPORT = qw(sites mutated draw_sites site_diff site_key);

# Files that consist of assertions, or that exist only in the build with fault points.
our $NOT_THESE = qr{^src/core/check\.c$|/fault(?:_worker)?\.c$};

my $silent = qr/^(?:Assert\w*|(?:le_)?assert\w*|StaticAssert\w*|_Static_assert|CHECK|LE_FAULT\w*|ereport\w*|elog|err\w+|sizeof|offsetof)$/;
# Functions whose arguments can be swapped without an effect.
my $commutative = qr/^(?:le_add|le_usage_sum|le_text_equal|Min|Max)$/;
my $keyword = qr/^(?:if|else|while|for|do|switch|return|break|continue|goto|case|default|sizeof|struct|union|enum|static|const)$/;

my %relational = ('<' => [ '<=', '>=' ], '<=' => [ '<', '>' ], '>' => [ '>=', '<=' ], '>=' => [ '>', '<' ],
	'==' => ['!='], '!=' => ['==']);
my %arithmetic = ('+' => '-', '-' => '+', '*' => '/', '/' => '*', '%' => '*', '<<' => '>>', '>>' => '<<', '&' => '|', '|' => '&',
	'+=' => '-=', '-=' => '+=', '*=' => '/=', '/=' => '*=', '++' => '--', '--' => '++');
my %logical = ('&&' => '||', '||' => '&&');

# --- tokens ---------------------------------------------------------------------------------------------------------

# Replaces comments, preprocessor lines, code used only by assertions, and the contents of quotes by blanks. Positions
# do not change.
sub code_of
{
	my ($text) = @_;

	$text =~ s{(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')}
		{ defined $1 ? $1 =~ s/[^\n]/ /gr : '"' . ' ' x (length($2) - 2) . '"' }gse;
	$text =~ s{^#ifdef USE_ASSERT_CHECKING\n\K(.*?)(?=^#(?:else|endif))}{ $1 =~ s/[^\n]/ /gr }gmse;
	$text =~ s{^([ \t]*#(?:[^\n]*\\\n)*[^\n]*)}{ $1 =~ s/[^\n]/ /gr }gme;
	return $text;
}

# Each token: its text (t), its position (pos), whether it has blanks on both sides (apart), and whether it begins a
# line (first).
sub tokens
{
	my ($code) = @_;
	my @tokens;

	while ($code =~ /\G\s*([A-Za-z_]\w*|\d[\w.]*|" *"|<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[<>=!]=|&&|\|\||[-+*\/%&|^]=|\S)/g)
	{
		my ($t, $pos, $end) = ($1, $-[1], $+[1]);
		my $line = substr($code, 0, $pos) =~ s/.*\n//sr;
		my $around = substr($code, $pos - 1, 1) . substr($code, $end, 1);

		push @tokens, { t => $t, pos => $pos, apart => scalar($around =~ /^\s\s$/), first => $line !~ /\S/ };
	}
	return @tokens;
}

# Returns the index of the matching bracket, for each opening and closing bracket.
sub pairs
{
	my ($tokens) = @_;
	my (@open, %pair);

	foreach my $i (0 .. $#$tokens)
	{
		if ($tokens->[$i]{t} =~ /^[({\[]$/) { push @open, $i; }
		elsif ($tokens->[$i]{t} =~ /^[)}\]]$/ && @open) { my $from = pop @open; @pair{ $from, $i } = ($i, $from); }
	}
	return \%pair;
}

# Finds functions as formatted by .clang-format: the type on one line, and the name at the start of the next line. Each:
# name, type, and the positions of its braces.
sub functions
{
	my ($code) = @_;
	my @found;

	while ($code =~ /^(?:(\w[\w \t*]*)\n(\w+)\([^;{}]*\)|LE_FUNCTION\((\w+)\))\s*\n(\{.*?^\})/gms)
	{
		my $f = { type => $1 // 'Datum', name => $2 // $3, from => $-[4], to => $+[4] };

		$f->{type} =~ s/\b(?:static|inline|extern|PGDLLEXPORT|LE_NORETURN|LE_API)\b//g;
		$f->{type} =~ s/^\s+|\s+$//g;
		push @found, $f;
	}
	return @found;
}

# --- one function ---------------------------------------------------------------------------------------------------

# Passes over the tokens of a function's body, finds its sites, and skips code that must not be mutated.
sub sites_of
{
	my ($function, $code) = @_;
	my @tokens = tokens(substr($code, $function->{from}, $function->{to} - $function->{from}));
	my $f = { %$function, code => $code, tokens => \@tokens, pair => pairs(\@tokens), skip => {}, sites => [] };

	$_->{pos} += $function->{from} foreach @tokens;
	skip_silent($f);
	find_statements($f);
	foreach my $i (grep { !$f->{skip}{$_} } 0 .. $#tokens)
	{
		operator_sites($f, $i);
		call_sites($f, $i) if ($tokens[ $i + 1 ] // { t => '' })->{t} eq '(' && $tokens[$i]{t} =~ /^[a-zA-Z_]\w*$/;
	}
	return @{ $f->{sites} };
}

sub add
{
	my ($f, $operator, $pos, $len, $new, %more) = @_;
	my $old = substr($f->{code}, $pos, $len);

	# The number of lines does not change, so that line numbers in errors and assertions stay the same.
	my $lines = ($old =~ tr/\n//) - ($new =~ tr/\n//);
	push @{ $f->{sites} }, { function => $f->{name}, operator => $operator, pos => $pos, len => $len,
		new => $new . "\n" x ($lines > 0 ? $lines : 0), %more };
	return;
}

# Returns the position after the token.
sub end_of { my ($token) = @_; return $token->{pos} + length($token->{t}); }

sub text_of
{
	my ($f, $from, $to) = @_;    # indexes of the first and the last token

	return substr($f->{code}, $f->{tokens}[$from]{pos}, end_of($f->{tokens}[$to]) - $f->{tokens}[$from]{pos});
}

sub skip
{
	my ($f, $from, $to) = @_;

	$f->{skip}{$_} = 1 foreach $from .. $to;
	return;
}

sub skip_silent
{
	my ($f) = @_;
	my $tokens = $f->{tokens};

	foreach my $i (0 .. $#$tokens - 1)
	{
		next unless $tokens->[$i]{t} =~ $silent && $tokens->[ $i + 1 ]{t} eq '(' && defined $f->{pair}{ $i + 1 };
		skip($f, $i, $f->{pair}{ $i + 1 });
	}
	return;
}

# Visits each statement, including those of ifs and loops.
sub find_statements
{
	my ($f) = @_;
	my ($tokens, $pair) = @$f{qw(tokens pair)};

	for (my $i = 1; $i < $#$tokens;)
	{
		my $t = $tokens->[$i]{t};

		if ($t =~ /^[{};]$/ || $t =~ /^(?:else|do)$/) { $i++; }
		elsif ($t eq 'case' || $t eq 'default') { $i++ while $tokens->[$i]{t} ne ':'; $i++; }
		elsif ($t =~ /^\w+$/ && $tokens->[ $i + 1 ]{t} eq ':') { $i += 2; }
		elsif ($t =~ /^(?:(?:static|const)|struct|union|enum)$/ && (my $body = body_of($f, $i)))
		{
			skip($f, $i, $pair->{$body});
			$i = $pair->{$body} + 1;
		}
		elsif ($tokens->[ $i + 1 ]{t} eq '(' && begins_block($f, $pair->{ $i + 1 }))
		{
			my $close = $pair->{ $i + 1 };

			add($f, 'condition', $tokens->[ $i + 2 ]{pos}, $tokens->[$close]{pos} - $tokens->[ $i + 2 ]{pos},
				'!(' . text_of($f, $i + 2, $close - 1) . ')') if $t =~ /^(?:if|while)$/;
			return_site($f, $i);
			$i = $close + 1;
		}
		else
		{
			my $end = statement_end($f, $i);

			statement_sites($f, $i, $end);
			$i = $end + 1;
		}
	}
	return;
}

# Returns the index of the brace that opens the members of a type that is declared here.
sub body_of
{
	my ($f, $i) = @_;

	$i++ while $f->{tokens}[$i]{t} =~ /^\w+$/ && $f->{tokens}[$i]{t} ne '{';
	return $f->{tokens}[$i]{t} eq '{' && $i > 1 ? $i : undef;
}

# After the condition of an if, or of a macro like foreach, a statement begins on the next line.
sub begins_block
{
	my ($f, $close) = @_;
	my $next = $f->{tokens}[ $close + 1 ];

	return $next->{first} && $next->{t} =~ /^(?:\{|\w+|\(|\*|\+\+|--|;)$/;
}

sub statement_end
{
	my ($f, $i) = @_;

	while ($i < $#{ $f->{tokens} } && $f->{tokens}[$i]{t} ne ';')
	{
		$i = $f->{pair}{$i} if $f->{tokens}[$i]{t} =~ /^[({\[]$/;
		$i++;
	}
	return $i;
}

sub return_site
{
	my ($f, $i) = @_;
	my $return = $f->{type} eq 'void' ? 'return;' : "return ($f->{type}){0};";

	# not in the body of an if
	add($f, 'return', $f->{tokens}[$i]{pos}, 0, "$return ") if $i > 1 && $f->{tokens}[ $i - 1 ]{t} =~ /^[;{}]$/;
	return;
}

# Finds the sites of the statement from token $i to its semicolon, token $end.
sub statement_sites
{
	my ($f, $i, $end) = @_;
	my $tokens = $f->{tokens};
	my @words = map { $_->{t} } @$tokens[ $i .. $end - 1 ];
	my $is_declaration = "@words" =~ /^(?:(?:static|const|volatile|struct|union|enum|unsigned) )*[A-Za-z_]\w*(?: const)*(?: \*)* (?!return)[A-Za-z_]\w*/
	  && $words[0] !~ /^(?:return|goto)$/;
	my $pos = $tokens->[$i]{pos};
	my $len = $tokens->[$end]{pos} - $pos;

	if ($is_declaration)
	{
		# A variable that is read only by assertions is skipped, unless a call computes it.
		my $is_silent = !(grep { $_ eq '=' } @words) || (grep { $_ eq 'PG_USED_FOR_ASSERTS_ONLY' } @words) && !grep { $_ eq '(' } @words;
		skip($f, $i, $end) if $is_silent;
		return;
	}
	if ($words[0] =~ /^(?:ereport|elog)$/)
	{
		# An error that is not raised is a fault, but a missing log message is not.
		add($f, 'statement', $pos, $len, '') if $words[0] eq 'ereport' && $words[2] =~ /^(?:ERROR|FATAL|PANIC)$/;
		return;
	}
	return if $f->{skip}{$i};
	return_site($f, $i) unless $words[0] eq 'return' && $f->{type} eq 'void';
	return if $words[0] =~ /^(?:return|goto)$/;
	add($f, (grep { $_ eq '|=' } @words) ? 'flag' : 'statement', $pos, $len, '')
	  if $words[0] =~ /^(?:break|continue)$/ || grep { /^(?:[-+*\/%&|^]?=|<<=|>>=|\+\+|--|\()$/ } @words;
	return;
}

sub operator_sites
{
	my ($f, $i) = @_;
	my $token = $f->{tokens}[$i];
	my $t = $token->{t};
	my $site = sub { my ($operator, $new) = @_; add($f, $operator, $token->{pos}, length($t), $new); };

	if ($relational{$t} && $token->{apart}) { $site->('relational', $_) foreach @{ $relational{$t} }; }
	elsif ($logical{$t}) { $site->('logical', $logical{$t}); }
	elsif ($t eq '!') { $site->('logical', ''); }
	elsif ($arithmetic{$t} && ($token->{apart} || $t =~ /^(?:\+\+|--)$/))
	{
		my $next = $f->{tokens}[ $i + 1 ];

		$site->('arithmetic', $arithmetic{$t});
		add($f, 'flag', $token->{pos}, end_of($next) - $token->{pos}, '') if $t eq '|' && $next->{t} =~ /^[A-Z]\w*$/;
	}
	elsif ($t =~ /^(\d+)([uUlL]*)$/ && ($f->{tokens}[ $i - 1 ]{t} ne '['))
	{
		$site->('constant', ($1 + 1) . $2);
		$site->('constant', $1 eq '0' ? '-1' : ($1 - 1) . $2);
	}
	elsif ($t eq 'true' || $t eq 'false') { $site->('constant', $t eq 'true' ? 'false' : 'true'); }
	return;
}

# Finds the sites of the call of token $i: its result, and its arguments.
sub call_sites
{
	my ($f, $i) = @_;
	my ($tokens, $pair) = @$f{qw(tokens pair)};
	my $t = $tokens->[$i]{t};
	my $close = $pair->{ $i + 1 };

	return if $t =~ $keyword || !defined $close;
	my $before = $tokens->[ $i - 1 ]{t};
	my $is_statement = $before =~ /^[;{}]$/ || $tokens->[$i]{first} && $before =~ /^(?:\)|else|do|:)$/;

	add($f, 'call', $tokens->[$i]{pos}, end_of($tokens->[$close]) - $tokens->[$i]{pos}, '0') unless $is_statement;

	my @args = ([ $i + 2 ]);
	for (my $k = $i + 2; $k < $close; $k++)
	{
		if ($tokens->[$k]{t} =~ /^[({\[]$/) { $k = $pair->{$k}; }
		elsif ($tokens->[$k]{t} eq ',') { $args[-1][1] = $k - 1; push @args, [ $k + 1 ]; }
	}
	$args[-1][1] = $close - 1;
	foreach my $n (0 .. $#args - 1)
	{
		my ($one, $two) = map { text_of($f, @$_) } @args[ $n, $n + 1 ];
		my $from = $tokens->[ $args[$n][0] ]{pos};
		my $to = end_of($tokens->[ $args[ $n + 1 ][1] ]);
		my $between = substr($f->{code}, $from + length($one), $to - $from - length($one) - length($two));

		next if $one eq $two || $t =~ $commutative;
		# compiles only if both arguments have the same type
		my $probe = "__extension__({ _Static_assert(__builtin_types_compatible_p(__typeof__($one), __typeof__($two)), \"\"); ($two); })";
		add($f, 'swap', $from, $to - $from, "$two$between$one", probe => "$probe$between$one");
	}
	return;
}

# --- a file ---------------------------------------------------------------------------------------------------------

# Returns all sites of a file. Each: file, function, line, operator, pos, len, new and, for swapped arguments, the text
# (probe) that compiles if their types are equal.
sub sites
{
	my ($file, $text) = @_;
	my $code = code_of($text);
	my @sites;

	return () if $file =~ $NOT_THESE;
	push @sites, sites_of($_, $code) foreach functions($code);
	foreach my $site (@sites)
	{
		$site->{file} = $file;
		$site->{line} = 1 + (substr($text, 0, $site->{pos}) =~ tr/\n//);
		# The contents of quotes were blanks until here.
		$site->{$_} = restored($text, $code, $site, $_) foreach grep { exists $site->{$_} } qw(new probe);
	}
	return @sites;
}

# Restores the contents of quotes in text that was taken from the blanked code.
sub restored
{
	my ($text, $code, $site, $field) = @_;
	my $new = $site->{$field};

	return $new if $new !~ /" *"/;
	my @blank = substr($code, $site->{pos}, $site->{len}) =~ /("(?: *)")/g;
	my @full;
	my $from = $site->{pos};
	foreach my $blank (@blank)
	{
		my $at = index($code, $blank, $from);

		push @full, substr($text, $at, length($blank));
		$from = $at + length($blank);
	}
	if ($site->{operator} eq 'swap')
	{
		# Texts are matched by length. Two texts of the same length have the same type; the mutant is the same.
		my %by_length;
		push @{ $by_length{ length($_) } }, $_ foreach @full;
		$new =~ s{(" +")}{ my $list = $by_length{ length($1) }; $list && @$list ? (@$list > 1 ? pop @$list : $list->[0]) : $1 }ge;
		return $new;
	}
	$new =~ s{(" *")}{ @full ? shift @full : $1 }ge;
	return $new;
}

sub mutated
{
	my ($site, $text, $field) = @_;

	substr($text, $site->{pos}, $site->{len}) = $site->{ $field // 'new' };
	return $text;
}

# Returns a function that returns a random site at each call, each site once, and then undef. Each function is equally
# likely, then each of its lines, then each operator of the line. The order depends only on the seed and the sources.
sub draw_sites
{
	my ($seed, @sites) = @_;
	my %functions;

	push @{ $functions{"$_->{file} $_->{function}"}{ $_->{line} }{ $_->{operator} } }, $_ foreach @sites;
	# not rand(), because a library may also use it
	my $state = 1;
	my $next = sub {
		my ($n) = @_;
		return hex(substr(sha256_hex("$seed " . $state++), 0, 8)) % $n;
	};
	return sub {
		return undef unless %functions;
		my ($at, @path) = (\%functions);
		while (ref $at eq 'HASH')
		{
			my @keys = sort keys %$at;

			push @path, [ $at, $keys[ $next->(scalar @keys) ] ];
			$at = $at->{ $path[-1][1] };
		}
		my ($site) = splice(@$at, $next->(scalar @$at), 1);
		foreach my $step (reverse @path)
		{
			my ($in, $key) = @$step;
			my $what = $in->{$key};

			last if ref $what eq 'HASH' ? %$what : @$what;
			delete $in->{$key};
		}
		return $site;
	};
}

# --- output ---------------------------------------------------------------------------------------------------------

# Returns the changed lines: (number of the first line, old lines, new lines).
sub changed_lines
{
	my ($site, $text) = @_;
	my @old = split(/\n/, $text, -1);
	my @new = split(/\n/, mutated($site, $text), -1);
	my $first = $site->{line} - 1;
	my $n = 1 + (substr($text, $site->{pos}, $site->{len}) =~ tr/\n//);

	return ($first + 1, [ @old[ $first .. $first + $n - 1 ] ], [ @new[ $first .. $first + $n - 1 ] ]);
}

sub site_diff
{
	my ($site, $text) = @_;
	my ($first, $old, $new) = changed_lines($site, $text);
	my $key = site_key($site, $text);

	return "$key $site->{file}:$first $site->{function}() $site->{operator}\n"
	  . join('', map { "    -$_\n" } @$old) . join('', map { "    +$_\n" } grep { /\S/ || @$new == 1 } @$new);
}

# Returns a key of the site that does not change when lines are inserted or deleted above it.
sub site_key
{
	my ($site, $text) = @_;
	my ($first, $old, $new) = changed_lines($site, $text);

	return substr(sha256_hex(join("\n", $site->{file}, $site->{function}, map { s/^\s+//r } @$old, '--', @$new)), 0, 10);
}

1;
