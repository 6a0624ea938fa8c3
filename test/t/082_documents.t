# Runs every code block of README and of the pages for users, and compares its output with the text. LeDocs.pm describes
# the blocks.
#
# ENGINE=portable: runs README and the pages that it links to on the portable edition, installed by an ordinary role,
# without the blocks that install the extension. 086_documents_portable.t does that.
# Promises: -
# Needs: client, lockctl, pkg-config, python3-psycopg
use strict;
use warnings;
use Cwd;
use File::Path qw(make_path);
use LeDocs;
use LeTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $work = PostgreSQL::Test::Utils::tempdir();
my $src = getcwd();

# "ini" blocks make the settings of this server. Its preload list is empty, because a second one would override that of
# the page.
my $node = PostgreSQL::Test::Cluster->new('main');
my %run = (
	psql => \&run_psql,
	sql => \&run_sql,
	sh => \&run_shell,
	c => \&run_c,
	python => \&run_python,
	cron => \&run_cron,
	# The clients' own tests run the blocks of their languages; "console" and similar blocks are only shown.
	map { $_ => sub { } } qw(bash console go java js plpgsql py ruby systemd text yaml));

# Commands that are not executed: the test run itself has built and installed everything.
my $not_run = qr/^make (?:demo|play|test\b|deb\b)|^(?:sudo )?make(?: install)?\s*(?:#|$)|^sudo (?:systemctl|apt-get|-u postgres)/;

$node->init;
$node->append_conf('postgresql.conf', node_conf() =~ s/^shared_preload_libraries.*\n//mr . "log_statement = all\n");

my $portable = ($ENV{ENGINE} // 'c') eq 'portable';
my @documents = $portable ? ('README.md', 'docs/quick-start.md', map { "docs/how-to/$_.md" } qw(coordination cron leader jobs migrations)) : ('README.md', 'docs/quick-start.md', 'docs/start.md', 'docs/guide.md', glob('docs/how-to/*.md'),
	map({ "docs/operation/$_.md" } qw(before-production failover monitoring shared-server)),
	'docs/reference/lease-sync.md');

my %blocks_of_document;
foreach my $document (@documents)
{
	my @blocks = blocks_of(slurp_file($document));
	my ($section, $state, $count) = ('', undef, 0);

	# The first section of README uses objects that its other sections install.
	my @later = $document eq 'README.md' ? grep { $_->{section} eq 'lock_election' } @blocks : ();
	foreach my $block ((grep { !@later || $_->{section} ne 'lock_election' } @blocks), @later)
	{
		my $title = "$document:$block->{line} ($block->{section})";

		next if $portable && ($block->{word} eq 'ini' || $block->{text} =~ /CREATE EXTENSION/);
		if ($block->{word} eq 'ini')
		{
			end_section($state);
			undef $state;
			$node->stop if $node->{_pid};
			$node->append_conf('postgresql.conf', $block->{text});
			next;
		}
		start_server();
		if (!$state || $section ne $block->{section})
		{
			end_section($state);
			$section = $block->{section};
			$state = { tokens => {}, sessions => {}, dbname => begin_section($document, $section) };
		}
		die "$title: what is a block of '$block->{word}'?" unless $run{ $block->{word} };
		$run{ $block->{word} }->($state, $block, $title);
		$count++;
	}
	end_section($state);
	$blocks_of_document{$document} = $count;
}
cmp_ok($blocks_of_document{$_}, '>', 4, "$_ has more than 4 blocks") foreach 'README.md', 'docs/quick-start.md', $portable ? () : ('docs/start.md', 'docs/guide.md');
end_section({});
nightly_killed();
$node->stop;
done_testing();

# --- server, sections and sessions ---

# Starts the server with the settings of the "ini" blocks.
sub start_server
{
	return if $node->{_pid};
	$node->start;
	return unless $portable;
	$node->safe_psql('postgres', 'CREATE ROLE installer LOGIN; GRANT CREATE ON DATABASE postgres TO installer');
	$node->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = "$user", public, locks');
	system_or_bail('build/lockctl/lockctl', '-h', $node->host, '-p', $node->port, '-U', 'installer', '-d', 'postgres', 'install', '--schema', 'locks');
	return;
}

# Removes all tables, because the examples of each section create their own. Prepares the section about shared servers.
sub begin_section
{
	my ($document, $section) = @_;

	$node->safe_psql('postgres', <<'SQL');
DO $$
DECLARE
	t text;
BEGIN
	FOR t IN SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
		EXECUTE 'DROP TABLE ' || t;
	END LOOP;
END $$;
SQL
	return 'postgres' if $section ne 'On a shared server';

	# This section describes a database without the extension, and assumes existing roles.
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('postgres', 'CREATE ROLE mallory');
	return 'app';
}

sub end_section
{
	my ($state) = @_;

	return unless $state;
	$_->quit foreach values %{ $state->{sessions} };
	wait_until(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'psql'}) eq '0' });
	return if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_election'}) eq '0';
	$node->safe_psql('postgres', $_)
	  foreach q{SELECT force_release_lock(name) FROM lock_election.locks WHERE kind = 'lock'},
	  q{SELECT force_resign(name) FROM lock_election.locks WHERE kind = 'election'},
	  q{SELECT revoke_lease(lease) FROM lock_election.leases};
	# Places that are granted by the releases.
	wait_until(sub {
		$node->safe_psql('postgres', q{SELECT force_release_lock(name), force_resign(name) FROM lock_election.locks});
		return $node->safe_psql('postgres', 'SELECT count(*) FROM lock_election.locks') eq '0';
	});
	return;
}

