# README fits on three screens, and shows the output of `make demo`. README and docs stay within a number of words.
# Promises: -
use strict;
use warnings;
use LeDocs;
use PostgreSQL::Test::Utils;
use Test::More;

# Ceilings: who needs more lines or words looks first for those that can go, such as a fact that two pages tell.
use constant README_LINES => 150;
use constant WORDS => 38000;

my ($counts) = run_command(['test/lib/words']);
my ($lines) = $counts =~ /^ *(\d+) lines of README\.md$/m;
my ($words) = $counts =~ /^ *(\d+) words in all$/m;
cmp_ok($lines, '<=', README_LINES, 'lines of README');
cmp_ok($words, '<=', WORDS, 'words of README and docs') or diag($counts);

# The excerpt that README shows, in the demo's output: with other times and tokens.
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $stamp = qr{^ *\d+\.\d+ s }m;
mkdir "$dir/work" or die "$dir/work: $!";
local $ENV{LE_RUN} = $dir;
my ($out, $err) = run_command(['test/lib/demo-sessions.sh']);
is($err, '', 'the demo has nothing to complain of');
system('pg_ctl', '-D', "$dir/work/demo/data", '-m', 'immediate', '-s', 'stop');

my ($excerpt) = grep { $_->{text} =~ /$stamp/m } blocks_of(slurp_file('README.md'));
my @shown = split /\n/, $excerpt->{text};
my @printed = split /\n/, $out;
my ($from) = grep { $printed[$_] eq $shown[0] } 0 .. $#printed;
ok(defined $from, "the demo prints: $shown[0]") or BAIL_OUT($out);
my @same = map { s/$stamp//r } @printed[ $from .. $from + $#shown ];
is(same_output([ map { s/$stamp//r } @shown ], \@same, {}), '', 'and what README shows after it') or diag(join "\n", @same);

done_testing();
