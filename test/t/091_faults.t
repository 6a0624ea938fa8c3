# Faults.
use strict;
use warnings;
use LeTest;
use Test::More;
my $node = new_node('main', faults => 1);
is($node->safe_psql('postgres', q{SELECT release_lock('x', acquire_lock('x'))}), 't', 'works');
print $node->safe_psql('postgres', 'SELECT fault_points()');
$node->safe_psql('postgres', q{SELECT fault_set('batch-committed', 'kill')});
my ($rc, $out, $err) = $node->psql('postgres', q{SELECT acquire_lock('x')});
print "$rc $out $err\n";
wait_for_sql($node, 'SELECT true');
print $node->safe_psql('postgres', 'SELECT * FROM lock_election.locks');
done_testing();
