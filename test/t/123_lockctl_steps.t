# lockctl's single steps and views, elections, HTTP, systemd, and bash completion.
# Promises: -
# Needs: lockctl, bash-completion
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use File::Basename qw(dirname);
use IPC::Run ();
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Socket;
use Test::More;
use Time::HiRes ();

my $node = new_node('main');
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($rc, $out, $err);

# Extracts a value from JSON text, with the server as the parser.
sub json { my ($text, $path) = @_; return one("SELECT (\$json\$$text\$json\$::json) $path"); }

subtest 'acquire, renew, held, release' => sub {
	($rc, $out) = ctl('acquire', 'x y', '--ttl', '1min');
	like("$rc $out", qr/^0 \d+\n$/, 'acquire prints only the token');
	chomp(my $token = $out);
	is(ctl('acquire', 'x y', '--try'), 3, 'acquire --try does not acquire a held lock');
	is(ctl('acquire', 'x y', '--wait', '0.1', '-E', 9), 9, 'acquire --wait does not acquire a held lock in time');
	is(ctl('held', 'x y', $token), 0, 'held');
	is(ctl('held', 'x y', $token + 1), 4, 'not held by another token');
	($rc, $out) = ctl('renew', 'x y', $token, '--ttl', '2min');
	is("$rc $out", "0 00:02:00\n", 'renewed');
	($rc, $out) = ctl('-o', 'json', 'renew', 'x y', $token);
	is(json($out, q{->>'valid_for'}), '00:02:00', 'renew as JSON');
	my $c = start_ctl('acquire', 'x y');
	wait_waiting('x y');
	$c->kill('INT');
	is($c->wait, 130, 'SIGINT ends a wait');
	is(one('SELECT count(*) FROM lock_election.waiters'), 0, 'no place is left after SIGINT');
	is(ctl('release', 'x y', $token), 0, 'released');
	is(ctl('release', 'x y', $token), 4, 'a second release exits with 4');
	is(ctl('renew', 'x y', $token), 4, 'renew after the release exits with 4');
	my @tokens = map { (ctl('acquire', 'p', '--permits', 2, '--try', '-o', 'csv'))[1] } 1 .. 2;
	like($tokens[1], qr/^token\n\d+\n$/, 'acquire as CSV');
	is(ctl('acquire', 'p', '--permits', 2, '--try'), 3, 'a third permit is not acquired');
	is(ctl('acquire', 'p', '--permits', 3, '--try'), 64, 'exit code 64 if the server rejects an argument');
	is(ctl('acquire', 'p2', '--lease', 1, '--try'), 4, 'exit code 4 if the server reports a lost lease');
	($rc, $out, $err) = ctl('release', '--force', 'p');
	is("$rc $out", "0 2\n", 'release --force evicts both holders');
	my $until = qr/lock "p" cannot be renewed any more, and ends when it is released, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* \(in (\d+) s\) at the latest; --now would not wait for that\n/;
	like($err, qr/\Alockctl: $until\z/, 'release --force prints the deadline of the holders');
	cmp_ok($err =~ $until ? $1 : 0, '<=', 30, 'the deadline is at most one TTL away');
	is(one('SELECT count(*) FROM lock_election.locks WHERE evicted'), 2, 'both evicted holders still hold');
	chomp(my $evicted = $tokens[0] =~ s/^token\n//r);
	($rc, $out, $err) = ctl('renew', 'p', $evicted);
	is("$rc $out$err", "4 lockctl: lock \"p\" is held by this token, but cannot be renewed any more: stop the work, and release it\n", 'an evicted holder cannot renew');
	is(ctl('held', 'p', $evicted), 0, 'an evicted holder still holds');
	($rc, $out, $err) = ctl('release', '--force', 'p');
	is("$rc $out", "0 0\n", 'a second release --force evicts nobody');
	like($err, qr/\Alockctl: $until\z/, 'a second release --force prints the same deadline');
	($rc, $out, $err) = ctl('release', '--force', '--now', 'p');
	is("$rc $out$err", "0 2\nlockctl: ended immediately: a process that was working may continue next to the next holder until it notices\n", 'release --force --now ends both holders');
	my $bound = session($node);
	$bound->query(q{SELECT acquire_lock('bound', NULL)});
	($rc, $out, $err) = ctl('release', '--force', 'bound');
	like("$rc $out$err", qr/\A69 lockctl: lock "bound" cannot be evicted: it is bound to a connection.*pg_terminate_backend\(@{[ $bound->pid ]}\)/s, 'release --force cannot evict a holder bound to a connection');
	$bound->quit;
	my @owned = map { (ctl('acquire', 'o', '--owner', 'me'))[1] } 1 .. 2;
	is($owned[0], $owned[1], 'acquire with the same owner returns the same token');
	ctl('release', '--force', '--now', 'o');
	nothing_left($node);
};

subtest 'leases' => sub {
	chomp(my $lease = (ctl('lease', 'grant', '--ttl', '1min', '--owner', 'me'))[1]);
	($rc, $out) = ctl('lease', 'ttl', $lease);
	like($out, qr/^00:00:5\d\.\d+\n$/, 'lease ttl');
	chomp(my $token = (ctl('acquire', 'x', '--lease', $lease))[1]);
	($rc, $out) = ctl('-o', 'json', 'lease', 'list');
	is(json($out, q{->0->>'locks'}), 1, 'lease list');
	is((ctl('lease', 'keep-alive', '--once', $lease))[1], "00:01:00\n", 'lease keep-alive --once');
	is(ctl('lease', 'revoke', $lease), 0, 'lease revoke');
	is(ctl('lease', 'revoke', $lease), 4, 'a second lease revoke exits with 4');
	is(ctl('held', 'x', $token), 4, 'lease revoke ends the locks of the lease');
	is(ctl('lease', 'ttl', $lease), 4, 'lease ttl of a revoked lease exits with 4');

	chomp($lease = (ctl('lease', 'grant', '--ttl', '4s'))[1]);
	my $c = start_ctl('lease', 'keep-alive', $lease);
	my $end = Time::HiRes::time() + 5;
	wait_until(sub { Time::HiRes::time() > $end });
	is(ctl('lease', 'ttl', $lease), 0, 'keep-alive keeps the lease for longer than its TTL');
	ctl('lease', 'revoke', $lease);
	is($c->wait, 4, 'keep-alive exits with 4 when the lease is revoked');
	nothing_left($node);
};

subtest 'views' => sub {
	my $name = qq{a "quoted", name; \\ \x{1b}[31m};
	my $token = one('SELECT acquire_lock($q$' . $name . '$q$, \'1 h\')');
	my $waiter = session($node);
	$waiter->async('SELECT acquire_lock($q$' . $name . '$q$, wait => \'1 h\')');
	wait_for_sql($node, 'SELECT count(*) = 1 FROM lock_election.waiters');
	($rc, $out) = ctl('-o', 'json', 'locks');
	is(json($out, q{->0->>'token'}), $token, 'locks as JSON');
	is(json($out, q{->0->>'waiters'}), 1, 'locks as JSON have all columns');
	($rc, $out) = ctl('-o', 'csv', 'locks');
	like($out, qr/^kind,name,.*\nlock,"a ""quoted"", name; \\ /, 'locks as CSV');
	($rc, $out) = ctl('locks');
	my $line = qr/^lock +a "quoted", name; \\ \?\[31m .*$token/m;
	like($out, qr/^kind +name .*\n$line/, 'locks as a table contain no escape sequence');
	is((ctl('-o', 'json', 'locks', 'nothing'))[1], "[]\n", 'locks of an unknown name as JSON');
	one('SELECT campaign($q$' . $name . '$q$, $q$me$q$, \'1 h\')');
	foreach my $format ('table', 'json', 'csv')
	{
		foreach my $view ('locks', 'waiters', 'elections')
		{
			is(join(' ', map { scalar ctl('-o', $format, $view, @$_) } [$name], ['nothing'], []), '0 1 0', "-o $format $view: exit codes for a name, an unknown name, and all names");
		}
	}
	one('SELECT force_resign($q$' . $name . '$q$)');
	is(ctl('elections'), 0, 'elections without a leader exits with 0');
	($rc, $out) = ctl('-o', 'json', 'waiters', $name);
	is(json($out, q{->0->>'queue_position'}), 1, 'waiters');
	($rc, $out) = ctl('-o', 'json', 'status');
	is(json($out, q{->>'pid'}), one('SELECT pid FROM lock_election.manager'), 'status');
	like((ctl('status'))[1], qr/^handoffs +\d+$/m, 'status as a table');
	$waiter->kill;
	is(ctl('release', $name, $token), 0, 'released');

	my $watch = start_ctl('-o', 'json', 'watch', '--interval', '50ms');
	my $other = start_ctl('watch', 'other', '--interval', '50ms');
	one(q{SELECT acquire_lock('seen')});
	ok(wait_until(sub { $watch->out =~ /"event":"(granted|held)".*"name":"seen"/ }), 'watch sees a grant');
	my @blocked = ($^X, '-MPOSIX', '-e', 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGTERM)); exec @ARGV');
	my $sleeps = start_ctl({ wrap => \@blocked }, '-o', 'csv', 'watch', '--interval', '1h');
	ok(wait_until(sub { $sleeps->out =~ /,seen,/ }), 'watch prints the holder, and sleeps for an hour');
	$sleeps->kill('TERM');
	is($sleeps->wait, 143, 'SIGTERM ends watch even if it was blocked when watch started');
	one(q{SELECT force_release_lock('seen')});
	ok(wait_until(sub { $watch->out =~ /"event":"ended".*"name":"seen"/ }), 'watch sees the end of a lock');
	$watch->kill('INT');
	is($watch->wait, 130, 'SIGINT ends watch');
	$other->kill('TERM');
	is($other->wait . $other->out, '143', 'watch with another name prints nothing');

	# Each event is one line, whatever the name contains: ESC, a line feed, or CSI as one character.
	my $plain = start_ctl('watch', '--interval', '50ms');
	one(q{SELECT acquire_lock(E'a\nb\x1b[31mc\u009b31md', owner => E'e\x1b[0m')});
	ok(wait_until(sub { $plain->out =~ /^\S+ \S+  (granted|held)  +lock  +a\?b\?\[31mc\?31md  e\?\[0m  0 waiting\n/m }), 'watch as text replaces control characters')
	  or diag($plain->out);
	one(q{SELECT force_release_lock(E'a\nb\x1b[31mc\u009b31md')});
	$plain->kill('TERM');
	is($plain->wait, 143, 'SIGTERM ends watch');
	nothing_left($node);
};

sub http
{
	my ($port, $request) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 10) or return '';

	print $socket $request // "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	local $/;
	return <$socket> // '';
}

subtest 'elections' => sub {
	my @ports = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
	my $listener = start_ctl('-o', 'json', 'elect', '--listen', 'boss');
	my $reader = start_ctl('elect', 'boss', '-l');
	my $csv = start_ctl('-o', 'csv', 'elect', 'boss', '-l');
	ok(wait_until(sub { $csv->out eq "change,how,term,candidate\n" }),
		'elect -l as CSV prints a header') or diag($csv->out);
	my $a = start_ctl('elect', 'boss', 'a "first"', '--http', "127.0.0.1:$ports[0]", '--ttl', '3s');
	ok(wait_until(sub { $a->out =~ /^\d+\n$/ }), 'elected');
	my $b = start_ctl('elect', 'boss', 'b', '--http', "127.0.0.1:$ports[1]", '--ttl', '3s');
	wait_waiting('boss');
	my $body = qr{\{"leader": true, "election": "boss", "candidate": "a \\"first\\"", "term": \d+\}\n};
	like(http($ports[0]), qr{^HTTP/1.1 200 OK\r\n.*\r\n\r\n$body$}s, 'the leader: 200');
	like(http($ports[1]), qr{^HTTP/1.1 503 .*"leader": false}s, 'another candidate: 503');
	unlike(http($ports[0], "HEAD / HTTP/1.0\r\n\r\n"), qr/leader/, 'the reply to HEAD has no body');
	my @silent = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $ports[0]) } 1 .. 20;
	like(http($ports[0]), qr/^HTTP\S+ 200/, 'silent clients do not block a probe');
	($rc, $out) = ctl('-o', 'json', 'elections');
	is(json($out, q{->0->>'candidate'}), 'a "first"', 'elections shows the candidate');
	$a->kill('KILL');
	ok(wait_until(sub { http($ports[1]) =~ /^HTTP\S+ 200/ }), 'the next candidate leads after the leader was killed');
	one(q{SELECT force_resign('boss')});
	ok(wait_until(sub { $b->out =~ /^\d+\n\d+\n$/ }), 'a leader that loses its term campaigns again');
	is(ctl('elect', 'boss', 'c', '--try', '--', 'true'), 3, 'elect --try is not elected');
	is(ctl('elect', 'boss', 'c', '--wait', '0.2', '-E', 8, '--', 'true'), 8, 'elect --wait is not elected in time');
	is(ctl('elect', '-n', 'boss', 'c', 'true'), 3, 'elect -n is not elected');
	is(ctl('elect', '-w', '0.2', 'boss', 'c', 'true'), 3, 'elect -w is not elected in time');
	$b->kill('TERM');
	is($b->wait, 143, 'SIGTERM ends a leader without a command');
	is((ctl('elect', 'boss', 'd', '--', 'sh', '-c', 'exit 5'))[0], 5, 'elect exits with the code of its command');
	ok(wait_until(sub { $listener->out =~ /"candidate":"d"\}\n.*"resigned".*\n/ }), 'the last term is printed')
	  or diag($listener->out);
	my $all = 'elected expired elected forced elected resigned elected resigned';
	is(join(' ', $listener->out =~ /"how":"(\w+)"/g), $all, 'the listener has printed all changes in order');
	$listener->kill('INT');
	is($listener->wait, 130, 'SIGINT ends the listener');
	one(q{SELECT campaign('boss', E'x\nelected  1  \x1b[31my')});
	ok(wait_until(sub { $reader->out =~ /^elected  \d+  x\?elected  1  \?\[31my\n/m }), 'elect -l as text: a change is one line without control characters')
	  or diag($reader->out);
	one(q{SELECT force_resign('boss')});
	my $changes = join '.*', map { qr/^\d+,$_->[0],\d+,$_->[1]\n/m } [ elected => '"a ""first"""' ], [ expired => '"a ""first"""' ], [ elected => 'b' ], [ forced => 'b' ],
	  [ elected => qr/"x\nelected  1  \x1b\[31my"/ ], [ forced => qr/"x\nelected  1  \x1b\[31my"/ ];
	ok(wait_until(sub { $csv->out =~ /$changes/s }),
		'elect -l as CSV: a candidate can contain any character') or diag($csv->out);
	$csv->kill('HUP');
	is($csv->wait, 129, 'SIGHUP ends the listener');
	$reader->kill('TERM');
	$reader->wait;
	nothing_left($node);
};

subtest 'systemd' => sub {
	my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => "$dir/notify") or die $!;
	my $token = one(q{SELECT acquire_lock('x', '1 h')});
	my @command = ('sh', '-c', 'echo "[$NOTIFY_SOCKET]"; exec sleep 1000');
	my $c = start_ctl({ env => { NOTIFY_SOCKET => "$dir/notify" } }, 'lock', 'x', '--notify', '--', @command);
	my $text;
	$socket->recv($text, 1000);
	like($text, qr/^EXTEND_TIMEOUT_USEC=\d{7,}$/m, 'a waiting lockctl extends the timeout of systemd');
	one("SELECT release_lock('x', $token)");
	do { $socket->recv($text, 1000) } while ($text =~ /EXTEND/);
	like($text, qr/^READY=1$/m, 'READY=1 after the grant');
	ok(wait_until(sub { $c->out eq "[]\n" }), 'with --notify, the command does not get NOTIFY_SOCKET');
	$c->kill('TERM');
	is($c->wait, 143, 'lockctl exits after SIGTERM');
	$socket->recv($text, 1000);
	like($text, qr/^STOPPING=1$/m, 'STOPPING=1 after the signal');

	# without --notify, the command gets the socket
	my %notify = (NOTIFY_SOCKET => "$dir/notify");
	is((ctl({ env => \%notify }, 'lock', 'x', '--', @command[ 0, 1 ], 'echo "[$NOTIFY_SOCKET]"'))[1], "[$dir/notify]\n", 'without --notify, the command gets NOTIFY_SOCKET');
	ok(!IO::Select->new($socket)->can_read(0), 'without --notify, lockctl sends nothing');

	# an abstract socket, whose name is not in the file system
	socket(my $abstract, AF_UNIX, SOCK_DGRAM, 0) or die $!;
	bind($abstract, pack_sockaddr_un("\0lockctl $$")) or die $!;
	is(ctl({ env => { NOTIFY_SOCKET => "\@lockctl $$" } }, 'lock', 'x', '--notify', 'true'), 0, 'an abstract socket');
	my @said;
	while (IO::Select->new($abstract)->can_read(0) && defined recv($abstract, $text, 1000, 0)) { push @said, $text if $text !~ /EXTEND/; }
	like("@said", qr/^READY=1\nSTATUS=lock "x", token \d+ STOPPING=1$/, 'the messages to an abstract socket');
	# Paths that are not a socket; the last two are the longest path that fits and one that is too long.
	is(ctl({ env => { NOTIFY_SOCKET => $_ } }, 'lock', 'x', '--notify', 'true'), 0, 'a NOTIFY_SOCKET that is not a socket is ignored: ' . substr($_, 0, 20)) foreach '', 'notify', '/' . 'x' x 106, '/' . 'x' x 107;
	nothing_left($node);
};

# Completes a line in the way in which bash calls the completion.
sub complete
{
	my ($line, %env) = @_;
	my @words = split / /, $line, -1;
	my $count = $#words;
	my $words = join ' ', map { "'$_'" } @words;

	local %ENV = (%ENV, ctl_env(), PATH => dirname($lockctl) . ":$ENV{PATH}", %env);
	my $script = ". src/lockctl/lockctl.bash; COMP_WORDS=($words); COMP_CWORD=$count; _lockctl; "
	  . 'printf "%s\n" "${COMPREPLY[@]}"';
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'bash', '-c', $script ], '<', \undef, '>', \$out, '2>', \$err);
	$out .= $err;
	return join ' ', sort split /\n/, $out;
}

