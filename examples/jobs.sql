-- The table of jobs.py. Each run adds a thousand jobs: psql -f examples/jobs.sql
CREATE TABLE IF NOT EXISTS job (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text, done_at timestamptz, token bigint);
CREATE INDEX IF NOT EXISTS job_to_do ON job (id) WHERE done_at IS NULL;
INSERT INTO job (payload) SELECT 'number ' || i FROM generate_series(1, 1000) AS i;
