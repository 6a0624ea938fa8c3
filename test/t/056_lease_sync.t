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
	# while it is stalled the server does not stop
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

subtest 'what a client does all day' => sub {
	my ($s, $other) = (session($node), session($node));
	my $c = client($s);
	my ($rows, $token, $held);

	$rows = sync($c);
	is(short($rows), '', 'a new lease has no news');
	is($c->{last}{event}, 'lease', 'but is told of itself');
	is($c->{last}{validity}, '00:00:30', 'it is valid for its TTL');
	is($c->{last}{complete}, 't', 'and that was all that there is');
	like($c->{last}{channel}, qr/^le_[0-9a-f]{32}$/, 'it has a channel');

	$held = $other->query(q{SELECT acquire_lock('b')});
	$rows = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'enqueue_lock', 'b', undef, 'me#3' ], [ 4, 'try_candidate', 'e', undef, 'me#4', 'here' ] ]);
	is(short($rows), '1:granted:a 2:not_granted:b 3:queued:b 4:granted:e', 'each item has its own result');
	is($rows->[2]{queue_position}, '1', 'with its place');
	is(one(q{SELECT count(*) FROM lock_election.locks WHERE lease = } . $c->{lease}), '2', 'the lease holds two');
	$token = $rows->[0]{token};

	is(short(sync($c)), '', 'nothing has happened since');
	is($c->{last}{complete}, 'f', 'and so that is not all that there is');
	$other->query("SELECT release_lock('b', $held)");
	$rows = sync($c);
	is(short($rows), '-:granted:b', 'a place that was granted is news');
	is($rows->[0]{owner}, 'me#3', 'with its owner');
	is(short(sync($c)), '', 'told once');

	one(q{SELECT force_release_lock('b')});
	is(short(sync($c)), '-:lost:forced', 'so is a loss, with its reason');
	is(short(sync($c, [ [ 7, 'proclaim', 'e', $rows->[0]{token}, undef, 'there' ], [ 8, 'release', 'a', $token ], [ 9, 'release', 'a', $token ] ])),
		'7:not_held:e 8:released:a 9:not_held:a', 'releases come first, and what is not held is told');
	is(short(sync($c)), '', 'what the client has released is no news');

	# from the beginning
	$c->{incarnation} = undef;
	is(short(sync($c)), '-:granted:e -:lost:forced', 'without what it has seen it is told all that hangs on the lease, and the losses that are still known');
	is($c->{last}{complete}, 't', 'and that this is all');
	is($s->query("SELECT revoke_lease($c->{lease})"), 't', 'the lease is revoked');
	sync($c);
	is("$c->{last}{event} $c->{last}{reason}", 'gone revoked', 'and a call says so');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'a release of the call grants a place of the call' => sub {
	my $s = session($node);
	my $c = client($s);
	my $first = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ])->[0]{token};
	my $place = sync($c, [ [ 2, 'enqueue_lock', 'a', undef, 'me#2' ] ])->[0];

	is($place->{event}, 'queued', 'two holds of a session exclude each other');
	is(short(sync($c, [ [ 3, 'release', 'a', $first ] ])), '3:released:a -:granted:a', 'handed on in one round trip');
	is(short(sync($c, [ [ 4, 'release', 'a', $place->{token} ], [ 5, 'enqueue_lock', 'a', undef, 'me#5' ] ])), '4:released:a 5:granted:a', 'released and acquired in one');
	$s->quit;
	end_all();
};

