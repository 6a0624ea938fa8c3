# Runs lockctl as a user would: real processes, with their own standard files.
#
#   ctl_node($node)                      the server that the following calls use
#   my ($rc, $out, $err) = ctl(@args)    runs it to its end; $rc as a shell has it
#   my $c = start_ctl(@args)             in the background, in a process group of its own
#     $c->pid, $c->kill('TERM'), $c->out, $c->err, $c->wait ($rc), $c->ended
#
# stamps('a', 'file') is a command that appends "a SECONDS PID", by CLOCK_BOOTTIME, to a file every few milliseconds for
# ever, whatever signal it gets; ran('file', 'a') is the first and the last time, and the process.

package LeCtl;

use strict;
use warnings;

use Exporter 'import';
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(ctl_node ctl_env ctl start_ctl stamps ran alive boottime holder_of wait_held wait_waiting child_of);

my $lockctl = "$ENV{PWD}/build/lockctl/lockctl";
my $node;
my $number = 0;
my @started;

END
{
	my $rc = $?;
	foreach my $c (grep { !$_->{ended} } @started)
	{
		kill 'KILL', $c->{pid};
		waitpid $c->{pid}, 0;
	}
	$? = $rc;
}

sub ctl_node { $node = $_[0]; return; }

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
		exec { $lockctl } 'lockctl', @args or POSIX::_exit(99);
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

# --- commands that can be watched ---

sub stamps
{
	my ($name, $file, %opts) = @_;
	my $before = $opts{before} // '';

	return ($^X, '-MTime::HiRes=clock_gettime,sleep', '-e',
		'$SIG{$_} = sub {} foreach qw(TERM INT HUP); ' . $before . '; open my $f, ">>", $ARGV[1] or die; while (1) '
		. '{ syswrite $f, sprintf("%s %.6f %d\n", $ARGV[0], clock_gettime(7), $$); sleep 0.005 }', $name, $file);
}

# First and last time, and the process.
sub ran
{
	my ($file, $name) = @_;
	my @times = -e $file ? slurp_file($file) =~ /^\Q$name\E ([\d.]+) \d+$/mg : ();
	my ($pid) = -e $file ? slurp_file($file) =~ /^\Q$name\E [\d.]+ (\d+)$/m : ();

	return ($times[0], $times[-1], $pid);
}

# Not a zombie.
sub alive
{
	my ($pid) = @_;
	my $stat = eval { slurp_file("/proc/$pid/stat") } // return 0;

	return $stat !~ /\) [ZX] /;
}

sub wait_held { return wait_for_sql($node, "SELECT count(*) > 0 FROM lock_election.locks WHERE name = '$_[0]'"); }

sub wait_waiting
{
	my ($name, $count) = @_;

	$count //= 1;
	return wait_for_sql($node, "SELECT count(*) = $count FROM lock_election.waiters WHERE name = '$name'");
}

# The first child of a process. The kernel leaves some out of its list while others come and go.
sub child_of
{
	my ($pid) = @_;
	my $child;

	LeTest::wait_until(sub { ($child) = split ' ', slurp_file("/proc/$pid/task/$pid/children"); return defined $child; })
	  or die "process $pid has no child";
	return $child;
}

package LeCtl::Process;

use strict;
use warnings;

use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;

sub pid { return $_[0]{pid}; }

sub kill { my ($self, $signal) = @_; return CORE::kill($signal, $self->{pid}); }

# It makes its files itself.
sub read_if { return -e $_[0] ? slurp_file($_[0]) : ''; }

sub out { return read_if($_[0]{out}); }

sub err { return read_if($_[0]{err}); }

sub ended
{
	my ($self) = @_;

	if (!$self->{ended} && waitpid($self->{pid}, WNOHANG) == $self->{pid})
	{
		$self->{ended} = 1;
		$self->{rc} = $? & 127 ? 128 + ($? & 127) : $? >> 8;
	}
	return $self->{ended};
}

sub wait
{
	my ($self, $seconds) = @_;

	LeTest::wait_until(sub { $self->ended }, $seconds) or die "lockctl does not end\n" . $self->err;
	return $self->{rc};
}

# The processes that it has started, and those that these have: the guardian first.
sub guardian
{
	my ($self) = @_;

	return LeCtl::child_of($self->{pid});
}

1;
