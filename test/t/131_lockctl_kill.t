# How lockctl kills: in time, all descendants, whatever their names, and without a guardian.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ctl_network_node();
my $dir = PostgreSQL::Test::Utils::tempdir();

# The state of the process is Z, which is that of its first thread. It has its own session, so signals of a terminal
# do not reach it.
subtest 'a grandchild whose first thread has ended' => sub {
	system_or_bail('make', '-s', 'build/headless');
	my ($file, $first, $second) = two(
		command => sub { return ('sh', '-c', "trap '' TERM; setsid build/headless first $_[0] & while :; do sleep 0.1; done"); });
	my (undef, undef, $pid) = ran($file, 'first');
	like(slurp_file("/proc/$pid/stat"), qr/\) Z /, 'the grandchild looks like a zombie');
	$first->kill('KILL');
	$first->wait;
	one_after_the_other($file, $second);

	my $after = start_ctl('lock', 'after', '--grace', '100ms', '--', 'sh', '-c', "setsid build/headless after $dir/after & "
		  . "until test -s $dir/after; do sleep 0.01; done; exit 6");
	is($after->wait(30), 6, 'the grandchild does not delay the exit of lockctl');
	ok(!alive((ran("$dir/after", 'after'))[2]), 'the grandchild is dead when lockctl exits');
};

subtest 'a grandchild with a name like the line of another process' => sub {
	my ($file, $first, $second) = two(
		command => sub {
			return stamps('first', $_[0], before => 'use POSIX; if (fork) { sleep 1000 } POSIX::setsid(); $0 = "x) Z 1 1 (y"');
		});
	my (undef, undef, $pid) = ran($file, 'first');
	is(slurp_file("/proc/$pid/comm"), "x) Z 1 1 (y\n", 'the grandchild has this name');
	$first->kill('KILL');
	$first->wait;
	one_after_the_other($file, $second);
};

# The command handles SIGTERM because the guardian also continues it.
subtest 'SIGTERM reaches a command that is stopped' => sub {
	append_to_file("$dir/tells", <<'SH');
trap "echo $1; exit 0" TERM
if [ "$1" = child ]; then setsid sh "$0" grandchild & fi
echo $$
while :; do sleep 0.02; done
SH
	my $first = start_ctl('lock', 'stopped', '--ttl', "${short_ttl}s", '--', 'sh', "$dir/tells", 'child');
	ok(wait_until(sub { $first->out =~ /^\d+\n\d+\n/ }), 'child and grandchild run') or diag($first->out, $first->err);
	kill 'STOP', split ' ', $first->out;
	$first->kill('STOP');
	ok(wait_until(sub { $first->out =~ /^child$/m && $first->out =~ /^grandchild$/m }),
		'child and grandchild receive SIGTERM although they are stopped');
	$first->kill('CONT');
	is($first->wait, 4, 'lockctl exits with 4');
};

sub descriptors { return scalar(() = glob("/proc/$_[0]/fd/*")); }

# Each scan of /proc, and each signal, opens descriptors.
subtest 'the guardian closes its descriptors' => sub {
	my $deaf = q{trap 'echo told' TERM; for i in 1 2 3 4 5; do sh -c "trap : TERM; while :; do sleep 0.1; done" & done; }
	  . q{echo ready; while :; do sleep 0.02; done};
	my $c = start_ctl('lock', 'descriptors', '--grace', '4s', '--at-most', '3s', '--', 'sh', '-c', $deaf);
	ok(wait_until(sub { $c->out =~ /ready/ }), 'a command runs');
	my $guardian = $c->guardian;
	my $before = descriptors($guardian);
	cmp_ok($before, '>', 3, 'the guardian has open descriptors');
	ok(wait_until(sub { $c->out =~ /told/ }), 'the command receives SIGTERM');
	ok(wait_until(sub { my $now = descriptors($guardian); return $now == $before || !$now; }) && alive($guardian), 'after SIGTERM, the guardian has as many descriptors as before');
	is($c->wait, 124, 'lockctl exits with 124');
};

# A lockctl with --notify, and one with a control group, have no more open descriptors than one with neither.
subtest 'lockctl closes its descriptors' => sub {
	my %env = (NOTIFY_SOCKET => "$dir/nobody");
	my @command = ('--', 'sh', '-c', 'echo ready; exec sleep 1000');
	my $c = start_ctl('lock', 'neither', @command);
	my %other = (systemd => start_ctl({ env => \%env }, 'lock', 'systemd', '--notify', @command));
	$other{'control group'} = start_ctl({ cgroup => 'ours' }, 'lock', 'cgroup', @command) if own_cgroup();
	foreach my $process ($c, values %other) { wait_until(sub { $process->out =~ /ready/ }) or die $process->err; }
	foreach my $with (sort keys %other)
	{
		my $process = $other{$with};
		ok(wait_until(sub { descriptors($process->pid) == descriptors($c->pid) }),
			"$with: lockctl has no additional descriptor");
		ok(wait_until(sub { descriptors($process->guardian) == descriptors($c->guardian) }),
			"$with: the guardian has no additional descriptor");
	}
	foreach my $process ($c, values %other) { $process->kill('TERM'); is($process->wait, 143,
		'lockctl exits after SIGTERM'); }
};

