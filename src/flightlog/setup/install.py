"""Register the hook in an agent's settings, and remove it without a trace.

Plans are values: the current and the future content. `apply_change` is the only function here that
writes, and it makes a backup. Other people's settings keep every byte (`store.json_editor`). Which
events are registered is decided in `agents.claude_code.hooks`.
"""

import difflib
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from flightlog.agents.claude_code import PROJECT_DIR
from flightlog.agents.claude_code.hooks import events_for, project_settings, project_settings_files
from flightlog.model.errors import Misconfigured
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import pluralize
from flightlog.store import files, json_editor, shared_files

SCRIPT = Path(__file__).parents[1] / "hooks" / "record.py"
LINE_SCRIPT = Path(__file__).parents[1] / "hooks" / "status.py"
TIMEOUT_S = 5  # of the hook; the agent waits for it
TIMEOUT_SETTLE_S = 10  # of a hook that may wait for a settle
DAYS_KEY = "cleanupPeriodDays"
REFRESH_S = 10  # an idle session's limits and clock change slowly
LINE_KEY = "statusLine"
CAPTURE_EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")

# Commands that contain these are ours, whatever Python they name.
_RECORD = "/flightlog/hooks/record.py"
_CAPTURE = f'"${PROJECT_DIR}"/scripts/ml-session-capture-hook.sh'  # where the command begins
_LINE_OURS = "/flightlog/hooks/status.py"
_EMPTY = "{}\n"

Group = dict[str, Any]
OwnTest = Callable[[object], bool]


def is_recording(hook: object) -> bool:
    """Return whether a hook of the settings is the one that `init` registers."""
    return isinstance(hook, dict) and _RECORD in str(hook.get("command", ""))


def is_capture(hook: object) -> bool:
    """Return whether a hook of the settings is a repository's own, of `install-hooks`."""
    return isinstance(hook, dict) and str(hook.get("command", "")).startswith(_CAPTURE)


def is_ours(hook: object) -> bool:
    """Return whether a hook of the settings is flightlog's."""
    return is_recording(hook) or is_capture(hook)


class InstallOptions(Struct, frozen=True):
    """What `init` registers; only Claude Code has a retention, a status line and its own `events`."""

    keep_days: int = 0
    inline: bool = False
    statusline: bool = False
    agent: str = DEFAULT_AGENT
    events: tuple[str, ...] = ()


DEFAULTS = InstallOptions()


class SettingsChange(Struct, frozen=True):
    """The current and the future content of a settings file; None for no file."""

    settings: Path
    before: bytes | None
    after: bytes | None
    events: tuple[str, ...] = ()
    is_removal: bool = False
    superseded_scripts: tuple[Path, ...] = ()
    kept_days: int = 0  # raised by `init`; stays if the file does not get its earlier bytes

    @property
    def is_needed(self) -> bool:
        """Return whether the content changes."""
        return self.before != self.after

    @property
    def has_line(self) -> bool:
        """Return whether our status line is in the current content."""
        return _LINE_OURS in (self.before or b"").decode("utf-8", "replace")


class HookLocation(NamedTuple):
    """The indexes of one of our hooks: event, group, hook."""

    event: int
    group: int
    hook: int


def build_hook_command(
    python: Path, script: Path = SCRIPT, *, flags: Sequence[str] = (), agent: str = DEFAULT_AGENT
) -> str:
    """Return the hook's command: silent, and exit 0 even if Python or the script is missing.

    `--project` means that it is in a repository's own settings, which the agent asks a person to
    trust.
    """
    command = shlex.join([str(python), "-I", "-S", str(script), agent, *flags])
    return f"{command} >/dev/null 2>&1 || :"


def status_line_command(python: Path, script: Path = LINE_SCRIPT) -> str:
    """Return the status line's command: prints one line even if Python is missing."""
    return f"{shlex.join([str(python), '-I', '-S', str(script)])} 2>/dev/null || echo flightlog"


