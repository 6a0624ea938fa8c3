package lockelection;

import java.sql.SQLException;
import java.util.regex.Pattern;
import lockelection.LockException.Status;

/**
 * Checks a URL of PostgreSQL's driver. A URL may contain a password; in a URL with a mistake, any part may belong to
 * the password. The driver writes a URL that it cannot parse into its log. So the URL is checked before the driver gets
 * it. The errors of these checks show no part of the URL.
 */
final class Url {
	private static final String BEGIN = "jdbc:postgresql:";
	private static final Pattern ENCODED = Pattern.compile("%(?![0-9A-Fa-f]{2})");
	private static final Pattern PORT = Pattern.compile("(\\[[^\\]]*]|[^:\\[\\]]*)(:(\\d{1,5})?)?");
	private static final Pattern WORD = Pattern.compile("[A-Za-z_][A-Za-z0-9_.-]*");
	private static final Pattern STRAY = Pattern.compile("passw(or)?d\\s*=", Pattern.CASE_INSENSITIVE);
	private static final Pattern MAY_SHOW = Pattern.compile("passw|jdbc:|://|@", Pattern.CASE_INSENSITIVE);

	private Url() {
	}

	private static LockException wrong(String what) {
		return LockException.of(Status.INVALID, "cannot parse the URL: " + what + " (it is not shown, for it may have a password)");
	}

	/** Throws a {@link LockException} with status INVALID if the URL is wrong. */
	static void check(String url) {
		Arguments.given(url, "the URL");
		if (!url.startsWith(BEGIN))
			throw wrong("it does not begin with " + BEGIN);
		int query = url.indexOf('?');
		String place = url.substring(BEGIN.length(), query < 0 ? url.length() : query);
		if (ENCODED.matcher(url).find())
			throw wrong("a % is not followed by two hexadecimal digits; %25 stands for a %");
		if (STRAY.matcher(place).find())
			throw wrong("there is a password before the ?");
		if (place.startsWith("//"))
			checkHosts(place.substring(2));
		if (query >= 0)
			checkParameters(url.substring(query + 1));
	}

	/** Checks the hosts with their ports, and the database. */
	private static void checkHosts(String place) {
		if (place.isEmpty() || place.equals("/"))
			return;
		int slash = place.indexOf('/');
		if (slash < 0 || place.indexOf('/', slash + 1) >= 0)
			throw wrong("there is not one / between the hosts and the database");
		if (place.substring(0, slash).contains("@"))
			throw wrong("a host has an @: user and password are parameters, ?user=...&password=...");
		for (String host : place.substring(0, slash).split(",")) {
			if (!PORT.matcher(host).matches() || tooLarge(host))
				throw wrong("a port is no number from 1 to 65535");
		}
	}

	private static boolean tooLarge(String host) {
		String port = host.substring(host.lastIndexOf(':') + 1);
		return host.contains(":") && port.matches("\\d+") && (Integer.parseInt(port) < 1 || Integer.parseInt(port) > 65_535);
	}

	private static void checkParameters(String parameters) {
		for (String parameter : parameters.split("&")) {
			int equals = parameter.indexOf('=');
			if (equals >= 0 && !WORD.matcher(parameter.substring(0, equals)).matches())
				throw wrong("the name of a parameter is no word; in a value %26 stands for an &");
			if (STRAY.matcher(parameter.substring(equals + 1)).find() && !parameter.startsWith("password="))
				throw wrong("a password is in another parameter: an & separates them");
		}
	}

	/** Returns the error of a data source, without its message if that may contain the URL. */
	static SQLException hidden(Exception e, String sqlState) {
		for (Throwable cause = e; cause != null; cause = cause.getCause()) {
			if (MAY_SHOW.matcher(String.valueOf(cause.getMessage())).find())
				return new SQLException("the data source has failed: " + e.getClass().getName()
						+ " (its message is not shown, for it may have a password)", sqlState);
		}
		return new SQLException(e.getMessage() == null ? e.toString() : e.getMessage(), sqlState, e);
	}
}
