# The recipes of docs/how-to/coordination.md on the portable edition: 072_coordination.t.
# Promises: M, D, L
use strict;
use warnings;

BEGIN { $ENV{ENGINE} = 'portable'; }
use LeTest;

do './test/t/072_coordination.t';
die $@ if $@;
