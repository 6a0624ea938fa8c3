import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * ZooKeeper, by Curator's recipes: one session for each client of the benchmark. Workloads and protocol are those of
 * harness.h. The environment variable ZOOKEEPER names the server. nanoTime() is the system's monotonic clock, so that
 * its values can be compared between processes.
 */
public final class Bench {
    private static final long NS_PER_S = 1_000_000_000L;
    private static final int SESSION_MS = 30_000;
    private static final int CONNECT_MS = 15_000;
    private static final int LEAD_MS = 5;
    private static final int REST_MS = 2;
    private static final int PARALLEL = 64; // candidates that enter the queue at the same time
    private static final int CONNECTIONS = 8; // connections for the candidates of a long queue
    private static final int FILL_STEP = 200; // locks in a transaction

    private static final Map<String, String> options = new HashMap<>();
    private static volatile long begins, ends = Long.MAX_VALUE;
    private static volatile long releasedAt;
    private static volatile int releasedBy = -1;

    /** An operation that a client repeats. */
    private interface Operation {
        void run(Client client) throws Exception;
    }

    private static final class Samples {
        private long[] values = new long[4096];
        private int count;

        void add(long value) {
            if (count == values.length) {
                values = Arrays.copyOf(values, count * 2);
            }
            values[count++] = value;
        }

        void addAll(Samples other) {
            for (int i = 0; i < other.count; i++) {
                add(other.values[i]);
            }
        }

        double percentile(double p) {
            return count == 0 ? 0 : values[(int) (p * (count - 1) + 0.5)] / 1000.0;
        }

        /** Sorts the samples, and prints their figures. */
        void print(long all, double seconds, String extra) {
            Arrays.sort(values, 0, count);
            System.out.printf("ops=%d all=%d rate=%.1f p50=%.1f p90=%.1f p99=%.1f max=%.1f%s%n", count, all,
                    count / seconds, percentile(0.5), percentile(0.9), percentile(0.99), percentile(1), extra);
        }
    }

    private static final class Client {
        final int number;
        final CuratorFramework curator;
        final SplittableRandom random;
        final Samples samples = new Samples();
        InterProcessMutex own;
        String ownNode;
        long all;
        long again; // grants to the client that had released last

        Client(int number, int sessionMs) throws Exception {
            this.number = number;
            random = new SplittableRandom(System.nanoTime() + number);
            curator = CuratorFrameworkFactory.newClient(System.getenv("ZOOKEEPER"), sessionMs, CONNECT_MS, new RetryOneTime(1000));
            curator.start();
            if (!curator.blockUntilConnected(CONNECT_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("not connected");
            }
        }

        void done(long at, long latency) {
            all++;
            if (at >= begins && at < ends) {
                samples.add(latency);
            }
        }

        void granted() {
            long at = System.nanoTime();
            int by = releasedBy;
            if (by == number) {
                again++;
            } else if (by >= 0) {
                done(at, at - releasedAt);
            }
        }

        void giving() {
            releasedBy = number;
            releasedAt = System.nanoTime();
        }
    }

    private static double option(String key, double unset) {
        String text = options.get(key);
        return text == null ? unset : Double.parseDouble(text);
    }

    private static long number(String key, long unset) {
        return (long) option(key, unset);
    }

    private static void fail(Throwable e) {
        System.err.println("zookeeper: " + e);
        Runtime.getRuntime().halt(1);
    }

    /** Starts a thread. If it fails, the program fails. */
    private static Thread thread(Client client, Operation operation) {
        Thread thread = new Thread(null, () -> {
            try {
                operation.run(client);
            } catch (Throwable e) {
                fail(e);
            }
        }, "client", 256 * 1024);
        thread.start();
        return thread;
    }

    // --- workloads that repeat an operation ---

    private static void pair(Client c) throws Exception {
        long start = System.nanoTime();
        InterProcessMutex mutex = new InterProcessMutex(c.curator, "/locks/k" + (c.random.nextLong(number("names", 1_000_000)) + 1));
        mutex.acquire();
        mutex.release();
        long end = System.nanoTime();
        c.done(end, end - start);
    }

    private static void hot(Client c) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(c.curator, "/locks/hot");
        mutex.acquire();
        c.granted();
        c.giving();
        mutex.release();
    }

    private static void lead(Client c) throws Exception {
        LeaderLatch latch = new LeaderLatch(c.curator, "/elections/resign");
        latch.start();
        latch.await();
        c.granted();
        Thread.sleep(LEAD_MS);
        c.giving();
        latch.close();
        Thread.sleep(REST_MS);
    }

