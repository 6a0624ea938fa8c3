# For the tests of fault points: clients that survive errors, ended connections and crashes of the server, and a
# workload that can be repeated while a fault occurs in the middle of it.
#
#   LeFaults::points()            all points: name => whether it can fail
#   my $w = LeFaults->new($node); $w->keep;
#     $w->run($point, $action)    sets the fault, runs the workload, checks; returns the violations, or ''
#   LeFaults::every_action(qr/^batch/)     all of that, as tests
#
# Guarantees checked: a lock has one holder (M), according to the clients; tokens of a lock grow, even after a crash
# (T); waiters are granted in order, and none is forgotten (Q, W); acknowledged changes are kept (D); and nothing is
# left behind (G). A call without a reply may have taken effect only if the server itself went down.

package LeFaults;

use strict;
use warnings;

use IO::Select ();
use LeTest ();
use LeWire ();
use PostgreSQL::Test::Utils ();
use Test::More ();
use Time::HiRes qw(time sleep);

# seconds after which a missing reply is an error
use constant PATIENCE => 40;
use constant TRIES => 6;

sub new
{
	my ($class, $node) = @_;
	my $self = bless { node => $node, highest => {}, held => {}, unknown => {}, wrong => [], crashes => 0 }, $class;

	$SIG{PIPE} = 'IGNORE';
	$self->{clients} = [ map { LeFaults::Client->new($self) } 1 .. 4 ];
	$self->{control} = LeFaults::Client->new($self);
	$self->{medic} = LeFaults::Client->new($self, calm => 1);
	return $self;
}

# Returns all fault points of the sources.
sub points
{
	my %points;

	foreach my $file (glob 'src/server/*.c src/server/*/*.c')
	{
		my $text = PostgreSQL::Test::Utils::slurp_file($file);
		$points{$2} = $1 eq '' while $text =~ /LE_FAULT(|_NOFAIL)\("([a-z-]+)"\)/g;
	}
	# These points are reached only by DROP EXTENSION, a session whose mailbox is still in use, a deadlock, a holder of
	# a lock that all need, very many names, and an outage: see 053_deadlock_races.t, 093_faults_races.t,
	# 099_faults_release_on_its_way.t and 017_no_transaction_ids.t
	delete @points{qw(extension-gone attach-refused deadlock-step fence-pids-locked segment-attached outage-looked)};
	return %points;
}

# Tests each point whose name matches, with each action that makes sense there. The kill comes last: it also makes the
# launcher forget how often it had to restart a manager, which would delay the next start.
sub every_action
{
	my ($pattern) = @_;
	my $w = LeFaults->new(LeTest::new_node('main', faults => 1, conf => "autovacuum = off\n"));
	my %points = points();
	my $n = 0;

	$w->keep;
	foreach my $point (grep { $_ =~ $pattern } sort keys %points)
	{
		my @actions = qw(release terminate);

		push @actions, 'error' if $points{$point};
		push @actions, 'fatal' if $points{$point} && $point !~ /^store/;
		push @actions, 'cancel' if $point =~ /^(?:attach|request|durable|fence|xact|subxact|release|session)/;
		foreach my $action (@actions, 'kill')
		{
			my $start = time;

			Test::More::is($w->run($point, $action), '', sprintf '%s at %s (%.0f ms)', $action, $point, (time - $start) * 1000);
			$n++;
		}
	}
	Test::More::note("$n combinations of a point and an action");
	$w->{node}->stop;
	return;
}

sub wrong { my ($self, $what) = @_; push @{ $self->{wrong} }, $what; return; }

sub control { my ($self, $sql) = @_; return $self->{control}->must($sql); }

# Runs SQL that never waits for a manager.
sub fault { my ($self, $sql) = @_; return $self->{medic}->must($sql); }

# --- entries that must survive each fault ---

sub keep
{
	my ($self) = @_;
	my $c = $self->{clients}[0];
	my %kept;

	$kept{lock} = $c->must(q{SELECT acquire_lock('kept', '1 h')});
	$kept{place} = $c->must(q{SELECT token FROM enqueue_lock('kept', '1 h')});
	$kept{term} = $c->must(q{SELECT campaign('kept', 'me', '1 h')});
	$kept{lease} = $c->must(q{SELECT grant_lease('1 h')});
	$kept{permit} = $c->must(qq{SELECT acquire_permit('kept permit', 2, NULL, lease => $kept{lease})});
	$self->{kept} = \%kept;
	return;
}

