# A cluster of three nodes under Patroni on this machine: etcd, Patroni with PostgreSQL three times, HAProxy and
# PgBouncer in front, and connections between the nodes that can be cut. Everything listens on 127.0.0.1, and keeps its
# data in the test's temporary folder. This module ends the processes that it has started, by process id.
#
#   plan skip_all => .. if defined LeHa::missing();
#   my $ha = LeHa->new(dcs => { ttl => 20 });     starts it, with database "app" and the extension; bare => 1: without
#                                                 the library and the extension
#   $ha->set_mode('async' | 'sync' | 'strict' | 'remote')      remote: sync, with lock_election.min_durability = remote
#   $ha->leader                                   number of the primary node, according to Patroni
#   $ha->run_fault($name)                         see %FAULTS
#
# The other nodes reach node i's PostgreSQL and REST API, and node i reaches etcd, each through an HAProxy of its own. A
# stopped HAProxy (SIGSTOP) acts as a network that silently drops everything.

package LeHa;

use strict;
use warnings;

use HTTP::Tiny;
use IO::Socket::INET;
use JSON::PP;
use LeTest ();
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use Time::HiRes qw(time sleep clock_gettime CLOCK_MONOTONIC);

my %program = (
	'patroni' => 'patroni', 'patronictl' => 'patroni', 'etcd' => 'etcd-server', 'haproxy' => 'haproxy', 'pgbouncer' => 'pgbouncer');

sub find_program
{
	my ($name) = @_;
	return (grep { -x } map { "$_/$name" } qw(/usr/bin /usr/sbin /usr/local/bin))[0];
}

# Returns which packages are missing, or undef if none is.
sub missing
{
	my %packages = map { $program{$_} => 1 } grep { !defined find_program($_) } keys %program;

	# Newer packages of Patroni do not need a client library for etcd.
	$packages{'python3-etcd'} = 1 if system('/usr/bin/python3 -c "import etcd" 2>/dev/null') != 0;
	return %packages ? 'not installed here: ' . join(' ', sort keys %packages) : undef;
}

sub patroni_version
{
	my ($version) = `patroni --version` =~ /(\d+\.\d+\.\d+)/;
	return $version;
}

# Before 3.0.3, Patroni with etcd's protocol 3 may depose a leader that was elected while it was suspended.
sub may_use_etcd3
{
	my @v = split /\./, patroni_version();
	return $v[0] > 3 || ($v[0] == 3 && ($v[1] > 0 || $v[2] >= 3));
}

my @clusters;

