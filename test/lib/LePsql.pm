# Does for plain statements what `psql -XAtq -f -` does, without its process: psql takes 40 ms of processor time to
# start, and the tests run some thousands of queries. LeTest.pm puts this before PostgreSQL::Test::Cluster->psql.
# Anything else (backslashes, COPY, LISTEN, other arguments, a server that rejects the connection) is left to psql.

package LePsql;

use strict;
use warnings;

use LeWire ();

my %known = map { $_ => 1 } qw(stdout stderr on_error_stop on_error_die);

# Splits a text into statements, each with the number of its last line. Returns nothing if psql must read the text.
sub statements
{
	my ($sql) = @_;
	my @found;

	return if $sql =~ /\\|\bCOPY\b|\bLISTEN\b|\bATOMIC\b/i;
	no warnings 'regexp'; # because a text may have more parts than a pattern can count
	while ($sql =~ m{\G((?:[^;'"\$/-]+|'[^']*'|"[^"]*"|\$([a-z_]\w*|)\$.*?\$\2\$|--[^\n]*|/\*.*?\*/|[\$/-])*)(?:;|\z)}gcsi)
	{
		my $statement = $1;

		push @found, [ $statement, 1 + (substr($sql, 0, pos $sql) =~ tr/\n//) ] if $statement =~ /\S/;
		last if pos $sql == length $sql;
	}
	return (pos($sql) // 0) == length $sql ? @found : ();
}

# Formats a message like psql.
sub text_of
{
	my ($line, $message) = @_;
	my $text = "psql:<stdin>:$line: $message->{S}:  $message->{M}\n";

	$text .= "DETAIL:  $message->{D}\n" if defined $message->{D};
	$text .= "HINT:  $message->{H}\n" if defined $message->{H};
	$text .= "CONTEXT:  $message->{W}\n" if defined $message->{W} && $message->{V} =~ /ERROR|FATAL|PANIC/;
	return $text;
}

# Returns (exit code, output, errors), or nothing if psql must run the text.
sub run
{
	my ($node, $dbname, $sql, %params) = @_;
	my @statements = $dbname =~ /^\w+$/ && !grep({ !$known{$_} } keys %params) ? statements($sql) : ();
	my ($rc, $out, $err) = (0, '', '');
	local $SIG{PIPE} = 'IGNORE';
	my %settings = (application_name => $ENV{PGAPPNAME} // 'psql');

	$settings{options} = $ENV{PGOPTIONS} if defined $ENV{PGOPTIONS};
	return if !@statements || defined $ENV{PGUSER};
	my $wire = eval { LeWire->new($node, dbname => $dbname, patience => 'endless', settings => \%settings) } or return;
	foreach my $s (@statements)
	{
		my ($statement, $line) = @$s;
		my @rows;
		my $lives = eval { $wire->query($statement); @rows = $wire->rows('Z'); 1 };

		$out .= join('', map { "$_\n" } @rows);
		$err .= join('', map { text_of($line, $_) } $wire->messages);
		$rc = 3 if grep { $_->{V} eq 'ERROR' } $wire->messages;
		if (!$lives)
		{
			$err .= "server closed the connection unexpectedly\n"
			  . "psql:<stdin>:$line: error: connection to server was lost\n";
			return (2, $out, $err);
		}
		last if $rc && ($params{on_error_stop} // 1);
	}
	$wire->quit;
	return ($params{on_error_stop} // 1 ? $rc : 0, $out, $err);
}

1;
