# Commands under lockctl record the times at which they run, while a nemesis kills and stops lockctl, its guardian, the
# commands and the server. The checker of the torture test judges the records: commands that exclude each other never
# run at the same time, and tokens grow.
#   TORTURE_SECONDS   for how long; default 20
#   TORTURE_CLIENTS   lockctl processes at a time; default 12
#   TORTURE_SEED      of the random choices
#   LE_EDITION        portable: on the portable edition, which has no manager; 144_portable_lockctl_torture.t
# Promises: M, T
# Needs: lockctl, torture
use strict;
use warnings;
use LeCtl;
use LeTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $seconds = $ENV{TORTURE_SECONDS} // budget(20);
my $nclients = $ENV{TORTURE_CLIENTS} // 12;
my $seed = $ENV{TORTURE_SEED} // $$ + time;
my $ttl = 4;
my $programs = "$ENV{LE_RUN}/src/build/torture";
my $dir = PostgreSQL::Test::Utils::tempdir();
my $portable = ($ENV{LE_EDITION} // '') eq 'portable';
my $node = new_node('main', conf => "log_statement = none\n", portable => $portable);
my %env;
my (%running, %stubborn, %ended, %done, %stopped);
my ($started, $to_stop) = (0, 0);

ctl_node($node);
%env = ctl_env();
srand $seed;
diag "seed $seed";
open my $nemesis, '>', "$dir/nemesis.history" or die $!;
$nemesis->autoflush;

# --- lockctl --------------------------------------------------------------------------------------------------------

sub ns { return sprintf '%.0f', 1e9 * boottime(); }

# Most commands do short work. Some run for longer than the TTL, ignore SIGTERM, or run in a session of their own. Two
# "stubborn" commands do all of that and have their own lock, so that one always would outlive its lock while another
# waits for it.
sub start_one
{
	my $stubborn = keys %stubborn < 2;
	my $kind = rand;
	my ($name, $mode, @options) =
	    $stubborn ? ('d', 'x')
	  : $kind < 0.6 ? ('l' . int rand 3, 'x')
	  : $kind < 0.8 ? ('l0', 's', '--shared')
	  : ('p0', 'p2', '--permits', 2);
	my $run = $stubborn ? 4 * $ttl * 1000 : rand() < 0.25 ? 3 * $ttl * 1000 : int rand 150;
	my @worker = ("$programs/worker", $dir, ns(), $mode, $run,
		$stubborn || rand() < 0.6 ? 'deaf' : (), $stubborn || rand() < 0.4 ? 'apart' : ());
	my $pid = fork // die $!;

	if ($pid == 0)
	{
		setpgrp;
		@ENV{ keys %env } = values %env;
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', "$dir/out";
		open STDERR, '>>', "$dir/errors";
		# without sanitizers, to start as many as possible
		exec $plain_lockctl, 'lock', $name, '--ttl', "${ttl}s", '--wait', '30s', @options, '--', @worker
		  or POSIX::_exit(99);
	}
	$running{$pid} = 1;
	$stubborn{$pid} = 1 if $stubborn;
	$started++;
	return;
}

sub reap
{
	while ((my $pid = waitpid(-1, POSIX::WNOHANG)) > 0)
	{
		next unless delete $running{$pid};
		delete $stopped{$pid};
		delete $stubborn{$pid};
		$ended{ $? & 127 ? 'signal ' . ($? & 127) : $? >> 8 }++;
	}
	return;
}

sub children
{
	my ($pid) = @_;
	return split ' ', eval { slurp_file("/proc/$pid/task/$pid/children") } // '';
}

# --- faults ---------------------------------------------------------------------------------------------------------

sub fault
{
	my ($kind, $code) = @_;
	my $from = ns();

	$code->() or return 0;
	print $nemesis "N $from ", ns(), " $kind\n";
	$done{$kind}++;
	return 1;
}

# Returns a running lockctl that is not stopped, its guardian if there is one, and the command.
sub victim
{
	my ($is_stubborn) = @_;
	my @pids = grep { !$stopped{$_} && (children($_))[0] } keys %running;
	@pids = grep { $stubborn{$_} } @pids if $is_stubborn;
	my $pid = $pids[ rand @pids ] // return;
	my ($guardian) = children($pid);
	my ($command) = $guardian ? children($guardian) : ();

	return ($pid, $guardian, $command);
}

# Stops lockctl or its guardian, never both: nothing is promised for both at the same time. It continues after a
# while.
sub stop_it
{
	my ($time, @pids) = @_;

	my $main = $pids[0];
	$stopped{$main} = [ boottime() + $time, @pids ];
	kill 'STOP', @pids;
	return 1;
}

sub go_on
{
	my ($all) = @_;

	foreach my $main (grep { $all || $stopped{$_}[0] < boottime() } keys %stopped)
	{
		my (undef, @pids) = @{ delete $stopped{$main} };
		kill 'CONT', grep { -e "/proc/$_" } @pids;
	}
	return;
}

sub sql { my ($out, $err); $node->psql('postgres', $_[0], stdout => \$out, stderr => \$err, timeout => 10, timed_out => \my $late); return $out // ''; }

sub manager { my $pid = sql('SELECT pid FROM lock_election.manager'); return $pid =~ /^\d+$/ ? $pid : 0; }

my %faults = (
	'kill-lockctl' => sub { my ($pid) = victim() or return; kill 'KILL', $pid },
	'kill-lockctl-of-stubborn' => sub { my ($pid, undef, $command) = victim(1); $command or return; kill 'KILL', $pid },
	'stop-lockctl' => sub { my ($pid) = victim() or return; stop_it($ttl * (0.2 + rand 2.5), $pid) },
	# stopped together with the command: the guardian must kill the command nevertheless
	'stop-command' => sub { my ($pid, undef, $command) = victim(); $command or return; stop_it($ttl * (0.5 + rand 1), $pid, $command) },
	'kill-guardian' => sub { my (undef, $guardian) = victim() or return; kill 'KILL', $guardian },
	'kill-command' => sub { my (undef, undef, $command) = victim(); $command or return; kill 'KILL', $command },
	'end-lockctl' => sub { my ($pid) = victim() or return; kill 'TERM', $pid },
	'terminate-backends' => sub { sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'lockctl%'}); 1 },
	'terminate-manager' => sub { my $pid = manager() or return; kill 'TERM', $pid },
	'stop-manager' => sub { my $pid = manager() or return; kill 'STOP', $pid; sleep $ttl; kill 'CONT', $pid },
	'stop-server' => sub { $node->stop('immediate'); sleep(rand $ttl); $node->start; 1 });
