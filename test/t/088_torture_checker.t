# The checker of histories finds violations of each rule, and accepts similar histories without a violation. A history
# here has one line per call: client, time sent, time received (in ms; - without a reply), operation, names, arguments,
# =, reply; "x+" adds a name to the previous call. "x 500" is the end of client x's connection; N and G are lines of the
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

breaks('M', 'two writers at the same time', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('the TTL of the first holder has expired, counted from the time sent', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 1090 1101 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'one of several names of a call is held', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire k mode=x ttl=1000 wait=0 = ok 6
	b+ 200 210 acquire l mode=x ttl=1000 wait=0 = ok 7
	b+ 200 210 acquire m mode=x ttl=1000 wait=0 = ok 8});
fine('each name of a call has its own reply', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire k mode=x ttl=1000 wait=0 = ok 6
	b+ 200 210 acquire l mode=x ttl=1000 wait=0 = null
	b+ 200 210 acquire m mode=x ttl=1000 wait=0 = ok 8
	c 300 310 acquire n mode=x ttl=1000 wait=0 = ok 9});
breaks('M', 'the TTL of the first holder has not expired', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 1090 1099 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'a renewal extends the hold', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 900 910 renew l token=5 = ok 00:00:01
	b 1290 1300 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('a renewal without a reply does not extend the hold', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 900 910 renew l token=5 = unknown 08006
	b 1290 1300 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('a sent release ends the hold, even without a reply', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 150 - release l token=5
	b 160 170 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'a reader and a writer at the same time', q{
	a 100 110 acquire l mode=s ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('two readers at the same time', q{
	a 100 110 acquire l mode=s ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=s ttl=1000 wait=0 = ok 6});
fine('two permits of two', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6});
breaks('M', 'three of two permits', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	c 300 310 acquire l mode=p2 ttl=1000 wait=0 = ok 7});
breaks('M', 'three of two permits, before their number is raised to three', q{
	a 10 20 set_permits l value=2 = ok 4
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	c 250 310 acquire l mode=p2 ttl=1000 wait=100 = ok 7
	a 320 330 set_permits l value=3 = ok 2});
fine('three of three permits', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=3 = ok 2
	c 300 310 acquire l mode=p3 ttl=1000 wait=0 = ok 7});
fine('a lower number of permits ends no hold', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=1 = ok 2
	b 300 310 renew l token=6 = ok 00:00:01});
breaks('M', 'a permit is granted beyond the lowered number', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=1 = ok 2
	a 240 250 release l token=5 = ok t
	c 300 310 acquire l mode=p1 ttl=1000 wait=0 = ok 7});
fine('it is unknown whether the number of permits was lowered', q{
	a 100 110 acquire l mode=p2 ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=p2 ttl=1000 wait=0 = ok 6
	a 220 230 set_permits l value=1 = unknown 08006
	a 240 250 release l token=5 = ok t
	c 300 310 acquire l mode=p2 ttl=1000 wait=0 = ok 7});
