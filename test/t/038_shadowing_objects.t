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

like($types, qr/\btext\b.*\btimestamp with time zone\b/, 'types of the extension');
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach 'shadowed', 'plain';
make_shadows($node, $_, 'public', $types) foreach 'shadowed', 'plain';
my $from = -s $node->logfile;

sub none_has_run { return is(shadows_that_ran($node, $from), '', $_[0]); }

# --- CREATE EXTENSION, use, DROP EXTENSION ---

is(run('shadowed', 'CREATE EXTENSION lock_election'), '', 'CREATE EXTENSION');
none_has_run('runs none');
is(depends_on_shadows($node, 'shadowed'), '', 'nothing that it has created refers to one');

# A row for everything that the views show.
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

	is(run('shadowed', "SET search_path = $path; $set_up"), '', "functions, with search_path $path");
	is(run('shadowed', "SET search_path = $path; $views"), '', 'views');
	like($out, qr/^lock\|a\|0\|.*^e\|alice\|.*\|\{0\}\|/ms, 'which show what there is');
	is(run('shadowed', "SET search_path = $path; SELECT public.force_release_role(current_user::pg_catalog.regrole); DROP TABLE public.guarded"), '', 'and the end');
	none_has_run('run none');
}

# --- the scripts alone, where the shadows are found before PostgreSQL's own ---

is(run('plain', "\\set ON_ERROR_STOP on\nSET search_path = public, pg_catalog;\n" . plain_scripts('sql', 'public')), '', 'the statements of the scripts');
none_has_run('run none');
is(depends_on_shadows($node, 'plain'), '', 'refer to none');

is(run('shadowed', 'SET search_path = public, pg_catalog; DROP EXTENSION lock_election'), '', 'DROP EXTENSION');
none_has_run('runs none');

# --- all of this would be seen ---

run('shadowed', q{SELECT '{1}'::int4[] < '{2}'});
run('shadowed', q{SELECT array_append('{1}'::int4[], 2)});
run('shadowed', q{SET search_path = public, pg_catalog; SELECT length('x'::pg_catalog.text)});
like(shadows_that_ran($node, $from), qr/\Ashadow_test\(integer\[\], integer\[\]\)\narray_append\(integer\[\], integer\)\nlength\(text\)\z/, 'shadows run where a name is not qualified');
run('shadowed', q{CREATE VIEW v AS SELECT '{1}'::int4[] || '{2}'});
like(depends_on_shadows($node, 'shadowed'), qr/view public.v uses operator/, 'or are referred to');

done_testing();
