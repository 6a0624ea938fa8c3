# A package is built with the headers of one minor release and runs in another. In 15.13, 16.9 and 17.5 the byte that
# tells whether there are synchronous standbys changed from a bool to flags: the running server decides how it is read.
# New headers also call functions that older servers lack: the library may use only functions that its own sources name,
# and those that are listed here. If Debian offers another minor release, the test runs it.
# Promises: D
# Needs: other-minor
use strict;
use warnings;
use File::Copy qw(copy);
use File::Path qw(make_path);
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

chomp(my $include = `$ENV{PG_CONFIG} --includedir-server`);
my $dir = PostgreSQL::Test::Utils::tempdir();
my $header = slurp_file("$include/replication/walsender_private.h");
my $major = slurp_file("$include/pg_config.h") =~ /^#define PG_MAJORVERSION_NUM (\d+)/m ? $1 : die 'no version';
my %first_with_flags = (15 => 13, 16 => 9, 17 => 5);

# The header of this minor release, and a copy edited to look like the one before or after the change.
my %headers = (here => $header);
if ($header =~ /(?:bits8|uint8)\s+sync_standbys_status;/)
{
	$headers{old} = $header =~ s/(?:bits8|uint8)(\s+)sync_standbys_status;/bool$1sync_standbys_defined;/r =~ s/^#define SYNC_STANDBY_\w+.*\n//gmr;
}
else
{
	$headers{new} = $header =~ s/bool(\s+)sync_standbys_defined;/uint8$1sync_standbys_status;\n#define SYNC_STANDBY_DEFINED 2/r;
}

append_to_file("$dir/reads.c", <<'C');
#include "postgres.h"
#include "shared/compat.h"
#undef printf
#include <stdio.h>

WalSndCtlData *WalSndCtl;
char *SyncRepStandbyNames;
static const char *version;

const char *
GetConfigOption(const char *name, bool missing_ok, bool restrict_privileged)
{
	return strcmp(name, "server_version_num") == 0 ? version : NULL;
}

/* arguments: server version, value of the byte, synchronous_standby_names */
int
main(int argc, char **argv)
{
	WalSndCtl = calloc(1, sizeof(WalSndCtlData));
	version = argv[1];
	((char *) WalSndCtl)[LE_SYNC_STANDBYS] = (char) atoi(argv[2]);
	SyncRepStandbyNames = argv[3];
	printf("%d", le_sync_standbys_defined());
	return 0;
}
C

foreach my $name (sort keys %headers)
{
	make_path("$dir/$name/replication");
	append_to_file("$dir/$name/replication/walsender_private.h", $headers{$name});
	system_or_bail('cc', '-O1', '-w', '-Isrc', '-Isrc/server', "-I$dir/$name", "-I$include", '-D_GNU_SOURCE',
		'-Wl,--unresolved-symbols=ignore-all', '-o', "$dir/$name/reads", "$dir/reads.c");
}

# Versions before the change and after it. Other major releases had the flags from the start.
my $change = $first_with_flags{$major};
my @bool = defined $change ? map { $major * 10000 + $_ } 0, $change - 1 : ();
my @flags = defined $change ? map { $major * 10000 + $_ } $change, $change + 1, 99 : ($major * 10000);

foreach my $name (sort keys %headers)
{
	my $defined = sub { my $out = `'$dir/$name/reads' $_[0] $_[1] '$_[2]'`; return $out; };

	foreach my $version (@bool)
	{
		is($defined->($version, 1, ''), 1, "built with the headers '$name', in $version: a bool of 1 means standbys");
		is($defined->($version, 0, 'a'), 0, 'a bool of 0 means no standbys');
	}
	foreach my $version (@flags)
	{
		is($defined->($version, 3, ''), 1, "built with the headers '$name', in $version: flags of 3 mean standbys");
		is($defined->($version, 1, 'a'), 0, 'flags of 1 mean no standbys');
		is($defined->($version, 0, 'a'), 1, 'flags of 0 are not initialized: the setting names a standby');
		is($defined->($version, 0, ''), 0, 'flags of 0 are not initialized: the setting names no standby');
	}
}

# --- symbols of the server that the library uses ---