    private static void tryOnce(Client c) throws Exception {
        long start = System.nanoTime();
        if (new InterProcessMutex(c.curator, "/locks/held").acquire(0, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("granted what somebody else holds");
        }
        long end = System.nanoTime();
        c.done(end, end - start);
    }

    private static void takeOwn(Client c) throws Exception {
        c.own = new InterProcessMutex(c.curator, "/locks/renew " + c.number);
        c.own.acquire();
        c.ownNode = c.own.getParticipantNodes().iterator().next();
    }

    /** Renews by a request, each of which keeps the session alive. This one also checks that the lock still exists. */
    private static void renew(Client c) throws Exception {
        long start = System.nanoTime();
        if (c.curator.checkExists().forPath(c.ownNode) == null) {
            throw new IllegalStateException("lost");
        }
        long end = System.nanoTime();
        c.done(end, end - start);
    }

    private static void repeat(int n, double seconds, Operation prepare, Operation operation) throws Exception {
        CountDownLatch opened = new CountDownLatch(n), start = new CountDownLatch(1);
        List<Client> clients = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            Client client = new Client(i, SESSION_MS);
            clients.add(client);
            threads.add(thread(client, c -> {
                if (prepare != null) {
                    prepare.run(c);
                }
                opened.countDown();
                start.await();
                while (System.nanoTime() < ends) {
                    operation.run(c);
                }
            }));
        }
        opened.await();
        begins = System.nanoTime() + (long) (option("warmup", 1) * NS_PER_S);
        ends = begins + (long) (seconds * NS_PER_S);
        start.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        Samples samples = new Samples();
        long all = 0, again = 0;
        for (Client client : clients) {
            samples.addAll(client.samples);
            all += client.all;
            again += client.again;
            client.curator.close();
        }
        samples.print(all, seconds, again > 0 ? " own=" + again : "");
    }

    private static void tryHeld(int n, double seconds) throws Exception {
        Client holder = new Client(-1, SESSION_MS);
        new InterProcessMutex(holder.curator, "/locks/held").acquire();
        repeat(n, seconds, null, Bench::tryOnce);
        holder.curator.close();
    }

    // --- leaders that die ---

    private static String crashPath(int i) {
        return "/elections/crash " + i;
    }

    /** Runs in the process that will be killed. Sends requests so often that the session's own pings are never due. */
    private static void leaders(int n) throws Exception {
        for (int i = 0; i < n; i++) {
            Client client = new Client(i, (int) number("ttl", 2000));
            thread(client, c -> {
                int ttl = c.curator.getZookeeperClient().getZooKeeper().getSessionTimeout();
                LeaderLatch latch = new LeaderLatch(c.curator, crashPath(c.number));
                latch.start();
                latch.await();
                for (;;) {
                    long sent = System.nanoTime();
                    c.curator.checkExists().forPath("/");
                    long answered = System.nanoTime();
                    synchronized (System.out) {
                        System.out.println(c.number + " " + sent + " " + answered + " " + ttl);
                        System.out.flush();
                    }
                    Thread.sleep(50 + c.random.nextInt(100));
                }
            });
        }
        Thread.sleep(Long.MAX_VALUE);
    }

    private static Process startLeaders(int n) throws Exception {
        return new ProcessBuilder(ProcessHandle.current().info().command().orElse("java"), "-cp",
                System.getProperty("java.class.path"), "Bench", "leaders", String.valueOf(n), "1",
                "ttl=" + number("ttl", 2000)).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    private static void crash(int n, double seconds) throws Exception {
        Process child = startLeaders(n);
        long[][] last = new long[n][];
        CountDownLatch leading = new CountDownLatch(n);
        Thread reader = thread(null, ignored -> {
            BufferedReader lines = new BufferedReader(new InputStreamReader(child.getInputStream()));
            for (String text = lines.readLine(); text != null; text = lines.readLine()) {
                String[] fields = text.split(" ");
                if (fields.length < 4 || fields[3].isEmpty()) {
                    break; // killed in the middle of a line
                }
                int i = Integer.parseInt(fields[0]);
                boolean first = last[i] == null;
                last[i] = new long[] {Long.parseLong(fields[1]), Long.parseLong(fields[2]), Long.parseLong(fields[3])};
                if (first) {
                    leading.countDown();
                }
            }
        });
        if (!leading.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the leaders did not come up");
        }
        long[] elected = new long[n];
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            threads.add(thread(new Client(i, SESSION_MS), c -> {
                LeaderLatch latch = new LeaderLatch(c.curator, crashPath(c.number));
                latch.start();
                latch.await();
                elected[c.number] = System.nanoTime();
                latch.close();
                c.curator.close();
            }));
        }
        Thread.sleep((long) (seconds * 1000));
        child.destroyForcibly();
        reader.join();
        Samples over = new Samples();
        int early = 0;
        for (int i = 0; i < n; i++) {
            threads.get(i).join();
            long ttl = last[i][2] * (NS_PER_S / 1000);
            early += elected[i] < last[i][0] + ttl ? 1 : 0;
            over.add(elected[i] - last[i][1] - ttl);
        }
        over.print(n, seconds, " early=" + early + " ttl=" + last[0][2]);
    }

    // --- a long queue: many latches over a few sessions ---

    private static final class Candidate {
        LeaderLatch latch;
        volatile long at;
    }

