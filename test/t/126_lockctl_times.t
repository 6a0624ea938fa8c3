# How long lockctl takes. The bounds leave room for a busy machine; what was measured is printed.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $node = new_node('main');
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir();

sub median { return (sort { $a <=> $b } @_)[ @_ / 2 ]; }

# In ms, of the best half: what others do on the machine is not measured.
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

# Without sanitizers, which take more time than lockctl.
my $ours = takes(15, $plain_lockctl, 'lock', '--try', 'x', 'true');
note sprintf 'lockctl lock --try x true: %.1f ms', $ours;
note sprintf 'flock: %.1f ms', takes(15, 'flock', '-n', "$dir/lock", 'true');
cmp_ok($ours, '<', 10000, 'lockctl lock --try: from start to exit');

# Each of two lockctl hands the lock to the next; the time from the end of a command to the start of the next one.
my $script = 'open my $f, ">>", $ARGV[0]; sub stamp { syswrite $f, sprintf("%s %.6f\n", $_[0], clock_gettime(7)) } '
  . 'stamp("start"); sleep 0.02; stamp("end")';
my @relay = ($^X, '-MTime::HiRes=clock_gettime,sleep', '-e', $script, "$dir/relay");
my @processes = map { start_ctl({ plain => 1 }, 'lock', 'relay', '--', @relay) } 1 .. 20;
is(join(' ', map { $_->wait(120) } @processes), join(' ', (0) x 20), 'all have had their turn');
my @lines = split /\n/, slurp_file("$dir/relay");
is(join(' ', map { (split)[0] } @lines), join(' ', ('start end') x 20), 'one after the other');
my @at = map { (split)[1] } @lines;
my $process = median(map { 1000 * ($at[ 2 * $_ ] - $at[ 2 * $_ - 1 ]) } 1 .. 19);
note sprintf 'from the end of one command to the start of the next, p50: %.1f ms', $process;
cmp_ok($process, '<', 10000, 'hand-over with the start and end of perl');

# The hand-over alone, as two lockctl without a command see it: from the signal to the token.
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
cmp_ok(median(@hand_over), '<', 800, 'hand-over');
nothing_left($node);
$node->stop;
done_testing();
