"""Save one work tree: `python -m flightlog.app.snapshot ROOT SESSION CALL SUBAGENT`, started by the hook."""

import sys
from pathlib import Path

from flightlog.app.runtime import open_runtime
from flightlog.archive.tracked_dirs import save_tree
from flightlog.model.errors import FlightlogError


def main(arguments: list[str]) -> int:
    """Save the tree; return 1 if it cannot be saved, so that the agent is not disturbed."""
    root, session, call_id, subagent = arguments
    try:
        save_tree(open_runtime(), Path(root), session, call_id, subagent)
    except (FlightlogError, OSError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
