# The arguments of each command of lockctl, and its errors for invalid options, words and values.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use IO::Socket::IP;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
ctl_node($node);
my ($rc, $out, $err);

# Checks that lockctl prints exactly this message and the hint to --help, and exits with 64.
sub refused
{
	my ($message, @args) = @_;
	my $command = ($args[0] // '-') =~ /^(?:-.*|help|nothing)$/ ? '' : "$args[0] ";
	my $try = qq{Try "lockctl ${command}--help".};

	($rc, $out, $err) = ctl(@args);
	return is("$rc $out$err", "64 lockctl: $message\n$try\n", substr(join(' ', @args), 0, 80));
}

subtest 'words' => sub {
	refused('the command is missing');
	refused('the command is missing', '-v');
	refused('unknown command "nothing"', 'nothing', 'x');
	refused('unknown command "nothing"', 'help', 'nothing');
	my $token = 'NAME and TOKEN';
	foreach my $case (
		[ "missing arguments: $token", 'held' ], [ "missing arguments: $token", 'held', 'x' ], [ "missing arguments: $token", 'renew', 'x' ],
		[ "missing arguments: $token, or --force NAME", 'release', 'x' ], [ 'missing arguments: NAME', 'release', '--force' ],
		[ 'missing arguments: NAME', 'acquire' ], [ 'missing arguments: LEASE', 'lease', 'ttl' ],
		(map { [ 'lease grant, keep-alive, revoke, ttl or list', 'lease', @$_ ] } [], ['nothing'], [ 'nothing', 1 ]),
		(map { [ 'too many arguments: "b"', @$_, 'b' ] } [qw(held x 1)], [qw(renew x 1)], [qw(release x 1)], [qw(release --force x)],
			[qw(acquire x)], [qw(lease grant)], [qw(lease list)], [qw(lease ttl 1)], [qw(held x 1 2 3)], [qw(held -- x 1 2 3)],
			[qw(locks a)], [qw(locks -- a)], [qw(locks a --)], [qw(waiters a)], [qw(elections a)], [qw(status)], [qw(status --)],
			[qw(top)], [qw(top --)], [qw(watch a)], [qw(watch -- a)], [qw(watch a --)]),
		(map { [ qq{$_->[0]: "$_->[1]" is not a number of at least 1}, @$_[ 2 .. $#$_ ], $_->[1] ] }
			map { my $value = $_; [ 'TOKEN', $value, 'held', 'x' ], [ 'TOKEN', $value, 'renew', 'x' ], [ 'TOKEN', $value, 'release', 'x' ],
				[ 'LEASE', $value, 'lease', 'ttl' ] } '0', '1z', '', '9223372036854775808'),
		[ 'the name of the lock is missing', 'lock' ], [ 'the name of the lock is missing', 'lock', '--and', 'y' ],
		[ 'the name of the election is missing', 'elect' ], [ 'the candidate is missing', 'elect', 'x' ],
		[ 'the candidate is missing', 'elect', 'x', '--', 'true' ], [ 'no command follows --', 'lock', 'x', '--' ], [ '"true" is the name or the command: the other one is missing', 'lock', '--try', '--', 'true' ],
		[ 'the name of the command is empty', 'lock', 'x', '' ],
		[ '--listen takes the name of the election, and nothing else', 'elect', '-l', 'x', 'y' ])
	{
		refused(@$case);
	}
	is(ctl('locks', '--', '-x'), 1, 'after --, a name can start with -');
	one(q{SELECT acquire_lock('seen'), acquire_lock('other')});
	is((ctl('watch', '--count', 1, @$_))[1] =~ s/.*held/held/r, "held     lock     seen  0 waiting\n", "watch @$_") foreach ['seen'], [ '--', 'seen' ];
	one(q{SELECT force_release_lock('seen'), force_release_lock('other')});
};

subtest 'options' => sub {
	my %own = (acquire => 'ttl wait try shared permits owner lease conflict-exit-code', renew => 'ttl', release => 'hold-for force election',
		held => '', lease => 'ttl owner once');
	my %flag = map { $_ => 1 } qw(try shared force election once);
	foreach my $command (sort keys %own)
	{
		my %has = map { $_ => 1 } split ' ', $own{$command};

		foreach my $option (qw(ttl wait try shared permits owner lease hold-for force election once conflict-exit-code))
		{
			if (!$has{$option}) { refused(qq{unknown option "--$option"}, $command, "--$option", $flag{$option} ? () : '9'); }
			elsif (!$flag{$option}) { refused(qq{option "--$option" needs a value}, $command, "--$option"); }
		}
	}
	refused('unknown option "--nothing"', $_, '--nothing') foreach qw(lock elect locks status watch top doctor shard);
	refused('unknown option "--nothing"', '--nothing', 'locks');
	# options after words
	refused('unknown option "--nothing"', @$_, '--nothing') foreach [qw(lock x)], [qw(elect x y)], [qw(held x 1)], [qw(locks x)],
	  [qw(watch x)], [qw(top x)], [qw(doctor x)], [qw(shard x)];
	my $shards = PostgreSQL::Test::Utils::tempdir() . '/shards';
	append_to_file($shards, "one dbname=postgres\n");
	is((ctl('shard', 'x', '-S', $shards))[1], "one\n", 'an option of every command after words');
	refused('option "-h" needs a value', 'locks', '-h');
	refused('-o: "xml" is not table, json or csv', '-o', 'xml', 'locks');
	foreach my $case (
		[ '--election requires --force', 'release', '--election', 'x', 1 ], [ '--now requires --force', 'release', '--now', 'x', 1 ],
		[ '--permits cannot be used with --shared', 'acquire', 'x', '-s', '--permits', 2 ], [ '--ttl cannot be used with --lease', 'acquire', 'x', '--ttl', '5s', '--lease', 7 ],
		(map { [ '--permits requires a single name, and cannot be used with --shared', 'lock', 'x', '--permits', 2, @$_ ] } ['-s'], [ '--and', 'y' ]),
		(map { [ '--hold-for requires a single exclusive lock', 'lock', 'x', '--hold-for', '1s', @$_ ] } ['-s'], [ '--permits', 2 ], [ '--and', 'y' ]),
		[ '--at-most requires a command', 'lock', 'x', '--at-most', '1s' ],
		[ '--ttl is 999 ms: to end a command in time, it must be at least 1000 ms', 'lock', 'x', '--ttl', '999ms', 'true' ],
		[ '--grace is more than 350 ms, with --ttl 1000 ms', 'lock', 'x', '--ttl', '1s', '--grace', '351ms', 'true' ],
		[ '--grace is more than 2000 ms, with --ttl 5000 ms', 'lock', 'x', '--ttl', '5s', '--grace', '2001ms', 'true' ],
		[ '--grace is more than 14500 ms, with --ttl 30000 ms', 'lock', 'x', '--grace', '14501ms', 'true' ],
		[ '--grace is more than 7000 ms, with --ttl 15000 ms', 'elect', 'x', 'y', '--grace', '7001ms', 'true' ],
		[ '--grace is more than 0 ms, with --ttl 100 ms', 'lock', 'x', '--ttl', '100ms', '--grace', '1ms' ])
	{
		refused(@$case);
	}
	is(ctl('lock', 'x', @$_, 'true'), 0, "lock x @$_") foreach [ '--ttl', '1s', '--grace', '350ms' ], [ '--ttl', '5s', '--grace', '2s' ], [ '--grace', '14500ms' ];
};

subtest 'numbers and exit codes' => sub {
	my $permits = 'is not a number between 1 and 2147483647';
	my $code = 'is not a number between 0 and 255';
	foreach my $case (
		[ qq{--permits: "0" $permits}, 'lock', 'x', '--permits', 0 ], [ qq{--permits: "2147483648" $permits}, 'acquire', 'x', '--permits', '2147483648' ],
		[ '--lease: "0" is not a number of at least 1', 'acquire', 'x', '--lease', 0 ],
		(map { [ '--count: "0" is not a number of at least 1', $_, '--count', 0 ] } qw(watch top)),
		[ qq{-E: "256" $code}, 'lock', 'x', '-E', 256 ], [ qq{-E: "-1" $code}, 'lock', 'x', '-E', -1 ], [ qq{-E: "" $code}, 'lock', 'x', '-E', '1,' ],
		[ qq{-E: "256" $code}, 'lock', 'x', '-E', '1,256' ], [ qq{-E: "2,3" $code}, 'lock', 'x', '-E', '1,2,3' ], [ qq{-E: "7,8" $code}, 'acquire', 'x', '-E', '7,8' ])
	{
		refused(@$case);
	}
	one(q{SELECT acquire_lock('x')});
	is(ctl($_, 'x', '--try', '-E', 255), 255, "$_: the largest exit code") foreach 'lock', 'acquire';
	one(q{SELECT force_release_lock('x')});
};

subtest 'durations' => sub {
	foreach my $case (
		[ '90', '00:01:30' ], [ '1500ms', '00:00:01.5' ], [ '2 s', '00:00:02' ], [ '3sec', '00:00:03' ], [ '1.5m', '00:01:30' ], [ '2min', '00:02:00' ],
		[ '3h', '03:00:00' ], [ '1d', '24:00:00' ], [ '0.1', '00:00:00.1' ], [ '1000.1ms', '00:00:01.001' ], [ '24d', '576:00:00' ])
	{
		my ($text, $interval) = @$case;
		my $ttl = '';

		# On a busy machine, the shortest leases can expire before their row is read: retry.
		wait_until(
			sub {
				chomp(my $lease = (ctl('lease', 'grant', '--ttl', $text))[1]);
				$ttl = one("SELECT ttl FROM lock_election.leases WHERE lease = $lease");
				ctl('lease', 'revoke', $lease);
				return $ttl ne '';
			});
		is($ttl, one("SELECT interval '$interval'"), "--ttl '$text'");
	}
	refused(qq{--ttl: "$_" is not a duration such as 30, 500ms, 10s, 2min, 1h or 1d}, 'lock', 'x', '--ttl', $_) foreach 'soon', '', '0x10', '1e999', 'inf', 'nan';
	refused(qq{--ttl: "$_" has an unknown unit: use ms, s, min, h or d}, 'lock', 'x', '--ttl', $_) foreach '5 weeks', '1st', '1s ';
	my @days = (' ms and 25 days', ' ms and 24 days');
	foreach my $case (
		(map { [ '--ttl', $_, "100$days[1]", 'acquire', 'x' ], [ '--ttl', $_, "100$days[1]", 'lock', 'x' ] } '99ms', '24.1d', '-1'),
		(map { my @of = @$_; [ '--wait', '-1ms', "0$days[0]", @of ], [ '--hold-for', '0', "1$days[0]", $of[0] eq 'lock' ? @of : ('release', 'x', 1) ] }
			[ 'lock', 'x' ], [ 'acquire', 'x' ]),
		[ '--grace', '-1ms', "0$days[0]", 'lock', 'x' ], [ '--at-most', '0', "1$days[0]", 'lock', 'x' ], [ '--at-most', '25d', "1$days[0]", 'lock', 'x' ],
		[ '--interval', '99ms', "100$days[0]", 'top' ], [ '--interval', '9ms', "10$days[0]", 'watch' ])
	{
		my ($option, $value, $between, @args) = @$case;

		refused(qq{$option: "$value" is not between $between}, @args, "$option=$value");
	}
};

subtest 'addresses' => sub {
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	foreach my $address ('nothing', '127.0.0.1:', 'x' x 256 . ':1')
	{
		refused(qq{--http: "$address" is not ADDR:PORT}, 'elect', 'x', 'y', '--http', $address, 'true');
	}
	# The longest host that fits is looked up, and not found.
	foreach my $host ('nowhere.invalid', 'x' x 255)
	{
		($rc, $out, $err) = ctl('elect', 'x', 'y', '--http', "$host:$port", 'true');
		like("$rc $err", qr/^64 lockctl: --http: "$host:$port": [A-Z]/, 'a host that does not exist');
	}
  SKIP:
	{
		skip 'no IPv6 here', 1 unless IO::Socket::IP->new(LocalHost => '::1', Listen => 1);
		my $c = start_ctl('elect', 'x', 'y', '--http', "[::1]:$port");
		ok(wait_until(sub { IO::Socket::IP->new(PeerHost => '::1', PeerPort => $port) }), 'an IPv6 address in brackets') or diag($c->err);
		$c->kill('TERM');
		is($c->wait, 143, 'lockctl exits after SIGTERM');
	}
};

subtest 'texts' => sub {
	($rc, $out, $err) = ctl('locks', "caf\xe9");
	like("$rc $err", qr/^64 lockctl: "caf\xe9": .*multibyte character/, 'a name that is not UTF-8');
	refused('cannot parse the connection string: there is no such option', 'locks', '-d', 'nothing=here');
	refused('the arguments are too long', $_, 'x' x 9000, $_ eq 'held' ? 1 : ()) foreach 'held', 'locks';
	my $role = q{o'b\r "x" y};
	one(q{CREATE ROLE "o'b\r ""x"" y" LOGIN});
	like((ctl('-U', $role, 'doctor'))[1], qr/^ok +connection .* as \Q$role\E$/m, 'a role name with quotes is passed to the server unchanged');
	like((ctl('-d', "user='o\\'b\\\\r \"x\" y' dbname=postgres", 'doctor'))[1], qr/^ok +connection .* as \Q$role\E$/m, 'a role name with quotes in a connection string');
};

# Cases that no other test covers.
subtest 'shared locks, and locks that stay closed' => sub {
	my @tokens = map { chomp(my $token = (ctl('acquire', 'x', $_, '--try', '--ttl', '1h'))[1]); $token } '-s', '--shared';
	is(one(q{SELECT string_agg(mode, ' ') FROM lock_election.locks}), 'shared shared', 'two holders');
	is(ctl('acquire', 'x', '--try'), 3, 'an exclusive lock is not granted beside shared ones');
	is(ctl('release', 'x', $_), 0, 'released') foreach @tokens;
	chomp(my $token = (ctl('acquire', 'x', '--ttl', '1h'))[1]);
	is(ctl('release', 'x', $token, '--hold-for', '2min'), 0, 'released, and closed for a while');
	is(one(q{SELECT mode IS NULL AND closed_until > now() + interval '1 min' FROM lock_election.locks WHERE name = 'x'}), 't', 'the name is closed after release --hold-for');
	is(ctl('acquire', 'x', '--try'), 3, 'a closed name is not granted');
	like(join('', ctl('release', '--force', 'x')), qr/\A40\nlockctl: nobody holds lock "x"; it is closed until \S+ \S+, and --now would open it\n\z/, 'release --force of a closed name evicts nobody');
	is(join('', ctl('release', '--force', '--now', 'x')), qq{00\n}, 'release --force --now opens the name');
	one(q{SELECT campaign('x', 'me')});
	is((ctl('release', '--force', '--election', 'x'))[1], "1\n", 'the leader of an election of that name is evicted');
	is(one('SELECT evicted FROM lock_election.elections'), 't', 'the evicted leader still leads');
	is((ctl('release', '--force', '--now', '--election', 'x'))[1], "1\n",
		'release --force --now --election ends the leader');
	is(join('', ctl('release', '--force', @$_, '--election', 'x')), qq{40\nlockctl: nobody leads election "x"\n}, 'nobody leads after release --force --now') foreach [], ['--now'];
	is(join('', ctl('-o', 'csv', 'release', '--force', 'nothing')), qq{4evicted\n0\nlockctl: nobody holds lock "nothing" (for an election, use --election)\n}, 'release --force as CSV');
	is(join('', ctl('-o', 'csv', 'release', '--force', '--now', 'nothing')), qq{4ended\n0\nlockctl: nobody holds lock "nothing" (for an election, use --election)\n}, 'release --force --now as CSV');
	nothing_left($node);
};

$node->stop;
done_testing();
