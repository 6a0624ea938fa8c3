-- Each client takes a lock of its own once (-D t=0 -D round=...), then renews it.
\if :t = 0
SELECT acquire_lock('renew' || :round || '-' || :client_id, ttl => '60 s') AS t \gset
\endif
SELECT renew_lock('renew' || :round || '-' || :client_id, :t);
