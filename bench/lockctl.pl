# The measurements of bench/lockctl.sh, which has started the servers and set their environment variables.
use strict;
use warnings;
use Time::HiRes qw(time sleep);

my ($dir) = @ARGV;
my $rounds = $ENV{ROUNDS} // 200;
my $lockctl = 'build/lockctl/lockctl';
my %commands = (
	'lockctl lock --try NAME true' => [ $lockctl, 'lock', '--try', 'x', 'true' ],
	'flock FILE true' => [ 'flock', '-n', "$dir/file", 'true' ],
	$ENV{ETCDCTL_ENDPOINTS} ? ('etcdctl lock NAME true' => [ 'etcdctl', 'lock', 'x', 'true' ]) : ());
my %times;

sub quantile { my ($q, @t) = @_; return (sort { $a <=> $b } @t)[ $q * $#t ]; }

# Returns the milliseconds that the code takes.
sub timed
{
	my ($code) = @_;
	my $start = time;

	$code->();
	return 1000 * (time - $start);
}

sub row
{
	my ($what, @t) = @_;

	printf "%-34s %8.2f %8.2f\n", $what, quantile(0.5, @t), quantile(0.99, @t);
	return;
}

# Starts a lockctl without a command. Returns its process id, and the pipe to which it writes its token.
sub waiting
{
	my $pid = open(my $out, '-|', $lockctl, 'lock', 'baton') // die $!;

	return ($pid, $out);
}

foreach my $round (-2 .. $rounds - 1)
{
	foreach my $name (sort keys %commands)
	{
		my $t = timed(sub { system(@{ $commands{$name} }) == 0 or die "$name fails\n" });
		push @{ $times{$name} }, $t if $round >= 0;
	}
}
my ($holder, $token) = waiting();
<$token>;
foreach my $round (1 .. $rounds)
{
	my ($next, $out) = waiting();

	sleep 0.005 until `psql -XAtc "SELECT count(*) FROM lock_election.waiters WHERE name = 'baton'"` == 1;
	sleep 0.02;
	push @{ $times{'hand-over'} }, timed(sub { kill 'TERM', $holder; <$out> // die 'no token' });
	close $token;
	($holder, $token) = ($next, $out);
}
kill 'TERM', $holder;
close $token;

printf "%-34s %8s %8s   (ms, %d rounds)\n", '', 'p50', 'p99', $rounds;
row($_, @{ $times{$_} }) foreach sort keys %commands;
row('from SIGTERM to the next token', @{ $times{'hand-over'} });
if (my $etcd = $times{'etcdctl lock NAME true'})
{
	printf "lockctl takes %.3f of etcdctl's time\n", quantile(0.5, @{ $times{'lockctl lock --try NAME true'} }) / quantile(0.5, @$etcd);
}
