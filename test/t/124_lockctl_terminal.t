# lockctl on a terminal: top in two sizes, and a command in the foreground. The terminal is tmux.
# Promises: -
# Needs: lockctl, tmux
use strict;
use warnings;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($tmux) = grep { -x } map { "$_/tmux" } split /:/, $ENV{PATH};
plan skip_all => 'tmux is not installed' unless defined $tmux;
plan skip_all => 'no terminals here' unless -w '/dev/ptmx';

my $node = new_node('main');
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my ($rc, $out, $err);

sub tmux { return system($tmux, '-S', "$dir/s", '-f', '/dev/null', @_) == 0; }

END
{
	my $status = $?;
	system "$tmux -S $dir/s kill-server 2>/dev/null" if $dir;
	$? = $status;
}

# Opens a window that runs a command.
sub open_window
{
	my ($name, $width, $height, @command) = @_;
	local %ENV = (%ENV, ctl_env(), TERM => 'screen', SHELL => '/bin/bash');

	return tmux('new-session', '-d', '-s', $name, '-x', $width, '-y', $height, @command);
}

sub screen { return scalar qx{$tmux -S $dir/s capture-pane -p -t $_[0] 2>/dev/null}; }

sub shows
{
	my ($name, $pattern, $test_name) = @_;

	return ok(wait_until(sub { screen($name) =~ $pattern }), $test_name) || diag(screen($name));
}

sub keys_to { my ($name, @keys) = @_; return tmux('send-keys', '-t', $name, @keys); }

# Clears the screen, so that it then shows only later output.
sub clear
{
	my ($name) = @_;

	keys_to($name, 'clear', 'Enter');
	ok(wait_until(sub { screen($name) =~ /\Aprompt> ?\n*\z/ }), 'a clear screen') or diag(screen($name));
	return;
}

sub is_open { return system("$tmux -S $dir/s has-session -t $_[0] 2>/dev/null") == 0; }

