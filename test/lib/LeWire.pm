# A client that speaks PostgreSQL's protocol message by message, for what psql cannot send: the extended protocol with
# chosen types, a suspended portal, a pipeline.
#
#   my $w = LeWire->new($node);
#     $w->parse($name, $sql, type OIDs), $w->bind($portal, $name, values), $w->execute($portal, max_rows), $w->sync
#     $w->query($sql)               simple protocol
#     $w->together(sub { ... })     sends all messages of the code in one packet
#     $w->pipeline(@statements)     Parse, Bind and Execute of each, and Sync, in one packet
#     $w->call($function OID, values)     the fast path, with text arguments
#     $w->cancel                    sends a cancel request
#     $w->cut                       closes the socket without a message
#     $w->wait($types)              reads up to a message of one of these types ('Z': ready, 's': portal suspended,
#                                   'C': command complete) and returns the rows as "a|b", joined by newlines
#     $w->rows($types)              the same, as a list
#     $w->error                     errors and warnings that arrived meanwhile, as "ERROR 22023 text"
#     $w->messages                  the same, each with all its fields by their letters
#     $w->pid, $w->quit
#   LeWire->new($node, tcp => 1, receive_buffer => bytes)     over TCP
#   LeWire->new($node, user => .., settings => { statement_timeout => .. })
#   LeWire->new($node, patience => 'endless')      waits for a reply without a limit

package LeWire;

use strict;
use warnings;

use IO::Select ();
use Errno ();
use IO::Socket::INET ();
use IO::Socket::UNIX ();
use LeTest ();
use Socket ();

# The size of the buffer must be set before the connection is made.
sub tcp_socket
{
	my ($port, $receive_buffer) = @_;
	my $socket = IO::Socket::INET->new(Proto => 'tcp') or die "socket: $!";

	$socket->sockopt(Socket::SO_RCVBUF(), $receive_buffer) if $receive_buffer;
	$socket->connect(Socket::pack_sockaddr_in($port, Socket::INADDR_LOOPBACK())) or die "connect: $!";
	return $socket;
}

sub unix_socket
{
	my ($path) = @_;

	return IO::Socket::UNIX->new(Peer => $path) || die "$path: $!";
}

sub new
{
	my ($class, $node, %opts) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = $opts{tcp} ? tcp_socket($node->port, $opts{receive_buffer}) : unix_socket($path);
	my $self = bless { socket => $socket, path => $path, error => '', messages => [], patience => $opts{patience} }, $class;
	my %settings = (
		user => $opts{user} // scalar getpwuid($<),
		database => $opts{dbname} // 'postgres',
		client_encoding => 'UTF8',
		%{ $opts{settings} // {} });
	my $startup = pack('N', 196608) . join('', map { "$_\0$settings{$_}\0" } sort keys %settings) . "\0";

	$self->send(pack('N', 4 + length $startup) . $startup);
	$self->wait('Z');
	return $self;
}

sub pid { return $_[0]{pid}; }

sub error { return $_[0]{error}; }

sub messages { return @{ $_[0]{messages} }; }

sub send
{
	my ($self, $bytes) = @_;

	($self->{socket}->syswrite($bytes) // 0) == length $bytes or die "cannot send: $!";
	return;
}

sub message
{
	my ($self, $type, $body) = @_;
	my $bytes = $type . pack('N', 4 + length $body) . $body;

	return $self->send($bytes) unless defined $self->{packet};
	$self->{packet} .= $bytes;
	return;
}

sub together
{
	my ($self, $code) = @_;

	$self->{packet} = '';
	$code->();
	$self->send(delete $self->{packet});
	return;
}

sub pipeline
{
	my ($self, @statements) = @_;

	$self->together(
		sub {
			foreach my $sql (@statements)
			{
				$self->parse('', $sql);
				$self->bind('', '');
				$self->execute('');
			}
			$self->sync;
		});
	return;
}

sub query
{
	my ($self, $sql) = @_;

	$self->message('Q', "$sql\0");
	return;
}

sub call
{
	my ($self, $function, @values) = @_;
	my $values = join '', map { defined ? pack('N/a*', $_) : pack('N', 0xffffffff) } @values;

	$self->message('F', pack('Nnn', $function, 0, scalar @values) . $values . pack('n', 0));
	return;
}

sub cancel
{
	my ($self) = @_;
	my $socket = unix_socket($self->{path});

	$socket->syswrite(pack('NNNN', 16, 80877102, $self->{pid}, $self->{key}));
	$socket->sysread(my $nothing, 1);
	return;
}

sub cut
{
	my ($self) = @_;

	$self->{socket}->close;
	return;
}

sub parse
{
	my ($self, $name, $sql, @types) = @_;

	$self->message('P', "$name\0$sql\0" . pack('nN*', scalar @types, @types));
	return;
}

sub bind
{
	my ($self, $portal, $name, @values) = @_;
	my $values = join '', map { defined ? pack('N/a*', $_) : pack('N', 0xffffffff) } @values;

	$self->message('B', "$portal\0$name\0" . pack('nn', 0, scalar @values) . $values . pack('n', 0));
	return;
}

sub execute
{
	my ($self, $portal, $max_rows) = @_;

	$self->message('E', "$portal\0" . pack('N', $max_rows // 0));
	return;
}

sub sync { $_[0]->message('S', ''); return; }

sub flush { $_[0]->message('H', ''); return; }

# Reads exactly $length bytes.
sub take
{
	my ($self, $length) = @_;
	my $bytes = '';

	while (length $bytes < $length)
	{
		local $! = 0;
		if (!IO::Select->new($self->{socket})->can_read($self->{patience} ? undef : LeTest::timeout()))
		{
			next if $!{EINTR}; # for example, a child has ended
			die 'timed out waiting for a message';
		}
		my $got = $self->{socket}->sysread($bytes, $length - length $bytes, length $bytes);
		$got or (!defined $got && $!{EINTR}) or die 'the connection has ended';
	}
	return $bytes;
}

sub wait { my ($self, $types) = @_; return join("\n", $self->rows($types)); }

sub rows
{
	my ($self, $types) = @_;
	my @rows;

	$self->{error} = '';
	$self->{messages} = [];
	while (1)
	{
		my ($type, $length) = unpack 'aN', $self->take(5);
		my $body = $self->take($length - 4);

		if ($type eq 'D')
		{
			my ($count, $values) = unpack 'na*', $body;
			my @values;

			foreach (1 .. $count)
			{
				my $size = unpack 'N', substr($values, 0, 4, '');
				push @values, $size == 0xffffffff ? '' : substr($values, 0, $size, '');
			}
			push @rows, join('|', @values);
		}
		elsif ($type eq 'V')
		{
			push @rows, substr($body, 4);
		}
		elsif ($type eq 'E' || $type eq 'N')
		{
			my %fields = map { substr($_, 0, 1) => substr($_, 1) } grep { length } split /\0/, $body;
			$self->{error} .= "$fields{V} $fields{C} $fields{M}\n";
			push @{ $self->{messages} }, \%fields;
		}
		elsif ($type eq 'Z')
		{
			$self->{status} = $body;
		}
		elsif ($type eq 'R')
		{
			die 'a password is asked for' if unpack 'N', $body;
		}
		elsif ($type eq 'K')
		{
			@$self{qw(pid key)} = unpack 'NN', $body;
		}
		return @rows if index($types, $type) >= 0;
	}
}

sub quit
{
	my ($self) = @_;

	$self->message('X', '');
	$self->{socket}->close;
	return;
}

1;
