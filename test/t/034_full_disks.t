# A full disk, with the WAL or with the tables. Acknowledged changes are kept, and if the server continues, so do all
# requests that need no space.
# Promises: D
use strict;
use warnings;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $disks = $ENV{LE_DISKS};
if (!$disks)
{
	diag 'NO SMALL DISKS HERE (tmpfs cannot be mounted): full disks are not tested';
	plan skip_all => 'no small disks here';
}

sub fill
{
	my ($disk) = @_;

	open my $f, '>>', "$disk/full" or die $!;
	foreach my $size (65536, 4096)
	{
		1 while (syswrite($f, "\0" x $size) // 0) == $size;
	}
	close $f;
	return;
}

my $many = 5000; # upper limit; each needs about 4 kB in the WAL and in the table

# Elects leaders of many elections until one fails. Returns the successful elections and terms.
sub elect_until_full
{
	my ($s) = @_;
	my %term;

	foreach my $i (1 .. $many)
	{
		my $term = $s->query("SELECT campaign('e $i', repeat('x', 4000), '1 h', wait => '0')");

		last if !defined $term || $term !~ /^\d+$/;
		$term{"e $i"} = $term;
	}
	return %term;
}

sub lost
{
	my ($node, $db, %term) = @_;
	my $list = join ', ', map { "('$_', $term{$_})" } sort keys %term;

	return $node->safe_psql($db, "SELECT count(*) FROM (VALUES $list) AS t(name, term) WHERE NOT is_leader(name, term)");
}

subtest 'full disk of the WAL' => sub {
	my $node = new_node('wal', init => [ extra => [ '--wal-segsize', '1' ] ], start => 0,
		conf => "autovacuum = off\nmin_wal_size = 2MB\nmax_wal_size = 1GB\ncheckpoint_timeout = 1h\n");
	my $wal = $node->data_dir . '/pg_wal';

	system_or_bail('mv', $wal, "$disks/wal/pg_wal");
	symlink "$disks/wal/pg_wal", $wal or die $!;
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION lock_election');
	my $s = session($node);
	my $held = $s->query(q{SELECT acquire_lock('before', '1 h')});
	my $place = $s->query(q{SELECT token FROM enqueue_lock('before', '1 h')});

	fill("$disks/wal");
	my %term = elect_until_full($s);
	my $n = keys %term;
	cmp_ok($n, '<', $many, 'in the end, an election gets no reply');
	note("$n elections succeeded; then: " . $s->error);
	like(slurp_file($node->logfile), qr/PANIC:  could not write to file "pg_wal\/.*No space left on device/, 'the server panics, as PostgreSQL does');

	# PostgreSQL may or may not start again before space is available.
	unlink "$disks/wal/full" or die $!;
	$node->stop('immediate', fail_ok => 1);
	$node->start;
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.manager');
	is(lost($node, 'postgres', %term), 0, 'all leaders whose election was confirmed are still leaders');
	is($node->safe_psql('postgres', "SELECT is_held('before', $held)"), 't', 'the lock is still held');
	is($node->safe_psql('postgres', "SELECT await_lock('before', $place)"), 'f', 'the place still exists');
	cmp_ok($node->safe_psql('postgres', q{SELECT acquire_lock('after', '1 h')}), '>', (sort { $b <=> $a } $held, values %term)[0], 'the next token is above all earlier ones');
	$s->quit;
	$node->stop;
};

subtest 'full disk of the tables' => sub {
	my $node = new_node('tables', conf => "autovacuum = off\n");

	mkdir "$disks/tables/space", 0700 or die $!;
	$node->safe_psql('postgres', "CREATE TABLESPACE small LOCATION '$disks/tables/space'");
	$node->safe_psql('postgres', 'CREATE DATABASE small TABLESPACE small');
	$node->safe_psql('small', 'CREATE EXTENSION lock_election');
	my ($s, $other) = map { session($node, dbname => 'small') } 1 .. 2;
	my %held = map { $_ => $other->query("SELECT acquire_lock('$_', '1 h')") } 'renewed', 'released';
	my $waiter = session($node, dbname => 'small');
	$waiter->async(q{SELECT acquire_lock('released', '1 h')});
	wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.waiters}, 't', dbname => 'small');

	my %term = map { $_ => $s->query("SELECT campaign('$_', repeat('x', 4000), '1 h')") } map { "before $_" } 1 .. 20;
	fill("$disks/tables");
	%term = (%term, elect_until_full($s));
	cmp_ok(scalar keys %term, '<', $many, 'in the end, an election fails');
	like($s->error, qr/ERROR:  53100: could not extend file .*No space left on device/,
		'the error says that the disk is full');
	is($s->query('SELECT 1'), 1, 'the server keeps running');
	is($other->query("SELECT renew_lock('renewed', $held{renewed}) > '59 min'"), 't',
		'a renewal succeeds on the full disk') or diag($other->error);
	is($other->query("SELECT release_lock('released', $held{released})"), 't',
		'a release succeeds on the full disk') or diag($other->error);
	cmp_ok($waiter->wait, '>', $held{released}, 'the waiter is granted the lock on the full disk');
	is(lost($node, 'small', %term), 0, 'all leaders are still leaders');
	cmp_ok($node->safe_psql('small', 'SELECT failed_batches FROM lock_election.stat'), '>', 0, 'stat.failed_batches counts the failures');

	# A new manager needs no additional space.
	my $manager = $node->safe_psql('small', 'SELECT pid FROM lock_election.manager');
	$node->safe_psql('small', "SELECT pg_terminate_backend($manager)");
	wait_for_sql($node, "SELECT pid <> $manager FROM lock_election.manager", 't', dbname => 'small');
	is(lost($node, 'small', %term), 0, 'all leaders are still leaders after the manager was replaced');

	unlink "$disks/tables/full" or die $!;
	like($s->query(q{SELECT campaign('after', 'x', '1 h', wait => '20 s')}), qr/^\d+$/, 'an election succeeds when space is available') or diag($s->error);
	is(lost($node, 'small', %term), 0, 'all leaders are still leaders when space is available');
	is($node->safe_psql('small', "SELECT is_held('renewed', $held{renewed})"), 't', 'the renewed lock is still held');
	$_->quit foreach $s, $other, $waiter;
	$node->stop;
};

done_testing();
