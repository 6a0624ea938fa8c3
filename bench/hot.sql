-- All clients acquire the same lock, so one run of this script is one hand-off.
SELECT acquire_lock('hot') AS t \gset
SELECT release_lock('hot', :t);
