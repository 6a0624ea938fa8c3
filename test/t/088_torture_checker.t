# The checker of histories finds violations of each rule, and accepts similar histories that violate none. A history
# here has a line for each call: client, sent, received (in ms; - without a reply), operation, names, arguments, =,
# reply; "x+" adds a name to the previous call. "x 500" is the end of client x's connection; N and G are lines of the
# nemesis.
# Promises: -
# Needs: torture
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;

my $check = "$ENV{LE_RUN}/src/build/torture/check";
my $dir = PostgreSQL::Test::Utils::tempdir();
my $number = 0;

sub ns { return $_[0] . '000000'; }

sub check
{
	my ($text, @options) = @_;
	my (%lines, @files);

	foreach my $line (grep { /\S/ } split /\n/, $text)
	{
		$line =~ s/^\s+//;
		if ($line =~ /^N (\d+) (\d+) (.*)/) { push @{ $lines{N} }, 'N ' . ns($1) . ' ' . ns($2) . " $3"; }
		elsif ($line =~ /^G (\d+) (.*)/) { push @{ $lines{N} }, 'G ' . ns($1) . " $2"; }
		elsif ($line =~ /^(\w+) (\d+)$/) { push @{ $lines{$1} }, 'X ' . ns($2) . ' 1'; }
		elsif ($line =~ /^(\w+)(\+?) (\d+) (\d+|-) (.*?)(?: = (.*))?$/)
		{
			my $told = $lines{$1} //= [];
			my @answers;

			while ($2 && $told->[-1] =~ /^A/) { unshift @answers, pop @$told; }
			$number++;
			push @$told, 'C ' . ns($3) . " $number 1 $5", @answers, $4 eq '-' ? () : 'A ' . ns($4) . " $number $6";
		}
		else { die "not a line: $line"; }
	}
	foreach my $client (sort keys %lines)
	{
		my $file = "$dir/$client.history";
		my $head = $client eq 'N' ? '' : 'P 0 ' . (1000 + ord $client) . " $client\nS 0 1 1\n";

		open my $f, '>', $file or die $!;
		print $f $head, map { "$_\n" } @{ $lines{$client} };
		close $f;
		push @files, $file;
	}
	my ($out, $err) = run_command([ $check, @options, @files ]);
	unlink @files;
	return join('', sort map { /^VIOLATION (.)/ ? $1 : () } split /\n/, $out) . $err;
}

sub breaks
{
	my ($rule, $name, $text, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(check($text, @options), $rule, "$rule: $name");
}

sub fine
{
	my ($name, $text, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(check($text, @options), '', "fine: $name");
}

# --- M ---

breaks('M', 'two writers', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('the first is over: counted from its sending', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 1090 1101 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'one of several names of a call', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire k mode=x ttl=1000 wait=0 = ok 6
	b+ 200 210 acquire l mode=x ttl=1000 wait=0 = ok 7
	b+ 200 210 acquire m mode=x ttl=1000 wait=0 = ok 8});
fine('each name of a call has its own answer', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire k mode=x ttl=1000 wait=0 = ok 6
	b+ 200 210 acquire l mode=x ttl=1000 wait=0 = null
	b+ 200 210 acquire m mode=x ttl=1000 wait=0 = ok 8
	c 300 310 acquire n mode=x ttl=1000 wait=0 = ok 9});
breaks('M', 'the first is not over', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 1090 1099 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'a renewal counts', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 900 910 renew l token=5 = ok 00:00:01
	b 1290 1300 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('a renewal that was not answered does not', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 900 910 renew l token=5 = unknown 08006
	b 1290 1300 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('nor does it after a release was sent, whatever came of that', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 150 - release l token=5
	b 160 170 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'a reader beside a writer', q{
	a 100 110 acquire l mode=s ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('two readers', q{
	a 100 110 acquire l mode=s ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=s ttl=1000 wait=0 = ok 6});
fine('two permits of two', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6});
breaks('M', 'three permits of two', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	c 300 310 acquire l mode=p2 ttl=1000 wait=0 = ok 7});
breaks('M', 'three permits of what were two, and then three', q{
	a 10 20 set_permits l value=2 = ok 4
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	c 250 310 acquire l mode=p2 ttl=1000 wait=100 = ok 7
	a 320 330 set_permits l value=3 = ok 2});
fine('three permits of three', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=3 = ok 2
	c 300 310 acquire l mode=p3 ttl=1000 wait=0 = ok 7});
fine('fewer take nothing away', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=1 = ok 2
	b 300 310 renew l token=6 = ok 00:00:01});
breaks('M', 'fewer come back', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=1 = ok 2
	a 240 250 release l token=5 = ok t
	c 300 310 acquire l mode=p1 ttl=1000 wait=0 = ok 7});
