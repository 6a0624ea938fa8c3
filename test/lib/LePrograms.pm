# Random statements for 064_portable_differs.t, as texts in which T0, T1, ... stand for tokens.  The choice depends only
# on srand() and on earlier calls.
#   my $p = LePrograms->new(number, limited => 0 or 1, tokens => sub { how many T there are })
#     $p->statement            a statement that may stand anywhere
#     $p->in_transaction(released)     one that both editions execute alike in a transaction, before or after a release
#     $p->lease(i)             remembers a lease by its T

package LePrograms;

use strict;
use warnings;

sub new
{
	my ($class, $number, %opts) = @_;

	return bless { leases => [], calls => 0, election => "e$number", key => "k$number", %opts }, $class;
}

sub pick { return $_[ int rand @_ ]; }

sub chance { return rand() < $_[0]; }

sub shuffled { my @all = @_; return map { splice @all, int rand @all, 1 } 1 .. @all; }

sub lease_is { my ($self, $t) = @_; push @{ $self->{leases} }, $t; return; }

# --- arguments, sometimes invalid ---

my @names = ('a', 'b', 'c');
my $too_long = q{repeat('x', 256)};

sub name { return chance(0.02) ? pick('NULL', q{''}, $too_long, q{repeat('ä', 128)}, q{repeat('x', 255)}) : "'" . pick(@names) . "'"; }

sub names
{
	return pick(q{'{}'}, 'NULL', q{'{a,NULL}'}, q{'{a,b,a}'}, q{'{{a},{b}}'}, q{'{a,""}'}, "ARRAY[$too_long]", q{(SELECT array_agg('n' || i) FROM generate_series(1, 1001) i)})
	  if chance(0.03);
	return "'{" . join(',', (shuffled(@names))[ 0 .. int rand 3 ]) . "}'";
}

# Returns one of the newest tokens.
sub token
{
	my ($self) = @_;
	my $known = $self->{tokens}->();

	return pick('NULL', '0', '-1', '77', '9007199254740991', '9223372036854775807') if !$known || chance(0.03);
	my $newest = $known > 12 ? 12 : $known;
	return 'T' . ($known - 1 - int rand $newest);
}

sub lease
{
	my ($self) = @_;

	return pick('NULL', '0', '-1', '99', $self->token) if !@{ $self->{leases} } || chance(0.04);
	return pick(@{ $self->{leases} });
}

sub ttl { return chance(0.03) ? pick('0', '-1 s', '99 ms', '25 days', '3 days', '1 month', '1 year') : pick('1 h', '1 h', '2 h'); }

sub wait { return chance(0.03) ? pick('-1 s', '-1 day 23 h', '-0.000001 s') : '0'; }

sub owner { return chance(0.02) ? pick(q{, owner => ''}, ", owner => $too_long") : pick('', '', q{, owner => 'o1'}, q{, owner => 'o2'}); }

sub on { my ($self) = @_; return pick('', '', '', ', lease => ' . $self->lease); }

sub mode { return chance(0.02) ? pick(q{, mode => 'both'}, ', mode => NULL', q{, mode => 'permit'}, q{, mode => repeat('m', 100)}) : pick('', '', q{, mode => 'shared'}); }

sub permits { return chance(0.03) ? pick(0, -1, 'NULL', 2147483647) : pick(2, 2, 2, 3); }

sub candidate { return chance(0.03) ? pick('NULL', q{''}, q{repeat('c', 4097)}, q{repeat('c', 4096)}) : pick(q{'x'}, q{'y'}); }

sub lock_or_permit { return pick(name(), q{'p'}); }

# --- statements ---

