# Runs the tests of the library, test/client/*.c. A program prints TAP. To request a change of the server it prints
# "do: WORDS", and waits for the reply.
#
#   client_test('holds', $connstr, kinds => ['plain', 'address'], do => { restart => sub { ... } });
#
# Each kind of build (plain, AddressSanitizer, ThreadSanitizer) is a subtest. The reply is the return value of the "do".

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

# For what is as good as tested by one of them.
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
	is($?, 0, 'the program ends well');
	is($ran, $planned // -1, 'all of its tests have run');
	return;
}

# All processes of a server, those that it starts included: the postmaster last when it stops, first when it goes on.
sub processes
{
	my ($node) = @_;
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	my @children = split ' ', slurp_file("/proc/$postmaster/task/$postmaster/children");

	return ($postmaster, @children);
}

# Where coverage is recorded, a process that ends has locked the file of its counters, for which all others would wait that
# end, also those of another server.
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
		}) or die 'it cannot be stopped';
	return;
}

sub thaw { kill 'CONT', processes($_[0]); return; }

# What a program may ask for.
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
