# Random mutants: tests each operator at its place in a small file. Comments, strings, assertions and log messages
# are never changed; a seed always gives the same mutants; mutants that do not compile or change nothing do not count.
# Promises: -
use strict;
use warnings;
use File::Temp qw(tempdir);
use LeCoverage;
use LeMutants;
use LeMutate;
use LeMutateSql;
use LeObjects;
use Test::More;

my $file = 'src/core/sample.c';
my $text = <<'C';
#include <stdint.h>
#define LIMIT(a) ((a) + 1)
#define Assert(a) ((void) 0)
int	tell(const char *text, int n, int m, long l);
int	seen, *where;

/* A comment: a < b && c == 1. */
static int
first(int a, int b)
{
	int c;
	int list[3];
	int alone PG_USED_FOR_ASSERTS_ONLY = 0;
	int counted PG_USED_FOR_ASSERTS_ONLY = first(8, 9);

	Assert(a < b);
	if (a < b && !seen) /* or a + b */
		tell("a < b && 7", a, b, 1L);
	c = a + b;
	seen |= 2;
	elog(LOG, "%d", c + 1);
	return c;
}

#ifdef USE_ASSERT_CHECKING
static void
assert_c(int c)
{
	tell("asserted", c, 0, 1L);
}
#else
#define assert_c(c) ((void) 0)
#endif

static void
second(void)
{
	static const struct
	{
		int one, two;
	} options[] = {
		{1, 2},
	};

	for (int i = 0; i < 3; i++)
		*where += options[0].one;
	while (first(seen, 4) != 0)
		break;
	ereport(ERROR, (errmsg("no %d", 1 + 2)));
	assert_c(c);
	c = le_add(a, b);
}
C

