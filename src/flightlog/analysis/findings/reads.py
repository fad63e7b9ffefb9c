"""Files that were read again although the agent still had them, or had them before a compaction."""

import re
from collections.abc import Iterator

from flightlog.analysis.findings import (
    ActionThread,
    FindingDraft,
    ToolAction,
    draft_finding,
    has_same_output,
    quote_input,
    quote_path,
)
from flightlog.model.entries import PromptKind
from flightlog.model.text import pluralize

# A second look at a file is ordinary; from the third on the first two did not help.
SAME_READS_MIN = 3
FORGOTTEN_MIN = 2  # searches, which are cheap to repeat; of files that are not edited then, one
_PROMPT_CHARS = 2_000  # of a prompt or command that is searched; the rest is pasted text
_REMINDER_TURNS = 3  # a reminder this soon after a compaction is about what it lost
_FORGOTTEN = "forgotten-after-compaction"
_REMINDER = re.compile(
    r"\b(?:as|like) i (?:said|mentioned|asked)|\bi(?:'ve)? (?:already|just) (?:said|asked|mentioned|explained)"
    r"|\bi (?:did )?t(?:old|ell) you|\byou forgot|\bdid you forget|\byou (?:already|just) (?:did|read|tried)",
    re.IGNORECASE,
)
_BAN = re.compile(
    r"\b(?:never|do not|don't|must not)\s+(?:ever\s+)?(use|run|call|touch|edit|change|modify|install"
    r"|push(?=[\s.,;!]|$)|commit(?=[\s.,;!]|$))(?:\s+(?:the|any|to)\b)?(?:\s+[`'\"]?([\w@-][\w./@-]{2,}))?",
    re.IGNORECASE,
)
_EDIT_VERBS = frozenset({"touch", "edit", "change", "modify"})
_GIT_VERBS = frozenset({"push", "commit"})
_PATH_WORDS = re.compile(r"[\w@-][\w./@-]*")
_LISTINGS = frozenset({"ls", "list", "list_directory"})  # tools that read a directory
# A command that only shows one file; a pipe, redirection or second command makes it another.
_SHOWING = ("cat ", "head ", "tail ", "nl ", "bat ", "less ", "sed -n ")
_OTHER_EFFECT = re.compile(r"[|;&<>\n]")
_COMMAND_CHARS = 500  # of a command that is searched for files; the rest is a script given inline
# The client's answer to a second read instead of the content, which the agent has already.
_UNCHANGED = re.compile(r"(?i)\b(?:unchanged|not (?:been )?(?:changed|modified)) since\b")


