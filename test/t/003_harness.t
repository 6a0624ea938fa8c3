# What the other tests rest on.
use strict;
use warnings;
use LeTest;
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
done_testing();
