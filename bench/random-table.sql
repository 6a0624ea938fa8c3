-- One pair with a lock table written by hand.
\set n random(1, 1000000)
INSERT INTO table_lock AS l VALUES ('k' || :n, (:client_id)::text, now() + interval '30 s') ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at < now();
DELETE FROM table_lock WHERE name = 'k' || :n AND owner = (:client_id)::text;