# --- psql ---

sub open_session
{
	my ($state, $who) = @_;

	return $state->{sessions}{$who} //= do {
		my $s = session($node, dbname => $state->{dbname}, connstr => 'application_name=psql');

		$s->query("\\pset $_") foreach 'format aligned', 'tuples_only off', 'footer off';
		$s->query("\\set $_") foreach 'VERBOSITY default', 'QUIET off';
		$s;
	};
}

# Removes command tags that the text omits, and notifications, whose time of arrival varies.
sub shown
{
	my ($state, @lines) = @_;

	push @{ $state->{notified} }, grep { /^Asynchronous notification/ } @lines;
	return grep { !/^Asynchronous notification/ && !/^(?:BEGIN|COMMIT|ROLLBACK|LISTEN|SET|DO|SAVEPOINT|(?:CREATE|ALTER|DROP) \w+)$/ } @lines;
}

sub run_psql
{
	my ($state, $block, $title) = @_;

	foreach my $statement (statements_of($block->{text}))
	{
		my $s = open_session($state, $statement->{who});
		my $sql = $statement->{sql} =~ s/(\d{14,16})/$state->{tokens}{$1} \/\/ $1/ger;
		my (@output, $difference);
		# Notifications of the text, possibly on several lines, are removed from the expected output and checked
		# separately.
		my $expected = join "\n", @{ $statement->{output} };
		my @channels;

		push @channels, $1 while $expected =~ s/^Asynchronous notification "(\w+)"[^\n]*(?:\n(?!\n)[^\n]+)*//m;
		if ($sql =~ /^\s*(?:--.*)?$/)
		{
			# A comment shows the end of a wait.
			@output = split /\n/, ($s->wait // '') . "\n" . $s->error;
		}
		elsif ($statement->{waits})
		{
			$s->async($sql =~ s/--.*$//r);
			ok(wait_until(sub {
					$node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid . q{ AND state = 'active' AND wait_event_type IN ('Lock', 'Extension')}) eq '1' }),
				"$title: waits: $sql");
			next;
		}
		else
		{
			my $answer = $s->query($sql) // '';

			@output = (split(/\n/, $s->error =~ s/^psql:.*?:\d+: //mgr), split(/\n/, $answer));
		}
		@output = shown($state, @output);
		$difference = same_output([ split /\n/, $expected ], \@output, $state->{tokens});
		is($difference, '', "$title: " . ($sql =~ s/\s+/ /gr)) or diag("it answers:\n" . join("\n", @output));
		foreach my $channel (@channels)
		{
			ok(wait_until(sub {
				shown($state, split /\n/, $s->query('SELECT 1'));
				return grep { /"\Q$channel\E"/ } @{ $state->{notified} };
			}), "$title: a notification on $channel");
		}
	}
	return;
}

sub run_sql
{
	my ($state, $block, $title) = @_;
	my $s = open_session($state, '');

	$s->query($block->{text} =~ s/(\d{14,16})/$state->{tokens}{$1} \/\/ $1/ger);
	unlike($s->error, qr/ERROR|WARNING/, "$title: " . (split /\n/, $block->{text})[0]);
	return;
}

# --- programs ---

# sudo, apt-get and systemctl do nothing: the machine is prepared for the tests already. Installation uses a directory
# of the test.
sub shell_env
{
	my $bin = "$work/bin";

	if (!-d $bin)
	{
		make_path($bin, "$work/home");
		my %programs = (
			sudo => 'exec "$@"',
			'apt-get' => 'exit 0',
			systemctl => 'exit 0',
			ldconfig => 'exit 0',
			report => 'echo "report for token ${1:-}"',
		);
		foreach my $name (keys %programs)
		{
			PostgreSQL::Test::Utils::append_to_file("$bin/$name", "#!/bin/sh\n$programs{$name}\n");
			chmod 0755, "$bin/$name";
		}
	}
	return (
		PATH => "$bin:$work/local/bin:$ENV{PATH}",
		HOME => "$work/home",
		PREFIX => "$work/local",
		PKG_CONFIG_PATH => "$work/local/lib/pkgconfig",
		LD_LIBRARY_PATH => "$work/local/lib",
		PGAPPNAME => 'psql',
		PGHOST => $node->host,
		PGPORT => $node->port,
		PGDATABASE => 'postgres');
}

# Runs commands in a directory, with the environment of a reader.
sub shell
{
	my ($script, $dir) = @_;
	my %env = shell_env();
	my ($out, $run) = ('');

	local @ENV{ keys %env } = values %env;
	delete local @ENV{qw(MAKEFLAGS MAKELEVEL)};
	$run = IPC::Run::start([ 'bash', '-c', "cd '$dir' && $script" ], '<', '/dev/null', '>&', \$out, IPC::Run::timeout(300));
	$run->finish;
	return ($out, $run->full_result(0) >> 8);
}

# Each line is a command that can be pasted; "# " begins a line of its output. A block with "#!" is a script.
sub run_shell
{
	my ($state, $block, $title) = @_;
	my @commands;

	if ($block->{text} =~ /^#!/)
	{
		my ($name) = $block->{text} =~ /^# (\S+)/m;

		@commands = ({ command => "'" . write_file($name, at_home($block->{text})) . "'", output => [] });
		chmod 0755, "$work/$name";
	}
	else
	{
		foreach my $line (grep { /\S/ } split /\n/, $block->{text})
		{
			die "$title: a prompt, which cannot be pasted: $line" if $line =~ /^\$ /;
			if ($line =~ /^# (.*)/) { push @{ $commands[-1]{output} }, $1; }
			else { push @commands, { command => $line, output => [] }; }
		}
	}

	# Commands in the background print at the same time as the next one, so all are run as one script.
	my $hosts = 'host=' . $node->host . ',' . $node->host . ' dbname=postgres';
	my $script = join("\n", map { $_->{command} =~ s/(\d{14,16})/$state->{tokens}{$1} \/\/ $1/ger } grep { $_->{command} !~ $not_run } @commands);
	return if $script eq '';
	$script =~ s/host=a,b dbname=app/$hosts/;
	my ($out, $rc) = shell($script . "\nwait", $src);
	my @expected = map { @{ $_->{output} } } @commands;

	is($rc, 0, "$title: exit status") or diag($out);
	return unless @expected;
	is(same_output([ sort @expected ], [ sort split /\n/, $out ], $state->{tokens}), '', "$title: output") or diag($out);
	return;
}

# Kills the script that only uses psql: nobody renews its lock, and the job is terminated before the lock is free.
sub nightly_killed
{
	my ($block) = grep { $_->{text} =~ /^# nightly\.sh$/m } blocks_of(slurp_file('docs/how-to/cron.md'));
	my $script = $block->{text};
	my %env = shell_env();

	is(($script =~ s/'1 h'/'10 s'/) + ($script =~ s/-k 1m 50m/-k 1 2/) + ($script =~ s,/usr/local/bin/report,$work/slow/report,),
		3, 'nightly.sh is run with shorter times');
	make_path("$work/slow");
	# The job ignores SIGTERM.
	write_file('slow/report', qq{#!/bin/sh\ntrap '' TERM\necho \$\$ >"$work/job.new"; mv "$work/job.new" "$work/job"\nwhile :; do sleep 0.1; done\n});
	chmod 0755, "$work/slow/report";
	write_file('nightly.sh', $script);
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		@ENV{ keys %env } = values %env;
		exec('bash', "$work/nightly.sh") or POSIX::_exit(99);
	}
	ok(wait_until(sub { -e "$work/job" }), 'nightly.sh: the job runs');
	kill 'KILL', $pid;
	waitpid $pid, 0;
	is($node->safe_psql('postgres', q{SELECT acquire_lock('nightly', wait => '1 min') IS NOT NULL}), 't',
		'nightly.sh: the lock of a killed script is free after its TTL');
	ok(!-e '/proc/' . slurp_file("$work/job") =~ s/\n//r, 'nightly.sh: the job is terminated before its lock is free');
	return;
}

# Replaces the paths of programs with those of this test.
sub at_home
{
	my ($text) = @_;
	my %home = (lockctl => "$work/local/bin", report => "$work/bin", 'nightly.sh' => $work);

	$text =~ s{/usr/local/bin/(\S+)}{($home{$1} // die "where is $1?") . "/$1"}ge;
	return $text;
}

sub write_file
{
	my ($name, $text) = @_;
	my $path = "$work/$name";

	open(my $file, '>', $path) or die "$path: $!";
	print $file $text;
	close $file;
	return $path;
}

# Compiles a fragment in the function of a small program, with the command of the page.
sub run_c
{
	my ($state, $block, $title) = @_;
	my ($compile) = slurp_file('docs/quick-start.md') =~ /`(cc program\.c [^`]+)`/ or die 'no command';

	write_file('program.c', <<"C");
#include <stdbool.h>
#include <stdio.h>
#include <lock_election.h>

static bool more_work(void) { return false; }
static void work(void) { }

int
main(void)
{
$block->{text}
	return 0;
}
C
	my ($out, $rc) = shell("$compile && ./a.out", $work);

	is($rc, 0, "$title: the program compiles and runs") or diag($out);
	return;
}

sub run_python
{
	my ($state, $block, $title) = @_;
	my ($name) = $block->{text} =~ /^# (\S+\.py)/m;
	my ($out, $rc) = shell('python3 -c "import psycopg"', $src);

  SKIP:
	{
		skip 'no psycopg', 1 if $rc != 0;
		if ($block->{text} =~ /^import lock_election/m)
		{
			($out, $rc) = shell("PYTHONPATH=clients/python/src timeout 300 python3 '" . write_file('example.py', $block->{text}) . "'", $src);
			is($rc, 0, "$title: the program with the library succeeds") or diag($out);
			return;
		}
		# Another client is first, for longer than any timeout of the program.
		my ($before, $log) = (-s $node->logfile);
		$node->safe_psql('postgres', q{SELECT campaign('scheduler', 'other', ttl => '7 s'), acquire_lock('invoices', ttl => '7 s')});
		($out, $rc) = shell("timeout 300 python3 '" . write_file($name, $block->{text}) . "'", $work);
		$log = substr(slurp_file($node->logfile), $before);
		like($log, qr/execute .*SELECT (?:campaign|acquire_lock)\(.*execute .*SELECT renew_\w+\(/s, "$title: $name renews immediately after its wait");
		is($rc, 0, "$title: $name succeeds") or diag($out);
		like($out, qr/^done/m, "$title: $name completes its work") or diag($out);
	}
	return;
}

# Runs the command of a crontab immediately, with the environment that cron provides. Host, database and paths are
# replaced with those of this test.
sub run_cron
{
	my ($state, $block, $title) = @_;
	my %env = (HOME => "$work/home", LOGNAME => (getpwuid $>)[0], SHELL => '/bin/sh', PATH => '/usr/bin:/bin');
	my %is = (PGHOST => [ 'db1', $node->host ], PGDATABASE => [ 'app', 'postgres' ]);
	my ($command) = $block->{text} =~ /^(?:[\d*]\S*\s+){5}(.*)/m;

	$env{$1} = $2 while $block->{text} =~ /^(\w+)=(.*)$/mg;
	foreach my $name (sort keys %is)
	{
		is($env{$name}, $is{$name}[0], "$title: $name");
		$env{$name} = $is{$name}[1];
	}
	$env{PGPORT} = $node->port;
	# Releases the lock of the previous run.
	$node->safe_psql('postgres', q{SELECT force_release_lock('nightly')});
	$command = at_home($command);
	my ($out, $rc) = shell(join(' ', 'env', '-i', map({ "'$_=$env{$_}'" } sort keys %env), '/bin/sh', '-c', "'$command'"), $src);
	is($rc, 0, "$title: $command") or diag($out);
	like($out, qr/^report/m, "$title: the job has run");
	return;
}