def find_repeated_reads(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find files read again and again with the same content, unedited and not asked for."""
    files: dict[str, dict[str, list[ToolAction]]] = {}
    for action in thread.actions:
        if name := _file_read(action):
            run = files.setdefault(name, {}).setdefault(action.signature, [])
            if run and not _is_reread(run[-1], action, name):
                yield from _draft_reads(run)
                run.clear()
            run.append(action)
        else:
            for written in _files_written(action) if files else ():
                for run in files.pop(written, {}).values():
                    yield from _draft_reads(run)
    for runs in files.values():
        for run in runs.values():
            yield from _draft_reads(run)


def find_forgotten(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find what was done again, said again, or done although forbidden, after a compaction."""
    if any(thread.eras) or (thread.actions and thread.actions[-1].era):
        yield from _find_repeated_lookups(thread)
        if not thread.subagent:
            yield from _find_repeated_words(thread)
            yield from _find_broken_bans(thread)


def _find_repeated_lookups(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find reads and searches whose unchanged result the agent had before a compaction."""
    before: dict[str, ToolAction] = {}
    names: dict[str, set[str]] = {}
    again: dict[str, ToolAction] = {}
    for action in thread.actions:
        for written in _files_written(action):
            for signature in names.pop(written, ()):
                before.pop(signature, None)
                again.pop(signature, None)  # a file must be read before it can be edited
        if not (action.is_successful and _is_lookup(action)):
            continue
        seen = before.setdefault(action.signature, action)
        names.setdefault(_file_read(action), set()).add(action.signature)
        if seen.era < action.era and _has_same_result(seen, action) and not _is_requested(action):
            again.setdefault(action.signature, action)
    actions = list(again.values())
    if len(actions) >= FORGOTTEN_MIN or any(map(_file_read, actions)):
        first, count = quote_input(actions[0]), pluralize(len(actions), "lookup")
        title = f"{count} made before a compaction repeated after it, first {first}"
        yield draft_finding(_FORGOTTEN, title, actions)


def _find_repeated_words(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find prompts soon after a compaction that remind the agent of what was said before it."""
    for index, turn in enumerate(thread.turns):
        is_recent = thread.eras[index] > thread.eras[max(index - _REMINDER_TURNS, 0)]
        is_reminder = is_recent and _REMINDER.search(turn.text[:_PROMPT_CHARS])
        if is_reminder and turn.kind is PromptKind.HUMAN and (steps := thread.turn_steps(index)):
            title = "The person had to repeat after a compaction what had been said before it"
            yield FindingDraft(_FORGOTTEN, title, (steps[0][0],), steps)


def _find_broken_bans(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find what the person forbade, which the agent heeded until a compaction and then did."""
    bans: dict[str, tuple[str, int]] = {}  # of a name: the forbidden verb, and the era it is from
    for index, turn in enumerate(thread.turns):
        if turn.kind is PromptKind.HUMAN:
            text = turn.text[:_PROMPT_CHARS]
            for word in _PATH_WORDS.findall(text) if bans else ():
                bans.pop(_base_name(word), None)  # it is spoken of again: it may be allowed now
            for verb, thing in _BAN.findall(text):
                what = thing.rstrip("./") or verb.lower()
                if thing or what in _GIT_VERBS:
                    bans[_base_name(what)] = verb.lower(), thread.eras[index]
        for action in thread.turn_actions(index) if bans else ():
            for name in bans.keys() & _names_touched(action):
                verb, era = bans[name]
                if (verb in _EDIT_VERBS) is not bool(action.edits):
                    continue
                del bans[name]
                if action.era > era:
                    done = f"{quote_input(action)} after a compaction"
                    title = f"{done}, although the person had said not to {verb} {name}"
                    yield draft_finding(_FORGOTTEN, title, [action])


def _names_touched(action: ToolAction) -> set[str]:
    """Return the words of a command that ran, or the parts of the paths that an edit changed."""
    if not action.is_successful:
        return set()
    paths = (part for edit in action.edits for part in edit.path.split("/"))
    return {*_PATH_WORDS.findall(action.command, 0, _COMMAND_CHARS), *paths}


def _files_written(action: ToolAction) -> set[str]:
    """Return the names of files that an action may have changed: a command, all that it names."""
    if action.call.denial_reason or not (action.edits or action.command):
        return set()
    written = {_base_name(edit.path) for edit in action.edits}
    if action.command and not _shown_file(action.command):
        words = _PATH_WORDS.findall(action.command, 0, _COMMAND_CHARS)
        written |= {_base_name(word) for word in words}
    return written


def _file_read(action: ToolAction) -> str:
    """Return the name of the one file that an action reads, or ""."""
    if not action.is_successful:
        return ""
    if action.kind == "read":
        is_file = action.call.name.lower() not in _LISTINGS
        return _base_name(action.path) if is_file else ""
    shown = _shown_file(action.command)
    return _base_name(shown) if shown else ""


def _shown_file(command: str) -> str:
    """Return the file that a command only shows, or ""."""
    if not command.startswith(_SHOWING) or _OTHER_EFFECT.search(command, 0, _COMMAND_CHARS):
        return ""
    return command.rsplit(maxsplit=1)[-1].strip("'\"") if len(command) <= _COMMAND_CHARS else ""


def _is_reread(last: ToolAction, action: ToolAction, name: str) -> bool:
    if last.era != action.era:
        return False  # the compaction took the content away
    if last.turn is not action.turn and name in action.turn.text:
        return False  # the person asked for it
    return _has_same_result(last, action)


def _draft_reads(run: list[ToolAction]) -> Iterator[FindingDraft]:
    if len(run) >= SAME_READS_MIN:
        path = quote_path(run[0], run[0].path or _shown_file(run[0].command))
        title = f"{path} was read {len(run)} times without a change in between"
        yield draft_finding("repeated-read", title, run, run[1:])


def _is_lookup(action: ToolAction) -> bool:
    return action.kind in {"read", "search", "fetch"} or bool(_file_read(action))


def _has_same_result(action: ToolAction, other: ToolAction) -> bool:
    texts = (action.call.output, other.call.output)
    is_unchanged = any(len(text) < 1_000 and _UNCHANGED.search(text) for text in texts)
    return is_unchanged or has_same_output(action, other)


def _is_requested(action: ToolAction) -> bool:
    """Return whether the person's prompt names the file that an action reads."""
    name = _file_read(action)
    return bool(name) and name in action.turn.text


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]
