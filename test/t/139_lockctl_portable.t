# lockctl on the portable edition: every command, as an ordinary role; a crontab line on two machines; the findings of
# doctor; and the output of top and status.
# Promises: M
# Needs: lockctl
use strict;
use warnings;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', extension => 0, conf => "shared_preload_libraries = ''\nfsync = on\nautovacuum_naptime = 1min\n");
ctl_node($node);
my ($rc, $out, $err);

one('CREATE ROLE installer LOGIN; CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO installer');
my $installer = { env => { PGUSER => 'installer' } };
my $app = { env => { PGUSER => 'app' } };

subtest 'before the installation' => sub {
	is(join('', (ctl($app, qw(lock --try x -- echo ran)))[0, 1]), '69', 'lock exits with 69');
	($rc, $out) = ctl($app, 'doctor');
	is($rc, 1, 'doctor exits with 1');
	like($out, qr/lockctl install/, 'doctor advises lockctl install');
	like((ctl($app, 'locks'))[2], qr/or lockctl install/, 'the error of locks advises lockctl install');
};

is(ctl($installer, qw(install --schema locks)), 0, 'installed');
one('ALTER ROLE CURRENT_USER SET search_path = locks, public');

subtest 'commands that exclude each other' => sub {
	foreach my $case (
		[qw(lock --try x -- echo ran)], [qw(lock --wait 60 --and y x -- echo ran)], [qw(lock --try --shared x -- echo ran)], [qw(lock --try --permits 2 x -- echo ran)],
		[qw(lock --ttl 60 --hold-for 1ms --try x -- echo ran)], [qw(elect --try x me -- echo ran)])
	{
		is(join('', ctl($app, @$case)), "0ran\n", "lockctl @$case");
	}
	is(ctl($app, qw(lock x -- sh -c), 'exit 7'), 7, 'the exit code is that of the command');

	# The line of the crontab on the first page, on two machines, one of which is late.
	my ($line) = slurp_file('README.md') =~ m{^0 3 \* \* \* +\S*lockctl (lock .*) -- \S+report$}m;
	is(join('', ctl($app, split(' ', $line), '--', 'echo', 'ran')), "0ran\n",
		'the line of the crontab runs its command');
	is(join('', ctl($app, split(' ', $line), '--', 'echo', 'ran')), '3',
		'the line of the crontab does not run its command a second time');
	is(join('', (ctl({ env => { PGUSER => (getpwuid $>)[0] } }, qw(-q release --force --now nightly)))[0]), '0', 'an operator opens the name');

	# The lock of a killed lockctl is granted to the waiter when its TTL has passed.
	my ($file, $first, $second) = two();
	$first->kill('KILL');
	$first->wait;
	one_after_the_other($file, $second);
};

subtest 'a command that cannot keep its lock' => sub {
	my ($file, $first, $second) = two();
	one("SELECT evict_lock('$contended')");
	is($first->wait, 4, 'the evicted lockctl exits with 4');
	one_after_the_other($file, $second);
};

subtest 'single steps' => sub {
	chomp(my $token = (ctl($app, qw(acquire s --ttl 1h)))[1]);
	like($token, qr/^\d+$/, 'acquire');
	is(ctl($app, 'held', 's', $token), 0, 'held');
	is(ctl($app, 'renew', 's', $token), 0, 'renew');
	is(ctl($app, qw(acquire s --try)), 3, 'acquire --try of a held lock');
	is(ctl($app, 'release', 's', $token), 0, 'release');
	is(ctl($app, 'held', 's', $token), 4, 'held after the release');
	chomp(my $lease = (ctl($app, qw(lease grant)))[1]);
	is(ctl($app, 'lease', @$_, $lease), 0, "lease @$_") foreach ['ttl'], [ 'keep-alive', '--once' ];
	like((ctl($app, qw(lease list)))[1], qr/$lease/, 'lease list');
	is(ctl($app, qw(acquire s --lease), $lease), 0, 'acquire --lease');
	is(ctl($app, qw(lease revoke), $lease), 0, 'lease revoke');
	is(ctl($app, 'locks', 's'), 1, 'the revoke has ended the lock of the lease');
	is(ctl($app, qw(acquire s --ttl 1h)), 0, 'acquire for release --force');
	is(ctl($app, qw(-q release --force s)), 0, 'release --force of a lock of the same role');
	is(ctl($app, qw(-q release --force --now s)), 0, 'release --force --now');
};

