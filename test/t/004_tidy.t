# The project follows the rules of test/tidy, and each rule finds the sample that breaks it.
# Promises: -
use strict;
use warnings;
use Cwd;
use File::Basename;
use File::Path qw(make_path);
use File::Temp;
use LeMutants;
use Test::More;

my $tidy = getcwd() . '/test/tidy';

# A project without a violation. The files of a sample replace these, or are added to them.
my %clean = (
	Makefile => "SOURCES = \$(wildcard src/core/*.c src/server/*/*.c)\n",
	'README.md' => "[How it works](docs/design/internals.md)\n",
	'docs/design/guarantees.md' => "| D | durable | flushes | `test/t/a.t` |\n| Q, R | order | one queue | `a.t` |\n",
	'test/t/a.t' => "# A test.\n# Promises: D, Q, R\n",
	'docs/design/internals.md' => "# How it works\n[What is promised](guarantees.md)\n",
	'src/core/core.h' => "/* The answer to everything. */\nextern int le_answer(void);\n"
	  . "extern int le_half(void); /* of that */\n\n"
	  . "/* Told with the function. */\ntypedef struct Odd\n{\n\tint x;\n} Odd;\n\nextern int le_odd(Odd odd);\n",
	'src/core/core.c' => "#include \"core.h\"\n\nint\nle_answer(void)\n{\n\treturn 42;\n}\n\n"
	  . "int\nle_half(void)\n{\n\treturn 21;\n}\n\nint\nle_odd(Odd odd)\n{\n\treturn odd.x;\n}\n",
	'src/server/shared/compat.h' => "#if PG_VERSION_NUM < 150000\n#endif\n",
	'src/server/sql/sql.h' => "#include \"core/core.h\"\n",
	'src/server/sql/sql.c' => "#include \"shared/compat.h\"\n#include \"sql/sql.h\"\n\n"
	  . "static int\nuse(Odd odd)\n{\n\treturn le_answer() + le_half() + le_odd(odd);\n}\n",
	'sql/a.sql' => "SELECT 1;\n",
	'expected/a.out' => "SELECT 1;\n",
);

