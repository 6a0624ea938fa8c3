# The workers in examples/, in each language whose driver is there: one leads, and when it dies, sleeps or leaves, the next
# one does, and nobody works out of turn.
use strict;
use warnings;
use IPC::Run ();
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', conf => "autovacuum = off\n");
my $dir = PostgreSQL::Test::Utils::tempdir;
my %env = (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => scalar getpwuid($<));

sub one { return $node->safe_psql('postgres', $_[0]); }

sub works { return system("$_[0] >'$dir/probe' 2>&1") == 0; }

# How to start a worker; undef: something is missing here.
sub python
{
	foreach my $python ('python3', '/usr/bin/python3')
	{
		return [ $python, 'examples/worker.py' ] if works("$python -c 'import psycopg'");
	}
	return;
}

sub javascript
{
	local $ENV{NODE_PATH} = join(':', grep { defined } $ENV{NODE_PATH}, '/usr/share/nodejs', '/usr/lib/nodejs');
	return unless works(q{node -e "require('pg')"});
	$env{NODE_PATH} = $ENV{NODE_PATH};
	return [ 'node', 'examples/worker.js' ];
}

sub c
{
	my $config = $ENV{PG_CONFIG} // 'pg_config';
	return unless works("cc -Wall -Wextra -Werror -o '$dir/worker' examples/worker.c -I\$($config --includedir) -L\$($config --libdir) -lpq");
	return ["$dir/worker"];
}

sub start
{
	my ($name, $command) = @_;
	my $out = '';
	local @ENV{ keys %env } = values %env;
	return { name => $name, out => \$out, run => IPC::Run::start([ @$command, $name ], '<', '/dev/null', '>&', \$out) };
}

sub pid { return $_[0]{run}{KIDS}[0]{PID}; }

sub said
{
	my ($worker, $what) = @_;
	return wait_until(sub { $worker->{run}->pump_nb if $worker->{run}->pumpable; return ${ $worker->{out} } =~ $what; }, 15);
}

sub leader { return one(q{SELECT candidate FROM current_leader('pool')}); }

# Another one leads and has worked; returns it.
sub next_leader
{
	my ($before, @workers) = @_;
	my ($leader) = (undef);
	wait_until(
		sub {
			my $name = leader();
			($leader) = grep { $_->{name} eq $name } @workers;
			return $leader && $name ne $before && one("SELECT count(*) > 2 FROM work WHERE worker = '$name' AND term = (SELECT max(term) FROM work)") eq 't';
		},
		20);
	return $leader;
}

# Each piece of work is of the leader of its term, and terms only grow.
sub is_in_turn
{
	my ($test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(one(q{SELECT count(*) FROM work AS w WHERE NOT EXISTS (SELECT FROM election_history('pool') AS h WHERE h.how = 'elected' AND h.term = w.term AND h.candidate = w.worker)
		OR EXISTS (SELECT FROM work AS earlier WHERE earlier.number < w.number AND earlier.term > w.term)}), '0', $test_name);
	is(one('SELECT count(*) - max(number) FROM work'), '0', 'and no number is missing');
	return;
}

sub play
{
	my ($command) = @_;
	my @workers = map { start($_, $command) } qw(A B C);
	my $first = next_leader('', @workers);

	ok($first, 'one of three leads') or return;
	my $start = time;
	kill 'KILL', pid($first);
	my $second = next_leader($first->{name}, grep { $_ != $first } @workers);
	ok($second, 'it is killed: another one leads') or return;
	is(one(qq{SELECT how || ' ' || candidate FROM election_history('pool') WHERE how NOT IN ('elected', 'resigned')}), "expired $first->{name}", 'when its time is over');

	# the deposed one wakes up and works on: its write is refused
	kill 'STOP', pid($second);
	my $third = next_leader($second->{name}, grep { $_ != $first && $_ != $second } @workers);
	ok($third, 'it is stopped: the third one leads') or return;
	kill 'CONT', pid($second);
	ok(said($second, qr/LE001/), 'who wakes up learns that it is not the leader');
	is(leader(), $third->{name}, 'and is not');

	kill 'TERM', pid($third);
	ok(said($third, qr/$third->{name} leaves/), 'asked to stop it leaves');
	ok(next_leader($third->{name}, $second), 'and the one that had slept leads again');
	is(one(qq{SELECT how FROM election_history('pool') WHERE candidate = '$third->{name}' ORDER BY change DESC LIMIT 1}), 'resigned', 'after a resignation');
	is_in_turn('nobody has worked out of turn');

	$node->restart;
	my $done = one('SELECT max(number) FROM work');
	ok(wait_until(sub { return one('SELECT max(number) FROM work') > $done; }, 20), 'after a restart of the server it works on');
	is(leader(), $second->{name}, 'as the leader that it was');
	kill 'TERM', pid($second);
	ok(said($second, qr/$second->{name} leaves/), 'until it leaves');
	is_in_turn('still nobody out of turn');
	foreach my $worker (@workers)
	{
		kill 'KILL', pid($worker);
		eval { $worker->{run}->finish };
	}
	return;
}

my %languages = ('bash' => ['examples/worker.sh'], 'Python' => python(), 'JavaScript' => javascript(), 'C' => c());

foreach my $language (sort keys %languages)
{
	subtest $language => sub {
		plan skip_all => "no driver for $language" unless $languages{$language};
		$node->safe_psql('postgres', 'DROP TABLE IF EXISTS work');
		# the history of one language is not the other's
		$node->safe_psql('postgres', 'DROP EXTENSION IF EXISTS lock_election CASCADE; CREATE EXTENSION lock_election');
		$node->safe_psql('postgres', slurp_file('examples/pool.sql'));
		play($languages{$language});
	};
}

done_testing();
