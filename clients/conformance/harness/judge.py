"""Checks the times at which each client believed it held a lock, on one clock: holders must not overlap."""

from .agent import Failure, Violation

# Some clients report deadlines in whole milliseconds.
ROUNDING = 2
# Time for the thread or loop that reports a loss, on a busy machine.
TOLD_LATE = 400
EARLY = 50


class Hold:
    """A grant of an agent, and its later reports about it."""

    def __init__(self, agent, name, names, mode, permits, answer):
        self.agent = agent
        self.hold = name
        self.names = names
        self.mode = mode
        self.permits = permits
        self.token = answer.get("token")
        self.granted = answer["at"]
        self.promised = self.granted  # end of the validity that the agent has reported
        self.seen = self.granted  # time of its last such report
        self.ended = None  # time at which its release began
        self.lost = None  # time at which it was reported as lost
        self.why = None
        self.forced = False
        self.asked = None  # the pending "valid" command
        self.leaving = False  # its release is about to begin

    def __str__(self):
        return f"{self.agent.name}'s {self.hold} of {', '.join(self.names)}"

    def sample(self, answer):
        """Handles a reply to "valid"."""
        if answer.get("status") != "ok" or (self.ended is not None and answer["at"] > self.ended):
            return
        if not answer["valid"]:
            return
        if self.lost is not None and answer["sent"] > self.lost:
            raise Violation(f"{self} was told lost at {self.lost:.0f}, and is valid at {answer['at']:.0f}")
        self.seen = max(self.seen, answer["at"])
        # counted from before the call: the agent may have been stopped after the client read the clock
        self.promised = max(self.promised, answer["sent"] + answer["deadline"])

    def until(self):
        """Returns the end of the time in which the agent believed it held the lock."""
        end = self.promised if self.ended is None else min(self.ended, self.promised)
        if self.lost is not None and self.lost < end:
            # the server ended it early
            return min(self.seen, self.lost)
        return min(end, self.seen) if self.forced else end


def excludes(a, b):
    return "exclusive" in (a.mode, b.mode)


def check_exclusion(holds):
    """Checks that no exclusive holds overlap, and that the number of permits is not exceeded."""
    by_name = {}
    for hold in holds:
        for name in hold.names:
            by_name.setdefault(name, []).append(hold)
    for name, those in by_name.items():
        those.sort(key=lambda h: h.granted)
        if all(hold.mode == "shared" for hold in those):
            continue
        for i, later in enumerate(those):
            beside = [h for h in those[:i] if h.until() > later.granted + ROUNDING]
            for earlier in beside:
                if excludes(earlier, later):
                    raise Violation(
                        f"two hold {name} at a time: {earlier} until {earlier.until():.1f}, and {later} since "
                        f"{later.granted:.1f}"
                    )
            if later.mode == "permit" and len(beside) >= later.permits:
                raise Violation(f"{len(beside) + 1} hold {later.permits} permits of {name} at {later.granted:.1f}")


def check_tokens(holds):
    """Checks that a later exclusive hold of a name has a higher token."""
    by_name = {}
    for hold in sorted(holds, key=lambda h: h.granted):
        if hold.mode != "exclusive" or hold.token is None:
            continue
        for name in hold.names:
            before = by_name.get(name)
            if before is not None and int(before.token) >= int(hold.token):
                raise Violation(f"tokens of {name} do not grow: {before.token} of {before}, {hold.token} of {hold}")
            by_name[name] = hold


def check_told(holds, slow):
    """Checks that an expired hold is reported as lost at its deadline, or soon after, if its agent could run.

    A busy machine can be an excuse for being late, as it is for all that is slow.
    """
    for hold in holds:
        if hold.lost is None or hold.forced or hold.promised == hold.granted:  # its deadline was never read
            continue
        late = hold.lost - hold.promised
        if late > TOLD_LATE * slow and not hold.agent.was_stopped(hold.promised, hold.lost):
            raise Failure(f"{hold}: told lost {late:.0f} ms after its deadline")


def check_kept(holds):
    """Checks that a hold that was not forced out is not lost before its reported deadline."""
    for hold in holds:
        if hold.lost is not None and not hold.forced and hold.ended is None and hold.lost < hold.promised - EARLY:
            raise Violation(f"{hold}: lost {hold.promised - hold.lost:.0f} ms before its deadline: {hold.why}")


def check(holds, slow):
    """Judges one scenario. slow: factor by which everything may take longer than on an idle machine."""
    check_exclusion(holds)
    check_tokens(holds)
    check_told(holds, slow)
    check_kept(holds)
