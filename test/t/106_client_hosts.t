# A session of the library with several hosts: the primary stops or hangs, and its standby is promoted.
# Promises: -
# Needs: client
use strict;
use warnings;
use LeClient;
use LeTest;
use Test::More;

my %ways = (
	stopped => sub { $_[0]->stop('immediate'); },
	hangs => sub { LeClient::freeze($_[0]); },
);

foreach my $way (sort keys %ways)
{
	# A hang is noticed only at the next renewal, which takes long: test it with one kind of build.
	foreach my $kind ($way eq 'hangs' ? any_kind() : client_kinds())
	{
		my $primary = new_node("primary_${way}_$kind", init => [ allows_streaming => 1 ]);
		$primary->backup('b');
		my $standby = PostgreSQL::Test::Cluster->new("standby_${way}_$kind");
		$standby->init_from_backup($primary, 'b', has_streaming => 1);
		$standby->start;
		my $hosts = join ' ', map { my $key = $_; "$key=" . join ',', map { $_->$key } $primary, $standby } 'host', 'port';

		note($way);
		client_test('hosts', "$hosts dbname=postgres", kinds => [$kind], do => {
			fail => sub {
				$primary->wait_for_catchup($standby);
				$ways{$way}->($primary);
				$standby->promote;
				return;
			} });
		LeClient::thaw($primary) if $way eq 'hangs';
		nothing_left($standby);
		$primary->stop('immediate') if $way eq 'hangs';
		$standby->stop('immediate');
	}
}
done_testing();
