-- The table of jobs.py, with a thousand jobs: psql -f examples/jobs.sql
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text, done_at timestamptz, token bigint);
CREATE INDEX ON job (id) WHERE done_at IS NULL;
INSERT INTO job (payload) SELECT 'number ' || i FROM generate_series(1, 1000) AS i;
