# Like 091_faults_processes.t, for all other fault points, which sessions reach. The fault points of shrinking tables
# are in 096_faults_shrinking_table.t.
# Promises: M, T, Q, W, D, G
# Needs: faults
use strict;
use warnings;
use LeFaults;
use Test::More;

LeFaults::every_action(qr/^(?!batch|finish|history|hold|launcher|load|manager|notifier|reload|replay|shrink|store)/);
done_testing();
