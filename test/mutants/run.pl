# The runner of test/mutants/run.sh. Each worker has its own tree, $LE_RUN/w1 and so on, with built sources and a
# PostgreSQL installation.
use strict;
use warnings;

use LeMutants;
use LeTrial;
use Storable qw(store retrieve);
use Time::HiRes qw(time);

# Seconds that a test waits for an event: fewer than usual, because a mutant may prevent the event.
my $PATIENCE = 20;
# Seconds after which a test is killed.
my $TEST_TIMEOUT = 120;

my $started = time;
$| = 1;

sub say_line { print @_, "\n"; return; }

# --- a mutant -----------------------------------------------------------------------------------------------------------

# Returns the test that caught the mutant, or undef, and a message.
sub try_tests
{
	my ($m) = @_;
	my (%built, $late);

	foreach my $test (@{ $m->{tests} })
	{
		build_for($test, \%built);
		my ($passed, $failed, $timed_out) = run_test($test, $PATIENCE, $TEST_TIMEOUT);

		next if $passed;
		return ($test, $failed) if !$timed_out || $m->{timeout};
		$late = "$test timed out: $failed";
	}
	return (undef, $late // 'SURVIVED');
}

# Assembles the portable edition if one of its parts has changed, and updates the copy that Go embeds.
sub assemble
{
	my ($file) = @_;

	return if $file !~ m{^sql/portable/parts/};
	system('sql/portable/assemble', '--write') == 0 or die "sql/portable/assemble: $?\n";
	return;
}

sub try_mutant
{
	my ($m) = @_;
	my $from = time;
	my $original = slurp($m->{file});
	my ($test, $message);

	eval {
		spew($m->{file}, mutate($m, $original));
		copy_to_faults($m->{file});
		assemble($m->{file});
		($test, $message) = try_tests($m);
	};
	($test, $message) = (undef, "ERROR: $@") if $@;
	spew($m->{file}, $original);
	copy_to_faults($m->{file});
	assemble($m->{file});
	my $result = { %$m, caught => $test, message => $message, seconds => time - $from };
	say_line(sprintf('%-9s %-32s %5.1f s  %s', $test ? 'caught' : 'NOT', $m->{name}, $result->{seconds},
		$test ? "$test: $message" : $message));
	return $result;
}

# Each free worker takes the next mutant. Returns the results in the order of the list.
sub try_all
{
	my @mutants = @_;
	my @workers;

	pipe(my $next, my $queue) or die "pipe: $!";
	syswrite($queue, sprintf('%4d', $_)) foreach 0 .. $#mutants;
	close($queue);
	foreach my $worker (1 .. $ENV{LE_JOBS})
	{
		my $pid = fork() // die "fork: $!";

		if ($pid == 0)
		{
			enter_tree($worker);
			while (sysread($next, my $i, 4)) { store(try_mutant($mutants[$i]), "$ENV{LE_RUN}/work/result" . int($i)); }
			exit(0);
		}
		push @workers, $pid;
	}
	foreach my $pid (@workers) { waitpid($pid, 0); die "a worker died\n" if $?; }
	return map { retrieve("$ENV{LE_RUN}/work/result$_") } 0 .. $#mutants;
}

# Expects that the tests pass without a mutant.
sub check_tests
{
	my @tests = @_;
	my $from = time;
	my @files = grep { $_ ne 'sim' } @tests;
	my %built;

	build_for($_, \%built) foreach grep { $_ eq 'sim' || m{^test/unit/} } @tests;
	if (grep { $_ eq 'sim' } @tests)
	{
		my ($passed, $failed) = run_test('sim', 60, $TEST_TIMEOUT);
		$passed or die "without a mutant the simulator fails: $failed\n";
	}
	system(qw(prove --norc -Q -j2 --exec test/lib/run-one), @files) == 0 or die "without a mutant a test fails\n" if @files;
	clean_up();
	say_line(sprintf('%d tests pass without a mutant (%.0f s)', scalar @tests, time - $from));
	return;
}

sub print_table
{
	my @results = @_;

	say_line('');
	foreach my $r (@results)
	{
		say_line("$r->{name}  ($r->{file})");
		say_line("    breaks  $r->{story}");
		say_line(sprintf('    %s  (%.1f s)', $r->{caught} ? "caught  $r->{caught}: $r->{message}" : $r->{message}, $r->{seconds}));
	}
	return;
}

my @mutants = read_mutants('test/mutants/list');
if (my %only = map { $_ => 1 } split ' ', $ENV{ONLY} // '')
{
	my %known = map { $_->{name} => 1 } @mutants;

	$known{$_} or die "no mutant $_\n" foreach keys %only;
	@mutants = grep { $only{ $_->{name} } } @mutants;
}
my %tests = map { $_ => 1 } map { @{ $_->{tests} } } @mutants;

$_ eq 'sim' || -f or die "no test $_\n" foreach keys %tests;
mutate($_, slurp($_->{file})) foreach @mutants;
check_tests(sort keys %tests);
my @results = try_all(@mutants);
print_table(@results);
my $left = grep { !$_->{caught} } @results;
say_line(sprintf("\n%d mutants, %d caught, %d not; %.0f s", scalar @results, @results - $left, $left, time - $started));
exit($left ? 1 : 0);
