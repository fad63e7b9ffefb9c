"""What the tools of all agents do: the kind of each, and the edits and commands in their input."""

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from flightlog.model.session import ToolCall

# The tools of Claude Code, Codex, OpenCode, Copilot, Gemini, Qwen and Pi; names differ in case.
_KINDS = {
    name: kind
    for kind, names in {
        "read": "read notebookread ls read_file read_many_files list_directory view list view_image",
        "search": "grep glob toolsearch search_file_content grep_search find codesearch rg",
        "edit": "edit multiedit write notebookedit replace write_file apply_patch patch create "
        "insert str_replace str_replace_editor",
        "command": "bash bashoutput killshell exec_command write_stdin run_shell_command shell "
        "local_shell shell_command read_bash write_bash stop_bash powershell",
        "delegate": "task agent spawn_agent invoke_agent delegate_to_agent",
        "fetch": "webfetch web_fetch websearch web_search google_web_search",
    }.items()
    for name in names.split()
}
# The arguments of edit tools: Claude Code, Gemini and Qwen; OpenCode; Copilot; Pi.
PATH_NAMES = ("file_path", "notebook_path", "filePath", "absolute_path", "path")
OLD_NAMES = ("old_string", "oldString", "old_str", "oldText")
NEW_NAMES = ("new_string", "newString", "new_str", "newText")
CONTENT_NAMES = ("content", "new_source", "file_text")
_COMMAND_NAMES = ("command", "cmd")
_PATCH_NAMES = ("input", "patch", "patchText")
_PATCH_START = "*** Begin Patch"
# Codex also takes a patch in a shell command: `apply_patch <<'EOF'`.
_SHELL_PATCH = re.compile(r"(?:\A|[\n;&])\s*apply_patch\b[^\n]*\n\s*(?=\*\*\* Begin Patch)")
_FILE_HEADER = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): (.+)")


class DiffSign(enum.Enum):
    """What happened to a line; `PLACE` says where the next lines are."""

    SAME = " "
    ADDED = "+"
    REMOVED = "-"
    PLACE = "@"


class ChangedLine(Struct, frozen=True):
    """A line of a diff."""

    sign: DiffSign
    text: str


class ToolEdit(Struct, frozen=True):
    """What a tool was asked to change in one file: replacements, its content, or patch lines."""

    path: str
    replacements: tuple[tuple[str, str], ...] = ()
    content: str | None = None
    patch: tuple[ChangedLine, ...] = ()


def tool_kind(name: str) -> str:
    """Return read, search, edit, command, delegate or fetch; "other" for an unknown tool."""
    return _KINDS.get(name.lower(), "other")


def first_text(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of the arguments that is a text."""
    for name in names:  # a generator would take three times as long
        if isinstance(value := arguments.get(name), str):
            return value
    return None


def command_of(call: ToolCall) -> str:
    """Return the shell command that a call runs, or ""."""
    return _command_text(call.executed_input or call.input) if _is_shell(call) else ""


def edits_of_call(call: ToolCall) -> tuple[ToolEdit, ...]:
    """Return what a call changes, file by file; nothing for a call that edits no known file."""
    given = call.executed_input or call.input
    if _is_shell(call):
        command = _command_text(given)
        start = _SHELL_PATCH.search(command) if _PATCH_START in command else None
        return tuple(_parse_patch(command[start.end() :])) if start else ()
    if tool_kind(call.name) != "edit":
        return ()
    patch = first_text(given, _PATCH_NAMES)
    if patch is not None and _PATCH_START in patch:
        return tuple(_parse_patch(patch))
    path = first_text(given, PATH_NAMES)
    if path is None or given.get("command") == "view":  # Copilot's editor also shows files
        return ()
    several = given.get("edits")
    edits = several if isinstance(several, list) else [given]
    replacements = tuple(_replacements(edit for edit in edits if isinstance(edit, dict)))
    return (ToolEdit(path, replacements, first_text(given, CONTENT_NAMES)),)


def files_of_call(call: ToolCall) -> tuple[str, ...]:
    """Return the files that a call writes to."""
    return tuple(dict.fromkeys(edit.path for edit in edits_of_call(call)))


def parse_diff_line(line: str) -> ChangedLine:
    """Return a line of a unified diff."""
    marks = {"+": DiffSign.ADDED, "-": DiffSign.REMOVED}
    return ChangedLine(marks.get(line[:1], DiffSign.SAME), line[1:])


def _is_shell(call: ToolCall) -> bool:
    return tool_kind(call.name) == "command"


def _command_text(given: Mapping[str, Any]) -> str:
    for name in _COMMAND_NAMES:
        if isinstance(value := given.get(name), list):  # Codex: the words of the command
            return "\n".join(word for word in value if isinstance(word, str))
    return first_text(given, _COMMAND_NAMES) or ""


def _replacements(edits: Iterator[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for edit in edits:
        old, new = first_text(edit, OLD_NAMES), first_text(edit, NEW_NAMES)
        if new is not None:  # an insertion replaces nothing
            yield old or "", new


def _parse_patch(text: str) -> Iterator[ToolEdit]:
    """Yield the files of a patch as Codex, OpenCode and Copilot write it."""
    path, lines = "", list[ChangedLine]()
    for line in text.split("\n"):
        header = _FILE_HEADER.fullmatch(line.rstrip())
        if header and header[1] == "Move to":
            path = header[2]
        elif header or line.startswith("*** End Patch"):
            if path:
                yield ToolEdit(path, patch=tuple(lines))
            path, lines = header[2] if header else "", []
        elif line.startswith("@@"):
            lines.append(ChangedLine(DiffSign.PLACE, line[2:].strip()))
        elif path and line[:1] in {"+", "-", " "}:
            lines.append(parse_diff_line(line))
    if path:
        yield ToolEdit(path, patch=tuple(lines))
