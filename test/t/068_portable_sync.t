# The portable edition, for clients: lease_sync() item by item, its reports and their durations; limits; notifications;
# what reap() removes; the views. Quick checks without sleeps, which detect small faults.
# Promises: M, Q, G
use strict;
use warnings;
use LeSync;
use LeTest;
use Test::More;

my $node = new_node('main', portable => 1);

one('CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_read_all_stats');

sub as { return session($node, user => $_[0] // 'app'); }

# Releases everything of all roles. No row may be left in any table.
sub end_all
{
	my ($name) = @_;

	one("SELECT force_release_role('$_')") foreach 'app', 'other';
	one('SELECT force_release_role(current_user::regrole)');
	one('SELECT lock_election.reap()');
	return is(one('SELECT (SELECT count(*) FROM _lock_election.hold), (SELECT count(*) FROM _lock_election.place), (SELECT count(*) FROM _lock_election.lease), (SELECT count(*) FROM _lock_election.asked)'),
		'0|0|0|0', "$name: nothing is left");
}

sub token_of { my ($rows, $i) = @_; return $rows->[ $i // 0 ]{token}; }

# Runs a statement. Returns SQLSTATE and message of its error.
sub error_text { my ($s, $sql) = @_; $s->query($sql); return $s->error =~ /ERROR:  (.*)/ ? $1 : ''; }

# Returns channel and payload of each notification that a session has received.
sub notified
{
	my ($s) = @_;
	return map { /asynchronous notification "(\w+)"(?: with payload "(.*)")? received/i ? [ $1, $2 // '' ] : () } split /\n/, $s->query('SELECT 1');
}

subtest 'items and news' => sub {
	my ($s, $o) = (as(), as());
	my $c = client($s);

	is(short(sync($c)), '', 'the first call on a new lease reports no news');
	is("@{ $c->{last} }{ 'event', 'validity', 'complete' }", 'lease 00:00:30 t', 'each call reports the lease');
	is($c->{last}{incarnation}, one('SELECT incarnation FROM lock_election.health()'), 'the incarnation is the life');
	like($c->{last}{channel}, qr/^le_[0-9a-f]{32}$/, 'the lease has a notification channel');
	my $held = $o->query(q{SELECT acquire_lock('b')});
	my $rows = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'enqueue_lock', 'b', undef, 'me#3' ], [ 4, 'try_candidate', 'e', undef, 'me#4', 'here' ],
			[ 5, 'try_shared', 's', undef, 'me#5' ], [ 6, 'try_permit', 'p', 2, 'me#6' ], [ 7, 'enqueue_permit', 'p', 2, 'me#7' ], [ 8, 'enqueue_permit', 'p', 2, 'me#8' ], [ 9, 'enqueue_shared', 's', undef, 'me#9' ],
			[ 10, 'enqueue_candidate', 'e', undef, 'me#10', 'next' ] ]);
	is(short($rows), '1:granted:a 2:not_granted:b 3:queued:b 4:granted:e 5:granted:s 6:granted:p 7:granted:p 8:queued:p 9:granted:s 10:queued:e', 'each item gets its own result');
	is(join(' ', map { $_->{kind} } @$rows), 'lock lock lock election lock lock lock lock lock election', 'each row has its kind');
	is(join(' ', map { $_->{queue_position} // '-' } @$rows), '- - 1 - - - - 1 - 1', 'a queued item has its queue position');
	is(join(' ', map { $_->{owner} } @$rows), join(' ', map { "me#$_" } 1 .. 10), 'each row has its owner');
	is(one("SELECT string_agg(name || ' ' || mode || ' ' || owner || ' ' || coalesce(value, '-'), ', ' ORDER BY token) FROM _lock_election.hold WHERE lease = $c->{lease}"),
		'a exclusive me#1 -, e exclusive me#4 here, s shared me#5 -, p permit me#6 -, p permit me#7 -, s shared me#9 -', 'holds are stored with mode, owner and value');
	is(short(sync($c)), '', 'a call without items and news reports nothing');
	is($c->{last}{complete}, 'f', 'a call that reports only news is not complete');

	# Grants and losses.
	$o->query("SELECT release_lock('b', $held)");
	my $news = sync($c);
	is(short($news), '-:granted:b', 'a call reports a place that was granted');
	is("@{ $news->[0] }{ 'token', 'owner', 'kind' }", token_of($rows, 2) . ' me#3 lock', 'the granted place is reported with token, owner and kind');
	is(short(sync($c)), '', 'a grant is reported only once');
	one(q{SELECT force_release_lock('b')});
	$news = sync($c);
	is(short($news), '-:lost:forced', 'a lost lock is reported with the reason');
	is(token_of($news), token_of($rows, 2), 'a lost lock is reported with its token');
	is(short(sync($c)), '', 'a loss is reported only once');
	is(short(sync($c, [ [ 1, 'release', 'p', token_of($rows, 5) ], [ 2, 'proclaim', 'e', token_of($rows, 3), undef, 'there' ] ])), '1:released:p 2:proclaimed:e -:granted:p', 'a released permit is granted to the next place, which the same call reports');
	sync($c); # The next call repeats grants that a call itself has caused.
	is(one(q{SELECT candidate FROM current_leader('e')}), 'there', 'a proclaimed value is visible');
	is(short(sync($c, [ [ 3, 'resign', 'e', token_of($rows, 3) ] ])), '3:released:e -:granted:e', 'a resigned election is granted to the next candidate, which the same call reports');
	sync($c);
	is(one(q{SELECT string_agg(how || ' ' || candidate, ', ' ORDER BY change) FROM election_history('e')}), 'elected here, proclaimed there, resigned there, elected next', 'the history has all changes');
	is(short(sync($c, [ [ 1, 'release', 'a', token_of($rows, 0) ], [ 2, 'release', 'a', token_of($rows, 0) ], [ 3, 'resign', 'a', 1 ], [ 4, 'release', 'a', 0 ], [ 5, 'proclaim', 'e', 1, undef, 'x' ] ])),
		'1:released:a 2:not_held:a 3:not_held:a 4:not_held:a 5:not_held:e', 'tokens that are not held are reported');
	is(short(sync($c)), '', 'a release by the client is not reported as a loss');

	# A client without state starts from the beginning.
	$c->{incarnation} = undef;
	is(join(' ', sort split / /, short(sync($c))), '-:granted:e -:granted:p -:granted:p -:granted:s -:granted:s -:lost:forced', 'a client without incarnation is told all holds and losses');
	is($c->{last}{complete}, 't', 'a client without incarnation gets a complete report');
	$c->{news} = undef;
	is(scalar(@{ sync($c) }), 6, 'a client without a news number is told all holds and losses');
	is(short(sync($c)), '', 'the next call reports nothing');
	is($s->query("SELECT revoke_lease($c->{lease})"), 't', 'the lease is revoked');
	sync($c);
	is("$c->{last}{event} $c->{last}{reason}", 'gone revoked', 'a call on a revoked lease reports that it is gone');
	sync($c, [ [ 1, 'try_lock', 'a' ] ]);
	is("$c->{last}{event} $c->{last}{reason}", 'gone revoked', 'a call with items on a revoked lease reports that it is gone');
	is(one('SELECT count(*) FROM lock_election.locks'), '0', 'no lock of the revoked lease is left');
	$_->quit foreach $s, $o;
	end_all('items and news');
};

subtest 'calls that arrive late' => sub {
	my ($s, $late) = (as(), as());
	my $c = client($s);

	sync($c);
	my $old = call_sql($c, [ [ 1, 'try_permit', 'p', 9, 'me#1' ] ]);
	is(short(sync($c, [ [ 1, 'try_permit', 'p', 9, 'me#1' ] ])), '1:granted:p', 'a call is repeated under a new number');
	is(short(read_rows({ %$c }, $late->query($old))), '-:granted:p', 'the original call, which arrives late, only reports the state');
	$s->query($old);
	is(one('SELECT count(*) FROM lock_election.locks'), '1', 'a late call acquires nothing');
	my $renewal = call_sql($c);
	sync($c);
	$old = call_sql({ %$c, call => $c->{call} - 2 }, [ [ 1, 'try_permit', 'p', 9 ] ]);
	$late->query($old);
	is(one('SELECT count(*) FROM lock_election.locks'), '1', 'a call that is older than a renewal acquires nothing');

	# A call with the incarnation of another life.
	my $other = { %$c, incarnation => $c->{incarnation} - 1 };
	is(short(sync($other, [ [ 2, 'try_permit', 'p', 9 ] ])), '-:granted:p', 'a call with the incarnation of another life only reports the state');
	is($other->{last}{complete}, 't', 'a call with the incarnation of another life gets a complete report');
	$c->{call} = $other->{call};
	$other = { %$c, incarnation => undef };
	is(short(sync($other, [ [ 2, 'try_permit', 'p', 9 ] ])), '2:granted:p -:granted:p', 'a client without state on a lease of this life can acquire');
	$c->{call} = $other->{call};
	is(short(sync({ %$c, incarnation => 1, call => $c->{call} }, [ [ 3, 'release', 'p', 1 ] ], 'NULL')), '3:not_held:p', 'asynchronous releases are executed in any life');
	is($c->{call}, $other->{call}, 'the call number of the client itself is unchanged');
	$_->quit foreach $s, $late;
	end_all('old calls');
};

subtest 'errors' => sub {
	my ($s, $o) = (as(), as('other'));
	my $c = client($s);
	my $long = 'x' x 256;

	one(q{SELECT acquire_permit('p', 3)});
	my $rows = sync($c, [ [ 1, 'try_lock', 'a' ], [ 2, 'try_lock', '' ], [ 3, 'try_lock', $long ], [ 4, 'try_permit', 'q', 0 ], [ 5, 'try_lock', 'p' ], [ 6, 'release', 'a', 'x1' ], [ 7, 'release', 'a', 5, undef, '100 days' ],
			[ 8, 'try_lock', 'b', undef, $long ], [ 9, 'try_candidate', 'e' ], [ 10, 'try_lock', 'c' ], [ 11, 'try_lock', 'd' ], [ 11, 'try_lock', 'd' ], [ 12, 'release', 'a' ], [ 13, 'try_permit', 'q' ], [ 14, 'resign', 'e' ], [ 15, 'proclaim', 'e', undef, undef, 'x' ] ]);
	$rows = [ map { { %$_, name => undef } } @$rows ];
	is(short($rows), '1:granted 2:error:22023 3:error:22023 4:error:22023 5:error:22023 6:error:22P02 7:error:22023 8:error:22023 9:error:22023 10:granted 11:error:22023 12:error:22023 13:error:22023 14:error:22023 15:error:22023',
		'an invalid item is an error of this item alone');
	is(join(' | ', map { $rows->[$_]{message} } 11, 12, 13, 14), 'token must not be null | permits must not be null | term must not be null | term must not be null', 'an item error has a message');
	like($rows->[4]{message}, qr/"p" is in use in another way/, 'the message is that of the single function');
	like($rows->[4]{detail}, qr/not for both/, 'the detail is that of the single function');
	ok(!defined $rows->[1]{hint} && !defined $rows->[4]{hint}, 'an item error has no hint if the single function gives none');

	my %bad = (q{'{1,try_lock}'} => 'items cannot be read', q{'{2147483648,try_lock,a,NULL,NULL,NULL}'} => 'integer out of range', q{'{1,steal,a,NULL,NULL,NULL}'} => 'items cannot be read', q{'{1,NULL,a,NULL,NULL,NULL}'} => 'items cannot be read',
		q{'{NULL,try_lock,a,NULL,NULL,NULL}'} => 'number of an item must not be null', q{'{1,try_permit,a,1,NULL,NULL,1,try_permit,b,1,NULL,NULL}'} => 'items cannot be read',
		q{'{1,try_lock,a,NULL,NULL,NULL,1,try_shared,b,NULL,NULL,NULL}'} => 'items cannot be read');
	foreach my $items (sort keys %bad)
	{
		like(error_text($s, 'SELECT * FROM lease_sync(' . $c->{lease} . ', ' . ++$c->{call} . ", NULL, NULL, $items)"), qr/$bad{$items}/, "items that cannot be parsed fail the call: $items");
	}
	my $many = sub { return "(SELECT array_agg(x) FROM generate_series(1, $_[0]) AS i, LATERAL unnest(ARRAY[i::text, 'release', 'n' || i, '1', NULL, NULL]) AS x)"; };
	is($s->query('SELECT count(*) FROM lease_sync(' . $c->{lease} . ', ' . ++$c->{call} . ', NULL, NULL, ' . $many->(128) . ") WHERE event = 'not_held'"), '128', '128 items are accepted');
	like(error_text($s, 'SELECT * FROM lease_sync(' . $c->{lease} . ', ' . ++$c->{call} . ', NULL, NULL, ' . $many->(129) . ')'), qr/items cannot be read/, '129 items are rejected');
	is(short(sync($c, [ map { [ 1, 'try_lock', "m$_" ] } 1 .. 1000 ])), '1:granted:m1', 'an item with 1000 names is accepted');
	like(error_text($s, call_sql($c, [ map { [ 1, 'try_lock', "k$_" ] } 1 .. 1001 ])), qr/items cannot be read/, 'an item with 1001 names is rejected');

	# Calls that are rejected.
	foreach my $call ([ "BEGIN; CREATE TEMP TABLE w (x int); SELECT lease_sync($c->{lease}, 1000)", qr/25001/ ], [ "SELECT lease_sync($c->{lease}, NULL)", qr/22023.*call must not be null/ ],
		[ 'SELECT lease_sync(NULL, 1)', qr/22023.*lease must not be null/ ], [ call_sql($c, [ [ 1, 'try_lock', 'z' ] ], 'NULL'), qr/22023.*wait must not be null/ ],
		[ call_sql($c, [], q{'-1 s'}), qr/22023.*wait is out of range/ ])
	{
		$s->query($call->[0]);
		like($s->error, $call->[1], 'rejected: ' . substr($call->[0], 0, 60));
		$s->query('ROLLBACK');
	}
	like(error_text($o, call_sql($c)), qr/42501.*belongs to another role/, "rejected for the lease of another role");

	# An item needs the EXECUTE privilege on the function that does the same.
	one(q{REVOKE EXECUTE ON FUNCTION acquire_lock, enqueue_locks, release_lock(text, bigint, interval, boolean), campaign, proclaim, acquire_permit, enqueue_candidate, resign, enqueue_permit(text, int, interval, text, bigint) FROM PUBLIC});
	my $d = client($o);
	is(join(' ', map { "$_->{item}:$_->{event}:" . ($_->{message} // '') } @{ sync($d, [ [ 1, 'try_lock', 'r' ], [ 2, 'enqueue_lock', 'r' ], [ 3, 'enqueue_lock', 'r1' ], [ 3, 'enqueue_lock', 'r2' ], [ 4, 'try_permit', 'rp', 1 ], [ 5, 'release', 'r', 1 ],
			[ 6, 'try_candidate', 're', undef, undef, 'x' ], [ 7, 'proclaim', 're', 1, undef, 'x' ], [ 8, 'enqueue_candidate', 're', undef, undef, 'x' ], [ 9, 'resign', 're', 1 ], [ 10, 'try_lock', 'r3' ], [ 10, 'try_lock', 'r4' ], [ 11, 'try_shared', 'r5' ], [ 12, 'enqueue_permit', 'rp', 1 ], [ 13, 'enqueue_shared', 'r6' ] ]) }),
		join(' ', '1:error:permission denied for function acquire_lock', '2:granted:', '3:error:permission denied for function enqueue_locks', '4:error:permission denied for function acquire_permit', '5:error:permission denied for function release_lock',
			'6:error:permission denied for function campaign', '7:error:permission denied for function proclaim', '8:error:permission denied for function enqueue_candidate', '9:error:permission denied for function resign', '10:granted:',
			'11:error:permission denied for function acquire_lock', '12:error:permission denied for function enqueue_permit', '13:granted:'), 'each item needs the privilege on its function');
	one(q{GRANT EXECUTE ON FUNCTION acquire_lock, enqueue_locks, release_lock(text, bigint, interval, boolean), campaign, proclaim, acquire_permit, enqueue_candidate, resign, enqueue_permit(text, int, interval, text, bigint) TO PUBLIC});
	one(q{SELECT force_release_lock('p')});
	$_->quit foreach $s, $o;
	end_all('errors');
};

subtest 'several names' => sub {
	my ($s, $o) = (as(), as());
	my $c = client($s);
	my $held = $o->query(q{SELECT acquire_lock('y', '1 min')});
	my $rows = sync($c, [ [ 1, 'enqueue_lock', 'x', undef, 'me#1' ], [ 1, 'enqueue_lock', 'y', undef, 'me#1' ], [ 2, 'try_lock', 'v' ], [ 2, 'try_lock', 'w' ], [ 3, 'enqueue_shared', 'r' ], [ 3, 'enqueue_shared', 's' ] ]);

	is(short($rows), '1:queued:x 2:granted:v 3:granted:r', 'an item with several names has one row');
	is($o->query(q{SELECT try_acquire_lock('x') IS NULL}), 't', 'a name is not free while a place for several names waits for it');
	is(one(q{SELECT string_agg(name || queue_position, ' ' ORDER BY name) FROM lock_election.waiters}), 'x1 y1', 'a place for several names waits in each queue');
	my $next = $o->query(q{SELECT token FROM enqueue_lock('x', '1 min')});
	is(one(q{SELECT string_agg(name || queue_position, ' ' ORDER BY name, queue_position) FROM lock_election.waiters}), 'x1 x2 y1', 'another place is enqueued behind it');
	$o->query("SELECT release_lock('y', $held)");
	is(short(sync($c)), '-:granted:x -:granted:y', 'both names are granted together');
	is(one(q{SELECT count(DISTINCT token) FROM lock_election.locks WHERE name IN ('x', 'y')}), '1', 'both names have the same token');
	is(short(sync($c, [ [ 4, 'release', 'x', token_of($rows) ] ])), '4:released:x', 'one of the two names is released');
	is($o->query("SELECT await_lock('x', $next)"), 't', 'the released name is granted to the next place');
	is($s->query("SELECT is_held('y', " . token_of($rows) . ')'), 't', 'the other name is still held');

	# When a place for several names is released, it leaves all queues, and the places behind it are granted.
	my $group = $s->query(q{SELECT token FROM enqueue_locks('{x,q}', '1 min')});
	my $behind = $o->query(q{SELECT token FROM enqueue_lock('q', '1 min')});
	is($o->query("SELECT await_lock('q', $behind)"), 'f', 'a place waits behind a place for several names');
	is($s->query("SELECT release_locks('{x,q}', $group)"), 't', 'the place for several names is released');
	is($o->query("SELECT await_lock('q', $behind)"), 't', 'the place behind it is granted');

	# Two places for the same two names, in different orders.
	my ($one, $two) = ($s->query(q{SELECT token FROM enqueue_locks('{g,h}', '1 min')}), $o->query(q{SELECT token FROM enqueue_locks('{h,g}', '1 min')}));
	is($o->query("SELECT await_locks('{h,g}', $two)"), 'f', 'the second place for two names waits');
	is($s->query("SELECT release_lock('g', $one)"), 't', 'the first place releases one of the names');
	is($o->query("SELECT await_locks('{h,g}', $two)"), 'f', 'the second place still waits for the other name');
	is($s->query("SELECT release_lock('h', $one)") . $o->query("SELECT await_locks('{h,g}', $two)"), 'tt', 'the second place is granted when both names are free');
	is($o->query("SELECT renew_lock('g', $two, '2 min'), await_locks('{g,h}', $two)"), '00:02:00|t', 'both names share one TTL');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE name IN ('g', 'h') AND time_left > '1 min 30 s'}), '2', 'a renewal of one name renews both');
	$_->quit foreach $s, $o;
	end_all('several names');
};

subtest 'numbers of holds' => sub {
	my $s = as();
	my $token = $s->query(q{SELECT acquire_locks('{x,y}', owner => 'o')});

	is($s->query(q{SELECT acquire_locks('{y,x}', owner => 'o')}), $token, 'a second acquire_locks() by the same owner returns the same token');
	is($s->query("SELECT release_locks('{x,y}', $token), is_held('x', $token), is_held('y', $token)"), 't|t|t', 'each release_locks() takes one hold of each name');
	is($s->query("SELECT release_locks('{x,y}', $token), is_held('x', $token), release_locks('{x,y}', $token)"), 't|f|f', 'the last release_locks() ends all names');
	$s->query(q{SELECT acquire_locks('{x,y}'), acquire_lock('z'), grant_lease(), enqueue_lock('z'), enqueue_locks('{x,q}')});
	$s->query(q{SELECT release_lock('c', acquire_lock('c'), hold_for => '1 h')});
	is($s->query(q{SELECT force_release_role('app')}), '7', 'force_release_role() counts three holds, two places, a lease and a closed name, but not the leases of places');
	is($s->query(q{SELECT try_acquire_lock('c') IS NOT NULL, force_release_role('app')}), 't|1', 'force_release_role() opens the closed name');
	$s->quit;
	end_all('counts');
};

subtest 'eviction' => sub {
	my ($s, $o) = (as(), as());
	my $c = client($s);
	my $rows = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'try_candidate', 'e', undef, 'me#2', 'here' ] ]);
	my $own = $o->query(q{SELECT acquire_lock('own', '1 min')});
	my $place = $o->query(q{SELECT token FROM enqueue_lock('a', '1 min')});

	is(one(q{SELECT evict_lock('a'), evict_lock('a'), evict_leader('e'), evict_lock('own')}), '1|0|1|1', 'a second eviction evicts nobody');
	my $news = sync($c);
	is(short($news), '-:evicted:a -:evicted:e', 'a call reports the evictions');
	is($news->[0]{token}, token_of($rows), 'the eviction is reported with its token');
	is(short(sync($c)), '', 'an eviction is reported only once');
	is($s->query('SELECT is_held(' . q{'a', } . token_of($rows) . '), is_leader(' . q{'e', } . token_of($rows, 1) . ')'), 't|t', 'evicted holders still hold');
	is(one(q{SELECT string_agg(name, ' ' ORDER BY name) FROM lock_election.locks WHERE evicted}), 'a e own', 'the view shows evicted holders');
	is($o->query("SELECT renew_lock('own', $own) IS NULL"), 't', 'an evicted lock with its own lease cannot be renewed');
	is($o->query("SELECT await_lock('a', $place)"), 'f', 'the next place is not granted the evicted lock');
	is($s->query("SELECT lease_holds($c->{lease}) IS NULL"), '', 'lease_holds() does not list evicted locks');
	is($s->query("SELECT keep_alive($c->{lease}) <= '30 s'"), 't', 'keep_alive() confirms at most the deadline of the evicted holder');
	is(short(sync($c, [ [ 3, 'release', 'a', token_of($rows) ], [ 4, 'resign', 'e', token_of($rows, 1) ] ])), '3:released:a 4:released:e', 'evicted holders release their locks');
	is($o->query("SELECT await_lock('a', $place)"), 't', 'the next place is granted the released lock');
	$_->quit foreach $s, $o;
	end_all('eviction');
};

