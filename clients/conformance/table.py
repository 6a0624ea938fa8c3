#!/usr/bin/python3
"""Prints docs/reference/clients.md, the abilities of each client, from a recorded run of the suite.

table.py [DIRECTORY]        default: the root of the repository.  Exit 1, with lines on stderr, if a proof is missing.
"""

import json
import sys
import textwrap
import tomllib
from pathlib import Path

CLIENTS = {"c": "C", "go": "Go", "java": "Java", "node": "Node.js", "python": "Python", "ruby": "Ruby", "rust": "Rust"}
OTHERS = {"lockctl": "lockctl", "sql": "SQL"}
# A recorded run of the suite for each edition of the server; the rows of features use the first one.
EDITIONS = {"recorded.json": "C", "recorded-portable.json": "portable"}

# The fields of a recorded run that the page shows.
FIELDS = {"version": "clients", "postgresql": "PostgreSQL", "date": "on"}

HEAD = """# What each client can do

`make client-table` generates this page from a recorded run of the [conformance suite](../design/testing.md#clients);
`clients/conformance/features.toml` lists the tests of each feature. lockctl uses the C library;
*SQL* is a program that calls the functions itself.
"""


class Suite:
    """The contents of the files."""

    def __init__(self, root):
        here = root / "clients/conformance"
        self.root = root
        self.features = tomllib.loads((here / "features.toml").read_text(encoding="utf-8"))
        self.records = {name: json.loads((here / name).read_text(encoding="utf-8")) for name in EDITIONS}
        self.record = self.records["recorded.json"]
        self.scenarios = [name for path in sorted((here / "scenarios").glob("*.toml"))
                          for name in tomllib.loads(path.read_text(encoding="utf-8"))]

    def tags(self, client, name="recorded.json"):
        """A client, in each of its modes."""
        return [tag for tag in sorted(self.records[name]["runs"]) if tag.partition("-")[0] == client]

    def results(self, feature, client):
        return [self.record["scenarios"].get(name, {}).get(tag)
                for name in feature.get("scenarios", []) for tag in self.tags(client)]

    def cell(self, feature, column):
        if column in OTHERS or "scenarios" not in feature:
            return "yes" if column in feature else "-"
        results = {result for result in self.results(feature, column) if result}
        return {frozenset(): "-", frozenset(["passed"]): "yes", frozenset(["not supported"]): "no"}.get(
            frozenset(results), "in part")

    def problems(self):
        """Yields missing rows, and claims without a proof."""
        shown = {name for feature in self.features.values() for name in feature.get("scenarios", [])}
        yield from (f"scenario {name} has no row in features.toml" for name in self.scenarios if name not in shown)
        yield from (f"features.toml: there is no scenario {name}" for name in sorted(shown - set(self.scenarios)))
        for file, record in self.records.items():
            yield from (f"{file} has no run of {client}" for client in CLIENTS if not self.tags(client, file))
            yield from (f"{file}: {tag} has {result} {name}" for name, entry in record["scenarios"].items()
                        for tag, result in entry.items() if result not in ("passed", "not supported"))
        for name, feature in self.features.items():
            tests = {**dict.fromkeys({} if "scenarios" in feature else CLIENTS, "clients/"), **dict.fromkeys(OTHERS, "test/t/")}
            if unknown := sorted(set(feature) - {"words", "scenarios", *tests}):
                yield f"features.toml, {name}: what is {unknown}?"
            for column in set(feature) & set(tests):
                if not feature[column].startswith(tests[column]) or not (self.root / feature[column]).is_file():
                    yield f"features.toml, {name}, {column}: there is no test {feature[column]}"
            if "scenarios" in feature and not any(self.cell(feature, client) == "yes" for client in CLIENTS):
                yield f"features.toml, {name}: no client has passed its scenarios"

    def exceptions(self, cells):
        """The clients that lack a feature, or have no test of it."""
        return "; ".join(f"{words}: {', '.join(names)}" for cell, words in
                         {"no": "no", "in part": "in part", "-": "not tested"}.items()
                         if (names := [name for name, result in cells.items() if result == cell]))

    def table(self, titles, lines):
        yield "| " + " | ".join(titles) + " |"
        yield "|---" * len(titles) + "|"
        for line in lines:
            yield "| " + " | ".join(line) + " |"

    def page(self):
        columns = {**CLIENTS, **OTHERS}
        rows = [[feature["words"], *(self.cell(feature, column) for column in columns)]
                for feature in self.features.values()]
        yield HEAD
        yield "Tested features of all clients:\n"
        yield from (f"- {words}" for words, *cells in rows if set(cells) == {"yes"})
        yield "\nTested features of all clients except those in parentheses (*no*: not supported):\n"
        for words, *cells in rows:
            if set(cells) != {"yes"}:
                item = f"- {words} ({self.exceptions(dict(zip(columns.values(), cells)))})"
                yield textwrap.fill(item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        common = " and ".join(f"{words} {value}" for words, value in self.common().values())
        yield "\n" + textwrap.fill(
            f"Passed scenarios, of {len(self.scenarios)}, on each [edition](editions.md); the others are not supported."
            f" Recorded with {common or 'the versions in parentheses'}:", 120, break_long_words=False,
            break_on_hyphens=False) + "\n"
        tags = {tag: client for client in CLIENTS for tag in self.tags(client)}
        yield from self.table(["client", *(f"{edition} edition" for edition in EDITIONS.values())], (
            [f"{CLIENTS[client]}{tag[len(client):].replace('-', ', ')}", *(self.run(file, tag) for file in EDITIONS)]
            for tag, client in tags.items()))

    def common(self):
        """The versions and the day of all recorded runs, where they are the same."""
        runs = [run for record in self.records.values() for run in record["runs"].values()]
        return {key: (words, runs[0][key]) for key, words in FIELDS.items() if len({run[key] for run in runs}) == 1}

    def run(self, file, tag):
        """The number of scenarios that a client has passed, and the fields in which recorded runs differ."""
        run = self.records[file]["runs"].get(tag)
        if not run:
            return "-"
        passed = sum(self.records[file]["scenarios"].get(name, {}).get(tag) == "passed" for name in self.scenarios)
        own = ", ".join(run[key] for key in FIELDS if key not in self.common())
        return f"{passed} ({own})" if own else f"{passed}"


def main():
    suite = Suite(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    problems = list(suite.problems())
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print("\n".join(suite.page()))


if __name__ == "__main__":
    main()