def plan_install(
    settings: Path, versions: Collection[str], python: Path, options: InstallOptions = DEFAULTS
) -> SettingsChange:
    """Plan to register the hook for clients of `versions`.

    `keep_days` only raises the retention of transcripts. Another tool's status line stays.
    """
    before = shared_files.read_if_exists(settings)
    text = _decode_settings(settings, before)
    flags = ["--project"] if settings.name == project_settings(settings).name else []
    flags += ["--inline"] if options.inline else []
    command = build_hook_command(python, flags=flags, agent=options.agent)
    hook = {"type": "command", "command": command}
    events = options.events or events_for(versions)
    groups = {
        event: {"matcher": "", "hooks": [hook | {"timeout": _hook_timeout_s(event, options)}]}
        for event in events
    }
    line = {
        "type": "command",
        "command": status_line_command(python),
        "padding": 0,
        "refreshInterval": REFRESH_S,  # a client before 2.1.97 ignores it
    }
    after = add_hooks(text, groups, options.keep_days, str(settings))
    after = add_status_line(after, line) if options.statusline else after
    return SettingsChange(
        settings, before, before if before is not None and after == text else after.encode(), events
    )


def plan_capture_hook(top: Path, *, remove: bool) -> SettingsChange:
    """Plan to register a repository's own hook in the settings that its clones share."""
    settings = files.ensure_contained(top, project_settings_files(top)[0])
    if remove:
        return plan_removal(settings, is_capture)
    before = shared_files.read_if_exists(settings)
    groups: dict[str, Group] = {}
    for event in CAPTURE_EVENTS:
        command = f"{_CAPTURE} {event}"
        hook = {"type": "command", "command": command, "timeout": TIMEOUT_SETTLE_S}
        matcher = "startup|resume" if event == "SessionStart" else ""
        groups[event] = {"matcher": matcher, "hooks": [hook]}
    text = _decode_settings(settings, before)
    after = add_hooks(text, groups, 0, str(settings), is_capture)
    return SettingsChange(settings, before, before if after == text else after.encode())


def _hook_timeout_s(event: str, options: InstallOptions) -> int:
    """Return a hook's time limit. Without one, the agent ends a hook at SessionEnd after 1.5 s."""
    return TIMEOUT_SETTLE_S if options.inline or event == "SessionEnd" else TIMEOUT_S


def plan_removal(settings: Path, is_own: OwnTest = is_recording) -> SettingsChange:
    """Plan to remove the hook, and with the recording one the status line.

    The earlier bytes are restored if only flightlog changed the file since.
    """
    before = shared_files.read_if_exists(settings)
    text = _decode_settings(settings, before)
    groups = find_own_groups(text, is_own)
    line = find_own_status_line(text) if is_own is is_recording else None
    if before is None or not (groups or line):
        return SettingsChange(settings, before, before)
    days = json_editor.parse_object(text, str(settings)).get(DAYS_KEY)
    days = days if isinstance(days, int) else 0
    copies = shared_files.list_backups(settings)
    first = _decode_settings(copies[0], copies[0].read_bytes()) if copies else _EMPTY
    kept_days = 0 if json_editor.parse_object(first, "").get(DAYS_KEY) == days else days
    rest = remove_hooks(text, is_own)
    after: bytes | None = (remove_status_line(rest) if line else rest).encode()
    for copy in [None, *copies]:
        old = _decode_settings(copy, copy.read_bytes()) if copy else _EMPTY
        again = add_hooks(old, groups, days, "", is_own)
        again = add_status_line(again, line) if line else again
        has_line = is_own is is_recording and find_own_status_line(old)
        if not find_own_groups(old, is_own) and not has_line and again == text:
            after, kept_days = copy.read_bytes() if copy else None, 0
    superseded = tuple(
        copy
        for copy in copies
        if copy.read_bytes() == after
        or find_own_groups(_decode_settings(copy, copy.read_bytes()), is_own)
    )
    return SettingsChange(
        settings, before, after, tuple(groups), is_removal=True,
        superseded_scripts=superseded, kept_days=kept_days,
    )  # fmt: skip