subtest 'notifications' => sub {
	my ($s, $o, $listener) = (as(), as(), as());
	my $c = client($s);
	my $held = $o->query(q{SELECT acquire_lock('a')});

	sync($c, [ [ 1, 'enqueue_lock', 'a', undef, 'me#1' ] ]);
	my $lease_channel = $c->{last}{channel};
	my ($place, $channel) = split /\|/, $s->query(q{SELECT token, channel FROM enqueue_lock('a')});
	my $observed = $s->query(q{SELECT observe_election('e')});
	isnt($channel, $lease_channel, 'a place without the lease has the channel of the lock');
	$listener->query("LISTEN $_") foreach $lease_channel, $channel, $observed;
	$o->query("SELECT release_lock('a', $held)");
	is_deeply([ notified($listener) ], [ [ $lease_channel, '' ] ], 'a grant on a named lease is notified on the channel of the lease');
	my $token = token_of(sync($c));
	sync($c, [ [ 2, 'release', 'a', $token ] ]);
	is_deeply([ notified($listener) ], [ [ $channel, qq({"event":"granted","token":"$place"}) ] ], 'a grant without a named lease is notified on the channel of the lock, with its token');
	my $term = $s->query(q{SELECT campaign('e', 'me')});
	$s->query("SELECT proclaim('e', $term, 'you'), resign('e', $term)");
	my @told = map { $_->[1] =~ /"event":"(\w+)","term":"$term","change":"(\d+)","previous":"(\d+)"/ ? [ $1, $2, $3 ] : () } notified($listener);
	is(join(' ', map { $_->[0] } @told), 'elected proclaimed resigned', 'changes of an election are notified');
	is("$told[1][2] $told[2][2]", "$told[0][1] $told[1][1]", 'each change is notified with the number of the previous one');

	one(q{SELECT lock_election.configure('notify', 'elections')});
	$place = $s->query(q{SELECT token FROM enqueue_lock('a')});
	$s->query(q{SELECT force_release_lock('a'); SELECT campaign('e', 'me')});
	is(join(' ', map { $_->[0] } notified($listener)), $observed, 'notify = elections sends only changes of elections');
	sync($c);
	is($c->{last}{channel}, undef, 'notify = elections gives a lease no channel');
	one(q{SELECT lock_election.configure('notify', 'waiters')});
	$s->query(q{SELECT token FROM enqueue_lock('a'); SELECT force_release_lock('a'); SELECT force_resign('e')});
	is(join(' ', map { $_->[0] } notified($listener)), $channel, 'notify = waiters sends only grants');
	one(q{SELECT lock_election.configure('notify', 'none')});
	$s->query(q{SELECT token FROM enqueue_lock('a'); SELECT force_release_lock('a'); SELECT campaign('e', 'me')});
	is(join(' ', map { $_->[0] } notified($listener)), '', 'notify = none sends nothing');
	one(q{SELECT lock_election.configure('notify', 'all')});
	$_->quit foreach $s, $o, $listener;
	end_all('announcements');
};

