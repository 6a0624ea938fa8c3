# Runs tests on a mutant in a separate tree, which has the sources, already built, and a PostgreSQL.  The runners of
# test/mutants have such a tree for each worker, $LE_RUN/w1 and so on.
package LeTrial;

use strict;
use warnings;

use Cwd qw(getcwd);
use Exporter 'import';
use LeMutants;
use Time::HiRes qw(time);

our @EXPORT = qw($SUITE build_for run_test clean_up copy_to_faults enter_tree);

# All scenarios of the clients' conformance suite count as one test. The C library runs them with its agent.
our $SUITE = 'clients/conformance/test_scenarios.py';

# --- building -----------------------------------------------------------------------------------------------------------

sub make
{
	my $log = "$ENV{TESTDIR}/make.log";

	system("make -s @_ >$log 2>&1") == 0 or die "make @_ failed:\n" . slurp($log);
	return;
}

# The build with fault points has its own copy of the sources.
my $faults = 'build/faults';

sub copy_to_faults
{
	my ($file) = @_;

	spew("$faults/$file", slurp($file)) if -e "$faults/$file";
	return;
}

# Returns the programs of test/client that this test runs, in each kind of build.
sub client_programs
{
	my ($test) = @_;
	my $text = slurp($test);
	my @programs;

	while ($text =~ /client_test\('(\w+)'([^;]*)/g)
	{
		my ($program, $options) = ($1, $2);
		my @kinds = $options =~ /kinds => \['(\w+)'\]/ ? $1 : split(' ', $ENV{LE_CLIENT_KINDS});

		push @programs, map { "build/client/$_/$program" } @kinds;
	}
	return @programs;
}

# Builds what this test needs from the current sources. $built records what was already built for this mutant.
sub build_for
{
	my ($test, $built) = @_;
	my %needs = map { $_ => 1 } needs($test);
	my @what = $test eq 'sim' ? 'build/sim'
	  : $test eq $SUITE ? 'build/conformance/agent_c'
	  : $test =~ m{^test/unit/(\w+)\.c$} ? "build/unit/$1"
	  : $needs{faults} ? 'faults'
	  : ('server', $needs{lockctl} ? 'lockctl lockctl-address' : (), $needs{client} ? client_programs($test) : ());

	foreach my $what (grep { !$built->{$_}++ } @what)
	{
		if ($what eq 'server')
		{
			make("PG_CONFIG=$ENV{LE_BUILD_PG_CONFIG}", 'all');
			make("PG_CONFIG=$ENV{PG_CONFIG}", 'install');
		}
		elsif ($what eq 'faults')
		{
			make("-C $faults LE_FAULTS=1 PG_CONFIG=$ENV{LE_BUILD_PG_CONFIG}", 'all');
			make("-C $faults LE_FAULTS=1 PG_CONFIG=$ENV{LE_FAULTS_TREE}/bin/pg_config", 'install');
		}
		else { make($what); }
	}
	return;
}

# --- running a test -------------------------------------------------------------------------------------------------------

sub command_of
{
	my ($test) = @_;

	return qw(build/sim --no-minimise --seed 1 --seeds 8 --steps 20000) if $test eq 'sim';
	return ('test/lib/run-one', $test) if $test ne $SUITE;
	return (qw(env CLIENTS=c pytest -p no:cacheprovider -p no:asyncio -q -rf),
		$ENV{SCENARIOS} ? ('-k', $ENV{SCENARIOS}) : (), $SUITE);
}

# Ends all processes and files that a stopped test has left over.
sub clean_up
{
	my ($pid) = @_;
	my $end = time + 10;

	kill('KILL', -$pid) if $pid;
	foreach my $file (glob("$ENV{TESTDIR}/{tmp_check/*/pgdata,conformance-*/servers/*}/postmaster.pid"))
	{
		my ($server) = eval { slurp($file) =~ /\A(\d+)/ };

		next unless $server;
		kill('QUIT', $server);
		select(undef, undef, undef, 0.05) while kill(0, $server) && time < $end;
	}
	system("rm -rf $ENV{TESTDIR}/tmp_check/* $ENV{TESTDIR}/conformance-*");

	# Programs of this tree that have left the test's process group, or that are stopped, because a mutant may keep them
	# from ending.
	my ($tree) = getcwd() =~ m{^(.*/)src$};
	foreach my $exe (glob('/proc/[0-9]*/exe'))
	{
		my ($program) = $exe =~ /(\d+)/;

		kill('KILL', $program) if (readlink($exe) // '') =~ /^\Q$tree\E/;
	}
	return;
}

# Runs a test, up to its first failure. Returns (passed?, first failure, timed out?, died?). A wait in the test may take
# $patience seconds, the test $limit seconds. "died" means that the test ended for another reason than a failed check or
# assertion. For the suite, all failed scenarios are returned, in the syntax of pytest's -k.
sub run_test
{
	my ($test, $patience, $limit) = @_;
	my $errors = "$ENV{TESTDIR}/stderr";
	my ($failed, $sim, $timed_out, $died, $rc, @scenarios);
	my $pid = open(my $out, '-|') // die "fork: $!";

	if ($pid == 0)
	{
		setpgrp;
		open(STDERR, '>', $errors) or die "$errors: $!";
		$ENV{PG_TEST_TIMEOUT_DEFAULT} = $patience;
		exec(command_of($test)) or die "exec: $!";
	}
	local $SIG{ALRM} = sub { $timed_out = 1; kill('TERM', -$pid); };
	alarm($limit);
	while (my $line = <$out>)
	{
		$sim //= $1 if $line =~ /^(seed \d+, step \d+: .*)/;
		push @scenarios, $1 if $line =~ /^FAILED .*\[c-(.+?)\]/;
		next if $failed || $line !~ /^\s*not ok \d+(?: - (.*))?$/ || $line =~ /# TODO/;
		$failed = $1 // 'a test without a name';
		kill('TERM', -$pid);
	}
	close($out);
	$rc = $?;
	alarm(0);
	clean_up($pid);
	return 1 if $rc == 0 && !$failed && !$timed_out;

	$failed = join(' or ', @scenarios) if @scenarios;

	# The test died of an assertion, of a check of the simulator, or of a timeout.
	my $text = eval { slurp($errors) } // '';
	$timed_out ||= !$failed && $text =~ /timed out|timeout/;
	if (!$failed)
	{
		my ($assertion) = $text =~ /(invariant violated: .*|Assertion .* failed|(?:Address|Leak)Sanitizer: .*|runtime error: .*)/;
		my ($late) = $text =~ /(timed out.*)/;
		my ($first) = $text =~ /^(\S.*)/m;

		$died = !defined $sim && !defined $assertion;
		$failed = join('; ', grep { defined } $sim, $assertion) || $late || $first || "exit code $rc";
	}
	return (0, $failed, $timed_out, $died);
}

# Enters the tree of this worker, in which everything is done from now on. Ports are shared by all workers.
sub enter_tree
{
	my ($worker) = @_;

	foreach my $name (grep { defined $ENV{$_} } qw(LE_FAULTS_TREE PATH PERL5LIB PG_CONFIG PG_REGRESS TESTDIR TESTDATADIR TESTLOGDIR TMPDIR))
	{
		$ENV{$name} =~ s{\Q$ENV{LE_RUN}\E/(?:w\d+/)?}{$ENV{LE_RUN}/w$worker/}g;
	}
	chdir("$ENV{LE_RUN}/w$worker/src") or die "chdir: $!";
	return;
}

1;
