/** Distributed locks and leader election inside PostgreSQL. */
module lockelection {
	requires transitive java.sql;
	requires org.postgresql.jdbc;

	exports lockelection;
}
