# Random mutants of SQL and PL/pgSQL: tests each operator at its place in a small file. Comments, strings and log
# messages are never changed.
# Promises: -
use strict;
use warnings;
use LeMutants;
use LeMutate;
use LeMutateSql;
use Test::More;

my $file = 'sql/portable/parts/99-sample.sql';
my $text = <<'SQL';
-- A comment: a < b AND c = 1.
CREATE OR REPLACE FUNCTION f(k int2) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	n int8 := 4;
BEGIN
	IF k < 2 AND NOT done THEN PERFORM g('a < b AND 7', n); END IF; -- or a + b
	SELECT y.a INTO z FROM t y WHERE y.a = k AND y.b BETWEEN n AND m ORDER BY y.b DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
	UPDATE t SET a = k, b = n + 1 WHERE c IS NULL;
	z := CASE k WHEN 1 THEN greatest(n, m) ELSE 0 END;
	INSERT INTO t VALUES (n) ON CONFLICT DO NOTHING;
	RAISE LOG 'n %', n + 1;
	EXIT WHEN n > m;
	RETURN true;
END $$;

REVOKE ALL ON TABLE t FROM PUBLIC;
CREATE TABLE t (a int8 CHECK (a > 0));
SQL

# The mutations of each line, as "operator: new text".
my %made;
foreach my $site (sql_sites($file, $text))
{
	my ($line) = site_diff($site, $text) =~ /^ +\+\s*(.*)$/m;

	push @{ $made{ $site->{line} } }, "$site->{operator}: " . ($line // '');
}
sub line_of { my ($part) = @_; return 1 + (substr($text, 0, index($text, $part)) =~ tr/\n//); }

sub is_made
{
	my ($part, $name, @expected) = @_;

	is_deeply([ sort @{ $made{ line_of($part) } // [] } ], [ sort @expected ], $name);
	return;
}

my $call = q{PERFORM g('a < b AND 7', n); END IF; -- or a + b};
is_made('IF k', 'a condition and the guarded statement are mutated', "condition: IF NOT (k < 2 AND NOT done) THEN $call", "logical: IF k < 2 OR NOT done THEN $call", "logical: IF k < 2 AND  done THEN $call",
	"conjunct: IF k < 2  THEN $call", "relational: IF k <= 2 AND NOT done THEN $call", "relational: IF k >= 2 AND NOT done THEN $call", "constant: IF k < 3 AND NOT done THEN $call",
	"constant: IF k < 1 AND NOT done THEN $call", 'statement: IF k < 2 AND NOT done THEN NULL; END IF; -- or a + b');
my $from = 'SELECT y.a INTO z FROM t y WHERE y.a';
is_made('SELECT y.a', 'a query is mutated', 'statement: NULL;', "relational: $from <> k AND y.b BETWEEN n AND m ORDER BY y.b DESC LIMIT 1 FOR UPDATE SKIP LOCKED;",
	"logical: $from = k OR y.b BETWEEN n AND m ORDER BY y.b DESC LIMIT 1 FOR UPDATE SKIP LOCKED;", "conjunct: $from = k  ORDER BY y.b DESC LIMIT 1 FOR UPDATE SKIP LOCKED;",
	"order: $from = k AND y.b BETWEEN n AND m  LIMIT 1 FOR UPDATE SKIP LOCKED;", "order: $from = k AND y.b BETWEEN n AND m ORDER BY y.b  LIMIT 1 FOR UPDATE SKIP LOCKED;",
	"order: $from = k AND y.b BETWEEN n AND m ORDER BY y.b DESC  FOR UPDATE SKIP LOCKED;", "constant: $from = k AND y.b BETWEEN n AND m ORDER BY y.b DESC LIMIT 2 FOR UPDATE SKIP LOCKED;",
	"constant: $from = k AND y.b BETWEEN n AND m ORDER BY y.b DESC LIMIT 0 FOR UPDATE SKIP LOCKED;", "lock: $from = k AND y.b BETWEEN n AND m ORDER BY y.b DESC LIMIT 1 ;",
	"lock: $from = k AND y.b BETWEEN n AND m ORDER BY y.b DESC LIMIT 1 FOR UPDATE ;");
is_made('UPDATE t SET', 'an assignment in UPDATE is not mutated as a comparison', 'statement: NULL;', 'arithmetic: UPDATE t SET a = k, b = n - 1 WHERE c IS NULL;', 'constant: UPDATE t SET a = k, b = n + 2 WHERE c IS NULL;',
	'constant: UPDATE t SET a = k, b = n + 0 WHERE c IS NULL;', 'null: UPDATE t SET a = k, b = n + 1 WHERE c IS NOT NULL;');
is_made('z :=', 'the values of a CASE are not mutated as conditions', 'statement: NULL;', 'constant: z := CASE k WHEN 2 THEN greatest(n, m) ELSE 0 END;', 'constant: z := CASE k WHEN 0 THEN greatest(n, m) ELSE 0 END;',
	'extreme: z := CASE k WHEN 1 THEN least(n, m) ELSE 0 END;', 'constant: z := CASE k WHEN 1 THEN greatest(n, m) ELSE 1 END;', 'constant: z := CASE k WHEN 1 THEN greatest(n, m) ELSE -1 END;');
is_made('INSERT', 'an INSERT is mutated', 'statement: NULL;', 'lock: INSERT INTO t VALUES (n) ;');
is_made('EXIT', 'an EXIT is mutated', 'statement: NULL;', 'condition: EXIT WHEN NOT (n > m);', 'relational: EXIT WHEN n >= m;', 'relational: EXIT WHEN n <= m;');
is_made('RETURN true', 'a returned constant is mutated', 'constant: RETURN false;');
is_made('n int8', 'an initial value is mutated', 'constant: n int8 := 5;', 'constant: n int8 := 3;');
is_made('REVOKE', 'a REVOKE is removed', 'statement: ');
is_made($_, "not mutated: $_") foreach 'A comment', 'RAISE LOG', 'CREATE TABLE';

# Each site lies within its file, and its mutation changes the text but not the number of lines.
foreach my $part (glob 'sql/portable/parts/*.sql')
{
	my $there = slurp($part);
	my @sites = sql_sites($part, $there);
	my @bad = grep { $_->{pos} + $_->{len} > length $there || mutated($_, $there) eq $there || mutated($_, $there) =~ tr/\n// != $there =~ tr/\n// } @sites;

	is(scalar(@bad), 0, "$part: " . @sites . ' sites lie within the file');
}
done_testing();
