# The pages of docs/reference match the server: functions, views and settings are the output of their generator, and
# each error that the code can raise is listed.
# Promises: -
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
local @ENV{qw(PGHOST PGPORT PGDATABASE)} = ($node->host, $node->port, 'postgres');

foreach my $page (qw(functions views settings))
{
	my ($out, $err) = run_command([ 'test/lib/reference', $page ]);

	is($err, '', "$page: the generator reports no difference from the catalog");
	cmp_ok(length $out, '>', 1000, "$page: the generator prints a page");
	is(slurp_file("docs/reference/$page.md"), "$out\n", "docs/reference/$page.md: `make reference` writes it");
}

# SQLSTATEs by their names, from PostgreSQL and the extension.
my ($dir) = run_command([ 'pg_config', '--includedir-server' ]);
my @sources = glob('src/server/*.[ch] src/server/*/*.[ch]');
my $defines = join '', map { slurp_file($_) } "$dir/utils/errcodes.h", grep { /\.h$/ } @sources;
my (%code_of, %raised);

while ($defines =~ /^#define (ERRCODE_\w+)\s+MAKE_SQLSTATE\(([^)]*)\)/mg)
{
	my ($name, $letters) = ($1, $2);

	$code_of{$name} = $letters =~ s/\W//gr;
}
foreach my $file (grep { m{\.c$} && !m{/fault} } @sources)
{
	my $code = slurp_file($file);

	$raised{ $code_of{$1} // die "$file: what is $1?" } //= $file while $code =~ /\b(ERRCODE_\w+)/g;
}
my $page = slurp_file('docs/reference/errors.md');
cmp_ok(scalar(keys %raised), '>', 10, 'the code raises more than 10 SQLSTATEs');
ok($page =~ /\b$_\b/, "docs/reference/errors.md has $_, of $raised{$_}") foreach sort keys %raised;

$node->stop;
done_testing();
