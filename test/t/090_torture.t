# Clients record requests and replies on a primary with a standby, while a nemesis kills and stops processes, fills
# disks, sets clocks and promotes standbys; a checker judges the records. See test/torture/check.c for the rules.
#   TORTURE_SECONDS   approximate duration of the whole test; default 75; at least until each fault was injected once
#   TORTURE_CLIENTS   default 24
#   TORTURE_P99       maximum of the 99th percentile of hand-offs, in ms; default 500, because other tests run as well
#   TORTURE_KEEP      where the histories are copied to: an absolute path that the account "nobody" can write to
#   TORTURE_SEED      seed of clients and nemesis; their interleaving differs in each run nevertheless
# Promises: M, C, E, T, Q, R, W, D, L, F, H, G
# Needs: torture
use strict;
use warnings;
use Cwd;
use LeTest;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep clock_gettime CLOCK_MONOTONIC);

my $seconds = $ENV{TORTURE_SECONDS} // budget(75);
my $nclients = $ENV{TORTURE_CLIENTS} // 24;
my $seed = $ENV{TORTURE_SEED} // $$ + CORE::time;
my $begun = time;
srand $seed;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $disks = $ENV{LE_DISKS};
my $clock = "$dir/clock";
my $check = "$ENV{LE_RUN}/src/build/torture/check";
my (%client, %history, %fault, $conninfo, $nemesis);
my ($clients_started, $jumps, $floods) = (0, 0, 0);

# --- the history of the nemesis -------------------------------------------------------------------------------------

sub now { return sprintf '%.0f', clock_gettime(CLOCK_MONOTONIC) * 1e9; }

open $nemesis, '>', "$dir/nemesis.history" or die $!;
$nemesis->autoflush;

# Injects a fault, and records its start and end, and the clients that it affects. Without pids, it affects all clients.
sub fault
{
	my ($kind, $code, @pids) = @_;
	my $from = now();

	$code->();
	my $to = now();
	print $nemesis "N $from $to $kind $_\n" foreach @pids ? @pids : '';
	$fault{$kind}++;
	return;
}

# --- servers --------------------------------------------------------------------------------------------------------

my $conf = <<'CONF';
shared_buffers = 16MB
max_connections = 100
log_statement = none
log_replication_commands = off
log_min_messages = warning
max_wal_size = 32MB
wal_keep_size = 128MB
wal_retrieve_retry_interval = 200ms
autovacuum_naptime = 5s
CONF

# Moves the data to a disk of its own, the WAL to another, and the notification queue to a very small one.
sub move_data
{
	my ($node) = @_;
	my $name = $node->name;
	my $data = $node->data_dir;

	return unless $disks;
	unless (-l $data)
	{
		system_or_bail('rm', '-rf', "$disks/$name/data");
		system_or_bail('mv', $data, "$disks/$name/data");
		symlink "$disks/$name/data", $data or die $!;
	}
	unless (-l "$data/pg_wal")
	{
		system_or_bail('rm', '-rf', "$disks/wal-$name/pg_wal");
		system_or_bail('mv', "$data/pg_wal", "$disks/wal-$name/pg_wal");
		symlink "$disks/wal-$name/pg_wal", "$data/pg_wal" or die $!;
	}
	system_or_bail('rm', '-rf', "$data/pg_notify", glob "$disks/notify-$name/*");
	mkdir "$disks/notify-$name/queue", 0700;
	symlink "$disks/notify-$name/queue", "$data/pg_notify" or die $!;
	return;
}

# Sets the offset in seconds of the wall clock of all server processes, see test/lib/clock.c.
sub set_clock
{
	my ($offset) = @_;

	open(my $f, -e $clock ? '+<' : '>', $clock) or die $!;
	syswrite($f, pack('q', $offset)) == 8 or die $!;
	close $f;
	return;
}

# Only the wall clock of the server is changed.
sub start
{
	my ($node, %opts) = @_;
	local $ENV{LD_PRELOAD} = getcwd() . '/build/clock.so';
	local $ENV{LE_CLOCK} = $clock;

	return $node->start(%opts);
}

