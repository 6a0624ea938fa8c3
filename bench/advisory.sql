-- One pair: an advisory lock by name, tried and released.
\set n random(1, 1000000)
SELECT advisory_acquire('k' || :n, '0');
SELECT advisory_release('k' || :n);
