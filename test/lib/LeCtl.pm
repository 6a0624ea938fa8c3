# Runs lockctl as a user would: real processes, with their own standard files.
#
#   ctl_node($node)                      the server for the following calls
#   my $node = ctl_network_node()        creates a server that clients in 10.97.0.0/24 can also reach, and uses it
#   my ($rc, $out, $err) = ctl(@args)    runs lockctl to its end; $rc is a shell's exit code
#                                        runs $lockctl, which is built with sanitizers unless LE_LOCKCTL names another;
#                                        a path relative to the working directory like $plain_lockctl, the installed one
#   my $c = start_ctl(@args)             in the background, in a process group of its own
#     $c->pid, $c->kill('TERM'), $c->out, $c->err, $c->wait ($rc), $c->ended, $c->signal (that killed it, or 0)
#   { env => {..}, in => file, stdout => file, wrap => [command that starts it], cgroup => 'ours', plain => 1 }    may
#                                        be the first argument; plain: without sanitizers
#
# stamps('a', 'file') is a command that appends "a SECONDS PID", by CLOCK_BOOTTIME, to a file every few milliseconds for
# minutes, and ignores signals; ran('file', 'a') returns the first and the last time, and the process.
#
#   my ($file, $first, $second) = two()     one holds lock "$contended" with a TTL of $short_ttl seconds, one waits
#   one_after_the_other($file, $second)     checks that the first command was dead before the second one started

package LeCtl;

use strict;
use warnings;

use Exporter 'import';
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(ctl_node ctl_network_node ctl_env ctl start_ctl stamps ran alive boottime wait_held wait_waiting child_of own_cgroup
  with_mounts two one_after_the_other $contended $short_ttl $lockctl $plain_lockctl);

our $lockctl = $ENV{LE_LOCKCTL} // 'build/lockctl/address/lockctl';
our $plain_lockctl = 'build/lockctl/lockctl';
my $here = $ENV{PWD};
my $node;
my $number = 0;
my @started;

# A sanitizer writes its report into one file for each process, so that no report is missed, however lockctl was
# started.
my $reports = "$ENV{TESTDATADIR}/sanitizer_$$";
my $of_process = $$;
my %reported;
$ENV{ASAN_OPTIONS} = "log_path=$reports";

# Fails once for each process that has a report.
sub check_reports
{
	foreach my $report (grep { !$reported{$_}++ } glob("$reports.*"))
	{
		fail('lockctl has no error that a sanitizer sees');
		diag(slurp_file($report));
	}
	return;
}

END
{
	my $rc = $?;
	check_reports() if $$ == $of_process;
	$rc ||= 1 if $$ == $of_process && %reported;
	foreach my $c (grep { !$_->{ended} } @started)
	{
		kill 'KILL', $c->{pid};
		waitpid $c->{pid}, 0;
	}
	$? = $rc;
}

sub ctl_node { $node = $_[0]; return; }

sub ctl_network_node
{
	my $server = new_node('main', start => 0, conf => "listen_addresses = '*'\n");
	$server->append_conf('pg_hba.conf', 'host all all 10.97.0.0/24 trust');
	$server->start;
	LeTest::install_in($server, 'postgres');
	ctl_node($server);
	return $server;
}

sub ctl_env
{
	return (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => (getpwuid $>)[0]);
}

sub boottime { return Time::HiRes::clock_gettime(7); }