subtest 'views and observers' => sub {
	my $listener = start_ctl($app, qw(elect -l beat));
	my $leader = start_ctl($app, qw(elect beat me -- sleep 1000));
	my $holder = start_ctl($app, qw(lock seen -- sleep 1000));
	wait_held($_) foreach qw(beat seen);
	my $waiter = start_ctl($app, qw(lock seen -- true));
	wait_waiting('seen');
	foreach my $case (['locks'], ['waiters'], ['elections'], ['status'], [qw(watch --count 1)], [qw(locks seen)], [qw(waiters seen)], [qw(elections beat)])
	{
		foreach my $format (qw(table json csv))
		{
			($rc, $out, $err) = ctl($app, '-o', $format, @$case);
			is($rc . $err, '0', "@$case as $format");
			isnt($out, '', "@$case as $format prints something");
		}
	}
	like((ctl($app, qw(-o json status)))[1], qr/^\{"edition":"portable \d+","role":"primary","ok":true.*"held":2,"waiting":1,/, 'status counts');
	ok(wait_until(sub { $listener->out =~ /me/ }), 'a listener prints the leader');
	($rc, $out, $err) = ctl($app, qw(-o csv top --count 1 --interval 100ms));
	like("$rc$err$out", qr/^0locks,waiters,oldest,grants,releases,renewals,waits\n2,1,[\d.]+,[\d.]+,[\d.]+,[\d.]+,[\d.]+\n\z/, 'top as CSV has the counters of the portable edition');
	like((ctl($app, qw(-o json top --count 1 --interval 100ms)))[1], qr/^\{"locks":2,"waiters":1,"oldest":[\d.]+,"grants":[\d.]+,"releases":[\d.]+,"renewals":[\d.]+,"waits":[\d.]+\}\n\z/, 'top as JSON has the counters of the portable edition');
	foreach my $c ($waiter, $holder, $leader, $listener)
	{
		$c->kill('TERM');
		$c->wait;
	}
	nothing_left($node);
};

# Returns the lines of doctor about one check.
sub checked
{
	my ($check, @as) = @_;
	my $text = (ctl(@as ? @as : $app, 'doctor'))[1];

	return join '', $text =~ /^(?:ok|note|WRONG) +$check .*\n(?: .*\n)*/mg;
}

subtest 'doctor' => sub {
	($rc, $out, $err) = ctl($app, 'doctor');
	is($rc . $err, '0', 'doctor exits with 0') or diag($out);
	is(join(' ', $out =~ /^(?:note|WRONG) +(\w+)/mg), 'search_path', 'doctor has a note about the search_path only');
	is(checked('edition'), "ok     edition      portable, version 1, functions in schema locks, owned by role installer\n", 'doctor: the installed version');
	like(checked('search_path'), qr/schema locks is not on it.*\n.*ALTER DATABASE/,
		'doctor advises to alter the search_path');
	is(ctl($app, '-o', $_, 'doctor'), 0, "doctor as $_") foreach qw(json csv);

	my $waits = session($node, user => 'app');
	$waits->query(q{SELECT locks.acquire_lock('since', '1 h', owner => 'other')});
	$waits->async(q{SELECT locks.acquire_lock('since', '1 h')});
	wait_for_sql($node, q{SELECT count(*) = 1 FROM lock_election.waiters WHERE name = 'since'});
	is(checked('waits'), "ok     waits        nobody has waited for a lock for more than 30 s\n", 'waits, as the role of the waiter');
	like(checked('waits', { env => { PGUSER => 'installer' } }), qr/^ok .*; since when some wait only members of their role/, 'waits, as a role that cannot see when they began');
	one('SELECT pg_cancel_backend(' . $waits->pid . ')');
	$waits->wait;
	one(q{SELECT force_release_lock('since')});
	$waits->quit;

	one(q{ALTER DATABASE postgres SET lock_election.notify = 'none'});
	is(checked('settings'), "ok     settings     fsync on, synchronous_commit on\n", 'settings of the library are ignored');
	one('ALTER DATABASE postgres RESET lock_election.notify');
	one('ALTER DATABASE postgres SET search_path = locks, public; ALTER ROLE app SET default_transaction_isolation = serializable');
	like(checked('search_path'), qr/^ok .* has schema locks/, 'the schema is on the search_path');
	like(checked('isolation'), qr/^note .*serializable by default/, 'serializable is the default isolation level');
	one('ALTER ROLE app RESET ALL; GRANT installer TO app; REVOKE USAGE ON SCHEMA locks FROM PUBLIC');
	like(checked('owner'), qr/^note .* may change all locks: app/, "a role is a member of the owner's role");
	one('REVOKE installer FROM app');
	like(checked('rights'), qr/^note .*cannot use locks as app/, 'the role cannot use the schema');
	one('GRANT USAGE ON SCHEMA locks TO PUBLIC; ALTER ROLE installer SUPERUSER');
	like(checked('owner'), qr/^note .*installer is a superuser/, 'an owner with too many rights');
	one('ALTER ROLE installer NOSUPERUSER');

	one(q{COMMENT ON SCHEMA _lock_election IS 'The portable edition of lock_election, version 0: older'});
	like(checked('edition'), qr/^note .*version 0, and lockctl has 1;.*\n.*lockctl install/, 'an older version');
	is(ctl($installer, 'install'), 0, 'install over an older version');
	like(checked('edition'), qr/^ok /, 'after install, the version is ok');
	one(q{COMMENT ON SCHEMA _lock_election IS 'The portable edition of lock_election, version 7: newer'});
	like(checked('edition'), qr/^note .*newer lockctl/s, 'a newer version');
	one('COMMENT ON SCHEMA _lock_election IS NULL');
	like(checked('edition'), qr/^note .*unknown version/, 'an unknown version');
	is(ctl($installer, 'install'), 0, 'install over an unknown version');

	one('ALTER ROLE app SET default_transaction_read_only = on');
	like(checked('health'), qr/^WRONG .*read-only/, 'a role that cannot write');
	one('ALTER ROLE app RESET ALL');
	$node->append_conf('postgresql.conf', "autovacuum = off\nsynchronous_standby_names = 'nobody'\nsynchronous_commit = local\n");
	$node->reload;
	wait_for_sql($node, 'SHOW autovacuum', 'off');
	like(checked('autovacuum'), qr/^WRONG .*each renewal leaves/, 'autovacuum is off');
	like(checked('replication'), qr/^WRONG .*no standby is connected/, 'the synchronous standby is not connected');
	$node->append_conf('postgresql.conf', "autovacuum = on\nsynchronous_standby_names = ''\nsynchronous_commit = on\n");
	$node->reload;
	wait_for_sql($node, 'SHOW autovacuum', 'on');

	# expired rows, and dead row versions
	one(q{INSERT INTO _lock_election.lease SELECT i, '1 s', now() - interval '1 day', life, life, 0, 'app'::regrole, true FROM generate_series(1, 1001) i, _lock_election.life});
	like(checked('rows', $installer), qr/^note .*1001 holds and leases.*\n.*reap/, 'expired rows that no call removes');
	like(checked('rows'), qr/^ok .*only their owner/, 'a role without rights cannot see the expired rows');
	is(one('SELECT lock_election.reap(2000) > 1000'), 't', 'reap() removes them');
	like(checked('rows', $installer), qr/^ok /, 'after reap(), the rows are ok');

	# an open transaction that is idle for longer than doctor allows
	my $s = session($node, user => 'app');
	$s->query(q{BEGIN; SELECT acquire_lock('still')});
	like(checked('transactions'), qr/^ok /, 'a transaction that has just begun');
	one(q{GRANT pg_read_all_stats TO installer});
	my $long = sub { return checked('transactions', $installer) =~ /^note .*been idle.*\n.*pg_terminate_backend\(@{[$s->pid]}\)/; };
	ok(wait_until($long, undef, 2), 'an idle transaction blocks other calls with the name');
	$s->quit;
};

nothing_left($node);
done_testing();
