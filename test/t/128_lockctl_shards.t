# lockctl with a file of servers: the name of a lock selects the server, and no lock spans two servers.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my %node = map { $_ => new_node($_) } 'east', 'west';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $map = "$dir/map";
my ($rc, $out, $err);

ctl_node($node{east});
append_to_file($map, "# where the locks are\n\n" . join '', map { "  $_ \t" . $node{$_}->connstr('postgres') . "  \n" } sort keys %node);

sub bad_map
{
	my ($text) = @_;

	unlink "$dir/bad";
	append_to_file("$dir/bad", $text);
	return ctl('-S', "$dir/bad", 'shard', 'x');
}

# The locks of each server, e.g. "east: account 8; west: account 7".
sub held
{
	return join '; ', map { "$_: " . $node{$_}->safe_psql('postgres', q{SELECT string_agg(name, ', ' ORDER BY name) FROM lock_election.locks}) } sort keys %node;
}

# --- which server ---

is((ctl('-S', $map, 'shard'))[1], "east\nwest\n", 'the shards of a file');
my @names = map { ("name $_", "Größe $_", '-' x $_) } 1 .. 130;
my $by_sql = $node{east}->safe_psql('postgres', q{SELECT string_agg(s, E'\n' ORDER BY n) FROM (
	SELECT DISTINCT ON (n) n, s FROM unnest(ARRAY['} . join(q{','}, @names) . q{']) WITH ORDINALITY AS a(name, n), unnest('{east,west}'::text[]) AS s
	ORDER BY n, sha256(convert_to(s, 'UTF8') || '\x00'::bytea || convert_to(name, 'UTF8')) DESC) q});
($rc, $out, $err) = ctl('--shards', $map, 'shard', '--', @names);
is($out, "$by_sql\n", "lockctl and PostgreSQL's sha256() select the same shards");
cmp_ok(scalar(() = $by_sql =~ /east/g), '>', @names / 3, 'more than a third of the names are on shard east');

my ($on_east, $on_west) = ('account 8', 'account 7');
is((ctl('-S', $map, 'shard', $on_east, $on_west))[1], "east\nwest\n", 'a name on each shard');

# --- each command goes there ---

my %token;
foreach my $name ($on_east, $on_west)
{
	($rc, $out) = ctl('-S', $map, 'acquire', $name);
	chomp($token{$name} = $out);
	is($rc, 0, "$name: acquired");
}
is(held(), "east: $on_east; west: $on_west", 'each lock is held on its server');
foreach my $name ($on_east, $on_west)
{
	my $shard = $name eq $on_east ? 'east' : 'west';

	is(ctl('-S', $map, 'held', $name, $token{$name}), 0, "$name: held");
	is(ctl('-S', $map, 'renew', $name, $token{$name}), 0, "$name: renewed");
	is(ctl('-S', $map, 'lock', '--try', $name, '--', 'true'), 3, "$name: not granted to others");
	like((ctl('-S', $map, 'locks', $name))[1], qr/\Q$name\E/, "$name: shown by locks");
	like((ctl('-S', $map, '-N', $shard, 'locks'))[1], qr/^lock +\Q$name\E .*\n\z/m, "$name: shown by locks of its server");
	like((ctl('-S', $map, 'watch', '--count', 1, $name))[1], qr/held .*\Q$name\E/, "$name: shown by watch");
	is(ctl('-S', $map, 'release', $name, $token{$name}), 0, "$name: released");
	is((ctl('-S', $map, 'lock', $name, '--', 'sh', '-c', 'echo "$LOCK_NAME"'))[1], "$name\n", "$name: a command runs under the lock");
}
is(held(), 'east: ; west: ', 'nothing is left');
my $leader = start_ctl('-S', $map, 'elect', $on_west, 'me');
wait_for_sql($node{west}, 'SELECT count(*) = 1 FROM lock_election.elections');
like((ctl('-S', $map, 'elections', $on_west))[1], qr/\bme\b/, 'elections shows the leader');
my $observer = start_ctl('-S', $map, 'elect', '--listen', $on_west);
ok(wait_until(sub { $observer->out =~ /elected .* me/ }), 'an observer sees the leader');
is((ctl('-S', $map, 'release', '--force', '--now', '--election', $on_west))[1], "1\n", 'the leader is ended by force');
$_->kill('TERM') foreach $leader, $observer;
$_->wait foreach $leader, $observer;