subtest 'limits' => sub {
	my $s = as();
	my $limit = sub { my ($name, $value) = @_; one("SELECT lock_election.configure('$name', '$value')"); };

	like(error_text(session($node), q{SELECT lock_election.configure('nothing', '1')}), qr/0A000.*no setting "nothing"/, 'an unknown setting is rejected');
	like(error_text(session($node), q{SELECT lock_election.configure('notify', 'some')}), qr/22023.*invalid value for notify: "some"/, 'an invalid value is rejected');
	$limit->('max_locks_per_role', 3);
	my $lease = $s->query('SELECT grant_lease()');
	is($s->query(q{SELECT count(t) FROM (SELECT acquire_lock('l' || i) AS t FROM generate_series(1, 2) i) x}), '2', 'locks up to the limit are accepted');
	$s->query(q{SELECT enqueue_lock('l1')});
	like(error_text($s, q{SELECT acquire_lock('l4')}), qr/53400.*role "app" has too many locks in this database/, 'places count for max_locks_per_role');
	like(error_text($s, "SELECT acquire_lock('l4', lease => $lease)"), qr/53400/, 'max_locks_per_role also applies on a lease');
	like(short(sync({ s => $s, lease => $lease, call => 0 }, [ [ 1, 'try_lock', 'l4' ] ])), qr/1:error:.*53400/, 'max_locks_per_role also applies to lease_sync()');
	$limit->('max_locks_per_role', 0);
	is($s->query(q{SELECT acquire_lock('l4') IS NOT NULL}), 't', 'max_locks_per_role = 0 disables the limit');
	$limit->('max_waiters_per_lock', 1);
	like(error_text($s, q{SELECT enqueue_lock('l1')}), qr/53400.*too many requests wait for lock "l1"/, 'max_waiters_per_lock limits the queue');
	is($s->query(q{SELECT granted FROM enqueue_lock('l5')}), 't', 'max_waiters_per_lock does not apply to a lock that is free');
	$limit->('max_waiters_per_lock', 2);
	is($s->query(q{SELECT queue_position FROM enqueue_lock('l1')}), '2', 'a higher max_waiters_per_lock applies immediately');
	$limit->('max_waiters_per_lock', 1000);
	$limit->('max_leases_per_role', 1);
	like(error_text($s, 'SELECT grant_lease()'), qr/53400.*role "app" has too many leases/, 'max_leases_per_role limits leases');
	like(as('other')->query('SELECT grant_lease()'), qr/^\d+$/, 'another role has its own limit of leases');
	$limit->('max_leases_per_role', 2);
	like($s->query('SELECT grant_lease()'), qr/^\d+$/, 'a higher max_leases_per_role applies immediately');
	$limit->('max_leases_per_role', 0);
	$limit->('max_ttl', '2 h');
	like(error_text($s, q{SELECT acquire_lock('t', '3 h')}), qr/53400.*ttl is too long for this server: 03:00:00/, 'max_ttl limits the ttl');
	is($s->query(q{SELECT acquire_lock('t', '2 h') IS NOT NULL}), 't', 'a ttl of exactly max_ttl is accepted');
	$limit->('max_ttl', '24 days');
	$limit->('max_hold_for', '1 h');
	my $token = $s->query(q{SELECT acquire_lock('h')});
	like(error_text($s, "SELECT release_lock('h', $token, hold_for => '2 h')"), qr/53400.*hold_for is too long/, 'max_hold_for limits hold_for');
	is($s->query("SELECT release_lock('h', $token, hold_for => '1 h')"), 't', 'hold_for of exactly max_hold_for is accepted');
	is($s->query(q{SELECT try_acquire_lock('h') IS NULL}), 't', 'the name is closed');
	is(one(q{SELECT closed_until - clock_timestamp() BETWEEN '59 min' AND '1 h', mode IS NULL FROM lock_election.locks WHERE name = 'h'}), 't|t', 'the view shows the closed name');
	$limit->('max_hold_for', '1 day');
	$s->quit;
	end_all('limits');
};

