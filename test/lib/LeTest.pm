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

# Most queries do not need a psql process, see LePsql. If the server is down, psql may end before it has read its input,
# and IPC::Run, which is still writing, dies. Tests query servers that are down, so this becomes an ordinary result.
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

# The runner has an initialized cluster, which is copied; this takes a tenth of the time of initdb. Cluster.pm does so
# itself since PostgreSQL 17.
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

# Returns the time for a random search: a part of it in `make test`, all of it in `make soak`.
sub budget { return $_[0] * ($ENV{LE_BUDGET} // 1); }

# Configuration of every test cluster.
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

# Clusters that a test leaves running are stopped immediately at its end. With coverage, backends get the time to write
# their counts.
my @nodes;

END
{
	local $?;
	if ($ENV{COVERAGE})
	{
		$_->stop('fast', fail_ok => 1) foreach grep { defined $_->{_pid} } @nodes;
	}
}

# Resources that are not closed, and assertions that fail without the test noticing, appear only in the server's log.
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

# SQL functions that control fault points, see shared/fault.c.
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

# With ENGINE=portable, which some tests of lockctl also pass, the portable edition is installed instead of the
# extension: by an ordinary role, with its functions in schema public.
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

# Creates a running cluster with the extension in database postgres. LE_CONF in the environment is appended to its
# configuration.
#   init => [...]      arguments of PostgreSQL::Test::Cluster->init, e.g. allows_streaming => 1
#   conf => text       appended to postgresql.conf
#   faults => 1        the build with fault points, see shared/fault.c; their controls are in database postgres
#   install => path    another installation: the folder with its bin and lib
#   portable => 1      the portable edition in database postgres, without the library
#   start => 0, extension => 0    the test does this step itself
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

# Installs the portable edition in schema public, as an ordinary role, from the assembled file or another one.
sub install_portable
{
	my ($node, $dbname, $file) = @_;

	$node->safe_psql($dbname, q{DO $$ BEGIN CREATE ROLE installer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$});
	$node->safe_psql($dbname, qq{GRANT CREATE ON DATABASE $dbname TO installer; GRANT CREATE ON SCHEMA public TO installer});
	PostgreSQL::Test::Utils::system_or_bail('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-1', '-o', '/dev/null',
		'-d', $node->connstr($dbname) . q{ user='installer'}, '-f', $file // 'sql/portable/lock_election.sql');
	return;
}

# Waits until the code returns true. Returns false after a timeout.
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

# Repeats a query until $wanted->(output, errors) is true. Returns whether this came in time, and the last output and
# errors. The first query uses psql; later ones use one connection, as long as it works.
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
		return if $sql =~ /;\s*\S/; # psql would run these statements one by one
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

# Waits until the output of the query is $expected ('t' by default). Dies after a timeout.
sub wait_for_sql
{
	my ($node, $sql, $expected, %opts) = @_;

	$expected //= 't';
	my ($done, $out, $err) = ask_until($node, $sql, sub { return $_[0] eq $expected; }, %opts);
	die "timed out: $sql\nexpected: $expected\nlast: $out\n$err" if !$done;
	return 1;
}

# Runs one statement in its own connection, and returns its output: one([node,] sql [, dbname]). Defaults: the first
# node, database postgres.
sub one
{
	my ($node, $sql, $dbname) = ref $_[0] ? @_ : ($nodes[0], @_);

	return $node->safe_psql($dbname // 'postgres', $sql);
}

# Returns the error output of a statement, with the SQLSTATE: error_of([node,] sql, dbname => .., user => ..)
sub error_of
{
	my ($node, $sql, %opts) = ref $_[0] ? @_ : ($nodes[0], @_);
	my @params = ('-v', 'VERBOSITY=verbose', defined $opts{user} ? ('-U', $opts{user}) : ());
	my ($out, $err) = ('', '');

	$node->psql($opts{dbname} // 'postgres', $sql, stdout => \$out, stderr => \$err, extra_params => \@params);
	return $err;
}

# Returns the pid of a standby's WAL receiver, which is not shown immediately after its start.
sub wal_receiver
{
	my ($standby) = @_;
	my ($done, $pid) = ask_until($standby, 'SELECT pid FROM pg_stat_wal_receiver', sub { return $_[0] =~ /^\d+$/; });

	die 'the standby receives no WAL' if !$done;
	return $pid;
}

# Stops a process while it sleeps; at other times it may hold a lock that others need. It may wake up between the check
# and the signal, so the check is repeated. By default, it must sleep in the extension; options: the type of the sleep,
# and the node.
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

# Ends the manager normally. Returns when another one serves requests.
sub replace_manager
{
	my $pid = manager_pid();

	kill 'TERM', $pid;
	return wait_for_sql($nodes[0], "SELECT pid <> $pid FROM lock_election.manager");
}

# Creates a database whose procedure commits() commits with a name in the context of messages that a client with LATIN1
# cannot read.
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

# Waits until n sessions wait for this name, or for any name.
sub wait_for_waiters
{
	my ($n, $name, %opts) = @_;
	my $where = defined $name ? " WHERE name = '$name'" : '';

	return wait_for_sql($nodes[0], "SELECT count(*) = $n FROM lock_election.waiters$where", 't', %opts);
}

# Gives a lock its short TTL after all preparations, which may take long on a busy machine. For an election, pass
# renew_leadership.
sub shorten
{
	my ($session, $name, $token, $ttl, $renew) = @_;

	$renew //= 'renew_lock';
	return $session->query("SELECT $renew('$name', $token, '$ttl')") || die "$name is not held: " . $session->error;
}

# Checks that no holder and no waiter is left over. Ends in the background get some time, but less than a TTL of 30 s,
# after which all entries would end.
sub nothing_left
{
	my ($node, $test_name, %opts) = @_;
	my $sql = q{SELECT 'lock', name, owner FROM lock_election.locks WHERE mode IS NOT NULL UNION ALL SELECT 'waiter', name, '' FROM lock_election.waiters};
	my (undef, $out, $err) = ask_until($node, $sql, sub { return "@_" eq ' '; }, %opts, timeout => $opts{timeout} // 20);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($out . $err, '', $test_name // 'no holder and no waiter is left over');
}

# Returns the processor time that a process has used so far, in seconds. It does not depend on other processes. A kernel
# without schedstat counts it in hundredths of a second.
sub cpu_time
{
	my ($pid) = @_;

	return (split ' ', slurp_file("/proc/$pid/schedstat"))[0] / 1e9 if -e "/proc/$pid/schedstat";
	my ($user, $system) = (split ' ', slurp_file("/proc/$pid/stat") =~ s/.*\) //sr)[ 11, 12 ];
	return ($user + $system) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# Returns how often a process has fallen asleep so far, or undef if this kernel does not count it.
sub times_asleep { return slurp_file("/proc/$_[0]/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m ? $1 : undef; }

# Stops a process of the server of this kind in its sleep. Returns its pid, for SIGCONT.
sub stop_kind
{
	my ($node, $kind) = @_;
	my $pid = one($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = '$kind'");

	stop_asleep($pid, node => $node, type => 'Activity');
	return $pid;
}

# Stops the process that flushes the WAL in the background.
sub stop_walwriter { return stop_kind($_[0], 'walwriter'); }

# A host that can fall silent is an address on the loopback interface of the network that the runner has created for the
# tests. The server listens on it, and the client connects to it (host=..). After silence_host(), packets are dropped
# without notice. Without such a network, use: plan skip_all unless can_silence().
sub can_silence { return $ENV{LE_NET}; }

sub add_host { system_or_bail('ip', 'address', 'add', "$_[0]/32", 'dev', 'lo'); return; }

sub silence_host { system_or_bail('ip', 'address', 'delete', "$_[0]/32", 'dev', 'lo'); return; }

# Starts a psql in the background: session($node, dbname => .., user => .., connstr => extra)
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

# Returns the errors and notices of the statements that were waited for last.
sub error { return $_[0]{error}; }

# Starts a statement. A mark after its output on both streams shows its end.
sub async
{
	my ($self, $sql) = @_;
	my $mark = '=end-' . ++$self->{sent} . '=';

	# A backslash command extends to the end of its line.
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
	# including its newline, which may arrive later
	return $self->{out} =~ /^\Q$mark\E\n/m && $self->{err} =~ /^\Q$mark\E\n/m;
}

# Returns the output of the oldest statement that was not waited for, or undef if the connection has ended.
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
