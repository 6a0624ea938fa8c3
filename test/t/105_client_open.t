# How sessions of the library are opened, and their errors.
# Promises: -
# Needs: client
use strict;
use warnings;
use IO::Socket::INET;
use IO::Socket::UNIX;
use LeClient;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', init => [ allows_streaming => 1 ], conf => "listen_addresses = '127.0.0.2'\n");
my $bare = PostgreSQL::Test::Cluster->new('bare');
$bare->init;
$bare->start;
$bare->safe_psql('postgres', 'SET client_min_messages = error; CREATE EXTENSION lock_election');
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;

$node->safe_psql('postgres', q{CREATE USER secret PASSWORD 'right'; CREATE DATABASE bare});
my $hba = $node->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
unlink $hba;
append_to_file($hba, "local all secret scram-sha-256\nhost all all 127.0.0.0/8 trust\n$rules");
$node->reload;

# Accepts connections (in the kernel), and never replies.
my @silent = map { IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1') } 1 .. 2;
my @mute = map { $_->sockport } @silent;
# Another address, with the port of the server.
push @silent, IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1', LocalPort => $node->port) // die "no port: $!";
my $mute_socket = PostgreSQL::Test::Cluster::get_free_port();
push @silent, IO::Socket::UNIX->new(Listen => 50, Local => $node->host . "/.s.PGSQL.$mute_socket") // die "no socket: $!";
my $closed = PostgreSQL::Test::Cluster::get_free_port();
my ($host, $port) = ($node->host, $node->port);
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/services", <<"SERVICES");
[well]
host=$host
port=$port
dbname=postgres
[silent]
host=127.0.0.1,$host
port=$mute[0],$port
dbname=postgres
SERVICES
$ENV{PGSERVICEFILE} = "$dir/services";

(my $escaped = $host) =~ s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/ge;
my %conninfo = (
	plain => $node->connstr('postgres'),
	uri => "postgresql://$escaped:$port/postgres",
	service => 'service=well',
	closed => "host=127.0.0.1 port=$closed dbname=postgres",
	password => $node->connstr('postgres') . ' user=secret password=wrong',
	no_password => $node->connstr('postgres') . ' user=secret',
	database => $node->connstr('missing'),
	extension => $node->connstr('bare'),
	library => $bare->connstr('postgres'),
	standby => $standby->connstr('postgres'),
	nonsense => 'host=x nonsense=1',
	silent => "host=127.0.0.1 port=$mute[0] dbname=postgres",
	silent_timeout => "host=127.0.0.1 port=$mute[0] dbname=postgres connect_timeout=1",
	closed_first => "host=127.0.0.1,$host port=$closed,$port dbname=postgres",
	standby_first => 'host=' . $standby->host . ",$host port=" . $standby->port . ",$port dbname=postgres",
	standby_any => 'host=' . $standby->host . ",$host port=" . $standby->port . ",$port dbname=postgres target_session_attrs=any",
	standbys_any => 'host=' . join(',', ($standby->host) x 2) . ' port=' . join(',', ($standby->port) x 2) . ' dbname=postgres target_session_attrs=any',
	silent_first => "host=127.0.0.1,$host port=$mute[0],$port dbname=postgres",
	silent_service => 'service=silent',
	standby_silent => "host=$host,$host port=" . $standby->port . ",$mute_socket dbname=postgres",
	one_port => "host=127.0.0.1,$host port=$port dbname=postgres",
	one_silent_port => "host=127.0.0.3,127.0.0.1,127.0.0.2 port=$port dbname=postgres",
	addresses => "hostaddr=127.0.0.1,127.0.0.2 port=$port dbname=postgres",
	more_addresses => "hostaddr=127.0.0.1,127.0.0.1,127.0.0.2 port=$closed,$mute[0],$port dbname=postgres",
	names_and_addresses => "host=a,b hostaddr=127.0.0.1,127.0.0.2 port=$mute[0],$port dbname=postgres",
	silent_between => 'host=' . '127.0.0.1,' x 6 . "$host port=" . "$closed," x 5 . "$mute[0],$port dbname=postgres",
	silent_twice => "host=127.0.0.1,127.0.0.1,$host port=$mute[0],$mute[1],$port dbname=postgres",
);

# The addresses to which each of these connects, in order: "socket.PORT", or address and port.
my $local = '127.0.0.1';
my %order = (
	silent_first => "$local:$mute[0] socket.$port",
	silent_service => "$local:$mute[0] socket.$port",
	standby_silent => 'socket.' . $standby->port . " socket.$mute_socket",
	silent_twice => "$local:$mute[0] $local:$mute[1] socket.$port",
	silent_between => "$local:$closed " x 5 . "$local:$mute[0] socket.$port",
	one_port => "$local:$port socket.$port",
	one_silent_port => "127.0.0.3:$port $local:$port 127.0.0.2:$port",
	addresses => "$local:$port 127.0.0.2:$port",
	more_addresses => "$local:$closed $local:$mute[0] 127.0.0.2:$port",
	names_and_addresses => "$local:$mute[0] 127.0.0.2:$port",
);

client_test('open', $node->connstr('postgres'), do => {
	conninfo => sub { $conninfo{ $_[0] } // die $_[0] },
	order => sub { ($order{ $_[0] } // die $_[0]) . ' ' },
});
nothing_left($node);
$_->stop foreach $standby, $bare, $node;
done_testing();
