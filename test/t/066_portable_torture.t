# The portable edition under faults: the clients of the torture test record requests and replies, while clients,
# backends and servers are killed and stopped, and standbys promoted. The checker judges the records, see
# test/torture/check.c. 090_torture.t does this with the C edition.
#   TORTURE_SECONDS   approximate duration of the faults; default 60, or a fifth of it; every fault happens once
#   TORTURE_CLIENTS   default 12
#   TORTURE_KEEP      where the histories are copied to: an absolute path that the account "nobody" can write to
#   TORTURE_SEED      seed of clients and nemesis; their interleaving differs in each run nevertheless
# Promises: M, C, E, T, Q, R, W, D, F, H, G
# Needs: torture
use strict;
use warnings;
use LeTest;
use List::Util qw(shuffle);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep clock_gettime CLOCK_MONOTONIC);

my $seconds = $ENV{TORTURE_SECONDS} // budget(60);
my $nclients = $ENV{TORTURE_CLIENTS} // 12;
my $seed = $ENV{TORTURE_SEED} // $$ + CORE::time;
my $dir = PostgreSQL::Test::Utils::tempdir();
my $programs = "$ENV{LE_RUN}/src/build/torture";
my (%client, %done, $conninfo);
my $started = 0;

srand $seed;
diag "seed $seed";

# --- the history of the nemesis -------------------------------------------------------------------------------------

sub now { return sprintf '%.0f', clock_gettime(CLOCK_MONOTONIC) * 1e9; }

open my $nemesis, '>', "$dir/nemesis.history" or die $!;
$nemesis->autoflush;

# Injects a fault, and records its start and end, and the client that it affects. Without a pid, it affects all clients.
sub fault
{
	my ($kind, $code, $pid) = @_;
	my $from = now();

	$code->();
	print $nemesis "N $from ", now(), " $kind ", $pid // '', "\n";
	$done{$kind}++;
	return;
}

# --- servers --------------------------------------------------------------------------------------------------------

my $conf = <<'CONF';
fsync = on
log_statement = none
log_min_messages = warning
log_replication_commands = off
wal_keep_size = 128MB
wal_retrieve_retry_interval = 200ms
CONF

sub sql
{
	my ($node, $sql) = @_;
	my ($out, $err);

	$node->psql('postgres', $sql, stdout => \$out, stderr => \$err, timeout => 10, timed_out => \my $late);
	return $out // '';
}

# Waits until locks are granted again.
sub wait_ready
{
	my ($node) = @_;

	wait_until(sub { return sql($node, q{SELECT release_lock('ready', acquire_lock('ready', '1 s', '1 s'))}) eq 't'; })
	  or die 'the server does not come back';
	return;
}

# Switches synchronous replication on or off, and waits until the standby streams. With a synchronous standby, it has
# everything that was acknowledged.
sub wait_for_standby
{
	my ($primary, $sync) = @_;

	$primary->append_conf('postgresql.conf', "synchronous_standby_names = '" . ($sync ? '*' : '') . "'");
	$primary->reload;
	wait_for_sql($primary, q{SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '} . ($sync ? 'sync' : 'async') . q{'}, 1);
	return;
}

sub add_standby
{
	my ($primary, $standby) = @_;
	my $backup = 'backup' . now();

	$primary->backup($backup, backup_options => [ '--checkpoint', 'fast' ]);
	system_or_bail('rm', '-rf', $standby->data_dir);
	$standby->init_from_backup($primary, $backup, has_streaming => 1);
	$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$standby->start;
	return;
}

# Promotes the standby. It does not receive the last records that the primary has confirmed, unless the primary waits
# for it.
sub fail_over
{
	my ($old, $new, $sync) = @_;

	fault(
		$sync ? 'promote-sync' : 'promote-async',
		sub {
			my $from = now();
			my $sender = sql($old, q{SELECT pid FROM pg_stat_replication}) || die 'nothing is replicated';

			kill 'STOP', $sender;
			sleep 0.6;
			# The postmaster ends all its processes at once; the stopped one ends before it can send anything more.
			kill 'QUIT', $old->{_pid};
			sleep 0.1;
			kill 'CONT', $sender;
			wait_until(sub { !-e $old->data_dir . '/postmaster.pid' });
			$old->_update_pid(0);
			print $nemesis "N $from ", now(), " lose-tail\n" unless $sync;
			$new->promote;
			wait_ready($new);
		});
	return;
}

# --- clients --------------------------------------------------------------------------------------------------------

sub start_client
{
	my ($mode) = @_;
	my $name = sprintf '%s%03d', substr($mode, 0, 1), ++$started;
	my $pid = fork // die $!;

	if ($pid == 0)
	{
		open STDERR, '>>', "$dir/errors";
		exec "$programs/client", $mode, $name, $dir, $seed + $started, $conninfo or POSIX::_exit(1);
	}
	$client{$pid} = $mode;
	return;
}

sub any_client { return (shuffle(sort keys %client))[0]; }

sub end_clients
{
	my $failed = 0;

	# In this order: SIGCONT would resume a client that is stopped by its own leak check at exit, and the check would
	# hang.
	kill $_, keys %client foreach 'CONT', 'TERM';
	foreach my $pid (sort keys %client)
	{
		wait_until(sub { waitpid($pid, POSIX::WNOHANG) == $pid }, 40) or die "a client does not end: $client{$pid}";
		$failed++ if $?;
	}
	%client = ();
	return is($failed, 0, 'all clients have exited normally');
}

