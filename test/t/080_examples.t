# Runs the examples as their README starts them: one of several workers leads and works, the next one takes over after
# any kind of failure, and no worker writes without leading. All languages run at the same time, each in its own
# database.
# Promises: M
# Needs: lockctl, python3-psycopg, nodejs, node-pg
use strict;
use warnings;
use LeTest;
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use constant TTL => 3;

# A worker may be stopped in the middle of a fenced transaction, or even of a message: then only this timeout ends it.
use constant FENCE_TIMEOUT => 5;

# One database per language, and the one that has the extension initially.
my $primary = new_node('primary', init => [ allows_streaming => 1 ],
	conf => "lock_election.max_databases = 5\nmax_worker_processes = 16\nlog_statement = all\n"
	  . "lock_election.fence_timeout = '" . FENCE_TIMEOUT . " s'\n");
$primary->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'copy', has_streaming => 1);
$standby->start;

my $node = $primary; # the current primary
my %command = map { /pool\.(\w+)/ ? ($1 => $_) : () }
  map { /^ {4}(.*pool\.\w+ a\b.*?|.* && .*?)\s*(?:#.*)?$/ && !/PGHOST|postgresql:/ ? $1 : () }
  split /\n/, slurp_file('examples/README.md') =~ s/## After a failover.*//sr;
my @pools = map { { language => $_, workers => {} } } sort keys %command;
my %alive;

END
{
	my $rc = $?;
	kill 'KILL', keys %alive;
	$? = $rc;
}

sub sql { my ($pool, $query) = @_; return $node->safe_psql($pool->{language}, $query); }

sub wait_sql
{
	my ($pool, $query, $expected) = @_;
	return wait_for_sql($node, $query, $expected, dbname => $pool->{language});
}

sub leader
{
	my ($pool) = @_;
	return split / /, sql($pool, q{SELECT candidate || ' ' || term FROM current_leader('pool')});
}

sub start_worker
{
	my ($pool, $name) = @_;
	my $pid = fork // die "fork: $!";

	$pool->{log} = "${PostgreSQL::Test::Utils::log_path}/080_examples_$pool->{language}.log";
	if ($pid)
	{
		$alive{$pid} = 1;
		$pool->{workers}{$name} = $pid;
		return;
	}
	my @args = $name;
	setpgrp;
	$SIG{INT} = 'DEFAULT'; # a shell cannot trap a signal that was ignored when it started
	open STDOUT, '>>', $pool->{log} or die "$pool->{log}: $!";
	open STDERR, '>&', \*STDOUT or die "dup: $!";
	@ENV{qw(PGHOST PGDATABASE PGTARGETSESSIONATTRS)} = ($primary->host . ',' . $primary->host, $pool->{language}, 'primary');
	$ENV{PGPORT} = $primary->port . ',' . $standby->port;
	push @args, map { 'postgresql://' . getpwuid($>) . "\@localhost:$_/$pool->{language}?host=" . $primary->host } split /,/, $ENV{PGPORT}
	  if $pool->{language} eq 'js';
	$ENV{PATH} = "build/lockctl:$ENV{PATH}";
	exec split(/ /, $pool->{start}), @args or die "$pool->{start}: $!";
}

# Waits until a worker has ended. Returns its exit status.
sub ended
{
	my ($pid) = @_;
	my $status;

	wait_until(sub { return waitpid($pid, WNOHANG) == $pid && defined($status = $?); }) or die "worker $pid does not end";
	delete $alive{$pid};
	return $status;
}

# For the shell example, signals also stop or kill its lockctl.
sub send_signal
{
	my ($pool, $name, $signal) = @_;
	my $pid = $pool->{workers}{$name};

	$pid = -$pid if $pool->{language} eq 'sh' && $signal ne 'TERM';
	kill $signal, $pid or die "kill: $!";
	return;
}

sub signal_leader
{
	my ($pool, $signal) = @_;
	my ($name, $term) = leader($pool);

	@$pool{qw(name term at)} = ($name, $term, time);
	send_signal($pool, $name, $signal);
	return;
}

# Expects that another worker leads and works, within so many seconds after signal_leader().
sub next_leads
{
	my ($pool, $seconds, $how) = @_;
	wait_sql($pool, "SELECT count(*) > 0 FROM current_leader('pool') WHERE term > $pool->{term} AND candidate <> '$pool->{name}'");
	my ($name, $term) = leader($pool);
	wait_sql($pool, "SELECT count(*) > 0 FROM audit WHERE term = $term AND worker = '$name'");
	is(sql($pool, "SELECT how FROM election_history('pool') WHERE term = $pool->{term} ORDER BY change DESC LIMIT 1"), $how, "$how: the previous term has ended this way");
	my $late = sql($pool, "SELECT extract(epoch FROM elected_at) - $pool->{at} FROM election_history('pool') WHERE term = $term AND how = 'elected'");
	cmp_ok($late, '<', $seconds, "the next leader is elected in time");
	return;
}

# Runs $act for all pools, then $check, with a subtest for each pool.
sub each_pool
{
	my ($test_name, $act, $check) = @_;
	$act->($_) foreach @pools;
	foreach my $pool (@pools)
	{
		subtest "$pool->{language}: $test_name" => sub { $check->($pool); };
	}
	return;
}

# --- which examples can run here ---

my %missing = (
	sh => sub { return },
	py => sub { return system("/usr/bin/python3 -c 'import psycopg' 2>&1") ? 'no psycopg for /usr/bin/python3' : undef },
	js => sub { return system(q{node -e 'require("pg")' >&2}) ? 'no pg for node' : undef },
	c => sub { return });

is(join(' ', sort keys %command), 'c js py sh', 'the README has a command line for each language');
foreach my $pool (@pools)
{
	my $why = $missing{ $pool->{language} }->();
SKIP:
	{
		skip "$pool->{language}: $why", 1 if defined $why;
		my ($prepare, $start) = $command{ $pool->{language} } =~ /^(?:(.*) && )?(.*) a$/;
		is(defined $prepare ? system($prepare) : 0, 0, "$pool->{language}: $command{$pool->{language}}");
		$pool->{start} = $start;
	}
}
@pools = grep { $_->{start} } @pools;

foreach my $pool (@pools)
{
	$primary->safe_psql('postgres', "CREATE DATABASE $pool->{language}");
	sql($pool, q{CREATE EXTENSION lock_election});
	sql($pool, slurp_file('examples/setup.sql'));
	sql($pool, q{
		CREATE TABLE audit (done bigint, term bigint, worker text, at timestamptz DEFAULT clock_timestamp());
		CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO audit VALUES (new.done, new.term, new.worker); RETURN NULL; END';
		CREATE TRIGGER audit AFTER UPDATE ON work FOR EACH ROW EXECUTE FUNCTION audit()});
}

# --- ends of a leader ---

each_pool(
	'three workers',
	sub { start_worker($_[0], $_) foreach qw(a b c); },
	sub {
		my ($pool) = @_;
		wait_sql($pool, q{SELECT count(*) = 1 FROM current_leader('pool')});
		wait_sql($pool, q{SELECT count(*) = 2 FROM lock_election.waiters});
		my ($name, $term) = leader($pool);
		# For longer than the TTL.
		wait_sql($pool, q{SELECT max(at) - min(at) > '4 s' FROM audit});
		is(sql($pool, 'SELECT DISTINCT worker, term FROM audit'), "$name|$term", 'one worker leads, works and stays the leader');
		my (undef, undef, $err) = $node->psql($pool->{language}, 'UPDATE work SET done = 0');
		like($err, qr/has not fenced election "pool"/, 'only the leader can write');
	});

each_pool(
	'a leader that is killed',
	sub { signal_leader($_[0], 'KILL'); },
	sub {
		my ($pool) = @_;
		next_leads($pool, TTL + 2, 'expired');
		is(ended($pool->{workers}{ $pool->{name} }) & 127, 9, 'the worker was killed');
	});

each_pool(
	'a leader that is stopped past its TTL',
	sub { signal_leader($_[0], 'STOP'); },
	sub {
		my ($pool) = @_;
		next_leads($pool, TTL + FENCE_TIMEOUT + 2, 'expired');
		my $before = length slurp_file($pool->{log});
		send_signal($pool, $pool->{name}, 'CONT');
		ok(wait_until(sub { substr(slurp_file($pool->{log}), $before) =~ /^$pool->{name}: (lost|no longer sure|connects again)/m; }), 'the stopped worker notices the loss');
		wait_sql($pool, q{SELECT count(*) = 1 FROM lock_election.waiters});
		pass('the worker campaigns again');
	});

each_pool(
	'a leader that is terminated',
	sub { signal_leader($_[0], 'TERM'); },
	sub {
		my ($pool) = @_;
		is(ended($pool->{workers}{ $pool->{name} }), 0, 'the worker exits with status 0');
		next_leads($pool, 2, 'resigned');
	});

# --- the server ---

start_worker($_, 'd') foreach @pools;
wait_sql($_, q{SELECT count(*) = 1 FROM lock_election.waiters}) foreach @pools;
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$primary->stop('immediate');
$standby->promote;
$node = $standby;
each_pool(
	'a failover',
	sub { $_[0]{done} = sql($_[0], 'SELECT done FROM work'); },
	sub {
		my ($pool) = @_;
		ok(wait_sql($pool, "SELECT done > $pool->{done} + 2 FROM work"), 'the work continues after the failover');
		wait_sql($pool, q{SELECT count(*) = 1 FROM lock_election.waiters});
		is((leader($pool))[1], sql($pool, 'SELECT term FROM work'), 'one leader works after the failover');
	});

each_pool(
	'Ctrl-C',
	sub { kill '-INT', grep { $alive{$_} } values %{ $_[0]{workers} }; },
	sub {
		my ($pool) = @_;
		is(join(' ', map { ended($_) } grep { $alive{$_} } values %{ $pool->{workers} }), '0 0', 'all workers exit with status 0');
		# "revoked": the worker was elected when the other one resigned, and was terminated before it knew.
		my $how = sql($pool, q{SELECT how FROM election_history('pool') ORDER BY change DESC LIMIT 1});
		like($how, qr/^(resigned|revoked)$/, 'the leader resigns');
		nothing_left($node, 'no lock or lease is left', dbname => $pool->{language});
		is(sql($pool, 'SELECT count(*) = max(done) AND count(DISTINCT done) = max(done) FROM audit'), 't', 'no write is lost');
		is(sql($pool, 'SELECT count(*) FROM (SELECT term < lag(term) OVER (ORDER BY done) AS back FROM audit) AS a WHERE back'), '0', 'terms only grow');
		is( sql($pool, q{
				SELECT * FROM audit AS a WHERE NOT EXISTS (SELECT FROM election_history('pool') AS h JOIN election_history('pool') AS e
					ON h.how = 'elected' AND e.ended_at IS NOT NULL AND h.term = e.term
					WHERE h.term = a.term AND h.candidate = a.worker AND a.at BETWEEN h.elected_at AND e.ended_at)}),
			'', 'each write is by the leader of its term, within that term');
	});

# --- renewals ---

# campaign() does not tell when its wait was granted, so a client that counts the TTL itself renews before it works.
my (%next, %first);
foreach my $line (map { split /\n/, slurp_file($_->logfile) } $primary, $standby)
{
	my ($pid, $call) = $line =~ /\[(\d+)\].* LOG:  (?:execute|statement).*?(campaign|renew_leadership|fence_leader)\('pool'/ or next;

	if ($call eq 'campaign') { $next{$pid} = 1; }
	elsif (delete $next{$pid}) { $first{$call}++; }
}
ok($first{renew_leadership} && !$first{fence_leader}, 'clients that call campaign() renew immediately') or diag(explain(\%first));

done_testing();
