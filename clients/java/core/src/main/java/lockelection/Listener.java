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
	 * @param event the change
	 */
	void on(Event event);

	/**
	 * Returns the listener for one request. Called before the request, in the thread that requests the lock, so that
	 * the listener can capture this thread's context.
	 *
	 * @return the listener for the events of this request and its hold
	 */
	default Listener ofCaller() {
		return this;
	}
}
