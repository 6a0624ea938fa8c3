# The library in C, with a server that is well.
use strict;
use warnings;
use LeClient;
use LeTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');

client_test('holds', $node->connstr('postgres'));
client_test('memory', $node->connstr('postgres'), kinds => ['plain']);
nothing_left($node);
$node->stop;

# What the header declares is what the library exports.
my %declared = map { $_ => 1 } slurp_file('src/client/lock_election.h') =~ /^LE_API [^;(]*?\b(le_\w+)\(/mg;
my %exported = map { /^\S+ T (\w+)/ ? ($1 => 1) : () } split /\n/, `nm -D --defined-only build/client/liblockelection.so.0`;
s/@.*// foreach keys %exported;
is_deeply(\%exported, \%declared, 'the library exports its header, and nothing else');
like(`objdump -p build/client/liblockelection.so`, qr/SONAME\s+liblockelection\.so\.0$/m, 'its name');
done_testing();
