# Three nodes under Patroni, in each mode of replication, and what can happen to them: see test/lib/LeHa.pm for the
# faults, test/lib/LeHaTrial.pm for the clients, and docs/operation/high-availability.md for what it means. Half an hour.
#   HA_MODES     default: async,sync,strict,remote
#   HA_FAULTS    default: all, with commas between them
#   HA_TTL       of Patroni's leader, default 20
#   HA_ETCD      etcd or etcd3: the protocol; default: etcd3, but etcd before Patroni 3.0.3
#   HA_RESULTS   a file that a line for each trial is added to, and where the folder with logs and histories is named
# Promises: M, T, D
# Needs: torture, python3-etcd, patroni, etcd-server, haproxy, pgbouncer
use strict;
use warnings;
use LeHa;
use LeHaTrial;
use LeTest;
use Test::More;

my $missing = LeHa::missing();
plan skip_all => $missing if defined $missing;

# What an asynchronous standby has not received is lost, and an old primary that lives on confirms what it likes: there
# the checker only tells what came of it. Where the old primary is gone before, tokens and mutual exclusion hold.
#
# Patroni, when it starts on a node whose PostgreSQL is an old primary that lives on, takes synchronous_standby_names out of
# its configuration a moment before it demotes it: only lock_election.min_durability = remote knows what to think of that.
my %clean_if_async = map { $_ => 1 } 'switchover', 'kill -9 node', 'kill -9 server', 'all standbys down';

sub report
{
	my ($line) = @_;

	diag $line;
	return unless $ENV{HA_RESULTS};
	open my $f, '>>', $ENV{HA_RESULTS} or die "$ENV{HA_RESULTS}: $!";
	print $f "$line\n";
	close $f;
	return;
}

my $ttl = $ENV{HA_TTL} // 20;
my $ha = LeHa->new(
	etcd => $ENV{HA_ETCD} // (LeHa::may_use_etcd3() ? 'etcd3' : 'etcd'),
	dcs => { ttl => $ttl, loop_wait => int($ttl / 4), retry_timeout => int($ttl / 4) });
diag 'Patroni ' . LeHa::patroni_version() . ", $ha->{etcd}, ttl $ttl";
report(result_header());
foreach my $mode (split /,/, $ENV{HA_MODES} // 'async,sync,strict,remote')
{
	$ha->set_mode($mode);
	foreach my $fault ($ENV{HA_FAULTS} ? split(/,/, $ENV{HA_FAULTS}) : @LeHa::FAULTS)
	{
		my $r = trial($ha, $fault);
		my $name = "$mode, $fault";

		report(result_line($r));
		is($r->{failed}, 0, "$name: all clients have ended by themselves");
		cmp_ok($r->{operations}, '>', 200, "$name: the clients had something to do");
		next if $mode eq 'async' && !$clean_if_async{$fault};
		next if $mode eq 'sync' && $fault eq 'kill -9 Patroni';
		is($r->{violations}, 0, "$name: no violation") or diag $r->{text};
		is("@{ $r->{lost} }", '', "$name: what was held is held");
		is($r->{late}, 0, "$name: the old primary confirms nothing") unless $mode eq 'async';
	}
}
system 'cp', '-r', $ha->{dir}, $ENV{HA_KEEP} if $ENV{HA_KEEP};
$ha->stop;
done_testing();