subtest 'several names, permits, shared locks' => sub {
	my ($s, $other) = (session($node), session($node));
	my $c = client($s);
	my $held = $other->query(q{SELECT acquire_lock('y')});
	my $rows = sync($c, [ [ 1, 'enqueue_lock', 'x', undef, 'me#1' ], [ 1, 'enqueue_lock', 'y', undef, 'me#1' ], [ 2, 'try_permit', 'p', 2, 'me#2' ], [ 3, 'try_permit', 'p', 2, 'me#3' ], [ 4, 'try_permit', 'p', 2, 'me#4' ], [ 5, 'enqueue_shared', 's', undef, 'me#5' ] ]);

	is(short($rows), '1:queued:x 2:granted:p 3:granted:p 4:not_granted:p 5:granted:s', 'each of its kind');
	$other->query("SELECT release_lock('y', $held)");
	is(short(sync($c)), '-:granted:x -:granted:y', 'both names are granted together');
	is(short(sync($c, [ [ 1, 'try_lock', 'v' ], [ 1, 'try_lock', 'w' ] ])), '1:granted:v', 'two that are free');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'one item that is wrong' => sub {
	my $s = session($node);
	my $c = client($s);
	my $long = 'x' x 256;
	my $rows;

	one(q{SELECT acquire_permit('p', 3)});
	$rows = sync($c, [ [ 1, 'try_lock', 'a' ], [ 2, 'try_lock', '' ], [ 3, 'try_lock', $long ], [ 4, 'try_permit', 'q', 0 ], [ 5, 'try_lock', 'p' ],
			[ 6, 'release', 'a', 'x1' ], [ 7, 'release', 'a', 5, undef, '100 days' ], [ 8, 'try_lock', 'b', undef, $long ], [ 9, 'try_candidate', 'e' ], [ 10, 'try_lock', 'c' ], [ 11, 'try_lock', 'd' ], [ 11, 'try_lock', 'd' ] ]);
	is(short($rows), '1:granted:a 2:error:22023 3:error:22023 4:error:22023 5:error:p:22023 6:error:22P02 7:error:22023 8:error:22023 9:error:22023 10:granted:c 11:error:22023',
		'is an error of that item alone');
	like($rows->[4]{message}, qr/"p" is in use in another way/, 'with a message');
	ok(defined $rows->[4]{detail}, 'and a detail');
	is($c->{last}{validity}, '00:00:30', 'the lease is renewed');

	# what was read of it is not the next one's
	my $term = sync($c, [ [ 1, 'try_candidate', 'v', undef, 'me#1', 'here' ] ])->[0]{token};
	$rows = sync($c, [ [ 2, 'release', 'a', 'x1', undef, '1 hour' ], [ 3, 'resign', 'v', $term ] ]);
	is(short($rows), '2:error:22P02 3:released:v', 'an item behind one that is wrong');
	$rows = sync($c, [ [ 4, 'try_candidate', 'v', undef, 'me#4', 'there' ] ]);
	is(short($rows), '4:granted:v', 'is as it was written');
	sync($c, [ [ 5, 'resign', 'v', $rows->[0]{token} ] ]);

	# limits
	one('ALTER SYSTEM SET lock_election.max_locks_per_role = 4; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_locks_per_role', '4');
	wait_until(sub { $rows = sync($c, [ [ 1, 'try_lock', 'd' ], [ 2, 'try_lock', 'f' ] ]); my $ok = short($rows) =~ /error/; sync($c, [ map { [ 9, 'release', $_->{name}, $_->{token} ] } grep { defined $_->{token} } @$rows ]) unless $ok; $ok; });
	is(short($rows), '1:granted:d 2:error:f:53400', 'so is a limit');
	is($rows->[1]{hint}, 'See lock_election.max_locks_per_role (4).', 'with its hint');
	one('ALTER SYSTEM RESET lock_election.max_locks_per_role; SELECT pg_reload_conf()');
	wait_for_sql($node, 'SHOW lock_election.max_locks_per_role', '100000');

	# what is no item
	foreach my $bad ("'{1,try_lock}'", q{'{2147483648,try_lock,a,NULL,NULL,NULL}'}, q{'{1,steal,a,NULL,NULL,NULL}'}, q{'{1,NULL,a,NULL,NULL,NULL}'}, q{'{NULL,try_lock,a,NULL,NULL,NULL}'}, q{'{1,try_permit,a,1,NULL,NULL,1,try_permit,b,1,NULL,NULL}'},
		"(SELECT array_agg(x) FROM generate_series(1, 129) AS i, LATERAL unnest(ARRAY[i::text, 'try_lock', 'n' || i, NULL, NULL, NULL]) AS x)")
	{
		$s->query('SELECT * FROM lease_sync(' . $c->{lease} . ', ' . ++$c->{call} . ", NULL, NULL, $bad)");
		like($s->error, qr/22003|22023|22P02/, "what cannot be read is an error of the call: $bad");
	}
	$s->quit;
	end_all();
};

subtest 'old calls' => sub {
	my ($s, $late) = (session($node), session($node));
	my $c = client($s);
	my ($old, $rows);

	sync($c);
	$old = call_sql($c, [ [ 1, 'try_permit', 'p', 9, 'me#1' ] ]);
	$rows = sync($c, [ [ 1, 'try_permit', 'p', 9, 'me#1' ] ]);
	is(short($rows), '1:granted:p', 'a call is sent again under a new number');
	$rows = read_rows({ %$c }, $late->query($old));
	is(short($rows), '-:granted:p', 'the old one, which arrives late, tells what there is');
	is(held(), '1', 'and does nothing');
	$s->query($old);
	is(held(), '1', 'nor does it when it is repeated');

	# of another incarnation
	$old = call_sql({ %$c }, [ [ 2, 'try_permit', 'p', 9, 'me#2' ] ]);
	replace_manager();
	$rows = read_rows({ %$c }, $late->query($old));
	is(short($rows), '-:granted:p', 'neither does one that has seen another incarnation');
	is(held(), '1', 'whatever its number is');
	$rows = sync($c, [ [ 3, 'try_permit', 'p', 9, 'me#3' ] ]);
	is(short($rows), '-:granted:p', 'so the first call after that only tells all');
	is($c->{last}{complete}, 't', 'from the beginning');
	is(short(sync($c, [ [ 3, 'try_permit', 'p', 9, 'me#3' ] ])), '3:granted:p', 'and the next one is carried out');
	$_->quit foreach $s, $late;
	end_all();
};

subtest 'a batch that fails' => sub {
	my $s = session($node);
	my $c = client($s);
	my $rows;

	sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ]);
	one(q{SELECT fault_set('batch-applied', 'error', pid => (SELECT pid FROM lock_election.manager))});
	$rows = sync($c, [ [ 2, 'try_permit', 'p', 9, 'me#2' ], [ 3, 'try_lock', 'b', undef, 'me#3' ] ]);
	is(short([ grep { defined $_->{item} } @$rows ]), '2:granted:p 3:granted:b', 'is made again, with the calls that were in it');
	is($c->{last}{complete}, 't', 'and all is told');
	is(held(), '3', 'once');
	is(short(sync($c)), '', 'and not again');
	$s->quit;
	end_all();
};