sub acquires
{
	my ($self) = @_;
	my $e = "'$self->{election}'";

	return pick(
		sub { 'SELECT try_acquire_lock(' . name() . ", '" . ttl() . q{'} . mode() . owner() . $self->on . ')' },
		sub { 'SELECT try_acquire_lock(' . name() . ", '" . ttl() . q{'} . mode() . owner() . $self->on . ')' },
		sub { 'SELECT acquire_lock(' . name() . ", '" . ttl() . "', wait => '" . &wait() . q{'} . mode() . owner() . $self->on . ')' },
		sub { 'SELECT acquire_locks(' . names() . ", '" . ttl() . "', wait => '" . &wait() . q{'} . mode() . owner() . $self->on . ')' },
		sub { q{SELECT acquire_permit('p', } . permits() . ", '" . ttl() . "', wait => '" . &wait() . q{'} . owner() . $self->on . ')' },
		sub { 'SELECT * FROM enqueue_lock(' . name() . ", '" . ttl() . q{'} . mode() . owner() . $self->on . ')' },
		sub { 'SELECT * FROM enqueue_locks(' . names() . ", '" . ttl() . q{'} . mode() . owner() . $self->on . ')' },
		sub { q{SELECT * FROM enqueue_permit('p', } . permits() . ", '" . ttl() . q{'} . owner() . $self->on . ')' },
		sub { 'SELECT * FROM try_acquire_each(' . names() . ", '" . ttl() . q{'} . mode() . owner() . $self->on . ')' },
		sub { 'SELECT * FROM enqueue_each(' . names() . ", '" . ttl() . q{'} . mode() . owner() . $self->on . ')' },
		sub { "SELECT campaign($e, " . candidate() . ", '" . ttl() . "', wait => '" . &wait() . q{'} . owner() . $self->on . ')' },
		sub { "SELECT * FROM enqueue_candidate($e, " . candidate() . ", '" . ttl() . q{'} . owner() . $self->on . ')' })->();
}

sub releases
{
	my ($self) = @_;
	my $all = pick('', '', ', all_holds => true', ', all_holds => false', ', all_holds => NULL');

	return pick(
		sub { 'SELECT release_lock(' . lock_or_permit() . ', ' . $self->token . "$all)" },
		sub { 'SELECT release_lock(' . lock_or_permit() . ', ' . $self->token . "$all)" },
		sub { 'SELECT release_lock(' . lock_or_permit() . ', ' . $self->token . ')' },
		sub { 'SELECT release_locks(' . names() . ', ' . $self->token . ')' },
		sub { 'SELECT * FROM release_each(' . pick(q{'{a,b}'}, q{'{b,a}'}, q{'{a,a}'}) . ', ARRAY[' . $self->token . ', ' . $self->token . ']::bigint[])' },
		sub { 'SELECT release_lock(' . name() . ')' },
		sub { "SELECT resign('$self->{election}', " . $self->token . ')' })->();
}

sub looks
{
	my ($self) = @_;
	my $e = "'$self->{election}'";

	return pick(
		sub { 'SELECT is_held(' . lock_or_permit() . ', ' . $self->token . ')' },
		sub { "SELECT is_leader($e, " . $self->token . ')' },
		sub { "SELECT candidate, term, valid_for > '50 min' FROM current_leader($e)" },
		sub { "SELECT observe_election($e)" },
		sub { 'SELECT kind, name, token, granted, queue_position, owner FROM lease_holds(' . $self->lease . ') ORDER BY kind, token, name' },
		sub { q{SELECT lease_time_to_live(} . $self->lease . ") > '50 min'" },
		sub { "SELECT * FROM read_versioned(" . $self->key . ')' })->();
}

sub key { my ($self) = @_; return chance(0.04) ? pick('NULL', q{''}, $too_long) : "'$self->{key}" . pick('', 'b') . q{'}; }

sub versions
{
	my ($self) = @_;

	return 'SELECT compare_and_set(' . $self->key . ', ' . pick(0, 0, 1, 1, 2, 2, 3, 'NULL', -1, 9223372036854775807) . ', '
	  . pick(q{'v'}, q{'w'}, 'NULL', q{repeat('v', 4096)}, chance(0.1) ? q{repeat('v', 4097)} : q{''}) . ')';
}

sub advisory
{
	my ($self) = @_;
	my $name = pick(q{'x'}, q{'x'}, q{'y'}, chance(0.1) ? ('NULL', q{''}, $too_long) : ());
	my $shared = pick('', '', ', shared => true', chance(0.1) ? ', shared => NULL' : '');

	return pick(
		sub { "SELECT advisory_acquire($name, '" . &wait() . "'$shared" . pick('', q{, scope => 'transaction'}, chance(0.1) ? (q{, scope => 'all'}, ', scope => NULL') : '') . ')' },
		sub { "SELECT advisory_acquire($name, '20 ms'$shared)" },
		sub { "SELECT advisory_release($name$shared)" })->();
}

# Items of lease_sync(). A group consists of consecutive items with the same number.
sub sync
{
	my ($self) = @_;
	my $call = ++$self->{calls};
	my $e = $self->{election};
	my @two = (shuffled(@names))[ 0, 1 ];
	my @items = (
		sub { [ pick('try_lock', 'enqueue_lock', 'try_shared', 'enqueue_shared'), pick(@names), 'NULL', "s$call", 'NULL' ] },
		sub { my $action = pick('try_lock', 'enqueue_lock', 'try_shared', 'enqueue_shared'); map { [ $action, $_, 'NULL', "g$call", 'NULL' ] } @two },
		sub { [ pick('try_permit', 'enqueue_permit'), 'p', pick(2, 2, 3, 'NULL', 0, 'x'), "p$call", 'NULL' ] },
		sub { [ pick('try_candidate', 'enqueue_candidate'), $e, 'NULL', "t$call", pick('w', 'w', 'v', 'NULL') ] },
		sub { [ 'release', pick(@names, 'p'), $self->token, 'NULL', pick('NULL', 'NULL', 'NULL', '1 h', '-1 s', 'x') ] },
		sub { [ 'release', pick(@names, 'p'), $self->token, 'NULL', 'NULL' ] },
		sub { [ 'resign', $e, $self->token, 'NULL', 'NULL' ] },
		sub { [ 'proclaim', $e, $self->token, 'NULL', pick('q', 'q', 'NULL', '""') ] },
		sub { [ 'try_lock', '""', 'NULL', 'NULL', 'NULL' ] });
	my ($n, @texts) = (0);

	foreach (1 .. 1 + int rand 3)
	{
		$n++;
		push @texts, map { join ',', $n, @$_ } pick(@items)->();
	}
	my $items = pick('NULL', "'{}'", q{'{1,no_such,a,NULL,NULL,NULL}'}, q{'{1,try_lock,a}'}, map { "'{" . join(',', @texts) . "}'" } 1 .. 20);
	my $wait = chance(0.5) && !grep { !/release|resign/ } @texts ? ', wait => NULL' : '';
	my $number = chance(0.05) ? pick('NULL', 0, 1) : $call;

	return q{SELECT item, event, CASE WHEN event <> 'error' THEN concat_ws(' ', kind, name, owner) END, CASE WHEN event IN ('granted', 'queued') THEN token END, queue_position, sqlstate FROM lease_sync(} . $self->lease . ", $number, items => $items$wait) "
	  . "WHERE event NOT IN ('lost') ORDER BY item, event, kind, token, name";
}

sub others
{
	my ($self) = @_;
	my $e = "'$self->{election}'";

	return pick(
		sub { 'SELECT renew_lock(' . lock_or_permit() . ', ' . $self->token . ') > \'50 min\'' },
		sub { 'SELECT renew_lock(' . name() . ', ' . $self->token . ", '" . ttl() . q{') > '50 min'} },
		sub { "SELECT renew_leadership($e, " . $self->token . ", '" . ttl() . q{') > '50 min'} },
		sub { 'SELECT await_lock(' . lock_or_permit() . ', ' . $self->token . ')' },
		sub { 'SELECT await_locks(' . names() . ', ' . $self->token . ')' },
		sub { "SELECT await_leadership($e, " . $self->token . ')' },
		sub { "SELECT proclaim($e, " . $self->token . ', ' . pick(q{'z'}, q{'z'}, candidate()) . ')' },
		sub { 'SELECT keep_alive(' . $self->lease . q{) > '50 min'} },
		sub { 'SELECT force_release_lock(' . lock_or_permit() . ')' },
		sub { "SELECT force_resign($e)" },
		sub { 'SELECT evict_lock(' . lock_or_permit() . ')' },
		sub { "SELECT evict_leader($e)" },
		sub { q{SELECT set_permits('p', } . permits() . ')' },
		sub { 'SELECT release_lock(' . lock_or_permit() . ', ' . $self->token . q{, '} . pick('1 h', '1 h', '0', '-1 s', '2 h', '2 days', '30 days') . q{')} },
		sub { $self->sync },
		sub { $self->sync },
		sub { 'SELECT revoke_lease(' . $self->lease . ')' },
		sub { $self->versions },
		sub { $self->advisory },
		sub { q{SELECT force_release_role('} . pick('r1', 'r2', 'operator') . q{')} })->();
}

sub statement
{
	my ($self) = @_;
	my $group = rand;

	return $group < 0.4 ? $self->acquires : $group < 0.6 ? $self->releases : $group < 0.7 ? $self->looks : $self->others;
}

sub in_transaction
{
	my ($self, $released) = @_;
	my $sql;

	do
	{
		my $group = rand;

		$sql = $group < 0.2 ? $self->versions : $group < 0.3 ? $self->advisory : $released ? $self->releases : $group < 0.85 ? $self->acquires : $self->looks;
	} while $sql =~ /campaign|candidate\(/; # only one edition rolls back a repeated campaign
	return $sql;
}

1;
