# Helpers for the tests: a cluster with the extension, background sessions, and a check that nothing is left behind.
# Everything is exported.
#
#   my $node = new_node('main', conf => "max_locks_per_transaction = 10");
#   my $s = session($node);
#     $s->query('SELECT 1')         waits, and returns the output; $s->error is the standard error (VERBOSITY verbose:
#                                   "ERROR:  55P03: ..." contains the SQLSTATE)
#     $s->async('SELECT ...')       starts a query; several may be queued, and run one after the other
#     $s->ready                     true when the oldest one has ended
#     $s->wait([seconds])           the output of the oldest one
#     $s->pid, $s->kill('KILL'), $s->quit

package LeTest;

use strict;
use warnings;

use Exporter 'import';
use LePsql ();
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(new_node node_conf install_portable session budget one error_of unreadable_commits manager_pid replace_manager stop_asleep wal_receiver wait_for_sql wait_until waiting wait_for_waiters shorten nothing_left cpu_time times_asleep stop_kind stop_walwriter can_silence add_host silence_host);

# Most of what is asked needs no psql. Where there is no server, that may end before it has read its input; IPC::Run, which
# still writes, dies of that. Tests ask servers that are down, so it is an answer like any other here.
{
	my $psql = \&PostgreSQL::Test::Cluster::psql;
	my $answer = sub {
		my ($list, $params, $rc, @output) = @_;
		my @result = $rc;

		chomp @output;
		foreach my $stream ('stdout', 'stderr')
		{
			my $text = shift @output;

			${ $params->{$stream} } = $text if $params->{$stream};
			print STDERR "$text\n" if $stream eq 'stderr' && !$params->{$stream} && !$list && $text ne '';
			push @result, $text;
		}
		return $list ? @result : $rc;
	};

	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::psql = sub {
		my ($self, $dbname, $sql, %params) = @_;
		my $list = wantarray;
		my @quick = LePsql::run(@_);

		if (@quick)
		{
			die "error running SQL: '$quick[2]'\nwhile running '$sql'" if $quick[0] && $params{on_error_die};
			return $answer->($list, \%params, @quick);
		}
		my @result = eval { $list ? $psql->(@_) : scalar $psql->(@_) };

		return $list ? @result : $result[0] unless $@;
		die $@ if $@ !~ /Broken pipe: write/ || $params{on_error_die};
		return $answer->($list, \%params, 2, '', 'psql has ended before it had read its input');
	};
}