breaks('M', 'one name of a group is held', q{
	a 100 110 acquire k,l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'the lock on a lease that was kept alive', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	a 400 410 keep_alive - lease=4 = ok 00:00:00.5
	b 800 810 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('the lock on an expired lease', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	b 610 620 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'the lock of a connection that has not ended', q{
	a 100 110 acquire l mode=x ttl=0 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 is_held l token=5 = ok t});
fine('the lock of a connection that may have ended', q{
	a 100 110 acquire l mode=x ttl=0 wait=0 = ok 5
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 is_held l token=5 = unknown 08006
	a 310});
fine('the lock of a transaction that was rolled back', q{
	a 100 105 begin - = ok BEGIN
	a 105 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 130 rollback - = ok ROLLBACK
	b 130 140 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'the lock of a transaction that was committed', q{
	a 100 105 begin - = ok BEGIN
	a 105 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 130 commit - = ok COMMIT
	b 130 140 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('M', 'a release in a transaction before its commit', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 release l token=5 = ok t
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 commit - = ok COMMIT});
breaks('M', 'a fenced lock after its TTL', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 2000 2010 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 3000 3010 commit - = ok COMMIT});
fine('a fenced lock whose transaction may have ended', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 2000 2010 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 3000 3010 commit - = unknown 08006
	a 3010});
breaks('M', 'a past leader is shown', q{
	a 100 110 acquire e mode=x ttl=1000 wait=0 = ok 5
	b 200 210 current_leader e = ok 4|b});

# --- C, E ---

my $closed = q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 130 release l token=5 hold_for=500 = %s
	b %d %d acquire l mode=x ttl=1000 wait=0 = ok 6};
breaks('C', 'a closed name is granted', sprintf $closed, 'ok t', 200, 590);
breaks('C', 'a closed name is granted after a crash', sprintf($closed, 'ok t', 500, 590) . "\nN 200 400 stop-server");
fine('the name is open again', sprintf $closed, 'ok t', 550, 605);
fine('it is unknown whether the name was closed', sprintf $closed, 'unknown 08006', 200, 590);
fine('the closed name was opened by force', sprintf($closed, 'ok t', 500, 590) . "\nc 300 310 force l = ok 0");
fine('the wall clock jumped', sprintf($closed, 'ok t', 500, 590) . "\nN 200 300 jump-clock");
breaks('C', 'the hold is counted from the request instead of the end of the previous holder', q{
	c 10 20 acquire l mode=x ttl=1000 wait=0 = ok 4
	c 400 410 release l token=4 = ok t
	a 100 420 acquire l mode=x ttl=1000 wait=1000 = ok 5
	a 430 440 release l token=5 hold_for=500 = ok t
	b 880 890 acquire l mode=x ttl=1000 wait=0 = ok 6});
breaks('W', 'the name is closed for too long', sprintf $closed =~ s/wait=0 = ok 6/wait=5000 = ok 6/r, 'ok t', 200, 1700);

my $forced = q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 force l = %s
	a 300 310 renew l token=5 = %s};
fine('a holder that was ended by force does not renew', sprintf $forced, 'ok 1', 'null');
breaks('E', 'a holder that was ended by force renews', sprintf $forced, 'ok 1', 'ok 00:00:01');
breaks('E', 'a holder that was ended by force releases', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	b 200 210 force l = ok 1
	a 300 310 release l token=5 = ok t});
breaks('E', 'a release by force does not find the holder', sprintf $forced, 'ok 0', 'ok 00:00:01');
breaks('D', 'the holder is lost although nothing was ended by force', sprintf($forced, 'null', 'null'));
fine('the result of force is unknown: the holder is lost', sprintf $forced, 'unknown 08006', 'null');
fine('the result of force is unknown: the holder remains', sprintf $forced, 'unknown 08006', 'ok 00:00:01');
fine('the next holder after force', sprintf($forced, 'ok 1', 'null') . "\nc 220 230 acquire l mode=x ttl=1000 wait=0 = ok 6");
breaks('M', 'the next holder after a rejected force', sprintf($forced, 'error 42501', 'ok 00:00:01')
	  . "\nc 220 230 acquire l mode=x ttl=1000 wait=0 = ok 6");
breaks('W', 'a waiter is not granted the lock after force', sprintf($forced, 'ok 1', 'null') =~ s/ttl=1000/ttl=9000/r
	  . "\nc 150 2500 acquire l mode=x ttl=1000 wait=9000 = ok 6");
fine('a fence keeps a lock that was ended by force', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 200 210 force l = ok 1
	a 300 310 commit - = ok COMMIT
	c 150 320 acquire l mode=x ttl=1000 wait=1000 = ok 6});
breaks('M', 'a fence does not keep a lock that was ended by force', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 120 125 begin - = ok BEGIN
	a 130 140 fence l token=5 = ok
	b 200 210 force l = ok 1
	c 220 230 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 300 310 commit - = ok COMMIT});
