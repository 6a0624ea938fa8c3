# A role that may create objects in the schema of CREATE EXTENSION creates functions, operators and types there. None of
# them ever runs: not as the superuser who creates, updates or drops the extension, and not as users of its views and
# functions.
# Promises: -
use strict;
use warnings;
use LeShadows;
use LeTest;
use Test::More;

my $node = new_node('main');
my $types = used_types($node);
my ($out, $err);

sub run { $node->psql($_[0], $_[1], stdout => \$out, stderr => \$err); return $err; }

like($types, qr/\btext\b.*\btimestamp with time zone\b/, 'the types that the extension uses are found');
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach 'shadowed', 'plain';
make_shadows($node, $_, 'public', $types) foreach 'shadowed', 'plain';
my $from = -s $node->logfile;

sub none_has_run { return is(shadows_that_ran($node, $from), '', $_[0]); }

# --- CREATE EXTENSION, use, DROP EXTENSION ---

is(run('shadowed', 'CREATE EXTENSION lock_election'), '', 'CREATE EXTENSION succeeds');
none_has_run('CREATE EXTENSION runs no shadow');
is(depends_on_shadows($node, 'shadowed'), '', 'no created object depends on a shadow');

# Creates rows for everything that the views show.
my $set_up = <<'SQL';
SELECT public.acquire_lock('a', '1 min', owner => 'o', lease => public.grant_lease('1 h', 'me'));
SELECT public.enqueue_lock('a', '1 min');
SELECT public.enqueue_locks('{a,b}', '1 min', 'shared', 'o');
SELECT public.release_lock('c', public.acquire_lock('c', NULL), hold_for => '1 h');
SELECT public.enqueue_lock('c', '1 min');
SELECT public.enqueue_permit('p', 2, '1 min'), public.acquire_permit('p', 2), public.set_permits('p', 1);
SELECT public.campaign('e', 'alice', '1 h'), public.enqueue_candidate('e', 'bob', '1 h');
SELECT public.current_leader('e'), public.election_history('e', 0), public.observe_election('e');
SELECT public.compare_and_set('k', 0, 'x'), public.compare_and_set('k', 1, 'y'), public.read_versioned('k');
SELECT public.advisory_acquire('a', '0', true), public.advisory_release('a', true);
CREATE TABLE public.guarded (version pg_catalog.int4, v pg_catalog.text);
CREATE TRIGGER version BEFORE UPDATE ON public.guarded FOR EACH ROW EXECUTE FUNCTION public.version_guard();
CREATE TRIGGER fence BEFORE UPDATE ON public.guarded FOR EACH STATEMENT EXECUTE FUNCTION public.fence_guard('f');
INSERT INTO public.guarded VALUES (1, 'x');
BEGIN;
SELECT public.fence_lock('f', public.acquire_lock('f'));
UPDATE public.guarded SET v = 'y';
COMMIT;
SQL

foreach my $path ('"$user", public', 'public, pg_catalog')
{
	my $views = join("\n", map { "SELECT * FROM lock_election.$_;" }
		  split(/\n/, $node->safe_psql('postgres', q{SELECT viewname FROM pg_views WHERE schemaname = 'lock_election'})));

	is(run('shadowed', "SET search_path = $path; $set_up"), '', "the functions succeed with search_path $path");
	is(run('shadowed', "SET search_path = $path; $views"), '', "the views can be read with search_path $path");
	like($out, qr/^lock\|a\|0\|.*^e\|alice\|.*\|\{0\}\|/ms, 'the views show the rows');
	is(run('shadowed', "SET search_path = $path; SELECT public.force_release_role(current_user::pg_catalog.regrole); DROP TABLE public.guarded"), '', 'the rows are deleted');
	none_has_run("functions and views run no shadow with search_path $path");
}

# --- the scripts alone, with a search_path that finds the shadows before PostgreSQL's own objects ---

is(run('plain', "\\set ON_ERROR_STOP on\nSET search_path = public, pg_catalog;\n" . plain_scripts('sql', 'public')), '', 'the statements of the scripts succeed');
none_has_run('the statements of the scripts run no shadow');
is(depends_on_shadows($node, 'plain'), '', 'no object of the scripts depends on a shadow');

is(run('shadowed', 'SET search_path = public, pg_catalog; DROP EXTENSION lock_election'), '',
	'DROP EXTENSION succeeds');
none_has_run('DROP EXTENSION runs no shadow');

# --- the checks notice shadows that run ---

run('shadowed', q{SELECT '{1}'::int4[] < '{2}'});
run('shadowed', q{SELECT array_append('{1}'::int4[], 2)});
run('shadowed', q{SET search_path = public, pg_catalog; SELECT length('x'::pg_catalog.text)});
like(shadows_that_ran($node, $from), qr/\Ashadow_test\(integer\[\], integer\[\]\)\narray_append\(integer\[\], integer\)\nlength\(text\)\z/, 'shadows that run are noticed');
run('shadowed', q{CREATE VIEW v AS SELECT '{1}'::int4[] || '{2}'});
like(depends_on_shadows($node, 'shadowed'), qr/view public.v uses operator/,
	'a view that depends on a shadow is noticed');

done_testing();
