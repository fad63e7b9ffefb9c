"""Failures: the signature of an error, test runs, retries, and errors that came back unchanged."""

import re
from collections.abc import Iterator, Sequence

from flightlog.analysis.findings import (
    EXCERPT_CHARS,
    ActionThread,
    FindingDraft,
    ToolAction,
    draft_finding,
    quote_input,
)
from flightlog.model.text import one_line

# Twice may be a retry after a hiccup; the third equal error shows that nothing was learned from it.
SAME_FAILURES_MIN = 3
DEAD_END_CALLS = 3  # failing calls at the end of a turn
_OUTPUT_CHARS = 4_000  # of each end of an output: the error is in the first or the last lines
_COMMAND_CHARS = 1_000  # a longer command is a script given inline; its program comes first
_SIGNATURE_WORDS_MIN = 3  # "exit code #" or "error" alone do not say what went wrong
_TEST = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest)\b|\b(?:npm|pnpm|yarn|bun)(?: run)? test\b"
    r"|\b(?:go|cargo|mvn|gradle|dotnet|swift|mix|make|rake) test\b"
)
_TEST_HINTS = ("test", "tox", "nox", "jest", "mocha", "rspec", "phpunit")
# Programs whose arguments may name a test program without running it.
_NAMING = frozenset({"git", "grep", "rg", "find", "cat", "ls", "which", "pip", "pip3", "echo"})
_OPERATOR = re.compile(r"&&|\|\||[;|\n]")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?.*?(?:\n\s*\1\b|\Z)", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_TESTS_FAILED = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:failed|failing|failures?|errors?)\b|\bFAIL(?:ED)?\b|exit code [1-9]",
    re.IGNORECASE,
)
# What changes between two test runs if there was progress: failing tests, their values, counts.
_TEST_PROGRESS = re.compile(
    r"^\s*(?:FAILED|FAIL|ERROR|not ok|--- FAIL|✕|●|✗|\w+_test\.go:\d+:|Expected:|Received:).*"
    r"|\b\d+ (?:tests? )?(?:failed|failing|failures?|errors?)\b",
    re.MULTILINE | re.IGNORECASE,
)
_DURATION = re.compile(r"\d+(?:\.\d+)? ?m?s\b")
# Before the program: directories, variables, and programs that run another one.
_PROGRAM = re.compile(
    r"(?:\s*(?:cd\s[^&;|\n]*(?:&&|;)|\w+=\S*\s|sudo\s|time\s|npx\s|uv run\s|timeout\s+\S+\s))*\s*(\S+)"
)
_EXIT_LINE = re.compile(r"(?:Error: )?Exit code \d+", re.IGNORECASE)
_WORD = re.compile(r"[a-z]{3,}")
# Replaced in order; what is left of a message is the same each time the failure happens.
_NOISE = (
    (re.compile(r"</?\w+>"), ""),
    (re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,40}\b", re.IGNORECASE), "#"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.@~-]*[/\\])+([\w.@-]+)"), r"\1"),
    (re.compile(r"\d+(?:[.:]\d+)*"), "#"),
    (re.compile(r"[\"'`\u2018\u2019\u201c\u201d]"), ""),
    (re.compile(r"\s+"), " "),
)
_FAILING = re.compile(
    r"\b\w*(?:error|exception|failed|failure|fatal|panic|denied|not found|no such|timed? ?out)\b",
    re.IGNORECASE,
)


def find_error_line(text: str) -> str:
    """Return the line of a failure text that names the error."""
    ends = _bound_output(text)
    lines = [line.strip() for line in ends.splitlines() if line.strip()]
    # The client's own first line says the same of every failure.
    lines = [line for line in lines if not _EXIT_LINE.fullmatch(line)] or lines
    failing = [line for line in lines if _FAILING.search(line)]
    # A traceback names the error in its last line, other output in its first.
    return failing[-1] if "Traceback" in ends and failing else next(iter(failing or lines), "")


def error_signature(text: str) -> str:
    """Return the part of a failure text that is the same each time it happens.

    Numbers, directories, quotes and memory addresses are removed.
    """
    # 400 characters bound the work of the patterns on minified output.
    return _remove_noise(find_error_line(text)[:400])[:160]


def _remove_noise(text: str) -> str:
    for pattern, replacement in _NOISE:
        text = pattern.sub(replacement, text)
    return text.strip().lower()


