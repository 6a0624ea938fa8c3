# lease_sync(): one call renews a lease, makes the client's requests, and reports everything that has happened to the
# lease.
# Promises: M, D, L, G
# Needs: faults
use strict;
use warnings;
use LeSync;
use LeTest;
use Cwd qw(getcwd);
use PostgreSQL::Test::Utils;
use Test::More;

system_or_bail('make', '-s', 'build/stall.so');
my $stall = PostgreSQL::Test::Utils::tempdir() . '/stall';
my $node;
{
	local $ENV{LD_PRELOAD} = getcwd() . '/build/stall.so';
	local $ENV{LE_STALL} = $stall;
	# The server cannot stop while its disk is stalled.
	END { unlink $stall if defined $stall; }
	$node = new_node('main', faults => 1, conf => "fsync = on\nwal_level = replica\nmax_wal_senders = 2\n");
}

sub held { return one('SELECT count(*) FROM lock_election.locks WHERE mode IS NOT NULL'); }

sub end_all
{
	one(q{SELECT force_release_role(current_user::regrole)});
	nothing_left($node);
	return;
}

subtest 'the usual requests of a client' => sub {
	my ($s, $other) = (session($node), session($node));
	my $c = client($s);
	my ($rows, $token, $held);

	$rows = sync($c);
	is(short($rows), '', 'the first call on a new lease reports no news');
	is($c->{last}{event}, 'lease', 'each call reports the lease');
	is($c->{last}{validity}, '00:00:30', 'a new lease is valid for its TTL');
	is($c->{last}{complete}, 't', 'the first call reports everything: complete');
	like($c->{last}{channel}, qr/^le_[0-9a-f]{32}$/, 'the lease has a notification channel');

	$held = $other->query(q{SELECT acquire_lock('b')});
	$rows = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'enqueue_lock', 'b', undef, 'me#3' ], [ 4, 'try_candidate', 'e', undef, 'me#4', 'here' ] ]);
	is(short($rows), '1:granted:a 2:not_granted:b 3:queued:b 4:granted:e', 'each item gets its own result');
	is($rows->[2]{queue_position}, '1', 'a queued item reports its queue position');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE lease = } . $c->{lease}), '2', 'the lease holds two names');
	$token = $rows->[0]{token};

	is(short(sync($c)), '', 'a call without items and news reports nothing');
	is($c->{last}{complete}, 'f', 'a call that reports only news is not complete');
	$other->query("SELECT release_lock('b', $held)");
	$rows = sync($c);
	is(short($rows), '-:granted:b', 'a call reports a place that was granted');
	is($rows->[0]{owner}, 'me#3', 'the granted place is reported with its owner');
	is(short(sync($c)), '', 'a grant is reported only once');

	one(q{SELECT force_release_lock('b')});
	is(short(sync($c)), '-:lost:forced', 'a lost lock is reported with the reason');
	is(short(sync($c, [ [ 7, 'proclaim', 'e', $rows->[0]{token}, undef, 'there' ], [ 8, 'release', 'a', $token ], [ 9, 'release', 'a', $token ] ])),
		'7:not_held:e 8:released:a 9:not_held:a', 'releases come first, and a token that is not held is reported');
	is(short(sync($c)), '', 'a release by the client is not reported as a loss');

	# A client without state starts from the beginning.
	$c->{incarnation} = undef;
	is(short(sync($c)), '-:granted:e -:lost:forced', 'a client without state is told all its holds, and the losses that the server still remembers');
	is($c->{last}{complete}, 't', 'a client without state gets a complete report');
	is($s->query("SELECT revoke_lease($c->{lease})"), 't', 'the lease is revoked');
	sync($c);
	is("$c->{last}{event} $c->{last}{reason}", 'gone revoked', 'a call on a revoked lease reports that it is gone');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'one call releases a lock and reports the grant of its own place' => sub {
	my $s = session($node);
	my $c = client($s);
	my $first = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ])->[0]{token};
	my $place = sync($c, [ [ 2, 'enqueue_lock', 'a', undef, 'me#2' ] ])->[0];

	is($place->{event}, 'queued', 'two owners of one lease exclude each other');
	is(short(sync($c, [ [ 3, 'release', 'a', $first ] ])), '3:released:a -:granted:a', 'the released lock is granted to the place in the same call');
	is(short(sync($c, [ [ 4, 'release', 'a', $place->{token} ], [ 5, 'enqueue_lock', 'a', undef, 'me#5' ] ])), '4:released:a 5:granted:a', 'one call can release a lock and acquire it again');
	$s->quit;
	end_all();
};

