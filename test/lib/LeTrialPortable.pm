# Runs tests on a mutant of the portable edition: the contract in a fresh database of a running server, then its own
# tests.
package LeTrialPortable;

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter 'import';
use IPC::Run ();
use LeMutants;
use LeMutate;
use LePortable;
use LeTrial;

our @EXPORT = qw(portable_verdict try_portable stop_portable);

# Tests that start their own servers, with their time limits in seconds.
my @tests = ([ 'test/t/068_portable_sync.t', 300 ], [ 'test/t/063_portable.t', 600 ], [ 'test/t/064_portable_differs.t', 300 ],
	[ 'test/t/069_portable_rules.t', 300 ], [ 'test/t/065_portable_moves.t', 600 ]);
my %server;    # of each worker
my $databases = 0;

sub run_ok { my @command = @_; my $out = ''; IPC::Run::run(\@command, '<', \undef, '>&', \$out) or die "@command: $out"; return $out; }

# Starts the server of this worker, and returns the directory of its socket.
sub server
{
	my ($worker) = @_;

	return $server{$worker} if $server{$worker};
	my $dir = "$ENV{LE_RUN}/work/mutants$worker";
	run_ok('cp', '-RPp', $ENV{INITDB_TEMPLATE}, $dir);
	open(my $conf, '>>', "$dir/postgresql.conf") or die $!;
	print $conf "listen_addresses = ''\nunix_socket_directories = '$dir'\nport = 5432\nfsync = off\nshared_buffers = 16MB\nlog_min_messages = panic\nstatement_timeout = 20s\n";
	close $conf;
	run_ok('pg_ctl', '-D', $dir, '-l', "$dir/log", '-w', '-s', 'start');
	run_ok('psql', '-XAtq', '-d', "host=$dir dbname=postgres", '-c', 'CREATE ROLE installer LOGIN');
	# Contents of all new databases.
	run_ok('psql', '-XAtq', '-d', "host=$dir dbname=template1", '-c', 'CREATE EXTENSION pgtap', '-c', 'GRANT CREATE ON SCHEMA public TO installer');
	return $server{$worker} = $dir;
}

sub stop_portable
{
	foreach my $dir (values %server) { IPC::Run::run([ 'pg_ctl', '-D', $dir, '-m', 'immediate', '-s', 'stop' ]); }
	%server = ();
	return;
}

# Creates a database and installs the file. Returns its connection string, or undef if the file cannot be installed.
sub database_with
{
	my ($worker, $sql) = @_;
	my $dir = server($worker);
	my $db = 'm' . ++$databases;
	my $postgres = "host=$dir dbname=postgres";
	my $out = '';

	run_ok('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $postgres, '-c', "CREATE DATABASE $db", '-c', "GRANT CREATE ON DATABASE $db TO installer");
	spew("$dir/mutant.sql", $sql);
	return ("host=$dir dbname=$db", $db) if IPC::Run::run([ 'psql', '-XAtq', '-1', '-v', 'ON_ERROR_STOP=1', '-d', "host=$dir dbname=$db user=installer", '-f', "$dir/mutant.sql" ], '>&', \$out);
	drop($worker, $db);
	return;
}

# Drops the database, and the roles that its tests have left over.
sub drop
{
	my ($worker, $db) = @_;

	my $postgres = "host=$server{$worker} dbname=postgres";
	run_ok('psql', '-XAtq', '-d', $postgres, '-c', "DROP DATABASE $db WITH (FORCE)");
	my @roles = split /\n/, run_ok('psql', '-XAtq', '-d', $postgres, '-c', q{SELECT quote_ident(rolname) FROM pg_roles WHERE oid >= 16384 AND rolname <> 'installer'});
	run_ok('psql', '-XAtq', '-d', $postgres, '-c', 'DROP ROLE ' . join ', ', @roles) if @roles;
	return;
}

# Returns the assembled file with the fault in one of its parts.
sub assembled
{
	my ($site, $text) = @_;

	spew($site->{file}, mutated($site, $text));
	my $sql = run_ok('sql/portable/assemble');
	spew($site->{file}, $text);
	return $sql;
}

sub portable_verdict
{
	my ($site, $text) = @_;
	my $sql = assembled($site, $text);
	my ($connstr, $db) = database_with(0, $sql) or return ('not compiled', '');

	drop(0, $db);
	return ('counts', sha256_hex($sql));
}

# Installs the mutant once, and copies the database for each part of the contract.
sub broken_contract
{
	my ($worker, $sql) = @_;
	my (undef, $base) = database_with($worker, $sql) or return 'cannot be installed';
	my $copy = "${base}_copy";
	my $broken;

	foreach my $file (contract_files())
	{
		run_ok('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', "host=$server{$worker} dbname=postgres", '-c', "CREATE DATABASE $copy TEMPLATE $base");
		$broken = eval { local $SIG{ALRM} = sub { die "timed out\n" }; alarm 120; my $b = contract_broken("host=$server{$worker} dbname=$copy", $file); alarm 0; $b } // $@;
		alarm 0;
		drop($worker, $copy);
		if ($broken) { $broken = "$file: " . (split /\n/, $broken)[0]; last; }
	}
	drop($worker, $base);
	return $broken;
}

# Returns what caught the mutant, or undef.
sub try_portable
{
	my ($site, $text, $worker, $passed) = @_;

	# The server does not belong to the tree of the worker, whose programs are ended after each test.
	server($worker);
	enter_tree($worker);
	my $sql = assembled($site, $text);
	my $broken = broken_contract($worker, $sql);
	return $broken if $broken;

	# Include the copy that Go embeds, because a test compares the two.
	my @files = map { "$_/lock_election.sql" } qw(sql/portable clients/go);
	my $original = slurp($files[0]);
	my $seed = sub {
		my ($is_mutant) = @_;

		spew($site->{file}, $is_mutant ? mutated($site, $text) : $text);
		spew($_, $is_mutant ? $sql : $original) foreach @files;
		return;
	};
	my $caught;
	local $ENV{LE_SEED} = 1;
	foreach my $t (@tests)
	{
		my $digest = sha256_hex(slurp($t->[0]));

		next if ($passed->{ $t->[0] } // '') eq $digest;
		$seed->(1);
		my ($ok, $failed, $timed_out, $died) = run_test($t->[0], 30, $t->[1]);

		$seed->(0);
		# A timeout on a busy machine does not count: the test must pass without the mutant.
		next if ($timed_out || $died) && !(run_test($t->[0], 30, $t->[1]))[0];
		if (!$ok) { $caught = "$t->[0]: $failed"; last; }
		$passed->{ $t->[0] } = $digest;
	}
	return $caught;
}

1;