subtest 'a hold that is evicted' => sub {
	my ($s, $other) = (session($node), session($node));
	my $c = client($s);
	my $token = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'try_lock', 'b', undef, 'me#2' ] ])->[0]{token};
	my $rows;

	$other->async(q{SELECT acquire_lock('a')});
	waiting($other);
	is(one(q{SELECT evict_lock('a')}), '1', 'evicted');
	$rows = sync($c);
	is(short($rows), '-:evicted:a', 'is news');
	is("$rows->[0]{token} $rows->[0]{owner}", "$token me#1", 'of that hold');
	is($c->{last}{validity}, '00:00:30', 'all others are renewed');
	is(short(sync($c)), '', 'told once');
	ok(!$other->ready, 'and the next one waits');
	is(short(sync($c, [ [ 3, 'release', 'a', $token ] ])), '3:released:a', 'until it is given back');
	like($other->wait, qr/^\d+$/, 'then it has the lock');
	$_->quit foreach $s, $other;
	end_all();
};

# Its result tells of the text alone: a leader that is told nothing else would lead beside the next one.
subtest 'a leader that proclaims' => sub {
	my $s = session($node);
	my $c = client($s);
	my $term = sync($c, [ [ 1, 'try_candidate', 'e', undef, 'me#1', 'here' ] ])->[0]{token};
	my $seen = { %$c, incarnation => undef, news => undef };

	is(one(q{SELECT evict_leader('e')}), '1', 'is evicted');
	is(short(sync($c, [ [ 2, 'proclaim', 'e', $term, undef, 'there' ] ])), '2:proclaimed:e -:evicted:e', 'and is told of it by the call that proclaims');
	is(short(sync($c)), '', 'once');
	sync($c, [ [ 3, 'resign', 'e', $term ] ]);

	# nor does it tell who has acquired it
	$term = sync($c, [ [ 4, 'try_candidate', 'e', undef, 'me#4', 'here' ] ])->[0]{token};
	my $place = sync($c, [ [ 5, 'enqueue_candidate', 'e', undef, 'me#5', 'next' ] ])->[0]{token};
	$seen->{call} = $c->{call};
	is(short(sync($seen, [ [ 6, 'proclaim', 'e', $term, undef, 'there' ], [ 7, 'proclaim', 'e', $place, undef, 'there' ] ])),
		'6:proclaimed:e 7:not_held:e -:granted:e -:queued:e', 'who has seen nothing is told of what it proclaims for');
	$s->quit;
	end_all();
};

