package orm;

import jakarta.persistence.EntityManager;
import jakarta.persistence.PersistenceContext;
import java.sql.Connection;
import lockelection.Hold;
import org.hibernate.Session;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.transaction.annotation.Transactional;

/** Adds to a balance in the transactions of Spring. What it writes after its lock is lost is refused. */
@SpringBootApplication
@Transactional
public class SpringBalance {
	private final JdbcTemplate jdbc;
	@PersistenceContext
	private EntityManager manager;

	SpringBalance(JdbcTemplate jdbc) {
		this.jdbc = jdbc;
	}

	/** JdbcTemplate. */
	public void addByJdbc(int more, Hold hold) {
		jdbc.execute((Connection connection) -> {
			hold.fence(connection); // LockLostException: rolled back
			return null;
		});
		jdbc.update("UPDATE balance SET amount = amount + ? WHERE id = 1", more);
	}

	/** JPA, as in Spring Data. */
	public void addByJpa(int more, Hold hold) {
		manager.unwrap(Session.class).doWork(hold::fence); // LockLostException: rolled back
		manager.find(Balance.class, 1).add(more);
	}

	/** The fence as SQL. */
	public void addBySql(int more, Hold hold) {
		manager.createNativeQuery(hold.fenceSql()).getSingleResult(); // SQLSTATE LE001: rolled back
		jdbc.update("UPDATE balance SET amount = amount + ? WHERE id = 1", more);
	}
}
