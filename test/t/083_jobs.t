# The job queue of examples/: eight workers claim a hundred jobs at a time, are killed, and are stopped for longer than
# the TTL; the server crashes. No job is lost or processed twice. If a connection that renews breaks, another one
# renews.
# Promises: M, F
# Needs: python3-psycopg
use strict;
use warnings;
use LeTest;
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# JOBS: number of open jobs after each fault; BETWEEN: how many of them are processed before the next fault.
use constant { TTL => 2, WORKERS => 8, JOBS => 1000, BETWEEN => 300 };

my $python = '/usr/bin/python3';
plan skip_all => 'no psycopg here' if system("$python -c 'import psycopg' 2>/dev/null") != 0;

my $node = new_node('main');
my %alive; # names of the running workers, by pid
my $log = "${PostgreSQL::Test::Utils::log_path}/083_jobs.log";
my %seen = map { $_ => 0 } qw(kill stop crash started);

END
{
	my $rc = $?;
	kill 'KILL', keys %alive;
	$? = $rc;
}

sub start_worker
{
	my ($name) = @_;
	my $pid = fork // die "fork: $!";

	$seen{started}++;
	if ($pid)
	{
		$alive{$pid} = $name;
		return;
	}
	setpgrp;
	open STDOUT, '>>', $log or die "$log: $!";
	open STDERR, '>&', \*STDOUT or die "dup: $!";
	$ENV{JOB_TTL} = TTL;
	exec $python, 'examples/jobs.py', $name, $node->connstr('postgres') or die "exec: $!";
}

# Reaps workers that have ended. Restarts them if there is more to do.
sub reap
{
	my ($more) = @_;

	while ((my $pid = waitpid -1, WNOHANG) > 0)
	{
		my $name = delete $alive{$pid} // next;
		start_worker($name) if $more;
	}
	return;
}

# Returns the number of open jobs, or undef while the server is starting.
sub left
{
	my ($rc, $out) = $node->psql('postgres', 'SELECT count(*) FROM job WHERE done_at IS NULL');
	return $rc == 0 ? $out : undef;
}

$node->safe_psql('postgres', slurp_file('examples/jobs.sql'));
# Records every write of a result.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE done (job bigint, token bigint);
CREATE FUNCTION note_done() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO done VALUES (new.id, new.token);
	RETURN new;
END $$;
CREATE TRIGGER note_done AFTER UPDATE ON job FOR EACH ROW EXECUTE FUNCTION note_done();
SQL
start_worker("worker $_") foreach 1 .. WORKERS;

# At each fault there are enough open jobs for the worker that it affects, no matter what the others do in the meantime.
my @faults = qw(kill stop crash stop kill stop);
my ($before, $end) = ('', time + LeTest::timeout());
while ((my $left = left() // '') ne '0' || @faults)
{
	my @pids = sort { $a <=> $b } keys %alive;
	my $pid = $pids[ rand @pids ];

	# A busy machine may need longer for all jobs, but must make progress.
	($before, $end) = ($left, time + LeTest::timeout()) if $left ne $before;
	die 'the jobs are not done in time' if time > $end;
	reap(1);
	sleep 0.05;
	next if !@faults || !$pid || $left eq '' || $left > JOBS - BETWEEN;
	my $fault = shift @faults;
	$seen{$fault}++;
	if ($fault eq 'kill')
	{
		kill 'KILL', $pid;
	}
	elsif ($fault eq 'stop')
	{
		kill 'STOP', $pid;
		sleep(TTL + 0.5);
		kill 'CONT', $pid;
	}
	else
	{
		$node->stop('immediate');
		$node->start;
	}
	one("INSERT INTO job (payload) SELECT 'number ' || i FROM generate_series(1, @{[JOBS]} - (SELECT count(*) FROM job WHERE done_at IS NULL)) AS i")
	  if @faults;
}
foreach my $pid (keys %alive)
{
	wait_until(sub { reap(0); !$alive{$pid} }) or fail("worker $pid does not end");
}
note(join ', ', map { "$seen{$_} $_" } sort keys %seen);
my @lost = slurp_file($log) =~ /^worker \d+: lost/mg;
note(scalar(@lost) . ' times a worker was told that it has lost its jobs');

my $jobs = one('SELECT count(*) FROM job');
is(one('SELECT count(*) FROM job WHERE done_at IS NOT NULL'), $jobs, 'no job is lost');
is(one('SELECT count(*) FROM done'), $jobs, 'no job is processed twice');
is("$seen{kill} $seen{stop} $seen{crash}", '2 3 1', 'two workers were killed, three were stopped, and the server crashed once');
wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name LIKE 'job %'}, '0');

# A renewal fails while the worker waits for a row lock within a job.
my $row = session($node);
my $renewals = q{FROM pg_stat_activity WHERE application_name = 'worker 9, renewals'};
my $job = $row->query(q{INSERT INTO job (payload) VALUES ('the last') RETURNING id});
$row->query("BEGIN; SELECT FROM job WHERE id = $job FOR UPDATE");
start_worker('worker 9');
wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE job%'}, '1');
wait_for_sql($node, "SELECT count(*) $renewals", '1');
my $renewing = one("SELECT pid $renewals");
one("SELECT pg_terminate_backend($renewing)");
wait_for_sql($node, "SELECT count(*) $renewals AND pid <> $renewing AND query LIKE 'SELECT keep_alive%'", '1');
$row->query('COMMIT');
$row->quit;
wait_until(sub { reap(0); !%alive }) or fail('worker 9 does not end');
is(one("SELECT count(*) FROM done WHERE job = $job"), '1', 'a failed renewal is retried on another connection');

$node->safe_psql('postgres', slurp_file('examples/jobs.sql'));
is(left(), JOBS, 'jobs.sql can be run again and adds a thousand jobs');
is(one("SELECT count(*) FROM pg_index WHERE indrelid = 'job'::regclass"), '2', 'jobs.sql creates no additional index when it is run again');
is(qx($python examples/jobs.py 2>&1), "usage: jobs.py NAME [CONNECTION-STRING]\n", 'jobs.py without a name prints its usage');
$node->stop;
done_testing();
