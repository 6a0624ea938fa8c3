package lockelection.agent;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import lockelection.Hold;
import lockelection.Leader;
import lockelection.LockElection;
import lockelection.LockException;
import lockelection.Observer;
import lockelection.Options;
import lockelection.Request;
import lockelection.Term;

/** The agent of the conformance suite. It reads one command a line, as clients/conformance/README.md describes. */
public final class Agent {
	private static final Gson JSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

	private final Map<String, LockElection> sessions = new ConcurrentHashMap<>();
	private final Map<String, Hold> holds = new ConcurrentHashMap<>();
	private final Map<String, Observer> observers = new ConcurrentHashMap<>();
	private final Map<Long, Thread> calls = new ConcurrentHashMap<>();
	private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

	/** A command. It fills the answer, and may return an action to run after the answer is written. */
	private interface Command {
		Runnable run(JsonObject arguments, JsonObject answer) throws Exception;
	}

	private final Map<String, Command> commands = Map.ofEntries(Map.entry("open", this::open),
			Map.entry("acquire", this::acquire), Map.entry("try_each", this::tryEach), Map.entry("campaign", this::campaign),
			Map.entry("cancel", this::cancel), Map.entry("valid", this::valid), Map.entry("fence", this::fence),
			Map.entry("proclaim", this::proclaim), Map.entry("resign", this::release), Map.entry("release", this::release),
			Map.entry("leader", this::leader), Map.entry("observe", this::observe), Map.entry("unobserve", this::unobserve),
			Map.entry("once", this::once), Map.entry("state", this::state), Map.entry("abandon", this::abandon), Map.entry("close", this::close),
			Map.entry("threads", this::threads));

	private Agent() {
	}

	/**
	 * Reads commands until the end of the input.
	 *
	 * @param arguments --capabilities
	 * @throws IOException if the input cannot be read
	 */
	public static void main(String[] arguments) throws IOException {
		if (List.of(arguments).contains("--capabilities")) {
			JsonObject can = new JsonObject();
			can.addProperty("client", "java");
			can.addProperty("version", "1.0.0");
			can.add("modes", JSON.toJsonTree(List.of("jdbc")));
			can.add("features", JSON.toJsonTree(List.of("shared", "permits", "several", "each", "election", "observe", "fence",
					"cancel", "hold_for", "own_ttl", "once", "abandon", "block", "threads")));
			System.out.println(JSON.toJson(can));
			return;
		}
		new Agent().read();
		System.exit(0); // calls may still be waiting
	}

	private void read() throws IOException {
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		for (String line = in.readLine(); line != null; line = in.readLine()) {
			JsonObject command = JsonParser.parseString(line).getAsJsonObject();
			if (command.get("do").getAsString().equals("block")) {
				block(command);
				continue;
			}
			Thread thread = new Thread(null, () -> serve(command), "call", 256 * 1024);
			thread.setDaemon(true);
			calls.put(command.get("id").getAsLong(), thread);
			thread.start();
		}
		sessions.values().parallelStream().forEach(session -> session.close(Duration.ofSeconds(1)));
	}

	// --- answers ---

	private static double stamp() {
		return System.nanoTime() / 1e6; // CLOCK_MONOTONIC
	}

	private void write(JsonObject line) {
		synchronized (out) {
			out.println(JSON.toJson(line));
			out.flush();
		}
	}

	private void tell(String event, String key, String name, String... more) {
		JsonObject line = new JsonObject();
		line.addProperty("event", event);
		line.addProperty(key, name);
		for (int i = 0; i < more.length; i += 2)
			line.addProperty(more[i], more[i + 1]);
		line.addProperty("at", stamp());
		write(line);
	}

	private void serve(JsonObject command) {
		JsonObject answer = new JsonObject();
		Runnable then = null;
		answer.add("id", command.get("id"));
		answer.addProperty("sent", stamp());
		try {
			Command run = commands.get(command.get("do").getAsString());
			if (run == null)
				answer.addProperty("status", "unsupported");
			else
				then = run.run(command, answer);
			if (!answer.has("status"))
				answer.addProperty("status", "ok");
		} catch (Throwable e) {
			fail(answer, e);
		}
		answer.addProperty("at", stamp());
		calls.remove(command.get("id").getAsLong());
		write(answer);
		if (then != null)
			then.run();
	}

	private static void fail(JsonObject answer, Throwable e) {
		String state = null;
		if (e instanceof LockException) {
			answer.addProperty("status", ((LockException) e).status().name().toLowerCase(Locale.ROOT));
			state = ((LockException) e).sqlState();
		} else if (e instanceof InterruptedException)
			answer.addProperty("status", "canceled");
		else if (e instanceof SQLException) {
			state = ((SQLException) e).getSQLState();
			answer.addProperty("status", String.valueOf(state).startsWith("08") ? "unavailable"
					: "40P01".equals(state) ? "deadlock" : "42501".equals(state) ? "denied" : "failed");
		} else {
			e.printStackTrace();
			answer.addProperty("status", e instanceof IllegalArgumentException || e instanceof NullPointerException ? "invalid"
					: "failed");
		}
		answer.addProperty("message", String.valueOf(e.getMessage()));
		if (state != null)
			answer.addProperty("sqlstate", state);
	}