subtest 'several names, permits, shared locks' => sub {
	my ($s, $other) = (session($node), session($node));
	my $c = client($s);
	my $held = $other->query(q{SELECT acquire_lock('y')});
	my $rows = sync($c, [ [ 1, 'enqueue_lock', 'x', undef, 'me#1' ], [ 1, 'enqueue_lock', 'y', undef, 'me#1' ], [ 2, 'try_permit', 'p', 2, 'me#2' ], [ 3, 'try_permit', 'p', 2, 'me#3' ], [ 4, 'try_permit', 'p', 2, 'me#4' ], [ 5, 'enqueue_shared', 's', undef, 'me#5' ] ]);

	is(short($rows), '1:queued:x 2:granted:p 3:granted:p 4:not_granted:p 5:granted:s', 'items of different modes get their results');
	$other->query("SELECT release_lock('y', $held)");
	is(short(sync($c)), '-:granted:x -:granted:y', 'a place for two names is granted as a whole');
	is(short(sync($c, [ [ 1, 'try_lock', 'v' ], [ 1, 'try_lock', 'w' ] ])), '1:granted:v', 'an item with two free names is granted');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'an invalid item' => sub {
	my $s = session($node);
	my $c = client($s);
	my $long = 'x' x 256;
	my $rows;

	one(q{SELECT acquire_permit('p', 3)});
	$rows = sync($c, [ [ 1, 'try_lock', 'a' ], [ 2, 'try_lock', '' ], [ 3, 'try_lock', $long ], [ 4, 'try_permit', 'q', 0 ], [ 5, 'try_lock', 'p' ],
			[ 6, 'release', 'a', 'x1' ], [ 7, 'release', 'a', 5, undef, '100 days' ], [ 8, 'try_lock', 'b', undef, $long ], [ 9, 'try_candidate', 'e' ], [ 10, 'try_lock', 'c' ], [ 11, 'try_lock', 'd' ], [ 11, 'try_lock', 'd' ] ]);
	is(short($rows), '1:granted:a 2:error:22023 3:error:22023 4:error:22023 5:error:p:22023 6:error:22P02 7:error:22023 8:error:22023 9:error:22023 10:granted:c 11:error:22023',
		'an invalid item is an error of this item alone');
	like($rows->[4]{message}, qr/"p" is in use in another way/, 'an item error has a message');
	ok(defined $rows->[4]{detail}, 'an item error has a detail');
	is($c->{last}{validity}, '00:00:30', 'the lease is renewed despite invalid items');

	# Arguments of an invalid item must not leak into the next item.
	my $term = sync($c, [ [ 1, 'try_candidate', 'v', undef, 'me#1', 'here' ] ])->[0]{token};
	$rows = sync($c, [ [ 2, 'release', 'a', 'x1', undef, '1 hour' ], [ 3, 'resign', 'v', $term ] ]);
	is(short($rows), '2:error:22P02 3:released:v', 'a valid item after an invalid one succeeds');
	$rows = sync($c, [ [ 4, 'try_candidate', 'v', undef, 'me#4', 'there' ] ]);
	is(short($rows), '4:granted:v', 'the arguments of an invalid item do not affect the next item');
	sync($c, [ [ 5, 'resign', 'v', $rows->[0]{token} ] ]);

	# A limit is reached.
	one('ALTER SYSTEM SET lock_election.max_locks_per_role = 4; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_locks_per_role', '4');
	wait_until(sub { $rows = sync($c, [ [ 1, 'try_lock', 'd' ], [ 2, 'try_lock', 'f' ] ]); my $ok = short($rows) =~ /error/; sync($c, [ map { [ 9, 'release', $_->{name}, $_->{token} ] } grep { defined $_->{token} } @$rows ]) unless $ok; $ok; });
	is(short($rows), '1:granted:d 2:error:f:53400', 'an item that exceeds a limit is an error of this item alone');
	is($rows->[1]{hint}, 'See lock_election.max_locks_per_role (4).', 'the error of a limit has a hint');
	one('ALTER SYSTEM RESET lock_election.max_locks_per_role; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_locks_per_role', '100000');

	# Arguments that cannot be parsed as items.
	foreach my $bad ("'{1,try_lock}'", q{'{2147483648,try_lock,a,NULL,NULL,NULL}'}, q{'{1,steal,a,NULL,NULL,NULL}'}, q{'{1,NULL,a,NULL,NULL,NULL}'}, q{'{NULL,try_lock,a,NULL,NULL,NULL}'}, q{'{1,try_permit,a,1,NULL,NULL,1,try_permit,b,1,NULL,NULL}'},
		"(SELECT array_agg(x) FROM generate_series(1, 129) AS i, LATERAL unnest(ARRAY[i::text, 'try_lock', 'n' || i, NULL, NULL, NULL]) AS x)")
	{
		$s->query('SELECT * FROM lease_sync(' . $c->{lease} . ', ' . ++$c->{call} . ", NULL, NULL, $bad)");
		like($s->error, qr/22003|22023|22P02/, "items that cannot be parsed fail the call: $bad");
	}
	$s->quit;
	end_all();
};

subtest 'calls that arrive late' => sub {
	my ($s, $late) = (session($node), session($node));
	my $c = client($s);
	my ($old, $rows);

	sync($c);
	$old = call_sql($c, [ [ 1, 'try_permit', 'p', 9, 'me#1' ] ]);
	$rows = sync($c, [ [ 1, 'try_permit', 'p', 9, 'me#1' ] ]);
	is(short($rows), '1:granted:p', 'a call is repeated under a new number');
	$rows = read_rows({ %$c }, $late->query($old));
	is(short($rows), '-:granted:p', 'the original call, which arrives late, only reports the state');
	is(held(), '1', 'a late call acquires nothing');
	$s->query($old);
	is(held(), '1', 'a repeated late call acquires nothing');

	# A call with the incarnation of an earlier manager.
	$old = call_sql({ %$c }, [ [ 2, 'try_permit', 'p', 9, 'me#2' ] ]);
	replace_manager();
	$rows = read_rows({ %$c }, $late->query($old));
	is(short($rows), '-:granted:p', 'a call with an old incarnation only reports the state');
	is(held(), '1', 'a call with an old incarnation acquires nothing');
	$rows = sync($c, [ [ 3, 'try_permit', 'p', 9, 'me#3' ] ]);
	is(short($rows), '-:granted:p', 'the first call after a restart of the manager only reports the state');
	is($c->{last}{complete}, 't', 'the first call after a restart of the manager reports everything');
	is(short(sync($c, [ [ 3, 'try_permit', 'p', 9, 'me#3' ] ])), '3:granted:p', 'the second call after a restart of the manager is executed');
	$_->quit foreach $s, $late;
	end_all();
};

subtest 'a failed batch' => sub {
	my $s = session($node);
	my $c = client($s);
	my $rows;

	sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ]);
	one(q{SELECT fault_set('batch-applied', 'error', pid => (SELECT pid FROM lock_election.manager))});
	$rows = sync($c, [ [ 2, 'try_permit', 'p', 9, 'me#2' ], [ 3, 'try_lock', 'b', undef, 'me#3' ] ]);
	is(short([ grep { defined $_->{item} } @$rows ]), '2:granted:p 3:granted:b', 'a failed batch is replayed with all its items');
	is($c->{last}{complete}, 't', 'the replayed call reports everything');
	is(held(), '3', 'each item of a replayed call is executed once');
	is(short(sync($c)), '', 'the next call reports nothing twice');
	$s->quit;
	end_all();
};

