"""Changes of files: those taken back, those thrown away, those that nothing was run for."""

import re
from collections.abc import Iterable, Iterator

from flightlog.analysis.findings import (
    ActionThread,
    FindingDraft,
    ToolAction,
    draft_finding,
    is_below,
    quote_input,
    quote_path,
)
from flightlog.analysis.findings.failures import find_program, is_test_run, split_command
from flightlog.model.session import Note, NoteKind
from flightlog.model.text import pluralize
from flightlog.views.session.edits import commits_of_call
from flightlog.views.session.tools import DiffSign, ToolEdit

_Change = tuple[str, str]  # the lines removed, the lines added
_EDITS_COMPARED = 40  # of one file: each edit is compared with that many before it
_UNDONE_CHARS_MIN = 6  # of a text found in a longer one; a shorter one may be in another place
# Output for debugging is put in to be taken out again.
_DEBUGGING = re.compile(
    r"print|console\.|\blog|debug|breakpoint|dbg!|dump|trace|TODO|XXX|assert", re.IGNORECASE
)
_GIT = r"\bgit(?:\s+-[Cc]\s+\S+|\s+-\S+)*\s+"  # with options before the command
_COMMIT = re.compile(_GIT + r"commit\b")
# Commands that throw uncommitted changes away, and what they name; a checkout may name a branch.
_DISCARD = re.compile(
    _GIT + r"(checkout(?!\s+-[bBt])|restore(?!\s+--staged)|reset\s+--hard|clean(?=\s+-[a-mo-z]*f)"
    r"|switch(?=\s+(?:-f|--force|--discard))|stash(?!\s+(?:list|show|pop|apply|branch|drop)))\b([^|;&\n]*)"
)
_TAKE_BACK_COMMIT = re.compile(_GIT + r"(?:revert\b(?!\s+--abort)|reset\s+--hard\s+\S*[~^])")
_FORCE = re.compile(r"\s(?:-f|--force|--discard-changes)\b")
_CLEANED = re.compile(r"^Removing (.+?)/?$", re.MULTILINE)  # what `git clean` says
_UNSTASH = re.compile(_GIT + r"stash\s+(?:pop|apply)\b")
_OPTION = re.compile(r"-\S*|HEAD\S*|push|save")  # words after a command that are no files
_CODE_FILE = re.compile(
    r"\.(?:py|[cm]?[jt]sx?|go|rs|java|kts?|cc?|cpp|cxx|hh?|hpp|cs|rb|php|swift|scala|sh|sql|vue|svelte|exs?|dart|lua|jl)$"
)
_TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test_\w|_test\.\w+$|\.(?:test|spec)\.\w+$"
)
_TEST_WORD = re.compile(r"\btest(?:s|ed|ing)?\b", re.IGNORECASE)
# A reported defect is worth a run; a misspelled word is not.
_DEFECT = re.compile(r"\b(?:fix(?:es)?|bugs?|broken|crash\w*|fails?|failing)\b", re.IGNORECASE)
_SLIGHT = re.compile(
    r"\b(?:typos?|spelling|wording|comments?|lint|format\w*|indent\w*|docs?)\b", re.IGNORECASE
)
# The person, or a loop, tests what comes of it, or wants no run.
_TESTED_ELSEWHERE = re.compile(
    r"\bmust (?:succeed|pass) afterwards?\b|\bi(?:'ll| will) (?:run|test|try|check)\b"
    r"|\b(?:do not|don't|no need to|without) (?:run|test)", re.IGNORECASE
)  # fmt: skip
_CLAIM = re.compile(
    r"\btests? (?:\w+ )?pass|\bverified\b|\btested\b|\bworks (?:now|again|correctly|as expected)\b"
    r"|\bshould (?:now )?work\b|\bready (?:to (?:use|merge|ship)|for (?:use|production|review))\b",
    re.IGNORECASE,
)
# Programs that show or move things; any other program after a change counts as trying it.
_PASSIVE = frozenset({"apply_patch", "awk", "cat", "cd", "chmod", "cp", "diff", "echo", "find", "git", "grep", "head",
                      "ls", "mkdir", "mv", "pwd", "rg", "rm", "sed", "tail", "touch", "tree", "wc"})  # fmt: skip
_PLANNING = frozenset(
    {"TodoWrite", "update_plan", "ExitPlanMode", "AskUserQuestion", "report_intent", "TaskUpdate"}
)
# Changes after the last run that are worth a finding; below, they are the final touch.
_LARGE_EDITS, _LARGE_FILES, _LARGE_LINES = 3, 3, 60