# The runner has a cluster that is copied, which takes a tenth of what initdb does. Cluster.pm of 17 and later does so itself.
{
	my $system = \&PostgreSQL::Test::Utils::system_or_bail;

	no warnings 'redefine';
	*PostgreSQL::Test::Utils::system_or_bail = sub {
		my ($program, $option, $dir, @more) = @_;

		return $system->('cp', '-RPp', $ENV{INITDB_TEMPLATE}, $dir)
		  if $ENV{INITDB_TEMPLATE} && join(' ', $program, $option // '', @more) eq 'initdb -D -A trust -N';
		return $system->(@_);
	};
}

sub timeout { return $PostgreSQL::Test::Utils::timeout_default; }

# How long a random search is to take: a part of it in `make test`, all of it in `make soak`.
sub budget { return $_[0] * ($ENV{LE_BUDGET} // 1); }

# What every test cluster has in its configuration.
sub node_conf
{
	return <<'CONF';
shared_preload_libraries = 'lock_election'
max_connections = 100
shared_buffers = 16MB
max_prepared_transactions = 10
log_line_prefix = '%m [%p] %b %d %a '
log_min_messages = info
restart_after_crash = on
CONF
}

# What a test leaves running is stopped at once at its end; backends that count lines get the time to write the counts.
my @nodes;

END
{
	local $?;
	if ($ENV{COVERAGE})
	{
		$_->stop('fast', fail_ok => 1) foreach grep { defined $_->{_pid} } @nodes;
	}
}

# What is opened and not closed, and an assertion that fails while the test does not look, is told in the server's log alone.
END
{
	my ($name) = $0 =~ m{([^/]+?)(?:\.\w+)?$};
	my $left_open = qr/(?:reference|refcount|file|memory) leak|was not closed|leaked hash_seq_search|snapshot .* still active|non-empty SPI stack/;

	foreach my $log (glob "$PostgreSQL::Test::Utils::log_path/${name}_*.log")
	{
		foreach my $line (grep { /WARNING:.*(?:$left_open)|manager .*WARNING:.*own a lock|^TRAP:/ } split /\n/, slurp_file($log))
		{
			print STDERR "$log: $line\n";
			$? ||= 1;
		}
	}
}

# The controls of the fault points, see shared/fault.c.
sub fault_functions
{
	return <<'SQL';
CREATE FUNCTION fault_set(point text, action text, ms int = 0, skip int = 0, times int = 1, pid int = 0) RETURNS void
	LANGUAGE c STRICT AS 'lock_election', 'le_fault_set';
CREATE FUNCTION fault_release(point text) RETURNS void LANGUAGE c STRICT AS 'lock_election', 'le_fault_release';
CREATE FUNCTION fault_hits(point text) RETURNS bigint LANGUAGE c STRICT AS 'lock_election', 'le_fault_hits';
CREATE FUNCTION fault_waiting(point text) RETURNS int LANGUAGE c STRICT AS 'lock_election', 'le_fault_waiting';
CREATE FUNCTION fault_clear() RETURNS void LANGUAGE c STRICT AS 'lock_election', 'le_fault_clear';
CREATE FUNCTION fault_forget_standbys() RETURNS void LANGUAGE c STRICT AS 'lock_election', 'le_fault_forget_standbys';
SQL
}

# The extension, or, with ENGINE=portable, which some tests of lockctl pass as well, the portable edition: by an ordinary role, with its functions in public.
my $portable = ($ENV{ENGINE} // 'c') eq 'portable';

sub install_in
{
	my ($node, $dbname) = @_;
	my $file = 'sql/portable/lock_election.sql';

	return $node->safe_psql($dbname, 'CREATE EXTENSION lock_election') if !$portable;
	$node->safe_psql('postgres', q{DO $$ BEGIN CREATE ROLE installer LOGIN; EXCEPTION WHEN duplicate_object THEN END $$});
	$node->safe_psql($dbname, "GRANT CREATE ON DATABASE $dbname TO installer; GRANT CREATE ON SCHEMA public TO installer");
	system_or_bail('psql', '-XAtq1', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr($dbname) . ' user=installer', '-f', $file);
	return;
}

# A running cluster with the extension in database postgres; LE_CONF in the environment comes last in its configuration.
#   init => [...]      arguments of PostgreSQL::Test::Cluster->init, e.g. allows_streaming => 1
#   conf => text       appended to postgresql.conf
#   faults => 1        of the build with fault points, see shared/fault.c; their controls are in database postgres
#   install => path    of another installation: the folder with its bin and lib
#   portable => 1      with the portable edition in database postgres, and without the library
#   start => 0, extension => 0    leave that step to the test
sub new_node
{
	my ($name, %opts) = @_;

	@opts{qw(extension conf)} = (0, "shared_preload_libraries = ''\n" . ($opts{conf} // '')) if $opts{portable};
	my $path = $opts{install} // ($opts{faults} ? $ENV{LE_FAULTS_TREE} : undef);
	my @install = defined $path ? (install_path => $path) : ();
	my $node = PostgreSQL::Test::Cluster->new($name, @install);

	push @nodes, $node;
	$node->init(@{ $opts{init} // [] });
	$node->append_conf('postgresql.conf', node_conf() . ($portable ? "shared_preload_libraries = ''\n" : '') . ($opts{conf} // '') . ($ENV{LE_CONF} // ''));
	return $node unless $opts{start} // 1;
	$node->start;
	install_in($node, 'postgres') if $opts{extension} // 1;
	$node->safe_psql('postgres', fault_functions()) if $opts{faults};
	install_portable($node, 'postgres') if $opts{portable};
	return $node;
}

# The portable edition, by an ordinary role, into schema public; the assembled file or another one.
sub install_portable
{
	my ($node, $dbname, $file) = @_;

	$node->safe_psql($dbname, q{DO $$ BEGIN CREATE ROLE installer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$});
	$node->safe_psql($dbname, qq{GRANT CREATE ON DATABASE $dbname TO installer; GRANT CREATE ON SCHEMA public TO installer});
	PostgreSQL::Test::Utils::system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-1', '-o', '/dev/null',
		'-d', $node->connstr($dbname) . q{ user='installer'}, '-f', $file // 'sql/portable/lock_election.sql');
	return;
}

# Waits until the code returns true; false when the time is over.
sub wait_until
{
	my ($code, $seconds, $pause) = @_;
	my $end = Time::HiRes::time() + ($seconds // timeout());

	until ($code->())
	{
		return 0 if Time::HiRes::time() > $end;
		Time::HiRes::sleep($pause // 0.05);
	}
	return 1;
}

# Asks until $wanted->(output, errors) is true; returns whether that came in time, and the last output and errors.  The
# first look is psql's. What has to be waited for is asked through one connection, as long as that lives.
sub ask_until
{
	my ($node, $sql, $wanted, %opts) = @_;
	my $dbname = $opts{dbname} // 'postgres';
	my ($wire, $out, $err);
	my $ask_again = sub {
		local $SIG{PIPE} = 'IGNORE';
		return $wire && eval { $wire->query($sql); $out = $wire->wait('Z'); $err = $wire->error; 1; };
	};
	my $connect = sub {
		return if $sql =~ /;\s*\S/; # psql would take these statements one by one
		local $SIG{PIPE} = 'IGNORE';
		require LeWire;
		return eval { LeWire->new($node, dbname => $dbname, settings => { options => '-c log_statement=none' }) };
	};
	my $done = wait_until(
		sub {
			return $wanted->($out, $err) if $ask_again->();
			local $ENV{PGOPTIONS} = '-c log_statement=none';
			$node->psql($dbname, $sql, stdout => \$out, stderr => \$err);
			return 1 if $wanted->($out, $err);
			$wire = $connect->();
			return 0;
		},
		$opts{timeout}, 0.02);
	eval { $wire->quit } if $wire;
	return ($done, $out, $err);
}

# Waits until the query's output is $expected ('t' by default); dies when that takes too long.
sub wait_for_sql
{
	my ($node, $sql, $expected, %opts) = @_;

	$expected //= 't';
	my ($done, $out, $err) = ask_until($node, $sql, sub { return $_[0] eq $expected; }, %opts);
	die "timed out: $sql\nexpected: $expected\nlast: $out\n$err" if !$done;
	return 1;
}

# What one statement says, in a connection of its own: one([node,] sql [, dbname]); of the first node, in database postgres.
sub one
{
	my ($node, $sql, $dbname) = ref $_[0] ? @_ : ($nodes[0], @_);

	return $node->safe_psql($dbname // 'postgres', $sql);
}

# What it writes to stderr, with the SQLSTATE: error_of([node,] sql, dbname => .., user => ..)
sub error_of
{
	my ($node, $sql, %opts) = ref $_[0] ? @_ : ($nodes[0], @_);
	my @params = ('-v', 'VERBOSITY=verbose', defined $opts{user} ? ('-U', $opts{user}) : ());
	my ($out, $err) = ('', '');

	$node->psql($opts{dbname} // 'postgres', $sql, stdout => \$out, stderr => \$err, extra_params => \@params);
	return $err;
}

# The process that receives a standby's WAL; shortly after its start it is not shown.
sub wal_receiver
{
	my ($standby) = @_;
	my ($done, $pid) = ask_until($standby, 'SELECT pid FROM pg_stat_wal_receiver', sub { return $_[0] =~ /^\d+$/; });

	die 'the standby receives no WAL' if !$done;
	return $pid;
}

# Stops a process in its sleep: elsewhere it may hold a lock that others need, who then wait for it.  Between the look and the
# signal it may have woken up, so it is looked at again.  Of the extension, or with what kind of sleep and where.
sub stop_asleep
{
	my ($pid, %opts) = @_;
	my $type = $opts{type} // 'Extension';
	my $sleeps = sub { return one($opts{node} // $nodes[0], "SELECT wait_event_type = '$type' FROM pg_stat_activity WHERE pid = $pid") eq 't' };

	wait_until(
		sub {
			return 0 unless $sleeps->();
			kill 'STOP', $pid;
			return 1 if $sleeps->();
			kill 'CONT', $pid;
			return 0;
		}) or die "process $pid does not sleep";
	return;
}

sub manager_pid { return one('SELECT pid FROM lock_election.manager'); }

# Ends the manager in order; returns when another one serves.
sub replace_manager
{
	my $pid = manager_pid();

	kill 'TERM', $pid;
	return wait_for_sql($nodes[0], "SELECT pid <> $pid FROM lock_election.manager");
}

# Makes a database in whose commits() a commit is told with a name that a client in LATIN1 cannot read.
sub unreadable_commits
{
	my ($dbname) = @_;

	one("CREATE DATABASE $dbname ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
	one(qq{SET client_encoding = 'UTF8'; CREATE EXTENSION lock_election;
		CREATE PROCEDURE "\xe2\x82\xac"() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
		CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN CALL "\xe2\x82\xac"(); END'}, $dbname);
	return;
}

# Waits until this session waits for a lock.
sub waiting
{
	my ($session) = @_;
	my $sql = 'SELECT count(*) > 0 FROM lock_election.waiters WHERE pid = ' . $session->pid;

	return wait_for_sql($session->{node}, $sql, 't', dbname => $session->{dbname});
}

# Waits until so many wait for this name, or for any.
sub wait_for_waiters
{
	my ($n, $name, %opts) = @_;
	my $where = defined $name ? " WHERE name = '$name'" : '';

	return wait_for_sql($nodes[0], "SELECT count(*) = $n FROM lock_election.waiters$where", 't', %opts);
}

# Gives a lock its short TTL when everything else is in its place, however long that has taken; an election, with
# renew_leadership.
sub shorten
{
	my ($session, $name, $token, $ttl, $renew) = @_;

	$renew //= 'renew_lock';
	return $session->query("SELECT $renew('$name', $token, '$ttl')") || die "$name is not held: " . $session->error;
}

# A test: no holder and no waiter is left. What ends in the background gets the time to do so, but less than a TTL of 30 s,
# which would end all that is left behind.
sub nothing_left
{
	my ($node, $test_name, %opts) = @_;
	my $sql = q{SELECT 'lock', name, owner FROM lock_election.locks WHERE mode IS NOT NULL UNION ALL SELECT 'waiter', name, '' FROM lock_election.waiters};
	my (undef, $out, $err) = ask_until($node, $sql, sub { return "@_" eq ' '; }, %opts, timeout => $opts{timeout} // 20);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($out . $err, '', $test_name // 'nothing is left behind');
}

# The processor time that a process has used so far, in seconds: what it does, however long others keep it from that. A kernel
# without schedstat counts it in hundredths.
sub cpu_time
{
	my ($pid) = @_;

	return (split ' ', slurp_file("/proc/$pid/schedstat"))[0] / 1e9 if -e "/proc/$pid/schedstat";
	my ($user, $system) = (split ' ', slurp_file("/proc/$pid/stat") =~ s/.*\) //sr)[ 11, 12 ];
	return ($user + $system) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# How often a process has fallen asleep so far; undef: this kernel does not count that.
sub times_asleep { return slurp_file("/proc/$_[0]/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m ? $1 : undef; }

# Stops a process of the server in its sleep, by its kind; returns its pid, for SIGCONT.
sub stop_kind
{
	my ($node, $kind) = @_;
	my $pid = one($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = '$kind'");

	stop_asleep($pid, node => $node, type => 'Activity');
	return $pid;
}

# The process that flushes the WAL for everybody.
sub stop_walwriter { return stop_kind($_[0], 'walwriter'); }

# A host that can fall silent: an address on the loopback interface of the network that the runner made for the tests. Let
# the server listen on it and the client connect to it (host=..); after silence_host no packet arrives any more, and
# nobody is told. Without such a network: plan skip_all unless can_silence().
sub can_silence { return $ENV{LE_NET}; }

sub add_host { system_or_bail('ip', 'address', 'add', "$_[0]/32", 'dev', 'lo'); return; }

sub silence_host { system_or_bail('ip', 'address', 'delete', "$_[0]/32", 'dev', 'lo'); return; }

# A psql in the background: session($node, dbname => .., user => .., connstr => extra)
sub session
{
	my ($node, %opts) = @_;
	return LeTest::Session->new($node, %opts);
}

package LeTest::Session;

use strict;
use warnings;

use IPC::Run ();
use Time::HiRes ();

sub new
{
	my ($class, $node, %opts) = @_;
	my $connstr = $node->connstr($opts{dbname} // 'postgres');
	my $self = bless { node => $node, dbname => $opts{dbname} // 'postgres', in => '', out => '', err => '', sent => 0, got => 0, error => '' }, $class;

	$connstr .= " user='$opts{user}'" if defined $opts{user};
	$connstr .= " $opts{connstr}" if defined $opts{connstr};
	$self->{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $connstr, '-f', '-' ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err});
	$self->{pid} = $self->query('SELECT pg_backend_pid()');
	die "psql: $self->{error}$self->{err}" unless $self->{pid} =~ /^\d+$/;
	return $self;
}

sub pid { return $_[0]{pid}; }

# What the last answer's statements wrote to stderr: errors and notices.
sub error { return $_[0]{error}; }

# Starts a statement; its end is seen by a mark behind its output on both streams.
sub async
{
	my ($self, $sql) = @_;
	my $mark = '=end-' . ++$self->{sent} . '=';

	# A backslash command takes the rest of its line.
	$sql .= ";" unless $sql =~ /;\s*\z/ || $sql =~ /\\\w[^\n]*\z/;
	$self->{in} .= "$sql\n\\echo $mark\n\\warn $mark\n";
	$self->{run}->pump_nb;
	return;
}

sub ready
{
	my ($self) = @_;
	my $mark = '=end-' . ($self->{got} + 1) . '=';

	$self->{run}->pump_nb if $self->{run}->pumpable;
	# with its newline, which may come later
	return $self->{out} =~ /^\Q$mark\E\n/m && $self->{err} =~ /^\Q$mark\E\n/m;
}

# The output of the oldest statement that was not waited for; undef when the connection has ended instead.
sub wait
{
	my ($self, $seconds) = @_;
	my $end = Time::HiRes::time() + ($seconds // LeTest::timeout());
	my $pause = 0.002;

	until ($self->ready)
	{
		if (!$self->{run}->pumpable)
		{
			last if $self->ready;
			($self->{error}, $self->{err}) = ($self->{err}, '');
			return undef;
		}
		die "timed out waiting for an answer\nstdout: $self->{out}\nstderr: $self->{err}"
		  if Time::HiRes::time() > $end;
		Time::HiRes::sleep($pause);
		$pause *= 1.1 if $pause < 0.02;
	}
	my $mark = '=end-' . ++$self->{got} . '=';
	$self->{out} =~ s/\A(.*?)^\Q$mark\E\n//ms;
	my $answer = $1;
	$self->{err} =~ s/\A(.*?)^\Q$mark\E\n//ms;
	$self->{error} = $1;
	chomp $answer;
	return $answer;
}

sub query
{
	my ($self, $sql, $seconds) = @_;

	$self->async($sql);
	return $self->wait($seconds);
}

# Kills the client, not its backend.
sub kill
{
	my ($self, $signal) = @_;

	CORE::kill($signal // 'KILL', map { $_->{PID} } @{ $self->{run}{KIDS} });
	eval { $self->{run}->finish };
	return;
}

sub quit
{
	my ($self) = @_;

	eval { $self->{run}->finish };
	return;
}

1;
