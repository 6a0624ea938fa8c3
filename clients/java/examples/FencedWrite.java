import java.sql.*;
import lockelection.*;

/** Arguments: URL and text. Inserts the text, but fails if the lock was lost before the insert is committed. */
public class FencedWrite {
	public static void main(String[] args) throws Exception {
		try (LockElection locks = LockElection.connect(args[0]);
				Connection connection = DriverManager.getConnection(args[0]);
				Statement statement = connection.createStatement();
				Hold hold = locks.acquire("ledger")) {
			connection.setAutoCommit(false);
			System.out.println("holds " + hold.token());
			System.in.read(); // long work
			hold.fence(connection);
			statement.execute("INSERT INTO ledger VALUES ('" + args[1] + "')");
			connection.commit();
		}
	}
}
