import java.sql.*;
import java.util.Scanner;
import lockelection.*;

/** Arguments: URL, run, members, member. The run begins when all members have entered, and ends when all have left. */
public class Barrier {
	/** The barrier of one run, whose name must be new. A member that dies leaves when its TTL expires. */
	static final class DoubleBarrier {
		private final LockElection locks;
		private final String url, run;
		private final int members;
		private Hold identity, member;

		/** Each member has its own session. members: number of members that must have entered before the run begins. */
		DoubleBarrier(LockElection locks, String url, String run, int members) {
			this.locks = locks;
			this.url = url;
			this.run = run;
			this.members = members;
		}

		/**
		 * Waits until enough members have entered, and returns the hold of this member. If the hold is lost, the others
		 * no longer wait for this member. After an exception, close the session, because this member may have entered.
		 */
		Hold enter(String name) throws InterruptedException {
			identity = locks.acquire(run + ", member " + name); // waits for the TTL of a killed process
			member = locks.acquire(Request.shared(run), null);
			while (!isOpen()) {
				if (!member.isValid())
					throw new IllegalStateException(name + " was lost before " + run + " began");
				Thread.sleep(500);
			}
			return member;
		}

		/** Leaves, and waits until all members have left. */
		void leave() throws InterruptedException {
			member.release();
			identity.release();
			locks.acquire(run).release(); // granted when nobody holds it
		}

		private boolean isOpen() {
			try (Connection connection = DriverManager.getConnection(url);
					PreparedStatement open = connection.prepareStatement("SELECT compare_and_set(?, 0, 'open')"
							+ " FROM lock_election.locks WHERE kind = 'lock' AND name = ? HAVING count(slot) >= ?");
					PreparedStatement read = connection.prepareStatement("SELECT version > 0 FROM read_versioned(?)")) {
				open.setString(1, run);
				open.setString(2, run);
				open.setInt(3, members);
				open.execute();
				read.setString(1, run);
				ResultSet result = read.executeQuery();
				return result.next() && result.getBoolean(1);
			} catch (SQLException e) {
				System.err.println(e.getMessage()); // the server may be unavailable: enter() tries again
				return false;
			}
		}
	}

	public static void main(String[] args) throws Exception {
		try (LockElection locks = LockElection.connect(args[0])) {
			DoubleBarrier barrier = new DoubleBarrier(locks, args[0], args[1], Integer.parseInt(args[2]));
			Hold member = barrier.enter(args[3]);
			System.out.println("begins");
			for (Scanner steps = new Scanner(System.in); steps.hasNextLine() && member.isValid();)
				System.out.println("did " + steps.nextLine());
			if (!member.isValid())
				throw new IllegalStateException("lost: the others may have left");
			barrier.leave();
			System.out.println("left");
		}
	}
}
