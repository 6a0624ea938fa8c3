-- One pair: acquire and release the lock of a random name.
\set n random(1, 1000000)
SELECT acquire_lock('k' || :n) AS t \gset
SELECT release_lock('k' || :n, :t);
