"""Run a plan's Python function: `python -m flightlog.loop.runner.python_task module:function`.

The function may take one argument, the context variables. If it returns a list of dictionaries,
they are written to `$FLIGHTLOG_REPORT`. The module is searched in the project's directory first.
"""

import inspect
import json
import os
import sys
from importlib import import_module
from pathlib import Path

from flightlog.store.jsonl import append_line


def main(arguments: list[str]) -> int:
    """Call the function and report its result."""
    module, _, name = arguments[0].partition(":")
    sys.path.insert(0, str(Path.cwd()))
    function = getattr(import_module(module), name)
    context = json.loads(os.environ.get("FLIGHTLOG_CONTEXT", "{}"))
    result = function(context) if inspect.signature(function).parameters else function()
    report = os.environ.get("FLIGHTLOG_REPORT", "")
    for entry in result if isinstance(result, list) and report else ():
        append_line(Path(report), json.dumps(entry).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