sub check_kept
{
	my ($self) = @_;
	my $k = $self->{kept} or return;
	my $is = $self->control(qq{SELECT concat_ws(' ', is_held('kept', $k->{lock}), await_lock('kept', $k->{place}),
		is_leader('kept', $k->{term}), keep_alive($k->{lease}) > '59 min', is_held('kept permit', $k->{permit}))});

	$self->wrong("a kept entry is lost: $is") if $is ne 't f t t t';
	return;
}

# --- the model: what the clients know ---

sub granted
{
	my ($self, $name, $token, $again) = @_;

	if (!$again)
	{
		$self->wrong("$name: granted to $token while $self->{held}{$name} holds it") if $self->{held}{$name};
		$self->wrong("$name: token $token after $self->{highest}{$name}") if $token <= ($self->{highest}{$name} // 0);
	}
	$self->{highest}{$name} = $token;
	$self->{held}{$name} = $token;
	return $token;
}

# Repeats an acquire until it is granted. After a call without a reply, the lock is not held, unless the server crashed.
sub acquire
{
	my ($self, $client, $name, $sql) = @_;

	foreach (1 .. TRIES)
	{
		my $token = $client->ask($sql);

		return $self->granted($name, $token) if defined $token && $token =~ /^\d+$/;
		$self->wrong("$name: not granted: $sql") if defined $token;
		$self->free_unknown($name) if $client->{crashed};
	}
	$self->wrong("$name: no answer: $sql: $client->{error}");
	return 0;
}

# Frees a lock whose state is unknown, unless it is held: it may have been granted to another client that waits for it.
sub free_unknown
{
	my ($self, $name) = @_;

	$self->control("SELECT force_release_lock('$name'), force_resign('$name')") unless $self->{held}{$name};
	return;
}

# Ends a hold. A client that got no reply repeats the call, which may then return that nothing is held.
sub release
{
	my ($self, $client, $name, $sql) = @_;
	my $again = 0;

	my $token = delete $self->{held}{$name};
	foreach (1 .. TRIES)
	{
		my $answer = $client->ask($sql);

		if (defined $answer)
		{
			$self->wrong("$name: $token was lost: $sql") if $answer ne 't' && !$again;
			return;
		}
		$again = 1;
	}
	$self->wrong("$name: no answer: $sql: $client->{error}");
	return;
}

# Runs a statement that changes nothing, or can be repeated.
sub expect
{
	my ($self, $client, $sql, $pattern) = @_;
	my $answer;

	foreach (1 .. TRIES)
	{
		$answer = $client->ask($sql);
		next unless defined $answer;
		$self->wrong("$sql: $answer") unless $answer =~ $pattern;
		return $answer;
	}
	$self->wrong("no answer: $sql: $client->{error}");
	return '';
}

# --- the workload ---

# One holder, two waiters, and the lock handed to each of them, the first time by a commit.
sub queue_of_waiters
{
	my ($self) = @_;
	my ($a, $b, $c) = @{ $self->{clients} };
	my $sql = q{SELECT acquire_lock('hot', '1 h', wait => '20 s')};

	my $token = $self->acquire($a, 'hot', $sql);
	$self->wait_in_queue($b, 'hot', $sql);
	$self->wait_in_queue($c, 'hot', $sql);
	# The first renewal after a crash writes. If its flush takes more than half a second, it returns less than the TTL.
	$self->expect($a, "SELECT renew_lock('hot', $token)", qr/^(?:01:00:00|00:59:[45]\d(?:\.\d+)?)$/);
	$self->transaction($a, $token);
	# A waiter may get an error after it was enqueued, with the other waiter behind it. The other one is then next, and
	# holds the lock before its reply is read. So a client that must wait again does so last.
	my @again;
	foreach my $next ($b, $c)
	{
		my $token = $next->finish;

		if (!defined $token)
		{
			push @again, $next;
			next;
		}
		$self->granted('hot', $token);
		$self->release($next, 'hot', "SELECT release_lock('hot', $token)");
	}
	$self->free_unknown('hot') if grep { $_->{crashed} } @again;
	foreach my $next (@again)
	{
		my $token = $self->acquire($next, 'hot', $sql);
		$self->release($next, 'hot', "SELECT release_lock('hot', $token)");
	}
	return;
}

# Starts a wait, again if it fails, and returns when it is enqueued.
sub wait_in_queue
{
	my ($self, $client, $name, $sql) = @_;
	my $end = time + PATIENCE;

	$client->start($sql);
	while (time < $end)
	{
		my $pid = $client->{pid};

		$self->meddle;
		if ($client->ready)
		{
			my $answer = $client->finish;
			$self->wrong("$name: $answer without waiting") if defined $answer;
			$client->start($sql);
		}
		elsif ($self->control("SELECT count(*) FROM lock_election.waiters WHERE name = '$name' AND pid = $pid") eq '1')
		{
			return;
		}
		sleep 0.001;
	}
	die "$name: the client does not wait: $client->{error}\n";
}

# Two acquires, one of which is rolled back, a fence, and a release that takes effect at the commit.
sub transaction
{
	my ($self, $client, $token) = @_;
	my @steps = (
		'BEGIN', q{SELECT acquire_lock('in', '1 h', wait => '10 s')},
		'SAVEPOINT s', q{SELECT acquire_lock('sub', '1 h', wait => '10 s')},
		'ROLLBACK TO s', "SELECT fence_lock('hot', $token)", "SELECT release_lock('hot', $token)", 'COMMIT');

	foreach (1 .. TRIES)
	{
		my $inside = '';
		my $done = 1;

		foreach my $sql (@steps)
		{
			delete $self->{held}{hot} if $sql eq 'COMMIT';
			my $answer = $client->ask($sql);
			if (!defined $answer)
			{
				$done = 0;
				last;
			}
			$inside = $answer if $sql =~ /'in'/;
			$self->wrong("hot was lost: $sql") if $sql =~ /release/ && $answer ne 't';
		}
		# After a crash, a lock stays held until the end of its TTL, because it is unknown whether it was committed.
		my $crashed = $client->{crashed};
		$client->ask('ROLLBACK') unless $done;
		$self->free_unknown($_) foreach $crashed ? qw(in sub) : ();
		my $held = $self->expect($client, "SELECT is_held('hot', $token)", qr/^[tf]$/);
		if ($done)
		{
			$self->wrong('the commit has not released') if $held eq 't';
			$self->granted('in', $inside);
			return $self->release($client, 'in', "SELECT release_lock('in', $inside)");
		}
		# The commit got no reply: it may or may not have taken effect.
		if ($held eq 'f')
		{
			$self->control("SELECT force_release_lock('in')");
			return;
		}
		$self->{held}{hot} = $token;
	}
	$self->wrong("no end of the transaction: $client->{error}");
	return;
}

# Places, elections, groups, permits, leases and bound locks.
sub others
{
	my ($self) = @_;
	my ($a, $b, $c, $d) = @{ $self->{clients} };

	my $token = $self->acquire($a, 'place', q{SELECT token FROM enqueue_lock('place', '1 h')});
	my $next = $self->expect($b, q{SELECT token FROM enqueue_lock('place', '1 h', owner => 'b')}, qr/^\d+$/);
	$self->release($a, 'place', "SELECT release_lock('place', $token)");
	$self->expect($b, "SELECT await_lock('place', $next, '10 s')", qr/^t$/);
	$self->granted('place', $next);
	$self->release($b, 'place', "SELECT release_lock('place', $next, all_holds => true)");

	my $term = $self->acquire($c, 'leader', q{SELECT campaign('leader', 'c', '1 h', wait => '10 s')});
	my $sql = q{SELECT campaign('leader', 'd', '1 h', wait => '20 s')};
	$self->wait_in_queue($d, 'leader', $sql);
	$self->expect($c, "SELECT proclaim('leader', $term, 'cc')", qr/^t$/);
	$self->release($c, 'leader', "SELECT resign('leader', $term)");
	$term = $d->finish;
	$self->free_unknown('leader') if !defined $term && $d->{crashed};
	$term = defined $term ? $self->granted('leader', $term) : $self->acquire($d, 'leader', $sql);
	$self->expect($a, q{SELECT term FROM current_leader('leader')}, qr/^$term$/);
	$self->release($d, 'leader', "SELECT resign('leader', $term)");

	$token = $self->acquire($a, 'one', q{SELECT acquire_locks('{one,two}', '1 h', wait => '10 s')});
	$self->release($a, 'one', "SELECT release_locks('{one,two}', $token)");
	$self->control(q{SELECT force_release_lock('two')}) if $a->{crashed};

	# A bound lock ends with its connection.
	$self->acquire($b, 'bound', q{SELECT acquire_lock('bound', NULL, wait => '10 s')});
	$b->leave;
	delete $self->{held}{bound};
	my $lease = $self->expect($b, q{SELECT grant_lease('1 h')}, qr/^\d+$/);
	$token = $self->acquire($b, 'bound', "SELECT acquire_lock('bound', NULL, lease => $lease, wait => '10 s')");
	$self->release($b, 'bound', "SELECT revoke_lease($lease)");
	return;
}

sub ttl
{
	my ($self) = @_;
	my (undef, undef, $c, $d) = @{ $self->{clients} };
	my $token = $self->acquire($c, 'short', q{SELECT acquire_lock('short', '100 ms', wait => '10 s')});
	delete $self->{held}{short};
	$token = $self->acquire($d, 'short', q{SELECT acquire_lock('short', '1 h', wait => '10 s')});
	$self->release($d, 'short', "SELECT release_lock('short', $token)");
	return;
}

# Replaces the manager; creates and drops a database.
sub processes
{
	my ($self) = @_;

	if ($self->{restart})
	{
		my $pid = $self->control(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'lock_election manager'
			AND datname = 'postgres'});
		kill 'TERM', $pid if $pid;
	}
	return unless $self->{database};
	my ($client) = @{ $self->{clients} };
	foreach my $step (1, 2)
	{
		foreach (1 .. TRIES)
		{
			my $there = $self->control(q{SELECT count(*) FROM pg_database WHERE datname = 'passing'});
			last if $there == ($step == 1);
			# The launcher probes the new database some time later.
			$self->until_hit if $step == 2 && $self->{fault}{point} && $self->{fault}{point} eq 'launcher-probe';
			$client->ask($step == 1 ? 'CREATE DATABASE passing STRATEGY wal_log' : 'DROP DATABASE passing');
		}
	}
	my $there = $self->control(q{SELECT count(*) FROM pg_database WHERE datname = 'passing'});
	$self->wrong("DROP DATABASE fails: $client->{error}") if $there;
	return;
}

