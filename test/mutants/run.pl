# The runner of test/mutants/run.sh.  Each of its workers has a tree of its own, $LE_RUN/w1 and so on, with the sources,
# already built, and with a PostgreSQL.
use strict;
use warnings;

use LeMutants;
use Storable qw(store retrieve);
use Time::HiRes qw(time);

# A test that waits for what a mutant prevents is not to be waited for as long as one that may pass.
my $PATIENCE = 20;
# What a test may take in all; then it is killed.
my $TEST_TIMEOUT = 120;

my $started = time;
$| = 1;

sub say_line { print @_, "\n"; return; }

# --- building -----------------------------------------------------------------------------------------------------------

sub make
{
	my $log = "$ENV{TESTDIR}/make.log";

	system("make -s @_ >$log 2>&1") == 0 or die "make @_ failed:\n" . slurp($log);
	return;
}

# The build with fault points has sources of its own.
my $faults = 'build/faults';

sub copy_to_faults
{
	my ($file) = @_;

	spew("$faults/$file", slurp($file)) if -e "$faults/$file";
	return;
}

# What this test needs, built from the sources as they are.
sub build_for
{
	my ($test, $built) = @_;
	my %needs = map { $_ => 1 } needs($test);
	my $what = $test eq 'sim' ? 'build/sim'
	  : $test =~ m{^test/unit/(\w+)\.c$} ? "build/unit/$1"
	  : $needs{faults} ? 'faults'
	  : $needs{lockctl} ? 'lockctl'
	  : $needs{client} ? 'client-tests'
	  : 'server';

	return if $built->{$what}++;
	if ($what =~ /^(?:server|lockctl|client-tests)$/)
	{
		make("PG_CONFIG=$ENV{LE_BUILD_PG_CONFIG}", 'all');
		make("PG_CONFIG=$ENV{PG_CONFIG}", 'install');
		make($what) if $what ne 'server';
	}
	elsif ($what eq 'faults')
	{
		make("-C $faults LE_FAULTS=1 PG_CONFIG=$ENV{LE_BUILD_PG_CONFIG}", 'all');
		make("-C $faults LE_FAULTS=1 PG_CONFIG=$ENV{LE_FAULTS_TREE}/bin/pg_config", 'install');
	}
	else { make($what); }
	return;
}

# --- running a test -------------------------------------------------------------------------------------------------------

sub command_of
{
	my ($test) = @_;

	return $test eq 'sim'
	  ? (qw(build/sim --no-minimise --seed 1 --seeds 8 --steps 20000))
	  : ('test/lib/run-one', $test);
}

# Whatever a test that was stopped has left behind.
sub clean_up
{
	my ($pid) = @_;
	my $end = time + 10;

	kill('KILL', -$pid) if $pid;
	foreach my $file (glob("$ENV{TESTDIR}/tmp_check/*/pgdata/postmaster.pid"))
	{
		my ($server) = eval { slurp($file) =~ /\A(\d+)/ };

		next unless $server;
		kill('QUIT', $server);
		select(undef, undef, undef, 0.05) while kill(0, $server) && time < $end;
	}
	system("rm -rf $ENV{TESTDIR}/tmp_check");
	return;
}

# (passed?, what failed first, timed out?): ends with the first failure.
sub run_test
{
	my ($test, $patience) = @_;
	my $errors = "$ENV{TESTDIR}/stderr";
	my ($failed, $sim, $timed_out, $rc);
	my $pid = open(my $out, '-|') // die "fork: $!";

	if ($pid == 0)
	{
		setpgrp;
		open(STDERR, '>', $errors) or die "$errors: $!";
		$ENV{PG_TEST_TIMEOUT_DEFAULT} = $patience;
		exec(command_of($test)) or die "exec: $!";
	}
	local $SIG{ALRM} = sub { $timed_out = 1; kill('TERM', -$pid); };
	alarm($TEST_TIMEOUT);
	while (my $line = <$out>)
	{
		$sim //= $1 if $line =~ /^(seed \d+, step \d+: .*)/;
		next if $failed || $line !~ /^\s*not ok \d+(?: - (.*))?$/ || $line =~ /# TODO/;
		$failed = $1 // 'a test without a name';
		kill('TERM', -$pid);
	}
	close($out);
	$rc = $?;
	alarm(0);
	clean_up($pid);
	return 1 if $rc == 0 && !$failed && !$timed_out;

	# it died: of an assertion, of the simulator's check, or of waiting too long
	my $text = eval { slurp($errors) } // '';
	$timed_out ||= !$failed && $text =~ /timed out|timeout/;
	if (!$failed)
	{
		my ($assertion) = $text =~ /(invariant violated: .*|Assertion .* failed|AddressSanitizer: .*|runtime error: .*)/;
		my ($late) = $text =~ /(timed out.*)/;
		my ($first) = $text =~ /^(\S.*)/m;

		$failed = join('; ', grep { defined } $sim, $assertion) || $late || $first || "exit code $rc";
	}
	return (0, $failed, $timed_out);
}

# --- a mutant -----------------------------------------------------------------------------------------------------------

# (what caught it or undef, message)
sub try_tests
{
	my ($m) = @_;
	my (%built, $late);

	foreach my $test (@{ $m->{tests} })
	{
		build_for($test, \%built);
		my ($passed, $failed, $timed_out) = run_test($test, $PATIENCE);

		next if $passed;
		return ($test, $failed) if !$timed_out || $m->{timeout};
		$late = "$test timed out: $failed";
	}
	return (undef, $late // 'SURVIVED');
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
		($test, $message) = try_tests($m);
	};
	($test, $message) = (undef, "ERROR: $@") if $@;
	spew($m->{file}, $original);
	copy_to_faults($m->{file});
	my $result = { %$m, caught => $test, message => $message, seconds => time - $from };
	say_line(sprintf('%-9s %-32s %5.1f s  %s', $test ? 'caught' : 'NOT', $m->{name}, $result->{seconds},
		$test ? "$test: $message" : $message));
	return $result;
}

# Whoever is free takes the next one.  Returns the results in the order of the list.
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

# From here on everything is done in this worker's tree.  Ports are given out for all of them.
sub enter_tree
{
	my ($worker) = @_;

	foreach my $name (grep { defined $ENV{$_} } qw(LE_FAULTS_TREE PATH PERL5LIB PG_CONFIG PG_REGRESS TESTDIR TESTDATADIR TESTLOGDIR TMPDIR))
	{
		$ENV{$name} =~ s{\Q$ENV{LE_RUN}\E/}{$ENV{LE_RUN}/w$worker/}g;
	}
	chdir("$ENV{LE_RUN}/w$worker/src") or die "chdir: $!";
	return;
}

# Those that are to catch have to pass where there is nothing to catch.
sub check_tests
{
	my @tests = @_;
	my $from = time;
	my @files = grep { $_ ne 'sim' } @tests;
	my %built;

	build_for($_, \%built) foreach grep { $_ eq 'sim' || m{^test/unit/} } @tests;
	if (grep { $_ eq 'sim' } @tests)
	{
		my ($passed, $failed) = run_test('sim', 60);
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
