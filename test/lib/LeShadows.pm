# Objects with which a role that may create objects in a schema can attack a script that runs there: functions,
# operators, types, collations and tables with the names of PostgreSQL's own. Each reports to the server log when it
# runs.
#
#   make_shadows($node, 'app', 'public', used_types($node))     as role mallory, which it creates if necessary
#   shadows_that_ran($node, $from)     the reports in the log from this position on; '' if none has run
#   depends_on_shadows($node, 'app')   objects of others that refer to one; '' if there are none
#   plain_scripts('sql', 'public')     the extension's scripts in a folder, as statements for psql: the first one, then
#                                      the updates

package LeShadows;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;

our @EXPORT = qw(used_types make_shadows shadows_that_ran depends_on_shadows plain_scripts);

# Returns the base types of all arguments, results and columns of the extension, in a database in which it is installed.
sub used_types
{
	my ($node, $db) = @_;

	return $node->safe_psql($db // 'postgres', <<'SQL');
WITH own AS (SELECT classid, objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'lock_election'),
t AS (SELECT unnest(COALESCE(proallargtypes, proargtypes::oid[]) || prorettype) AS oid
	FROM own JOIN pg_proc p ON p.oid = objid AND classid = 'pg_proc'::regclass
	UNION SELECT atttypid FROM own JOIN pg_attribute ON attrelid = objid AND classid = 'pg_class'::regclass AND attnum > 0)
SELECT string_agg(DISTINCT (CASE typcategory WHEN 'A' THEN typelem ELSE oid END)::regtype::text, ',')
FROM t JOIN pg_type USING (oid) WHERE typtype = 'b'
SQL
}

# Creates, for each function and operator of pg_catalog, one with the same arguments; if these are polymorphic, one for
# each type that the extension uses, which is a better match. Also creates, for each operator name in the scripts, one
# for each pair of types that PostgreSQL would have to convert.
my $shadows = <<'SQL';
SET search_path = pg_catalog;
SET check_function_bodies = off;
CREATE TEMP TABLE used AS
	SELECT t AS type, (SELECT typarray FROM pg_type WHERE oid = t)::regtype AS array_type
	FROM unnest('{%types%}'::regtype[]) AS t;

CREATE FUNCTION pg_temp.of_type(polymorphic oid, type regtype, array_type regtype) RETURNS regtype LANGUAGE sql AS $$
	SELECT CASE WHEN polymorphic IN ('anyarray'::regtype, 'anycompatiblearray'::regtype) THEN array_type
		WHEN polymorphic IN ('anyelement'::regtype, 'anynonarray'::regtype, 'anycompatible'::regtype,
			'anycompatiblenonarray'::regtype, '"any"'::regtype) THEN type
		ELSE polymorphic::regtype END
$$;

-- If two shadows have the same name and arguments, the first one stays. Skips those that only a superuser can create.
CREATE FUNCTION pg_temp.shadow(name text, args text, result text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FUNCTION %schema%.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', name, args, result,
		format('BEGIN RAISE LOG ''a shadow has run: %%'', %L; RETURN NULL; END', format('%s(%s)', name, args)));
EXCEPTION WHEN duplicate_function OR feature_not_supported OR invalid_function_definition THEN
	NULL;
END
$$;

DO $do$
BEGIN
	PERFORM pg_temp.shadow(name, args, result) FROM (
		SELECT DISTINCT p.proname::text AS name, a.args,
			CASE WHEN r.typtype = 'b' THEN r.oid::regtype::text ELSE 'text' END AS result
		FROM pg_proc p CROSS JOIN used u
		JOIN pg_type r ON r.oid = pg_temp.of_type(p.prorettype, u.type, u.array_type)
		CROSS JOIN LATERAL (SELECT COALESCE(string_agg(pg_temp.of_type(t, u.type, u.array_type)::text, ', ' ORDER BY n), '') AS args
			FROM unnest(p.proargtypes) WITH ORDINALITY AS x(t, n)) a
		WHERE p.pronamespace = 'pg_catalog'::regnamespace) f;
END
$do$;

-- An operator needs a function with exactly its arguments, whose name depends on the result type.
DO $do$
DECLARE
	o record;
BEGIN
	FOR o IN
		WITH ops AS (SELECT oprname, oprleft, oprright, oprresult FROM pg_operator
			WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b'),
		names AS (SELECT DISTINCT oprname FROM ops WHERE position(oprname::text IN $script$%script%$script$) > 0),
		either AS (SELECT type AS t FROM used UNION SELECT array_type FROM used)
		SELECT DISTINCT ON (1, 2, 3) oprname::text AS name, l::text AS l, r::text AS r,
			CASE WHEN is_test THEN 'shadow_test' ELSE 'shadow_operator' END AS function,
			CASE WHEN is_test THEN 'boolean' ELSE l::text END AS result
		FROM (SELECT oprname, pg_temp.of_type(oprleft, type, array_type) AS l, pg_temp.of_type(oprright, type, array_type) AS r,
				oprresult = 'boolean'::regtype AS is_test
			FROM ops CROSS JOIN used
			UNION ALL
			SELECT oprname, a.t, b.t, oprname ~ '[=<>]' AND oprname !~ '<<|>>'
			FROM names CROSS JOIN either a CROSS JOIN either b) x
		ORDER BY 1, 2, 3, is_test DESC
	LOOP
		PERFORM pg_temp.shadow(o.function, o.l || ', ' || o.r, o.result);
		EXECUTE format('CREATE OPERATOR %schema%.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %schema%.%I)', o.name, o.l, o.r, o.function);
	END LOOP;
	FOR o IN SELECT typname::text AS name FROM pg_type
		WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'p') AND typname !~ '^_'
	LOOP
		EXECUTE format('CREATE DOMAIN %schema%.%I AS int2', o.name);
	END LOOP;
	FOR o IN SELECT relname::text AS name FROM pg_class
		WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
	LOOP
		EXECUTE format('CREATE TABLE %schema%.%I ()', o.name);
	END LOOP;
	EXECUTE 'CREATE COLLATION %schema%."C" FROM pg_catalog."C"';
END
$do$;
SQL

# Returns the code of a script without comments and strings.
sub code_of
{
	my ($text) = @_;

	return $text =~ s/--[^\n]*|'(?:[^']|'')*'//gr;
}

