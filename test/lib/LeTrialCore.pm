# Runs the unit tests and the simulator on a mutant of src/core: first at full speed, then under sanitizers, until one
# fails.
#
# The kernel limits the processor time of each program, so that other processes of the machine have no influence, and a
# mutant that loops forever is caught.  The limit is ten times what the program takes without a mutant.
package LeTrialCore;

use strict;
use warnings;

use Exporter 'import';
use LeMutants qw(slurp);
use LeMutate qw(mutated);
use LeObjects qw(compile_text);

our @EXPORT = qw(prepare_core try_core);

my @sim = (
	[ fast => qw(--seed 1 --seeds 12 --steps 20000) ],
	[ fast => qw(--no-model --seed 1 --seeds 40 --steps 20000) ],
	[ fast => qw(--exhaustive --every 15000 --seed 1) ],
	[ safe => qw(--seed 2 --seeds 2 --steps 20000) ],
);
my (%flags, @trials);

# Runs a trial with the mutant's libraries in $lib. Returns what failed, or undef, and the processor time in $$seconds.
sub run_trial
{
	my ($trial, $lib, $limit, $seconds) = @_;
	my $out = "$lib/out";
	my @before = times;
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		$ENV{LD_LIBRARY_PATH} = "$lib/$trial->{kind}";
		$ENV{ASAN_OPTIONS} = 'detect_leaks=1:hard_rss_limit_mb=4000';
		my $memory = $trial->{kind} eq 'fast' ? 'ulimit -v 4000000;' : '';
		exec('bash', '-c', "ulimit -c 0; ulimit -t $limit; ulimit -f 20000; $memory exec \"\$0\" \"\$@\" >$out 2>&1", @{ $trial->{command} })
		  or die "exec: $!";
	}
	waitpid($pid, 0);
	my $rc = $?;
	my @after = times;

	$$seconds = $after[2] + $after[3] - $before[2] - $before[3];
	my $text = slurp($out);
	return undef if $rc == 0 && $text !~ /^not ok/m;
	my ($first) = $text =~ /^(not ok.*|.*invariant violated.*|.*Assertion .*|.*(?:ERROR: AddressSanitizer|runtime error).*|seed \d+, step .*)$/m;
	return sprintf('%s: %s', $trial->{name}, substr($first // ($rc == 9 ? 'takes too long' : "status $rc"), 0, 160));
}

# Builds in $dir, from a copy of the sources, so that the checkout can change in the meantime.
sub prepare_core
{
	my ($dir) = @_;

	# Copy everything again, but preserve the times of the files, so that make does not rebuild them.
	system("rm -rf $dir/src $dir/test; mkdir -p $dir/src $dir/test && cp -pr src/core src/server $dir/src"
		  . " && cp -pr test/unit test/sim $dir/test") == 0 or die "cp failed\n";
	system("make -s -C $dir -f \$PWD/test/mutants/core.mk OUT=\$PWD/$dir all") == 0 or die "make failed\n";
	$flags{$_} = [ split ' ', `make -s -f test/mutants/core.mk flags-$_` ] foreach qw(fast safe);
	my @units = map { s{.*/}{}r =~ s/\.c$//r } glob('test/unit/*.c');
	my $here = `pwd` =~ s/\n//r;

	foreach my $kind (qw(fast safe))
	{
		push @trials, map { { kind => $kind, name => "unit/$_" . ($kind eq 'safe' ? ' (sanitizers)' : ''),
			command => ["$here/$dir/$kind/unit/$_"] } } @units;
		push @trials, map { my ($k, @args) = @$_; { kind => $k, name => "sim @args", command => [ "$here/$dir/$k/sim", '--no-minimise', @args ] } }
		  grep { $_->[0] eq $kind } @sim;
	}
	foreach my $trial (@trials)
	{
		my $failed = run_trial($trial, $dir, 600, \$trial->{seconds});

		die "without a mutant $failed\n" if $failed;
	}
	# Sorted by kind, then unit tests before the simulator, which finds more, then by time.
	@trials = sort { ($b->{kind} eq 'fast') <=> ($a->{kind} eq 'fast') || ($a->{name} =~ /^sim/) <=> ($b->{name} =~ /^sim/) || $a->{seconds} <=> $b->{seconds} } @trials;
	return $dir;
}

# Returns which trial caught the mutant, or undef.
sub try_core
{
	my ($site, $text, $dir, $worker) = @_;
	my ($name) = $site->{file} =~ m{([^/]+)\.c$};
	my $lib = "$dir/w$worker";
	my %built;

	system('mkdir', '-p', "$lib/fast", "$lib/safe");
	foreach my $trial (@trials)
	{
		my $kind = $trial->{kind};

		if (!$built{$kind}++)
		{
			my $object = "$lib/$kind/$name.mutant.o";

			compile_text($site->{file}, mutated($site, $text), $object, 'gcc', @{ $flags{$kind} }, '-fPIC', '-w') or die slurp("$object.errors");
			my @objects = grep { !m{/\Q$name\E\.o$} } glob("$dir/$kind/core/*.o");
			system('gcc', @{ $flags{$kind} }, '-shared', '-o', "$lib/$kind/libcore.so", $object, @objects) == 0 or die "the link failed\n";
			unlink($object);
		}
		my $failed = run_trial($trial, $lib, int(10 * $trial->{seconds}) + 5, \my $seconds);

		return $failed if $failed;
	}
	return undef;
}

1;