fine('the lease continues after the force', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	b 200 210 force l = ok 1
	a 300 310 keep_alive - lease=4 = ok 00:00:00.5
	c 320 330 acquire l mode=x ttl=1000 wait=0 = ok 6});
fine('a place remains after the force', q{
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
breaks('T', 'a lower token after a higher one, with overlapping requests', q{
	a 100 210 acquire l mode=x ttl=1000 wait=1000 = ok 6
	a 220 230 release l token=6 = ok t
	b 100 310 acquire l mode=x ttl=1000 wait=1000 = ok 5}, '--slack', 1000);
fine('an overlapping grant whose order is unknown because of the slack', q{
	a 100 2210 acquire l mode=x ttl=1000 wait=-1 = ok 6
	b 100 2310 acquire l mode=x ttl=1000 wait=-1 = ok 5}, '--slack', 5000);
breaks('Q', 'a reader overtakes a writer', q{
	c 100 150 acquire l mode=x ttl=1000 wait=0 = ok 4
	a 160 260 acquire l mode=s ttl=1000 wait=1000 = ok 6
	c 170 180 release l token=4 = ok t
	a 270 280 release l token=6 = ok t
	b 160 310 acquire l mode=x ttl=1000 wait=1000 = ok 5});
breaks('Q', 'a call overtakes a place', q{
	a 100 110 enqueue l mode=x ttl=2000 = ok 5|f
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6
	b 220 230 release l token=6 = ok t
	a 300 310 await l token=5 = ok f});
breaks('Q', 'a candidate overtakes another one', q{
	a 100 110 enqueue e mode=x ttl=2000 candidate=a = ok 5|f
	b 200 210 enqueue e mode=x ttl=1000 candidate=b = ok 6|t
	b 220 230 release e token=6 = ok t
	a 300 310 await e token=5 = ok f});
fine('a grant after the place was released', q{
	a 100 110 enqueue l mode=x ttl=2000 = ok 5|f
	a 120 130 await l token=5 = ok f
	a 140 150 release l token=5 = ok t
	b 200 210 acquire l mode=x ttl=1000 wait=0 = ok 6});

# --- R ---

breaks('R', 'lower revision for a later request for another lock', q{
	a 100 110 acquire k mode=x ttl=1000 wait=0 = ok 6
	b 200 210 enqueue l mode=x ttl=1000 = ok 5|t});
fine('lower revision for an overlapping request', q{
	a 100 210 acquire k mode=x ttl=1000 wait=0 = ok 6
	b 200 220 acquire l mode=x ttl=1000 wait=0 = ok 5});
fine('lower revision for a re-entry by the same owner', q{
	a 100 110 acquire k mode=x ttl=1000 wait=0 owner=me = ok 5
	b 120 130 acquire l mode=x ttl=1000 wait=0 = ok 6
	a 200 210 acquire k mode=x ttl=1000 wait=0 owner=me = ok 5});

# --- W, L ---

my $late = q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	a 200 210 release l token=5 = ok t
	b 150 %d acquire l mode=x ttl=9000 wait=5000 = ok 6};
breaks('W', 'a waiter is granted the lock too late after a release', sprintf($late, 1300));
fine('a waiter is granted the lock in time after a release', sprintf($late, 1200));
breaks('W', 'a waiter is granted the lock too late after a TTL', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	b 150 1700 acquire l mode=x ttl=9000 wait=5000 = ok 6});
fine('a renewal with an unknown result may have extended the hold', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	a 300 900 renew l token=5 = unknown 08006
	b 150 1700 acquire l mode=x ttl=9000 wait=5000 = ok 6});
breaks('W', 'a waiter times out although the lock is free', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	a 200 210 release l token=5 = ok t
	b 150 2150 acquire l mode=x ttl=9000 wait=2000 = null});
breaks('W', 'the first place is not granted although the lock is free', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	b 150 160 enqueue l mode=x ttl=9000 = ok 6|f
	a 200 210 release l token=5 = ok t
	b 1400 1410 await l token=6 = ok f});
