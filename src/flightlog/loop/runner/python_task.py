"""`python -m flightlog.loop.runner.python_task module:function`: run a plan's Python function in a process of its own.

The function may take one argument, the task's context variables; a list of dictionaries it
returns is written to `$FLIGHTLOG_REPORT`. The project's directory is searched for the module.
"""

import inspect
import json
import os
import sys
from importlib import import_module
from pathlib import Path

from flightlog.store.jsonl import append_line


def main(arguments: list[str]) -> int:
    """Call the function and report what it returns."""
    module, _, name = arguments[0].partition(":")
    sys.path.insert(0, str(Path.cwd()))
    function = getattr(import_module(module), name)
    context = json.loads(os.environ.get("FLIGHTLOG_CONTEXT", "{}"))
    told = function(context) if inspect.signature(function).parameters else function()
    report = os.environ.get("FLIGHTLOG_REPORT", "")
    for each in told if isinstance(told, list) and report else ():
        append_line(Path(report), json.dumps(each).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
