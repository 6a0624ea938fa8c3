# Names and other texts that could control a terminal, or be misread: in messages, tables, and for systemd.
# Promises: -
# Needs: lockctl, tmux
use strict;
use warnings;
use IO::Socket::UNIX;
use LeCtl;
use LeTest;
use PostgreSQL::Test::Utils;
use Socket;
use Test::More;

my $node = new_node('main');
ctl_node($node);
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($rc, $out, $err);

sub utf8 { my ($text) = @_; utf8::encode($text); return $text; }

# All characters that a terminal interprets: control characters, also those of two bytes in UTF-8, and characters that
# change the direction.
my %bad = map { $_ => utf8(chr $_) } 1 .. 0x1f, 0x7f .. 0x9f, 0x61c, 0x200e, 0x200f, 0x2028 .. 0x202e, 0x2066 .. 0x2069;
my $any = join '|', map { quotemeta } values %bad;
my $name = "a\nb\e[31mc" . utf8("\x{9b}31md\x{202e}e\x{2066}f\x{200f}g\x{61c}h");
my $escaped = 'a\nb\x1b[31mc\u009b31md\u202ee\u2066f\u200fg\u061ch';
my $shown = 'a?b?[31mc?31md?e?f?g?h';
my $sql = q{E'a\nb\x1b[31mc\u009b31md\u202ee\u2066f\u200fg\u061ch'};