sub sql
{
	my ($node, $sql) = @_;
	my ($out, $err);

	$node->psql('postgres', $sql, stdout => \$out, stderr => \$err, timeout => 10, timed_out => \my $late);
	return $out;
}

# Waits until locks are granted again. Starts the server if it is down.
sub wait_ready
{
	my ($node) = @_;
	my $looked = time;

	wait_until(
		sub {
			return 1 if (sql($node, q{SELECT release_lock('ready', acquire_lock('ready', '1 s', '1 s'))}) // '') eq 't';
			if (time > $looked + 1)
			{
				$node->_update_pid(-1);
				start($node, fail_ok => 1) unless defined $node->{_pid};
				$looked = time;
			}
			return 0;
		}) or die 'the server does not come back';
	return;
}

sub add_standby
{
	my ($primary, $standby) = @_;

	my $backup = 'backup' . now();
	$primary->backup($backup, backup_options => [ '--checkpoint', 'fast' ]);
	system_or_bail('rm', '-rf', $standby->data_dir);
	$standby->init_from_backup($primary, $backup, has_streaming => 1);
	system_or_bail('rm', '-rf', $primary->backup_dir . "/$backup");
	move_data($standby);
	start($standby);
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

# --- clients --------------------------------------------------------------------------------------------------------

sub start_client
{
	my ($mode, $where) = @_;
	my $name = sprintf '%s%03d', substr($mode, 0, 1), ++$clients_started;
	my $pid = fork // die $!;

	if ($pid == 0)
	{
		open STDERR, '>>', "$dir/errors";
		exec "$ENV{LE_RUN}/src/build/torture/client", $mode, $name, $where // $dir, $seed + $clients_started, $conninfo
		  or POSIX::_exit(1);
	}
	$client{$pid} = $mode;
	$history{$pid} = ($where // $dir) . "/$name.history";
	return $pid;
}

# Returns the counter and its value if the last action of this client was to read it.
sub has_read
{
	my ($pid) = @_;

	open my $f, '<', $history{$pid} or return;
	seek $f, -512, 2;
	my @lines = grep { /\n\z/ } <$f>;
	close $f;
	my ($number, $name) = ($lines[-2] // '') =~ /^C \d+ (\d+) \d+ read (\w+)$/ or return;
	return $lines[-1] =~ /^A \d+ $number ok (\d+)$/ ? [ $name, $1 ] : undef;
}

# Stops a client between its read and its write, until another client has incremented the counter.
sub overtake
{
	my ($node, $mode) = @_;
	my @pids = grep { $client{$_} eq $mode } keys %client;
	my $pid;

	wait_until(sub { ($pid) = grep { has_read($_) } shuffled(@pids); return $pid; }, 20) or return;
	fault(
		'stop-client',
		sub {
			kill 'STOP', $pid;
			waitpid $pid, POSIX::WUNTRACED;
			my $read = has_read($pid);
			wait_until(sub { return (sql($node, "SELECT n > $read->[1] FROM counter WHERE name = '$read->[0]'") // '') eq 't'; }, 20)
			  if $read;
			kill 'CONT', $pid;
		},
		$pid);
	return;
}

# Returns the checker's summary of the updates without a fence, and the number of lost ones.
sub without_fence
{
	my ($out, $err);

	IPC::Run::run([ $check, '--unfenced', glob "$dir/unfenced/*.history" ], '>', \$out, '2>', \$err);
	return $out =~ /(updates: \d+, lost: (\d+))/ ? ($1, $2) : ($err, 0);
}

sub any_client
{
	my @pids = grep { $client{$_} eq 'mixed' } keys %client;
	return $pids[ rand @pids ];
}

# For a client that hangs: the last lines of its history, and the locks that the primary knows.
sub what_hangs
{
	my ($pid) = @_;
	my @lines = split /\n/, slurp_file($history{$pid});
	my ($out, $err);

	my @looks = map { ('-c', "SELECT * FROM $_") } qw(lock_election.locks lock_election.waiters), '_lock_election.slot WHERE mode <> 0 OR closed_until IS NOT NULL';
	IPC::Run::run([ 'psql', '-XAtd', $conninfo, @looks, '-c', 'SELECT clock_timestamp()' ], '>', \$out, '2>', \$err);
	return join "\n", @lines > 1 ? @lines[ -2, -1 ] : @lines, $out, $err;
}

sub end_clients
{
	my ($mode) = @_;
	my @pids = grep { !$mode || $client{$_} eq $mode } keys %client;
	my @failed;

	# In this order: SIGCONT would resume a client that is stopped by its own leak check at exit, and the check would
	# hang.
	kill $_, @pids foreach 'CONT', 'TERM';
	foreach my $pid (@pids)
	{
		wait_until(sub { waitpid($pid, POSIX::WNOHANG) == $pid }, 40) or die 'a client does not end: ' . what_hangs($pid);
		push @failed, $pid if $?;
		delete $client{$pid};
	}
	return is(@failed, 0, 'all ' . ($mode // 'other') . '  clients have exited normally');
}

# --- faults ---------------------------------------------------------------------------------------------------------

sub backends
{
	my ($node, $n) = @_;
	return split /\n/, sql($node, qq{SELECT pid FROM pg_stat_activity WHERE application_name = 'torture' ORDER BY random() LIMIT $n});
}

sub manager { return sql($_[0], 'SELECT pid FROM lock_election.manager') || 0; }

sub signal
{
	my ($signal, $pid) = @_;
	return $pid > 1 && kill $signal, $pid;
}

# Kills a process of the server, and waits until the postmaster has noticed.
sub kill_hard
{
	my ($pid) = @_;

	signal('KILL', $pid) or return;
	wait_until(sub { !kill 0, $pid });
	return;
}

sub stop_for
{
	my ($pid, $time) = @_;

	signal('STOP', $pid) or return;
	sleep $time;
	signal('CONT', $pid);
	return;
}

sub fill
{
	my ($disk) = @_;

	open my $f, '>', "$disk/full" or die $!;
	foreach my $size (65536, 4096)
	{
		1 while (syswrite($f, "\0" x $size) // 0) == $size;
	}
	close $f;
	return;
}

sub fill_for_a_while
{
	my ($node, $disk) = @_;

	fill($disk);
	sleep 1;
	unlink "$disk/full" or die $!;
	wait_ready($node);
	return;
}

# Fills the notification queue while a listener does not read.
sub fill_notifications
{
	my ($node) = @_;
	my $end = time + 1;
	my ($out, $err);

	eval {
		my $listener = session($node);

		$listener->query('LISTEN flood');
		$listener->query('BEGIN; SELECT 1');
		do
		{
			$node->psql('postgres', q{SELECT pg_notify('flood', repeat('x', 7900) || i) FROM generate_series(1, 40) i},
				stdout => \$out, stderr => \$err);
			$floods++ if $err =~ /could not write|No space left/;
		} while (time < $end);
		$listener->query('COMMIT');
		$listener->quit;
		1;
	} or diag "the listener was disturbed: $@";
	is(sql($node, q{NOTIFY flood; SELECT 1}), 1, 'notifications work again after the queue was full');
	return;
}

sub jump_clock
{
	my ($node) = @_;

	set_clock((rand() < 0.5 ? 1 : -1) * int(10000 + rand 90000));
	sleep 0.3;
	$jumps++ if abs((sql($node, 'SELECT extract(epoch FROM clock_timestamp())') || time) - time) > 5000;
	return;
}

my %faults = (
	'kill-backend' => sub { my $node = shift; my ($pid) = backends($node, 1); kill_hard($pid // 0); wait_ready($node) },
	'stop-backend' => sub { my ($pid) = backends($_[0], 1); stop_for($pid // 0, 0.5) },
	'cancel' => sub { sql($_[0], "SELECT pg_cancel_backend($_)") foreach backends($_[0], 4) },
	'terminate' => sub { signal('TERM', $_) foreach backends($_[0], 4); wait_ready($_[0]) },
	'kill-manager' => sub { kill_hard(manager($_[0])); wait_ready($_[0]) },
	'terminate-manager' => sub { signal('TERM', manager($_[0])); wait_ready($_[0]) },
	'stop-manager' => sub { stop_for(manager($_[0]), 1.5); wait_ready($_[0]) },
	'stop-server' => sub { $_[0]->stop('immediate', fail_ok => 1); start($_[0], fail_ok => 1); wait_ready($_[0]) },
	'jump-clock' => \&jump_clock,
	# Without space, tables cannot grow; a server that cannot write WAL shuts down.
	'fill-disk' => sub { my ($node) = @_; fill_for_a_while($node, "$disks/" . $node->name) },
	'fill-wal' => sub { my ($node) = @_; fill_for_a_while($node, "$disks/wal-" . $node->name) },
	'fill-notifications' => \&fill_notifications);
my @per_client = ('stop-client', 'kill-client');
delete @faults{ 'fill-disk', 'fill-wal', 'fill-notifications' } unless $disks;

sub one_fault
{
	my ($node, $kind) = @_;

	if ($kind eq 'stop-client')
	{
		my $pid = any_client();
		fault($kind, sub { stop_for($pid, 0.3 + rand 1) }, $pid);
	}
	elsif ($kind eq 'kill-client')
	{
		my $pid = any_client();
		fault($kind, sub { kill 'KILL', $pid; waitpid $pid, 0 }, $pid);
		delete $client{$pid};
		start_client('mixed');
	}
	else
	{
		fault($kind, sub { $faults{$kind}->($node) });
	}
	return;
}

sub shuffled { return map { $_->[0] } sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } @_; }

# Injects the given kinds, and then all kinds repeatedly until the time is over.
my @to_do;

sub torment
{
	my ($node, $until, @kinds) = @_;

	while (@kinds || time < $until)
	{
		@to_do = shuffled(keys %faults, @per_client, @per_client) unless @to_do;
		one_fault($node, @kinds ? shift @kinds : shift @to_do);
		# Between faults, the clients run undisturbed for a while.
		sleep(rand() < 0.4 ? 1.5 + rand : 0.2);
	}
	return;
}

# Promotes the standby. rewind() or add_standby() then makes the old primary its standby.
sub fail_over
{
	my ($old, $new, $sync) = @_;

	fault(
		$sync ? 'promote-sync' : 'promote-async',
		sub {
			# Everything that is acknowledged from here on is lost, unless the primary waits for the standby.
			my $from = now();
			my $sender = sql($old, q{SELECT pid FROM pg_stat_replication}) || 0;
			signal('STOP', $sender);
			sleep 0.6;
			# The stopped sender ends before it can send anything more.
			signal('QUIT', $old->{_pid});
			sleep 0.1;
			signal('CONT', $sender);
			wait_until(sub { !-e $old->data_dir . '/postmaster.pid' });
			$old->_update_pid(0);
			print $nemesis "N $from ", now(), " lose-tail\n" unless $sync;
			$new->append_conf('postgresql.conf', "synchronous_standby_names = ''");
			$new->promote;
			wait_ready($new);
		});
	return;
}

sub rewind
{
	my ($old, $new) = @_;
	my $data = $old->data_dir;

	$new->safe_psql('postgres', 'CHECKPOINT');
	my $port = $old->port;
	system_log('cp', "$data/postgresql.conf", "$dir/saved.conf");
	if (-l "$data/pg_notify")
	{
		unlink "$data/pg_notify" or die $!;
		mkdir "$data/pg_notify", 0700;
	}
	my $done = system_log('pg_rewind', '--target-pgdata', $data, '--source-server', $new->connstr('postgres')) == 0;
	return 0 unless $done;
	system_or_bail('cp', "$dir/saved.conf", "$data/postgresql.conf");
	$old->append_conf('postgresql.conf', "synchronous_standby_names = ''");
	$old->enable_streaming($new);
	move_data($old);
	start($old);
	return 1;
}

# --- the run --------------------------------------------------------------------------------------------------------

diag "seed $seed";
diag 'no small disks here: not done: fill-disk, fill-wal, fill-notifications' unless $disks;
system_or_bail('make', '-s', 'build/clock.so');
set_clock(0);
my $a = new_node('a', init => [ allows_streaming => 1, extra => ['--wal-segsize=1'] ], conf => $conf, start => 0);
move_data($a);
start($a);
sql($a, q{CREATE EXTENSION lock_election; CREATE TABLE counter (name text PRIMARY KEY, n bigint, token bigint);
	INSERT INTO counter SELECT unnest('{c0,c1,u0}'::text[]), 0, 0});
my $b = PostgreSQL::Test::Cluster->new('b');
add_standby($a, $b);
wait_for_standby($a, 1);
$conninfo = sprintf q{host='%s,%s' port='%s,%s' target_session_attrs=read-write dbname=postgres application_name=torture connect_timeout=3},
  $a->host, $b->host, $a->port, $b->port;

# Clients are stopped for longer than their TTL, some of them between read and write, until enough updates without a
# fence are lost: the fence must have something to prevent.
mkdir "$dir/unfenced";
my @counting = ((map { start_client('counter') } 1 .. 4), map { start_client('unfenced', "$dir/unfenced") } 1 .. 4);
for (1 .. 6)
{
	sleep 0.2;
	my @stopped = (shuffled(@counting))[ 0 .. 5 ];
	fault('stop-client', sub { kill 'STOP', @stopped; sleep 0.7; kill 'CONT', @stopped }, @stopped);
}
my $enough = 3;
my $limit = time + 60;
while ((without_fence())[1] < $enough && time < $limit)
{
	overtake($a, $_) foreach 'counter', 'unfenced';
}
end_clients('unfenced');

start_client('mixed') for 1 .. $nclients;
start_client('administered') for 1 .. 6;
my $left = $seconds - (time - $begun) - 14;
torment($a, time + $left * 0.45, shuffled(keys %faults, @per_client));
end_clients('counter');
wait_for_standby($a, 1);
fail_over($a, $b, 1);
torment($b, time + 2, 'kill-client');
fault('old-primary-back', sub { ok(rewind($a, $b), 'pg_rewind') or add_standby($b, $a); wait_for_standby($b, 0) });
torment($b, time + $left * 0.2, 'terminate-manager');
fail_over($b, $a, 0);
fault('old-primary-back', sub { add_standby($a, $b); wait_for_standby($a, 0) });
torment($a, $begun + $seconds - 14, 'stop-client');

# --- the end --------------------------------------------------------------------------------------------------------

end_clients();
my %left = (
	(map { $_ => "SELECT count(*) FROM lock_election.$_" } qw(locks waiters leases elections)),
	(map { $_ => "SELECT count(*) FROM _lock_election.$_" } qw(slot queue lease)),
	fences => q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'});
my $counts = 'SELECT ' . join ' || $$ $$ || ', map { "($left{$_})" } sort keys %left;
wait_until(sub { (sql($a, $counts) // '') !~ /[1-9]/ });
my @counts = split / /, sql($a, $counts);
print $nemesis 'G ', now(), " $_ ", shift @counts, "\n" foreach sort keys %left;
close $nemesis;

my ($out, $err);
IPC::Run::run([ $check, '--p99', $ENV{TORTURE_P99} // 500, glob "$dir/*.history" ], '>', \$out, '2>', \$err);
my $failed = $?;
diag $out, $err;
ok(!$failed, 'the checker finds no violation');
like($out, qr/updates: [1-9]\d*, lost: 0$/m, 'no fenced update is lost');
# Ignores messages of libpq about connections that end while they are established.
my $complaints = -e "$dir/errors" ? slurp_file("$dir/errors") : '';
unlike($complaints, qr/Sanitizer|runtime error|history/, 'no client reports an error');
my %expected = map { $_ => 1 } keys %faults, @per_client, 'promote-sync', 'promote-async', 'old-primary-back';
ok($fault{$_}, "fault was injected: $_") foreach sort keys %expected;

cmp_ok($floods, '>', 0, 'the notification queue was full') if $disks;
cmp_ok($jumps, '>', 0, 'the server has seen a changed clock');

my ($control, $lost) = without_fence();
diag "without a fence: $control";
cmp_ok($lost, '>=', $enough, 'updates without a fence are lost');
is(system_log('cp', '-r', $dir, $ENV{TORTURE_KEEP}), 0, 'the histories are copied') if $ENV{TORTURE_KEEP};

$_->stop('immediate', fail_ok => 1) foreach $a, $b;
done_testing();