# --- a run ---

# Applies the action to the process that waits at the point.
sub meddle
{
	my ($self) = @_;
	my $f = $self->{fault} or return;
	my $do = $f->{then} or return;
	my $pid = $self->fault("SELECT fault_waiting('$f->{point}')");

	return if $pid eq '0';
	$self->fault(
		$do eq 'release' ? "SELECT fault_release('$f->{point}')"
		: $do eq 'terminate' ? "SELECT pg_terminate_backend($pid)"
		: "SELECT pg_cancel_backend($pid)");
	$f->{then} = 'release';
	return;
}

sub lines_of_log
{
	my ($self) = @_;
	return scalar(() = PostgreSQL::Test::Utils::slurp_file($self->{node}->logfile) =~ /was terminated by signal/g);
}

# Actions: error, fatal, kill; release, terminate or cancel a process that waits at the point.
sub run
{
	my ($self, $point, $action) = @_;
	my $crashes = $self->{lines} //= $self->lines_of_log;

	$self->{wrong} = [];
	$self->{restart} = $point =~ /^(?:manager|load|finish|launcher|history)-/;
	$self->{database} = $point =~ /^(?:reserve|launcher-probe)/;
	my $wait = $action =~ /^(?:release|terminate|cancel)$/;
	$self->{fault} = { point => $point, then => $wait ? $action : undef, kill => $action eq 'kill' };
	$self->fault(sprintf q{SELECT fault_set('%s', '%s', ms => 30)}, $point, $wait ? 'wait' : $action);
	my $fail = "SELECT fault_set('batch-written', 'error')";
	$self->fault($fail) if $point =~ /^re(?:load|play)/;

	my $ok = eval {
		$self->queue_of_waiters;
		$self->processes;
		$self->others;

		# The failed batch may have contained no requests; then there is nothing to replay.
		foreach (1 .. TRIES)
		{
			last if $point ne 'replay';
			last if $action eq 'kill' ? $self->lines_of_log > $crashes : $self->fault(q{SELECT fault_hits('replay')}) ne '0';
			$self->fault($fail);
			$self->others;
		}
		$self->ttl if $point =~ /^(?:batch|store|manager|replay)/;
		$self->until_hit;
		1;
	};
	my $error = $@;
	my $hits = $self->fault("SELECT fault_hits('$point')");
	delete $self->{fault};
	$self->fault('SELECT fault_clear()');
	if (!$ok)
	{
		$self->wrong($error);
		$_->leave foreach @{ $self->{clients} };
	}
	$self->{lines} = $self->lines_of_log;
	my $died = $self->{lines} - $crashes;
	$self->wrong('the server has crashed') if $died && $action ne 'kill';
	$self->wrong('the point was not reached') unless $action eq 'kill' ? $died : $hits;
	$self->check_kept;
	$self->check_empty($died || !$ok);
	return join '; ', @{ $self->{wrong} };
}