subtest 'reap()' => sub {
	my $s = as();
	my $old = sub { one("UPDATE _lock_election.$_ SET expires_at = clock_timestamp() - interval '1 min'") foreach 'lease', 'hold'; };
	my $lease = $s->query('SELECT grant_lease()');

	$s->query("SELECT acquire_lock('on', lease => $lease), acquire_lock('own'), enqueue_lock('own'), enqueue_locks('{own,on}')");
	$s->query(q{SELECT campaign('reaped', 'me'), acquire_locks('{x,y}')});
	is(one('SELECT lock_election.reap()'), '0', 'reap() ends nothing that has not expired');
	is(one('SELECT (SELECT count(*) FROM _lock_election.hold), (SELECT count(*) FROM _lock_election.place)'), '5|3', 'all rows are still there');
	$old->();
	is($s->query(q{SELECT count(*) FROM lock_election.locks}) . $s->query(q{SELECT count(*) FROM lock_election.waiters}) . $s->query('SELECT count(*) FROM lock_election.leases'), '000', 'the views do not show expired entries');
	# The order of names is not defined, nor which release removes the lease.
	is(one('SELECT lock_election.reap(1) IN (1, 2), (SELECT count(*) FROM _lock_election.hold) >= 3'), 't|t', 'reap(1) processes one name at most, and leases');
	one('SELECT lock_election.reap() FROM generate_series(1, 3)');
	is(one('SELECT (SELECT count(*) FROM _lock_election.hold), (SELECT count(*) FROM _lock_election.place), (SELECT count(*) FROM _lock_election.lease)'), '0|0|0', 'reap() removes everything that has expired');
	is(one(q{SELECT string_agg(how, ' ' ORDER BY change) FROM election_history('reaped')}), 'elected expired', 'reap() writes the end of a term into the history');
	one(q{UPDATE _lock_election.history SET changed_at = changed_at - interval '8 days'});
	one(q{SELECT lock_election.configure('history_retention', '0'), lock_election.reap()});
	is(one(q{SELECT count(*) FROM election_history('reaped')}), '2', 'history_retention = 0 keeps the history');
	one(q{SELECT lock_election.configure('history_retention', '9 days'), lock_election.reap()});
	is(one(q{SELECT count(*) FROM election_history('reaped')}), '2', 'rows that are younger than history_retention are kept');
	one(q{SELECT lock_election.configure('history_retention', '7 days')});
	one(q{SELECT lock_election.reap()});
	is(one(q{SELECT count(*) FROM election_history('reaped')}), '0', 'rows that are older than history_retention are removed');
	$s->quit;
	end_all('reap');
};

