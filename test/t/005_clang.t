# clang builds the extension, the library and lockctl without warnings.
# Promises: -
use strict;
use warnings;
use Cwd;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'clang is not installed' if system('command -v clang >/dev/null') != 0;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $src = getcwd();
system_or_bail('sh', '-c', "cp -R '$src/Makefile' '$src/META.json' '$src/lock_election.control' '$src/sql' '$src/src' '$src/test' '$dir'");
system_or_bail('sh', '-c', "find '$dir' -name '*.o' -delete");
foreach my $goals ('all', 'client lockctl')
{
	my $said = `make -C '$dir' -s -j2 CC=clang WERROR=1 PG_CONFIG='$ENV{PG_CONFIG}' $goals 2>&1`;

	is($?, 0, "make CC=clang $goals succeeds");
	is($said, '', "make CC=clang $goals prints nothing");
}
done_testing();
