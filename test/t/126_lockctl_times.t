# How long lockctl takes, how often it reports its wait to systemd, and that waiting processes sleep. The bounds allow
# for a busy machine; the measurements are printed.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Socket;
use Test::More;
use Time::HiRes ();

my $node = new_node('main');
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir();

# A lockctl that waits until the end of the test, and reports its wait to systemd.
one(q{SELECT acquire_lock('told', '1 h')});
my $told = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => "$dir/notify") or die $!;
my $since = boottime();
my $teller = start_ctl({ plain => 1, env => { NOTIFY_SOCKET => "$dir/notify" } }, 'lock', 'told', '--notify', '--', 'true');

sub median { return (sort { $a <=> $b } @_)[ @_ / 2 ]; }

# The median in ms, so that delays by other processes of the machine do not count.
sub takes
{
	my ($count, @command) = @_;
	my @times;

	foreach my $i (1 .. $count)
	{
		my $start = Time::HiRes::time();
		local %ENV = (%ENV, ctl_env());
		system(@command) == 0 or die "@command: $?";
		push @times, 1000 * (Time::HiRes::time() - $start);
	}
	return median(@times);
}

# Uses the build without sanitizers, because they would take most of the time.
my $ours = takes(15, $plain_lockctl, 'lock', '--try', 'x', 'true');
note sprintf 'lockctl lock --try x true: %.1f ms', $ours;
note sprintf 'flock: %.1f ms', takes(15, 'flock', '-n', "$dir/lock", 'true');
cmp_ok($ours, '<', 10000, 'lockctl lock --try: from start to exit');

# Each of 20 lockctl hands the lock over to the next. Measures the time from the end of a command to the start of the
# next.
my $script = 'open my $f, ">>", $ARGV[0]; sub stamp { syswrite $f, sprintf("%s %.6f\n", $_[0], clock_gettime(7)) } '
  . 'stamp("start"); sleep 0.02; stamp("end")';
my @relay = ($^X, '-MTime::HiRes=clock_gettime,sleep', '-e', $script, "$dir/relay");
my @processes = map { start_ctl({ plain => 1 }, 'lock', 'relay', '--', @relay) } 1 .. 20;
is(join(' ', map { $_->wait(120) } @processes), join(' ', (0) x 20), 'all commands exit with 0');
my @lines = split /\n/, slurp_file("$dir/relay");
is(join(' ', map { (split)[0] } @lines), join(' ', ('start end') x 20), 'the commands run one after the other');
my @at = map { (split)[1] } @lines;
my $process = median(map { 1000 * ($at[ 2 * $_ ] - $at[ 2 * $_ - 1 ]) } 1 .. 19);
note sprintf 'from the end of one command to the start of the next, p50: %.1f ms', $process;
cmp_ok($process, '<', 10000, 'median of a hand-over, including start and end of perl, in ms');

# Measures the hand-over alone, between two lockctl without a command: from the signal to the printed token.
my @hand_over;
my $holder = start_ctl({ plain => 1 }, 'lock', 'baton');
wait_until(sub { $holder->out =~ /\n/ });
foreach my $i (1 .. 15)
{
	my $next = start_ctl({ plain => 1 }, 'lock', 'baton');
	wait_waiting('baton');
	my $start = Time::HiRes::time();
	$holder->kill('TERM');
	Time::HiRes::sleep(0.0002) until $next->out =~ /\n/ || Time::HiRes::time() > $start + 60;
	push @hand_over, 1000 * (Time::HiRes::time() - $start);
	$holder->wait;
	$holder = $next;
}
$holder->kill('TERM');
$holder->wait;
note sprintf 'hand-over, p50: %.2f ms', median(@hand_over);
cmp_ok(median(@hand_over), '<', 800, 'median of a hand-over, in ms');

# A waiting process sleeps until something happens.
one(q{SELECT acquire_lock('idle', '1 h'), grant_lease('1 h')});
my $lease = one('SELECT lease FROM lock_election.leases ORDER BY lease DESC LIMIT 1');
my @waits = map { [ "@$_", start_ctl({ plain => 1 }, @$_) ] } [qw(lock held)], [qw(lock idle true)], [qw(acquire idle)], [qw(elect boss a)],
  [qw(elect boss b)], [qw(elect -l boss)], [qw(watch --interval 1h)], [qw(top --interval 1h)], [ qw(lease keep-alive), $lease ], [qw(lock run sleep 1000)];
wait_held($_) foreach 'held', 'run';
wait_waiting('idle', 2);
wait_waiting('boss');
my @processes_of = map { [ $_->[0], $_->[1]->pid ] } @waits;
push @processes_of, [ 'the guardian', $waits[-1][1]->guardian ];
# CPU time in ticks of 10 ms
my $used = sub { my @stat = split ' ', slurp_file("/proc/$_[0]/stat") =~ s/.*\)//sr; return $stat[11] + $stat[12]; };
my $pause = sub { my $end = boottime() + $_[0]; return wait_until(sub { boottime() > $end }); };
$pause->(1);
my @before = map { $used->($_->[1]) } @processes_of;
$pause->(2);
cmp_ok($used->($processes_of[$_][1]) - $before[$_], '<', 15,
	"no CPU time is used by: $processes_of[$_][0]") foreach 0 .. $#processes_of;
$_->[1]->kill('TERM') foreach @waits;
$_->[1]->wait foreach @waits;
one(q{SELECT force_release_lock('idle')});
one("SELECT revoke_lease($lease)");

my @said;
foreach (1 .. 2)
{
	IO::Select->new($told)->can_read(60) or last;
	$told->recv(my $text, 1000);
	push @said, $text;
}
is(join("\n", @said), join("\n", (qq{EXTEND_TIMEOUT_USEC=40000000\nSTATUS=waiting for lock "told"}) x 2), 'lockctl reports its wait twice to systemd');
cmp_ok(boottime() - $since, '>=', 10, 'the reports are ten seconds apart');
$teller->kill('TERM');
is($teller->wait, 143, 'the reporting lockctl exits after SIGTERM');
one(q{SELECT force_release_lock('told')});
nothing_left($node);
$node->stop;
done_testing();