	// --- arguments ---

	private static String text(JsonObject command, String key) {
		JsonElement value = command.get(key);
		return value == null || value.isJsonNull() ? null : value.getAsString();
	}

	private static Duration time(JsonObject command, String key) {
		JsonElement value = command.get(key);
		return value == null || value.isJsonNull() ? null : Duration.ofNanos((long) (value.getAsDouble() * 1e6));
	}

	private static String[] texts(JsonArray values) {
		String[] texts = new String[values.size()];
		for (int i = 0; i < texts.length; i++)
			texts[i] = values.get(i).getAsString();
		return texts;
	}

	private LockElection session(JsonObject command) {
		LockElection session = sessions.get(text(command, "session"));
		if (session == null)
			throw new IllegalArgumentException("no session " + text(command, "session"));
		return session;
	}

	private Hold hold(JsonObject command) {
		Hold hold = holds.get(text(command, "hold"));
		if (hold == null)
			throw new IllegalArgumentException("no hold " + text(command, "hold"));
		return hold;
	}

	/** Returns a URL for a connection string with libpq's keywords. */
	private static String url(String dsn) {
		Map<String, String> words = Stream.of(dsn.trim().split("\\s+")).map(word -> word.split("=", 2))
				.collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
		String[] hosts = words.getOrDefault("host", "localhost").split(",");
		String[] ports = words.getOrDefault("port", "5432").split(",");
		List<String> places = new ArrayList<>();
		for (int i = 0; i < hosts.length; i++)
			places.add(hosts[i] + ":" + ports[Math.min(i, ports.length - 1)]);
		String url = "jdbc:postgresql://" + String.join(",", places) + "/" + words.getOrDefault("dbname", "postgres") + "?user="
				+ words.getOrDefault("user", "postgres");
		return words.containsKey("password") ? url + "&password=" + words.get("password") : url;
	}

	// --- commands ---

	private Runnable open(JsonObject command, JsonObject answer) {
		String name = text(command, "session");
		Options options = new Options().ttl(time(command, "ttl")).onState(state -> tell("state", "session", name, "state",
				state.name().toLowerCase(Locale.ROOT)));
		if (text(command, "name") != null)
			options = options.name(text(command, "name"));
		String dsn = text(command, "dsn");
		LockElection session;
		try {
			session = LockElection.connect(command.has("raw") && command.get("raw").getAsBoolean() ? dsn : url(dsn), options);
		} catch (RuntimeException e) {
			StringWriter shown = new StringWriter();
			e.printStackTrace(new PrintWriter(shown));
			answer.addProperty("shown", shown.toString());
			throw e;
		}
		sessions.put(name, session);
		answer.addProperty("lease", Long.toString(session.lease()));
		return null;
	}

	private Runnable keep(String name, Hold hold, JsonObject answer) {
		holds.put(name, hold);
		if (answer != null)
			answer.addProperty("token", Long.toString(hold.token()));
		return () -> hold.onLost(() -> tell("lost", "hold", name, "why", "the library says so"));
	}

	private Runnable acquire(JsonObject command, JsonObject answer) throws InterruptedException {
		String[] names = texts(command.getAsJsonArray("names"));
		String mode = text(command, "mode");
		Request request = "shared".equals(mode) ? Request.shared(names)
				: "permit".equals(mode) ? Request.permit(names[0], command.get("permits").getAsInt())
						: Request.exclusive(names);
		Hold hold = session(command).acquire(request.ttl(time(command, "ttl")), time(command, "wait"));
		return keep(text(command, "hold"), hold, answer);
	}

	private Runnable tryEach(JsonObject command, JsonObject answer) throws InterruptedException {
		String[] names = texts(command.getAsJsonArray("names"));
		String[] ids = texts(command.getAsJsonArray("holds"));
		Map<String, Hold> held = session(command).tryAcquireEach(List.of(names), "shared".equals(text(command, "mode")));
		JsonArray tokens = new JsonArray();
		List<Runnable> then = new ArrayList<>();
		for (int i = 0; i < names.length; i++) {
			Hold hold = held.get(names[i]);
			tokens.add(hold == null ? null : Long.toString(hold.token()));
			if (hold != null)
				then.add(keep(ids[i], hold, null));
		}
		answer.add("tokens", tokens);
		return () -> then.forEach(Runnable::run);
	}

