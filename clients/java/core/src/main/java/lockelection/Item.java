package lockelection;

import java.util.List;

/**
 * An item of a lease_sync() call: a request for a hold, its release, or another action on a name. The texts are the
 * arguments of lease_sync().
 */
final class Item {
	final String action;
	final List<String> names;
	final String number;
	/** Null in the release of a ghost, which is a grant or a place without a hold. */
	final Hold hold;
	String value;
	/** The text by which the server's news names the request. */
	String owner;
	/** The earliest time to send the item, in nanoseconds of the session's clock. */
	long notBefore;
	/** Whether an earlier call may have carried it out. */
	boolean again;
	/** Whether the reply to such a call was lost. */
	boolean lost;
	/** Whether the server has carried it out, but withholds the result until it is durable. */
	boolean pending;

	Item(String action, List<String> names, String number, String value, Hold hold) {
		this.action = action;
		this.names = names;
		this.number = number;
		this.value = value;
		this.hold = hold;
	}

	/** Whether a caller waits for its result. Otherwise it is a release. */
	boolean asks() {
		return hold != null && hold.ask == this;
	}

	/** Whether it requests a grant, which may arrive as news. */
	boolean grants() {
		return asks() && (action.startsWith("try_") || action.startsWith("enqueue_"));
	}
}
