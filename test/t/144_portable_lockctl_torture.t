# The torture test of lockctl on the portable edition: its locks are on leases that lease_sync() renews without waiting
# for the disk, while the server crashes. See 127_lockctl_torture.t.
# Promises: M, T
# Needs: lockctl, torture
use strict;
use warnings;
use LeCtl;
use LeTest;

$ENV{LE_EDITION} = 'portable';
do './test/t/127_lockctl_torture.t' or die $@ || $!;
