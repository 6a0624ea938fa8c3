# README has at most 150 lines, and shows the output of `make demo`. README and docs have a maximum number of words.
# Promises: -
use strict;
use warnings;
use LeDocs;
use PostgreSQL::Test::Utils;
use Test::More;

# Limits. If you need more lines or words, first look for some that can be removed, such as facts that two pages repeat.
use constant README_LINES => 150;
use constant WORDS => 38000;

my ($counts) = run_command(['test/lib/words']);
my ($lines) = $counts =~ /^ *(\d+) lines of README\.md$/m;
my ($words) = $counts =~ /^ *(\d+) words in all$/m;
cmp_ok($lines, '<=', README_LINES, 'number of lines of README');
cmp_ok($words, '<=', WORDS, 'number of words of README and docs') or diag($counts);

# The excerpt in README must be part of the demo's output, except for times and tokens.
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $stamp = qr{^ *\d+\.\d+ s }m;
mkdir "$dir/work" or die "$dir/work: $!";
local $ENV{LE_RUN} = $dir;
my ($out, $err) = run_command(['test/lib/demo-sessions.sh']);
is($err, '', 'the demo reports no error');
system('pg_ctl', '-D', "$dir/work/demo/data", '-m', 'immediate', '-s', 'stop');

my ($excerpt) = grep { $_->{text} =~ /$stamp/m } blocks_of(slurp_file('README.md'));
my @shown = split /\n/, $excerpt->{text};
my @printed = split /\n/, $out;
my ($from) = grep { $printed[$_] eq $shown[0] } 0 .. $#printed;
ok(defined $from, "the demo prints: $shown[0]") or BAIL_OUT($out);
my @same = map { s/$stamp//r } @printed[ $from .. $from + $#shown ];
is(same_output([ map { s/$stamp//r } @shown ], \@same, {}), '', 'the demo prints the same lines as the excerpt') or diag(join "\n", @same);

done_testing();
