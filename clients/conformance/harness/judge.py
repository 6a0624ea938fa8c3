"""Who believed to hold what, and when: by stamps of one clock, those beliefs must not meet."""

from .agent import Failure, Violation

# Deadlines are told in whole milliseconds by some.
ROUNDING = 2
# A loss is told by a thread or loop of its own, on a busy machine.
TOLD_LATE = 400
EARLY = 50


class Hold:
    """What an agent was granted, and what it has said of it since."""

    def __init__(self, agent, name, names, mode, permits, answer):
        self.agent = agent
        self.hold = name
        self.names = names
        self.mode = mode
        self.permits = permits
        self.token = answer.get("token")
        self.granted = answer["at"]
        self.promised = self.granted  # until then the agent has said that it holds
        self.seen = self.granted  # and it was last seen to say so at this time
        self.ended = None  # when it began to give it back
        self.lost = None  # when it was told lost
        self.why = None
        self.forced = False
        self.asked = None  # the question that is under way, whether it is valid
        self.leaving = False  # it is about to be given back

    def __str__(self):
        return f"{self.agent.name}'s {self.hold} of {', '.join(self.names)}"

    def sample(self, answer):
        """An answer to "valid"."""
        if answer.get("status") != "ok" or (self.ended is not None and answer["at"] > self.ended):
            return
        if not answer["valid"]:
            return
        if self.lost is not None and answer["sent"] > self.lost:
            raise Violation(f"{self} was told lost at {self.lost:.0f}, and is valid at {answer['at']:.0f}")
        self.seen = max(self.seen, answer["at"])
        # counted from before the call: the agent may not have run for a while after the client had looked at the clock
        self.promised = max(self.promised, answer["sent"] + answer["deadline"])

    def until(self):
        """The end of what the agent believed."""
        end = self.promised if self.ended is None else min(self.ended, self.promised)
        if self.lost is not None and self.lost < end:
            # the server has ended it before its time
            return min(self.seen, self.lost)
        return min(end, self.seen) if self.forced else end


def excludes(a, b):
    return "exclusive" in (a.mode, b.mode)


def check_exclusion(holds):
    """No two that exclude each other, and no more permits than there are."""
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
    """Of exclusive holds of a name the later has the higher token."""
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
    """A hold whose time is over is told lost, then and not much later, where its agent could run.

    A busy machine can be an excuse for being late, as it is for all that is slow.
    """
    for hold in holds:
        if hold.lost is None or hold.forced or hold.promised == hold.granted:  # nobody has asked for its deadline
            continue
        late = hold.lost - hold.promised
        if late > TOLD_LATE * slow and not hold.agent.was_stopped(hold.promised, hold.lost):
            raise Failure(f"{hold}: told lost {late:.0f} ms after its deadline")


def check_kept(holds):
    """What nobody has forced is not lost before the deadline that was told."""
    for hold in holds:
        if hold.lost is not None and not hold.forced and hold.ended is None and hold.lost < hold.promised - EARLY:
            raise Violation(f"{hold}: lost {hold.promised - hold.lost:.0f} ms before its deadline: {hold.why}")


def check(holds, slow):
    """Of one scenario; slow: how much longer than on an idle machine everything may take."""
    check_exclusion(holds)
    check_tokens(holds)
    check_told(holds, slow)
    check_kept(holds)
