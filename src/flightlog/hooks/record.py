"""The front door of the hook: whatever happens, say nothing and exit 0.

Short, because Python compiles the file it is told to run anew each time; the work is in
`recorder`, which it keeps compiled. An agent that sees exit code 2 at `Stop` goes on for ever.
"""

import os
import sys

try:
    # Isolated mode leaves our own directory off the path; nothing else is on it but the library.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    from flightlog.hooks import recorder

    recorder.main(sys.argv[1:])
except BaseException:  # noqa: BLE001, S110 - the hook's main: no failure of ours reaches the agent
    pass
finally:
    os._exit(0)