sub until_hit
{
	my ($self) = @_;
	my $end = time + PATIENCE;
	my $hit = "SELECT fault_hits('$self->{fault}{point}')";

	# The launcher restarts a notifier after a second. A hit is counted some time before its crash is logged.
	while ($self->lines_of_log == $self->{lines} && time < $end)
	{
		last if !$self->{fault}{kill} && $self->fault($hit) ne '0';
		sleep 0.01;
	}
	$self->meddle;
	return;
}

sub check_empty
{
	my ($self, $crashed) = @_;
	my $sql = q{SELECT string_agg(kind || ' ' || name, ', ') FROM (SELECT kind, name FROM lock_election.locks UNION ALL
		SELECT 'waiter', name FROM lock_election.waiters UNION ALL SELECT 'lease', lease::text FROM lock_election.leases
		WHERE lease <> } . $self->{kept}{lease} . q{) x WHERE name NOT LIKE 'kept%'};
	my $end = time + 20;
	my $left;

	# The outcome is unknown, and the TTL is long.
	if ($crashed)
	{
		$self->control(q{SELECT force_release_lock(name), force_resign(name) FROM lock_election.locks WHERE name NOT LIKE 'kept%'});
		$self->control(q{SELECT revoke_lease(lease) FROM lock_election.leases WHERE lease <> } . $self->{kept}{lease});
	}
	until (($left = $self->control($sql)) eq '')
	{
		last if time > $end;
		sleep 0.01;
	}
	$self->wrong("left over: $left") if $left ne '';
	$self->{held} = {};
	return;
}

