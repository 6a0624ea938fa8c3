# A client that calls lease_sync(): it numbers its calls, remembers what it has seen, and abbreviates the rows.
package LeSync;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(client call_sql read_rows sync short);

# Returns a client of a lease: what it has seen, and the number of its next call.
sub client
{
	my ($s, %opts) = @_;
	my $ttl = $opts{ttl} // '30 s';

	return { s => $s, lease => $opts{lease} // $s->query("SELECT grant_lease('$ttl')"), call => 0 };
}

sub array { return "'{" . join(',', map { defined $_ ? qq{"$_"} : 'NULL' } map { @$_ } @_) . "}'"; }

# Returns the SQL of the next call with these items: [number, action, name, number, owner, value].
sub call_sql
{
	my ($c, $items, $wait) = @_;
	my ($incarnation, $news) = map { $_ // 'NULL' } @$c{ 'incarnation', 'news' };

	$c->{call}++;
	return 'SELECT ' . ($c->{columns} // '*') . " FROM lease_sync($c->{lease}, $c->{call}, $incarnation, $news, " . array(map { [ @$_, (undef) x (6 - @$_) ] } @{ $items // [] }) . ', ' . ($wait // q{'5 s'}) . ')';
}

# Reads the returned rows. The first row describes the lease.
sub read_rows
{
	my ($c, $out) = @_;
	my @columns = qw(item event kind name token queue_position owner reason sqlstate message detail hint validity incarnation news complete channel);
	my @rows;

	foreach my $line (split /\n/, $out)
	{
		my %row;
		@row{@columns} = map { $_ eq '' ? undef : $_ } split /\|/, $line, -1;
		push @rows, \%row;
	}
	my $first = shift @rows;
	return undef unless defined $first;
	$c->{last} = $first;
	@$c{ 'incarnation', 'news' } = @$first{ 'incarnation', 'news' } if defined $first->{incarnation};
	return \@rows;
}

sub sync
{
	my ($c, $items, $wait) = @_;
	return read_rows($c, $c->{s}->query(call_sql($c, $items, $wait)));
}

# Abbreviates rows: item:event[:name][:sqlstate]; news has no item.
sub short
{
	return join ' ', map { join ':', ($_->{item} // '-'), $_->{event}, grep { defined } @$_{ 'name', 'sqlstate', 'reason' } } @{ $_[0] };
}

1;
