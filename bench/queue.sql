-- Hands off one lock with :queued entries in its queue, one call after the other; prints the mean microseconds of a
-- hand-off. Each released entry is replaced at the end of the queue, which is not measured.
CREATE TEMP TABLE result (us float8);
SELECT set_config('bench.queued', :'queued', false), set_config('bench.hand_offs', :'hand_offs', false) \gset
DO $$
DECLARE
	n int := current_setting('bench.queued');
	m int := current_setting('bench.hand_offs');
	name text := 'queue ' || n;
	tokens bigint[];
	next bigint;
	start timestamptz;
	spent interval := '0';
BEGIN
	SELECT array_agg(e.token ORDER BY e.token) INTO tokens
	FROM generate_series(0, n) i, LATERAL enqueue_lock(name, '1 h' + i * interval '0') e;
	COMMIT;
	FOR i IN 1 .. m LOOP
		start := clock_timestamp();
		PERFORM release_lock(name, tokens[1 + (i - 1) % (n + 1)]);
		COMMIT;
		spent := spent + (clock_timestamp() - start);
		SELECT token INTO next FROM enqueue_lock(name, '1 h');
		tokens[1 + (i - 1) % (n + 1)] := next;
		COMMIT;
	END LOOP;
	IF NOT await_lock(name, tokens[1 + m % (n + 1)]) THEN
		RAISE 'the first of the queue was not granted';
	END IF;
	INSERT INTO result VALUES (extract(epoch FROM spent) * 1e6 / m);
	-- A commit releases in reverse order, so release the holder first here: then no other entry is granted the lock.
	PERFORM release_lock(name, t) FROM unnest(tokens) t ORDER BY t;
END $$;
SELECT round(us) FROM result;