# A connection that is restored after it has ended.
package LeFaults::Client;

use strict;
use warnings;

use Time::HiRes qw(time sleep);

sub new
{
	my ($class, $world, %opts) = @_;
	return bless { world => $world, wire => undef, error => '', crashed => 0, %opts }, $class;
}

sub wire
{
	my ($self) = @_;
	my $end = time + LeFaults::PATIENCE;

	until ($self->{wire})
	{
		$self->{wire} = eval {
			my $wire = LeWire->new($self->{world}{node});
			die $wire->error if $wire->error =~ /^(?:FATAL|PANIC)/;
			$wire;
		};
		$self->{pid} = $self->{wire}->pid, last if $self->{wire};
		die "cannot connect: $@" if time > $end;
		sleep 0.01;
	}
	return $self->{wire};
}

sub leave { my ($self) = @_; $self->{wire}->quit if $self->{wire}; $self->{wire} = undef; return; }

sub start
{
	my ($self, $sql) = @_;

	$self->{error} = '';
	$self->{crashed} = 0;
	eval { $self->wire->query($sql); 1 } or $self->lost;
	return;
}

sub lost
{
	my ($self) = @_;

	# A terminated backend sends FATAL 57P01. In a crash, it sends another code or none.
	$self->{crashed} = 1 unless $self->{error} =~ /^FATAL (?:57P01|XX000)/m;
	$self->{error} .= $@;
	$self->{wire} = undef;
	return;
}

sub ready
{
	my ($self) = @_;
	return !$self->{wire} || IO::Select->new($self->{wire}{socket})->can_read(0);
}

# Returns undef after an error, or if the connection has ended.
sub finish
{
	my ($self) = @_;
	my $end = time + LeFaults::PATIENCE;

	until ($self->ready)
	{
		$self->{world}->meddle unless $self->{calm};
		if (time > $end)
		{
			$self->{wire} = undef;
			die "no answer in time\n";
		}
		IO::Select->new($self->{wire}{socket})->can_read(0.01);
	}
	return undef unless $self->{wire};
	my $answer = eval { $self->{wire}->wait('Z') };
	my $died = !defined $answer;
	$self->{error} = $self->{wire}->error;
	$self->lost if $died;
	return undef if $died || $self->{error} =~ /^(?:ERROR|FATAL)/m;
	return $answer;
}

sub ask { my ($self, $sql) = @_; $self->start($sql); return $self->finish; }

# Repeats a statement until it gets a reply.
sub must
{
	my ($self, $sql) = @_;
	my $end = time + LeFaults::PATIENCE;

	while (1)
	{
		my $answer = $self->ask($sql);
		return $answer if defined $answer;
		die "$sql: $self->{error}" if time > $end;
		sleep 0.01;
	}
}

1;