my @samples = (
	[
		'a forbidden include between folders',
		{ 'src/server/sql/x.h' => "", 'src/server/shared/up.c' => qq{#include "sql/x.h"\n} },
		'src/server/shared/up.c:1: server/shared may not include sql/x.h'
	],
	[
		'a folder that test/tidy does not list',
		{ 'src/server/more/x.c' => "" },
		"src/server/more/x.c:1: folder server/more is not in test/tidy's list"
	],
	[
		'a system header in the core',
		{ 'src/core/clock.c' => "#include <time.h>\n" },
		'src/core/clock.c:1: src/core is plain C: it may not include time.h'
	],
	[
		'a server header in the core',
		{ 'src/core/clock.c' => qq{\n#include "shared/compat.h"\n} },
		'src/core/clock.c:2: src/core is plain C: it may not include shared/compat.h'
	],
	[
		'a check of PG_VERSION_NUM outside compat.h',
		{ 'src/server/sql/x.c' => "#if PG_VERSION_NUM < 170000\n#endif\n" },
		'src/server/sql/x.c:1: PG_VERSION_NUM belongs into src/server/shared/compat.h'
	],
	[
		'a document that disagrees with test/postgresql-versions',
		{ 'test/postgresql-versions' => "15 a\n19 b\n", Makefile => "SOURCES = \$(wildcard src/core/*.c src/server/*/*.c)\n# postgresql-server-dev-15 or newer\n", 'README.md' => "[For PostgreSQL 15 to 18](docs/design/internals.md)\n" },
		"README.md:1: does not say: PostgreSQL 15 to 19\n"
		  . 'README.md:1: PostgreSQL 15 to 18: by test/postgresql-versions it is PostgreSQL 15 to 19'
	],
	[
		'files that name another oldest PostgreSQL version',
		{
			'test/postgresql-versions' => "16 a\n17 b\n",
			'README.md' => "[For PostgreSQL 16 to 17](docs/design/internals.md)\n",
			'META.json' => qq{"PostgreSQL": "15.0.0"\n},
			'debian/pgversions' => "15+\n",
			'src/server/shared/compat.h' => "#if PG_VERSION_NUM < 160000\n#endif\n",
			Makefile => "SOURCES = \$(wildcard src/core/*.c src/server/*/*.c)\n# install postgresql-server-dev-15 or newer\n"
		},
		join("\n", map { "$_:1: the oldest PostgreSQL is 16, by test/postgresql-versions" } qw(META.json Makefile debian/pgversions))
	],
	[
		'a global function that is used in one file only',
		{ 'src/core/x.c' => qq{/* A comment that names le_answer2(). */\nint\nle_answer2(void)\n{\n\treturn 0;\n}\n} },
		'src/core/x.c:3: le_answer2() is used in this file alone: it can be static'
	],
	[
		'a function without a comment',
		{
			'src/core/more.h' => "#define MORE 43\nextern int le_more(void);\n",
			'src/core/more.c' => "#include \"more.h\"\n\nint\nle_more(void)\n{\n\treturn MORE;\n}\n",
			'src/server/sql/more.c' => "#include \"core/more.h\"\n\nstatic int x = le_more();\n"
		},
		'src/core/more.c:4: le_more() has no comment, here or where it is declared'
	],
	[
		'a function that is declared twice',
		{ 'src/core/other.h' => "extern int le_answer(void);\n", 'src/core/x.c' => qq{#include "other.h"\n} },
		'src/core/other.h:1: le_answer() is declared in src/core/core.h as well'
	],
	[
		'a declaration in a .c file',
		{ 'src/core/x.c' => "extern int other(void);\n" },
		'src/core/x.c:1: other() is declared in a .c file'
	],
	[
		'a function that is declared but not defined',
		{ 'src/core/more.h' => "/* Gone. */\nextern int le_gone(int\n\t\tof_many);\n", 'src/core/x.c' => qq{#include "more.h"\n} },
		'src/core/more.h:2: le_gone() is declared, and defined nowhere'
	],
	[ 'a header that no file includes', { 'src/core/x.h' => "" }, 'src/core/x.h:1: nothing uses this file' ],
	[ 'a source file that is not compiled', { 'test/odd/x.c' => "" }, 'test/odd/x.c:1: nothing uses this file' ],
	[ 'an expected output without a test', { 'expected/b.out' => "" }, 'expected/b.out:1: nothing uses this file' ],
	[ 'a module that no test uses', { 'test/lib/LeNone.pm' => "1;\n" }, 'test/lib/LeNone.pm:1: nothing uses this file' ],
	[ 'a page that no other page links', { 'docs/x.md' => "" }, 'docs/x.md:1: nothing uses this file' ],
	[
		'a long line', { 'src/core/x.c' => "\n" . "\t" x 29 . "12345\n" },
		'src/core/x.c:2: more than 120 columns'
	],
	[
		'a long line in a document',
		{ 'README.md' => '[a](docs/design/internals.md) ' . 'x' x 98 . "\n| " . 'x' x 130 . " |\n\n```text\n" . 'x' x 130 . "\n```\n" },
		'README.md:1: more than 120 columns'
	],
	[
		'a list interrupted by a block that is not indented',
		{ 'README.md' => "[a](docs/design/internals.md)\n\n1. a\n\n```sh\n1. b\n```\n\n2. c\n\n    ```text\n    d\n    ```\n\n3. e\n" },
		'README.md:9: a list that begins with 2'
	],
	[
		'a list item continued with an indent of three columns',
		{ 'README.md' => "[a](docs/design/internals.md)\n\n1. a\n   a\n    - b\n\n    c\n2. d\n   - e\n\n   f\n   ```sh\n   g\n   ```\n" },
		join("\n", map { "README.md:$_: an item goes on, or has items, with four columns" } 9, 11, 12)
	],
	[
		'a list without an empty line before it, and a block without a language',
		{ 'README.md' => "[a](docs/design/internals.md)\n- a\n\n```\n```\n" },
		"README.md:2: no empty line before a list\nREADME.md:4: a block without a language"
	],
	[
		'a long function',
		{ 'src/core/x.c' => "static int\nlong_one(void)\n{\n" . "\tstep();\n" x 78 . "}\n" },
		'src/core/x.c:2: long_one() has 81 lines, more than 80'
	],
	[
		'circular calls between files',
		{
			'src/core/x.c' => "#include \"x.h\"\n\nint\nle_x(void)\n{\n\treturn le_y();\n}\n",
			'src/core/y.c' => "#include \"x.h\"\n\nint\nle_y(void)\n{\n\treturn le_x();\n}\n",
			'src/core/x.h' => "/* one */\nextern int le_x(void);\n/* and the other */\nextern int le_y(void);\n"
		},
		"src/core/x.c:1: calls go in a circle: y\nsrc/core/y.c:1: calls go in a circle: x"
	],
	[
		'circular includes',
		{
			'src/core/x.h' => "#include \"y.h\"\n",
			'src/core/y.h' => "",
			'src/core/y.c' => "#include \"y.h\"\n#include \"x.h\"\n"
		},
		"src/core/x.h:1: includes go in a circle: y\nsrc/core/y.c:1: includes go in a circle: x"
	],
	[
		'a function that only the core may use',
		{
			'src/core/core.h' => "/* The answer to everything. */\nextern int le_answer(void);\n"
			  . "extern int le_half(void); /* of that */\n\n/* --- for the core alone --- */\n\n"
			  . "/* Told with the function. */\ntypedef struct Odd\n{\n\tint x;\n} Odd;\n\nextern int le_odd(Odd odd);\n"
		},
		'src/core/core.h:13: le_odd() is for the core alone'
	],
	[
		'a test without the line "Promises:"', { 'test/t/b.t' => "# A test.\n" },
		'test/t/b.t:1: no line "Promises: D, L", or "Promises: -", in its head'
	],
	[
		'two tests with the same number', { 'test/t/001_a.t' => "# Promises: D\n",
			'test/t/001_b.t' => "# Promises: -\n" },
		'test/t/001_b.t:1: test/t/001_a.t has number 001 as well'
	],
	[
		'a test of an unknown promise', { 'test/specs/b.spec' => "# Promises: D, X\n" },
		'test/specs/b.spec:1: docs/design/guarantees.md has no promise X'
	],
	[
		'an invariant of an unknown promise',
		{ 'test/sim/invariants.c' => "/*\n *\tD\tdurable\n *\tY\tyes\n */\n", Makefile => "SOURCES = test/sim/*.c src/*/*.c src/server/*/*.c\n" },
		'test/sim/invariants.c:1: docs/design/guarantees.md has no promise Y'
	],
	[
		'a test that lacks a promise for which guarantees.md names it', { 'test/t/a.t' => "# Promises: Q, R\n" },
		"docs/design/guarantees.md:1: promise D names no test that shows it\n"
		  . 'test/t/a.t:1: docs/design/guarantees.md says that it shows D'
	],
	[
		'a promise that no test shows',
		{ 'docs/design/guarantees.md' => "| D | durable | flushes | `test/t/a.t`, torture |\n\n| Q, R | order | one queue | torture |\n" },
		'docs/design/guarantees.md:3: promise Q, R names no test'
	],
	[
		'one of several promises that none of the named tests shows',
		{ 'test/t/a.t' => "# Promises: D\n", 'docs/design/guarantees.md' => "| D, Q | durable, in order | flushes | `a.t` |\n" },
		'docs/design/guarantees.md:1: promise Q names no test that shows it'
	],
	[
		'a named test that does not exist',
		{ 'docs/design/guarantees.md' => "| D | durable | flushes | `a.t`, `b.t` |\n| Q, R | order | one queue | `a.t` |\n" },
		'docs/design/guarantees.md:1: there is no test b.t'
	],
	[
		'a page that names a function and a file that do not exist',
		{ 'docs/design/internals.md' => "# How it works\n[a](guarantees.md)\n`le_answer()`, `le_gone()`\nin `core/gone.c`\n" },
		"docs/design/internals.md:3: there is no function le_gone()\ndocs/design/internals.md:4: there is no file core/gone.c"
	],
	[
		'a picture that names a function and a file that do not exist',
		{ 'docs/design/internals.md' => "# How it works\n[a](guarantees.md)\n\n```text\nle_answer()  core/core.c\nle_gone() --> core/gone.c\n```\n" },
		"docs/design/internals.md:6: there is no function le_gone()\ndocs/design/internals.md:6: there is no file core/gone.c"
	],
	[ 'a long file', { 'src/core/x.c' => "\n" x 800 . "int x;\n" }, 'src/core/x.c:1: 801 lines, more than 800' ],
);

# Runs test/tidy in a project with these files. Returns its output and exit status.
sub tidy
{
	my (%files) = @_;
	my $dir = File::Temp->newdir();

	foreach my $name (keys %files)
	{
		make_path(dirname("$dir/$name"));
		spew("$dir/$name", $files{$name});
	}
	my $out = `perl $tidy $dir 2>&1`;
	return ($out, $? >> 8);
}

my $here = `perl $tidy . 2>&1`;
is($here . $?, '0', 'this project has no violation');
is_deeply([ tidy(%clean) ], [ '', 0 ], 'the clean sample has no violation');
foreach my $sample (@samples)
{
	my ($name, $files, $breach) = @$sample;

	is_deeply([ tidy(%clean, %$files) ], [ "$breach\n", 1 ], $name);
}
my @list = grep { m{/(?:055_evict\.t|evict\.c)$} } `perl $tidy --promises .`;
is($?, 0, 'test/tidy --promises succeeds');
is(join('', @list), join('', map { "$_\ttest/t/055_evict.t\n" . ($_ eq 'G' ? '' : "$_\ttest/unit/evict.c\n") } qw(D G L M)), 'test/tidy --promises lists the tests of each promise');
done_testing();