# --- faults ---------------------------------------------------------------------------------------------------------

sub backends
{
	my ($node, $n) = @_;
	return split /\n/, sql($node, qq{SELECT pid FROM pg_stat_activity WHERE application_name = 'torture' ORDER BY random() LIMIT $n});
}

sub stop_for
{
	my ($pid, $time) = @_;

	kill 'STOP', $pid;
	sleep $time;
	kill 'CONT', $pid;
	return;
}

my %faults = (
	# The server then terminates all its processes, and recovers as after a crash.
	'kill-backend' => sub { my ($node) = @_; kill 'KILL', backends($node, 1); sleep 0.1; wait_ready($node) },
	'stop-server' => sub { my ($node) = @_; $node->stop('immediate'); $node->start; wait_ready($node) },
	# Stopped within a critical section, or during a renewal.
	'stop-backend' => sub { my ($pid) = backends($_[0], 1) or return; stop_for($pid, 0.5) },
	'cancel' => sub { sql($_[0], "SELECT pg_cancel_backend($_)") foreach backends($_[0], 4) },
	'terminate' => sub { sql($_[0], "SELECT pg_terminate_backend($_)") foreach backends($_[0], 4) });
my %of_client = (
	'stop-client' => sub { stop_for($_[0], 0.3 + rand 1) },
	'kill-client' => sub { my ($pid) = @_; kill 'KILL', $pid; waitpid $pid, 0; start_client(delete $client{$pid}) });

# Injects these faults, and then random ones until the time is over.
sub torment
{
	my ($node, $time, @to_do) = @_;
	my $until = time + $time;

	@to_do = shuffle(@to_do);
	while (@to_do || time < $until)
	{
		my $kind = shift @to_do // (shuffle(sort keys %faults, keys %of_client))[0];
		my $pid = any_client();

		if ($of_client{$kind}) { fault($kind, sub { $of_client{$kind}->($pid) }, $pid); }
		else { fault($kind, sub { $faults{$kind}->($node) }); }
		# Between faults, the clients run undisturbed for a while.
		sleep(rand() < 0.4 ? 1 + rand : 0.2);
	}
	return;
}

# --- the run --------------------------------------------------------------------------------------------------------

my $a = new_node('a', portable => 1, init => [ allows_streaming => 1 ], conf => $conf);
sql($a, q{CREATE ROLE app LOGIN; CREATE TABLE counter (name text PRIMARY KEY, n bigint, token bigint);
	INSERT INTO counter SELECT unnest('{c0,c1,u0}'::text[]), 0, 0; GRANT ALL ON counter TO app});
my $b = PostgreSQL::Test::Cluster->new('b');
add_standby($a, $b);
$conninfo = sprintf q{host='%s,%s' port='%s,%s' target_session_attrs=read-write dbname=postgres user=app application_name=torture connect_timeout=3},
  $a->host, $b->host, $a->port, $b->port;

start_client('lasting') for 1 .. $nclients / 2;
start_client('administered') for 1 .. $nclients / 4;
start_client('counter') for 1 .. $nclients / 4;
torment($a, $seconds * 0.5, sort keys %faults, keys %of_client);
wait_for_standby($a, 1);
sleep 1;
fail_over($a, $b, 1);
torment($b, $seconds * 0.25, 'kill-backend', 'kill-client');
add_standby($b, $a);
wait_for_standby($b, 0);
sleep 1;
fail_over($b, $a, 0);
torment($a, $seconds * 0.25, 'stop-server');

# --- the end --------------------------------------------------------------------------------------------------------

end_clients();

# Leases expire without further calls.
my %left = (
	(map { $_ => "SELECT count(*) FROM lock_election.$_" } qw(locks waiters leases elections)),
	(map { $_ => "SELECT count(*) FROM _lock_election.$_" } qw(hold place lease asked)));
my $counts = 'SELECT lock_election.reap() * 0 || ' . join ' || ', map { "\$\$ \$\$ || ($left{$_})" } sort keys %left;
wait_until(sub { sql($a, $counts) !~ /[1-9]/ }, undef, 0.5);
my (undef, @counts) = split / /, sql($a, $counts);
print $nemesis 'G ', now(), " $_ ", shift @counts, "\n" foreach sort keys %left;
close $nemesis;

# A waiting call checks the lock again within a tenth of a second, if the machine is fast enough.
my ($out, $err);
IPC::Run::run([ "$programs/check", '--slack', 2000, '--p99', 1000, glob "$dir/*.history" ], '>', \$out, '2>', \$err);
my $violated = $?;
is(system_log('cp', '-r', $dir, $ENV{TORTURE_KEEP}), 0, 'the histories are copied') if $ENV{TORTURE_KEEP};
diag $out, $err if $violated;
note $out;
ok(!$violated, 'the checker finds no violation');
like($out, qr/checked:.* $_ [1-9]/, "checked rule $_") foreach qw(M C E T Q R D F H G);
like($out, qr/updates: [1-9]\d*, lost: 0$/m, 'no fenced update is lost');
my $complaints = -e "$dir/errors" ? slurp_file("$dir/errors") : '';
unlike($complaints, qr/Sanitizer|runtime error|history/, 'no client reports an error');
ok($done{$_}, "fault was injected: $_") foreach sort keys %faults, keys %of_client, 'promote-sync', 'promote-async';
$_->stop('immediate', fail_ok => 1) foreach $a, $b;
done_testing();
