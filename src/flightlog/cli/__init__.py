"""The command line face: its names, each loaded when it is called.

Nothing is imported here: what reads a command line takes longer to load than a hundred
megabytes of transcripts take to be counted, so the plainest question is answered without it.
"""

import os
import sys
from collections.abc import Sequence

_USAGE = ("session", "usage", "--json")


def main() -> None:
    """Run `flightlog`."""
    words = sys.argv[1:]
    code = _settled(words)
    if code is not None:
        sys.exit(code)
    if _counted(words):
        os._exit(0)  # all is said and written; to take apart what nobody needs would be a twentieth of the time
    from flightlog.cli.root import cli, run

    sys.exit(run(cli, "flightlog", words))


def ralph_runtime() -> None:
    """Run the loop under its source document's name."""
    _alias("loop", "ralph-runtime")


def harness() -> None:
    """Run the lab under its source document's name."""
    _alias("lab", "harness")


def chat_retro() -> None:
    """Run retro under its source document's name."""
    _alias("retro", "chat-retro")


def issue_workflow() -> None:
    """Run the issue workflow under its source document's name."""
    _alias("issue", "issue-workflow")


def ml_data_collector() -> None:
    """Run the dataset under its source document's name."""
    _alias("dataset", "ml-data-collector")


def _alias(noun: str, name: str) -> None:
    from flightlog.cli.root import run_alias

    sys.exit(run_alias(noun, name, sys.argv[1:]))


def _counted(words: Sequence[str]) -> bool:
    """Answer `session usage --json [--by KEY]`; anything else, and anything wrong, is left to the root."""
    if tuple(words[:3]) != _USAGE or len(words) not in {3, 5} or words[3:4] not in ([], ["--by"]):
        return False
    import gc

    gc.disable()  # before the imports, which make most of what would be looked through
    _import_plainly()
    from flightlog.cli.usage import tell
    from flightlog.model.errors import FlightlogError

    try:
        tell(words[4] if words[4:] else "day", as_json=True)
    except (FlightlogError, ValueError, OSError, KeyboardInterrupt):
        return False
    return True


def _settled(words: Sequence[str]) -> int | None:
    """Answer `settle SESSION [--json]`, as the hook asks it; anything else, and anything wrong, is left to the root."""
    if words[:1] != ["settle"] or words[2:] not in ([], ["--json"]) or words[1:2] == [] or words[1].startswith("-"):
        return None
    import gc

    gc.disable()  # the process ends with it; looking for cycles would take a tenth of the time
    _import_plainly()
    from flightlog.cli.settled import tell
    from flightlog.model.errors import FlightlogError

    try:
        return tell(words[1], as_json=len(words) > 2)
    except FlightlogError:
        return None
    except KeyboardInterrupt:
        sys.stderr.write("flightlog: interrupted\n")
        return 130


def _import_plainly() -> None:
    """Import msgspec without what it would load and these commands never use: 20 ms less.

    It takes typing_extensions if it is there, textwrap for schemas alone, and uuid, which asks
    platform for the name of the system.
    """
    if "msgspec" in sys.modules:
        return
    from types import SimpleNamespace

    here = SimpleNamespace(system=lambda: os.uname().sysname)
    lent = {"typing_extensions": None, "textwrap": SimpleNamespace(), "platform": here}
    lent = {name: module for name, module in lent.items() if name not in sys.modules}
    sys.modules.update(lent)  # type: ignore[arg-type]  # None is what Python takes for "not to be had"
    try:
        import msgspec  # noqa: F401
    finally:
        for name in lent:
            del sys.modules[name]
