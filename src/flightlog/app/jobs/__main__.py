"""One job in a process of its own: `python -m flightlog.app.jobs WORK`, the payload on stdin, the result on stdout.

Jobs that run agents or convert for minutes are carried out so: a worker's threads share nothing with
them, and they die with it.
"""

import sys

from flightlog.app.jobs.handlers import ALONE
from flightlog.model.errors import FlightlogError


def main() -> int:
    """Carry the job out; what a person can act on goes to stderr, the next step after a tab."""
    try:
        result = ALONE[sys.argv[1]](sys.stdin.buffer.read())
    except FlightlogError as error:
        sys.stderr.write(f"{error.message}\t{error.hint}")
        return 1
    sys.stdout.buffer.write(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
