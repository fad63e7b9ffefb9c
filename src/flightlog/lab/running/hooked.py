"""The tree saved after each tool call, by a hook of the client: the barrier where no request is captured.

The hook puts what it was told into a directory and waits until the file is renamed, which says that
the tree is saved; after ten seconds it waits no longer. It exits 0 whatever happens.
"""

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flightlog.lab.events import SnapshotSaved
from flightlog.lab.running.asking import is_captured
from flightlog.lab.running.stage import RunContext
from flightlog.lab.running.wire import CaptureTarget, snapshot_name
from flightlog.model.errors import FlightlogError
from flightlog.store.files import ensure_dir, rename_file, replace_file

_EVENTS = ("PostToolUse", "PostToolUseFailure")
_LOOK_S = 0.01
_HOOK = b"""\
d=$1
cat > "$d/.$$" && mv "$d/.$$" "$d/ask.$$"
i=0
while [ ! -e "$d/done.$$" ] && [ "$i" -lt 500 ]; do sleep 0.02; i=$((i + 1)); done
rm -f "$d/done.$$"
exit 0
"""


@contextmanager
def snapshot_hook(stage: RunContext, line: CaptureTarget) -> Iterator[tuple[str, ...]]:
    """Give the words that make the client wait after each tool, and save the tree whenever it does."""
    config = stage.book.config
    if is_captured(config) or config.engine != "claude_code" or line.trees is None:
        yield ()
        return
    folder = stage.book.scratch_dir / "hooks" / f"{line.session}_{line.attempt}"
    ensure_dir(folder)
    script = folder.parent / "wait.sh"
    replace_file(script, _HOOK, durable=False)
    over = threading.Event()
    watcher = threading.Thread(target=_serve_hooks, args=(stage, line, folder, over), name="hooks", daemon=True)
    watcher.start()
    try:
        yield ("--settings", _hook_settings(script, folder))
    finally:
        over.set()
        watcher.join()


def _hook_settings(script: Path, folder: Path) -> str:
    command = f"sh {shlex.quote(str(script))} {shlex.quote(str(folder))} >/dev/null 2>&1 || :"
    hook = {"matcher": "", "hooks": [{"type": "command", "command": command, "timeout": 20}]}
    return json.dumps({"hooks": {event: [hook] for event in _EVENTS}})


def _serve_hooks(stage: RunContext, line: CaptureTarget, folder: Path, over: threading.Event) -> None:
    """Save the tree for each hook that waits, in the order they are seen."""
    number = 0
    while not over.wait(_LOOK_S):
        for asked in sorted(folder.glob("ask.*"), key=lambda path: path.stat().st_mtime_ns):
            number += 1
            try:
                _save_tree(stage, line, asked, number)
            finally:
                rename_file(asked, asked.name.replace("ask.", "done."))


def _save_tree(stage: RunContext, line: CaptureTarget, asked: Path, number: int) -> None:
    try:
        told = json.loads(asked.read_bytes())
        saved = stage.ground.save_tree(line.trees, snapshot_name(line.session, line.attempt, number))
    except (FlightlogError, ValueError, OSError):
        return  # The agent does not wait for what cannot be saved; the change shows in the next tree.
    if saved is not None and isinstance(told, dict):
        at_ms = int(stage.setting.runtime.clock.now_s() * 1000)
        lane, call = str(told.get("agent_id") or ""), str(told.get("tool_use_id") or "")
        stage.book.append(SnapshotSaved(line.session, line.attempt, saved.name, number, lane, at_ms, call))