subtest 'a command gets no descriptor of lockctl' => sub {
	# descriptors that this test inherited from its own parent are passed on
	my @show = ('sh', '-c', 'cd /proc/$$/fd; echo *');
	my ($ours) = run_command(\@show);
	like($ours, qr/^0 1 /, 'the descriptors without lockctl');
	foreach ({}, own_cgroup() ? { cgroup => 'ours' } : ())
	{
		my $c = start_ctl({ %$_, env => { NOTIFY_SOCKET => "$dir/nobody" } }, 'lock', 'descriptors', '--notify', '--', @show);
		is($c->wait, 0, 'a command runs') or diag($c->err);
		is($c->out, "$ours\n", 'the command has the same descriptors as without lockctl');
	}
};

# Returns the latest time at which the lease of a lock (TTL 6 seconds) expires. The deadline of lockctl is 0.3 s
# before it, and the guardian kills half a second before the deadline. dead_at() allows nearly all of that half second
# for a busy machine, but still distinguishes it from a kill at the deadline.
sub expires
{
	my ($name) = @_;
	my $left = $node->safe_psql('postgres', "SELECT extract(epoch FROM time_left) FROM lock_election.locks WHERE name = '$name'");

	return boottime() + $left;
}

sub dead_at { return $_[0] - 0.3 - 0.05; }

subtest 'without a grace' => sub {
	my @started = map { [ $_, "$dir/grace$_", start_ctl('lock', "grace$_", '--ttl', '6s', '--grace', "${_}ms", '--', stamps('first', "$dir/grace$_")) ] } 0, 10;
	foreach (@started)
	{
		my ($grace, $file, $c) = @$_;
		wait_until(sub { (ran($file, 'first'))[0] }) or die $c->err;
		$c->kill('STOP');
		push @$_, expires("grace$grace");
	}
	foreach (@started)
	{
		my ($grace, $file, $c, $expires) = @$_;
		my (undef, undef, $pid) = ran($file, 'first');
		ok(wait_until(sub { !alive($pid) }), "--grace ${grace}ms: the command is killed");
		cmp_ok((ran($file, 'first'))[1], '<', dead_at($expires),
			"--grace ${grace}ms: the command is dead before the deadline");
		$c->kill('CONT');
		is($c->wait, 4, "--grace ${grace}ms: lockctl exits with 4");
	}
};

# lockctl learns that the lock is lost, and kills the command itself.
subtest 'the guardian is stopped, and the lock is released by force' => sub {
	my ($file, $first) = two(alone => 1);
	kill 'STOP', $first->guardian;
	$node->safe_psql('postgres', "SELECT force_release_lock('$contended')");
	is($first->wait(30), 4, 'lockctl exits with 4 if the lock was released by force');
	ok(!alive((ran($file, 'first'))[2]), 'the command is dead although the guardian is stopped');
	like($first->err, qr/is lost.*the command was killed/, 'the error says that the command was killed');
	unlike($first->err, qr/guardian/, 'the error does not mention the guardian');
};

subtest 'the guardian is stopped, and the network is cut' => sub {
	plan skip_all => 'no network of our own' unless can_silence();
	my $address = '10.97.0.2';

	add_host($address);
	my ($file, $first, $second) = two(options => [ '-h', $address, '--ttl', '6s' ]);
	kill 'STOP', $first->guardian;
	silence_host($address);
	my $expires = expires($contended);
	is($first->wait(30), 4, 'lockctl exits with 4 if the network is cut');
	cmp_ok((ran($file, 'first'))[1], '<', dead_at($expires), 'the command was killed before the deadline');
	one_after_the_other($file, $second);
};

subtest 'the guardian is stopped before the command starts' => sub {
	my $token = $node->safe_psql('postgres', q{SELECT acquire_lock('late', '1 h')});
	my $first = start_ctl('-v', 'lock', 'late', '--ttl', "${short_ttl}s", '--', 'true');
	wait_waiting('late');
	my $guardian = $first->guardian;
	kill 'STOP', $guardian;
	$node->safe_psql('postgres', "SELECT release_lock('late', $token)");
	wait_until(sub { $first->err =~ /is acquired/ }) or die $first->err;
	# lockctl sends the start after this message. Once it was seen sleeping several times, it has sent the start.
	my $asleep = 0;
	wait_until(sub { $asleep = slurp_file('/proc/' . $first->pid . '/stat') =~ /\) S / ? $asleep + 1 : 0; return $asleep >= 3; }) or die $first->err;
	$first->kill('STOP');
	wait_for_sql($node, q{SELECT count(*) = 0 FROM lock_election.locks WHERE name = 'late'});
	kill 'CONT', $guardian;
	ok(wait_until(sub { !alive($guardian) }), 'the guardian exits');
	$first->kill('CONT');
	is($first->wait, 4, 'lockctl exits with 4 if the lock expired before the start of the command');
	unlike($first->err, qr/runs as process/, 'the command was not started after the lock had ended');

	$node->safe_psql('postgres', q{SELECT acquire_lock('late', '1 h')});
	$first = start_ctl('lock', 'late', '--', 'true');
	wait_waiting('late');
	$guardian = $first->guardian;
	kill 'STOP', $guardian;
	$first->kill('TERM');
	is($first->wait, 143, 'SIGTERM ends a lockctl that waits');
	ok(!alive($guardian), 'a stopped guardian is dead, too');
	$node->safe_psql('postgres', q{SELECT force_release_lock('late')});
};

