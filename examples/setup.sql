-- The data of the pool: one row, and a guard that lets only the leader of the election 'pool' write to it.
CREATE TABLE work (id int PRIMARY KEY, done bigint NOT NULL, term bigint, worker text);
INSERT INTO work VALUES (1, 0);

CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON work
	FOR EACH ROW EXECUTE FUNCTION fence_guard('pool', 'election');
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON work
	EXECUTE FUNCTION fence_guard('pool', 'election');