subtest 'more losses and more holds than are kept, or fit' => sub {
	my $s = session($node);
	my $c = client($s);
	my @names = map { "n$_" } 1 .. 120;
	my ($rows, %held);

	$rows = sync($c, [ map { [ $_, 'try_lock', "n$_", undef, "me#$_" ] } 1 .. 120 ]);
	is(scalar(grep { $_->{event} eq 'granted' } @$rows), 120, 'items that do not fit into a mailbox');
	one(qq{SELECT count(force_release_lock('$_'))}) foreach @names[ 0 .. 19 ];
	$rows = sync($c);
	is($c->{last}{complete}, 't', 'more losses than are kept: all is told');
	$held{ $_->{name} } = 1 foreach grep { $_->{event} eq 'granted' } @$rows;
	is(join(' ', sort keys %held), join(' ', sort @names[ 20 .. 119 ]), 'in several pages, each hold once');
	is(scalar(grep { defined $_->{name} } @$rows), 100, 'and nothing twice');
	one(qq{SELECT count(force_release_lock('$_'))}) foreach @names[ 20, 21 ];
	$rows = sync($c, [ map { [ $_, 'release', $names[$_], 1 ] } 22 .. 30 ]);
	is(scalar(grep { ($_->{event} // '') eq 'lost' } @$rows), 2, 'losses beside items');
	$s->quit;
	end_all();
};

# A client that holds so much that it is told in several pages.
sub rich
{
	my ($s) = @_;
	my $c = client($s);
	my @names = map { "n$_" . 'x' x 230 } 1 .. 120;

	$s->query(q{SET statement_timeout = '20 s'});
	sync($c, [ map { [ $_, 'enqueue_lock', $names[ $_ - 1 ], undef, "me#$_" ] } 1 .. 120 ]);
	return ($c, @names);
}

# The names of these rows; they are in no row twice.
sub names
{
	my ($rows) = @_;
	return join ' ', sort map { $_->{name} } grep { $_->{event} eq 'granted' } @$rows;
}

subtest 'everything in several pages, while losses are forgotten' => sub {
	my ($s, $other) = (session($node), session($node));
	my ($c, @names) = rich($s);
	my $rows;

	# before the first page
	$other->query(qq{SELECT force_release_lock('$_')}) foreach splice @names, 0, 12;
	$rows = sync($c);
	is(names($rows), join(' ', sort @names), 'all that is held is told once');
	is($c->{last}{complete}, 't', 'and that it is all');
	is(short(sync($c)), '', 'once');

	# between two pages: what the first one had is not held any more, and that it was lost is forgotten
	$c->{incarnation} = undef;
	$other->query(sprintf q{SELECT fault_set('request-before-post', 'wait', skip => 1, pid => %s)}, $s->pid);
	$s->async(call_sql($c));
	wait_for_sql($node, q{SELECT fault_waiting('request-before-post') <> 0});
	$other->query(qq{SELECT force_release_lock('$_')}) foreach splice @names, 0, 12;
	$other->query(q{SELECT fault_release('request-before-post')});
	is(names(read_rows($c, $s->wait)), join(' ', sort @names), 'no page tells what is not held any more');

	# each time: it gives up, and tells nothing, rather than that it does not renew the lease
	$c->{incarnation} = undef;
	$other->query(sprintf q{SELECT fault_set('request-before-post', 'wait', skip => 1, pid => %s)}, $s->pid);
	$s->async(call_sql($c, [], q{'0 s'}));
	wait_for_sql($node, q{SELECT fault_waiting('request-before-post') <> 0});
	$other->query(qq{SELECT force_release_lock('$_')}) foreach splice @names, 0, 12;
	$other->query(q{SELECT fault_release('request-before-post')});
	is(short(read_rows($c, $s->wait)), '', 'what begins anew after the time of the call is over is told later');
	ok(defined $c->{last}{validity} && !defined $c->{last}{complete}, 'the lease is renewed');
	is(names(sync($c)), join(' ', sort @names), 'by the next call');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'where it may not be called' => sub {
	my $s = session($node);
	my $c = client($s);

	$s->query('BEGIN');
	sync($c, [ [ 1, 'try_lock', 'a' ] ]);
	like($s->error, qr/25001.*lease_sync\(\) cannot run inside a transaction block/, 'in a transaction block');
	$s->query('ROLLBACK');
	$s->query('SELECT 1\\; ' . call_sql($c) . '\\; SELECT 1');
	like($s->error, qr/25001/, 'in a statement of several');
	$s->query("SELECT * FROM lease_sync($c->{lease}, NULL)");
	like($s->error, qr/22023.*call must not be null/, 'without a number');
	$s->query(call_sql($c, [ [ 1, 'try_lock', 'a' ] ], 'NULL'));
	like($s->error, qr/22023.*wait must not be null/, 'without a wait, for more than releases');
	is(held(), '0', 'and nothing is held');
	one('CREATE ROLE stranger LOGIN');
	my $other = session($node, user => 'stranger');
	$other->query(call_sql($c));
	like($other->error, qr/42501.*lease $c->{lease} belongs to another role/, "another role's lease");

	# what a role may not do by a function of its own, it may not do here
	one('REVOKE EXECUTE ON FUNCTION acquire_lock, enqueue_locks FROM PUBLIC');
	my $d = client($other);
	is(short(sync($d, [ [ 1, 'try_lock', 'a' ], [ 2, 'enqueue_lock', 'b' ], [ 3, 'enqueue_lock', 'c' ], [ 3, 'enqueue_lock', 'd' ], [ 4, 'try_permit', 'p', 1 ] ])),
		'1:error:42501 2:granted:b 3:error:42501 4:granted:p', 'rights are those of the single functions');
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
		is(short(sync($d, \@items)), '1:error:42501', "without $function no $items[0][1]");
		one("GRANT EXECUTE ON FUNCTION $function TO PUBLIC");
	}
	$_->quit foreach $s, $other;
	one(q{SELECT force_release_role('stranger')});
	end_all();
};

subtest 'releases that nobody waits for' => sub {
	my $s = session($node);
	my $c = client($s);
	# the second way is that of the libraries
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
		is(short($out), join(' ', map { "$_:released:n$_" } 1 .. 5), 'are answered without the manager');
		ok(!defined $c->{last}{validity} && !defined $c->{last}{news}, 'and nothing is told of the lease');
		kill 'CONT', $manager;
		wait_for_sql($node, 'SELECT count(*) FROM lock_election.locks', '0');
		is(short(sync($c)), '', 'they are no news');
	}

	# what was lost meanwhile is not told released
	my $lost = sync($c, [ [ 20, 'try_lock', 'f', undef, 'me#20' ] ])->[0]{token};
	one(q{SELECT force_release_lock('f')});
	is(short(sync($c, [ [ 21, 'release', 'f', $lost ] ], 'NULL')), '21:not_held:f -:lost:forced', 'a release of what was lost');

	# for a resign the manager is asked: observers read what it has written
	my $told = 0;
	for (1 .. 20)
	{
		my $term = sync($c, [ [ 1, 'try_candidate', 'v', undef, undef, 'me' ] ])->[0]{token};
		$told++ if short(sync($c, [ [ 2, 'resign', 'v', $term ] ], 'NULL')) eq '2:released:v'
			&& $s->query(q{SELECT how FROM election_history('v') ORDER BY change DESC LIMIT 1}) eq 'resigned';
	}
	is($told, 20, 'a term that was resigned has ended for observers');
	$s->query(q{SET lock_election.durable_release = on});
	my $token = sync($c, [ [ 1, 'try_lock', 'a' ] ])->[0]{token};
	is(short(sync($c, [ [ 2, 'release', 'a', $token ] ], 'NULL')), '2:released:a', 'where they have to last');
	is(held(), '0', 'they are made when they are told');
	$s->quit;
	end_all();
};

subtest 'a connection that ends leaves what hangs on the lease' => sub {
	my $s = session($node);
	my $c = client($s);

	one(q{SELECT acquire_lock('b')});
	sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ], [ 2, 'enqueue_lock', 'b', undef, 'me#2' ] ]);
	one(sprintf q{SELECT fault_set('request-answered', 'fatal', pid => %s)}, $s->pid);
	sync($c, [ [ 3, 'try_lock', 'c', undef, 'me#3' ] ]);
	wait_until(sub { eval { one('SELECT fault_clear()'); 1 } });
	$c->{s} = session($node);
	is(short(sync($c)), '-:granted:c', 'what a lost answer would have told is news for the next connection');
	$c->{s}->quit;
	end_all();
};

