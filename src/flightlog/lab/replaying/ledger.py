"""The side-effect ledger: what a replay cannot take back, as far as the recording shows it.

Snapshots hold the work directory. What a session did before the branch point to files elsewhere, over
the network, or with processes left running is still done, and still there, when a branch begins.
Told from tool calls: certain for tools that name a path, a guess for shell commands. Pure.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from flightlog.lab.events import SideEffect
from flightlog.model.session import Step, ToolCall

_WRITES = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_WEB = frozenset({"WebFetch", "WebSearch"})
_NETWORK = re.compile(
    r"\b(curl|wget|ssh|scp|rsync|nc|git\s+(push|pull|fetch|clone)|gh\s|docker\s|kubectl\s|"
    r"(npm|pnpm|yarn|pip3?|uv|cargo|go|gem|apt(-get)?|brew)\s+(install|add|publish|get|i)\b)"
)
_BACKGROUND = re.compile(r"(?<![&>])&\s*(?:$|[;)\n])|\b(nohup|setsid|disown|systemctl|daemon)\b")
_OUTSIDE = re.compile(r"(?:>>?|\b(?:tee(?:\s+-a)?|touch|mkdir(?:\s+-p)?|rm(?:\s+-\w+)*)\s)\s*[\"']?([/~][^\s;&|\"')]*)")
_HARMLESS = ("/dev/", "/proc/")
_WHAT_CHARS_MAX = 200


def iter_side_effects(steps: Iterable[tuple[int, Step]], work_dir: str) -> Iterator[SideEffect]:
    """List what `steps`, each with its turn, did outside the work directory."""
    for turn, step in steps:
        for call in step.calls:
            for kind, what in _side_effects_of_call(call, work_dir):
                yield SideEffect(turn, kind, what[:_WHAT_CHARS_MAX])


def _side_effects_of_call(call: ToolCall, work_dir: str) -> Iterator[tuple[str, str]]:
    given = call.ran_input or call.input
    if call.name in _WRITES:
        path = str(given.get("file_path") or given.get("notebook_path") or "")
        if path.startswith("/") and not PurePosixPath(path).is_relative_to(work_dir):
            yield "file outside", path
    elif call.name in _WEB or call.name.startswith("mcp__"):
        yield "network", f"{call.name} {given.get('url') or given.get('query') or ''}".strip()
    elif call.name == "Bash":
        yield from _side_effects_of_shell(
            str(given.get("command") or ""), work_dir, background=bool(given.get("run_in_background"))
        )


def _side_effects_of_shell(command: str, work_dir: str, *, background: bool) -> Iterator[tuple[str, str]]:
    if background or _BACKGROUND.search(command):
        yield "background process", command
    if _NETWORK.search(command):
        yield "network", command
    for path in dict.fromkeys(_OUTSIDE.findall(command)):
        if not path.startswith(_HARMLESS) and not PurePosixPath(path).is_relative_to(work_dir):
            yield "file outside", path
