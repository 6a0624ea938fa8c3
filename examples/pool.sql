-- What the workers share: numbered pieces of work, which only the leader of election 'pool' may write.
CREATE TABLE work (
	number int PRIMARY KEY,
	term bigint NOT NULL,
	worker text NOT NULL
);
CREATE TRIGGER leader_only BEFORE INSERT OR UPDATE OR DELETE ON work
	FOR EACH STATEMENT EXECUTE FUNCTION fence_guard('pool', 'election');