subtest 'top' => sub {
	one(q{SELECT acquire_lock('lock ' || lpad(i::text, 3, '0'), make_interval(secs => 10000 - i))
		FROM generate_series(1, 100) i});
	one("SELECT enqueue_lock('lock $_', '1 h')") foreach qw(042 042 007);
	one(q{SELECT campaign('boss', 'the leader', '1 h')});
	foreach my $size ([ 80, 24 ], [ 200, 50 ])
	{
		my ($width, $height) = @$size;
		my $name = "top$width";

		ok(open_window($name, $width, $height, "$lockctl top --interval 300ms"), "${width}x$height");
		shows($name, qr/^\S+ +locks 101 +waiters 3 +oldest \d+\.\ds .*\n.*\nlocks by count, 100 in all/, 'the counts of locks and waiters');
		my $head = qr/LOCK +MODE +OWNER +AGE +LEFT +WAITERS */;
		shows($name, qr/\n$head\nlock 042 .* 2\nlock 007 .* 1\n/, 'the longest queue first');
		shows($name, qr/^per second: grants [\d.]+/m, 'rates');
		is(scalar(split /\n/, screen($name)), $height, 'top fills all lines');
		is(join('', grep { length > $width } split /\n/, screen($name)), '', 'no line is too long');
		keys_to($name, 'n');
		shows($name, qr/^lock 001 .*\nlock 002 /m, 'by name');
		keys_to($name, 'r');
		shows($name, qr/WAITERS *\nlock 100 .*\nlock 099 /, 'reversed');
		keys_to($name, 't', 'r');
		shows($name, qr/by time left/, 'sorted by time left');
		keys_to($name, 'n', 'NPage');
		shows($name, sprintf('WAITERS *\nlock %03d ', $height - 3), 'NPage scrolls one page down');
		keys_to($name, 'w');
		shows($name, qr/^waiters by.*\nLOCK .*PLACE *\nlock 0/m, 'waiters');
		keys_to($name, 'e');
		shows($name, qr/^ELECTION +LEADER .*\nboss +the leade/m, 'elections');
		tmux('resize-window', '-t', $name, '-x', 100, '-y', 30);
		keys_to($name, 'l');
		shows($name, qr/\nlock 042 .* 2\n|\nlock 001/, 'top after the window was resized');
		keys_to($name, 'q');
		ok(wait_until(sub { !is_open($name) }), 'q quits');
	}
	one(q{SELECT force_resign('boss')});
	# After top, the terminal is in the same state as before.
	ok(open_window('before', 80, 24, 'PS1="prompt> " bash --norc --noprofile -i'), 'a shell');
	my $state = "$tmux -S $dir/s display-message -p -t before '#{cursor_flag} #{alternate_on}'";
	my ($bash) = qx{$tmux -S $dir/s display-message -p -t before '#{pane_pid}'} =~ /(\d+)/;
	foreach my $end ('q', 'TERM')
	{
		keys_to('before', '-l', qq{clear; stty -g >$dir/before; $lockctl top; echo rc:\$?; stty -g | cmp - $dir/before && echo the same});
		keys_to('before', 'Enter');
		shows('before', qr/^lock \d+ .*\n/m, 'top runs in the shell');
		is(qx{$state}, "0 1\n", 'top uses the alternate screen, without a cursor');
		if ($end eq 'q') { keys_to('before', 'q'); }
		else { kill 'TERM', child_of($bash); }
		shows('before', $end eq 'q' ? qr/^rc:0\nthe same$/m : qr/^rc:143\nthe same$/m, "after $end, the terminal has the same settings as before");
		ok(wait_until(sub { qx{$state} eq "1 0\n" }), "after $end, the main screen and the cursor are back");
	}
	keys_to('before', 'exit', 'Enter');
	ok(wait_until(sub { !is_open('before') }), 'the shell ends');
	# each release grants the next place
	one(q{SELECT count(force_release_lock(name)) FROM lock_election.locks}) foreach 1 .. 3;
	nothing_left($node);
};

subtest 'top without a terminal' => sub {
	($rc, $out) = ctl('top', '--count', 2, '--interval', '200ms');
	like("$rc $out", qr/^0 +locks +waiters +oldest +grants .*\n +0 +0 +0\.0 +[\d.]+ .*\n +0 .*\n$/,
		'top prints plain lines');
	($rc, $out) = ctl('-o', 'csv', 'top', '--count', 1, '--interval', '100ms');
	like($out, qr/^locks,waiters,oldest,grants.*\n0,0,0\.0,[\d.,]+\n$/, 'CSV');
	my $c = start_ctl('top');
	wait_until(sub { $c->out =~ /\d/ });
	$c->kill('INT');
	is($c->wait, 130, 'SIGINT ends top');
};

