# The job queue of examples/: eight workers claim a hundred jobs at a time, and are killed and stopped for longer than
# the TTL; the server crashes. No job is lost or done twice. If a connection that renews breaks, another one renews.
# Promises: M, F
# Needs: python3-psycopg
use strict;
use warnings;
use LeTest;
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

# Jobs that are there after each fault, and of those how many are done before the next one.
use constant { TTL => 2, WORKERS => 8, JOBS => 1000, BETWEEN => 300 };

my $python = '/usr/bin/python3';
plan skip_all => 'no psycopg here' if system("$python -c 'import psycopg' 2>/dev/null") != 0;

my $node = new_node('main');
my %alive;    # name of each worker by process
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

# Those that have ended: when all jobs are done, otherwise they begin again.
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

# NULL while the server is starting.
sub left
{
	my ($rc, $out) = $node->psql('postgres', 'SELECT count(*) FROM job WHERE done_at IS NULL');
	return $rc == 0 ? $out : undef;
}

$node->safe_psql('postgres', slurp_file('examples/jobs.sql'));
# Every write of a result, whoever makes it.
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

# Whatever the others do while one is stopped, at each fault there is enough to do for the one that it meets.
my @faults = qw(kill stop crash stop kill stop);
my ($before, $end) = ('', time + LeTest::timeout());
while ((my $left = left() // '') ne '0' || @faults)
{
	my @pids = sort { $a <=> $b } keys %alive;
	my $pid = $pids[ rand @pids ];

	# a busy machine may need longer for all, but none stays as it is
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
is(one('SELECT count(*) FROM done'), $jobs, 'and none is done twice');
is("$seen{kill} $seen{stop} $seen{crash}", '2 3 1', 'though workers were killed and stopped, and the server crashed');
wait_for_sql($node, q{SELECT count(*) FROM lock_election.locks WHERE name LIKE 'job %'}, '0');

# A renewal that fails: a job waits for a row, so that the worker is at work meanwhile.
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
is(one("SELECT count(*) FROM done WHERE job = $job"), '1', 'a renewal that fails is repeated, by another connection');

$node->safe_psql('postgres', slurp_file('examples/jobs.sql'));
is(left(), JOBS, 'jobs.sql can be run again: a thousand more jobs');
is(one("SELECT count(*) FROM pg_index WHERE indrelid = 'job'::regclass"), '2', 'and no other index');
is(qx($python examples/jobs.py 2>&1), "usage: jobs.py NAME [CONNECTION-STRING]\n", 'jobs.py without a name says what it needs');
$node->stop;
done_testing();
