import java.sql.*;
import lockelection.*;

/** Argument: URL. Does the jobs of the table "job", each once, together with other workers. Ends when all are done. */
public class QueueWorker {
	public static void main(String[] args) throws InterruptedException {
		for (LockElection locks = LockElection.connect(args[0]);;)
			try (Connection db = DriverManager.getConnection(args[0]); Statement sql = db.createStatement()) {
				locks.reopen();
				ResultSet job = sql.executeQuery("SELECT name FROM job WHERE NOT done ORDER BY random() LIMIT 1");
				if (!job.next()) return;
				try (Hold hold = locks.tryAcquire(Request.exclusive(job.getString(1))).orElseThrow(SQLException::new)) {
					db.setAutoCommit(false);
					hold.fence(db); // from here on, no earlier holder can commit
					sql.execute("UPDATE job SET done = true WHERE NOT done AND name = '" + hold.names().get(0) + "'");
					db.commit();
				}
			} catch (LockException | SQLException e) { Thread.sleep(50); }
	}
}