subtest 'an evicted hold' => sub {
	my ($s, $other) = (session($node), session($node));
	my $c = client($s);
	my $token = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'try_lock', 'b', undef, 'me#2' ] ])->[0]{token};
	my $rows;

	$other->async(q{SELECT acquire_lock('a')});
	waiting($other);
	is(one(q{SELECT evict_lock('a')}), '1', 'a hold of the lease is evicted');
	$rows = sync($c);
	is(short($rows), '-:evicted:a', 'a call reports the eviction');
	is("$rows->[0]{token} $rows->[0]{owner}", "$token me#1", 'the eviction is reported with token and owner');
	is($c->{last}{validity}, '00:00:30', 'the lease is renewed for all other holds');
	is(short(sync($c)), '', 'an eviction is reported only once');
	ok(!$other->ready, 'the waiter is not granted the evicted lock');
	is(short(sync($c, [ [ 3, 'release', 'a', $token ] ])), '3:released:a', 'the evicted lock is released');
	like($other->wait, qr/^\d+$/, 'the waiter is granted the lock after the release');
	$_->quit foreach $s, $other;
	end_all();
};

# The result of a proclaim says nothing about the state of the term: without a separate row, an evicted leader would
# keep leading next to its successor.
subtest 'a leader that proclaims' => sub {
	my $s = session($node);
	my $c = client($s);
	my $term = sync($c, [ [ 1, 'try_candidate', 'e', undef, 'me#1', 'here' ] ])->[0]{token};
	my $seen = { %$c, incarnation => undef, news => undef };

	is(one(q{SELECT evict_leader('e')}), '1', 'the leader is evicted');
	is(short(sync($c, [ [ 2, 'proclaim', 'e', $term, undef, 'there' ] ])), '2:proclaimed:e -:evicted:e', 'the call that proclaims also reports the eviction');
	is(short(sync($c)), '', 'the eviction is reported only once');
	sync($c, [ [ 3, 'resign', 'e', $term ] ]);

	# The result of a proclaim does not replace the report of the grant either.
	$term = sync($c, [ [ 4, 'try_candidate', 'e', undef, 'me#4', 'here' ] ])->[0]{token};
	my $place = sync($c, [ [ 5, 'enqueue_candidate', 'e', undef, 'me#5', 'next' ] ])->[0]{token};
	$seen->{call} = $c->{call};
	is(short(sync($seen, [ [ 6, 'proclaim', 'e', $term, undef, 'there' ], [ 7, 'proclaim', 'e', $place, undef, 'there' ] ])),
		'6:proclaimed:e 7:not_held:e -:granted:e -:queued:e', 'a client without state is told the terms and places for which it proclaims');
	$s->quit;
	end_all();
};

