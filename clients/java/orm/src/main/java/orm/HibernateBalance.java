package orm;

import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.PersistenceConfiguration;
import lockelection.Hold;
import org.hibernate.Session;

/** Adds to a balance with Hibernate. It cannot commit a write after its lock is lost. */
public class HibernateBalance implements AutoCloseable {
	private final EntityManagerFactory factory;

	HibernateBalance(String url) {
		factory = new PersistenceConfiguration("balance").managedClass(Balance.class)
				.property(PersistenceConfiguration.JDBC_URL, url).createEntityManagerFactory();
	}

	void add(int more, Hold hold) {
		factory.runInTransaction(manager -> {
			manager.unwrap(Session.class).doWork(hold::fence); // throws LockLostException, which rolls back
			manager.find(Balance.class, 1).add(more);
		});
	}

	@Override
	public void close() {
		factory.close();
	}
}
