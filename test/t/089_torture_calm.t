# Runs the clients of the torture test for some seconds without faults: violations that the checker finds here also
# happen in normal operation. 090_torture.t does the same with faults.
#   TORTURE_SEED   of the clients
# Promises: M, C, E, T, Q, R, W, D, F, H, G
# Needs: torture
use strict;
use warnings;
use LeTest;
use List::Util qw(max);
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $seed = $ENV{TORTURE_SEED} // $$ + time;
my $dir = PostgreSQL::Test::Utils::tempdir();
my $programs = "$ENV{LE_RUN}/src/build/torture";
my $node = new_node('main', conf => "log_statement = none\n");
my $conninfo = $node->connstr('postgres') . ' application_name=torture';

$node->safe_psql('postgres', q{CREATE TABLE counter (name text PRIMARY KEY, n bigint, token bigint);
	INSERT INTO counter SELECT unnest('{c0,c1}'::text[]), 0, 0});
my @rules = qw(M C E T Q R W D F H);
my ($out, $err);

# Runs the checker on the histories written so far. Returns how often each rule was checked.
sub checked
{
	IPC::Run::run([ "$programs/check", '--p99', 500, glob "$dir/*.history" ], '>', \$out, '2>', \$err);
	return { $out =~ /^checked:(.*)$/m ? $1 =~ /([A-Z]) (\d+)/g : () };
}

diag "seed $seed";
my @clients = map {
	my $number = $_;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		open STDERR, '>>', "$dir/errors";
		my $mode = $number % 3 == 0 ? 'mixed' : 'administered';
		exec "$programs/client", $mode, sprintf('m%03d', $number), $dir, $seed + $number, $conninfo or POSIX::_exit(1);
	}
	$pid;
} 1 .. 24;
sleep max(5, budget(15));
# The clients act randomly: wait until each rule was checked at least once.
wait_until(sub {
	my $checked = checked();
	return !grep { !$checked->{$_} } @rules;
}, 60, 0.5);
kill 'TERM', @clients;
my $failed = grep { waitpid $_, 0; $? } @clients;
is($failed, 0, 'all clients have exited normally');
# The longest TTL is 7 s, and closed names open sooner.
nothing_left($node, 'no lock or lease is left', timeout => 20);

my $checked = checked();
my $violated = $?;
note $out;
diag $out, $err if $violated;
ok(!$violated, 'the checker finds no violation');
cmp_ok($checked->{$_}, '>', 0, "rule $_ was checked") foreach @rules;
$node->stop;
done_testing();
