# Runs, on a mutant of src/server, src/client or src/lockctl, the test files that could catch it: those that have
# reached its line, by LeCoverage.pm, the quickest first. For the client, it also runs the tests of the library under
# ThreadSanitizer, if the mutant changes a mutex or an atomic variable, and the clients' conformance suite.
#
# A test that fails has caught the mutant only if it passes, in the same time, in a tree without the mutant. It is run
# there at the same time if it has waited too long, has died or has no record; otherwise the record counts.
package LeTrialServer;

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter 'import';
use Fcntl qw(:flock);
use LeCoverage;
use LeMutants;
use LeMutate qw(mutated site_diff);
use LeTrial;

our @EXPORT = qw(prepare_server try_server);

# Seconds that a wait in a test may take, as in coverage.sh.
my $PATIENCE = 30;

# Seconds of recorded test time that are spent on a mutant.
my $MOST = $ENV{MOST} // 900;

# Time limit in seconds of a test without a record, on a busy machine; it does not count.
my $BEYOND = 600;

my ($coverage, $in_tree);
my %first = map { $_ => 1 } split(' ', $ENV{FIRST} // '');

sub prepare_server
{
	$coverage = read_coverage('build/mutants-coverage');
	%{ $coverage->{tests} } or die "nothing is recorded: make mutants-coverage\n";
	return;
}

# Runs a test. Only one worker at a time may use the small disks or the network addresses, which all workers share.
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

	# Files that a stopped test has left over would make the next one fail.
	system('find', $ENV{LE_DISKS}, qw(-mindepth 2 -delete)) if $lock && $ENV{LE_DISKS};
	return @result;
}

# Returns the tests of a mutant in their order: { name, file, kinds of the library's builds }
sub trials
{
	my ($site, $text) = @_;
	my $kinds = $ENV{LE_CLIENT_KINDS};
	my @reaching = tests_for($coverage, $site, $text);
	my @trials = map { { name => $_, file => $_, kinds => $kinds } } @reaching;

	return @trials if $site->{file} !~ m{^src/client/};
	if (site_diff($site, $text) =~ /^ +[-+].*(?:lock\(|pthread_|atomic_)/m)
	{
		my @threads = grep { slurp($_) =~ /client_test\('\w+'(?![^;]*\bkinds =>)|client_kinds\(\)/ } @reaching;

		push @trials, map { { name => "$_ (thread)", file => $_, kinds => 'thread' } } @threads;
	}
	return (@trials, { name => $SUITE, file => $SUITE, kinds => $kinds });
}

# Returns a digest of the files that must be the same if the test need not be run again.
sub digest_of
{
	my ($file) = @_;
	my @others = $file eq $SUITE ? sort glob('clients/conformance/{*.c,*.py,harness/*.py,scenarios/*.toml}') : ();

	return substr(sha256_hex(map { slurp($_) } $file, @others), 0, 16);
}

# Returns the result of run_test(). Failed scenarios are run once more, alone, because they may fail on a busy machine.
sub run_trial
{
	my ($test, $limit) = @_;
	my @result = run_alone_if_needed($test, $limit);

	return @result if $test ne $SUITE || $result[0] || $result[1] !~ /^[\w-]+(?: or [\w-]+)*$/;
	$ENV{SCENARIOS} = $result[1];
	return run_test($test, $PATIENCE, $limit);
}

# Returns whether the test passes in the tree without a mutant. Runs in a child process, because it enters that tree.
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

# Returns which test caught the mutant, or undef. $passed contains the tests that the mutant has passed before, with
# their digests; these are not run again, and count no time. Tests that it passes now are added.
sub try_server
{
	my ($site, $text, $worker, $passed) = @_;
	my $spent = 0;
	my (%built, $caught);

	enter_tree($worker) unless $in_tree++;
	my @trials = trials($site, $text);
	$_->{digest} = digest_of($_->{file}) foreach @trials;
	my @todo = grep { ($passed->{ $_->{name} } // '') ne $_->{digest} } @trials;
	@todo = ((grep { $first{ $_->{name} } } @todo), grep { !$first{ $_->{name} } } @todo);

	spew($site->{file}, mutated($site, $text));
	copy_to_faults($site->{file});
	eval {
		foreach my $trial (@todo)
		{
			my ($name, $test) = @$trial{qw(name file)};
			my $recorded = $name eq $test ? $coverage->{tests}{$test} : undef;
			my $seconds = $recorded ? $recorded->{seconds} : 0;
			my $limit = $recorded ? int(3 * $seconds) + 60 : $BEYOND;

			next if ($spent += $seconds) > $MOST && $recorded && $name ne $todo[0]{name} && !$first{$name};
			local @ENV{qw(LE_CLIENT_KINDS SCENARIOS)} = ($trial->{kinds}, '');
			build_for($test, \%built);
			my ($passes, $failed, $timed_out, $died) = run_trial($test, $limit);

			$passed->{$name} = $trial->{digest} if $passes;
			my $doubtful = $timed_out || $died || !$recorded;
			next if $passes || $doubtful && !passes_without($test, $limit);
			$caught = substr("$name: $failed", 0, 200) . ($timed_out ? ' (waits too long, and does not without the mutant)' : '');
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