	private Runnable campaign(JsonObject command, JsonObject answer) throws InterruptedException {
		Term term = session(command).campaign(text(command, "election"), text(command, "value"), time(command, "wait"));
		return keep(text(command, "hold"), term, answer);
	}

	private Runnable once(JsonObject command, JsonObject answer) throws InterruptedException {
		Duration work = command.has("ms") ? time(command, "ms") : Duration.ZERO;
		boolean ran = session(command).once(texts(command.getAsJsonArray("names"))[0], time(command, "hold_for"),
				() -> LockSupport.parkNanos(work.toNanos()));
		answer.addProperty("ran", ran);
		return null;
	}

	private Runnable cancel(JsonObject command, JsonObject answer) {
		Thread call = calls.get(command.get("of").getAsLong());
		if (call != null)
			call.interrupt();
		return null;
	}

	private Runnable valid(JsonObject command, JsonObject answer) {
		Hold hold = hold(command);
		answer.addProperty("valid", hold.isValid());
		answer.addProperty("deadline", hold.timeLeft().toNanos() / 1e6);
		return null;
	}

	private Runnable fence(JsonObject command, JsonObject answer) throws SQLException {
		try (Connection connection = DriverManager.getConnection(url(text(command, "dsn")));
				Statement statement = connection.createStatement()) {
			connection.setAutoCommit(false);
			hold(command).fence(connection);
			statement.execute(text(command, "sql"));
			connection.commit();
		}
		return null;
	}

	private Runnable proclaim(JsonObject command, JsonObject answer) throws InterruptedException {
		((Term) hold(command)).proclaim(text(command, "value"));
		return null;
	}

	private Runnable release(JsonObject command, JsonObject answer) {
		Hold hold = hold(command);
		holds.remove(text(command, "hold"));
		if (!hold.release(time(command, "hold_for")))
			answer.addProperty("status", "lost");
		return null;
	}

	private Runnable leader(JsonObject command, JsonObject answer) throws InterruptedException {
		Leader leader = session(command).leader(text(command, "election")).orElse(null);
		answer.addProperty("value", leader == null ? null : leader.value());
		answer.addProperty("term", leader == null ? null : Long.toString(leader.term()));
		return null;
	}

	private Runnable observe(JsonObject command, JsonObject answer) {
		String name = text(command, "observer");
		observers.put(name, session(command).observe(text(command, "election"), leader -> tell("leader", "observer", name,
				"value", leader.map(Leader::value).orElse(null), "term",
				leader.map(l -> Long.toString(l.term())).orElse(null))));
		return null;
	}

	private Runnable unobserve(JsonObject command, JsonObject answer) {
		observers.remove(text(command, "observer")).close();
		return null;
	}

	private Runnable state(JsonObject command, JsonObject answer) {
		answer.addProperty("state", session(command).state().name().toLowerCase(Locale.ROOT));
		return null;
	}

	private Runnable abandon(JsonObject command, JsonObject answer) {
		holds.remove(text(command, "hold"));
		return null;
	}

	private Runnable close(JsonObject command, JsonObject answer) {
		LockElection session = session(command);
		sessions.remove(text(command, "session"));
		Duration limit = time(command, "limit");
		if (limit == null)
			session.close();
		else if (!session.close(limit))
			answer.addProperty("status", "unknown");
		return null;
	}

	private void block(JsonObject command) {
		JsonObject answer = new JsonObject();
		double sent = stamp();
		double until = sent + command.get("ms").getAsDouble();
		while (stamp() < until)
			Thread.onSpinWait();
		answer.add("id", command.get("id"));
		answer.addProperty("status", "ok");
		answer.addProperty("sent", sent);
		answer.addProperty("at", stamp());
		write(answer);
	}

	private Runnable threads(JsonObject command, JsonObject answer) throws IOException {
		answer.addProperty("threads", Thread.getAllStackTraces().keySet().stream()
				.filter(thread -> thread.getName().matches("lock_election.*|PostgreSQL JDBC driver connection.*")).count());
		answer.addProperty("connections", connections());
		return null;
	}

	/** Returns the number of TCP connections of this process. */
	private static int connections() throws IOException {
		Set<String> own = new HashSet<>();
		try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
			for (Path file : files.collect(Collectors.toList())) {
				try {
					String target = Files.readSymbolicLink(file).toString();
					if (target.startsWith("socket:["))
						own.add(target.substring(8, target.length() - 1));
				} catch (IOException e) {
					// the descriptor was closed meanwhile
				}
			}
		}
		int connections = 0;
		for (String table : List.of("/proc/self/net/tcp", "/proc/self/net/tcp6")) {
			for (String line : Files.readAllLines(Path.of(table))) {
				String[] columns = line.trim().split("\\s+");
				if (columns.length > 9 && own.contains(columns[9]))
					connections++;
			}
		}
		return connections;
	}
}
