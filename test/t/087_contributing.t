# Follows the two guides of CONTRIBUTING.md, to change a message and to add an SQL function: runs their blocks in a copy
# of the tree, installs the result, and queries it in both editions. A command with the comment "# fails" must fail
# because of its tests.
# Promises: -
use strict;
use warnings;
use IPC::Run ();
use LeDocs;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

chomp(my $bin = `$ENV{PG_CONFIG} --bindir`);
my ($root, $version_dir) = $bin =~ m{^(.*)(/usr/lib/postgresql/[^/]+)/bin$} or plan skip_all => 'not an installation of our own';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $tree = "$dir/tree";
# The environment of a newcomer: nothing of the current test run. Without optimisation, because it only slows down the
# build.
my @env = ('env', '-i', "HOME=$ENV{HOME}", "TMPDIR=$ENV{TMPDIR}", 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
	'LC_ALL=C.UTF-8', 'COPT=-O0 -U_FORTIFY_SOURCE', 'PG_MAJOR=' . $version_dir =~ s{.*/}{}r,
	map { "$_=$ENV{$_}" } grep { $ENV{$_} } 'LE_PGTAP');

# Returns exit status and output of a command in the copy.
sub run_in_tree
{
	my ($command) = @_;
	my $out = '';
	my $run = IPC::Run::start([ @env, 'bash', '-c', $command ], '<', '/dev/null', '>&', \$out, init => sub { chdir $tree or die $!; },
		IPC::Run::timeout(10 * $PostgreSQL::Test::Utils::timeout_default));

	$run->finish;
	return ($run->full_result(0), $out);
}

# Returns the commands of a block: each is a line, with the here-document that follows it.
sub commands_of
{
	my ($text) = @_;
	my ($end, @commands);

	foreach my $line (split /\n/, $text)
	{
		if (defined $end)
		{
			$commands[-1] .= "\n$line";
			undef $end if $line eq $end;
			next;
		}
		push @commands, $line;
		$end = $1 if $line =~ /<<'(\w+)'/;
	}
	return @commands;
}

mkdir $tree or die $!;
is(system("tar --exclude=./build --exclude=./tmp_check --exclude='*.o' --exclude='*.d' --exclude='*.so' -cf - . | tar -C '$tree' -xf -"), 0, 'the tree is copied');

my %walk; # number of commands, by section
my $failed = 0;
foreach my $block (grep { $_->{word} eq 'sh' } blocks_of(slurp_file('CONTRIBUTING.md')))
{
	foreach my $command (commands_of($block->{text}))
	{
		my $fails = $command =~ /# fails/;
		my ($rc, $out) = run_in_tree($command);
		my $name = "line $block->{line}: " . (split /\n/, $command)[0];

		$walk{ $block->{section} }++;
		ok($fails ? $rc != 0 && $out =~ /^Result: FAIL/m : $rc == 0, $name) or diag($out);
		ok($out =~ /^Result: (?:PASS|FAIL)/m && $out !~ /\bNOTESTS\b|\bskipped\b/, "$name: has run tests") or diag($out) if $command =~ /^make test /;
		# The failure shows both the current and the expected message.
		like($out, qr/cannot hold versions.*cannot be a version|cannot be a version.*cannot hold versions/s, "$name: shows both messages") if $fails;
		$failed++ if $fails;
	}
}
is_deeply([ map { $walk{$_} > 5 } sort keys %walk ], [ 1, 1 ], 'there are two guides with more than 5 commands each') or diag(explain(\%walk));
is($failed, 1, 'one test has failed before its change');

# --- the result of the guides ---

my ($rc, $out) = run_in_tree("cp -a '$root/usr' '$dir/usr' && make -s PG_CONFIG='$dir$version_dir/bin/pg_config' install");
is($rc, 0, 'the result is installed') or diag($out);
my $node = new_node('main', install => "$dir$version_dir");
$node->safe_psql('postgres', 'CREATE DATABASE portable');
install_portable($node, 'portable', "$tree/sql/portable/lock_election.sql");
foreach my $db ('postgres', 'portable')
{
	my $answer = $node->safe_psql($db, q{SELECT name_length('é'), obj_description('name_length'::regproc)});
	my $err = '';

	like($answer, qr/^2\|Returns the length/, "$db: the new function works");
	$node->safe_psql($db, q{CREATE TABLE t AS SELECT ''::text AS n; CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION version_guard('n')});
	$node->psql($db, q{UPDATE t SET n = 'x'}, stderr => \$err);
	like($err, qr/column "n" of table "t" cannot hold versions/, "$db: the message is changed");
}
like(slurp_file("$tree/docs/reference/functions.md"), qr/^### name_length$/m, 'the reference has the new function');
$node->stop;
done_testing();