subtest 'without /proc' => sub {
	my @with_mounts = with_mounts();
	plan skip_all => 'no namespaces of our own' unless @with_mounts;

	my @hide = (@with_mounts, 'sh', '-c', 'mount -t tmpfs none /proc && exec "$0" "$@"');
	# a sanitizer needs /proc
	my $c = start_ctl({ plain => 1, wrap => \@hide }, 'lock', 'x', 'echo', 'ran');
	is($c->wait, 126, 'lockctl without /proc exits with 126');
	like($c->err, qr{^lockctl: /proc does not show }, 'the error names /proc');
	is($c->out, '', 'the command has not run');
};

subtest 'a control group of its own' => sub {
	plan skip_all => 'no control group (cgroup v2) of our own' unless own_cgroup();
	my $has_group = sub { return -e own_cgroup() . '/lockctl-' . $_[0]->pid; };
	my $inner = 'd=$(sed -n "s,^0::.*/,,p" /proc/self/cgroup); mkdir "$0/$d/inner" && exit 5';
	my @with_mounts = with_mounts();

	my $c = start_ctl({ cgroup => 'ours' }, 'lock', 'x', '--', 'sh', '-c', $inner, own_cgroup());
	is($c->wait, 5, 'a command runs in its control group');
	ok(!$has_group->($c), 'the group is removed, including a group that the command has created');

	# Groups of systemd are not changed unless systemd has delegated them.
	foreach my $group ('theirs', 'delegated')
	{
	  SKIP:
		{
			skip 'no attributes of control groups here', 2 unless -e "$ENV{LE_CGROUP}/$group";
			$c = start_ctl({ cgroup => $group }, 'lock', 'x', 'cat', '/proc/self/cgroup');
			is($c->wait, 0, "$group: a command runs");
			like($c->out, $group eq 'theirs' ? qr{/theirs$}m : qr{/delegated/lockctl-\d+$}m, "$group: the command has its own group only if it was delegated");
		}
	}

	my ($file, $first, $second) = two(start => { cgroup => 'ours' });
	my (undef, undef, $pid) = ran($file, 'first');
	like(slurp_file("/proc/$pid/cgroup"), qr{^0::.*/ours/lockctl-\d+$}m, 'the command runs in a group of lockctl');
	ok($has_group->($first), 'the group of lockctl exists');
	kill 'KILL', $first->guardian;
	is($first->wait, 137, 'the command is killed when its guardian is killed');
	ok(!$has_group->($first), 'the group is removed when the guardian is killed');
	one_after_the_other($file, $second);

  SKIP:
	{
		skip 'no namespaces of our own', 1 unless @with_mounts;
		# The grandchild cannot be found in /proc, as when a process forks again and again.
		my $hide = '( (until test -s "$HIDE"; do sleep 0.02; done; mount -t tmpfs none "/proc/$(cat "$HIDE")"; '
		  . 'echo $? >"$HIDE.done") & ); exec "$0" "$@"';
		my $stamps = join ' ', map { s/'/'\\''/gr =~ s/^|$/'/gr } stamps('first', "$dir/hidden");
		my $hidden = start_ctl({ cgroup => 'ours', wrap => [ @with_mounts, 'sh', '-c', $hide ], env => { HIDE => "$dir/hide" } },
			'lock', 'hidden', '--', 'sh', '-c', "setsid $stamps & exec sleep 1000");
		wait_until(sub { (ran("$dir/hidden", 'first'))[0] }) or die $hidden->err;
		my (undef, undef, $grandchild) = ran("$dir/hidden", 'first');
		append_to_file("$dir/hide", $grandchild);
		ok(wait_until(sub { -s "$dir/hide.done" }) && slurp_file("$dir/hide.done") eq "0\n",
			'the grandchild is hidden in /proc');
		$hidden->kill('KILL');
		$hidden->wait;
		ok(wait_until(sub { !alive($grandchild) }), 'the hidden grandchild is killed');
		ok(wait_until(sub { !$has_group->($hidden) }), 'the guardian removes the group of the hidden grandchild');
	}
};

$node->stop;
done_testing();
