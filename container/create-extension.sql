-- Runs in database POSTGRES_DB when the image creates a cluster.
CREATE EXTENSION lock_election;
