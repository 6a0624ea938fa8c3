# The runner of test/mutants/random.sh: draws mutants until N of them count, tries each on the tests that could catch
# it, and reports how many survive. The state file has one line of JSON for each draw and each trial, so that a stopped
# run can continue.
use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use JSON::PP;
use LeMutants qw(slurp);
use LeMutate;
use LeMutateSql;
use LeObjects;
use LeTrialCore;
use LeTrialPortable;
use LeTrialServer;
use Time::HiRes qw(time);

my ($where, $seed, $n, $jobs) = @ENV{qw(WHERE SEED N LE_JOBS)};
my $json = JSON::PP->new->canonical;
# Read by name, written through a descriptor: the account may not be able to write to the checkout.
my ($known, $state_fd) = @ENV{qw(LE_STATE LE_STATE_FD)};
my $again = $ENV{AGAIN} // '';

$| = 1;

my $is_sql = $where eq 'portable';
my %text = map { $_ => slurp($_) } grep { $_ !~ $LeMutate::NOT_THESE } glob($is_sql ? 'sql/portable/parts/*.sql' : "src/$where/*.c src/$where/*/*.c");
my $sources = substr(sha256_hex(map { "$_\n$text{$_}" } sort keys %text), 0, 16);

# --- state --------------------------------------------------------------------------------------------------------

my (%drawn, %tried);

open(my $state, '>>&=', $state_fd) or die "state: $!";
sub remember
{
	my ($what) = @_;

	# one write per line, so that several workers can append
	syswrite($state, $json->encode({ sources => $sources, %$what }) . "\n");
	return;
}

sub read_state
{
	my $others = 0;

	open(my $in, '<', $known) or return;
	while (my $line = <$in>)
	{
		my $what = eval { $json->decode($line) } or next;

		if ($what->{sources} ne $sources) { $others++; next; }
		$drawn{ $what->{draw} } = $what if $what->{draw};
		$tried{ $what->{tried} } = $what if $what->{tried};
	}
	print "$others lines of the state are of other sources: left out\n" if $others;
	return;
}

# Mutants that were shown to be equivalent: key => reason
sub read_equivalent
{
	return map { /^([0-9a-f]{10}) (.*)/ ? ($1 => $2) : () } split(/\n/, slurp('test/mutants/equivalent'));
}

# --- drawing --------------------------------------------------------------------------------------------------------