# What a process waits for that flushes, and one that comes while another does.
my ($flushes, $next_to_flush) = (q{wait_event IN ('WALSync', 'WalSync')}, q{wait_event IN ('WALWrite', 'WALWriteLock')});

# While this runs no flush ends.  A session that has asked for one is in it; with by_wal_writer the WAL writer is, and the session comes next.
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
	# the WAL writer may have come first by itself
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
		is(short($rows), '2:pending:b 3:not_granted:flusher 4:error:22023', 'what is not durable is not told');
		ok(!defined $rows->[0]{token}, 'nor is its token');
		is($c->{last}{validity}, '00:00:30', 'the lease is renewed');
		is(short(sync($c, [], q{'0 s'})), '', 'nor is it news');
		$restarted = { %$c, incarnation => undef, news => undef };
		is(short(sync($restarted, [], q{'0 s'})), '', 'nor for who has seen nothing');
		$c->{call} = $restarted->{call};
		is(short(sync($c, [ [ 5, 'release', 'a', 1 ] ], q{'0 s'})), '5:not_held:a', 'other calls go on');

		# a new lease
		$new = client($alone, lease => $alone->query(q{SELECT grant_lease('1 min', wait => '100 ms')}));
		like($new->{lease}, qr/^\d+$/, 'a lease is granted');
		$rows = sync($new, [ [ 1, 'try_lock', 'c', undef, 'me#1' ] ], q{'100 ms'});
		is(short($rows), '1:pending:c', 'and used');
		ok(!defined $new->{last}{validity}, 'but nothing is certain of it');
	});
	is(short(sync($c)), '-:granted:b', 'once it is durable, it is news');
	ok(!defined $restarted->{last}{complete}, 'who has seen nothing is told that news are held back, not that nothing is there');
	is(short(sync($restarted)), '-:granted:a -:granted:b', 'but all of it now');
	is($restarted->{last}{complete}, 't', 'and that it is all');
	is(short(sync($new)), '-:granted:c', 'also of the new lease');
	is($new->{last}{validity}, '00:01:00', 'which is valid now');
	$_->quit foreach $s, $alone;
	end_all();
	return;
}

