"""Actions of recommendations: which file they change, the diff, apply and undo.

A change is planned from the file as it is and recorded in the journal before it is written, so
that it can be taken back after a crash, too. Undo replaces exactly the bytes that were inserted;
what was changed elsewhere in the file stays.

An agent reads the instructions in these files, so a block holds the person's own words only, and
nothing in them can end the block, import a file or open a link.
"""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents import COMMON_MEMORY_FILE, find_memory_file
from flightlog.agents.claude_code.hooks import project_settings
from flightlog.model.errors import UNREADABLE, Conflict, FlightlogError, Invalid, NotFound
from flightlog.model.text import one_line
from flightlog.retro import events
from flightlog.retro.state import Recommendation, RecommendedAction
from flightlog.retro.store import RetroStore
from flightlog.store import files, json_editor, shared_files

QUOTE_CHARS = 300  # of a sentence in a block
CUSTOM_INSTRUCTIONS = "outputs/custom-instructions.md"
_MARKUP = re.compile(r"<!--|-->|`{3,}|(?<!\w)@(?=[\w~./])|\bhttps?://\S+")
# Commands of these kinds get no rule that allows them, not even an exact one.
_RISKY = re.compile(
    r"\b(?:rm|rmdir|unlink|shred|dd|mkfs\S*|truncate|mv|kill|pkill|killall|shutdown|reboot|prune|purge|drop|"
    r"delete|destroy|force|reset|clean|restore|revert|rebase|stash|"  # destroys
    r"curl|wget|ssh|scp|sftp|rsync|nc|ncat|telnet|ftp|ping|dig|push|pull|fetch|clone|publish|deploy|upload|login|"
    r"install|add|update|upgrade|npx|uvx|pipx|apt|apt-get|brew|gh|aws|gcloud|az|kubectl|helm|terraform|docker|podman|"
    r"sudo|su|doas|chmod|chown|chgrp|setcap|passwd|usermod|mount|umount|systemctl|crontab|eval|exec|"
    r"sh|bash|zsh|xargs)\b",  # network, privilege, another shell
    re.IGNORECASE,
)


