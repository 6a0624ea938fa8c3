package orm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.sql.SQLException;
import java.util.function.BiConsumer;
import lockelection.Db;
import lockelection.Hold;
import lockelection.LockElection;
import lockelection.LockLostException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringApplication;
import org.springframework.context.ConfigurableApplicationContext;

/** What is written in time is written, what is written late is refused. */
@Timeout(120)
class LateWriteTest {
	/** All that a framework could take for a parameter. */
	private final String name = Db.name() + " it's :late? ?1 $1 {0} #{x} \\ é";
	private LockElection locks;

	@BeforeEach
	void setUp() throws SQLException {
		locks = LockElection.connect(Db.URL);
		// The trigger refuses an update whose transaction has no fence, such as one on another connection than the fence.
		Db.sql("DROP TABLE IF EXISTS balance; CREATE TABLE balance (id int PRIMARY KEY, amount int);"
				+ "INSERT INTO balance VALUES (1, 0);"
				+ "CREATE TRIGGER guard BEFORE UPDATE ON balance EXECUTE FUNCTION fence_guard(" + quoted() + ")");
	}

	@AfterEach
	void tearDown() {
		locks.close();
	}

	private String quoted() {
		return "'" + name.replace("'", "''") + "'";
	}

	/** Returns the error of the late write, of which the server has told. */
	private Throwable late(BiConsumer<Integer, Hold> balance) throws Exception {
		try (Hold hold = locks.acquire(name)) {
			Object before = Db.sql("SELECT amount FROM balance");
			balance.accept(5, hold);
			assertEquals((Integer) before + 5, Db.sql("SELECT amount FROM balance"));
			Db.sql("SELECT force_release_lock(" + quoted() + ")");
			Throwable late = assertThrows(RuntimeException.class, () -> balance.accept(7, hold));
			assertEquals((Integer) before + 5, Db.sql("SELECT amount FROM balance"));
			return late;
		}
	}

	private static void isLost(Throwable late) {
		assertEquals(LockLostException.class, late.getClass(), late.toString());
		assertEquals("LE001", ((LockLostException) late).sqlState());
	}

	@Test
	void hibernate() throws Exception {
		try (HibernateBalance balance = new HibernateBalance(Db.URL)) {
			isLost(late((more, hold) -> balance.add(more, hold)));
		}
	}

	@Test
	void spring() throws Exception {
		try (ConfigurableApplicationContext context = SpringApplication.run(SpringBalance.class,
				"--spring.main.banner-mode=off", "--spring.datasource.url=" + Db.URL)) {
			SpringBalance balance = context.getBean(SpringBalance.class);
			isLost(late(balance::addByJdbc));
			isLost(late(balance::addByJpa));
			Throwable error = late(balance::addBySql);
			while (!(error instanceof SQLException))
				error = error.getCause();
			assertEquals("LE001", ((SQLException) error).getSQLState());
		}
	}
}
