# A short form of "make test-ha": three nodes under Patroni, one of them synchronous; a switchover, and a primary that
# dies.
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

my $ha = LeHa->new(dcs => { ttl => 8, loop_wait => 1, retry_timeout => 3 });
$ha->set_mode('sync');
foreach my $fault ('switchover', 'kill -9 node')
{
	my $r = trial($ha, $fault);

	diag result_line($r);
	is($r->{failed}, 0, "$fault: all clients have exited without errors");
	cmp_ok($r->{operations}, '>', 200, "$fault: number of operations");
	cmp_ok($r->{updates}, '>', 0, "$fault: number of fenced updates");
	is($r->{violations}, 0, "$fault: no violation") or diag $r->{text};
	is("@{ $r->{lost} }", '', "$fault: no lock or place is lost, and the order is kept");
	is($r->{late}, 0, "$fault: the old primary confirms nothing");
}
$ha->stop;
done_testing();