sub draw
{
	my $next = draw_sites($seed, map { $is_sql ? sql_sites($_, $text{$_}) : sites($_, $text{$_}) } sort keys %text);
	my $objects = $is_sql ? undef : new_objects($ENV{TMPDIR} // '/tmp');
	my @counted;

	for (my $i = 1; @counted < $n; $i++)
	{
		my $site = $next->() // last;
		my $text = $text{ $site->{file} };
		my $d = $drawn{$i};

		$site->{key} = site_key($site, $text);
		if (!$d)
		{
			my ($verdict, $digest) = $is_sql ? portable_verdict($site, $text) : verdict($objects, $site, $text);

			$d = $drawn{$i} = { draw => $i, key => $site->{key}, file => $site->{file}, operator => $site->{operator},
				verdict => $verdict, object => $digest };
			remember($d);
		}
		$d->{key} eq $site->{key} or die "draw $i was another one: remove the state\n";
		$d->{used} = 1;
		know_object($objects, $site->{file}, $text, $d->{object}) unless $is_sql;
		push @counted, $site if $d->{verdict} eq 'counts';
	}
	return @counted;
}

# --- trials ---------------------------------------------------------------------------------------------------------

# A function with the arguments site, text, number of the worker, and tests that the mutant has passed, with digests; it
# adds to the latter. Returns the test that caught the mutant, or undef.
my $try;

sub try_one
{
	my ($site, $worker) = @_;
	my $from = time;
	my $passed = { %{ ($tried{ $site->{key} } // {})->{passed} // {} } };
	my $caught = eval { $try->($site, $text{ $site->{file} }, $worker, $passed) };

	if ($@)
	{
		print "ERROR $site->{key}: $@";
		return;
	}
	my $seconds = int(time - $from);
	remember({ tried => $site->{key}, caught => $caught, seconds => $seconds, passed => $caught ? {} : $passed });
	print $caught ? "caught   $site->{key} $site->{file}:$site->{line} $site->{operator} ($seconds s) $caught\n"
	  : "SURVIVED ($seconds s) " . site_diff($site, $text{ $site->{file} });
	return;
}

# Each free worker takes the next mutant.
sub try_all
{
	my @sites = @_;
	my @workers;

	pipe(my $next, my $queue) or die "pipe: $!";
	syswrite($queue, pack('N', $_)) foreach 0 .. $#sites;
	close($queue);
	foreach my $worker (1 .. $jobs)
	{
		my $pid = fork() // die "fork: $!";

		if ($pid == 0)
		{
			while (sysread($next, my $i, 4)) { try_one($sites[ unpack('N', $i) ], $worker); }
			stop_portable() if $is_sql;
			exit(0);
		}
		push @workers, $pid;
	}
	waitpid($_, 0) foreach @workers;
	return;
}

# --- the report -----------------------------------------------------------------------------------------------------

sub report
{
	my @sites = @_;
	my %equivalent = read_equivalent();
	my (%of, %by, @survivors);

	foreach my $d (grep { $_->{used} } values %drawn) { $of{ $d->{file} =~ s{/[^/]+$}{}r }{ $d->{verdict} }++; }
	foreach my $site (@sites)
	{
		my $folder = $site->{file} =~ s{/[^/]+$}{}r;
		my $t = $tried{ $site->{key} };
		my $what = !$t ? 'not tried' : $t->{caught} ? 'killed' : $equivalent{ $site->{key} } ? 'said equivalent' : 'survived';

		$of{$folder}{$what}++;
		$by{ $t->{caught} =~ s/:.*//sr }++ if $what eq 'killed';
		push @survivors, $site if $what eq 'survived';
	}
	my @columns = ('not compiled', 'equivalent', 'duplicate', 'counts', 'killed', 'survived', 'said equivalent', 'not tried');
	my $format = '%-24s' . '%16s' x @columns . "\n";
	printf "\nmutants-random WHERE=%s SEED=%s N=%s, sources %s\n", $where, $seed, $n, $sources;
	printf $format, 'folder', @columns;
	foreach my $folder (sort keys %of)
	{
		printf $format, $folder, map { $of{$folder}{$_} // 0 } @columns;
		$of{"\x7f"}{$_} += $of{$folder}{$_} // 0 foreach @columns;
	}
	my $all = delete $of{"\x7f"} // {};
	printf $format, 'all', map { $all->{$_} // 0 } @columns;
	printf "killed by %-40s %5d\n", $_, $by{$_} foreach sort { $by{$b} <=> $by{$a} || $a cmp $b } keys %by;
	my $judged = ($all->{killed} // 0) + ($all->{survived} // 0);
	printf "%d of %d survive: %.1f %%\n", $all->{survived} // 0, $judged, 100 * ($all->{survived} // 0) / ($judged || 1);
	print "\n", site_diff($_, $text{ $_->{file} }) foreach @survivors;
	return;
}

read_state();
my @sites = draw();
stop_portable() if $is_sql;
my %equivalent = read_equivalent();
my @todo = grep { my $t = $tried{ $_->{key} }; !$t || $again && !$t->{caught} && !$equivalent{ $_->{key} } } @sites;

if (!$ENV{REPORT})
{
	exit(0) unless @todo;
	printf "%d mutants drawn for %d that count; %d to try\n", scalar keys %drawn, scalar @sites, scalar @todo;
	if ($where eq 'core')
	{
		my $dir = prepare_core($ENV{LE_OUT});
		$try = sub { my ($site, $text, $worker) = @_; return try_core($site, $text, $dir, $worker); };
	}
	elsif ($is_sql) { $try = \&try_portable; }
	else
	{
		prepare_server();
		$try = \&try_server;
	}
	try_all(@todo);
	exit(0);
}
report(@sites);
exit((grep { my $t = $tried{ $_->{key} }; !$t || !$t->{caught} && !$equivalent{ $_->{key} } } @sites) ? 1 : 0);
