-- One pair with PostgreSQL's own functions, whose locks are numbers.
\set n random(1, 1000000)
SELECT pg_try_advisory_lock(:n);
SELECT pg_advisory_unlock(:n);
