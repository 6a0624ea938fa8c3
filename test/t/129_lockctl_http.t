# lockctl elect --http: the addresses on which it listens, and that a probe gets its reply whatever other clients do.
# Promises: -
# Needs: lockctl
use strict;
use warnings;
use Cwd;
use IO::Select;
use IO::Socket::IP;
use LeCtl;
use LeTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = new_node('main');
ctl_node($node);

sub connected
{
	my ($port, $host) = @_;

	return IO::Socket::IP->new(PeerHost => $host // '127.0.0.1', PeerPort => $port, Timeout => 10);
}

# Returns the whole reply, or '' if none arrives within ten seconds or the connection is reset.
sub http
{
	my ($port, $host, $request) = @_;
	my $socket = connected($port, $host) or return '';
	my $answer = '';

	print $socket $request // "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	$socket->flush;
	while (IO::Select->new($socket)->can_read(10))
	{
		my $got = sysread($socket, $answer, 65536, length $answer);
		return defined $got ? $answer : '' if !$got;
	}
	return '';
}

sub leader
{
	my ($address, %env) = @_;
	# a sanitizer must be loaded before all other libraries
	my $c = start_ctl({ env => \%env, plain => $env{LD_PRELOAD} }, 'elect', 'boss', "a\n\"b\"", '--http', $address);

	ok(wait_until(sub { $c->out =~ /^\d+\n/ }), "--http $address") or diag($c->err);
	return $c;
}

sub stop { my ($c) = @_; $c->kill('TERM'); return is($c->wait, 143, 'the leader exits after SIGTERM'); }

my $has_ipv6 = IO::Socket::IP->new(LocalHost => '::1', Listen => 1);

subtest 'addresses' => sub {
	my $port = PostgreSQL::Test::Cluster::get_free_port();

	foreach my $address (":$port", "*:$port")
	{
		my $c = leader($address);
		like(http($port, '127.0.0.1'), qr/^HTTP\S+ 200/, 'IPv4');
	  SKIP:
		{
			skip 'no IPv6 here', 1 unless $has_ipv6;
			like(http($port, '::1'), qr/^HTTP\S+ 200/, 'IPv6');
		}
		stop($c);
	}
	system_or_bail('make', '-s', 'build/ipv4.so');
	my $c = leader(":$port", LD_PRELOAD => getcwd() . '/build/ipv4.so');
	like(http($port, '127.0.0.1'), qr/^HTTP\S+ 200/, 'without IPv6 in the kernel, IPv4 works');
	is(http($port, '::1'), '', 'without IPv6 in the kernel, IPv6 is not served') if $has_ipv6;
	stop($c);
	$c = leader("127.0.0.1:$port");
	like(http($port, '127.0.0.1'), qr/^HTTP\S+ 200/, 'the given address is served');
	is(http($port, '::1'), '', 'other addresses are not served') if $has_ipv6;
	my ($rc, $out, $err) = ctl('elect', 'other', 'me', '--http', ":$port", '--', 'true');
	is($rc, 64, 'a port that is in use');
	like($err, qr/cannot listen on ":$port": Address already in use/, 'the error names the port that is in use');
	stop($c);
};

my $port = PostgreSQL::Test::Cluster::get_free_port();
my $leader = leader("127.0.0.1:$port");

subtest 'requests' => sub {
	my ($header, $body) = split(/\r\n\r\n/, http($port));
	is($node->safe_psql('postgres', "SELECT (\$q\$$body\$q\$::json)->>'candidate'"), "a\n\"b\"", 'a candidate with special characters is valid JSON');
	my ($length) = $header =~ /^Content-Length: (\d+)\r?$/m;
	is($length, length $body, 'Content-Length is the length of the body');
	is((split(/\r\n\r\n/, http($port, undef, "HEAD / HTTP/1.0\r\n\r\n")))[1], undef, 'HEAD has no body');
	foreach my $size (10, 1000 .. 1030, 60000)
	{
		my $answer = http($port, undef, "GET / HTTP/1.1\r\nCookie: " . 'a' x $size . "\r\n\r\n");
		is($answer =~ /^HTTP\S+ 200.*\n\z/s, 1, "a header of $size bytes") or last;
	}
	# If a connection is closed before all input was read, it is reset, and the reply can be lost. On a busy machine,
	# the second that a request may take can pass in between, so try again.
	ok(wait_until(sub {
				my ($socket, $answer) = (connected($port), '');
				syswrite($socket, "GET / HTTP/1.1\r\nCookie: " . 'a' x 2000);
				return if IO::Select->new($socket)->can_read(0.1);
				syswrite($socket, "\r\n\r\n");
				return IO::Select->new($socket)->can_read(10) && sysread($socket, $answer, 12) && $answer eq 'HTTP/1.1 200';
			}),
		'a long request is read completely before the reply');
};

# A long name and a long candidate, so that a leak of a reply becomes visible.
subtest 'replies do not leak memory' => sub {
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	# a sanitizer keeps freed memory
	my $c = start_ctl({ plain => 1 }, 'elect', 'x' x 200, 'y' x 200, '--http', "127.0.0.1:$port");
	my $memory = sub { return slurp_file('/proc/' . $c->pid . '/status') =~ /^RssAnon:\s+(\d+) kB$/m ? $1 : die; };

	ok(wait_until(sub { http($port) =~ /^HTTP\S+ 200/ }), 'the candidate leads');
	http($port) foreach 1 .. 100;
	my $before = $memory->();
	http($port) foreach 1 .. 1500;
	cmp_ok($memory->() - $before, '<', 150, 'growth in kB after 1,500 requests');
	stop($c);
};

subtest 'a client is dropped after a second' => sub {
	local $SIG{PIPE} = 'IGNORE';
	foreach my $drips (0, 1)
	{
		my $took;

		# retried, because a busy machine can delay it
		ok(wait_until(sub {
					my $socket = connected($port);
					my $start = time;
					syswrite($socket, 'GET / HT');
					until (IO::Select->new($socket)->can_read(0.01) || time > $start + 10)
					{
						syswrite($socket, 'x') if $drips;
					}
					$took = time - $start;
					return $took < 1.9;
				}),
			$drips ? 'single bytes: dropped after a second' : 'nothing more: dropped after a second');
		cmp_ok($took, '>=', 0.9, 'the client is not dropped earlier');
	}
};

subtest 'a probe gets a reply although many clients are connected' => sub {
	my $more_than_places = 200;

	# The oldest connection is closed before its second has passed if no place is left.
	ok(wait_until(sub {
				my $start = time;
				my @silent = map { connected($port) } 1 .. $more_than_places;
				return IO::Select->new($silent[0])->can_read(0.05) && time < $start + 0.9;
			}),
		'the oldest connection is closed to make room');

	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		# 60 clients that send single bytes, and reconnect
		local $SIG{PIPE} = 'IGNORE';
		my @drip;
		while (getppid != 1)
		{
			foreach my $i (0 .. 59)
			{
				$drip[$i] = undef if defined $drip[$i] && !defined syswrite($drip[$i], 'x');
				$drip[$i] //= connected($port);
			}
			sleep 0.05;
		}
		POSIX::_exit(0);
	}
	my @answered = map { sleep 0.2; http($port) =~ /^HTTP\S+ 200/ ? 1 : 0 } 1 .. 20;
	kill 'KILL', $pid;
	waitpid $pid, 0;
	is(join('', @answered), '1' x 20, 'all probes get replies next to 60 slow clients');
};

stop($leader);
nothing_left($node);
$node->stop;
done_testing();