sub new
{
	my ($class, %opts) = @_;
	my $self = bless {
		dir => PostgreSQL::Test::Utils::tempdir(), pid => {}, http => HTTP::Tiny->new(timeout => 1),
		dcs => { ttl => 20, loop_wait => 5, retry_timeout => 5, %{ $opts{dcs} // {} } },
		bare => $opts{bare}, etcd => $opts{etcd} // (may_use_etcd3() ? 'etcd3' : 'etcd')
	}, $class;

	push @clusters, $self;
	mkdir "$self->{dir}/$_", 0700 foreach 'log', map { "node$_" } 1 .. 3;
	$self->choose_ports;
	$self->write_files;
	$self->start_etcd;
	$self->start_proxy($_) foreach map { ("etcd$_", "node$_") } 1 .. 3;
	$self->bootstrap;
	$self->start_patroni($_) foreach 2, 3;
	$self->start_proxy('haproxy');
	$self->spawn('pgbouncer', find_program('pgbouncer'), "$self->{dir}/pgbouncer.ini");
	$self->wait_for('three nodes', sub { $self->all_running }, 120);
	return $self;
}

# Patroni limits the time of its own statements and connections, and gives up its bootstrap if the machine is too busy.
# Then it is started again, unless post_bootstrap, which is ours, has failed.
sub bootstrap
{
	my ($self) = @_;
	my $log = "$self->{dir}/log/post_bootstrap.log";
	my $starts = 1;

	$self->start_patroni(1);
	$self->wait_for(
		'a first leader',
		sub {
			if ($starts < 3 && !-s $log && waitpid($self->{pid}{patroni1}, POSIX::WNOHANG) == $self->{pid}{patroni1})
			{
				note 'Patroni has given up its bootstrap';
				$self->start_patroni(1);
				$starts++;
			}
			return ($self->leader // 0) == 1;
		},
		90);
	return;
}

# --- files ----------------------------------------------------------------------------------------------------------

sub choose_ports
{
	my ($self) = @_;
	my @names = (qw(etcd peer haproxy replicas pgbouncer), map { ("etcd$_", "pg$_", "rest$_", "pgproxy$_", "restproxy$_") } 1 .. 3);
	my %socket = map { $_ => IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') // die $! } @names;

	$self->{port} = { map { $_ => $socket{$_}->sockport } @names };
	return;
}

sub write_file
{
	my ($self, $name, $text, $mode) = @_;

	open my $f, '>', "$self->{dir}/$name" or die $!;
	print $f $text;
	close $f;
	chmod $mode, "$self->{dir}/$name" if $mode;
	return;
}

# Start of each HAProxy configuration file.
my $haproxy = <<'CFG';
global
    maxconn 500
defaults
    mode tcp
    timeout client 1h
    timeout server 1h
    timeout connect 2s
CFG

# Returns the configuration of an HAProxy that forwards these ports: listen => target.
sub forwarder
{
	my (%ports) = @_;
	my $text = $haproxy;

	$text .= "listen p$_\n    bind 127.0.0.1:$_\n    server s 127.0.0.1:$ports{$_}\n" foreach sort keys %ports;
	return $text;
}

sub balancer
{
	my ($self) = @_;
	my $port = $self->{port};
	my $text = $haproxy . <<'CFG';
    timeout check 1s
    retries 1
CFG
	foreach my $role ([ haproxy => 'primary' ], [ replicas => 'replica' ])
	{
		$text .= <<"CFG";
listen $role->[0]
    bind 127.0.0.1:$port->{$role->[0]}
    option httpchk OPTIONS /$role->[1]
    http-check expect status 200
    default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
CFG
		$text .= "    server node$_ 127.0.0.1:$port->{\"pg$_\"} check port $port->{\"rest$_\"}\n" foreach 1 .. 3;
	}
	return $text;
}

# The same lines as in docs/operation/high-availability.md.
sub node_file
{
	my ($self, $i) = @_;
	my ($port, $dcs, $dir) = @$self{qw(port dcs dir)};
	my $bin = `pg_config --bindir`;

	chomp $bin;
	my $ours = $self->{bare} ? '{}' : "\n" . <<'YML' =~ s/^/ ' ' x 8/megr;
shared_preload_libraries: lock_election
max_worker_processes: 16
lock_election.max_databases: 4
YML
	chomp $ours;
	return <<"YML";
scope: ha
namespace: /lock_election/
name: node$i
restapi: {listen: "127.0.0.1:$port->{"rest$i"}", connect_address: "127.0.0.1:$port->{"restproxy$i"}"}
$self->{etcd}: {hosts: ["127.0.0.1:$port->{"etcd$i"}"], use_proxies: true}
bootstrap:
  dcs:
    ttl: $dcs->{ttl}
    loop_wait: $dcs->{loop_wait}
    retry_timeout: $dcs->{retry_timeout}
    maximum_lag_on_failover: 1048576
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: $ours
  initdb: [{encoding: UTF8}, {locale: C.UTF-8}, no-sync]
  post_bootstrap: $dir/post_bootstrap
postgresql:
  listen: 127.0.0.1:$port->{"pg$i"}
  connect_address: 127.0.0.1:$port->{"pgproxy$i"}
  data_dir: $dir/node$i/data
  bin_dir: $bin
  pgpass: $dir/node$i/pgpass
  authentication:
    superuser: {username: postgres, password: x}
    replication: {username: postgres, password: x}
  basebackup: [{checkpoint: fast}, no-sync]
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
  parameters: {unix_socket_directories: "", shared_buffers: 32MB, wal_log_hints: "on", wal_keep_size: 64MB, logging_collector: "off", dynamic_shared_memory_type: mmap, log_line_prefix: "%m [%p] %b %a "}
watchdog: {mode: "off"}
YML
}

sub write_files
{
	my ($self) = @_;
	my $port = $self->{port};

	$self->write_file('post_bootstrap', <<"SH" . <<'SH', 0755);
#!/bin/sh -e
exec 2>>$self->{dir}/log/post_bootstrap.log
SH
# Patroni gives the connection string of the new cluster, as its superuser.
psql -Xqd "$1" -c 'CREATE DATABASE app'
[ "$LE_HA_BARE" ] || psql -Xqd "$1 dbname=app" -c 'CREATE EXTENSION lock_election'
SH
	foreach my $i (1 .. 3)
	{
		$self->write_file("node$i.yml", $self->node_file($i));
		$self->write_file("etcd$i.cfg", forwarder($port->{"etcd$i"} => $port->{etcd}));
		$self->write_file("node$i.cfg", forwarder($port->{"pgproxy$i"} => $port->{"pg$i"}, $port->{"restproxy$i"} => $port->{"rest$i"}));
	}
	$self->write_file('haproxy.cfg', $self->balancer);
	$self->write_file('pgbouncer.ini', <<"INI");
[databases]
app = host=127.0.0.1 port=$port->{haproxy} dbname=app user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port->{pgbouncer}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 40
server_connect_timeout = 3
server_login_retry = 1
query_wait_timeout = 10
INI
	return;
}

# --- processes ------------------------------------------------------------------------------------------------------

sub spawn
{
	my ($self, $name, @command) = @_;
	my $pid = fork // die $!;

	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', "$self->{dir}/log/$name.log";
		open STDERR, '>&', \*STDOUT;
		POSIX::setsid();
		$ENV{LE_HA_BARE} = $self->{bare} // '';
		exec @command or POSIX::_exit(1);
	}
	$self->{pid}{$name} = $pid;
	return;
}

sub start_etcd
{
	my ($self) = @_;
	my ($client, $peer) = map { "http://127.0.0.1:$self->{port}{$_}" } qw(etcd peer);

	$self->spawn('etcd', find_program('etcd'), '--name', 'e1', '--data-dir', "$self->{dir}/etcd",
		($self->{etcd} eq 'etcd' ? '--enable-v2' : ()),
		'--listen-client-urls', $client, '--advertise-client-urls', $client, '--listen-peer-urls', $peer,
		'--initial-advertise-peer-urls', $peer, '--initial-cluster', "e1=$peer",
		# because three nodes and their clients share this machine
		'--heartbeat-interval', 300, '--election-timeout', 3000);
	return;
}

sub start_proxy { my ($self, $name) = @_; return $self->spawn("proxy $name", find_program('haproxy'), '-db', '-f', "$self->{dir}/$name.cfg"); }

sub start_patroni { my ($self, $i) = @_; return $self->spawn("patroni$i", find_program('patroni'), "$self->{dir}/node$i.yml"); }

sub children
{
	my %parent = map { $_ => 1 } @_;
	my @children;

	foreach my $file (glob '/proc/[0-9]*/stat')
	{
		open my $f, '<', $file or next;
		my ($pid, $parent) = (<$f> // '') =~ /^(\d+) \(.*\) \w (\d+) /;
		push @children, $pid if defined $pid && $parent{$parent};
	}
	return @children;
}

sub descendants
{
	my @new = @_;
	my @all;

	push @all, @new while @new = children(@new);
	return @all;
}

# Returns the pid of a node's server, which is not a child of Patroni if Patroni was restarted.
sub postmaster
{
	my ($self, $i) = @_;

	open my $f, '<', "$self->{dir}/node$i/data/postmaster.pid" or return ();
	my $pid = <$f>;
	close $f;
	chomp $pid if defined $pid;
	return defined $pid && $pid =~ /^\d+$/ && kill(0, $pid) ? $pid : ();
}

sub server { my ($self, $i) = @_; my @postmaster = $self->postmaster($i); return (@postmaster, descendants(@postmaster)); }

# Returns the pids of Patroni, without the server.
sub agent
{
	my ($self, $i) = @_;
	my %server = map { $_ => 1 } $self->server($i);
	my $pid = $self->{pid}{"patroni$i"};
	return grep { !$server{$_} } $pid, descendants($pid);
}

sub signal { my ($self, $signal, @pids) = @_; return kill $signal, @pids; }

# Waits for the end of a process that this module has started.
sub reap
{
	my ($self, $name) = @_;
	my $pid = delete $self->{pid}{$name} or return;

	waitpid $pid, 0;
	return;
}

sub kill_agent { my ($self, $i) = @_; $self->signal('KILL', $self->agent($i)); return $self->reap("patroni$i"); }

sub kill_server { my ($self, $i) = @_; return $self->signal('KILL', $self->server($i)); }

sub stop
{
	my ($self) = @_;
	my @servers = map { $self->server($_) } 1 .. 3;
	my @pids = values %{ $self->{pid} };

	# The order matters: Patroni would restart its server.
	kill 'CONT', @pids, @servers;
	kill 'KILL', map { $self->agent($_) } grep { $self->{pid}{"patroni$_"} } 1 .. 3;
	kill 'QUIT', map { $self->postmaster($_) } 1 .. 3;
	LeTest::wait_until(sub { !map { $self->postmaster($_) } 1 .. 3 }, 20) or kill 'KILL', @servers;
	kill 'KILL', @pids;
	waitpid $_, 0 foreach @pids;
	$self->{pid} = {};
	return;
}

END
{
	local $?;
	$_->stop foreach grep { %{ $_->{pid} } } @clusters;
}

# --- the cluster ----------------------------------------------------------------------------------------------------

sub wait_for
{
	my ($self, $what, $code, $seconds) = @_;
	my $start = time;

	LeTest::wait_until($code, $seconds // 90) or die "not within @{[ $seconds // 90 ]} s: $what\n" . $self->ends_of_logs;
	note sprintf '%s after %.1f s', $what, time - $start;
	return;
}

sub ends_of_logs
{
	my ($self) = @_;
	return join '', map { "--- $_\n" . `tail -n 12 '$_'` } glob "$self->{dir}/log/*.log $self->{dir}/log/*/*";
}

sub rest
{
	my ($self, $i, $path, $method, $content) = @_;
	my $answer = $self->{http}->request($method // 'GET', "http://127.0.0.1:$self->{port}{\"rest$i\"}/$path", { content => $content // '' });
	return $answer;
}

# Runs patronictl, and returns its output.
sub ctl
{
	my ($self, @arguments) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'timeout', 60, find_program('patronictl'), '-c', "$self->{dir}/node1.yml", @arguments ], '<', '/dev/null', '>', \$out, '2>', \$err);
	note "patronictl @arguments\n$out$err";
	return $out . $err;
}

sub is_primary { my ($self, $i) = @_; return $self->rest($i, 'primary')->{status} == 200; }

# Returns the number of the primary node, other than the given one.
sub leader
{
	my ($self, $but) = @_;
	my ($leader) = grep { $_ != ($but // 0) && $self->is_primary($_) } 1 .. 3;
	return $leader;
}

sub members
{
	my ($self) = @_;

	foreach my $i (1 .. 3)
	{
		my $answer = $self->rest($i, 'cluster');
		my $cluster = eval { decode_json($answer->{content}) };
		return @{ $cluster->{members} } if $answer->{success} && $cluster;
	}
	return;
}

sub all_running
{
	my ($self) = @_;
	my @members = $self->members;

	return
	     @members == 3
	  && (grep { $_->{role} =~ /^(leader|primary|master)$/ } @members) == 1
	  && (grep { $_->{state} =~ /^(running|streaming)$/ } @members) == 3
	  && $self->standbys_stream;
}

# Checks that PostgreSQL has the replication mode that Patroni was asked for, and that the standbys have caught up.
sub standbys_stream
{
	my ($self) = @_;
	my $leader = $self->leader or return 0;
	my $sync = ($self->{mode} // 'async') ne 'async';

	return $self->sql($leader, q{SET synchronous_commit = local; SELECT count(*) FILTER (WHERE state = 'streaming') || ' ' || } .
		q{count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication}) =~ ($sync ? qr/^2 [1-9]/ : qr/^2 0/);
}

# Returns the output of a statement, or "" if there is no reply.
sub sql
{
	my ($self, $where, $sql) = @_;
	my $port = $self->{port}{ $where =~ /^\d+$/ ? "pg$where" : $where };
	my ($out, $err) = ('', '');

	eval {
		IPC::Run::run([ 'psql', '-XAtqd', "host=127.0.0.1 port=$port dbname=app user=postgres connect_timeout=2", '-c', $sql ],
			'<', '/dev/null', '>', \$out, '2>', \$err, IPC::Run::timeout(10));
	};
	chomp $out;
	$self->{error} = $err;
	return $out;
}

sub set_mode
{
	my ($self, $mode) = @_;
	my $on = sub { $_[0] ? 'true' : 'false' };
	my $durability = $mode =~ /remote/ ? 'remote' : 'off';
	my $json = sprintf '{"synchronous_mode": %s, "synchronous_mode_strict": %s, "postgresql": {"parameters": {"lock_election.min_durability": "%s"}}}',
	  $on->($mode ne 'async'), $on->($mode =~ /strict/), $durability;

	$self->{mode} = $mode;
	$self->wait_for("mode $mode", sub { $self->rest($self->leader // 1, 'config', 'PATCH', $json)->{success} });
	$self->wait_for("mode $mode in PostgreSQL",
		sub { $self->all_running && !grep { $self->sql($_, 'SHOW lock_election.min_durability') ne $durability } 1 .. 3 });
	return;
}

sub conninfo
{
	my ($self, $where) = @_;
	my $port = $self->{port};
	my $common = 'dbname=app user=postgres application_name=torture connect_timeout=2';

	return "host=127.0.0.1,127.0.0.1,127.0.0.1 port=$port->{pg1},$port->{pg2},$port->{pg3} target_session_attrs=read-write $common"
	  if $where eq 'hosts';
	return "host=127.0.0.1 port=@{[ $port->{$where =~ /^\d+$/ ? qq{pg$where} : $where} ]} $common";
}

# --- faults ---------------------------------------------------------------------------------------------------------

sub new_leader
{
	my ($self, $old) = @_;

	$self->wait_for('a new leader', sub { $self->leader($old) });
	$self->{new_leader_at} = clock_gettime(CLOCK_MONOTONIC);
	return;
}

# Each function starts a fault, keeps it for a while, and ends it. A node that is no longer the primary keeps replying
# to its clients for 8 s more, while clients of the new primary are granted its locks.
use constant AFTER => 8;

our %FAULTS = (
	'switchover' => sub {
		my ($self, $old) = @_;
		$self->ctl('switchover', '--force', 'ha');
		$self->new_leader($old);
	},
	'kill -9 node' => sub {
		my ($self, $old) = @_;
		$self->kill_agent($old);
		$self->kill_server($old);
		$self->new_leader($old);
		sleep 3;
		$self->start_patroni($old);
	},
	'kill -9 server' => sub {
		my ($self, $old) = @_;
		$self->kill_server($old);
		$self->wait_for('a leader', sub { $self->leader });
	},
	'kill -9 Patroni' => sub {
		my ($self, $old) = @_;
		$self->kill_agent($old);
		$self->new_leader($old);
		sleep AFTER;
		$self->start_patroni($old);
	},
	'stop node' => sub {
		my ($self, $old) = @_;
		my @pids = ($self->agent($old), $self->server($old));
		$self->signal('STOP', @pids);
		$self->new_leader($old);
		sleep AFTER;
		$self->signal('CONT', @pids);
	},
	'stop Patroni' => sub {
		my ($self, $old) = @_;
		my @pids = $self->agent($old);
		$self->signal('STOP', @pids);
		$self->new_leader($old);
		sleep AFTER;
		$self->signal('CONT', @pids);
	},
	'no etcd for the primary' => sub { my ($self, $old) = @_; return $self->cut($old, "proxy etcd$old"); },
	'no etcd and no standbys' => sub { my ($self, $old) = @_; return $self->cut($old, "proxy etcd$old", "proxy node$old"); },
	'all standbys down' => sub {
		my ($self, $old) = @_;
		my @standbys = grep { $_ != $old } 1 .. 3;
		foreach my $i (@standbys)
		{
			$self->kill_agent($i);
			$self->kill_server($i);
		}
		sleep 20;
		$self->start_patroni($_) foreach @standbys;
	},
	'etcd down' => sub {
		my ($self) = @_;
		$self->signal('STOP', $self->{pid}{etcd});
		sleep 25;
		$self->signal('CONT', $self->{pid}{etcd});
	});
our @FAULTS = ('switchover', 'kill -9 node', 'kill -9 server', 'kill -9 Patroni', 'stop node', 'stop Patroni', 'no etcd for the primary',
	'no etcd and no standbys', 'all standbys down', 'etcd down');

sub cut
{
	my ($self, $old, @proxies) = @_;
	my @pids = map { $self->{pid}{$_} } @proxies;

	$self->signal('STOP', @pids);
	$self->new_leader($old);
	sleep AFTER;
	return $self->signal('CONT', @pids);
}

sub run_fault
{
	my ($self, $name, $old) = @_;

	$FAULTS{$name}->($self, $old);
	return;
}

1;
