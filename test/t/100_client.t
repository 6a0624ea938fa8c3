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
# A program that is built with the library that "make install-client" installs, found by pkg-config.
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
	# Warnings are allowed: a seeded fault may cause one.
	my $built = `make -s install-client PREFIX=$dir >$dir/log 2>&1 || cat $dir/log; cd $dir && export PKG_CONFIG_PATH=$dir/lib/pkgconfig &&
		cc -o program program.c \$(pkg-config --cflags --libs liblockelection) 2>&1`;
	local $ENV{LD_LIBRARY_PATH} = "$dir/lib";
	my $connstr = $node->connstr('postgres');
	is($built . `$dir/program "$connstr" 2>&1`, "1 $version\n",
		'a program built with the installed library acquires a lock');
	is(`PKG_CONFIG_PATH=$dir/lib/pkgconfig pkg-config --modversion liblockelection`, "$version\n",
		'the version in pkg-config');
	is(`$dir/bin/lockctl --version`, "lockctl (lock_election) $version\n", 'the version of lockctl');
	ok(-f "$dir/lib/liblockelection.so.$version", 'the version in the name of the file');

	# The program of the page, which closes its session at SIGTERM, both while it works and while it waits for
	# the lock.
	my ($text) = slurp_file('docs/client.md') =~ /^### The end of a program\n.*?^```c\n(.*?)^```\n/ms;
	append_to_file("$dir/importer.c", $text);
	is(`cd $dir && export PKG_CONFIG_PATH=$dir/lib/pkgconfig && cc -Wall -Wextra -o importer importer.c \$(pkg-config --cflags --libs liblockelection) 2>&1`,
		'', 'the program of the page compiles without warnings');
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
	ok(wait_until(sub { -s "$dir/out1" || $sql->(q{SELECT count(*) FROM lock_election.locks WHERE name = 'importer'}) }), 'the first process works');
	my $waits = $start->(2);
	ok(wait_until(sub { $sql->(q{SELECT count(*) FROM lock_election.waiters WHERE name = 'importer'}) }),
		'the second process waits');
	foreach my $pid ($waits, $works)
	{
		kill 'TERM', $pid;
		waitpid $pid, 0;
		is($?, 0, 'after SIGTERM the process exits with 0');
		is($sql->('SELECT count(*) FROM lock_election.leases'), $pid == $waits ? 1 : 0,
			'after SIGTERM the lease of the process is revoked');
	}
	like(slurp_file("$dir/out1"), qr/\A(?:works\n)+the work has stopped\n\z/,
		'the first process has stopped its work before it exits');
	is(slurp_file("$dir/out2"), "the work has stopped\n", 'the second process has never started to work');
}

client_test('memory', $node->connstr('postgres'), kinds => ['plain']);
nothing_left($node);
$node->stop;

# The library exports exactly the functions that the header declares.
my %declared = map { $_ => 1 } slurp_file('src/client/lock_election.h') =~ /^LE_API [^;(]*?\b(le_\w+)\(/mg;
my %exported = map { /^\S+ T (\w+)/ ? ($1 => 1) : () } split /\n/, `nm -D --defined-only build/client/liblockelection.so.1`;
s/@.*// foreach keys %exported;
is_deeply(\%exported, \%declared, 'the library exports exactly the functions of its header');
like(`objdump -p build/client/liblockelection.so`, qr/SONAME\s+liblockelection\.so\.1$/m, 'the SONAME of the library');
done_testing();