fine('a waiter times out behind an earlier one', q{
	a 100 110 acquire l mode=x ttl=500 wait=0 = ok 5
	c 120 220 acquire l mode=x ttl=2000 wait=5000 = ok 6
	a 200 210 release l token=5 = ok t
	b 150 2150 acquire l mode=x ttl=9000 wait=2000 = null});
fine('a waiter is granted the lock late because the server was down', sprintf($late, 1900) . "\nN 190 1500 stop-server");
my $released = q{
	a 100 110 acquire l mode=x ttl=3000 wait=0 = ok 5
	a %d %d release l token=5 = ok t
	b 150 4800 acquire l mode=x ttl=9000 wait=5000 = ok 6
	N 1500 2000 stop-server};
fine('a lock that was released shortly before a crash is granted late', sprintf($released, 1200, 1210));
breaks('W', 'a lock that was released long before a crash is granted late', sprintf($released, 200, 210));
fine('a waiter times out because a client without further calls may hold the lock', q{
	a 100 - acquire l mode=x ttl=500 wait=-1
	b 150 2150 acquire l mode=x ttl=9000 wait=2000 = null});
breaks('W', 'a waiter times out although the holder was killed long ago', q{
	a 100 - acquire l mode=x ttl=500 wait=-1
	b 150 4150 acquire l mode=x ttl=9000 wait=4000 = null
	N 190 200 kill-client 1097});
breaks('W', 'a waiter is granted a permit too late after their number was raised', q{
	a 100 110 acquire l mode=p1 ttl=9000 wait=0 = ok 5
	b 150 1500 acquire l mode=p1 ttl=9000 wait=5000 = ok 6
	c 200 210 set_permits l value=2 = ok 1});
breaks('W', 'a waiter is granted a permit too late after a release', q{
	a 100 110 acquire l mode=p2 ttl=9000 wait=0 = ok 5
	c 100 110 acquire l mode=p2 ttl=9000 wait=0 = ok 6
	a 200 210 release l token=5 = ok t
	b 150 1500 acquire l mode=p2 ttl=9000 wait=5000 = ok 7});
breaks('L', 'too many slow hand-offs', join '', map { sprintf q{
	a %d %d acquire l%d mode=x ttl=500 wait=0 = ok %d
	a %d %d release l%d token=%d = ok t
	b %d %d acquire l%d mode=x ttl=500 wait=500 = ok %d
	b %d %d release l%d token=%d = ok t}, $_ * 100, $_ * 100 + 1, $_, $_ * 2, $_ * 100 + 3, $_ * 100 + 4, $_, $_ * 2,
	$_ * 100 + 2, $_ * 100 + ($_ < 4 ? 30 : 6), $_, $_ * 2 + 1, $_ * 100 + 40, $_ * 100 + 41, $_, $_ * 2 + 1 } 1 .. 120);

# --- D ---

breaks('D', 'the lock is lost in a crash', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 stop-server
	a 1100 1110 is_held l token=5 = ok f});
breaks('D', 'a renewal fails within the TTL', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 200 210 renew l token=5 = null});
fine('a renewal fails when the TTL may have expired', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 1090 1101 renew l token=5 = null});
breaks('D', 'a fence fails within the TTL', q{
	a 100 110 acquire l mode=x ttl=1000 wait=0 = ok 5
	a 200 210 begin - = ok BEGIN
	a 220 230 fence l token=5 = error LE001});
breaks('D', 'a place is lost within its TTL', q{
	a 100 110 enqueue l mode=x ttl=1000 = ok 5|f
	a 200 210 await l token=5 = error LE001});
fine('the server cannot say whether the place exists', q{
	a 100 110 enqueue l mode=x ttl=1000 = ok 5|f
	a 200 210 await l token=5 = error 57P03});
fine('the server is a standby now', q{
	a 100 110 enqueue l mode=x ttl=1000 = ok 5|f
	a 200 210 await l token=5 = error 25006});