fine('unless it is not known that they are fewer', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=1 = unknown 08006
	a 240 250 release l token=5 = ok t
	c 300 310 acquire l mode=p2 ttl=1000 wait=0 = ok 7});
breaks('M', 'one of several', q{
	a 100 110 acquire k,l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'on a lease', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	a 400 410 keep_alive - lease=4 = ok 00:00:00.5
	b 800 810 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('after the lease', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	b 610 620 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'bound to a connection that was there later', q{
	a 100 110 acquire l mode=x ttl=0 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 is_held l token=5 = ok t});
fine('bound to a connection that may have ended', q{
	a 100 110 acquire l mode=x ttl=0 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 is_held l token=5 = unknown 08006
	a 310});
fine('in a transaction that was rolled back', q{
	a 100 105 begin - = ok BEGIN
	a 105 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 130 rollback - = ok ROLLBACK
	b 130 140 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'in a transaction that was committed', q{
	a 100 105 begin - = ok BEGIN
	a 105 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 130 commit - = ok COMMIT
	b 130 140 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'released in a transaction, before its commit', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 release l token=5 = ok t
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 commit - = ok COMMIT});
breaks('M', 'fenced after its TTL', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 2000 2010 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 3000 3010 commit - = ok COMMIT});
fine('not known to be fenced any more', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 2000 2010 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 3000 3010 commit - = unknown 08006
	a 3010});
breaks('M', 'another leader', q{
	a 100 110 acquire e mode=x ttl=1000 wait=0 = ok 5
	b 200 210 current_leader e = ok 4|b});

# --- C, E ---

my $closed = q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 130 release l token=5 hold_for=500 = %s
	b %d %d acquire l mode=x ttl=1000 wait=0 = ok 6};
breaks('C', 'granted to another one', sprintf $closed, 'ok t', 200, 590);
breaks('C', 'also after a crash', sprintf($closed, 'ok t', 500, 590) . "\nN 200 400 stop-server");
fine('when it is open again', sprintf $closed, 'ok t', 550, 605);
fine('not known to be closed', sprintf $closed, 'unknown 08006', 200, 590);
fine('forced open', sprintf($closed, 'ok t', 500, 590) . "\nc 300 310 force l = ok 0");
fine('by another time of day', sprintf($closed, 'ok t', 500, 590) . "\nN 200 300 jump-clock");
breaks('C', 'counted from where another one still held', q{
	c 10 20 acquire l mode=x ttl=1000 wait=0 = ok 4
	c 400 410 release l token=4 = ok t
	a 100 420 acquire l mode=x ttl=1000 wait=1000 = ok 5
	a 430 440 release l token=5 hold_for=500 = ok t
	b 880 890 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('W', 'closed for longer than that', sprintf $closed =~ s/wait=0 = ok 6/wait=5000 = ok 6/r, 'ok t', 200, 1700);

my $forced = q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 force l = %s
	a 300 310 renew l token=5 = %s};
fine('forced out', sprintf $forced, 'ok 1', 'null');
breaks('E', 'and still there', sprintf $forced, 'ok 1', 'ok 00:00:01');
breaks('E', 'and still there to be released', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 force l = ok 1
	a 300 310 release l token=5 = ok t});
