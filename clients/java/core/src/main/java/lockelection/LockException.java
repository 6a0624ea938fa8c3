package lockelection;

import java.sql.SQLException;

/**
 * The error of a failed call. {@link #status()} returns the reason. If the server has sent an error, the message is
 * the server's message, and {@link #sqlState()} returns its SQLSTATE.
 */
public class LockException extends RuntimeException {
	private static final long serialVersionUID = 1L;

	/** The reason of the failure. */
	public enum Status {
		/**
		 * The lock was not acquired, because others hold it or the wait timed out. The caller holds nothing. Thrown as
		 * {@link NotAcquiredException}.
		 */
		NOT_ACQUIRED,
		/** The lease, the hold or the session has ended. Thrown as {@link LockLostException}. */
		LOST,
		/** The session was closed. */
		CANCELED,
		/** PostgreSQL has detected a deadlock (40P01): this caller and others wait for each other. */
		DEADLOCK,
		/** A limit of the role or of the server was reached (53400, 53200). */
		LIMIT,
		/** A privilege is missing, or the password is wrong (42501, 28xxx). */
		DENIED,
		/** An argument is invalid (also 22xxx). */
		INVALID,
		/** There is no server, no such database, or no reply in time. The call has no lasting effect. */
		UNAVAILABLE,
		/** There was no reply, so that the call may have taken effect. */
		UNKNOWN,
		/** The extension is not installed or not preloaded; the message names the command to run. */
		NOT_INSTALLED,
		/** Any other error. */
		FAILED
	}

	private final Status status;
	private final String sqlState;

	LockException(Status status, String sqlState, String message, Throwable cause) {
		super(message, cause);
		this.status = status;
		this.sqlState = sqlState;
	}

	/**
	 * The reason of the failure.
	 *
	 * @return never null
	 */
	public Status status() {
		return status;
	}

	/**
	 * The SQLSTATE of the server's error.
	 *
	 * @return an SQLSTATE, or null if the error does not come from the server
	 */
	public String sqlState() {
		return sqlState;
	}

	static LockException of(Status status, String message) {
		return of(status, null, message, null);
	}

	/** Returns a copy for another thread, with that thread's stack trace. */
	static LockException again(LockException e) {
		return of(e.status, e.sqlState, e.getMessage(), e);
	}

	static LockException of(SQLException e) {
		return of(e.getMessage(), e.getSQLState() == null ? "" : e.getSQLState(), e);
	}

	static LockException of(String message, String state, Throwable cause) {
		Status status = statusOf(state);
		if (status == Status.NOT_INSTALLED)
			message += state.equals("55000") || state.equals("58P01")
					? " (add lock_election to shared_preload_libraries, and restart the server)"
					: " (CREATE EXTENSION lock_election, or lockctl install for the portable edition)";
		return of(status, state, message, cause);
	}

	private static LockException of(Status status, String sqlState, String message, Throwable cause) {
		switch (status) {
			case NOT_ACQUIRED:
				return new NotAcquiredException(message, cause);
			case LOST:
				return new LockLostException(sqlState, message, cause);
			default:
				return new LockException(status, sqlState, message, cause);
		}
	}

	/** Statuses by SQLSTATE or its prefix. More specific codes come first. */
	private static final Object[][] STATUSES = {{"LE001", Status.LOST}, {"40P01", Status.DEADLOCK},
			{"53200", Status.LIMIT}, {"53400", Status.LIMIT}, {"42501", Status.DENIED}, {"28", Status.DENIED},
			{"22", Status.INVALID}, {"08007", Status.UNKNOWN}, {"40003", Status.UNKNOWN}, {"57014", Status.UNKNOWN},
			{"42883", Status.NOT_INSTALLED}, {"3F000", Status.NOT_INSTALLED}, {"55000", Status.NOT_INSTALLED},
			{"3D000", Status.UNAVAILABLE}, {"25006", Status.UNAVAILABLE}, {"55P03", Status.UNAVAILABLE},
			{"57", Status.UNAVAILABLE}, {"53", Status.UNAVAILABLE}, {"08", Status.UNAVAILABLE},
			{"58", Status.UNAVAILABLE}};

	private static Status statusOf(String sqlState) {
		for (Object[] rule : STATUSES) {
			if (sqlState.startsWith((String) rule[0]))
				return (Status) rule[1];
		}
		return Status.FAILED;
	}

	/** Whether this error makes a new connection necessary. */
	static boolean breaks(String sqlState) {
		return sqlState.startsWith("08") && !sqlState.equals("08007") || sqlState.matches("57P0[1-5]|53300|25006");
	}

	/** Whether the statement did not find the extension's schema or functions. */
	static boolean noSuchFunction(SQLException e) {
		return "3F000".equals(e.getSQLState()) || "42883".equals(e.getSQLState());
	}

	/** Whether the error is temporary, so that a retry may help. */
	boolean passes() {
		return status == Status.UNAVAILABLE || status == Status.UNKNOWN
				|| sqlState != null && (sqlState.startsWith("40") && status != Status.DEADLOCK || sqlState.startsWith("XX"));
	}
}
