"""Run one job in its own process: `python -m flightlog.app.jobs WORK`, payload on stdin.

The result goes to stdout. Jobs that run agents or convert for minutes run like this: they share
nothing with a worker's threads, and they die with it.
"""

import sys

from flightlog.app.jobs.executors import ALONE
from flightlog.model.errors import FlightlogError


def main() -> int:
    """Run the job; write an error's message, a tab and its hint to stderr."""
    try:
        result = ALONE[sys.argv[1]](sys.stdin.buffer.read())
    except FlightlogError as error:
        sys.stderr.write(f"{error.message}\t{error.hint}")
        return 1
    sys.stdout.buffer.write(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
