# From PostgreSQL 18 on, the extension works from a folder of its own, as with an image volume of CloudNativePG: found
# by extension_control_path and dynamic_library_path, read-only, with a server that has none of its files. This includes
# a restart, workers of other databases, pg_dump and an upgrade of the extension.
# Promises: -
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

# The system's own server, because the extension is installed in the private copy that all other tests use.
my ($pg_config) = $ENV{PG_CONFIG} =~ m{(/usr/lib/postgresql/\d+/bin/pg_config)$};
my ($version) = run_command([ $ENV{PG_CONFIG}, '--version' ]);
my ($major) = $version =~ /^PostgreSQL (\d+)/ or die "what is $version?";
plan skip_all => 'from PostgreSQL 18 on' if $major < 18;
plan skip_all => 'the server is not a package' if !$pg_config || !-x $pg_config;
my ($libraries) = run_command([ $pg_config, '--pkglibdir' ]);
plan skip_all => 'the extension is installed in this system' if -e "$libraries/lock_election.so";

# The layout that container/Dockerfile creates.
my $dir = PostgreSQL::Test::Utils::tempdir();
my $volume = "$dir/extensions/lock_election";
{
	delete local @ENV{qw(MAKEFLAGS MAKELEVEL)};
	system_or_bail('make', '-s', 'install', "DESTDIR=$dir/out", "PG_CONFIG=$pg_config", '-o', 'all', '-o', 'lock_election.so');
}
my ($share) = run_command([ $pg_config, '--sharedir' ]);
system_or_bail('mkdir', '-p', "$volume/share");
system_or_bail('cp', '-r', "$dir/out$libraries", "$volume/lib");
system_or_bail('cp', '-r', "$dir/out$share/extension", "$volume/share/");
system_or_bail('chmod', '-R', 'a-w', $volume);

my $node = PostgreSQL::Test::Cluster->new('main', install_path => $pg_config =~ s{/bin/pg_config$}{}r);
$node->init;
$node->append_conf('postgresql.conf', node_conf() . <<"CONF");
extension_control_path = '\$system:$volume/share'
dynamic_library_path = '\$libdir:$volume/lib'
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');
my $token = $node->safe_psql('postgres', q{SELECT acquire_lock('kept', '1 h')});
like($token, qr/^\d+$/, 'a lock is acquired');
my $manager = $node->safe_psql('postgres', 'SELECT pid FROM lock_election.manager');
my ($loaded) = slurp_file("/proc/$manager/maps") =~ m{ (/\S*/lock_election\.so)$}m;
is($loaded, "$volume/lib/lock_election.so", 'the library is loaded from the folder');

$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', qq{SELECT is_held('kept', $token)}), 't', 'the lock is held after a crash');

# A new database is restored from a dump.
my ($dump) = run_command([ 'pg_dump', '-d', $node->connstr('postgres') ]);
append_to_file("$dir/dump.sql", $dump);
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->safe_psql('copy', slurp_file("$dir/dump.sql"));
like($node->safe_psql('copy', q{SELECT acquire_lock('x')}), qr/^\d+$/,
	'a lock is acquired in a database restored from a dump');

is($node->safe_psql('postgres', q{SELECT ok FROM lock_election.health()}), 't', 'the server is healthy');
$node->safe_psql('postgres', 'ALTER EXTENSION lock_election UPDATE');
$node->safe_psql('postgres', 'DROP EXTENSION lock_election');
system_or_bail('chmod', '-R', 'u+w', $volume);

done_testing();
