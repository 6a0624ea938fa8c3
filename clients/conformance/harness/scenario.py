"""Runs the steps of a scenario, with its agents, its server and its faults."""

import asyncio
import fnmatch
import os
import re
import time

import psycopg

from . import edition, judge, language
from .agent import Agent, Failure, Violation, now
from .proxy import Fault, Proxy
from .server import Clock, Pooler

TTL = int(os.environ.get("LE_TTL", "3000"))
SAMPLE_EVERY = 0.15
LEFT_LIMIT = 4000  # and the TTL
LIMIT = 120
START_LIMIT = 60

# Arguments of commands that are written without a key.
ARGUMENTS = {
    "open": ["session"],
    "acquire": ["session", "hold", "names"],
    "try_each": ["session", "holds", "names"],
    "campaign": ["session", "hold", "election"],
    "once": ["session", "names"],
    "cancel": ["of"],
    "valid": ["hold"],
    "fence": ["hold", "sql"],
    "proclaim": ["hold", "value"],
    "resign": ["hold"],
    "release": ["hold"],
    "leader": ["session", "election"],
    "observe": ["session", "observer", "election"],
    "unobserve": ["observer"],
    "state": ["session"],
    "abandon": ["hold"],
    "close": ["session"],
    "fork": ["session", "hold"],
    "block": ["ms"],
    "threads": [],
}
GIVE_BACK = ("release", "resign", "abandon", "close")
TIMES = ("ttl", "wait", "hold_for", "limit", "ms")
# Features that a command requires of an agent.
NEEDS = {
    "try_each": "each",
    "campaign": "election",
    "observe": "observe",
    "fence": "fence",
    "cancel": "cancel",
    "fork": "fork",
    "once": "once",
    "abandon": "abandon",
    "block": "block",
    "threads": "threads",
}


def needs_of(steps):
    """Returns the features that these steps use."""
    needs = set()
    for step in steps:
        if step.verb in NEEDS:
            needs.add(NEEDS[step.verb])
        if step.verb == "acquire":
            if "," in step.args[2]:
                needs.add("several")
            mode = step.options.get("mode")
            needs |= {"shared"} if mode == "shared" else {"permits"} if mode == "permit" else set()
            if "ttl" in step.options:
                needs.add("own_ttl")
        if "hold_for" in step.options:
            needs.add("hold_for")
    return needs