# The mutations of each line, as "operator: new text".
my @sites = sites($file, $text);
my %made;
foreach my $site (@sites)
{
	my ($line) = site_diff($site, $text) =~ /^ +\+\s*(.*)$/m;

	push @{ $made{ $site->{line} } }, "$site->{operator}: $line";
}
sub line_of { my ($part) = @_; return 1 + (substr($text, 0, index($text, $part)) =~ tr/\n//); }
sub is_made
{
	my ($part, $name, @expected) = @_;

	is_deeply([ sort @{ $made{ line_of($part) } // [] } ], [ sort @expected ], $name);
	return;
}

is_made('if (a < b', 'a condition is mutated',
	'condition: if (!(a < b && !seen)) /* or a + b */', 'logical: if (a < b || !seen) /* or a + b */',
	'logical: if (a < b && seen) /* or a + b */', 'relational: if (a <= b && !seen) /* or a + b */',
	'relational: if (a >= b && !seen) /* or a + b */', 'return: return (int){0}; if (a < b && !seen) /* or a + b */');
is_made('tell("a < b', 'a call is mutated, but not its string', 'statement: ;',
	'constant: tell("a < b && 7", a, b, 2L);',
	'constant: tell("a < b && 7", a, b, 0L);', 'swap: tell(a, "a < b && 7", b, 1L);', 'swap: tell("a < b && 7", b, a, 1L);',
	'swap: tell("a < b && 7", a, 1L, b);');
is_made('c = a + b;', 'arithmetic is mutated', 'arithmetic: c = a - b;', 'statement: ;',
	'return: return (int){0}; c = a + b;');
is_made('tell("asserted"', 'the body of an assertion function is not mutated');
is_made('assert_c(c);', 'a call of an assertion function is not mutated');
is_made('int alone', 'a constant that only assertions read is not mutated');
is_made('int counted', 'a call whose result only assertions read is mutated', 'call: int counted PG_USED_FOR_ASSERTS_ONLY = 0;', 'constant: int counted PG_USED_FOR_ASSERTS_ONLY = first(7, 9);',
	'constant: int counted PG_USED_FOR_ASSERTS_ONLY = first(9, 9);', 'constant: int counted PG_USED_FOR_ASSERTS_ONLY = first(8, 8);',
	'constant: int counted PG_USED_FOR_ASSERTS_ONLY = first(8, 10);', 'swap: int counted PG_USED_FOR_ASSERTS_ONLY = first(9, 8);');
is_made('seen |= 2', 'setting a flag is mutated', 'flag: ;', 'constant: seen |= 3;', 'constant: seen |= 1;', 'return: return (int){0}; seen |= 2;');
is_made('*where += ', 'an assignment is mutated', 'statement: ;', 'arithmetic: *where -= options[0].one;');
is_made('for (int', 'a loop is mutated', 'constant: for (int i = 1; i < 3; i++)',
	'constant: for (int i = -1; i < 3; i++)',
	'constant: for (int i = 0; i < 4; i++)', 'constant: for (int i = 0; i < 2; i++)', 'relational: for (int i = 0; i <= 3; i++)',
	'relational: for (int i = 0; i >= 3; i++)', 'arithmetic: for (int i = 0; i < 3; i--)',
	'return: return; for (int i = 0; i < 3; i++)');
is_made('while (first', 'the result of a call is mutated', 'call: while (0 != 0)',
	'condition: while (!(first(seen, 4) != 0))',
	'constant: while (first(seen, 5) != 0)', 'constant: while (first(seen, 3) != 0)', 'constant: while (first(seen, 4) != 1)',
	'constant: while (first(seen, 4) != -1)', 'relational: while (first(seen, 4) == 0)', 'return: return; while (first(seen, 4) != 0)',
	'swap: while (first(4, seen) != 0)');
is_made('c = le_add(a', 'arguments whose order does not matter are not swapped', 'call: c = 0;', 'statement: ;',
	'return: return; c = le_add(a, b);');
is_made('break;', 'a break is removed', 'statement: ;');
is_made('ereport(ERROR', 'an error is removed, but its message is not mutated', 'statement: ;');
is_made($_, "not mutated: $_") foreach 'A comment', '#define LIMIT', 'int c;', 'int list', 'Assert(a < b)', 'elog(LOG', 'int one, two';

# A mutation keeps the line numbers.
is((mutated($_, $text) =~ tr/\n//), ($text =~ tr/\n//),
	"the mutation keeps the line numbers: $_->{operator}") foreach @sites[ 0 .. 20 ];

# Returns the keys of all mutants in the order in which this seed draws them.
sub drawn
{
	my ($seed) = @_;
	my $next = draw_sites($seed, sites($file, $text));
	my @keys;

	while (my $site = $next->()) { push @keys, "$site->{pos} $site->{operator} $site->{new}"; }
	return @keys;
}
is_deeply([ drawn(1) ], [ drawn(1) ], 'the same seed draws the same mutants');
isnt("@{[ drawn(1) ]}", "@{[ drawn(2) ]}", 'another seed draws another order');
is(scalar(drawn(1)), scalar(@sites), 'each mutant is drawn once');
my %first;
$first{ draw_sites($_, @sites)->()->{function} }++ foreach 1 .. 200;
cmp_ok($first{$_}, '>', 60,
	"each function is equally likely: $_ was first $first{$_} times of 200") foreach qw(first second);

# The key of a mutant depends on the changed line, not on the line number.
my ($site) = grep { $_->{operator} eq 'arithmetic' } @sites;
my ($moved) = grep { $_->{operator} eq 'arithmetic' } sites($file, "\n\n$text");
is(site_key($site, $text), site_key($moved, "\n\n$text"), 'a mutant keeps its key if lines are inserted above it');
is_deeply([ sites('src/core/check.c', $text) ], [], 'the checker of invariants is not mutated');

# The mutants listed as equivalent still exist.
foreach my $line (grep { !/^#/ } split(/\n/, slurp('test/mutants/equivalent')))
{
	my ($key, $path, $function, $why) = $line =~ /^([0-9a-f]{10}) (\S+) (\w+)\(\): (\S.*)$/ or fail("malformed line in test/mutants/equivalent: $line");
	my $there = slurp($path);
	my @there = $path =~ /\.sql$/ ? sql_sites($path, $there) : sites($path, $there);

	ok((grep { $_->{function} =~ /(?:^|\.)$function$/ && site_key($_, $there) eq $key } @there), "equivalent: $why");
}

# Verdicts that need the compiler.
my $program = <<'C';
int	g(int a, int b);
int	h(int a, const char *b);
unsigned	u;
int
f(int a, int b)
{
	unsigned c = u;

	g(a, b);
	h(a, "text");
	if (c > 0)
		return a + b;
	c = 1;
	return 0;
}
C
my $objects = new_objects(tempdir(CLEANUP => 1));
my %verdicts;
foreach my $s (sites($file, $program)) { push @{ $verdicts{"$s->{line} $s->{operator}"} }, (verdict($objects, $s, $program))[0]; }
is_deeply($verdicts{'9 swap'}, ['counts'], 'swapping arguments of the same type counts');
is_deeply($verdicts{'10 swap'}, ['not compiled'], 'swapping arguments of different types does not compile');
is_deeply($verdicts{'11 relational'}, [ 'counts', 'counts' ], 'other comparisons count');
is_deeply($verdicts{'13 statement'}, ['equivalent'],
	'removing an assignment whose value is never read is equivalent: the object file is the same');
is_deeply($verdicts{'12 arithmetic'}, ['counts'], 'a difference instead of a sum counts');
done_testing();