subtest 'everything in several pages, of which one is not durable' => sub {
	my ($s, $other) = (session($node), session($node));
	my ($c, @names) = rich($s);
	my $rows;

	# whose numbers of news are higher than those after the restart, where they count for nothing
	sync($c, [ map { [ $_, 'try_lock', "m$_", undef, "you#$_" ] } 1 .. 120 ]);
	$other->query(qq{SELECT force_release_lock('m$_')}) foreach 1 .. 120;
	sync($c);
	replace_manager();
	sync({ %$c });
	$c->{call}++;
	on_a_stalled_disk(0, sub {
		$other->async("SELECT acquire_lock('last', lease => $c->{lease})");
		wait_for_sql($node, q{SELECT count(*) FROM _lock_election.slot WHERE name = 'last' AND mode > 0}, '1');
		is(short(sync($c, [], q{'100 ms'})), '', 'none is told');
	});
	$other->wait;
	is(names(sync($c)), join(' ', 'last', sort @names), 'all of them are told later');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'a disk that stops' => sub { a_disk_that_stops(0); };
subtest 'a disk that stops in a flush of the WAL writer' => sub { a_disk_that_stops(1); };

# Notifications that this session has got, by their channels.
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
	ok(wait_until(sub { ($got = $s->query('SELECT 1')) =~ /notification/ }), 'a place that is granted is announced');
	is(join(' ', $got =~ /notification "(\w+)"/g), $c->{last}{channel}, 'on the channel of the lease alone');
	unlike($got, qr/payload/, 'without a payload');
	$rows = sync($c);
	is(short($rows), '-:granted:a', 'and a call tells what it is');

	# of two grants the first is told by the reply of the call that has released; notifications keep their order
	$held = $other->query(q{SELECT acquire_lock('d')});
	$rows = sync($c, [ [ 3, 'try_lock', 'c', undef, 'me#3' ], [ 4, 'enqueue_lock', 'c', undef, 'me#4' ], [ 5, 'enqueue_lock', 'd', undef, 'me#5' ] ]);
	my $sent = one('SELECT hints_sent FROM lock_election.stat');
	is(short(sync($c, [ [ 6, 'release', 'c', $rows->[0]{token} ] ])), '6:released:c -:granted:c', 'a reply that tells of a grant');
	$other->query("SELECT release_lock('d', $held)");
	ok(wait_until(sub { $s->query('SELECT 1') =~ /notification/ }), 'is no reason to announce it, as the next grant is');
	is(one('SELECT hints_sent FROM lock_election.stat') - $sent, 1, 'there was one notification');
	is(short(sync($c)), '-:granted:d', 'of what was not told');
	$_->quit foreach $s, $other;
	end_all();
};

