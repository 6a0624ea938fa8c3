# All places that state the version agree, and META.json follows PGXN's specification.
# Promises: -
use strict;
use warnings;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my ($version) = slurp_file('lock_election.control') =~ /^default_version = '(\d+\.\d+)'$/m;
my $meta = decode_json(slurp_file('META.json'));

# --- versions ---

like($meta->{version}, qr/^\Q$version\E\.\d+$/, 'META.json');
is($meta->{provides}{lock_election}{version}, $meta->{version}, 'META.json, provides');
like(slurp_file('debian/changelog'), qr/\Alock-election \(\Q$meta->{version}\E-\d+\) /, 'debian/changelog');
like(slurp_file('CHANGELOG.md'), qr/\A# Changelog\n\n## \Q$meta->{version}\E /, 'CHANGELOG.md');

my %header = slurp_file('src/client/lock_election.h') =~ /^#define LE_VERSION_(MAJOR|MINOR) (\d+)$/mg;
is("$header{MAJOR}.$header{MINOR}", $version, 'lock_election.h');

# The packages of the clients.
foreach my $file (glob('clients/*/pyproject.toml clients/*/package.json clients/*/pom.xml clients/*/*/pom.xml clients/python/src/lock_election/__init__.py clients/ruby/lib/lock_election/version.rb'))
{
	my ($told) = slurp_file($file) =~ /^\s*(?:version = |"version": |<version>|__version__ = |VERSION = )"?([\d.]+)/m;
	is($told, $meta->{version}, $file);
}
is_deeply([ slurp_file('clients/build.sh') =~ /\bv(\d+\.\d+\.\d+)\b/g ], [ $meta->{version} ], 'clients/build.sh, for Go');

# The name of the library, and of the package that has it.
my ($soname) = slurp_file('Makefile') =~ /^CLIENT_SONAME\s*= liblockelection\.so\.(\d+)$/m;
my $package = "liblockelection$soname";
like(slurp_file("debian/$package.symbols"), qr/\Aliblockelection\.so\.$soname $package #MINVER#\n.*\n \(symver\)LIBLOCKELECTION_$soname \d/, "debian/$package.symbols");
like(slurp_file('debian/control.in'), qr/^Package: $package$/m, 'debian/control.in');
like(slurp_file('debian/control.in'), qr/^Depends: .*\b$package \(= /m,
	'debian/control.in, dependency of the development package');
like(slurp_file('src/client/symbols.map'), qr/\ALIBLOCKELECTION_$soname \{/, 'symbols.map');
is(join(' ', sort glob('debian/liblockelection[0-9]*')), "debian/$package.install debian/$package.symbols", 'debian has only the package of this SONAME');

# The ABI that existing programs depend on: functions, and the sizes up to which the structs are allocated by an old
# program, on 64-bit machines. Functions may be added, and fields at the end of structs that contain their size.
my %size = (le_error => 516, le_options => 80, le_event => 24, le_how => 24, le_leader_info => 4136, le_change => 56, le_callbacks => 40);
my $work = PostgreSQL::Test::Utils::tempdir();
append_to_file("$work/sizes.c", join('', "#include <stdio.h>\n#include \"lock_election.h\"\nint main(void)\n{\n", map({ qq{\tprintf("$_ %zu\\n", sizeof($_));\n} } sort keys %size), "\treturn 0;\n}\n"));
my ($libpq) = run_command([ 'pg_config', '--includedir' ]);
system_or_bail('cc', '-std=c11', '-Isrc/client', "-I$libpq", '-o', "$work/sizes", "$work/sizes.c");
my ($sizes) = run_command(["$work/sizes"]);
SKIP:
{
	skip 'not a 64-bit machine', 1 if (run_command([ 'getconf', 'LONG_BIT' ]))[0] ne '64';
	is($sizes, join("\n", map { "$_ $size{$_}" } sort keys %size), 'the sizes of the structs');
}

# There is a chain of scripts from an initial script to this version, and each script checks the version of the
# library.
my %reached;
foreach my $file (sort { $a =~ y/-// <=> $b =~ y/-// || $a cmp $b } glob('sql/lock_election--*.sql'))
{
	my ($from, $to) = $file =~ /--([\d.]+?)(?:--([\d.]+))?\.sql$/;
	my $array = ($to // $from) =~ tr/./,/r;

	$reached{ $to // $from } = 1 if !defined $to || $reached{$from};
	my $check = quotemeta("OPERATOR(pg_catalog.<) '{$array}'") . '.*' . quotemeta('script is of version ' . ($to // $from) . "'");
	like(slurp_file($file), qr/$check/s, "$file checks the version of the library");
}
ok($reached{$version}, 'there are scripts for this version');

# All symbols that the SQL of any version refers to exist: ALTER EXTENSION, pg_dump and pg_upgrade look them up in the
# new library.
my $sql = join '', map { slurp_file($_) } glob('sql/lock_election--*.sql');
my $sources = join '', map { slurp_file($_) } glob('src/server/*/*.c');
my @symbols = $sql =~ /^AS 'MODULE_PATHNAME', '(\w+)'|LANGUAGE C.* AS 'MODULE_PATHNAME', '(\w+)'/gm;
my @missing = grep { defined && $sources !~ /^LE_(?:FUNCTION\($_\);|SQL_CALL\($_,)/m } @symbols;

cmp_ok(scalar(grep { defined } @symbols), '>', 40, 'SQL refers to symbols');
is_deeply(\@missing, [], 'the library has all symbols of the SQL');

# --- packages ---

# The documents have the same paths in the package as here, so that their links work.
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($documents) = slurp_file('debian/rules') =~ /^DOCUMENTS = (.*) \$\(CLIENT_DOCUMENTS\)$/m;
my @readmes = grep { !m{/conformance/} } glob('clients/*/README.md');
$documents = join ' ', $documents, @readmes, glob('clients/*/examples clients/python/LICENSE'),
  split(' ', `test/lib/links --targets docs/how-to/frameworks.md @readmes`);
is(system("cp -r --parents $documents $dir"), 0, 'the documents are copied');
is(`test/lib/links $dir`, '', 'the links of the copied documents work');
append_to_file("$dir/broken.md", "[a](docs/nothing.md) [b](docs/guide.md#nothing) [c](#here) [d](docs/guide.md#leases)\n# Here\n");
is(scalar(() = `test/lib/links $dir`), 2, 'broken links are found');

# All places that list the packages needed to build packages are complete.
my ($depends) = slurp_file('debian/control.in') =~ /^Build-Depends: (.*?)\n(?! )/ms;
my @needed = map { /^\s*debhelper/ ? 'debhelper' : /([\w-]+)/ ? $1 : () } split /,/, $depends;
foreach my $told ('Makefile', 'docs/design/releasing.md', 'test/packages.sh')
{
	my ($line) = slurp_file($told) =~ /^(.*build-essential.*)$/m;
	is(join(' ', grep { $line !~ /(?<![\w-])\Q$_\E(?![\w-])/ } @needed), '', "$told lists all packages that make deb needs");
}

# --- https://pgxn.org/meta/spec.txt ---

my $semver = qr/^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)$/;

ok(defined $meta->{$_} && !ref $meta->{$_} && $meta->{$_} =~ /\S/, "META.json: $_") foreach qw(name abstract version maintainer license generated_by);
like($meta->{name}, qr/^[^\s\/\\[:cntrl:]]{2,}$/, 'name');
like($meta->{version}, $semver, 'version');
is($meta->{license}, 'postgresql', 'licence');
is_deeply([ sort keys %{ $meta->{'meta-spec'} } ], [ 'url', 'version' ], 'meta-spec');
is($meta->{'meta-spec'}{version}, '1.0.0', 'meta-spec, version');
foreach my $name (sort keys %{ $meta->{provides} })
{
	my $provided = $meta->{provides}{$name};
	like($provided->{version}, $semver, "$name: version");
	ok(-f $provided->{$_}, "$name: $_") foreach 'file', 'docfile';
}
ok(!(grep { ref || length > 255 || /[[:cntrl:]\/\\]/ } @{ $meta->{tags} }), 'tags');
is_deeply([ grep { !/^(?:name|abstract|description|version|maintainer|license|provides|prereqs|generated_by|meta-spec|tags|resources|no_index|release_status)$/ } keys %$meta ], [], 'no other keys');
like($meta->{prereqs}{runtime}{requires}{PostgreSQL}, $semver, 'the required version of PostgreSQL');

done_testing();