class Scenario:
    """One run of a scenario by one client."""

    def __init__(self, arena, name, text, client, ttl=TTL):
        self.arena = arena
        self.name = name
        self.text = text
        self.client = client
        self.steps = language.parse(text["steps"])
        self.run_id = f"{client.tag}/{name}"
        self.role = f"run_{arena.next_number()}"
        self.ttl = ttl
        self.slow = ttl / TTL  # factor by which everything may take longer than on an idle machine
        self.lines = []
        self.agents = {}
        self.proxies = {}
        self.calls = {}
        self.holds = {}
        self.all_holds = []
        self.leases = {}
        self.marks = {}
        self.server = self.standby = self.pooler = None
        self.tasks = []
        self.broken = None  # violation that the samples have found
        self.began = time.monotonic()

    def log(self, line):
        self.lines.append(f"{(time.monotonic() - self.began) * 1000:9.1f} {line[:400]}")

    # --- names and values ---

    def scoped(self, name):
        return f"{self.run_id}/{name}"

    def fill(self, text):
        """{name:n} a name as the server knows it, {lease:a.s}, {token:a.x}, {role}, {table} of this run: as SQL."""

        def one(match):
            kind, what = match.group(1), match.group(2)
            if kind == "name":
                return "'" + self.scoped(what).replace("'", "''") + "'"
            if kind == "lease":
                return str(self.leases[what])
            if kind == "token":
                return str(self.holds[what].token)
            raise Failure(f"what is {match.group(0)}?")

        text = text.replace("{role}", f"'{self.role}'").replace("{role:id}", self.role)
        text = text.replace("{table}", f"table_{self.role}")
        return re.sub(r"\{(\w+):([^}]*)\}", one, text)

    def ms(self, text):
        return language.duration(text, self.ttl)

    def limit(self, step, default=language.ANSWER_LIMIT):
        """Returns the limit of a step, which is longer on a slow machine, like the TTL."""
        if step.within.endswith("T"):
            return self.ms(step.within)
        return self.slow * (int(step.within) if step.within else default)

    async def dsn(self, options):
        via = options.pop("via", "direct")
        user = options.pop("user", self.role)
        database = options.pop("dbname", "postgres")
        extra = "".join(f" {key}={options.pop(key)}" for key in ("password",) if key in options)
        if via == "direct":
            ports = [self.server.port]
        elif via == "nobody":
            ports = [1]
        elif via == "one-away":
            ports = [1, self.server.port]
        elif via == "standby":
            ports = [self.standby.port]
        elif via == "standby-first":
            ports = [self.standby.port, self.server.port]
        elif via == "both":
            ports = [self.server.port, self.standby.port]
        else:
            ports = [(await self.proxy(via)).port]
        hosts = ",".join("127.0.0.1" for _ in ports)
        return f"host={hosts} port={','.join(map(str, ports))} dbname={database} user={user}{extra}"

    async def proxy(self, name):
        if name not in self.proxies:
            target = self.server.target
            if name.startswith("pooler"):
                self.pooler = Pooler(f"{self.arena.directory}/pooler-{self.role}", self.server, self.role)
                await self.pooler.start()
                target = self.pooler.target
            self.proxies[name] = Proxy(target)
            await self.proxies[name].start()
        return self.proxies[name]

    async def agent(self, name):
        if name not in self.agents:
            agent = self.agents[name] = Agent(name, self.client, self.log, self.text.get("secret"))
            agent.clock = Clock(f"{self.arena.directory}/clock-{self.role}-{name}") if self.text.get("agent_clock") else None
            await agent.start(agent.clock.env if agent.clock else {})
            # the start time of a language does not count
            await asyncio.wait_for(agent.give(do="threads").answer, START_LIMIT)
        return self.agents[name]

    # --- the whole ---

    async def run(self):
        try:
            await asyncio.wait_for(self.whole(), LIMIT * self.slow)
        except asyncio.TimeoutError:
            raise Failure(self.story(f"not over within {LIMIT * self.slow} s")) from None
        except Violation as e:
            raise Violation(self.story(f"{e}")) from None
        except (Failure, psycopg.Error, OSError) as e:
            raise Failure(self.story(f"{e}")) from None
        finally:
            await self.tidy()

    def story(self, what):
        return f"{self.name}: {what}\n" + "\n".join(self.lines[-70:])

    async def whole(self):
        if self.text.get("server", "shared") == "own":
            self.server = await self.arena.template.copy()
            settings = self.text.get("settings", [])
            for setting in settings:
                if edition.setting(setting) is None:
                    self.server.configure(setting)
            if self.text.get("clock"):
                self.server.own_clock()
            await self.server.start()
            for sql in filter(None, map(edition.setting, settings)):
                await self.server.sql(sql)
            if self.text.get("standby"):
                self.standby = await self.arena.template.standby_of(self.server)
        else:
            self.server = self.arena.shared
        await self.server.sql(f'CREATE ROLE "{self.role}" LOGIN')
        self.tasks.append(asyncio.create_task(self.sample()))
        for step in self.steps:
            self.log(f"-- {step.line}")
            try:
                await self.step(step)
                self.take_losses()
                self.check_secret()
                if self.broken:
                    raise self.broken
            except (Failure, KeyError) as e:
                what = str(e) if isinstance(e, Failure) else repr(e)
                kind = Violation if isinstance(e, Violation) else Failure
                raise kind(f"line {step.number}: {step.line}: {what}") from None
        await self.finish()

    async def finish(self):
        """Checks that all agents end normally, nothing is left, and no holders have overlapped."""
        for proxy in self.proxies.values():
            proxy.heal()
        await asyncio.sleep(0)
        for agent in self.agents.values():
            if agent.is_stopped():
                agent.go_on()
            if not agent.expected_end:
                end = now()
                await agent.quit(5000 * self.slow)
                for hold in self.all_holds:
                    if hold.agent is agent and hold.ended is None:
                        hold.ended = end
        self.take_losses()
        judge.check(self.all_holds, self.slow)
        self.check_secret()
        for agent in self.agents.values():
            unasked = [e for e in agent.events if e["event"] == "unasked"]
            if unasked:
                raise Violation(f"{agent.name} has answered what nobody asked, or twice: {unasked[0]}")
        for proxy in self.proxies.values():
            proxy.reset()  # dropped connections still exist on the server's side
        if self.text.get("left", True):
            await self.nothing_left()

    def check_secret(self):
        """Checks that no agent has written the secret, in a reply or elsewhere."""
        for agent in self.agents.values():
            if agent.leaks:
                raise Violation(f"{agent.name} has shown the secret: {agent.leaks[0]}")

    async def nothing_left(self):
        if self.server.process is not None and self.server.process.returncode is not None:
            return
        sql = (
            "SELECT concat_ws(', ',"
            f" (SELECT count(*) || ' connections' FROM pg_stat_activity WHERE usename = '{self.role}' HAVING count(*) > 0),"
            f" (SELECT 'lock ' || min(name) FROM lock_election.locks WHERE role::text = '{self.role}' AND token IS NOT NULL"
            "   HAVING count(*) > 0),"
            f" (SELECT 'place for ' || min(name) FROM lock_election.waiters WHERE role::text = '{self.role}'"
            "   HAVING count(*) > 0),"
            f" (SELECT 'lease ' || min(lease) FROM lock_election.leases WHERE role::text = '{self.role}'"
            "   HAVING count(*) > 0))"
        )
        if self.pooler:
            await self.pooler.end()
        end = now() + self.ttl + LEFT_LIMIT * self.slow
        while left := await self.server.sql(sql):
            if now() > end:
                raise Failure(f"left behind: {left}")
            await asyncio.sleep(0.1)

    async def tidy(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for agent in self.agents.values():
            await agent.reap()
        for proxy in self.proxies.values():
            await proxy.close()
        if self.pooler:
            await self.pooler.end()
        for server in (self.server, self.standby):
            if server is not None and server is not self.arena.shared:
                await server.end()

    # --- what agents believe ---

    async def sample(self):
        """Repeatedly reads whether the holds are valid, and until when."""
        while self.text.get("sample", True):
            for hold in list(self.holds.values()):
                agent = hold.agent
                call = hold.asked
                if call is not None and call.answer.done():
                    self.sampled(hold, call.answer.result())
                if (call is None or call.answer.done()) and not hold.leaving and not agent.is_stopped() \
                        and not agent.dead_at:
                    hold.asked = agent.give(quiet=True, do="valid", hold=hold.hold)
            await asyncio.sleep(SAMPLE_EVERY)

    def sampled(self, hold, answer):
        try:
            hold.sample(answer)
        except Failure as e:
            self.broken = self.broken or e

    def take_losses(self):
        for agent in self.agents.values():
            for event in agent.events:
                if event.get("event") != "lost" or event.get("taken"):
                    continue
                event["taken"] = True
                hold = self.holds.get(f"{agent.name}.{event['hold']}")
                if hold is None:
                    if any(h.agent is agent and h.hold == event["hold"] and h.ended and h.ended < event["at"]
                           for h in self.all_holds):
                        continue  # during its release
                    raise Violation(f"{agent.name} was told lost what it did not hold: {event['hold']}")
                if hold.lost is not None:
                    raise Violation(f"{hold} was told lost twice")
                hold.lost, hold.why = event["at"], event.get("why")

    def granted(self, agent, command, answer):
        if answer["status"] != "ok":
            return
        if command["do"] == "try_each":
            for hold, name, token in zip(command["holds"], command["names"], answer["tokens"]):
                if token is not None:
                    self.add_hold(agent, hold, [name], command["mode"], 0, {**answer, "token": token})
        elif command["do"] == "campaign":
            self.add_hold(agent, command["hold"], ["election " + command["election"]], "exclusive", 0, answer)
        else:
            one = answer.get("token") or answer["tokens"][0]
            self.add_hold(agent, command["hold"], command["names"], command["mode"], command.get("permits", 0),
                          {**answer, "token": one})

    def add_hold(self, agent, hold, names, mode, permits, answer):
        new = judge.Hold(agent, hold, names, mode, permits, answer)
        new.forced = self.text.get("forced", False)
        self.holds[f"{agent.name}.{hold}"] = new
        self.all_holds.append(new)

    def given_back(self, agent, command, answer):
        """Ends the belief of the client when the release is called."""
        ends = answer.get("sent", answer["at"])
        for key, hold in list(self.holds.items()):
            mine = hold.agent is agent
            if mine and (command["do"] == "close" or hold.hold == command.get("hold")):
                hold.ended = ends
                del self.holds[key]

    # --- steps ---

    async def step(self, step):
        special = getattr(self, f"step_{step.actor}", None)
        if special:
            await special(step)
        elif step.actor.startswith(("proxy", "pooler")):
            await self.step_proxy(step)
        elif step.verb == "" or step.verb == "pending":
            await self.step_label(step)
        elif step.verb in ARGUMENTS:
            await self.step_command(step)
        elif hasattr(self, f"agent_{step.verb}"):
            await getattr(self, f"agent_{step.verb}")(await self.agent(step.actor), step)
        else:
            raise Failure("what is this?")

    async def command(self, step):
        options = dict(step.options)
        command = {"do": step.verb}
        wanted = ARGUMENTS[step.verb]
        if len(wanted) != len(step.args):
            raise Failure(f"{step.verb} takes {wanted}")
        command.update(zip(wanted, step.args))
        if step.verb == "open":
            command["dsn"] = options.pop("raw") if "raw" in options else await self.dsn(options)
            command["raw"] = "raw" in step.options
            command["ttl"] = self.ttl
            command["name"] = f"{self.name}"[:100]
        if step.verb == "fence":
            options.setdefault("user", "postgres" if self.text.get("superuser_fence") else self.role)
            command["dsn"] = await self.dsn(options)
            command["sql"] = self.fill(command["sql"])
        for key in ("names", "holds"):
            if key in command:
                command[key] = command[key].split(",")
        if "names" in command:
            command["names"] = [n[1:] if n.startswith("=") else self.scoped(n) for n in command["names"]]
            command["mode"] = "exclusive"
        if "election" in command:
            command["election"] = self.scoped(command["election"])
        if step.verb in ("acquire", "campaign"):
            command["wait"] = None
        if step.verb == "campaign":
            command["value"] = step.actor
        if step.verb == "close":
            command["limit"] = 2000
        if "ms" in command:
            command["ms"] = self.ms(command["ms"])
        for key, text in options.items():
            command[key] = self.ms(text) if key in TIMES else int(text) if key == "permits" else text
        if step.verb == "cancel":
            command["of"] = self.calls[command["of"]].command["id"]
        return command

    async def step_command(self, step):
        agent = await self.agent(step.actor)
        command = await self.command(step)
        if step.verb == "block":
            start = now()
            agent.blocked.append([start, start + command["ms"] + 200])
        if step.verb in GIVE_BACK:
            await self.leave(agent, command)
        call = agent.give(**command)
        task = asyncio.create_task(self.take_answer(agent, call))
        self.tasks.append(task)
        if step.label:
            self.calls[step.label] = call
            call.taken = task
        else:
            await self.expect(call, task, step)

    async def leave(self, agent, command):
        """Forgets the name of a hold before its release, so that it is no longer checked."""
        asked = []
        for hold in self.holds.values():
            if hold.agent is agent and (command["do"] == "close" or hold.hold == command["hold"]):
                hold.leaving = True
                asked += [hold.asked.answer] if hold.asked else []
        if asked and not agent.is_stopped():
            await asyncio.wait(asked, timeout=1)

    async def take_answer(self, agent, call):
        answer = await asyncio.shield(call.answer)
        do = call.command["do"]
        if do in ("acquire", "campaign", "try_each"):
            self.granted(agent, call.command, answer)
        elif do in GIVE_BACK and answer["status"] != "dead":
            self.given_back(agent, call.command, answer)
        elif do == "open" and answer["status"] == "ok":
            self.leases[f"{agent.name}.{call.command['session']}"] = answer.get("lease")
        return answer

    async def expect(self, call, task, step):
        limit = self.limit(step)
        try:
            answer = await asyncio.wait_for(asyncio.shield(task), limit / 1000)
        except asyncio.TimeoutError:
            raise Failure(f"no answer within {limit} ms") from None
        wanted = step.statuses or ["ok"]
        if answer["status"] not in wanted:
            raise Failure(f"{answer['status']} ({answer.get('message')}), and not {'|'.join(wanted)}")
        for field, operator, text in step.conditions:
            found = self.field(answer, field)
            if not language.holds(found, operator, self.bound(field, operator, text)):
                raise Failure(f"{field} is {found}, and not {operator} {text}: {answer}")

    def fill_value(self, text):
        return language.value(self.fill(text), self.ttl)

    def bound(self, field, operator, text):
        """Returns the value that a field is compared with. Time limits are longer on a slow machine."""
        if field.startswith(("took", "since")) and operator.startswith("<") and text.isdigit():
            return int(text) * self.slow
        return self.fill_value(text)

    def field(self, answer, name):
        if name == "took":
            return answer["at"] - answer["sent"]
        if name.startswith("since."):
            return answer["at"] - self.marks[name[6:]]
        if name == "got":
            return ",".join("no" if token is None else "yes" for token in answer["tokens"])
        return answer.get(name)

    async def step_label(self, step):
        labels = fnmatch.filter(self.calls, step.actor)
        if not labels:
            raise Failure(f"no call has the label {step.actor}")
        if step.verb == "pending":
            await asyncio.sleep(self.ms(step.args[0]) / 1000 if step.args else 0)
            for label in labels:
                if self.calls[label].answer.done():
                    raise Failure(f"{label} has answered: {self.calls[label].answer.result()}")
            return
        for label in labels:
            await self.expect(self.calls[label], self.calls[label].taken, step)

    # --- agents as processes, and their events ---

    async def agent_stop(self, agent, _):
        agent.stop()

    async def agent_cont(self, agent, _):
        agent.go_on()

    async def agent_clock(self, agent, step):
        """AGENT clock SECONDS: shifts its time of day by this much"""
        agent.clock.set(int(step.args[0]))

    async def agent_kill(self, agent, _):
        agent.kill()
        self.forget(agent)

    async def agent_quit(self, agent, _):
        end = now()
        await agent.quit(5000 * self.slow)
        self.take_losses()
        for hold in self.all_holds:
            if hold.agent is agent and hold.ended is None:
                hold.ended = end
        self.forget(agent)

    def forget(self, agent):
        self.holds = {key: hold for key, hold in self.holds.items() if hold.agent is not agent}

    async def agent_lost(self, agent, step):
        """AGENT lost HOLD within TIME [-> ok since.MARK<...]"""
        limit = self.limit(step)
        event = await agent.event(lambda e: e.get("event") == "lost" and e["hold"] == step.args[0], limit)
        if event is None:
            raise Failure(f"not told lost within {limit} ms")
        self.take_losses()
        for field, operator, text in step.conditions:
            if not language.holds(self.field(event, field), operator, self.bound(field, operator, text)):
                raise Failure(f"{field} is {self.field(event, field)}, and not {operator} {text}")

    async def agent_keeps(self, agent, step):
        """AGENT keeps HOLD TIME: the hold is not lost during this time, and valid at its end."""
        event = await agent.event(lambda e: e.get("event") == "lost" and e["hold"] == step.args[0], self.ms(step.args[1]))
        if event is not None:
            raise Failure(f"lost: {event}")
        answer = await asyncio.wait_for(agent.give(do="valid", hold=step.args[0]).answer, 5)
        if not answer.get("valid"):
            raise Failure(f"not valid: {answer}")

    async def agent_tells(self, agent, step):
        """AGENT tells EVENT KEY=VALUE .. within TIME; "fresh": only events that no earlier line has waited for."""
        limit = self.limit(step)
        wanted = {key: language.value(text, self.ttl) for key, text in step.options.items()}

        def matches(event):
            return (
                event.get("event") == step.args[0]
                and not event.get("told")
                and all(event.get(key) == value for key, value in wanted.items())
            )

        event = await agent.event(matches, limit)
        if event is None:
            raise Failure(f"not told within {limit} ms; told were {agent.events}")
        event["told"] = True

    # --- the network ---

    async def step_proxy(self, step):
        proxy = await self.proxy(step.actor)
        if step.verb == "on":
            what = step.args[1]
            proxy.faults.append(
                Fault(step.args[0], what.replace("-", " "), int(step.options.get("times", "1")),
                      self.ms(step.options.get("by", "0")), step.options.get("code", ""))
            )
        elif step.verb == "met":
            await self.until(lambda: all(f.hits > 0 for f in proxy.faults), step, "a fault has met no statement")
        elif step.verb == "listens":
            wanted = int(step.args[0])
            await self.until(lambda: proxy.listening() == wanted, step,
                             lambda: f"listens to {proxy.listening()} channels")
        elif step.verb == "connections":
            wanted = int(step.args[0])
            await self.until(lambda: proxy.accepted >= wanted, step,
                             lambda: f"{proxy.accepted} connections have been made")
        elif step.verb == "silent":
            count = len(proxy.seen)
            await asyncio.sleep(self.ms(step.args[0]) / 1000)
            if len(proxy.seen) > count + int(step.options.get("but", "0")):
                raise Failure(f"statements came: {proxy.seen[count:]}")
        elif step.verb == "stall":
            proxy.stall(*step.args)
        else:
            getattr(proxy, step.verb)()

    async def until(self, condition, step, message):
        end = now() + self.limit(step)
        while not condition():
            if now() > end:
                raise Failure(message if isinstance(message, str) else message())
            await asyncio.sleep(0.02)

    # --- the server ---

    async def step_server(self, step):
        server = self.server
        if step.verb == "set":
            await server.sql(f"ALTER SYSTEM SET {step.args[0]}")
            await server.sql("SELECT pg_reload_conf()")
            await asyncio.sleep(0.1)
        elif step.verb == "restart":
            await server.stop(*step.args)
            await server.start()
        elif step.verb in ("stop", "start", "kill"):
            await getattr(server, step.verb)(*step.args)
        elif step.verb == "disconnect":
            await server.sql(
                f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{self.role}'"
            )
        elif step.verb in ("freeze", "thaw"):
            getattr(server, step.verb)()
        elif step.verb == "clock":
            server.clock.set(int(step.args[0]))
        else:
            raise Failure("what is to become of the server?")

    async def step_standby(self, step):
        """standby promote: promotes the standby; standby follow: the old primary restarts as a standby of the new one."""
        if step.verb == "promote":
            await self.standby.sql("SELECT pg_promote()")
            self.server, self.standby = self.standby, self.server
            await self.server.sql("ALTER SYSTEM RESET synchronous_standby_names")
            await self.server.sql("SELECT pg_reload_conf()")
        elif step.verb == "follow":
            old = self.standby
            old.configure(f"primary_conninfo = 'host=127.0.0.1 port={self.server.port} user=postgres'\n"
                          "synchronous_standby_names = ''")
            open(f"{old.dir}/standby.signal", "w", encoding="ascii").close()
            await old.start()
        else:
            raise Failure("what is to become of the standby?")

    async def step_sql(self, step):
        """sql TEXT [-> VALUE]"""
        found = await self.server.sql(edition.translate(self.fill(step.verb)))
        if step.statuses is not None and str(found) != "|".join(step.statuses):
            raise Failure(f"{found}")

    async def step_role(self, step):
        """role TEXT: runs SQL as the role of the agents"""
        async with await psycopg.AsyncConnection.connect(self.server.dsn(self.role), autocommit=True) as connection:
            await connection.execute(self.fill(step.verb))

    async def step_until(self, step):
        """until SQL -> VALUE within TIME"""
        wanted = "|".join(step.statuses)
        end = now() + self.limit(step)
        while str(found := await self.server.sql(self.fill(step.verb))) != wanted:
            if now() > end:
                raise Failure(f"is {found}, and not {wanted}")
            await asyncio.sleep(0.05)

    async def step_mark(self, step):
        self.marks[step.verb] = now()

    async def step_pass(self, step):
        """Waits for a time that the scenario specifies."""
        await asyncio.sleep(self.ms(step.verb) / 1000)

    async def step_order(self, step):
        """order LABEL ..: checks that the replies arrived in this order"""
        stamps = [self.calls[label].answer.result()["at"] for label in [step.verb, *step.args]]
        if stamps != sorted(stamps):
            raise Failure(f"the order is another: {stamps}")
