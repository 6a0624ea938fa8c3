package lockelection;

import java.util.List;

/** One thing that calls of lease_sync() ask for: a hold, its end, or something else of a name. The texts are those of an item. */
final class Item {
	final String action;
	final List<String> names;
	final String number;
	/** Null in the release of a ghost: a grant or a place that nobody wants. */
	final Hold hold;
	String value;
	/** The text by which a request is found again. */
	String owner;
	/** Nanoseconds on the session's clock; the item is not sent before. */
	long notBefore;
	/** An earlier call may have carried it out. */
	boolean again;
	/** The reply to such a call was lost. */
	boolean lost;
	/** The server has carried it out, and not told what came of it. */
	boolean pending;

	Item(String action, List<String> names, String number, String value, Hold hold) {
		this.action = action;
		this.names = names;
		this.number = number;
		this.value = value;
		this.hold = hold;
	}

	/** Does a caller wait for what comes of it? Otherwise it gives something back. */
	boolean asks() {
		return hold != null && hold.ask == this;
	}

	/** Does it ask for a grant, which may come as news? */
	boolean grants() {
		return asks() && (action.startsWith("try_") || action.startsWith("enqueue_"));
	}
}