# Symbols of the server that its own macros and inline functions use. All of them existed before the first release of
# the oldest version or, if they are newer, of the version whose headers use them.
my %brought = map { $_ => 1 } qw(AllocSetContextCreateInternal BufferBlocks CheckXidAlive DirectFunctionCall1Coll
  DirectFunctionCall3Coll ExceptionalCondition HeapTupleHeaderGetDatum LocalBufferBlockPointers MainLWLockArray PG_exception_stack
  PostmasterIsAliveInternal ProcessInterrupts RangeVarGetRelidExtended RelationGetNumberOfBlocksInFork SnapshotSelfData
  XactIsoLevel bsysscan cancel_before_shmem_exit errcontext_msg errfinish errmsg_internal errstart errstart_cold expression_tree_walker_impl
  list_make1_impl my_wait_event_info pg_detoast_datum pg_detoast_datum_packed pg_qsort pg_re_throw pg_snprintf
  postmaster_possibly_dead pqsignal_be set_errcontext_domain slot_getsomeattrs_int);

my $sources = join("\n", map { slurp_file($_) } glob('src/core/*.[ch] src/server/*.c src/server/*/*.[ch]'));
$sources =~ s{/\*.*?\*/}{}gs;
$sources =~ s{"(?:\\.|[^"\\\n])*"}{}g;
my %named = map { $_ => 1 } $sources =~ /\b(\w+)\b/g;

chomp(my ($libraries, $share) = map { `$ENV{PG_CONFIG} --$_` } 'pkglibdir', 'sharedir');
# The C library versions its symbols; the symbols of the compiler begin with an underscore.
my @needs = grep { !/@/ && !/^_/ } `nm -D --undefined-only '$libraries/lock_election.so'` =~ /^\s+[Uw] (\S+)$/mg;
cmp_ok(scalar @needs, '>', 100, 'the symbols that the library needs from the server are found');
is(join(' ', grep { !$named{$_} && !$brought{$_} } @needs), '',
	'the library needs no symbol that only newer headers use: older minor releases may lack it');

# Functions that compat.h declares itself instead of including their header: a different declaration would compile, and
# crash.
my %declared = map { s/\bstruct (?=Port\b)//gr =~ s/\s+/ /gr => 1 }
  map { slurp_file("$include/libpq/$_") =~ /^extern\s[^;]*?\bpq_\w+\([^;]*;/mg } 'libpq.h', 'libpq-be.h';
my @ours = slurp_file('src/server/shared/compat.h') =~ /^extern\s[^;]*?\bpq_\w+\([^;]*;/mg;
my ($alike, @unlike) = (0);

foreach my $ours (map { s/\bstruct (?=Port\b)//gr =~ s/\s+/ /gr } @ours)
{
	my ($function) = $ours =~ /(\w+)\(/;
	if ($declared{$ours}) { $alike++ }
	elsif (grep { /\b$function\(/ } keys %declared) { push @unlike, $ours }
}
is($alike, @ours - 1, 'libpq.h declares all functions of compat.h, except one of two with the same purpose');
is("@unlike", '', 'no function is declared differently in compat.h');

# --- another minor release ---

SKIP: {
	skip 'no other minor release is available', 2 unless $ENV{LE_OTHER_MINOR};
	my $tree = $ENV{LE_OTHER_MINOR};
	copy("$libraries/lock_election.so", "$tree/lib") or die "copy: $!";
	foreach my $file (grep { -f } glob("$share/extension/lock_election*"))
	{
		copy($file, "$tree/../../../share/postgresql/$major/extension") or die "copy: $!";
	}
	my $node = new_node('other', install => $tree);

	note($node->safe_psql('postgres', 'SELECT version()'));
	is($node->safe_psql('postgres', q{SELECT release_lock('a', acquire_lock('a'))}), 't',
		'a lock works in the other minor release');
	is($node->safe_psql('postgres', q{CREATE TABLE t (version int NOT NULL DEFAULT 1);
		CREATE TRIGGER t BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION version_guard();
		INSERT INTO t DEFAULT VALUES; UPDATE t SET version = 1; SELECT version FROM t}), '2', 'version_guard() works in the other minor release');
	$node->stop;
}
done_testing();
