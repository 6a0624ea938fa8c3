# Runs the programs of README, and of the pages that it links to, on the portable edition, installed by an ordinary
# role: psql sessions, lockctl and its crontab, C and Python. The clients' tests run those of other languages, see
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