subtest 'views' => sub {
	my ($s, $o, $w) = (as(), as('other'), as('watcher'));
	my $c = client($s);
	sync($c, [ [ 1, 'try_lock', 'v', undef, 'me' ], [ 2, 'try_candidate', 'e', undef, 'me', 'here' ] ]);
	$o->query(q{SELECT enqueue_lock('v', '1 min', owner => 'you'), enqueue_candidate('e', 'there', '1 min'), enqueue_lock('free', '1 min')});
	my $own = q{SELECT kind, name, mode, owner, token IS NOT NULL, lease IS NOT NULL, holds, waiters, pid IS NOT NULL, connected FROM lock_election.locks WHERE name IN ('v', 'e') ORDER BY kind DESC};

	is($s->query($own), "lock|v|exclusive|me|t|t|1|1|t|t\nelection|e|exclusive|me|t|t|1|1|t|t", 'a holder sees its own entries');
	is($w->query($own), $s->query($own), 'a member of pg_read_all_stats sees the same');
	is($o->query($own), "lock|v|exclusive||f|f|1|1|f|\nelection|e|exclusive||f|f|1|1|f|", 'another role does not see owner, token and pid');
	my $waiters = q{SELECT kind, name, queue_position, mode, owner, token IS NOT NULL, blocked_by = ARRAY[%d] FROM lock_election.waiters ORDER BY kind DESC};
	is($o->query(sprintf $waiters, $s->pid), "lock|v|1|exclusive|you|t|f\nelection|e|1|exclusive||t|f", 'a waiter sees itself');
	is($w->query(sprintf $waiters, $s->pid), "lock|v|1|exclusive|you|t|t\nelection|e|1|exclusive||t|t", 'a member of pg_read_all_stats sees blocked_by');
	is($s->query(q{SELECT owner, ttl, time_left <= ttl, locks, waiting FROM lock_election.leases}), '|00:00:30|t|2|0', 'the view leases shows a lease');
	is($o->query(q{SELECT lease, ttl, locks FROM lock_election.leases}), '|00:00:30|', 'another role does not see the details of a lease');
	is($o->query(q{SELECT election, candidate, term IS NOT NULL, owner, waiting FROM lock_election.elections}), 'e|here|t||1', 'every role sees the leader');
	is($s->query("SELECT string_agg(kind || name || granted, ' ' ORDER BY name) FROM lease_holds($c->{lease})"), 'electionetrue lockvtrue', 'lease_holds() lists the entries of a lease');
	is($s->query("SELECT lease_time_to_live($c->{lease}) BETWEEN '20 s' AND '30 s'"), 't', 'lease_time_to_live() returns the remaining time');
	is($s->query('SELECT ok, problem, role, manager, loading, sql_version FROM lock_election.health()'), 't||primary|f|f|portable 1', 'health() reports no problem');
	is($s->query('SET default_transaction_read_only = on; SELECT ok, problem FROM lock_election.health()'), 'f|transactions are read-only here', 'health() reports a read-only transaction');
	$_->quit foreach $s, $o, $w;
	end_all('views');
};