breaks('E', 'nobody is found', sprintf $forced, 'ok 0', 'ok 00:00:01');
breaks('D', 'forced out after all', sprintf($forced, 'null', 'null'));
fine('perhaps forced out', sprintf $forced, 'unknown 08006', 'null');
fine('perhaps not', sprintf $forced, 'unknown 08006', 'ok 00:00:01');
fine('the next one', sprintf($forced, 'ok 1', 'null') . "\nc 220 230 acquire l mode=x ttl=1000 wait=0 = ok 6");
breaks('M', 'the next one, though nobody was forced out', sprintf($forced, 'error 42501', 'ok 00:00:01')
	  . "\nc 220 230 acquire l mode=x ttl=1000 wait=0 = ok 6");
breaks('W', 'and nobody is told', sprintf($forced, 'ok 1', 'null') =~ s/ttl=1000/ttl=9000/r
	  . "\nc 150 2500 acquire l mode=x ttl=1000 wait=9000 = ok 6");
fine('a fence keeps the lock', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 200 210 force l = ok 1
	a 300 310 commit - = ok COMMIT
	c 150 320 acquire l mode=x ttl=1000 wait=1000 = ok 6});
breaks('M', 'a fence that does not', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 200 210 force l = ok 1
	c 220 230 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 commit - = ok COMMIT});
fine('its lease lives on', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	b 200 210 force l = ok 1
	a 300 310 keep_alive - lease=4 = ok 00:00:00.5
	c 320 330 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('a place stays', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 120 130 enqueue l mode=x ttl=1000 = ok 6|f
	c 200 210 force l = ok 1
	b 220 230 await l token=6 = ok t
	a 240 250 renew l token=5 = null});

# --- T, Q ---

breaks('RT', 'a lower token after a higher one', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 120 130 release l token=6 = ok t
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 5});
breaks('T', 'also where the requests overlap', q{
	a 100 210 acquire l mode=x ttl=1000 wait=1000 = ok 6
	a 220 230 release l token=6 = ok t
	b 100 310 acquire l mode=x ttl=1000 wait=1000 = ok 5}, '--slack', 1000);
fine('granted when nothing is known any more', q{
	a 100 2210 acquire l mode=x ttl=1000 wait=-1 = ok 6
	b 100 2310 acquire l mode=x ttl=1000 wait=-1 = ok 5}, '--slack', 5000);
breaks('Q', 'a reader before a writer', q{
	c 100 150 acquire l mode=x ttl=1000 wait=0 = ok 4
	a 160 260 acquire l mode=s ttl=1000 wait=1000 = ok 6
	c 170 180 release l token=4 = ok t
	a 270 280 release l token=6 = ok t
	b 160 310 acquire l mode=x ttl=1000 wait=1000 = ok 5});
breaks('Q', 'before a place that waits', q{
	a 100 110 enqueue l mode=x ttl=2000 = ok 5|f
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	b 220 230 release l token=6 = ok t
	a 300 310 await l token=5 = ok f});
breaks('Q', 'a candidate before one who waits', q{
	a 100 110 enqueue e mode=x ttl=2000 candidate=a = ok 5|f
	b 200 210 enqueue e mode=x ttl=1000 candidate=b = ok 6|t
	b 220 230 release e token=6 = ok t
	a 300 310 await e token=5 = ok f});
fine('after the place was given up', q{
	a 100 110 enqueue l mode=x ttl=2000 = ok 5|f
	a 120 130 await l token=5 = ok f
	a 140 150 release l token=5 = ok t
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});

# --- R ---

breaks('R', 'of different locks', q{
	a 100 110 acquire k mode=x ttl=1000 wait=0 = ok 6
	b 200 210 enqueue l mode=x ttl=1000 = ok 5|t});
fine('calls that overlap', q{
	a 100 210 acquire k mode=x ttl=1000 wait=0 = ok 6
	b 200 220 acquire l mode=x ttl=1000 wait=0 = ok 5});
fine('an owner that has it already', q{
	a 100 110 acquire k mode=x ttl=1000 wait=0 owner=me = ok 5
	b 120 130 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 200 210 acquire k mode=x ttl=1000 wait=0 owner=me = ok 5});

# --- W, L ---