subtest 'a command in the foreground' => sub {
	ok(open_window('shell', 80, 24, 'PS1="prompt> " bash --norc --noprofile -i'), 'a shell');
	keys_to('shell', qq{$lockctl lock x -- sh -c "read line; echo got:\\\$line; exec sleep 1000"}, 'Enter');
	wait_held('x');
	keys_to('shell', 'hello', 'Enter');
	shows('shell', qr/^got:hello$/m, 'the command reads the terminal');
	my ($pid) = one(q{SELECT owner FROM lock_election.locks WHERE name = 'x'}) =~ /^lockctl \S+ (\d+)/;
	my $blocked = sub { return slurp_file("/proc/$pid/status") =~ /^SigBlk:\s+(\S+)/m ? $1 : ''; };
	my $before = $blocked->();
	keys_to('shell', 'C-z');
	shows('shell', qr/Stopped.*\n(?:.*\n)?prompt> ?$/m, 'Ctrl-Z gives the terminal back to the shell') or return;
	keys_to('shell', 'fg', 'Enter');
	my $foreground = "$tmux -S $dir/s display-message -p -t shell '#{pane_current_command}'";
	ok(wait_until(sub { qx{$foreground} eq "sleep\n" }), 'fg gives the terminal to the command again');
	ok(wait_until(sub { $blocked->() eq $before }), 'after fg, lockctl blocks the same signals as before') or diag("$before ", $blocked->());
	keys_to('shell', 'C-c');
	keys_to('shell', 'echo rc:$?', 'Enter');
	shows('shell', qr/^rc:130$/m, 'Ctrl-C, after fg, ends the command');
	nothing_left($node);
	keys_to('shell', qq{$lockctl lock x -- seq 3 | cat; echo rc:\${PIPESTATUS[0]}}, 'Enter');
	shows('shell', qr/^1\n2\n3\nrc:0$/m, 'the command runs in a pipeline');
	keys_to('shell', '-l', qq{$lockctl lock x -- sleep 1000 | sh -c "read line </dev/tty; echo read:\\\$line"});
	keys_to('shell', 'Enter');
	wait_held('x');
	keys_to('shell', 'hello', 'Enter');
	shows('shell', qr/^read:hello$/m, 'a pager behind lockctl reads the terminal');
	keys_to('shell', 'C-c');
	nothing_left($node);
	keys_to('shell', 'exit', 'Enter');
	ok(wait_until(sub { !is_open('shell') }), 'the shell ends');
};

sub open_shell { ok(open_window($_[0], 80, 24, 'PS1="prompt> " bash --norc --noprofile -i'), 'a shell'); return; }

sub close_shell
{
	my ($name) = @_;

	nothing_left($node);
	keys_to($name, 'exit', 'Enter');
	ok(wait_until(sub { !is_open($name) }), 'the shell ends') or diag(screen($name));
	return;
}

# As with flock, Ctrl-C ends the whole loop or script.
subtest 'Ctrl-C ends a loop, and a script' => sub {
	my $loop = qq{for i in 1 2 3; do echo run:\$i; $lockctl lock x -- sleep 1000; done};
	append_to_file("$dir/script", "$loop\necho end of script\n");

	open_shell('loop');
	foreach my $how ([ $loop, 'a loop' ], [ "bash $dir/script", 'a script' ], [ "bash $dir/script | cat", 'in a pipeline' ])
	{
		clear('loop');
		keys_to('loop', '-l', $how->[0]);
		keys_to('loop', 'Enter');
		wait_held('x');
		keys_to('loop', 'C-c');
		nothing_left($node);
		keys_to('loop', 'echo rc:$?', 'Enter');
		shows('loop', qr/^rc:130$/m, "Ctrl-C interrupts: $how->[1]");
		unlike(screen('loop'), qr/^run:2|^end of script/m, 'nothing runs after Ctrl-C');
	}
	close_shell('loop');
};

subtest 'a command in the background' => sub {
	open_shell('back');
	# with a long TTL, only events of the terminal wake up lockctl
	foreach my $ttl ('2s', '1h')
	{
		clear('back');
		keys_to('back', qq{$lockctl lock x --ttl $ttl -- sh -c "echo pid:\\\$\\\$; read line; trap 'echo again' CONT; echo got:\\\$line; while :; do sleep 0.1; done" &}, 'Enter');
		wait_held('x');
		shows('back', qr/it wants the terminal$/m, 'lockctl reports that the command wants to read');
		# Waits for longer than the TTL: the command is stopped, but lockctl is not.
		my $start = boottime();
		wait_until(sub { $ttl ne '2s' || boottime() > $start + 2.5 });
		my ($pid) = screen('back') =~ /^pid:(\d+)$/m;
		keys_to('back', 'fg', 'Enter');
		# Until the command continues, bash would read the input, even after it has set its own terminal mode.
		ok(wait_until(sub { slurp_file("/proc/$pid/stat") !~ /\) T / }), 'fg continues it');
		chomp(my $tty = qx{$tmux -S $dir/s display -p -t back '#{pane_tty}'});
		ok(wait_until(sub { qx{stty -F $tty -a} =~ / icanon/ }), "$tty reads lines");
		keys_to('back', 'hello', 'Enter');
		shows('back', qr/^got:hello$/m, "after fg, the command reads the terminal, with a TTL of $ttl")
		  or diag(qx{ps -eo pid,ppid,pgid,tpgid,stat,wchan:20,args | grep -E 'lockctl|again|bash --norc' | grep -v grep});
		$start = boottime();
		wait_until(sub { boottime() > $start + 1 });
		unlike(screen('back'), qr/^again$/m, 'the command receives no second SIGCONT');
		keys_to('back', 'C-c');
		nothing_left($node);
	}
	close_shell('back');
};

