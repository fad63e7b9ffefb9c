"""Checks that messages follow the rules of CONTRIBUTING.md and that prose avoids a list of words.

A message says what happened, in lower case and without a full stop; then the next step, a command that can be copied,
alone or after a colon.
"""

import ast
import re
import tokenize
from pathlib import Path

from flightlog.cli.main import COMMANDS
from flightlog.model import errors

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flightlog"
ERRORS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}
BEGINNING = re.compile(r"[^A-Z]|Claude Code|FLIGHTLOG_|CLAUDE_")
BLAME = re.compile(
    r"\b(please|sorry|oops|failed to|unable to|illegal|bad|must not|you (?:did|must|should|cannot))\b|!(?!r)"
)
OTHER_NAMES = re.compile(
    r"\b(harness|ralph-runtime|chat-retro|issue-workflow|ml-data-collector) [a-zA-Z-]"
)
COMMAND = re.compile(
    rf"flightlog (?:{'|'.join(COMMANDS)})\b|(?:pip install|git|dask) [a-z-]|export \S+="
)
BEFORE = (": ", ", or ", "; ")
# Words of a file that a source document describes, and the mark by which we know a file of ours again.
LEFT_ALONE = {"loop/layout.py", "loop/report.py", "lab/statistics/report.py"}


def text(node):
    """The words of a literal; what is filled in is a pair of braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    return None


def iter_raised_errors(root):
    """Every error of ours below `root` as it is made: place, message, hint."""
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = getattr(node, "func", None)
            if isinstance(called, ast.Name) and called.id in ERRORS and node.args:
                hints = [word.value for word in node.keywords if word.arg == "hint"]
                yield (
                    f"{path.relative_to(root)}:{node.lineno}",
                    node.args[0],
                    hints[0] if hints else None,
                )


FOUND = list(iter_raised_errors(SOURCE))
MESSAGES = [(place, message_text) for place, message, _ in FOUND if (message_text := text(message))]
HINTS = [
    (place, message_text)
    for place, _, hint in FOUND
    if hint is not None and (message_text := text(hint))
]


def test_every_error_that_is_made_is_found_with_its_message_and_hint(tmp_path):
    source = """
raise NotFound(f"no such run: {name}", hint="flightlog lab list")
def fail(): return Invalid("not a plan")
kept = Conflict(message, hint=hint)
raise ValueError("not one of ours")
"""
    (tmp_path / "x.py").write_text(source)

    errors_found = {
        (place, text(message), hint and text(hint))
        for place, message, hint in iter_raised_errors(tmp_path)
    }

    assert errors_found == {
        ("x.py:2", "no such run: {}", "flightlog lab list"),
        ("x.py:3", "not a plan", None),
        ("x.py:4", None, None),
    }
    assert MESSAGES
    assert HINTS


def test_every_error_has_a_next_step():
    without = [place for place, _, hint in FOUND if hint is None or text(hint) == ""]

    assert without == []


def test_a_message_is_in_lower_case_and_has_no_full_stop():
    for place, message in MESSAGES:
        assert BEGINNING.match(message), f"{place}: {message}"
        assert not message.endswith((".", "!", "?", ",", ";", ": ")), f"{place}: {message}"
        assert "\n" not in message, f"{place}: {message}"


def test_no_message_blames_or_begs():
    for place, message in MESSAGES + HINTS:
        assert not BLAME.search(message), f"{place}: {message}"


def test_a_command_in_a_hint_can_be_copied():
    for place, hint in HINTS:
        assert not re.search(r"`(?:flightlog|pip|git|dask)\b", hint), (
            f"{place}: a command stands without marks: {hint}"
        )
        assert not hint.endswith((".", "!")), f"{place}: {hint}"
        for command in COMMAND.finditer(hint):
            before = hint[: command.start()]
            if before:
                assert before.endswith(BEFORE), f"{place}: after a colon: {hint}"


def iter_words(path):
    """The words of a file that people may see: literals of code but for documentation, and the text of a template."""
    whole = path.read_text("utf-8")
    if path.suffix == ".html":
        yield re.sub(r"{#.*?#}", "", whole, flags=re.DOTALL)
        return
    tree = ast.parse(whole)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    notes = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if node not in notes and (literal := text(node)):
            yield literal


def test_the_same_command_has_the_same_name_everywhere():
    """Each group has another name, its source document's; what we say names the one all of them are found under."""
    wrong = [
        f"{path.relative_to(SOURCE)}: {words[:80]}"
        for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html")])
        if str(path.relative_to(SOURCE)) not in LEFT_ALONE
        for words in iter_words(path)
        if OTHER_NAMES.search(words)
    ]

    assert wrong == []


def test_choices_are_offered_in_the_same_words():
    wrong = [
        f"{place}: {hint}"
        for place, hint in HINTS
        if re.search(r"^(there are|known are|choose from)\b", hint)
    ]

    assert wrong == []


# Anonymous actors and old-fashioned words; style: subject, verb, object, and the words of the field.
BANNED = re.compile(
    r"\b(somebody|nobody|whoever|anybody|anew|for ever|dearest|shall|told|stands)\b", re.IGNORECASE
)
# Lists of words to look for in other texts.
WORD_LISTS = {"randomness.py", "similarity.py"}
DOCUMENTS = [
    *ROOT.glob("*.md"),
    ROOT / "llms.txt",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "tools/docs").glob("*.py"),
    *(path for path in SOURCE.rglob("*.py") if path.name not in WORD_LISTS),
    *SOURCE.rglob("*.html"),
]
PROSE = sorted(DOCUMENTS)
TEXT_TOKENS = {"COMMENT", "STRING", "FSTRING_MIDDLE"}
FIELD = re.compile(
    r"{[^{}]*}"
)  # before Python 3.12 an f-string is one token, replacement fields included


def prose_lines(path):
    """Yield the prose of a file with line numbers: comments and literals of Python, every line of other files."""
    if path.suffix != ".py":
        yield from enumerate(path.read_text("utf-8").splitlines(), 1)
        return
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if tokenize.tok_name[token.type] in TEXT_TOKENS:
                literal = (
                    FIELD.sub("{}", token.string) if token.string[:1] in "fF" else token.string
                )
                yield from enumerate(literal.splitlines(), token.start[0])


def find_banned_words(paths):
    return [
        f"{path}:{number}: {match[0]}"
        for path in paths
        for number, line in prose_lines(path)
        for match in BANNED.finditer(line)
    ]


def test_prose_has_no_banned_words():
    assert len(PROSE) > 50

    assert find_banned_words(PROSE) == []


def test_banned_words_are_found_in_comments_and_literals_but_not_in_names(tmp_path):
    code, page = tmp_path / "code.py", tmp_path / "page.md"
    code.write_text('told = 1  # Nobody\n"""One.\n\nIt stands."""\nnames = f"for ever {told}"\n')
    page.write_text("Plain.\nIt shall be; retold, understands.\n")

    words = find_banned_words([code, page])

    assert words == [
        f"{code}:1: Nobody",
        f"{code}:4: stands",
        f"{code}:5: for ever",
        f"{page}:2: shall",
    ]