my $late = q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	a 200 210 release l token=5 = ok t
	b 150 %d acquire l mode=x ttl=9000 wait=5000 = ok 6};
breaks('W', 'nobody tells the waiter', sprintf($late, 1300));
fine('he is told', sprintf($late, 1200));
breaks('W', 'or that he can have it after a TTL', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	b 150 1700 acquire l mode=x ttl=9000 wait=5000 = ok 6});
fine('a renewal of which nothing is known', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	a 300 900 renew l token=5 = unknown 08006
	b 150 1700 acquire l mode=x ttl=9000 wait=5000 = ok 6});
breaks('W', 'he gives up', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	a 200 210 release l token=5 = ok t
	b 150 2150 acquire l mode=x ttl=9000 wait=2000 = null});
breaks('W', 'a place is first and not granted', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	b 150 160 enqueue l mode=x ttl=9000 = ok 6|f
	a 200 210 release l token=5 = ok t
	b 1400 1410 await l token=6 = ok f});
fine('somebody is in front of him', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	c 120 220 acquire l mode=x ttl=2000 wait=5000 = ok 6
	a 200 210 release l token=5 = ok t
	b 150 2150 acquire l mode=x ttl=9000 wait=2000 = null});
fine('the server was down', sprintf($late, 1900) . "\nN 190 1500 stop-server");
my $released = q{
	a 100 110 acquire l mode=x ttl=3000 wait=0 = ok 5
	a %d %d release l token=5 = ok t
	b 150 4800 acquire l mode=x ttl=9000 wait=5000 = ok 6
	N 1500 2000 stop-server};
fine('it was released just before a crash', sprintf($released, 1200, 1210));
breaks('W', 'or long before', sprintf($released, 200, 210));
fine('a client that is never heard of again may hold it', q{
	a 100 - acquire l mode=x ttl=500 wait=-1
	b 150 2150 acquire l mode=x ttl=9000 wait=2000 = null});
breaks('W', 'not for ever, when it was killed', q{
	a 100 - acquire l mode=x ttl=500 wait=-1
	b 150 4150 acquire l mode=x ttl=9000 wait=4000 = null
	N 190 200 kill-client 1097});
breaks('W', 'more permits, and nobody is told', q{
	a 100 110 acquire l mode=p1 ttl=9000 wait=0 = ok 5
	b 150 1500 acquire l mode=p1 ttl=9000 wait=5000 = ok 6
	c 200 210 set_permits l value=2 = ok 1});
breaks('W', 'one of several permits comes back', q{
	a 100 110 acquire l mode=p2 ttl=9000 wait=0 = ok 5
	c 100 110 acquire l mode=p2 ttl=9000 wait=0 = ok 6
	a 200 210 release l token=5 = ok t
	b 150 1500 acquire l mode=p2 ttl=9000 wait=5000 = ok 7});
breaks('L', 'too many hand-offs take too long', join '', map { sprintf q{
	a %d %d acquire l%d mode=x ttl=500 wait=0 = ok %d
	a %d %d release l%d token=%d = ok t
	b %d %d acquire l%d mode=x ttl=500 wait=500 = ok %d
	b %d %d release l%d token=%d = ok t}, $_ * 100, $_ * 100 + 1, $_, $_ * 2, $_ * 100 + 3, $_ * 100 + 4, $_, $_ * 2,
	$_ * 100 + 2, $_ * 100 + ($_ < 4 ? 30 : 6), $_, $_ * 2 + 1, $_ * 100 + 40, $_ * 100 + 41, $_, $_ * 2 + 1 } 1 .. 120);

# --- D ---

breaks('D', 'gone after a crash', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 stop-server
	a 1100 1110 is_held l token=5 = ok f});
breaks('D', 'a renewal is refused', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 200 210 renew l token=5 = null});
fine('it may be over', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 1090 1101 renew l token=5 = null});
breaks('D', 'a fence', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 200 210 begin - = ok BEGIN
	a 220 230 fence l token=5 = error LE001});
breaks('D', 'a place', q{
	a 100 110 enqueue l mode=x ttl=1000 = ok 5|f
	a 200 210 await l token=5 = error LE001});