class FileChange(Struct, frozen=True):
    """A planned change of one file; `before` is None if there is no file yet."""

    path: Path
    before: bytes | None
    after: bytes

    @property
    def diff(self) -> str:
        """Return the change as a unified diff."""
        old, new = (
            (data or b"").decode("utf-8", "replace").splitlines(keepends=True)
            for data in (self.before, self.after)
        )
        name = str(self.path)
        lines = difflib.unified_diff(old, new, "/dev/null" if self.before is None else name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def is_exact_rule(rule: str, effect: str) -> bool:
    """Return whether a rule covers one call, and may be put into the list `effect`."""
    if not re.fullmatch(r"[A-Za-z][\w-]*(?:\([^*]+\))?", rule):
        return False
    is_one_call = rule.startswith(("Bash(", "Edit(", "Read("))
    return effect == "deny" or (is_one_call and not _RISKY.search(rule[rule.index("(") :]))


def show_action(store: RetroStore, one: Recommendation, homes: Mapping[str, str]) -> Recommendation:
    """Return a recommendation whose action names its file and has the diff as of now."""
    try:
        change = plan_action(store, one, homes)
    except FlightlogError:  # a file that cannot be read or is no JSON gets no diff
        change = None
    if change is None:
        return one
    return replace(one, action=replace(one.action, file=str(change.path), diff=change.diff))


def plan_action(
    store: RetroStore, one: Recommendation, homes: Mapping[str, str]
) -> FileChange | None:
    """Return the change that a recommendation proposes, None if it changes no file."""
    action = one.action
    if action.type == "open":
        return None
    path = _find_file(store, action, homes)
    before = shared_files.read_if_exists(path)
    if action.type in {"allow", "deny"}:
        return FileChange(path, before, _add_rules(path, before, action))
    return FileChange(path, before, _add_block(before or b"", one))


def apply_recommendation(store: RetroStore, one: Recommendation, change: FileChange) -> None:
    """Write a planned change and record it; raise `Conflict` if it was applied before."""
    check_not_applied(store, one)
    if not change.path.parent.parent.is_dir():
        raise NotFound(f"no such directory: {change.path.parent}", hint="apply the diff by hand")
    removed, inserted = _changed_bytes(change.before or b"", change.after)
    file = str(change.path)
    applied = events.RecommendationApplied(
        one.id, one.title, file, store.now_ms(), removed, inserted, change.before is None
    )
    store.journal.append(applied, durable=True)
    try:
        shared_files.replace_or_conflict(change.path, change.before, change.after)
    except FlightlogError:
        store.journal.append(events.RecommendationUndone(one.id, store.now_ms()), durable=True)
        raise


def check_not_applied(store: RetroStore, one: Recommendation) -> None:
    """Raise `Conflict` if a recommendation was applied before."""
    if one.id in find_applied(store):
        raise Conflict(f"already applied: {one.id}", hint=f"flightlog retro undo {one.id}")


def undo_recommendation(store: RetroStore, name: str) -> events.RecommendationApplied:
    """Take back the change of the applied recommendation whose id starts with `name`.

    Raise `Conflict` if the file was changed in that place since.
    """
    matches = [one for key, one in find_applied(store).items() if key.startswith(name)]
    if len(matches) != 1:
        raise NotFound(f"not applied: {name[:60]}", hint="flightlog retro analyze")
    (applied,) = matches
    path = Path(applied.file)
    current = shared_files.read_if_exists(path) or b""
    if not _is_present(applied, current):  # never written, or removed by hand
        restored = current
    elif current.count(applied.inserted) == 1:
        restored = current.replace(applied.inserted, applied.removed)
    else:
        hint = f"remove it by hand: {_describe_place(applied)}"
        raise Conflict(f"changed in that place since it was applied: {path}", hint=hint)
    if path.suffix == ".json" and restored:
        json_editor.parse_object(restored.decode("utf-8", "replace"), str(path))
    if not restored and _is_made_by_us(store, applied.file):
        is_settings = path.suffix == ".json"
        shared_files.remove_with_dir(path) if is_settings else files.remove_files([path])
    elif restored != current:
        shared_files.replace_or_conflict(path, current, restored)
    done = events.RecommendationUndone(applied.recommendation, store.now_ms())
    store.journal.append(done, durable=True)
    return applied


def find_applied(store: RetroStore) -> dict[str, events.RecommendationApplied]:
    """Return the applied recommendations that were not undone, by id."""
    applied: dict[str, events.RecommendationApplied] = {}
    for event in store.iter_events():
        if isinstance(event, events.RecommendationApplied):
            applied[event.recommendation] = event
        elif isinstance(event, events.RecommendationUndone):
            applied.pop(event.recommendation, None)
    return applied


def _is_made_by_us(store: RetroStore, file: str) -> bool:
    """Return whether the first of the changes that are in a file made it."""
    is_made, names = False, set[str]()
    for event in store.iter_events():
        if isinstance(event, events.RecommendationApplied) and event.file == file:
            is_made = is_made if names else event.is_new_file
            names.add(event.recommendation)
        elif isinstance(event, events.RecommendationUndone):
            names.discard(event.recommendation)
    return is_made


def _is_present(applied: events.RecommendationApplied, current: bytes) -> bool:
    """Return whether a line of the change is in the file; brackets and keys tell nothing."""
    lines = (line.strip(b" \t\r,") for line in applied.inserted.split(b"\n"))
    return any(line in current for line in lines if line and line[-1:] not in b"[]{}")


def _describe_place(applied: events.RecommendationApplied) -> str:
    if Path(applied.file).suffix == ".json":
        return one_line(applied.inserted.decode("utf-8", "replace"), 200)
    return f"the lines between the comments that name {applied.recommendation}"


def _find_file(store: RetroStore, action: RecommendedAction, homes: Mapping[str, str]) -> Path:
    """Return the file of an action: the project's if it exists, else the person's own."""
    if action.type == "custom-instructions":
        return files.resolve_inside(store.root, CUSTOM_INSTRUCTIONS)
    project = Path(action.project) if action.project else None
    if action.type in {"allow", "deny"}:
        path = project_settings(project or store.root.parent)
        return files.ensure_contained(project or store.root.parent, path)
    name = find_memory_file(action.agent)
    if project is None or not project.is_dir():
        return Path(homes.get(action.agent, store.root.parent)) / name
    if not (project / name).exists() and (project / COMMON_MEMORY_FILE).exists():
        name = COMMON_MEMORY_FILE
    return files.ensure_contained(project, project / name)


def _add_block(before: bytes, one: Recommendation) -> bytes:
    """Return the file with the entries that it lacks at its end, between comments with the id."""
    end = b"\r\n" if b"\r\n" in before else b"\n"
    quotes = [_quote_words(entry) for entry in one.action.entries]
    new = [f"- {quote}" for quote in quotes if quote.encode("utf-8", "replace") not in before]
    if not new:
        return before
    begin, close = (f"<!-- flightlog retro {one.id}: {word} -->" for word in ("begin", "end"))
    lines = [begin, *new, close]
    gap = b"" if not before else end if before.endswith(b"\n") else end * 2
    return before + gap + b"".join(line.encode("utf-8", "replace") + end for line in lines)


def _quote_words(text: str) -> str:
    """Return a person's words as one line of Markdown that is only text."""
    plain = one_line(_MARKUP.sub("", text), QUOTE_CHARS)
    return plain.replace("`", "") if plain.count("`") % 2 else plain


def _add_rules(path: Path, before: bytes | None, action: RecommendedAction) -> bytes:
    """Return the settings with the rules that the list lacks; everything else keeps every byte."""
    try:
        text = before.decode("utf-8") if before and before.strip() else "{}\n"
        settings = json_editor.parse_object(text, str(path))
    except UNREADABLE as error:
        raise Invalid(f"not readable as settings: {path}", hint=json_editor.CORRECT) from error
    permissions = settings.get("permissions", {})
    listed = permissions.get(action.type, []) if isinstance(permissions, dict) else None
    if not isinstance(listed, list):
        raise Invalid(f"permissions are no lists of rules: {path}", hint=json_editor.CORRECT)
    style = json_editor.style_of(text)
    for key, empty in (("permissions", {}), (action.type, [])):
        offset = _offset_of(text, () if key == "permissions" else ("permissions",))
        if json_editor.find_part(text, offset, key) is None:
            text = json_editor.add_member(text, offset, (key, empty), style)
    for rule in action.entries:
        if rule not in listed:
            offset = _offset_of(text, ("permissions", action.type))
            text = json_editor.add_member(text, offset, ("", rule), style)
    return text.encode()


def _offset_of(text: str, keys: tuple[str, ...]) -> int:
    offset = json_editor.root_offset(text)
    for key in keys:
        part = json_editor.find_part(text, offset, key)
        assert part is not None
        offset = part.value_start
    return offset


def _changed_bytes(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Return the bytes between the equal start and the equal end, before and after."""
    size = min(len(before), len(after))
    start = next((at for at in range(size) if before[at] != after[at]), size)
    end = 0
    while end < size - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return before[start : len(before) - end], after[start : len(after) - end]
