# Tries a mutant of src/server, src/client or src/lockctl on the test files that could notice it: those that have reached
# its line, by LeCoverage.pm, the quickest first.
#
# A test that waits too long, or dies, has caught it only if it passes, in the same time, in a tree without the mutant.
package LeTrialServer;

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter 'import';
use Fcntl qw(:flock);
use LeCoverage;
use LeMutants;
use LeMutate qw(mutated);
use LeTrial;

our @EXPORT = qw(prepare_server try_server);

# What a wait in a test may take.
my $PATIENCE = 30;

# A mutant is tried on so many seconds of tests, counted as they were recorded.
my $MOST = $ENV{MOST} // 900;

my ($coverage, $in_tree);

sub prepare_server
{
	$coverage = read_coverage('build/mutants-coverage');
	%{ $coverage->{tests} } or die "nothing is recorded: make mutants-coverage\n";
	return;
}

# Only one at a time uses the disks, or the addresses of the network, that all workers have together.
sub run_alone_if_needed
{
	my ($test, $limit) = @_;
	my $lock;

	if (slurp($test) =~ /LE_DISKS|silence_host|add_host/)
	{
		open($lock, '>', "$ENV{LE_RUN}/work/alone") or die "alone: $!";
		flock($lock, LOCK_EX);
	}
	my @result = run_test($test, $PATIENCE, $limit);

	# what a test that was stopped has left there would make the next one fail
	system('find', $ENV{LE_DISKS}, qw(-mindepth 2 -delete)) if $lock && $ENV{LE_DISKS};
	return @result;
}

# Does the test pass in the tree that has no mutant?  In a process of its own, which stays there.
sub passes_without
{
	my ($test, $limit) = @_;
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		open(my $lock, '>', "$ENV{LE_RUN}/work/reference") or die "reference: $!";
		flock($lock, LOCK_EX);
		enter_tree($ENV{LE_JOBS} + 1);
		build_for($test, {});
		my ($passed) = run_alone_if_needed($test, $limit);
		exit($passed ? 0 : 1);
	}
	waitpid($pid, 0);
	return $? == 0;
}

# Returns what caught it, or undef.  $passed has the tests, with their digests, that it has passed before, and gets those
# that it passes now: they are not run again, and do not count as time.
sub try_server
{
	my ($site, $text, $worker, $passed) = @_;
	my $spent = 0;
	my (%built, $caught);

	enter_tree($worker) unless $in_tree++;
	my @reaching = tests_for($coverage, $site, $text);
	my %digest = map { $_ => substr(sha256_hex(slurp($_)), 0, 16) } @reaching;
	my @tests = grep { ($passed->{$_} // '') ne $digest{$_} } @reaching;

	spew($site->{file}, mutated($site, $text));
	copy_to_faults($site->{file});
	eval {
		foreach my $test (@tests)
		{
			my $seconds = $coverage->{tests}{$test}{seconds};
			my $limit = int(3 * $seconds) + 60;

			last if ($spent += $seconds) > $MOST && $test ne $tests[0];
			build_for($test, \%built);
			my ($passes, $failed, $timed_out, $died) = run_alone_if_needed($test, $limit);

			$passed->{$test} = $digest{$test} if $passes;
			next if $passes || ($timed_out || $died) && !passes_without($test, $limit);
			$caught = substr("$test: $failed", 0, 200) . ($timed_out ? ' (waits too long, and does not without the mutant)' : '');
			last;
		}
	};
	my $error = $@;
	spew($site->{file}, $text);
	copy_to_faults($site->{file});
	die $error if $error;
	return $caught;
}

1;
