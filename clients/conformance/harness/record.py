"""The recorded run, from which the table of clients is generated: a line for each scenario, for readable diffs."""

import datetime
import json


def complete(results, scenarios):
    """Returns the result of each scenario by client and mode, without clients that lack or have failed one."""
    runs = {}
    for result in results:
        if result["scenario"] in scenarios:
            tag = f"{result['client']}-{result['mode']}" if result["mode"] else result["client"]
            run = runs.setdefault(tag, {"version": result["version"], "scenarios": {}})
            run["scenarios"][result["scenario"]] = result["result"]
    return {tag: run for tag, run in runs.items()
            if run["scenarios"].keys() == set(scenarios) and "failed" not in run["scenarios"].values()}


def merge(old, results, scenarios, postgresql, date=None):
    """Merges these results into the record: each client comes from its last complete run."""
    runs, came_to = dict(old.get("runs", {})), {}
    new = complete(results, scenarios)
    for tag, run in new.items():
        date = date or datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        runs[tag] = {"version": run["version"], "postgresql": postgresql, "date": date}
    for name in scenarios:
        came_to[name] = {**old.get("scenarios", {}).get(name, {}),
                         **{tag: run["scenarios"][name] for tag, run in new.items()}}
    return {"runs": runs, "scenarios": came_to}


def text_of(record):
    """Returns JSON with a line for each entry."""
    parts = []
    for key in ("runs", "scenarios"):
        lines = [f"  {json.dumps(name)}: {json.dumps(entry, sort_keys=True)}"
                 for name, entry in sorted(record[key].items())]
        parts.append(f' "{key}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"