sub make_shadows
{
	my ($node, $db, $schema, $types) = @_;
	my $sql = $shadows =~ s/%schema%/$schema/gr =~ s/%types%/$types/r;
	my $code = join('', map { code_of(slurp_file($_)) } glob('sql/lock_election--*.sql'), 'test/upgrade/next.sql');

	$sql =~ s/%script%/$code/;
	$node->safe_psql($db, <<SQL);
DO \$\$ BEGIN CREATE ROLE mallory LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END \$\$;
GRANT USAGE, CREATE ON SCHEMA $schema TO mallory;
SQL
	my ($out, $err);
	$node->psql($db, $sql, extra_params => [ '-U', 'mallory' ], on_error_stop => 1, stdout => \$out, stderr => \$err);
	die "no shadows: $err" if $err ne '';
	return;
}

sub shadows_that_ran
{
	my ($node, $from) = @_;
	my %seen;

	return join("\n", grep { !$seen{$_}++ } substr(slurp_file($node->logfile), $from) =~ /a shadow has run: (.*)/g);
}

sub depends_on_shadows
{
	my ($node, $db) = @_;

	return $node->safe_psql($db, <<'SQL');
SET search_path = pg_catalog;
WITH RECURSIVE shadow AS (
	SELECT classid, objid FROM pg_shdepend
	WHERE refclassid = 'pg_authid'::regclass AND refobjid = 'mallory'::regrole AND deptype = 'o'
		AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
	UNION SELECT d.classid, d.objid
	FROM pg_depend d JOIN shadow s ON d.refclassid = s.classid AND d.refobjid = s.objid AND d.deptype = 'i')
SELECT string_agg(DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid) || ' uses '
	|| pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), E'\n')
FROM pg_depend d JOIN shadow s ON d.refclassid = s.classid AND d.refobjid = s.objid
WHERE (d.classid, d.objid) NOT IN (SELECT * FROM shadow)
SQL
}

sub plain_scripts
{
	my ($dir, $schema) = @_;
	my @files = sort { $a =~ y/-// <=> $b =~ y/-// || $a cmp $b } glob("$dir/lock_election--*.sql");

	return join('', map { slurp_file($_) } @files) =~ s/^\\.*//mgr =~ s/\@extschema\@/$schema/gr
	  =~ s/'MODULE_PATHNAME'/'\$libdir\/lock_election'/gr =~ s/^SELECT pg_catalog\.pg_extension_config_dump\(.*//mgr;
}

1;
