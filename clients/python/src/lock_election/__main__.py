"""python -m lock_election demo | serve"""

import argparse
import sys
from typing import List, Optional

from . import _demo
from ._errors import Error


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser("python -m lock_election", description="Locks in a throw-away PostgreSQL.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="show how a lock, a leader and a fence survive a killed worker")
    commands.add_parser("serve", help="run a server with locks in it, and print how to connect, until Ctrl-C")
    chosen = parser.parse_args(arguments)
    try:
        {"demo": _demo.demo, "serve": _demo.serve}[chosen.command]()
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
