package orm;

import jakarta.persistence.EntityManager;
import jakarta.persistence.PersistenceContext;
import java.sql.Connection;
import lockelection.Hold;
import org.hibernate.Session;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.transaction.annotation.Transactional;

/** Adds to a balance in Spring's transactions. It cannot commit a write after its lock is lost. */
@SpringBootApplication
@Transactional
public class SpringBalance {
	private final JdbcTemplate jdbc;
	@PersistenceContext
	private EntityManager manager;

	SpringBalance(JdbcTemplate jdbc) {
		this.jdbc = jdbc;
	}

	/** Adds with JdbcTemplate. */
	public void addByJdbc(int more, Hold hold) {
		jdbc.execute((Connection connection) -> {
			hold.fence(connection); // throws LockLostException, which rolls back
			return null;
		});
		jdbc.update("UPDATE balance SET amount = amount + ? WHERE id = 1", more);
	}

	/** Adds with JPA, as in Spring Data. */
	public void addByJpa(int more, Hold hold) {
		manager.unwrap(Session.class).doWork(hold::fence); // throws LockLostException, which rolls back
		manager.find(Balance.class, 1).add(more);
	}

	/** Adds with the fence as an SQL statement. */
	public void addBySql(int more, Hold hold) {
		manager.createNativeQuery(hold.fenceSql()).getSingleResult(); // throws SQLSTATE LE001, which rolls back
		jdbc.update("UPDATE balance SET amount = amount + ? WHERE id = 1", more);
	}
}