delete @faults{ 'terminate-manager', 'stop-manager' } if $portable;
my @few = grep { $faults{$_} } ('terminate-backends', 'terminate-manager', 'stop-manager', 'stop-server');
my @many = grep { my $k = $_; !grep { $_ eq $k } @few } sort keys %faults;

# --- the run --------------------------------------------------------------------------------------------------------

# Injects each kind of fault once, in random order, and then again. A fault without a victim is tried again later.
sub next_of
{
	my ($to_do, @kinds) = @_;

	@$to_do = map { $_->[0] } sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } @kinds unless @$to_do;
	my $kind = shift @$to_do;
	push @$to_do, $kind unless fault($kind, $faults{$kind});
	return;
}

my $begun = boottime();
my ($next_many, $next_few, @many_to_do, @few_to_do) = ($begun + 1, $begun + 2);
while (boottime() < $begun + $seconds || (boottime() < $begun + 180 + $seconds && grep { !$done{$_} } keys %faults))
{
	reap();
	start_one() while keys %running < $nclients;
	go_on();
	if (boottime() > $next_many)
	{
		next_of(\@many_to_do, @many);
		$next_many = boottime() + rand 0.4;
	}
	if (boottime() > $next_few)
	{
		next_of(\@few_to_do, @few);
		$next_few = boottime() + 1 + rand 4;
	}
	sleep 0.01;
}

# --- the end --------------------------------------------------------------------------------------------------------

# All processes must end: waiters are granted, and abandoned locks expire after their TTL.
go_on(1);
ok(wait_until(sub { reap(); return !%running; }, 60), 'all lockctl have ended')
  or do { kill 'KILL', keys %running; };
my $ends = join ', ', map { "$_: $ended{$_}" } sort keys %ended;
diag "$started lockctl, exit codes and signals: $ends";
# 0, its own; 3 not acquired in 30 s; 4 lost; 69 no server; 137 the command was killed; 143 SIGTERM
is(join(' ', grep { !/^(?:0|3|4|69|137|143|signal 9|signal 15)$/ } sort keys %ended), '',
	'no lockctl has ended with an unexpected code');
cmp_ok($ended{0} // 0, '>', $started / 4, 'more than a quarter have exited with 0');
my $alive = sub { return grep { (eval { readlink "/proc/$_/exe" } // '') eq "$programs/worker" } map { m{/(\d+)$} } glob '/proc/[0-9]*' };
ok(wait_until(sub { !$alive->() }), 'no command is left after all lockctl have ended');
nothing_left($node, 'no lock is left after all lockctl have ended', timeout => 3 * $ttl + 30);

my ($out, $err);
IPC::Run::run([ "$programs/check", glob "$dir/*.history" ], '>', \$out, '2>', \$err);
my $violated = $?;
diag $out, $err;
ok(!$violated, 'the checker finds no violation');
like($out, qr/checked: M [1-9]/, 'the checker has checked mutual exclusion');
my $errors = -e "$dir/errors" ? slurp_file("$dir/errors") : '';
unlike($errors, qr/Sanitizer|runtime error|history|worker:/, 'no command has reported an error');
ok($done{$_}, "fault was injected: $_") foreach sort keys %faults;
is(system_log('cp', '-r', $dir, $ENV{TORTURE_KEEP}), 0, 'the histories are kept') if $ENV{TORTURE_KEEP};
$node->stop;
done_testing();