my @both = grep { (ctl('-S', $map, 'shard', $_))[1] eq "east\n" } map { "both $_" } 1 .. 20;
is((ctl('-S', $map, 'lock', $both[0], '--and', $both[1], '--', 'echo', 'all'))[1], "all\n", 'several names on one server');
is((ctl('-S', $map, 'lease', 'list', '-N', 'west', '-o', 'json'))[1], "[]\n", 'lease with -N');
like((ctl('-S', $map, '-N', 'west', 'doctor'))[1], qr/ok +manager/, 'doctor with -N');

# --- calls that are rejected before lockctl connects to a server ---

$_->stop foreach values %node;
foreach my $case (
	[ [ 'lock', $on_east, '--and', $on_west, '--', 'true' ], qr/"account 8" is on shard east and "account 7" on shard west: no lock spans several servers/ ],
	[ [ '-N', 'east', 'lock', $on_west, '--', 'true' ], qr/"account 7" is on shard west, not on east/ ],
	[ [ '-N', 'east', 'acquire', $on_west ], qr/not on east/ ],
	[ [ '-N', 'south', 'status' ], qr/has no shard "south"/ ],
	(map { [ [ $_ ], qr/"$_" needs a name, or --shard/ ] } qw(locks waiters elections status watch top doctor)),
	[ [ 'lease', 'grant' ], qr/"lease" needs a name, or --shard/ ],
	[ [ '-h', 'localhost', 'locks', 'x' ], qr/-h, -p and -d cannot be used with --shards/ ],
	[ [ '-d', 'other', 'locks', 'x' ], qr/-h, -p and -d cannot be used with --shards/ ])
{
	my ($args, $what) = @$case;

	($rc, $out, $err) = ctl('-S', $map, @$args);
	is($rc, 64, "refused: @$args");
	like($err, $what, "reason: @$args");
}
($rc, $out, $err) = ctl('-N', 'east', 'locks');
like("$rc $err", qr/^64 .*--shard requires --shards/, '--shard without --shards');
is(ctl('shard', 'x'), 64, 'shard without --shards');
like((ctl('-S', "$dir/none", 'shard'))[2], qr/cannot open ".*none": No such file/, 'a missing file');
like((ctl('-S', $dir, 'shard'))[2], qr/cannot read ".*": Is a directory/, 'a folder instead of a file');
like((bad_map("a dbname=x\nb\n"))[2], qr/bad, line 2: shard "b" has no connection string/,
	'a shard without a connection string');
like((bad_map("a dbname=x\na dbname=y\n"))[2], qr/line 2: shard "a" appears twice/, 'two shards of the same name');
like((bad_map("# nothing\n"))[2], qr/has no shard/, 'an empty file');
like((bad_map("a dbname=x"))[1], qr/^a$/, 'no line feed at the end');
is((bad_map("\xef\xbb\xbfa dbname=x\r\nb dbname=y\r\n"))[1] . (ctl('-S', "$dir/bad", 'shard'))[1], "b\na\nb\n", 'a byte order mark is not part of a name');
bad_map('a ' . 'x' x 30_000_000 . "\n");
# Without sanitizers, because their shadow memory is larger than the limit.
my $small = sub { return [ 'sh', '-c', qq{ulimit -v $_[0]; exec "\$0" "\$@"}, "$ENV{PWD}/$plain_lockctl", '-S', "$dir/bad", 'shard', 'x' ]; };
($out, $err) = run_command($small->(70000));
is("$out$err", 'lockctl: out of memory', 'out of memory for the copy of a long line');
bad_map("a dbname=x\n");
truncate("$dir/bad", 2**30) or die "truncate: $!";
($out, $err) = run_command($small->(400000));
like("$out$err", qr/^lockctl: .*cannot read ".*bad": Cannot allocate memory/, 'out of memory for a line: an incomplete file is rejected');
done_testing();
