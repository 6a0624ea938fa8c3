# Runs the tests of the library, test/client/*.c. A program prints TAP. To request an action from its Perl test, it
# prints "do: WORDS", and waits for a line with the reply.
#
#   client_test('holds', $connstr, kinds => ['plain', 'address'], do => { restart => sub { ... } });
#
# Each kind of build (plain, AddressSanitizer, ThreadSanitizer) is a subtest. The reply is the return value of the
# handler in "do".

package LeClient;

use strict;
use warnings;

use Exporter 'import';
use IPC::Open2;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(client_test client_kinds any_kind server_control freeze thaw);

sub client_kinds { return split ' ', $ENV{LE_CLIENT_KINDS} // 'plain address thread'; }

# The kind for tests whose result does not depend on the kind of build.
sub any_kind { return (client_kinds())[0]; }

sub client_test
{
	my ($program, $connstr, %opts) = @_;

	foreach my $kind (@{ $opts{kinds} // [client_kinds()] })
	{
		subtest "$program ($kind)" => sub { run($program, $kind, $connstr, $opts{do} // {}); };
	}
	return;
}

sub run
{
	my ($program, $kind, $connstr, $do) = @_;
	local $ENV{PGAPPNAME};
	delete $ENV{PGAPPNAME};
	local $ENV{ASAN_OPTIONS} = 'detect_leaks=1';
	local $ENV{TSAN_OPTIONS} = 'halt_on_error=0 exitcode=66';
	my $pid = open2(my $out, my $in, "build/client/$kind/$program", $connstr);
	my ($ran, $planned) = (0, undef);

	while (my $line = <$out>)
	{
		chomp $line;
		if ($line =~ /^do: (\S+) ?(.*)$/)
		{
			my $answer = $do->{$1} ? $do->{$1}->(split ' ', $2) : die "nobody does \"$1\"";
			print $in (($answer // '') . "\n");
			$in->flush;
		}
		elsif ($line =~ /^(not )?ok \d+ - (.*)$/)
		{
			$ran++;
			ok(!$1, $2);
		}
		elsif ($line =~ /^1\.\.(\d+)$/) { $planned = $1; }
		elsif ($line =~ /^Bail out! (.*)/) { fail("bail out: $1"); }
		elsif ($line =~ /^#   (.*)/) { diag($1); }
		elsif ($line =~ /^# (.*)/) { note($1); }
	}
	close $in;
	waitpid($pid, 0);
	is($?, 0, 'the program exits with 0');
	is($ran, $planned // -1, 'the program has run all planned tests');
	return;
}

# Returns the postmaster of a server and its child processes. The postmaster comes first.
sub processes
{
	my ($node) = @_;
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	my @children = split ' ', slurp_file("/proc/$postmaster/task/$postmaster/children");

	return ($postmaster, @children);
}

# Stops all processes of a server. Retries if a stopped process has a lock on a file: with coverage, an exiting
# process locks the file of its counters, and all others, also those of another server, would wait for it.
sub freeze
{
	my ($node) = @_;

	LeTest::wait_until(
		sub {
			kill 'STOP', processes($node);
			my %stopped = map { $_ => 1 } processes($node);
			kill 'STOP', keys %stopped;
			return 1 unless grep { $stopped{$_} } slurp_file('/proc/locks') =~ /^\d+: POSIX +\w+ +\w+ +(\d+)/mg;
			thaw($node);
			return 0;
		}) or die 'the server cannot be stopped';
	return;
}

sub thaw { kill 'CONT', processes($_[0]); return; }

# The actions that a program can request.
sub server_control
{
	my ($node) = @_;

	return {
		restart => sub { $node->stop($_[0]); $node->start; return; },
		stop => sub { freeze($node); return; },
		cont => sub { thaw($node); return; },
		down => sub { $node->stop($_[0] // 'fast'); return; },
		up => sub { $node->start; return; },
	};
}

1;
