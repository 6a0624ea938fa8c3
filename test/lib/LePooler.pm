# Starts PgBouncer in front of a server.
package LePooler;
use strict;
use warnings;
use Exporter 'import';
use IPC::Run ();
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(find_pgbouncer start_pgbouncer stop_pgbouncer);

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
my @poolers;

# Skips the test if PgBouncer is not installed.
sub find_pgbouncer
{
	plan skip_all => 'pgbouncer is not installed' unless defined $pgbouncer;
	return;
}

# Options: databases (name => options of its pool), settings (more lines). Returns the folder of the socket, and its
# port.
sub start_pgbouncer
{
	my ($node, %opts) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $target = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres user=' . getpwuid($<);
	my $databases = join '', map { "$_ = $target $opts{databases}{$_}\n" } sort keys %{ $opts{databases} };
	my $settings = join '', map { "$_\n" } @{ $opts{settings} // [] };
	append_to_file("$dir/pgbouncer.ini", <<"INI");
[databases]
$databases
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
ignore_startup_parameters = extra_float_digits,options
$settings
INI
	my ($in, $log) = ('', '');
	my $pooler = IPC::Run::start([ $pgbouncer, "$dir/pgbouncer.ini" ], '<', \$in, '>&', \$log);
	push @poolers, $pooler;
	wait_until(sub { $pooler->pump_nb; return -S "$dir/.s.PGSQL.$port" || !$pooler->pumpable; });
	die $log unless -S "$dir/.s.PGSQL.$port";
	return ($dir, $port);
}

# Stops all started poolers, also at the end of a test that dies.
sub stop_pgbouncer
{
	(shift @poolers)->kill_kill while @poolers;
	return;
}

END
{
	my $status = $?;
	stop_pgbouncer();
	$? = $status;
}

1;