sub start_ctl
{
	my @args = @_;
	my %opts = ref $args[0] ? %{ shift @args } : ();
	my $base = "${PostgreSQL::Test::Utils::tmp_check}/ctl_$$\_" . ++$number;
	my $self = bless { out => "$base.out", err => "$base.err" }, 'LeCtl::Process';

	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		setpgrp;
		$SIG{$_} = 'DEFAULT' foreach qw(INT TERM HUP QUIT USR1 USR2 PIPE);
		open STDIN, '<', $opts{in} // '/dev/null' or die $!;
		open STDOUT, '>', $opts{stdout} // $self->{out} or die $!;
		open STDERR, '>', $self->{err} or die $!;
		my %env = (ctl_env(), %{ $opts{env} // {} });
		@ENV{ keys %env } = values %env;
		delete $ENV{PGAPPNAME};
		append_to_file("$ENV{LE_CGROUP}/$opts{cgroup}/cgroup.procs", $$) if $opts{cgroup};
		my @command = (@{ $opts{wrap} // [] }, "$here/" . ($opts{plain} ? $plain_lockctl : $lockctl), @args);
		exec { $command[0] } @command or POSIX::_exit(99);
	}
	$self->{pid} = $pid;
	push @started, $self;
	return $self;
}

sub ctl
{
	my $c = start_ctl(@_);
	my $rc = $c->wait;

	return wantarray ? ($rc, $c->out, $c->err) : $rc;
}

# --- commands whose run is recorded ---

sub stamps
{
	my ($name, $file, %opts) = @_;
	my $before = $opts{before} // '';

	return ($^X, '-MTime::HiRes=clock_gettime,sleep', '-e',
		'$SIG{$_} = sub {} foreach qw(TERM INT HUP); ' . $before . '; open my $f, ">>", $ARGV[1] or die; my $end = time + 300; while (time < $end) '
		. '{ syswrite $f, sprintf("%s %.6f %d\n", $ARGV[0], clock_gettime(7), $$); sleep 0.005 }', $name, $file);
}

# Returns the first and the last time, and the process.
sub ran
{
	my ($file, $name) = @_;
	my @times = -e $file ? slurp_file($file) =~ /^\Q$name\E ([\d.]+) \d+$/mg : ();
	my ($pid) = -e $file ? slurp_file($file) =~ /^\Q$name\E [\d.]+ (\d+)$/m : ();

	return ($times[0], $times[-1], $pid);
}

# Returns whether the process runs: it is no zombie, or a thread other than the first one still runs.
sub alive
{
	my ($pid) = @_;
	my $stat = eval { slurp_file("/proc/$pid/stat") } // return 0;
	my ($state, $threads) = (split ' ', $stat =~ s/.*\)//sr)[ 0, 17 ];

	return $state !~ /[ZX]/ || $threads > 1;
}

# A control group of the tests in which the tests themselves do not run; undef if there is none.
sub own_cgroup { return $ENV{LE_CGROUP} && "$ENV{LE_CGROUP}/ours"; }

# A command that starts another one with the right to mount; empty if this is not possible here.
sub with_mounts
{
	my @command = qw(unshare --user --map-current-user --keep-caps --mount);

	return system("@command true 2>/dev/null") == 0 ? @command : ();
}

sub wait_held { return wait_for_sql($node, "SELECT count(*) > 0 FROM lock_election.locks WHERE name = '$_[0]'"); }

sub wait_waiting
{
	my ($name, $count) = @_;

	$count //= 1;
	return wait_for_sql($node, "SELECT count(*) = $count FROM lock_election.waiters WHERE name = '$name'");
}

# Returns the first child of a process. The kernel's list can miss children while others start and exit.
sub child_of
{
	my ($pid) = @_;
	my $child;

	LeTest::wait_until(sub { ($child) = split ' ', slurp_file("/proc/$pid/task/$pid/children"); return defined $child; })
	  or die "process $pid has no child";
	return $child;
}

# --- a holder and a waiter ---

our $contended;
our $short_ttl = 3;
my $round = 0;

# A holder whose command ignores SIGTERM and writes stamps, and a waiter for its lock that does the same.
#   command => sub { .. }   returns the command of the holder; its argument is the file
#   options => [..]         options of the holder's lockctl; start => {..}: options of start_ctl for it
#   alone => 1              without a waiter
sub two
{
	my (%opts) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/stamps';
	my @command = $opts{command} ? $opts{command}->($file) : stamps('first', $file);

	$contended = 'x' . ++$round;
	my $first = start_ctl($opts{start} // {}, 'lock', $contended, '--ttl', "${short_ttl}s", @{ $opts{options} // [] },
		'--', @command);
	wait_until(sub { (ran($file, 'first'))[0] }) or die 'the first does not start: ' . $first->err;
	my $second = $opts{alone} ? undef : start_ctl('lock', $contended, '--ttl', '30s', '--', stamps('second', $file));
	wait_waiting($contended) if $second;
	return ($file, $first, $second);
}

# Checks that the last stamp of the first command is older than the first stamp of the second one.
sub one_after_the_other
{
	my ($file, $second) = @_;

	ok(wait_until(sub { (ran($file, 'second'))[0] }), 'the second lockctl is granted the lock');
	my ($start, $end, $pid) = ran($file, 'first');
	ok(!alive($pid), 'the first command is dead');
	cmp_ok($end, '<', (ran($file, 'second'))[0], 'the first command was dead before the second one started');
	my $second_pid = (ran($file, 'second'))[2];
	$second->kill('KILL');
	$second->wait;
	ok(wait_until(sub { !alive($second_pid) }), 'the second command is dead after its lockctl was killed');
	$node->safe_psql('postgres', "SELECT force_release_lock('$contended')");
	return;
}

package LeCtl::Process;

use strict;
use warnings;

use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;

sub pid { return $_[0]{pid}; }

sub kill { my ($self, $signal) = @_; return CORE::kill($signal, $self->{pid}); }

# The process creates its files itself, so they may not exist yet.
sub read_if { return -e $_[0] ? slurp_file($_[0]) : ''; }

sub out { return read_if($_[0]{out}); }

sub err { return read_if($_[0]{err}); }

sub ended
{
	my ($self) = @_;

	if (!$self->{ended} && waitpid($self->{pid}, WNOHANG) == $self->{pid})
	{
		$self->{ended} = 1;
		$self->{signal} = $? & 127;
		$self->{rc} = $? & 127 ? 128 + ($? & 127) : $? >> 8;
		LeCtl::check_reports();
	}
	return $self->{ended};
}

sub signal { return $_[0]{signal}; }

sub wait
{
	my ($self, $seconds) = @_;

	LeTest::wait_until(sub { $self->ended }, $seconds) or die "lockctl does not end\n" . $self->err;
	return $self->{rc};
}

# Returns the first child, which is the guardian.
sub guardian
{
	my ($self) = @_;

	return LeCtl::child_of($self->{pid});
}

1;