subtest 'more losses than are remembered, and more holds than fit into a mailbox' => sub {
	my $s = session($node);
	my $c = client($s);
	my @names = map { "n$_" } 1 .. 120;
	my ($rows, %held);

	$rows = sync($c, [ map { [ $_, 'try_lock', "n$_", undef, "me#$_" ] } 1 .. 120 ]);
	is(scalar(grep { $_->{event} eq 'granted' } @$rows), 120, '120 items, more than fit into a mailbox, are executed');
	one(qq{SELECT count(force_release_lock('$_'))}) foreach @names[ 0 .. 19 ];
	$rows = sync($c);
	is($c->{last}{complete}, 't', 'more losses than are remembered: the call reports everything');
	$held{ $_->{name} } = 1 foreach grep { $_->{event} eq 'granted' } @$rows;
	is(join(' ', sort keys %held), join(' ', sort @names[ 20 .. 119 ]), 'each hold is reported once, in several pages');
	is(scalar(grep { defined $_->{name} } @$rows), 100, 'no hold is reported twice');
	one(qq{SELECT count(force_release_lock('$_'))}) foreach @names[ 20, 21 ];
	$rows = sync($c, [ map { [ $_, 'release', $names[$_], 1 ] } 22 .. 30 ]);
	is(scalar(grep { ($_->{event} // '') eq 'lost' } @$rows), 2, 'losses are reported together with results of items');
	$s->quit;
	end_all();
};

# Creates a client with so many holds that a full report needs several pages.
sub rich
{
	my ($s) = @_;
	my $c = client($s);
	my @names = map { "n$_" . 'x' x 230 } 1 .. 120;

	$s->query(q{SET statement_timeout = '20 s'});
	sync($c, [ map { [ $_, 'enqueue_lock', $names[ $_ - 1 ], undef, "me#$_" ] } 1 .. 120 ]);
	return ($c, @names);
}

# The sorted names of the granted rows. A name that is in two rows is listed twice.
sub names
{
	my ($rows) = @_;
	return join ' ', sort map { $_->{name} } grep { $_->{event} eq 'granted' } @$rows;
}

subtest 'a full report in several pages, while losses are forgotten' => sub {
	my ($s, $other) = (session($node), session($node));
	my ($c, @names) = rich($s);
	my $rows;

	# Losses before the first page.
	$other->query(qq{SELECT force_release_lock('$_')}) foreach splice @names, 0, 12;
	$rows = sync($c);
	is(names($rows), join(' ', sort @names), 'every hold is reported once');
	is($c->{last}{complete}, 't', 'the report is complete');
	is(short(sync($c)), '', 'the next call reports nothing');

	# Losses between two pages: a hold of the first page has been lost, and the server has forgotten the loss.
	$c->{incarnation} = undef;
	$other->query(sprintf q{SELECT fault_set('request-before-post', 'wait', skip => 1, pid => %s)}, $s->pid);
	$s->async(call_sql($c));
	wait_for_sql($node, q{SELECT fault_waiting('request-before-post') <> 0});
	$other->query(qq{SELECT force_release_lock('$_')}) foreach splice @names, 0, 12;
	$other->query(q{SELECT fault_release('request-before-post')});
	is(names(read_rows($c, $s->wait)), join(' ', sort @names), 'no page reports a hold that was lost in between');

	# The same within a call without time: the call stops reporting, but renews the lease.
	$c->{incarnation} = undef;
	$other->query(sprintf q{SELECT fault_set('request-before-post', 'wait', skip => 1, pid => %s)}, $s->pid);
	$s->async(call_sql($c, [], q{'0 s'}));
	wait_for_sql($node, q{SELECT fault_waiting('request-before-post') <> 0});
	$other->query(qq{SELECT force_release_lock('$_')}) foreach splice @names, 0, 12;
	$other->query(q{SELECT fault_release('request-before-post')});
	is(short(read_rows($c, $s->wait)), '', 'a report that has to restart after the time of the call is postponed');
	ok(defined $c->{last}{validity} && !defined $c->{last}{complete}, 'the lease is renewed although the report is postponed');
	is(names(sync($c)), join(' ', sort @names), 'the next call reports all holds');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'calls that are rejected' => sub {
	my $s = session($node);
	my $c = client($s);

	$s->query('BEGIN');
	sync($c, [ [ 1, 'try_lock', 'a' ] ]);
	like($s->error, qr/25001.*lease_sync\(\) cannot run inside a transaction block/, 'rejected in a transaction block');
	$s->query('ROLLBACK');
	$s->query('SELECT 1\\; ' . call_sql($c) . '\\; SELECT 1');
	like($s->error, qr/25001/, 'rejected in a query string with several statements');
	$s->query("SELECT * FROM lease_sync($c->{lease}, NULL)");
	like($s->error, qr/22023.*call must not be null/, 'rejected without a call number');
	$s->query(call_sql($c, [ [ 1, 'try_lock', 'a' ] ], 'NULL'));
	like($s->error, qr/22023.*wait must not be null/, 'rejected without a wait, unless all items are releases');
	is(held(), '0', 'the rejected calls acquire nothing');
	one('CREATE ROLE stranger LOGIN');
	my $other = session($node, user => 'stranger');
	$other->query(call_sql($c));
	like($other->error, qr/42501.*lease $c->{lease} belongs to another role/, "rejected for the lease of another role");

	# An item needs the EXECUTE privilege on the function that does the same.
	one('REVOKE EXECUTE ON FUNCTION acquire_lock, enqueue_locks FROM PUBLIC');
	my $d = client($other);
	is(short(sync($d, [ [ 1, 'try_lock', 'a' ], [ 2, 'enqueue_lock', 'b' ], [ 3, 'enqueue_lock', 'c' ], [ 3, 'enqueue_lock', 'd' ], [ 4, 'try_permit', 'p', 1 ] ])),
		'1:error:42501 2:granted:b 3:error:42501 4:granted:p', 'each item needs the privilege on its function');
	one('GRANT EXECUTE ON FUNCTION acquire_lock, enqueue_locks TO PUBLIC');
	foreach my $case (
		[ 'release_lock(text, bigint, interval, boolean)', [ 1, 'release', 'x', 1 ] ],
		[ resign => [ 1, 'resign', 'x', 1 ] ], [ proclaim => [ 1, 'proclaim', 'x', 1, undef, 'text' ] ],
		[ acquire_lock => [ 1, 'try_shared', 'x' ] ], [ acquire_permit => [ 1, 'try_permit', 'x', 1 ] ],
		[ campaign => [ 1, 'try_candidate', 'x', undef, undef, 'text' ] ],
		[ acquire_locks => [ 1, 'try_lock', 'x' ], [ 1, 'try_lock', 'y' ] ], [ enqueue_lock => [ 1, 'enqueue_lock', 'x' ] ],
		[ enqueue_lock => [ 1, 'enqueue_shared', 'x' ] ], [ enqueue_permit => [ 1, 'enqueue_permit', 'x', 1 ] ],
		[ enqueue_candidate => [ 1, 'enqueue_candidate', 'x', undef, undef, 'text' ] ],
		[ enqueue_locks => [ 1, 'enqueue_shared', 'x' ], [ 1, 'enqueue_shared', 'y' ] ])
	{
		my ($function, @items) = @$case;

		one("REVOKE EXECUTE ON FUNCTION $function FROM PUBLIC");
		is(short(sync($d, \@items)), '1:error:42501', "without the privilege on $function, $items[0][1] is rejected");
		one("GRANT EXECUTE ON FUNCTION $function TO PUBLIC");
	}
	$_->quit foreach $s, $other;
	one(q{SELECT force_release_role('stranger')});
	end_all();
};

subtest 'asynchronous releases' => sub {
	my $s = session($node);
	my $c = client($s);
	# The second list of columns is that of the client libraries.
	my $computed = q{item, event, kind, name, token, queue_position, owner, reason, sqlstate, message, detail, hint,
		pg_catalog.floor(pg_catalog.date_part('epoch', validity) OPERATOR(pg_catalog.*) 1000)::bigint, incarnation, news, complete,
		channel};
	foreach my $columns ('*', $computed)
	{
		$c->{columns} = $columns;
		my $rows = sync($c, [ map { [ $_, 'try_lock', "n$_", undef, "me#$_" ] } 1 .. 5 ]);

		my $manager = manager_pid();
		stop_asleep($manager);
		my $out = sync($c, [ map { [ $_->{item}, 'release', $_->{name}, $_->{token} ] } @$rows ], 'NULL');
		is(short($out), join(' ', map { "$_:released:n$_" } 1 .. 5), 'asynchronous releases are reported without the manager');
		ok(!defined $c->{last}{validity} && !defined $c->{last}{news}, 'such a call reports nothing about the lease');
		kill 'CONT', $manager;
		wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '0');
		is(short(sync($c)), '', 'asynchronous releases are not reported as losses');
	}

	# A lock that was lost in the meantime is not reported as released.
	my $lost = sync($c, [ [ 20, 'try_lock', 'f', undef, 'me#20' ] ])->[0]{token};
	one(q{SELECT force_release_lock('f')});
	is(short(sync($c, [ [ 21, 'release', 'f', $lost ] ], 'NULL')), '21:not_held:f -:lost:forced', 'an asynchronous release of a lost lock reports the loss');

	# A resign waits for the manager: observers read rows that the manager has written.
	my $told = 0;
	for (1 .. 20)
	{
		my $term = sync($c, [ [ 1, 'try_candidate', 'v', undef, undef, 'me' ] ])->[0]{token};
		$told++ if short(sync($c, [ [ 2, 'resign', 'v', $term ] ], 'NULL')) eq '2:released:v'
			&& $s->query(q{SELECT how FROM election_history('v') ORDER BY change DESC LIMIT 1}) eq 'resigned';
	}
	is($told, 20, 'a reported resign is already visible to observers');
	$s->query(q{SET lock_election.durable_release = on});
	my $token = sync($c, [ [ 1, 'try_lock', 'a' ] ])->[0]{token};
	is(short(sync($c, [ [ 2, 'release', 'a', $token ] ], 'NULL')), '2:released:a', 'with durable_release, a release is reported as released');
	is(held(), '0', 'with durable_release, the reported release has been applied');
	$s->quit;
	end_all();
};

subtest 'holds of the lease survive the end of the connection' => sub {
	my $s = session($node);
	my $c = client($s);

	one(q{SELECT acquire_lock('b')});
	sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'enqueue_lock', 'b', undef, 'me#2' ] ]);
	one(sprintf q{SELECT fault_set('request-answered', 'fatal', pid => %s)}, $s->pid);
	sync($c, [ [ 3, 'try_lock', 'c', undef, 'me#3' ] ]);
	wait_until(sub { eval { one('SELECT fault_clear()'); 1 } });
	$c->{s} = session($node);
	is(short(sync($c)), '-:granted:c', 'a grant whose reply was lost is reported to the next connection');
	$c->{s}->quit;
	end_all();
};

# The wait events of a process that flushes the WAL, and of a process that waits for another one's flush.
my ($flushes, $next_to_flush) = (q{wait_event IN ('WALSync', 'WalSync')}, q{wait_event IN ('WALWrite', 'WALWriteLock')});

# Runs the code while no flush can end. The flush is that of a session; or, with by_wal_writer, that of the WAL writer,
# with the session next in line.
sub on_a_stalled_disk
{
	my ($by_wal_writer, $code) = @_;
	my $flusher = session($node);

	append_to_file($stall, '');
	if ($by_wal_writer)
	{
		wait_until(sub {
			one(q{SET synchronous_commit = off; SELECT pg_logical_emit_message(true, 'test', 'test')});
			return one(qq{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walwriter' AND $flushes});
		});
	}
	$flusher->async(q{SELECT acquire_lock('flusher')});
	# The WAL writer may have started a flush by itself.
	wait_for_sql($node, 'SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = ' . $flusher->pid . " AND ($flushes OR $next_to_flush)");
	$code->();
	unlink $stall;
	$flusher->wait;
	$flusher->quit;
	return;
}

sub a_disk_that_stops
{
	my ($by_wal_writer) = @_;
	my ($s, $alone) = (session($node), session($node));
	my $c = client($s);
	my ($rows, $new, $restarted);

	sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ]);
	on_a_stalled_disk($by_wal_writer, sub {
		$rows = sync($c, [ [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'try_lock', 'flusher', undef, 'me#3' ], [ 4, 'try_lock', '' ] ], q{'100 ms'});
		is(short($rows), '2:pending:b 3:not_granted:flusher 4:error:22023', 'a grant that is not durable is reported as pending');
		ok(!defined $rows->[0]{token}, 'a pending grant has no token');
		is($c->{last}{validity}, '00:00:30', 'the lease is renewed');
		is(short(sync($c, [], q{'0 s'})), '', 'a pending grant is not reported as news');
		$restarted = { %$c, incarnation => undef, news => undef };
		is(short(sync($restarted, [], q{'0 s'})), '', 'a pending grant is not reported to a client without state either');
		$c->{call} = $restarted->{call};
		is(short(sync($c, [ [ 5, 'release', 'a', 1 ] ], q{'0 s'})), '5:not_held:a', 'calls without pending grants are executed');

		# A new lease, which is not durable yet.
		$new = client($alone, lease => $alone->query(q{SELECT grant_lease('1 min', wait => '100 ms')}));
		like($new->{lease}, qr/^\d+$/, 'grant_lease() returns after its wait');
		$rows = sync($new, [ [ 1, 'try_lock', 'c', undef, 'me#1' ] ], q{'100 ms'});
		is(short($rows), '1:pending:c', 'a call on a new lease reports a pending grant');
		ok(!defined $new->{last}{validity}, 'a lease that is not durable has no validity');
	});
	is(short(sync($c)), '-:granted:b', 'the grant is reported when it is durable');
	ok(!defined $restarted->{last}{complete}, 'a client without state was not told that the report is complete');
	is(short(sync($restarted)), '-:granted:a -:granted:b', 'a client without state is told all holds after the flush');
	is($restarted->{last}{complete}, 't', 'its report is complete');
	is(short(sync($new)), '-:granted:c', 'the grant on the new lease is reported after the flush');
	is($new->{last}{validity}, '00:01:00', 'the new lease has a validity after the flush');
	$_->quit foreach $s, $alone;
	end_all();
	return;
}

subtest 'a full report in several pages, one of which is not durable' => sub {
	my ($s, $other) = (session($node), session($node));
	my ($c, @names) = rich($s);
	my $rows;

	# Use up more news numbers than exist after the restart, where the old numbers must not count.
	sync($c, [ map { [ $_, 'try_lock', "m$_", undef, "you#$_" ] } 1 .. 120 ]);
	$other->query(qq{SELECT force_release_lock('m$_')}) foreach 1 .. 120;
	sync($c);
	replace_manager();
	sync({ %$c });
	$c->{call}++;
	on_a_stalled_disk(0, sub {
		$other->async("SELECT acquire_lock('last', lease => $c->{lease})");
		wait_for_sql($node, q{SELECT count(*) FROM _lock_election.slot WHERE name = 'last' AND mode > 0}, '1');
		is(short(sync($c, [], q{'100 ms'})), '', 'no page is reported before the flush');
	});
	$other->wait;
	is(names(sync($c)), join(' ', 'last', sort @names), 'all pages are reported after the flush');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'a disk that stalls' => sub { a_disk_that_stops(0); };
subtest 'a disk that stalls in a flush of the WAL writer' => sub { a_disk_that_stops(1); };

# Returns the channels of the notifications that this session has received.
sub notified { my ($s) = @_; return join ' ', map { /asynchronous notification "(\w+)"/i ? $1 : () } split /\n/, $s->query('SELECT 1'); }

subtest 'the channel of a lease' => sub {
	my ($s, $other) = (session($node), session($node));
	my $c = client($s);
	my ($held, $rows, $got);

	$held = $other->query(q{SELECT acquire_lock('a')});
	sync($c, [ [ 1, 'enqueue_lock', 'a', undef, 'me#1' ], [ 2, 'enqueue_shared', 'b', undef, 'me#2' ] ]);
	$s->query("LISTEN $c->{last}{channel}");
	$s->query("LISTEN $_") foreach one(q{SELECT channel FROM enqueue_lock('a')});
	$other->query("SELECT release_lock('a', $held)");
	ok(wait_until(sub { ($got = $s->query('SELECT 1')) =~ /notification/ }), 'the grant of a place is notified');
	is(join(' ', $got =~ /notification "(\w+)"/g), $c->{last}{channel}, 'the notification uses only the channel of the lease');
	unlike($got, qr/payload/, 'the notification has no payload');
	$rows = sync($c);
	is(short($rows), '-:granted:a', 'a call reports the granted place');

	# Two grants: the reply to a release reports the first one, so only the second one needs a notification.
	# Notifications keep their order.
	$held = $other->query(q{SELECT acquire_lock('d')});
	$rows = sync($c, [ [ 3, 'try_lock', 'c', undef, 'me#3' ], [ 4, 'enqueue_lock', 'c', undef, 'me#4' ], [ 5, 'enqueue_lock', 'd', undef, 'me#5' ] ]);
	my $sent = one('SELECT hints_sent FROM lock_election.stat');
	is(short(sync($c, [ [ 6, 'release', 'c', $rows->[0]{token} ] ])), '6:released:c -:granted:c', 'the reply to a release reports a grant');
	$other->query("SELECT release_lock('d', $held)");
	ok(wait_until(sub { $s->query('SELECT 1') =~ /notification/ }), 'the next grant is notified');
	is(one('SELECT hints_sent FROM lock_election.stat') - $sent, 1, 'only one notification was sent');
	is(short(sync($c)), '-:granted:d', 'the notified grant is reported by the next call');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'while the tables are locked' => sub {
	my ($s, $locker) = (session($node), session($node));
	my $c = client($s);
	my $token = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ])->[0]{token};
	my $rows;

	$locker->query('BEGIN; SET LOCAL allow_system_table_mods = off; LOCK TABLE _lock_election.slot IN SHARE MODE');
	$rows = sync($c, [ [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'release', 'a', $token ] ]);
	is(short($rows), '2:error:b:55P03 3:error:a:55P03', 'each item that needs a write is an error');
	like($rows->[0]{hint}, qr/blocked_by/, 'the error has a hint');
	is($c->{last}{validity}, '00:00:30', 'the lease is renewed while the tables are locked');
	is(short(sync($c)), '', 'a call without items has no error');
	$locker->query('COMMIT');
	is(short(sync($c, [ [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'release', 'a', $token ] ])), '2:granted:b 3:released:a', 'the items succeed after the end of the table lock');
	$_->quit foreach $s, $locker;
	end_all();
};

# If a synchronous standby does not confirm, a renewal is not certain either: the standby may be promoted without it.
subtest 'a synchronous standby that does not confirm' => sub {
	my $s = session($node);
	my $c = client($s);
	my ($rows, $new, $start);

	sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ]);
	one(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()});
	ok(wait_until(sub { sync($c, [], q{'50 ms'}); !defined $c->{last}{validity} }), 'a renewal without confirmation has no validity');
	$start = time;
	$rows = sync($c, [ [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'release', 'a', 1 ] ], q{'200 ms'});
	cmp_ok(time - $start, '<', 20, 'a call returns after its wait');
	is(short($rows), '2:pending:b 3:not_held:a', 'a grant without confirmation is reported as pending');
	$new = $s->query(q{SELECT grant_lease('1 min', wait => '50 ms')});
	like($new, qr/^\d+$/, 'grant_lease() returns after its wait');
	is($s->query('SELECT 1'), '1', 'no cancel request is left behind');
	is(held(), '2', 'the unconfirmed grant is not undone');
	one(q{ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()});
	ok(wait_until(sub { $rows = sync($c, [], q{'50 ms'}); defined $c->{last}{validity} }), 'the lease has a validity when no standby is required');
	is(short($rows), '-:granted:b', 'the grant is reported when no standby is required');
	$s->quit;
	end_all();
};
done_testing();