def find_undone_edits(thread: ActionThread) -> Iterator[tuple[ToolAction, ToolAction, str]]:
    """Yield an edit, the one that exactly took it back, and the file."""
    changes: dict[str, list[tuple[ToolAction, _Change]]] = {}  # of each file, the last ones
    contents: dict[tuple[str, str], int] = {}  # which write of a file last had this content
    writes: dict[str, list[ToolAction]] = {}
    for action in thread.actions:
        for edit in action.edits if action.is_successful else ():
            earlier = changes.setdefault(edit.path, [])
            for change in _list_changes(edit):
                undone = (at for at, (_, old) in enumerate(earlier) if _is_undone(old, change))
                at = next(undone, -1)
                if at >= 0 and not _is_debugging(*change):
                    yield earlier.pop(at)[0], action, edit.path
                earlier.append((action, change))
            del earlier[:-_EDITS_COMPARED]
            if edit.content is not None:
                written = writes.setdefault(edit.path, [])
                before = contents.get((edit.path, edit.content), len(written))
                if before < len(written) - 1:
                    yield written[before + 1], action, edit.path
                contents[edit.path, edit.content] = len(written)
                written.append(action)


def find_edit_undos(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find files that were changed and changed back."""
    pairs: dict[str, list[ToolAction]] = {}
    for first, last, path in find_undone_edits(thread):
        pairs.setdefault(path, []).extend((first, last))
    for path, actions in pairs.items():
        times = "" if len(actions) == 2 else f" {len(actions) // 2} times"
        name = quote_path(actions[0], path)
        yield draft_finding("edit-undo", f"{name} was changed and changed back{times}", actions)


def is_revert(action: ToolAction) -> bool:
    """Return whether a command throws away or takes back changes in git."""
    discards = _DISCARD.findall(action.command) if "git" in action.command else ()
    is_discard = any(git != "checkout" or " -- " in f"{rest} " for git, rest in discards)
    return is_discard or _TAKE_BACK_COMMIT.search(action.command) is not None


def is_commit(action: ToolAction) -> bool:
    """Return whether a command made a commit."""
    is_commit = _COMMIT.search(action.command) is not None and action.is_successful
    return is_commit and bool(commits_of_call(action.call))


def find_discarded_work(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find edits that git threw away, or whose commit was taken back; a stash may come back."""
    pending: list[ToolAction] = []
    committed: list[ToolAction] = []
    commands = [action.command for action in thread.actions]
    pops = [at for at, text in enumerate(commands) if "stash" in text and _UNSTASH.search(text)]
    for index, action in enumerate(thread.actions):
        if not action.is_successful:
            continue
        pending += [action] if action.edits else []
        if "git" not in action.command:
            continue
        lost: list[ToolAction] = []
        if _TAKE_BACK_COMMIT.search(action.command):
            lost, committed = committed, []
        is_stash_back = bool(pops) and index <= pops[-1]
        if discards := _list_discards(action, is_stash_back=is_stash_back):
            lost += [edit for edit in pending if _throws_away(discards, edit)]
            pending = [edit for edit in pending if not _throws_away(discards, edit)]
        elif _COMMIT.search(action.command):
            committed, pending = pending, []
        if lost:
            title = f"{pluralize(len(lost), 'edit')} thrown away by {quote_input(action)}"
            yield draft_finding("discarded-work", title, [*lost, action])


def find_untested_change(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find code that was changed, reported as finished, and never run, where tests were at hand."""
    if thread.subagent or not thread.steps or thread.steps[-1][1].tool_calls:
        return  # a subagent's work is tried by its caller; a call at the end is unfinished work
    changed: list[ToolAction] = []
    tried = committed = has_tests = False
    for action in thread.actions:
        if action.turn.is_rewound or action.call.denial_reason:
            continue
        has_tests = has_tests or is_test_run(action) or _TEST_FILE.search(action.path) is not None
        if action.edits and action.is_successful:
            is_code = any(_CODE_FILE.search(edit.path) for edit in action.edits)
            changed += [action] if is_code else []
        elif changed and _tries_code(action):
            changed, tried, committed = [], True, False
        elif changed and _COMMIT.search(action.command):
            committed = True
    notes = [item for item in thread.turns[-1].items if isinstance(item, Note)]
    prompts = {action.turn.text for action in changed}
    is_interrupted = any(note.kind is NoteKind.INTERRUPTION for note in notes)
    if not changed or any(map(_TESTED_ELSEWHERE.search, prompts)) or is_interrupted:
        return
    files = dict.fromkeys(edit.path for action in changed for edit in action.edits)
    if tried:
        is_wrong = committed and len(changed) >= _LARGE_EDITS
    else:
        is_wrong = committed or has_tests or _calls_for_tests(thread, prompts)
    if is_wrong or len(files) >= _LARGE_FILES or _count_lines(changed) >= _LARGE_LINES:
        first, count = quote_path(changed[0], changed[0].edits[0].path), len(files)
        title = f"{pluralize(count, 'code file')} changed and not run afterward, first {first}"
        yield draft_finding("untested-change", title, changed)


def _count_lines(actions: Iterable[ToolAction]) -> int:
    edits = [edit for action in actions for edit in action.edits]
    added = sum(len(added) for edit in edits for _, added in _list_changes(edit))
    return added + sum((edit.content or "").count("\n") for edit in edits)


def _list_changes(edit: ToolEdit) -> Iterator[_Change]:
    for old, new in edit.replacements:
        before, after = old.split("\n"), new.split("\n")
        start = 0
        while start < min(len(before), len(after)) and before[start] == after[start]:
            start += 1
        end = 0
        while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
            end += 1
        lines = before[start : len(before) - end], after[start : len(after) - end]
        change = "\n".join(lines[0]), "\n".join(lines[1])
        if any(change):
            yield change
    if edit.patch:
        yield _lines_of(edit, DiffSign.REMOVED), _lines_of(edit, DiffSign.ADDED)


def _is_undone(change: _Change, later: _Change) -> bool:
    """Return whether a later change takes a change back, perhaps given with more or fewer words."""
    (old, new), (before, after) = change, later
    if (old, new) == (after, before):
        return True
    if min(len(new), len(before)) < _UNDONE_CHARS_MIN:
        return False
    if new in before:
        return before.replace(new, old) == after
    return before in new and new.replace(before, after) == old


def _lines_of(edit: ToolEdit, sign: DiffSign) -> str:
    return "\n".join(line.text for line in edit.patch if line.sign is sign)


def _is_debugging(removed: str, added: str) -> bool:
    """Return whether a change only removes lines for debugging."""
    lines = [line for line in removed.split("\n") if line.strip()]
    return not added and all(map(_DEBUGGING.search, lines))


def _list_discards(action: ToolAction, *, is_stash_back: bool) -> list[list[str]]:
    """Return the files that each command of git in an action throws away; `.` is all of them."""
    discards = []
    for git, arguments in _DISCARD.findall(action.command):
        words = [word.strip("\"'") for word in arguments.split() if not _OPTION.fullmatch(word)]
        if git == "stash" and is_stash_back:
            continue
        if git == "clean":
            words = _CLEANED.findall(action.call.output)
        elif git == "checkout" and " -- " not in f"{arguments} ":
            words = [word for word in words if "." in word or "/" in word]  # no branch
        is_forced = git in {"checkout", "switch"} and _FORCE.match(arguments)
        is_whole = (
            git.startswith(("reset", "stash")) or is_forced or (git, words) == ("restore", [])
        )
        discards.append(["."] if is_whole or ":/" in words else words)
    return discards


def _throws_away(discards: list[list[str]], action: ToolAction) -> bool:
    """Return whether commands of git throw away what `action` wrote."""
    words = {word for words in discards for word in words}
    paths = [edit.path for edit in action.edits]
    return any(word == "." or any(is_below(path, word) for path in paths) for word in words)


def _tries_code(action: ToolAction) -> bool:
    """Return whether a call may have run the code: a program, a subagent, an unknown tool."""
    if action.command:
        return any(find_program(part) not in _PASSIVE for part in split_command(action.command))
    return action.kind in {"delegate", "other", "command"} and action.call.name not in _PLANNING


def _calls_for_tests(thread: ActionThread, prompts: set[str]) -> bool:
    """Return whether the person asked for tests or a fix, or the agent claims that it tested."""
    claim = "\n".join(getattr(block, "text", "") for block in thread.steps[-1][1].content)
    return _CLAIM.search(claim) is not None or any(
        _TEST_WORD.search(prompt) or (_DEFECT.search(prompt) and not _SLIGHT.search(prompt))
        for prompt in prompts
    )
