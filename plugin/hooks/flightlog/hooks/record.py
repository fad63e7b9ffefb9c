"""Entry point of the hook: print nothing and exit 0, whatever happens.

Short, because Python compiles the script it runs every time; the work is in `recorder`, which
is cached as bytecode. An agent that sees exit code 2 at `Stop` never ends its turn.
"""

import os
import sys

try:
    # Isolated mode (-I) leaves the script's directory off the path.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    from flightlog.hooks import recorder

    recorder.main(sys.argv[1:])
finally:
    os._exit(0)  # no failure of ours reaches the agent: no traceback is printed either
