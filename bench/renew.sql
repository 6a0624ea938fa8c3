-- Each client acquires its own lock once (-D t=0 -D round=...), and then renews it.
\if :t = 0
SELECT acquire_lock('renew' || :round || '-' || :client_id, ttl => '60 s') AS t \gset
\endif
SELECT renew_lock('renew' || :round || '-' || :client_id, :t);