subtest 'while nothing can be written' => sub {
	my ($s, $locker) = (session($node), session($node));
	my $c = client($s);
	my $token = sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ])->[0]{token};
	my $rows;

	$locker->query('BEGIN; SET LOCAL allow_system_table_mods = off; LOCK TABLE _lock_election.slot IN SHARE MODE');
	$rows = sync($c, [ [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'release', 'a', $token ] ]);
	is(short($rows), '2:error:b:55P03 3:error:a:55P03', 'each item is an error');
	like($rows->[0]{hint}, qr/blocked_by/, 'with a hint');
	is($c->{last}{validity}, '00:00:30', 'and the lease is renewed');
	is(short(sync($c)), '', 'without items there is no error');
	$locker->query('COMMIT');
	is(short(sync($c, [ [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'release', 'a', $token ] ])), '2:granted:b 3:released:a', 'afterwards all is done');
	$_->quit foreach $s, $locker;
	end_all();
};

# With a standby that confirms nothing a renewal is worth nothing either: the standby may be promoted without it.
subtest 'a synchronous standby that does not confirm' => sub {
	my $s = session($node);
	my $c = client($s);
	my ($rows, $new, $start);

	sync($c, [ [ 1, 'try_lock', 'a', undef, 'me#1' ] ]);
	one(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()});
	ok(wait_until(sub { sync($c, [], q{'50 ms'}); !defined $c->{last}{validity} }), 'no renewal is certain');
	$start = time;
	$rows = sync($c, [ [ 2, 'try_lock', 'b', undef, 'me#2' ], [ 3, 'release', 'a', 1 ] ], q{'200 ms'});
	cmp_ok(time - $start, '<', 20, 'a call does not wait longer than it wants');
	is(short($rows), '2:pending:b 3:not_held:a', 'and says what is pending');
	$new = $s->query(q{SELECT grant_lease('1 min', wait => '50 ms')});
	like($new, qr/^\d+$/, 'a lease is granted all the same');
	is($s->query('SELECT 1'), '1', 'no cancel is left behind');
	is(held(), '2', 'and nothing is undone');
	one(q{ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()});
	ok(wait_until(sub { $rows = sync($c, [], q{'50 ms'}); defined $c->{last}{validity} }), 'without standbys it is');
	is(short($rows), '-:granted:b', 'and the grant is told');
	$s->quit;
	end_all();
};
done_testing();
