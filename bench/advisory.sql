-- One pair: acquire an advisory lock by name without waiting, and release it.
\set n random(1, 1000000)
SELECT advisory_acquire('k' || :n, '0');
SELECT advisory_release('k' || :n);