# The shell's job is the script, and the script's own shell waits for lockctl.
subtest 'Ctrl-Z of a script, and in a pipeline' => sub {
	my $lock = qq{$lockctl lock x -- sh -c "echo \\\$\\\$; exec sleep 1000"};
	append_to_file("$dir/stop", "$lock\necho end of script\n");
	open_shell('stop');
	foreach my $command ("bash $dir/stop", "$lock | cat")
	{
		clear('stop');
		keys_to('stop', '-l', $command);
		keys_to('stop', 'Enter');
		shows('stop', qr/^\d+$/m, $command);
		my ($pid) = screen('stop') =~ /^(\d+)$/m;
		my $is_stopped = sub { return slurp_file("/proc/$pid/stat") =~ /\) T /; };
		keys_to('stop', 'C-z');
		shows('stop', qr/Stopped.*\n(?:.*\n)?prompt> ?$/m, "Ctrl-Z stops the job: $command");
		ok(wait_until($is_stopped), "Ctrl-Z stops the command of lockctl: $command");
		keys_to('stop', 'fg', 'Enter');
		ok(wait_until(sub { !$is_stopped->() }), "fg continues the command: $command");
		keys_to('stop', 'C-c');
		nothing_left($node);
		keys_to('stop', 'echo rc:$?', 'Enter');
		shows('stop', qr/^rc:130$/m, "Ctrl-C ends the job: $command");
		unlike(screen('stop'), qr/^end of script/m, "nothing runs after Ctrl-C: $command");
	}
	clear('stop');
	keys_to('stop', '-l', $lock);
	keys_to('stop', 'Enter');
	shows('stop', qr/^\d+$/m, 'the command runs for kill %1');
	keys_to('stop', 'C-z');
	shows('stop', qr/Stopped.*\n(?:.*\n)?prompt> ?$/m, 'Ctrl-Z stops the job for kill %1');
	keys_to('stop', 'kill %1', 'Enter');
	ok(wait_until(sub { keys_to('stop', 'Enter'); screen('stop') =~ /Terminated/ }), 'kill %1 ends the stopped job')
	  or diag(screen('stop'));
	close_shell('stop');
};

# As with ssh -t or docker run -it: the kernel does not stop a process group that no shell could continue.
subtest 'Ctrl-Z without a shell' => sub {
	append_to_file("$dir/alone", 'read one; echo one:$one; read two; echo two:$two' . "\n");
	ok(open_window('alone', 80, 24, "exec $lockctl lock x -- sh $dir/alone"), 'no shell');
	keys_to('alone', 'a', 'Enter');
	shows('alone', qr/^one:a$/m, 'the command reads the terminal without a shell');
	keys_to('alone', 'C-z');
	shows('alone', qr/\^Z/, 'the terminal echoes Ctrl-Z');
	keys_to('alone', 'b', 'Enter');
	ok(wait_until(sub { !is_open('alone') }), 'Ctrl-Z does not stop the command') or diag(screen('alone'));
	nothing_left($node);
};

$node->stop;
done_testing();