def apply_change(change: SettingsChange) -> Path | None:
    """Carry out a plan and return the backup, if one was made."""
    if not change.is_needed:
        return None
    backup = None
    if change.after is None:
        shared_files.remove_with_dir(change.settings)
    else:
        if change.before is not None and not change.is_removal:
            backup = shared_files.back_up(change.settings, change.before)
        shared_files.replace_or_conflict(change.settings, change.before, change.after)
    for copy in change.superseded_scripts:
        shared_files.remove_with_dir(copy)
    return backup


def format_diff(change: SettingsChange) -> str:
    """Return the plan as a unified diff."""
    texts = ((data or b"").decode("utf-8", "replace") for data in (change.before, change.after))
    old, new = (text.splitlines() for text in texts)
    return "\n".join(
        difflib.unified_diff(
            old, new, str(change.settings), str(change.settings), "now", "then", 2, ""
        )
    )


def summarize_change(change: SettingsChange) -> str:
    """Return a plan in a few lines; empty if nothing changes."""
    if not change.is_needed:
        return ""
    lines = format_diff(change).splitlines()[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    verb, groups = (
        ("removed from", change.before) if change.is_removal else ("added to", change.after)
    )
    own = find_own_groups((groups or b"").decode("utf-8", "replace"), is_recording)
    hook = next(iter(own.values()), {})
    command = next((entry["command"] for entry in _hooks_of_group(hook) if is_recording(entry)), "")
    return (
        f"would be {verb} {change.settings}:\n"
        f"  {command}\n"
        f"  at {pluralize(len(change.events), 'event')}: {', '.join(change.events)}\n"
        f"{pluralize(added, 'line')} added, {removed:,} removed"
    )


def add_hooks(
    text: str,
    groups: Mapping[str, Group],
    keep_days: int,
    name: str,
    is_own: OwnTest = is_recording,
) -> str:
    """Return settings with exactly `groups` of those that are `is_own`, after all others."""
    _check_shape(json_editor.parse_object(text, name), name)
    style = json_editor.style_of(text)
    text = _remove_stale_hooks(text, groups, is_own)
    start = json_editor.root_offset(text)
    days = json_editor.find_part(text, start, DAYS_KEY)
    if keep_days and days is None:
        text = json_editor.add_member(text, start, (DAYS_KEY, keep_days), style)
    elif keep_days and days is not None and isinstance(days.value, int) and days.value < keep_days:
        text = json_editor.replace_value(text, days, keep_days)
    for event, group in groups.items():
        text = _with_group(text, event, group, style)
    return text


def remove_hooks(text: str, is_own: OwnTest = is_recording) -> str:
    """Return settings without the hooks that are `is_own`."""
    return _remove_stale_hooks(text, {}, is_own)


def add_status_line(text: str, line: Group) -> str:
    """Return settings with our status line, unless another tool's is set; its options stay."""
    start = json_editor.root_offset(text)
    current = json_editor.find_part(text, start, LINE_KEY)
    if current is None:
        return json_editor.add_member(text, start, (LINE_KEY, line), json_editor.style_of(text))
    if not _is_our_line(current.value):
        return text
    renewed = line | current.value | {"command": line["command"]}
    return text if renewed == current.value else json_editor.replace_value(text, current, renewed)


def remove_status_line(text: str) -> str:
    """Return settings without our status line."""
    start = json_editor.root_offset(text)
    members = json_editor.list_parts(text, start)
    lines = [(index, part) for index, part in enumerate(members) if part.key == LINE_KEY]
    ours = [index for index, part in lines if _is_our_line(part.value)]
    return json_editor.remove_part(text, start, ours[0]) if ours else text


def find_own_status_line(text: str) -> Group | None:
    """Return our status line in the settings, if it is set."""
    line = json_editor.parse_object(text, "").get(LINE_KEY)
    return line if isinstance(line, dict) and _is_our_line(line) else None


def has_other_status_line(data: bytes | None) -> bool:
    """Return whether the settings have another tool's status line."""
    text = (data or b"").decode("utf-8", "replace")
    line = json_editor.parse_object(text, "").get(LINE_KEY) if text.strip() else None
    return line is not None and not _is_our_line(line)


def _is_our_line(line: object) -> bool:
    return isinstance(line, dict) and _LINE_OURS in str(line.get("command", ""))


def find_own_groups(text: str, is_own: OwnTest = is_ours) -> dict[str, Group]:
    """Return our groups by event, in the order of the file."""
    hooks = json_editor.parse_object(text, "").get("hooks")
    events = hooks if isinstance(hooks, dict) else {}
    return {
        event: group
        for event, groups in events.items()
        for group in _list_or_empty(groups)
        if any(is_own(hook) for hook in _hooks_of_group(group))
    }


def _decode_settings(settings: Path, data: bytes | None) -> str:
    try:
        text = (data or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misconfigured(f"not UTF-8 text: {settings}", hint=json_editor.CORRECT) from error
    return text if text.strip() else _EMPTY


def _check_shape(settings: dict[str, Any], name: str) -> None:
    hooks = settings.get("hooks", {})
    events = hooks.items() if isinstance(hooks, dict) else ()
    invalid = [f"hooks.{event}" for event, groups in events if not isinstance(groups, list)]
    invalid += [] if isinstance(hooks, dict) else ["hooks"]
    if invalid:
        hint = json_editor.CORRECT
        raise Misconfigured(f"`{invalid[0]}` is not what the agent expects: {name}", hint=hint)


def _with_group(text: str, event: str, group: Group, style: json_editor.JsonStyle) -> str:
    start = json_editor.root_offset(text)
    hooks = json_editor.find_part(text, start, "hooks")
    if hooks is None:
        return json_editor.add_member(text, start, ("hooks", {event: [group]}), style)
    groups = json_editor.find_part(text, hooks.value_start, event)
    if groups is None:
        return json_editor.add_member(text, hooks.value_start, (event, [group]), style)
    if group in groups.value:
        return text
    return json_editor.add_member(text, groups.value_start, ("", group), style)


def _remove_stale_hooks(text: str, keep: Mapping[str, Group], is_own: OwnTest) -> str:
    """Remove the hooks that are `is_own` one by one, except the groups to keep."""
    while (location := next(_iter_stale(text, keep, is_own), None)) is not None:
        text = _remove_hook(text, location)
    return text


def _iter_stale(text: str, keep: Mapping[str, Group], is_own: OwnTest) -> Iterator[HookLocation]:
    hooks = json_editor.parse_object(text, "").get("hooks")
    for at, (event, groups) in enumerate(hooks.items() if isinstance(hooks, dict) else ()):
        for number, group in enumerate(_list_or_empty(groups)):
            if group != keep.get(event) or group in groups[:number]:
                for index, hook in enumerate(_hooks_of_group(group)):
                    if is_own(hook):
                        yield HookLocation(at, number, index)


def _remove_hook(text: str, location: HookLocation) -> str:
    """Remove one hook, and the lists that held nothing else."""
    start = json_editor.root_offset(text)
    members = json_editor.list_parts(text, start)
    top = next(at for at, member in enumerate(members) if member.key == "hooks")
    events = members[top].value_start
    groups = json_editor.list_parts(text, events)[location.event].value_start
    group = json_editor.list_parts(text, groups)[location.group].value_start
    parts = json_editor.list_parts(text, group)
    hooks = next(member.value_start for member in parts if member.key == "hooks")
    for at, index in ((hooks, location.hook), (groups, location.group), (events, location.event)):
        if len(json_editor.list_parts(text, at)) > 1:
            return json_editor.remove_part(text, at, index)
    return json_editor.remove_part(text, start, top)


def _hooks_of_group(group: object) -> list[Any]:
    return _list_or_empty(group.get("hooks")) if isinstance(group, dict) else []


def _list_or_empty(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
