"""Changes rebuilt from what tool calls say, for sessions whose work tree nobody saved.

The client's own patch gives a difference that can be applied; the words of a call alone give its
lines and no place. What a shell command changed is not known, and is not guessed. Every entry says
what it was rebuilt from. Pure.
"""

from collections.abc import Iterator
from typing import Any

from flightlog.model.session import Step, ToolCall
from flightlog.views.session.edits import changed_file, diff_of_call

PATCH = "the client's patch"
WORDS = "the words of the call"


def iter_reported_changes(lane: str, step: Step, step_id: int | None, cwd: str) -> Iterator[dict[str, Any]]:
    """Yield what the calls of one step say they changed."""
    for call in step.calls:
        path = changed_file(call)
        if not path or call.is_error or call.denied or call.result is None:
            continue
        name = path.removeprefix(cwd.rstrip("/") + "/") if cwd else path
        diff, source = _diff_and_source(call, name)
        told = diff_of_call(call)
        yield {
            "session_index": 1,
            "step_id": step_id,
            "file_path": name,
            "diff": diff,
            "diff_stats": {"added": told.added if told else 0, "removed": told.removed if told else 0},
            "kind": "added" if diff.startswith("--- /dev/null") else "modified",
            "binary": False,
            "attribution": None,
            "rebuilt_from": source,
            "message_id": step.message_id,
            "tool_call_ids": [call.id],
            **({"subagent": lane} if lane else {}),
        }


def _diff_and_source(call: ToolCall, name: str) -> tuple[str, str]:
    detail = call.detail if isinstance(call.detail, dict) else {}
    hunks = detail.get("structuredPatch")
    content = detail.get("content")
    if detail.get("type") == "create" and isinstance(content, str):
        return _created_file_diff(name, content), PATCH
    if isinstance(hunks, list) and hunks and all(map(_is_whole, hunks)):
        body = "".join(_render_hunk(hunk) for hunk in hunks)
        return f"--- {name}\n+++ {name}\n{body}", PATCH
    told = diff_of_call(call)
    lines = [f"{line.sign.value}{line.text}\n" for line in told.lines if line.sign.value in "+-"] if told else []
    return f"--- {name}\n+++ {name}\n" + "".join(lines), WORDS


def _created_file_diff(name: str, content: str) -> str:
    lines = content.splitlines(keepends=True)
    count = f"1,{len(lines)}" if len(lines) != 1 else "1"
    body = "".join("+" + line for line in lines)
    end = "" if not lines or content.endswith("\n") else "\n\\ No newline at end of file\n"
    head = f"--- /dev/null\n+++ {name}\n"
    return head + (f"@@ -0,0 +{count} @@\n{body}{end}" if lines else "")


def _is_whole(hunk: Any) -> bool:
    numbers = ("oldStart", "oldLines", "newStart", "newLines")
    return isinstance(hunk, dict) and all(isinstance(hunk.get(name), int) for name in numbers) and _has_lines(hunk)


def _has_lines(hunk: dict[str, Any]) -> bool:
    return isinstance(hunk.get("lines"), list) and all(isinstance(line, str) for line in hunk["lines"])


def _render_hunk(hunk: dict[str, Any]) -> str:
    head = f"@@ -{hunk['oldStart']},{hunk['oldLines']} +{hunk['newStart']},{hunk['newLines']} @@\n"
    return head + "".join(line + "\n" for line in hunk["lines"])