    private static Candidate enter(CuratorFramework curator, LinkedBlockingQueue<Candidate> granted) throws Exception {
        Candidate candidate = new Candidate();
        candidate.latch = new LeaderLatch(curator, "/elections/queue");
        candidate.latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                candidate.at = System.nanoTime();
                granted.add(candidate);
            }

            @Override
            public void notLeader() {
            }
        }, Runnable::run);
        candidate.latch.start();
        return candidate;
    }

    private static int queued(CuratorFramework curator) throws Exception {
        Stat stat = curator.checkExists().forPath("/elections/queue");
        return stat == null ? 0 : stat.getNumChildren();
    }

    private static void untilQueued(CuratorFramework curator, int n) throws Exception {
        while (queued(curator) < n) {
            Thread.sleep(1);
        }
    }

    /** Entering the queue takes at most the limit of seconds, because each candidate reads the whole queue. */
    private static void queue(double seconds) throws Exception {
        int wanted = (int) number("queued", 10_000) + 1, n = 0;
        LinkedBlockingQueue<Candidate> granted = new LinkedBlockingQueue<>();
        CuratorFramework[] curators = new CuratorFramework[CONNECTIONS];
        for (int i = 0; i < CONNECTIONS; i++) {
            curators[i] = new Client(i, SESSION_MS).curator;
        }
        long start = System.nanoTime(), limit = start + number("limit", 20) * NS_PER_S;
        while (n < wanted && System.nanoTime() < limit) {
            enter(curators[n++ % CONNECTIONS], granted);
            untilQueued(curators[0], n - PARALLEL);
        }
        untilQueued(curators[0], n);
        long filled = System.nanoTime() - start;
        Samples samples = new Samples();
        Candidate holder = granted.take();
        for (long end = System.nanoTime() + (long) (seconds * NS_PER_S); System.nanoTime() < end;) {
            Thread.sleep(REST_MS);
            long sent = System.nanoTime();
            holder.latch.close();
            Candidate next = granted.take();
            samples.add(next.at - sent);
            enter(curators[samples.count % CONNECTIONS], granted);
            untilQueued(curators[0], n);
            holder = next;
        }
        samples.print(samples.count, seconds, " queued=" + (n - 1) + " entered=" + String.format("%.1f", n * (double) NS_PER_S / filled));
        System.out.flush();
        for (CuratorFramework curator : curators) {
            curator.close();
        }
        Runtime.getRuntime().halt(0);
    }

    // --- very many held locks: the nodes that InterProcessMutex leaves, many in a transaction ---

    private static void fill(double seconds) throws Exception {
        long names = number("names", 1_000_000), start, limit;
        Client holder = new Client(0, SESSION_MS);
        ZooKeeper zookeeper = holder.curator.getZookeeperClient().getZooKeeper();
        Semaphore inFlight = new Semaphore(16);
        AtomicLong held = new AtomicLong();
        holder.curator.create().orSetData().forPath("/filled");
        start = System.nanoTime();
        limit = start + (long) (seconds * NS_PER_S);
        for (long first = 1; first <= names && System.nanoTime() < limit; first += FILL_STEP) {
            List<Op> ops = new ArrayList<>();
            long last = Math.min(first + FILL_STEP - 1, names);
            for (long i = first; i <= last; i++) {
                ops.add(Op.create("/filled/held" + i, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER));
                ops.add(Op.create("/filled/held" + i + "/lock-0000000000", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL));
            }
            long count = last - first + 1;
            inFlight.acquire();
            zookeeper.multi(ops, (rc, path, ctx, results) -> {
                if (rc != 0) {
                    fail(new IllegalStateException("multi: " + rc));
                }
                held.addAndGet(count);
                inFlight.release();
            }, null);
        }
        inFlight.acquire(16);
        System.out.printf("ops=%d all=%d rate=%.1f p50=0 p90=0 p99=0 max=0%n", held.get(), held.get(),
                held.get() * (double) NS_PER_S / (System.nanoTime() - start));
        System.out.flush();
        while (System.in.read() >= 0) {
            // keep the session open, because the locks end with it
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String workload, int n, double seconds) throws Exception {
        switch (workload) {
            case "pairs": repeat(n, seconds, null, Bench::pair); break;
            case "hot": repeat(n, seconds, null, Bench::hot); break;
            case "try": tryHeld(n, seconds); break;
            case "renew": repeat(n, seconds, Bench::takeOwn, Bench::renew); break;
            case "crash": crash(n, seconds); break;
            case "leaders": leaders(n); break;
            case "resign": repeat(n, seconds, null, Bench::lead); break;
            case "queue": queue(seconds); break;
            case "fill": fill(seconds); break;
            default: throw new IllegalArgumentException("cannot do this: " + workload);
        }
    }

    public static void main(String[] args) {
        try {
            for (int i = 3; i < args.length; i++) {
                int at = args[i].indexOf('=');
                options.put(args[i].substring(0, at), args[i].substring(at + 1));
            }
            run(args[0], Integer.parseInt(args[1]), Double.parseDouble(args[2]));
        } catch (Throwable e) {
            fail(e);
        }
        System.exit(0);
    }
}
