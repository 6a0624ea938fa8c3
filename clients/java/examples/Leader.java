import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import lockelection.LockElection;

/** Arguments: URL and name. Runs on every machine. One machine leads; if it dies, another one takes over. */
public class Leader {
	public static void main(String[] args) throws Exception {
		try (LockElection locks = LockElection.connect(args[0])) {
			locks.elect("scheduler", args[1], (term, stop) -> {
				for (System.out.println("leads " + term.token()); term.isValid() && !stop.isDone();) {
					try {
						stop.get(100, TimeUnit.MILLISECONDS); // a step of the work; returns immediately when it must stop
					} catch (TimeoutException e) {
						System.out.println("works " + term.token());
					}
				}
			}).ended().get();
		}
	}
}