subtest 'completion' => sub {
	one(q{SELECT acquire_lock('nightly report'), acquire_lock('nightly')});
	is(complete('lockctl e'), 'elect elections', 'commands');
	like(complete('lockctl lock --t'), qr/^--try --ttl=?$/, 'options');
	is(complete('lockctl -o '), 'csv json table', 'formats');
	is(complete('lockctl lease '), 'grant keep-alive list revoke ttl', 'the subcommands of lease');
	# The completion waits at most a second for names, which is too short on a busy machine. This "timeout" removes
	# the limit.
	mkdir "$dir/patient" or die $!;
	append_to_file("$dir/patient/timeout", qq{#!/bin/sh\nshift\nexec "\$@"\n});
	chmod 0755, "$dir/patient/timeout";
	is(complete("lockctl $_ n", PATH => "$dir/patient:" . dirname($lockctl) . ":$ENV{PATH}"), 'nightly nightly\\ report', "names: $_") foreach 'locks', 'lock --and';
	like(complete("lockctl $_ prove"), qr/^prove\b/, "a command to run: lockctl $_") foreach 'lock x', 'lock x --', 'lock --try x --ttl 5s', 'elect x me', 'lock -- x', 'lock -w 5 -nE 9 x';
	unlike(complete("lockctl $_ --t"), qr/--ttl/, "no option of lockctl is offered for the command: lockctl $_") foreach 'lock x ssh', 'lock x -- ssh', 'elect x me ssh';
	# an address that never replies
	my $deaf = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die $!;
	my $start = Time::HiRes::time();
	is(complete('lockctl locks n', PGHOST => '127.0.0.1', PGPORT => $deaf->sockport), '', 'no names without a server');
	cmp_ok(Time::HiRes::time() - $start, '<', 30, 'completion without a server ends after its limit of a second');
	one(q{SELECT force_release_lock(name) FROM lock_election.locks});
};

$node->stop;
done_testing();
