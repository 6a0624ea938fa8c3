# The portable edition keeps the SQL contract of the C edition: it passes the pgTAP scripts, the regression tests with
# their expected files, and isolation tests. Parts for only one edition are marked there, see test/lib/portable-part.
# Promises: Q, F
use strict;
use warnings;
use LePortable;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0, conf => "shared_preload_libraries = ''\n");
my $dir = PostgreSQL::Test::Utils::tempdir();
my $databases = 0;

# Creates a database with the portable edition. Returns its name.
sub new_database
{
	my $db = 'd' . ++$databases;

	one("CREATE DATABASE $db TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
	install_portable($node, $db);
	return $db;
}

foreach my $file (contract_files()) { is(contract_broken($node->connstr(new_database()), $file), '', $file); }

# The other isolation tests wait in SQL, but pg_isolation_regress only detects waits for PostgreSQL's own locks. The
# names called "alike" collide only in the C edition, because the portable edition uses another key.
mkdir "$dir/isolation";
mkdir "$dir/isolation/$_" foreach 'specs', 'expected';
foreach my $name ('advisory', 'versions')
{
	append_to_file("$dir/isolation/specs/$name.spec", slurp_file("test/specs/$name.spec") =~ s/^(?:permutation .*alike|step (?:\w*alike|two_all) ).*\n//mgr);
	append_to_file("$dir/isolation/expected/$name.out", join '', grep { !/alike/ } split /(?=^starting permutation:)/m, slurp_file("expected/$name.out"));
}
my $program = $ENV{PG_REGRESS} =~ s{/regress/pg_regress$}{/isolation/pg_isolation_regress}r;
my @command = ($program, '--use-existing', "--inputdir=$dir/isolation", "--outputdir=$dir/isolation", '--bindir=', '--host=' . $node->host,
	'--port=' . $node->port, '--dbname=' . new_database(), 'advisory', 'versions');
my $out = '';
ok(IPC::Run::run(\@command, '>&', \$out), 'isolation tests of advisory locks and versions')
  or diag(-f "$dir/isolation/regression.diffs" ? slurp_file("$dir/isolation/regression.diffs") : $out);
$node->stop;
done_testing();
