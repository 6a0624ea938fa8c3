# The programs of README, and those of the pages that it leads to, on the portable edition, as an ordinary role has installed
# it: the sessions of psql, lockctl and its crontab, C and Python.  The clients' tests run those of other languages, see
# clients/test.sh.
# Promises: -
# Needs: client, lockctl, pkg-config, python3-psycopg
use strict;
use warnings;
use LeTest;
use Test::More;

$ENV{ENGINE} = 'portable';
do './test/t/082_documents.t';
die $@ if $@;
