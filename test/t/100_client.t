# The C library with a healthy server.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my ($version) = slurp_file('META.json') =~ /"version": "([\d.]+)"/;

client_test('holds', $node->connstr('postgres'));
# Installed somewhere else, it is found by pkg-config, and works.
SKIP:
{
	skip 'no pkg-config', 1 if system('pkg-config --version >/dev/null 2>&1') != 0;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	append_to_file("$dir/program.c", <<'C');
#include <stdio.h>
#include <lock_election.h>
int
main(int argc, char **argv)
{
	le_options options = {.size = sizeof(options), .conninfo = argv[argc - 1]};
	const char *name = "invoices";
	le_session *session;
	le_hold *hold;

	if (le_open(&options, &session, NULL) != LE_OK || le_acquire(session, &name, 1, NULL, 0, &hold, NULL) != LE_OK)
		return 1;
	printf("%d %s\n", le_valid(hold), le_version());
	le_release(hold, 0, NULL);
	return le_close(session, -1, NULL);
}
C
	# warnings are not what is tested here: a seeded fault may be one
	my $built = `make -s install-client PREFIX=$dir >$dir/log 2>&1 || cat $dir/log; cd $dir && export PKG_CONFIG_PATH=$dir/lib/pkgconfig &&
		cc -o program program.c \$(pkg-config --cflags --libs liblockelection) 2>&1`;
	local $ENV{LD_LIBRARY_PATH} = "$dir/lib";
	my $connstr = $node->connstr('postgres');
	is($built . `$dir/program "$connstr" 2>&1`, "1 $version\n", 'a program that uses the installed library');
	is(`PKG_CONFIG_PATH=$dir/lib/pkgconfig pkg-config --modversion liblockelection`, "$version\n", 'its version');
	is(`$dir/bin/lockctl --version`, "lockctl (lock_election) $version\n", 'that of lockctl');
	ok(-f "$dir/lib/liblockelection.so.$version", 'that of the file');

	# The program of the page, which closes its session at SIGTERM, whether it works or waits.
	my ($text) = slurp_file('docs/client.md') =~ /^### The end of a program\n.*?^```c\n(.*?)^```\n/ms;
	append_to_file("$dir/importer.c", $text);
	is(`cd $dir && export PKG_CONFIG_PATH=$dir/lib/pkgconfig && cc -Wall -Wextra -o importer importer.c \$(pkg-config --cflags --libs liblockelection) 2>&1`,
		'', 'the program of the page is built');
	local @ENV{qw(PGHOST PGPORT PGDATABASE)} = ($node->host, $node->port, 'postgres');
	my $sql = sub { $node->safe_psql('postgres', $_[0]) };
	my $start = sub {
		my $pid = fork;
		if ($pid == 0)
		{
			open STDOUT, '>', "$dir/out$_[0]";
			exec "$dir/importer" or POSIX::_exit(1);
		}
		return $pid;
	};
	my $works = $start->(1);
	ok(wait_until(sub { -s "$dir/out1" || $sql->(q{SELECT count(*) FROM lock_election.locks WHERE name = 'importer'}) }), 'one works');
	my $waits = $start->(2);
	ok(wait_until(sub { $sql->(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'importer'}) }), 'one waits');
	foreach my $pid ($waits, $works)
	{
		kill 'TERM', $pid;
		waitpid $pid, 0;
		is($?, 0, 'SIGTERM ends it well');
		is($sql->('SELECT count(*) FROM lock_election.leases'), $pid == $waits ? 1 : 0, 'and nothing of it is left');
	}
	like(slurp_file("$dir/out1"), qr/\A(?:works\n)+the work has stopped\n\z/, 'its work has stopped before');
	is(slurp_file("$dir/out2"), "the work has stopped\n", 'nor does the other one begin any');
}

client_test('memory', $node->connstr('postgres'), kinds => ['plain']);
nothing_left($node);
$node->stop;

# What the header declares is what the library exports.
my %declared = map { $_ => 1 } slurp_file('src/client/lock_election.h') =~ /^LE_API [^;(]*?\b(le_\w+)\(/mg;
my %exported = map { /^\S+ T (\w+)/ ? ($1 => 1) : () } split /\n/, `nm -D --defined-only build/client/liblockelection.so.1`;
s/@.*// foreach keys %exported;
is_deeply(\%exported, \%declared, 'the library exports its header, and nothing else');
like(`objdump -p build/client/liblockelection.so`, qr/SONAME\s+liblockelection\.so\.1$/m, 'its name');
done_testing();