fine('a place, of a server that cannot tell', q{
	a 100 110 enqueue l mode=x ttl=1000 = ok 5|f
	a 200 210 await l token=5 = error 57P03});
fine('a place, of a server that is a standby by now', q{
	a 100 110 enqueue l mode=x ttl=1000 = ok 5|f
	a 200 210 await l token=5 = error 25006});
breaks('D', 'a lease', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	a 400 410 keep_alive - lease=4 = null});
breaks('D', 'nobody leads', q{
	a 100 110 acquire e mode=x ttl=1000 wait=0 = ok 5
	b 200 210 current_leader e = null});
breaks('D', 'after a synchronous promotion', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 promote-sync
	a 1100 1110 is_held l token=5 = ok f});
fine('after an asynchronous one', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 promote-async
	N 200 300 lose-tail
	a 1100 1110 is_held l token=5 = ok f
	b 1200 1210 acquire l mode=x ttl=5000 wait=0 = ok 6});
breaks('M', 'but on the old primary all was as always', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 promote-async
	N 200 300 lose-tail
	b 210 220 acquire l mode=x ttl=5000 wait=0 = ok 6});
breaks('RT', 'which does not excuse lower tokens', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 promote-async
	N 200 300 lose-tail
	b 1200 1210 acquire l mode=x ttl=5000 wait=0 = ok 4});

my $tail = q{
	a 100 110 enqueue l mode=x ttl=5000 = ok 5|f
	a %d %d await l token=5 = ok t
	N 200 1000 promote-async
	N 200 300 lose-tail
	b 1100 1110 force l = ok 1
	a 1200 1210 renew l token=5 = ok 00:00:05};
fine('forced was who was before it again', sprintf $tail, 250, 260);
breaks('E', 'not where the new primary knows of the grant', sprintf $tail, 150, 160);
my $bound = q{
	c 10 20 acquire l mode=x ttl=9000 wait=0 = ok 4
	b 50 60 enqueue l mode=x ttl=9000 = ok 5|f
	a 250 260 acquire l mode=x ttl=%d wait=5000 = ok 6
	a 262 265 is_held l token=6 = ok t
	c 210 240 release l token=4 = unknown 08006
	N %d %d promote-sync
	b 1100 1110 await l token=5 = ok f
	b 1200 1210 await l token=5 = ok t};
fine('a bound grant waits for no standby', sprintf $bound, 0, 200, 1000);
like(check(sprintf $bound, 100, 200, 1000), qr/Q/, 'Q: others do');
like(check(sprintf $bound, 0, 2000, 3000), qr/Q/, 'Q: nor does it matter without a promotion');

# --- F, H, G ---

my $updates = q{
	a 100 110 begin - = ok BEGIN
	a 110 120 write c token=5 value=8 = ok UPDATE_1
	a 120 130 commit - = %s
	b 200 210 begin - = ok BEGIN
	b 210 220 write c token=6 value=8 = ok UPDATE_1
	b 220 230 commit - = ok COMMIT};
breaks('F', 'two have counted to the same number', sprintf $updates, 'ok COMMIT');
fine('one of them was rolled back', sprintf $updates, 'ok ROLLBACK');
fine('or perhaps', sprintf $updates, 'unknown 08006');
fine('without fences they are only counted', sprintf($updates, 'ok COMMIT'), '--unfenced');
breaks('H', 'a change is missing', q{
	a 100 110 history e after=0 = ok 1|1|elected;2|1|resigned;3|3|elected
	b 100 110 history e after=0 = ok 1|1|elected;3|3|elected});
fine('an observer comes later', q{
	a 100 110 history e after=0 = ok 1|1|elected;2|1|resigned;3|3|elected
	b 100 110 history e after=1 = ok 2|1|resigned;3|3|elected
	c 50 60 history e after=0 = ok 1|1|elected});
breaks('G', 'something is left', "G 100 slot 0\nG 100 queue 1");
fine('nothing is left', "G 100 slot 0\nG 100 queue 0");

done_testing();
