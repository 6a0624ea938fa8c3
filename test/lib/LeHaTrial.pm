# Causes one fault in a cluster of LeHa, while clients of the torture test acquire and hand over locks, and returns the
# findings of the torture test's checker.
#
#   my $result = trial($ha, 'kill -9 node');      { violations => 0, back => { haproxy => 4.2, .. }, .. }
#
# Clients connect in four ways: through HAProxy, through PgBouncer (in transaction mode) and HAProxy, with all hosts in
# their connection string, and pinned, to the address of the node that is the primary when the trial begins. They have
# their own timeout of 4 s for each call.

package LeHaTrial;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use LeTest ();
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

our @EXPORT = qw(trial result_line result_header);

my $trials = 0;
my %clients = (haproxy => 4, pgbouncer => 3, hosts => 3, pinned => 2);

sub now { return clock_gettime(CLOCK_MONOTONIC); }

sub nanoseconds { return sprintf '%.0f', $_[0] * 1e9; }

# --- clients --------------------------------------------------------------------------------------------------------

sub start_client
{
	my ($dir, $group, $number, $mode, $conninfo) = @_;
	my $name = sprintf '%s%02d', $group, $number;
	my $pid = fork // die $!;

	if ($pid == 0)
	{
		$ENV{TORTURE_CALL_MS} = 4000;
		open STDERR, '>>', "$dir/errors";
		exec "$ENV{LE_RUN}/src/build/torture/client", $mode, $name, $dir, $$, $conninfo or POSIX::_exit(1);
	}
	return $pid;
}

sub start_clients
{
	my ($ha, $dir, $primary) = @_;
	my @pids;

	foreach my $group (sort keys %clients)
	{
		my $conninfo = $ha->conninfo($group eq 'pinned' ? $primary : $group);
		push @pids, start_client($dir, $group, $_, 'lasting', $conninfo) foreach 1 .. $clients{$group};
		push @pids, start_client($dir, $group, 90, 'counter', $conninfo) if $group ne 'pinned';
	}
	return @pids;
}

sub end_clients
{
	my (@pids) = @_;
	my $failed = 0;

	kill 'TERM', @pids;
	foreach my $pid (@pids)
	{
		LeTest::wait_until(sub { waitpid($pid, POSIX::WNOHANG) == $pid }, 30) or die 'the client does not end';
		$failed++ if $?;
	}
	return $failed;
}

# --- the ledger: changes acknowledged before the fault -------------------------------------------------------------

# Creates locks, a queue and a leader, of clients that do nothing during the fault.
sub open_ledger
{
	my ($ha, $primary) = @_;
	my $sql = q{SELECT string_agg(acquire_lock('ledger ' || i, '10 min', '1 s', owner => 'ledger')::text, ' ') FROM generate_series(0, 9) i};
	my @tokens = split / /, $ha->sql($primary, $sql);
	my @places = map { $ha->sql($primary, q{SELECT token FROM enqueue_lock('ledger 0', '10 min')}) } 1 .. 5;
	my $term = $ha->sql($primary, q{SELECT campaign('ledger', 'me', '10 min', '1 s', 'ledger')});

	die "$ha->{error}" if grep { !/^\d+$/ } @tokens, @places, $term;
	return { tokens => \@tokens, places => \@places, term => $term };
}

# Returns the parts of the ledger that are lost.
sub close_ledger
{
	my ($ha, $primary, $ledger) = @_;
	my @lost;

	foreach my $i (0 .. 9)
	{
		push @lost, "lock $i" if $ha->sql($primary, "SELECT is_held('ledger $i', $ledger->{tokens}[$i])") ne 't';
	}
	my $queue = $ha->sql($primary, q{SELECT string_agg(token::text, ' ' ORDER BY queue_position) FROM lock_election.waiters WHERE name = 'ledger 0'});
	push @lost, 'the queue or its order' if $queue ne join ' ', @{ $ledger->{places} };
	push @lost, 'the leader' if $ha->sql($primary, "SELECT is_leader('ledger', $ledger->{term})") ne 't';
	$ha->sql($primary, "SELECT release_lock('ledger 0', $_)") foreach @{ $ledger->{places} };
	$ha->sql($primary, q{SELECT force_release_lock('ledger ' || i) FROM generate_series(0, 9) i});
	$ha->sql($primary, q{SELECT force_resign('ledger')});
	return @lost;
}

# --- histories ------------------------------------------------------------------------------------------------------

my %confirms = map { $_ => 1 } qw(acquire enqueue await renew is_held fence release keep_alive revoke_lease grant_lease proclaim);

# Returns the calls of a group that confirm that something is held or done: [operation, sent, received].
sub confirmations
{
	my ($dir, $group) = @_;
	my @calls;

	foreach my $file (glob "$dir/$group*.history")
	{
		my ($operation, $sent);

		open my $f, '<', $file or die $!;
		while (my $line = <$f>)
		{
			($sent, $operation) = ($1, $2) if $line =~ /^C (\d+) \d+ \d+ (\S+)/;
			next unless $line =~ /^A (\d+) \d+ ok (\S*)/ && $confirms{$operation};
			push @calls, [ $operation, $sent / 1e9, $1 / 1e9 ] unless $2 eq 'f';
		}
		close $f;
	}
	return sort { $a->[2] <=> $b->[2] } @calls;
}

