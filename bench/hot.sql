-- All clients want the same lock: one transaction is one hand-off.
SELECT acquire_lock('hot') AS t \gset
SELECT release_lock('hot', :t);
