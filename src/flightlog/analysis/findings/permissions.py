"""Denied calls that were tried again."""

from collections.abc import Iterable, Iterator

from flightlog.analysis.findings import (
    ActionThread,
    FindingDraft,
    ToolAction,
    draft_finding,
    quote_input,
)
from flightlog.analysis.findings.failures import find_program

SAME_DENIALS_MIN = 2  # the very same call, or the same command with other options, denied again
# Two denied variants may be two different wishes; after the third the agent works around a rule.
ALIKE_DENIALS_MIN = 3


def find_denials(actions: Iterable[ToolAction]) -> Iterator[tuple[ToolAction, str]]:
    """Yield each denied call, with the file that it would have changed or ""."""
    for action in actions:
        if action.call.denial_reason:
            yield action, action.edits[0].path if action.edits else ""


def find_denied_retries(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find calls denied again after a denial; a call that is then allowed starts the count again.

    An edit of the same file with other content is an answer to the person's review, no retry.
    """
    runs: dict[str, list[ToolAction]] = {}
    for action in thread.actions:
        if action.call.denial_reason:
            runs.setdefault(_denied_operation(action), []).append(action)
        elif runs and action.is_successful and (run := runs.pop(_denied_operation(action), None)):
            yield from _draft_denials(run)
    for run in runs.values():
        yield from _draft_denials(run)


def _denied_operation(action: ToolAction) -> str:
    """Return what a permission rule would be about: the program, the edit, or the tool."""
    if action.command:
        words = action.command.split()
        program = find_program(action.command)
        after = words[words.index(program) + 1 :] if program in words else []
        # The subcommand of git, npm or docker decides; flags and targets vary.
        return f"command {program} {next((word for word in after if word.isalpha()), '')}"
    return action.signature if action.edits else f"tool {action.call.name}"


def _denied_call(action: ToolAction) -> str:
    """Return a call without the options of its command, or a page without the question to it."""
    words = [word for word in action.command.split() if not word.startswith("-")]
    return " ".join(words) or (action.about if action.kind == "fetch" else action.signature)


def _draft_denials(run: list[ToolAction]) -> Iterator[FindingDraft]:
    is_same = len(set(map(_denied_call, run))) < len(run)
    if len(run) >= (SAME_DENIALS_MIN if is_same else ALIKE_DENIALS_MIN):
        title = f"{quote_input(run[0])} was denied and tried again, {len(run)} attempts in all"
        yield draft_finding("denied-retry", title, run)