subtest 'messages' => sub {
	foreach my $case (
		[ 64, ['lock', 'x', "--$name"], qr/^lockctl: unknown option "--\Q$escaped\E"\n/ ],
		[ 64, [ 'lock', 'x', '--ttl', $name ], qr/^lockctl: --ttl: "\Q$escaped\E" is not a duration/ ],
		[ 64, [$name], qr/^lockctl: unknown command "\Q$escaped\E"\n/ ],
		[ 64, [ 'locks', 'x', $name ], qr/^lockctl: too many arguments: "\Q$escaped\E"\n/ ],
		[ 64, [ '-S', $name, 'locks', 'x' ], qr/^lockctl: --shards: cannot open "\Q$escaped\E": / ],
		[ 127, [ 'lock', 'x', '--', $name ], qr/^lockctl: cannot run "\Q$escaped\E": / ],
		[ 4, [ 'held', $name, 1 ], qr/^lockctl: lock "\Q$escaped\E" is not held by this token\n/ ],
		[ 0, [ '-v', 'lock', $name, '--', 'true' ], qr/^lockctl: lock "\Q$escaped\E" is acquired/m ],
		[ 0, [ '-v', 'elect', $name, 'me', '--', 'true' ], qr/^lockctl: election "\Q$escaped\E" is acquired/m ])
	{
		my ($code, $args, $message) = @$case;

		($rc, $out, $err) = ctl(@$args);
		is($rc, $code, "exit code $code");
		like($err, $message, 'the argument is escaped');
		is(join('', grep { !/^(?:lockctl: |Try )/ } split(/^/, $err)), '', 'the argument does not start a line');
		unlike($err =~ s/\n//gr, qr/$any/, 'the message contains no character that a terminal interprets');
	}
	my $latin1 = "caf\xe9 \x9b31m";
	like((ctl('lock', 'x', "--$latin1"))[2], qr/"--caf\xe9 \\x9b31m"/,
		'a control character that is not UTF-8 is escaped');
	foreach my $code (sort { $a <=> $b } keys %bad)
	{
		unlike((ctl($bad{$code}))[2] =~ s/\n//gr, qr/$any/, sprintf('U+%04X', $code));
	}
	like((ctl('Größe'))[2], qr/unknown command "Größe"/, 'letters are not escaped');
	like((ctl('-h', "$dir/x", '-p', 1, 'locks'))[2], qr/\Alockctl: .*No such file or directory; Is the server .*\?\n\z/, 'a message of libpq with two lines is printed as one');
};

subtest 'tables' => sub {
	one("SELECT acquire_lock($sql, owner => $sql); SELECT enqueue_lock($sql, owner => 'w' || $sql); SELECT campaign($sql, $sql)");
	foreach my $case (
		[ ['locks'], qr/^lock +\Q$shown\E +exclusive +\Q$shown\E /m ],
		[ ['waiters'], qr/^lock +\Q$shown\E +1 .*w\Q$shown\E /m ],
		[ ['elections'], qr/^\Q$shown\E +\Q$shown\E /m ],
		[ [ 'watch', '--count', 1 ], qr/held +lock +\Q$shown\E  \Q$shown\E  1 waiting$/m ])
	{
		my ($args, $line) = @$case;

		($rc, $out, $err) = ctl(@$args);
		like($out, $line, "@$args: characters that a terminal interprets are replaced");
		unlike($out =~ s/\n//gr, qr/$any/, "@$args: no character that a terminal interprets is left");
	}
	my $listener = start_ctl('elect', '--listen', $name);
	one("SELECT force_resign($sql); SELECT campaign($sql, $sql)");
	ok(wait_until(sub { $listener->out =~ /^elected  \d+  \Q$shown\E\n/m }), 'elect --listen') or diag($listener->out);
	$listener->kill('TERM');
	$listener->wait;
	($rc, $out) = ctl('-d', "x$name" =~ s/\n//r, 'doctor');
	my $database = "x$shown" =~ s/[?]//r;
	like($out, qr/database "\Q$database\E" does not exist/, 'doctor');
	($rc, $out) = ctl('-o', 'json', '-d', "a\e\x{7f}b", 'doctor');
	like(one("SELECT (\$q\$$out\$q\$::json)->0->>'text'"), qr/database "a\e\x{7f}b" does not exist/, 'doctor as JSON does not replace characters');
	one("SELECT force_release_lock($sql); SELECT force_release_lock($sql); SELECT force_resign($sql)");
	nothing_left($node);
};

subtest 'top' => sub {
	my ($tmux) = grep { -x } map { "$_/tmux" } split /:/, $ENV{PATH};
	plan skip_all => 'tmux is not installed' unless defined $tmux;
	plan skip_all => 'no terminals here' unless -w '/dev/ptmx';

	my $socket = PostgreSQL::Test::Utils::tempdir_short() . '/s';
	one("SELECT acquire_lock($sql, owner => $sql)");
	local %ENV = (%ENV, ctl_env(), TERM => 'screen', SHELL => '/bin/sh');
	# -u: tmux passes UTF-8 through, so that characters without width are not lost
	system($tmux, '-u', '-S', $socket, '-f', '/dev/null', 'new-session', '-d', '-x', 120, '-y', 24, "$lockctl top --interval 300ms");
	my $screen = '';
	ok(wait_until(sub { $screen = qx{$tmux -u -S $socket capture-pane -p 2>/dev/null}; return $screen =~ /exclusive/; }), 'top');
	like($screen, qr/^\Q$shown\E +exclusive +\Q$shown\E /m, 'top replaces characters that a terminal interprets');
	system("$tmux -S $socket kill-server");
	one("SELECT force_release_lock($sql)");
	nothing_left($node);
};

subtest 'systemd' => sub {
	my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => "$dir/notify") or die $!;
	my $injected = "x\nREADY=1\nMAINPID=1";
	my $token = one("SELECT acquire_lock(E'x\\nREADY=1\\nMAINPID=1', '1 h')");
	my $c = start_ctl({ env => { NOTIFY_SOCKET => "$dir/notify" } }, 'lock', $injected, '--notify', '--', 'sleep', '1000');
	my $text;
	$socket->recv($text, 10000);
	like($text, qr/^EXTEND_TIMEOUT_USEC=\d+\nSTATUS=waiting for lock "x\\nREADY=1\\nMAINPID=1"$/, 'a name cannot set a variable of systemd');
	one("SELECT release_lock(E'x\\nREADY=1\\nMAINPID=1', $token)");
	do { $socket->recv($text, 10000) } while ($text =~ /EXTEND/);
	like($text, qr/^READY=1\nSTATUS=lock "x\\nREADY=1\\nMAINPID=1", token \d+$/, 'READY is sent only after the grant');
	$c->kill('TERM');
	$c->wait;
	nothing_left($node);
};

$node->stop;
done_testing();
