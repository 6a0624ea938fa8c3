-- Acquires :batch locks in one transaction (-D k=0 -D per_client=... -D batch=...).
\set lo :client_id * :per_client + :k * :batch + 1
\set hi :lo + :batch - 1
\set k :k + 1
SELECT count(acquire_lock('held' || g, ttl => '1 hour')) FROM generate_series((:lo)::bigint, (:hi)::bigint) g;