subtest 'arguments' => sub {
	my $s = as();

	like(error_text($s, q{SELECT await_locks('{}', 1)}), qr/22023.*names/, 'an empty array of names is rejected');
	like(error_text($s, q{SELECT acquire_locks('{a,b}', wait => '-1 s')}), qr/22023.*wait is out of range: -00:00:01/, 'a negative wait is rejected');
	like(error_text($s, 'SELECT observe_election(NULL)'), qr/22004|22023.*election must not be null/, 'a null election is rejected');
	foreach my $limit ([ '2 days', '2d' ], [ '26 h', '26h' ], [ '90 min', '90min' ], [ '90 s', '90s' ], [ '1500 ms', '1500ms' ])
	{
		one("SELECT lock_election.configure('max_ttl', '$limit->[0]')");
		$s->query(q{SELECT acquire_lock('t', '3 days')});
		like($s->error, qr/See lock_election\.max_ttl \(\Q$limit->[1]\E\)/, "the hint shows the limit in the unit of the setting: $limit->[1]");
	}
	one(q{SELECT lock_election.configure('max_ttl', '24 days')});
	my $c = client($s);
	$c->{columns} = 'event, detail IS NULL, hint IS NULL';
	is($s->query(call_sql($c, [ [ 1, 'release', 'a' ] ])) =~ s/.*\n//r, 'error|t|t', 'an item error without detail and hint has null values');
	$s->quit;
	end_all('arguments');
};

subtest 'names do not affect each other' => sub {
	my ($s, $o, $third) = (as(), as(), as());

	# An expired hold stays until a call uses its name.
	$s->query(q{SELECT acquire_lock('over'), acquire_lock('mine')});
	one(q{UPDATE _lock_election.hold SET expires_at = clock_timestamp() - interval '1 min' WHERE name = 'over'});
	is($o->query(q{SELECT try_acquire_lock('mine') IS NULL}), 't', 'a try on one name fails');
	is(one(q{SELECT count(*) FROM _lock_election.hold WHERE name = 'over'}), '1', 'a try on one name does not end an expired hold of another name');

	# Permits.
	is($s->query(q{SELECT release_lock('p', acquire_permit('p', 2), hold_for => '1 h')}), 't', 'a name is closed');
	is($s->query(q{SELECT granted FROM enqueue_permit('p', 2)}), 'f', 'a place waits for a permit of the closed name');
	is(one(q{SELECT set_permits('p', 3)}), '2', 'set_permits() changes the number of a waiting place');
	is(one(q{SELECT set_permits('nobody', 3) IS NULL}), 't', 'set_permits() returns null for an unused name');

	# Queue positions.
	my $held = $s->query(q{SELECT acquire_lock('q')});
	my @places = map { $s->query(q{SELECT token FROM enqueue_lock('q')}) } 1 .. 2;
	one("UPDATE _lock_election.lease SET expires_at = clock_timestamp() - interval '1 min' WHERE id = (SELECT lease FROM _lock_election.place WHERE token = $places[1])");
	is($o->query(q{SELECT queue_position FROM enqueue_lock('q')}), '2', 'an expired place does not count for queue_position');

	# A later call waits in the line of another name.
	$o->async(q{SELECT acquire_lock('mine', wait => '20 s')});
	wait_for_waiters(1, 'mine');
	one(q{SELECT enqueue_lock('mine', '1 min')});
	$third->async(q{SELECT acquire_lock('q', wait => '20 s')});
	wait_for_sql($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND objsubid = 1 AND pid IN (} . $o->pid . ', ' . $third->pid . ')', '2');
	one(q{SELECT force_release_lock('mine')});
	like($o->wait, qr/^\d+$/, 'a call that came before a place is granted first, although a later call waits for another name');
	one(q{SELECT force_release_role('app') FROM generate_series(1, 2)});
	one("SELECT pg_cancel_backend(" . $third->pid . ")");
	$third->wait;
	$_->quit foreach $s, $o, $third;
	end_all('each name by itself');
};

subtest 'a line is not overtaken' => sub {
	my ($s, $o) = (as(), as());
	my $token = $s->query(q{SELECT acquire_lock('n')});

	$o->async(q{SELECT acquire_lock('n', wait => '20 s')});
	wait_for_waiters(1, 'n');
	# In one transaction, so that the waiting session cannot be faster.
	is($s->query("SELECT release_lock('n', $token)\\; SELECT count(*) FROM try_acquire_each('{n}') WHERE token IS NOT NULL"), "t\n0",
		'try_acquire_each() does not overtake a waiting call');
	like($o->wait, qr/^\d+$/, 'the waiting call is granted the lock');
	$_->quit foreach $s, $o;
	end_all('a line');
};

subtest 'more losses than are remembered' => sub {
	my $s = as();
	my ($c, $d) = (client($s), client($s));
	my @ends = map { [ $_, 'try_lock', "k$_" ] } 1 .. 20;
	my $rows = sync($c, \@ends);

	sync($d, [ [ 1, 'try_lock', 'd1' ], [ 2, 'try_lock', 'd2' ] ]);
	one(q{SELECT force_release_lock('d1')});
	one("SELECT force_release_lock('k$_')") foreach 1 .. 20;
	one(q{SELECT force_release_lock('d2')});
	is(one("SELECT count(*), min(token) = " . token_of($rows, 4) . " FROM _lock_election.loss WHERE lease = $c->{lease}"), '16|t', 'the newest 16 losses of a lease are remembered');
	is(short(sync($d)), '-:lost:forced -:lost:forced', 'losses of other leases do not count');
	$s->quit;
	end_all('news of many ends');
};

subtest 'fences and their rows' => sub {
	my ($s, $o) = (as(), as());
	my $token = $s->query(q{SELECT acquire_lock('f')});

	$s->query("BEGIN; SELECT fence_lock('f', $token)");
	is(one(q{SELECT fenced_by = ARRAY[} . $s->pid . q{] FROM lock_election.locks}), 't', 'the view shows the fencing process');
	$s->query('COMMIT');
	is(one('SELECT count(*) FROM _lock_election.fence'), '1', 'the row of a fence stays after the commit');
	one('SELECT lock_election.reap()');
	is(one('SELECT count(*) FROM _lock_election.fence'), '0', 'reap() removes the row of a finished fence');
	is($s->query("SELECT release_lock('f', $token)"), 't', 'the lock is released');
	$s->query(q{SELECT acquire_lock('g', owner => 'same')});
	$o->query(q{BEGIN; SELECT acquire_lock('g', owner => 'same')});
	is(one(q{SELECT fenced_by, holds FROM lock_election.locks}), '{}|1', 'an uncommitted second acquire is not shown as a fence');
	$o->query('COMMIT');
	is(one(q{SELECT force_release_role('app')}), '1', 'the lock of the role is released by force');
	$_->quit foreach $s, $o;
	end_all('fences');
};

subtest 'a client is notified although the section is occupied' => sub {
	my ($s, $o, $idle, $listener) = map { as() } 1 .. 4;
	my ($c, $holder) = (client($s), client($o));

	sync($holder, [ [ 1, 'try_lock', 'b' ] ]);
	sync($c, [ [ 1, 'enqueue_lock', 'b', undef, 'me#1' ] ]);
	$listener->query("LISTEN $c->{last}{channel}");
	$idle->query(q{BEGIN; SELECT token FROM enqueue_lock('b')});
	is($o->query("SELECT revoke_lease($holder->{lease})"), 't', 'a lease is revoked while another transaction is in the critical section of its name');
	is_deeply([ notified($listener) ], [ [ $c->{last}{channel}, '' ] ], 'the first waiting client is notified');
	$idle->query('ROLLBACK');
	is(short(sync($c)), '-:granted:b', 'the next call of the notified client is granted the lock');
	$_->quit foreach $s, $o, $idle, $listener;
	end_all('told');
};

subtest 'leases that end' => sub {
	my ($s, $o) = (as(), as());
	my $c = client($s);

	# The only place is granted by its client's own call.
	$o->query(q{SELECT acquire_lock('only')});
	sync($c, [ [ 1, 'enqueue_lock', 'only', undef, 'me#1' ] ]);
	one(q{UPDATE _lock_election.hold SET expires_at = clock_timestamp() - interval '1 min' WHERE name = 'only'; UPDATE _lock_election.lease SET expires_at = clock_timestamp() - interval '1 min' WHERE NOT named});
	is(short(sync($c)), '-:granted:only', 'a call of the waiting client ends the expired holder');

	# Two sessions revoke the same lease.
	$s->query("BEGIN; SELECT revoke_lease($c->{lease})");
	$o->async("SELECT revoke_lease($c->{lease})");
	wait_for_sql($node, 'SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $o->pid, '1');
	$s->query('COMMIT');
	is($o->wait . $o->error, 'f', 'a lease is revoked by only one of two calls');

	# A place whose lease has no row, as after a manual DELETE.
	my $held = $o->query(q{SELECT acquire_lock('row')});
	my $place = $s->query(q{SELECT token FROM enqueue_lock('row')});
	one("DELETE FROM _lock_election.lease WHERE id = (SELECT lease FROM _lock_election.place WHERE token = $place)");
	my ($next, $position) = split /\|/, $s->query(q{SELECT token, queue_position FROM enqueue_lock('row')});
	is($position, '1', 'a place without a lease counts as expired');
	is($o->query("SELECT release_lock('row', $held)") . $s->query(q{SELECT token FROM lock_election.locks WHERE name = 'row'}), "t$next", 'the place behind it is granted');

	my $term = $s->query(q{SELECT campaign('again', 'here', owner => 'me')});
	is($s->query(q{SELECT campaign('again', 'there', owner => 'me')}), $term, 'a second campaign with another value returns the same term');
	is(one(q{SELECT string_agg(how || ' ' || candidate, ', ' ORDER BY change) FROM election_history('again')}), 'elected here, proclaimed there', 'a second campaign with another value proclaims it');
	$_->quit foreach $s, $o;
	end_all('leases that end');
};

subtest 'limits of a session' => sub {
	my ($s, $o) = (as(), as());

	$o->query(q{SELECT acquire_lock('w')});
	my $place = $s->query(q{SELECT token FROM enqueue_lock('w')});
	like(error_text($s, "SET lock_timeout = '100 ms'; SELECT await_lock('w', $place, wait => '20 s')"), qr/55P03.*canceling statement due to lock timeout/, 'lock_timeout ends a wait for a place');
	is($s->query("RESET lock_timeout; SELECT await_lock('w', $place)"), 'f', 'the place is kept after lock_timeout');
	$_->quit foreach $s, $o;
	end_all('limits of a session');
};

$node->stop;
done_testing();