def is_test_run(action: ToolAction) -> bool:
    """Return whether a command runs tests."""
    # The plain search is ten times faster than the pattern, and nearly all commands end there.
    if not any(hint in action.command for hint in _TEST_HINTS):
        return False
    parts = split_command(action.command)
    return any(_TEST.search(part) and find_program(part) not in _NAMING for part in parts)


def has_passed(action: ToolAction) -> bool:
    """Return whether a test run passed, by its result and its output; a pipe hides the exit code."""
    return action.is_successful and not _TESTS_FAILED.search(action.call.output)


def split_command(command: str) -> list[str]:
    """Return the single commands of a shell command, without quoted text and inline files."""
    plain = _QUOTED.sub("", _HEREDOC.sub("", command[:_COMMAND_CHARS]))
    return [part for part in _OPERATOR.split(plain) if part.strip()]


def find_program(command: str) -> str:
    """Return the program that a command runs first, without its directory."""
    match = _PROGRAM.match(command[:_COMMAND_CHARS])
    return match[1].rpartition("/")[2] if match else ""


def find_retries(actions: Sequence[ToolAction]) -> Iterator[ToolAction]:
    """Yield the first repetition of each call of a turn that had failed."""
    failed: set[str] = set()
    retried: set[str] = set()
    for action in actions:
        if failed and (signature := action.signature) in failed and signature not in retried:
            retried.add(signature)
            yield action
        if action.is_failed:
            failed.add(action.signature)


def ends_in_failures(actions: Sequence[ToolAction]) -> bool:
    """Return whether the last calls of a turn all failed."""
    last = actions[-DEAD_END_CALLS:]
    return len(last) == DEAD_END_CALLS and all(action.is_failed for action in last)


def find_repeated_failures(thread: ActionThread) -> Iterator[FindingDraft]:
    """Find errors that came back unchanged; a success of the same call starts the count again."""
    runs: dict[tuple[str, ...], list[ToolAction]] = {}
    keys: dict[str, set[tuple[str, ...]]] = {}  # the runs that a success of this call ends
    for action in thread.actions:
        is_test = is_test_run(action)
        is_broken = is_test and not action.call.denial_reason and not has_passed(action)
        if action.is_failed or is_broken:
            key = _failure_key(action, is_test=is_test)
            runs.setdefault(key, []).append(action)
            keys.setdefault(_subject(action, is_test=is_test), set()).add(key)
        elif keys and action.is_successful:
            for key in keys.pop(_subject(action, is_test=is_test), ()):
                yield from _draft_run(runs.pop(key, []))
    for run in runs.values():
        yield from _draft_run(run)


def _subject(action: ToolAction, *, is_test: bool) -> str:
    """Return what a call is an attempt at: all test runs are attempts at the same thing."""
    if is_test or action.command:
        return "tests" if is_test else action.command
    return f"{action.call.name} {action.about or action.call.input}"


def _failure_key(action: ToolAction, *, is_test: bool) -> tuple[str, ...]:
    """Return what ran, and how it failed; both are equal if nothing was learned in between."""
    output = _bound_output(action.call.output)
    signature = error_signature(output)
    if is_test:
        progress = {_DURATION.sub("", found) for found in _TEST_PROGRESS.findall(output)}
        return (_subject(action, is_test=True), signature, *sorted(progress))
    if action.command:
        if len(_WORD.findall(signature)) >= _SIGNATURE_WORDS_MIN:
            return (find_program(action.command), signature)
        # An unclear error is the same only for the same command and the same output around it.
        return (action.command, signature, _remove_noise(output))
    return (_subject(action, is_test=False), signature)


def _bound_output(text: str) -> str:
    """Return the beginning and the end of a long output, and others whole."""
    is_long = len(text) > 2 * _OUTPUT_CHARS
    return f"{text[:_OUTPUT_CHARS]}\n{text[-_OUTPUT_CHARS:]}" if is_long else text


def _draft_run(run: list[ToolAction]) -> Iterator[FindingDraft]:
    if len(run) >= SAME_FAILURES_MIN:
        error = one_line(find_error_line(run[-1].call.output), EXCERPT_CHARS)
        about = f": {error}" if error else ""
        title = f"{quote_input(run[0])} failed {len(run)} times with the same error{about}"
        yield draft_finding("repeated-failure", title, run)
