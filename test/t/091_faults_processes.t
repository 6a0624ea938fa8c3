# Every fault point in the manager, the launcher, the notifier and the hooks of commands, with every action: a delay, an
# error, the end of the process, a crash. Acknowledged changes are kept, and no entry is left.
# Promises: M, T, Q, W, D, G
# Needs: faults
use strict;
use warnings;
use LeFaults;
use Test::More;

LeFaults::every_action(qr/^(?:batch|finish|history|hold|launcher|load|manager|notifier|reload|replay|store)/);
done_testing();