fine('the disk is full, so the server cannot renew the place', q{
	a 100 110 enqueue l mode=x ttl=1000 = ok 5|f
	a 200 210 await l token=5 = error 53100});
breaks('D', 'a lease is lost within its TTL', q{
	a 100 110 grant_lease - ttl=500 = ok 4
	a 120 130 acquire l mode=x lease=4 wait=0 = ok 5
	a 400 410 keep_alive - lease=4 = null});
breaks('D', 'no leader is shown within the TTL', q{
	a 100 110 acquire e mode=x ttl=1000 wait=0 = ok 5
	b 200 210 current_leader e = null});
breaks('D', 'the lock is lost in a synchronous promotion', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 promote-sync
	a 1100 1110 is_held l token=5 = ok f});
fine('the lock is lost in an asynchronous promotion', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 promote-async
	N 200 300 lose-tail
	a 1100 1110 is_held l token=5 = ok f
	b 1200 1210 acquire l mode=x ttl=5000 wait=0 = ok 6});
breaks('M', 'two holders on the old primary before the asynchronous promotion', q{
	a 100 110 acquire l mode=x ttl=5000 wait=0 = ok 5
	N 200 1000 promote-async
	N 200 300 lose-tail
	b 210 220 acquire l mode=x ttl=5000 wait=0 = ok 6});
breaks('RT', 'an asynchronous promotion does not allow lower tokens', q{
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
fine('force ended the previous holder, which an asynchronous promotion had restored', sprintf $tail, 250, 260);
breaks('E', 'force ended a holder whose grant was replicated', sprintf $tail, 150, 160);
my $bound = q{
	c 10 20 acquire l mode=x ttl=9000 wait=0 = ok 4
	b 50 60 enqueue l mode=x ttl=9000 = ok 5|f
	a 250 260 acquire l mode=x ttl=%d wait=5000 = ok 6
	a 262 265 is_held l token=6 = ok t
	c 210 240 release l token=4 = unknown 08006
	N %d %d promote-sync
	b 1100 1110 await l token=5 = ok f
	b 1200 1210 await l token=5 = ok t};
fine('a synchronous promotion loses a grant that is bound to a connection, for it does not wait for the standby', sprintf $bound, 0, 200, 1000);
like(check(sprintf $bound, 100, 200, 1000), qr/Q/, 'Q: a synchronous promotion loses a grant with a TTL');
like(check(sprintf $bound, 0, 2000, 3000), qr/Q/, 'Q: a bound grant is lost without a promotion');

# --- F, H, G ---

my $updates = q{
	a 100 110 begin - = ok BEGIN
	a 110 120 write c token=5 value=8 = ok UPDATE_1
	a 120 130 commit - = %s
	b 200 210 begin - = ok BEGIN
	b 210 220 write c token=6 value=8 = ok UPDATE_1
	b 220 230 commit - = ok COMMIT};
breaks('F', 'two fenced updates write the same value', sprintf $updates, 'ok COMMIT');
fine('one of the two updates was rolled back', sprintf $updates, 'ok ROLLBACK');
fine('one of the two updates may have been rolled back', sprintf $updates, 'unknown 08006');
fine('updates without a fence are only counted', sprintf($updates, 'ok COMMIT'), '--unfenced');
breaks('H', 'an observer misses a change', q{
	a 100 110 history e after=0 = ok 1|1|elected;2|1|resigned;3|3|elected
	b 100 110 history e after=0 = ok 1|1|elected;3|3|elected});
fine('observers start at different changes', q{
	a 100 110 history e after=0 = ok 1|1|elected;2|1|resigned;3|3|elected
	b 100 110 history e after=1 = ok 2|1|resigned;3|3|elected
	c 50 60 history e after=0 = ok 1|1|elected});
breaks('G', 'an entry is left at the end', "G 100 slot 0\nG 100 queue 1");
fine('no entry is left at the end', "G 100 slot 0\nG 100 queue 0");

done_testing();
