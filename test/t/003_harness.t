# What the other tests rest on.
# Promises: -
use strict;
use warnings;
use LeTest;
use LeWire;
use Test::More;

my $node = new_node('main', start => 0);

# more than a pipe holds: psql has always ended before all of it is written
my $sql = 'SELECT 1' . ' ' x 1_000_000;
my ($out, $err) = ('before', '');

is($node->psql('postgres', $sql), 2, 'a server that is down is an answer');
is($node->psql('postgres', $sql, stdout => \$out, stderr => \$err), 2, 'also with its output asked for');
is($out, '', 'which is empty');
isnt($err, '', 'and an error');
my @result = $node->psql('postgres', $sql);
is(@result, 3, 'and as a list');
is_deeply([ @result[ 0, 1 ] ], [ 2, '' ], 'which says the same');
ok(!eval { $node->safe_psql('postgres', $sql); 1 }, 'who does not expect it is told');

# A signal, as of a child that ends, is no end of a wait.
$node->start;
my $wire = LeWire->new($node);
local $SIG{ALRM} = sub { };
alarm 1;
$wire->query('SELECT pg_sleep(1.5), 1');
is(eval { $wire->wait('Z') }, '|1', 'a wait goes on after a signal') or diag($@);
$wire->quit;
$node->stop;
done_testing();
