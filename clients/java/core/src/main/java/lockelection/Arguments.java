package lockelection;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import lockelection.LockException.Status;

/**
 * Argument checks. An error names the argument, its value, and the allowed values. A null argument causes a {@link
 * NullPointerException}; any other invalid value causes a {@link LockException} with status INVALID.
 */
final class Arguments {
	static final int NAME_BYTES = 255;
	static final int VALUE_BYTES = 4096;
	private static final int NAMES = 1000;
	private static final int SHOWN = 100;
	private static final Duration SHORTEST_TTL = Duration.ofMillis(100);
	/** The longest TTL and the longest hold_for. */
	private static final Duration LONGEST = Duration.ofDays(24);

	private static final Duration ENDLESS = Duration.ofDays(100 * 365);

	private Arguments() {
	}

	private static LockException invalid(String message) {
		return LockException.of(Status.INVALID, message);
	}

	static <T> T given(T value, String what) {
		if (value == null)
			throw new NullPointerException(what + " is null");
		return value;
	}

	/**
	 * Rejects NUL, and half of a surrogate pair. A driver sends '?' for such a half, so that two different texts would
	 * become the same.
	 */
	static String encodable(String text, String what) {
		given(text, what);
		for (int i = 0; i < text.length(); i++) {
			char c = text.charAt(i);
			if (c == 0)
				throw invalid(what + " " + show(text) + " has the character NUL, which no text in PostgreSQL can have");
			if (Character.isHighSurrogate(c) && i + 1 < text.length() && Character.isLowSurrogate(text.charAt(i + 1)))
				i++;
			else if (Character.isSurrogate(c))
				throw invalid(what + " " + show(text) + " has half of a surrogate pair, which is no character");
		}
		return text;
	}

	/**
	 * Rejects an empty text, and a text that is certainly too long. The server counts the bytes in its own encoding,
	 * which are at least a quarter of the bytes in UTF-8, and rejects all other texts that are too long.
	 */
	static String text(String text, String what, int mostBytes) {
		encodable(text, what);
		if (text.isEmpty())
			throw invalid(what + " is empty: it has 1 to " + mostBytes + " bytes");
		int bytes = text.length() > mostBytes ? text.getBytes(StandardCharsets.UTF_8).length : 0;
		if (bytes > 4 * mostBytes)
			throw invalid(what + " has " + bytes + " bytes: it has 1 to " + mostBytes);
		return text;
	}

	static String name(String name) {
		return text(name, "the name", NAME_BYTES);
	}

	static String election(String name) {
		return text(name, "the name of the election", NAME_BYTES);
	}

	static String value(String value) {
		return text(value, "the value", VALUE_BYTES);
	}

	static List<String> names(String... names) {
		if (given(names, "the array of names").length == 0 || names.length > NAMES)
			throw invalid("there are " + names.length + " names: a request has 1 to " + NAMES);
		Set<String> seen = new HashSet<>();
		for (String name : names) {
			if (!seen.add(name(name)))
				throw invalid("the name " + show(name) + " appears twice");
		}
		return List.of(names);
	}

	static int permits(int permits) {
		if (permits < 1)
			throw invalid("the number of permits is " + permits + ": it is 1 or more");
		return permits;
	}

	static Duration ttl(Duration ttl) {
		return between(SHORTEST_TTL, ttl, "the TTL", "from 100 ms to 24 days");
	}

	static Duration holdFor(Duration holdFor) {
		return between(Duration.ZERO, holdFor, "holdFor", "from 0 to 24 days");
	}

	private static Duration between(Duration least, Duration duration, String what, String allowed) {
		if (given(duration, what).compareTo(least) < 0 || duration.compareTo(LONGEST) > 0)
			throw invalid(what + " is " + duration + ": it is " + allowed);
		return duration;
	}

	/** Checks a time limit; null means no limit. */
	static Duration limit(Duration limit, String what) {
		if (limit != null && limit.isNegative())
			throw invalid(what + " is " + limit + ": it is zero or more");
		return limit;
	}

	/** Returns a time limit in nanoseconds, capped at 100 years. */
	static long nanos(Duration limit) {
		return bounded(limit).toNanos();
	}

	static String milliseconds(Duration duration) {
		return bounded(duration).toMillis() + " ms";
	}

	private static Duration bounded(Duration duration) {
		if (duration.compareTo(ENDLESS) > 0)
			return ENDLESS;
		return duration.compareTo(ENDLESS.negated()) < 0 ? ENDLESS.negated() : duration;
	}

	/** Returns the text in quotes, shortened, and with escapes for characters that a log would not show. */
	static String show(String text) {
		StringBuilder shown = new StringBuilder("\"");
		for (char c : text.substring(0, Math.min(text.length(), SHOWN)).toCharArray()) {
			if (Character.isISOControl(c) || Character.isSurrogate(c))
				shown.append(String.format("\\u%04X", (int) c));
			else
				shown.append(c);
		}
		return shown.append(text.length() > SHOWN ? "...\"" : "\"").toString();
	}

	/** Returns a text as an SQL expression, without any character that a framework could interpret as a parameter. */
	static String literal(String text) {
		if (text.matches("[A-Za-z0-9_ .,/-]*"))
			return "'" + text + "'";
		StringBuilder hex = new StringBuilder();
		for (byte b : text.getBytes(StandardCharsets.UTF_8))
			hex.append(String.format("%02x", b));
		return "pg_catalog.convert_from(pg_catalog.decode('" + hex + "', 'hex'), 'UTF8')";
	}
}
