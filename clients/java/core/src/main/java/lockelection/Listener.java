package lockelection;

/**
 * Receives the events of a session, in order, in the session's executor. Its exceptions do not affect the session. See
 * {@link Options#listener(Listener)}.
 */
@FunctionalInterface
public interface Listener {
	/**
	 * Receives an event.
	 *
	 * @param event what has changed
	 */
	void on(Event event);

	/**
	 * Called in the thread that requests a lock, before the request.
	 *
	 * @return the listener for the events of this request and its hold, which may know this thread's context
	 */
	default Listener ofCaller() {
		return this;
	}
}
