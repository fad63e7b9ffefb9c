"""What a settle did, told without what reads a command line: an agent's turn ends with it."""

import sys
from collections.abc import Callable

from flightlog.app import open_runtime


def tell(written: str, progress: Callable[[int, int], None] | None = None, *, as_json: bool) -> int:
    """Settle one session, or all of them, print what was done and return the exit code."""
    from flightlog.app.settle import settle_all, settle_one
    from flightlog.model.address import parse
    from flightlog.model.text import counted, inert

    runtime = open_runtime()
    report = settle_one(runtime, parse(written).session) if written else settle_all(runtime, progress)
    if as_json:
        from flightlog.views.wire import as_json as as_json_text

        sys.stdout.write(as_json_text(report) + "\n")
    else:
        sealed = f", {counted(report.sealed, 'file')} sealed" if report.sealed else ""
        sys.stdout.write(f"{counted(report.sessions, 'session')} kept, {report.bytes_adopted:,} new bytes{sealed}\n")
    sys.stdout.flush()
    for line in report.failed:
        sys.stderr.write(f"not kept: {inert(line)}\n")
    for line in report.busy:
        sys.stderr.write(f"not kept now: {inert(line)}\n")
    for fault in report.damage:
        done = f"; {fault.repaired}" if fault.repaired else ": flightlog doctor --verify"
        sys.stderr.write(f"damaged: {inert(f'{fault.session}/{fault.file}: {fault.what}, {fault.text}{done}')}\n")
    sys.stderr.flush()
    return 1 if report.failed else 75 if report.busy else 0
