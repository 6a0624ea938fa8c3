"""The language of the scenarios.  A step is a line:

    [LABEL:] AGENT COMMAND ARGUMENT.. [KEY=VALUE ..] [-> STATUS [CONDITION ..]] [within TIME]
    LABEL -> STATUS [CONDITION ..] [within TIME]

With a label the command goes on in the background, and a line with the label and an arrow waits for its answer.  Without
an arrow the answer has to be "ok".  "ok|unknown" is either.  A condition is a field of the answer, one of = != < > <= >= ~
(contains), and a value; "took" is how long the call took, "since.MARK" how long after that mark it answered.  Times are
milliseconds, or "1.5T" of the TTL; "none" is null.  README.md lists the other lines.
"""

import re
import shlex
from dataclasses import dataclass, field

from .agent import Failure

CONDITION = re.compile(r"^([\w.]+)(!=|<=|>=|=|<|>|~)(.*)$", re.S)
OPTION = re.compile(r"^([a-z_]+)=(.*)$", re.S)
ANSWER_LIMIT = 15000


@dataclass
class Step:
    line: str
    number: int
    label: str = ""
    actor: str = ""
    verb: str = ""
    args: list = field(default_factory=list)
    options: dict = field(default_factory=dict)
    statuses: list = None  # None: not specified
    conditions: list = field(default_factory=list)
    within: str = ""


def parse(text):
    """The steps of a scenario; "repeat N LINE" stands for N lines, with # for the number."""
    steps = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("//"):
            continue
        times, _, rest = line.partition(" ")[2].partition(" ") if line.startswith("repeat ") else ("", "", "")
        if times:
            steps += [parse_line(rest.replace("#", str(i)), number) for i in range(1, int(times) + 1)]
        else:
            steps.append(parse_line(line, number))
    return steps


def parse_line(line, number):
    words = shlex.split(line)
    step = Step(line, number)
    if "within" in words[1:]:
        at = words.index("within", 1)
        step.within = words[at + 1]
        del words[at : at + 2]
    if words[0].endswith(":"):
        step.label = words.pop(0)[:-1]
    if "->" in words:
        at = words.index("->")
        step.statuses = words[at + 1].split("|")
        for word in words[at + 2 :]:
            match = CONDITION.match(word)
            if match is None:
                raise Failure(f"line {number}: {word!r} is no condition: {line}")
            step.conditions.append(match.groups())
        words = words[:at]
    step.actor = words[0]
    step.verb = words[1] if len(words) > 1 else ""
    for word in words[2:]:
        match = OPTION.match(word) if step.actor not in ("sql", "role", "until") else None
        if match:
            step.options[match.group(1)] = match.group(2)
        else:
            step.args.append(word)
    return step


def duration(text, ttl):
    """Converts "250" or "1.5T" to milliseconds, and "none" to None."""
    if text == "none":
        return None
    if text.endswith("T"):
        return round(float(text[:-1] or 1) * ttl)
    return int(text)


def value(text, ttl):
    """Returns the value that a condition compares with."""
    constants = {"true": True, "false": False, "null": None}
    if text in constants:
        return constants[text]
    try:
        return duration(text, ttl)
    except ValueError:
        return text


def holds(found, operator, wanted):
    """Returns whether the value meets the condition."""
    if operator == "=":
        return found == wanted or str(found) == str(wanted)
    if operator == "!=":
        return found != wanted and str(found) != str(wanted)
    if found is None:
        return False
    if operator == "~":
        return str(wanted) in str(found)
    found = float(found)
    return {"<": found < wanted, ">": found > wanted, "<=": found <= wanted, ">=": found >= wanted}[operator]