# Returns the longest time in which no client of a group was granted a lock, since shortly before the fault.
sub longest_gap
{
	my ($fault, $end, @calls) = @_;
	my $longest = 0;
	my $last;

	foreach my $t ((map { $_->[2] } grep { $_->[0] eq 'acquire' } @calls), $end)
	{
		$longest = $t - $last if defined $last && $t > $fault && $t - $last > $longest;
		$last = $t if !defined $last || $t <= $end;
	}
	return $longest;
}

# Counts the confirmations of the old primary that were requested after the new primary had granted a lock.
sub late_confirmations
{
	my ($dir, $since) = @_;
	my ($first) = grep { $_->[0] eq 'acquire' && $_->[1] > $since } confirmations($dir, 'haproxy');

	return $first ? scalar grep { $_->[1] > $first->[2] } confirmations($dir, 'pinned') : 0;
}

# --- the trial ------------------------------------------------------------------------------------------------------

sub count_left
{
	my ($ha, $primary, $nemesis) = @_;
	my %left = (
		(map { $_ => "SELECT count(*) FROM lock_election.$_" } qw(locks waiters leases elections)),
		fences => q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'});
	my $counts = 'SELECT ' . join q{ || ' ' || }, map { "($left{$_})" } sort keys %left;

	LeTest::wait_until(sub { $ha->sql($primary, $counts) eq '0 0 0 0 0' }, 30);
	my @counts = split / /, $ha->sql($primary, $counts);
	print $nemesis 'G ', nanoseconds(now()), " $_ ", shift @counts, "\n" foreach sort keys %left;
	return;
}

sub check
{
	my ($dir) = @_;
	my ($out, $err);

	IPC::Run::run([ "$ENV{LE_RUN}/src/build/torture/check", '--p99', 10000, '--slack', 3000, glob "$dir/*.history" ], '>', \$out, '2>', \$err);
	return $out . $err;
}

sub trial
{
	my ($ha, $fault) = @_;
	my $dir = "$ha->{dir}/trial" . ++$trials;
	my $old = $ha->leader;
	my $async = $ha->{mode} eq 'async';
	my %result = (mode => $ha->{mode}, fault => $fault);

	mkdir $dir or die $!;
	open my $nemesis, '>', "$dir/nemesis.history" or die $!;
	$ha->sql($old, q{DROP TABLE IF EXISTS counter; CREATE TABLE counter (name text PRIMARY KEY, n bigint, token bigint);
		INSERT INTO counter SELECT unnest('{c0,c1,u0}'::text[]), 0, 0});
	my $ledger = open_ledger($ha, $old);
	my @pids = start_clients($ha, $dir, $old);
	sleep 4;

	my $from = now();
	delete $ha->{new_leader_at};
	$ha->run_fault($fault, $old);
	$ha->wait_for('all nodes back', sub { $ha->all_running }, 180);
	my $new = $ha->leader;
	my $end = now();
	sleep 3;
	$result{failed} = end_clients(@pids);

	# A lease starts again with its full TTL after each start of a manager.
	my $window = nanoseconds($from) . ' ' . nanoseconds($end);
	print $nemesis "N $window ", ($async ? 'promote-async' : 'promote-sync'), "\n", "N $window stop-server\n";
	print $nemesis "N $window lose-tail\n" if $async;
	$result{lost} = [ close_ledger($ha, $new, $ledger) ];
	count_left($ha, $new, $nemesis);
	close $nemesis;
	$result{text} = check($dir);
	($result{violations}) = $result{text} =~ /^violations: (\d+)$/m;
	($result{operations}, $result{unknown}) = $result{text} =~ /^operations: (\d+) .* (\d+) of unknown/m;
	($result{updates}, $result{updates_lost}) = $result{text} =~ /^updates: (\d+), lost: (\d+)$/m;
	$result{back} = { map { $_ => longest_gap($from, $end, confirmations($dir, $_)) } qw(haproxy pgbouncer hosts) };
	$result{late} = $new == $old ? 0 : late_confirmations($dir, $ha->{new_leader_at} // $end);
	return \%result;
}

sub result_header
{
	return '| mode | fault | HAProxy: s without a grant | PgBouncer | all hosts | operations (unknown) | updates (lost) | violations | late confirmations | lost of what was held |';
}

sub result_line
{
	my ($r) = @_;

	return sprintf '| %s | %s | %.1f | %.1f | %.1f | %d (%d) | %d (%d) | %s | %d | %s |', @$r{qw(mode fault)}, @{ $r->{back} }{qw(haproxy pgbouncer hosts)},
	  @$r{qw(operations unknown updates updates_lost)}, $r->{violations} // '?', $r->{late}, join(', ', @{ $r->{lost} }) || '-';
}

1;
