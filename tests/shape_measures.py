"""Measures of the source that may only fall: each function returns the places that count, one string for each."""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flightlog"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MODULES_MAX = 14
LINE_CHARS_MAX = 100
TEST_NAME_CHARS_MAX = 70
# Participles and other words that do not say what a function does; regular participles end in -ed.
BANNED = frozenset(
    [
        "told",
        "said",
        "kept",
        "held",
        "asked",
        "found",
        "known",
        "written",
        "taken",
        "laid",
        "made",
        "given",
        "gone",
        "seen",
        "done",
        "sent",
        "spent",
        "drawn",
        "shown",
        "begun",
        "born",
        "broken",
        "built",
        "bought",
        "brought",
        "chosen",
        "driven",
        "fallen",
        "felt",
        "forgotten",
        "frozen",
        "grown",
        "heard",
        "hidden",
        "left",
        "lost",
        "meant",
        "met",
        "paid",
        "sold",
        "spoken",
        "stood",
        "struck",
        "taught",
        "thought",
        "thrown",
        "torn",
        "understood",
        "whole",
        "homeless",
        "elsewhere",
        "afresh",
        "anew",
    ]
)
VERBS_IN_ED = frozenset({"seed", "need", "feed", "speed", "embed", "shed", "proceed", "exceed", "succeed"})


@functools.cache
def _trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def _functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return every function and method of the source but for those that Python names."""
    nodes = [(path, node) for path, tree in _trees().items() for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    return [(path, node) for path, node in nodes if not re.fullmatch("__.*__", node.name)]


def classes_sharing_a_name() -> list[str]:
    """Return every class whose name another class has too."""
    nodes = [
        (path, node) for path, tree in _trees().items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    names = Counter(node.name for _, node in nodes)
    return [f"{path}:{node.lineno} {node.name}" for path, node in nodes if names[node.name] > 1]


def is_banned(name: str) -> bool:
    """Return whether a function or module may not have this name."""
    word = name.strip("_")
    regular = word.endswith("ed") and "_" not in word and word not in VERBS_IN_ED
    return regular or word in BANNED


def participles() -> list[str]:
    """Return every function, method and module named by a bare participle or a banned word."""
    functions = [f"{path}:{node.lineno} {node.name}" for path, node in _functions() if is_banned(node.name)]
    return functions + [path for path in _trees() if is_banned(Path(path).stem)]


def one_word_functions() -> list[str]:
    """Return every function whose name is one word."""
    return [f"{path}:{node.lineno} {node.name}" for path, node in _functions() if "_" not in node.name.strip("_")]


def modules_too_many() -> list[str]:
    """Return the modules that a package has above the limit."""
    found = []
    for folder in sorted({path.parent for path in SOURCE.rglob("*.py")} - {SOURCE}):
        modules = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
        found += [str(path.relative_to(SOURCE)) for path in modules[MODULES_MAX:]]
    return found


def long_lines() -> list[str]:
    """Return every line of more than 100 characters."""
    return [
        f"{path}:{number}"
        for path in _trees()
        for number, line in enumerate((SOURCE / path).read_text("utf-8").splitlines(), 1)
        if len(line) > LINE_CHARS_MAX
    ]


def late_imports() -> list[str]:
    """Return every import inside a function; the commands are exempt, since only one of them runs."""
    return sorted(
        {
            f"{path}:{inner.lineno}"
            for path, node in _functions()
            if not path.startswith("cli/")
            for inner in ast.walk(node)
            if isinstance(inner, ast.Import | ast.ImportFrom)
        }
    )


def boolean_pairs() -> list[str]:
    """Return every function with two boolean parameters or more; options of a command are exempt."""
    found = []
    for path, node in _functions():
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        booleans = [
            each for each in parameters if isinstance(each.annotation, ast.Name) and each.annotation.id == "bool"
        ]
        if len(booleans) > 1 and not node.decorator_list:
            found.append(f"{path}:{node.lineno} {node.name}")
    return found


def long_test_names() -> list[str]:
    """Return every test whose name has more than 70 characters."""
    tests = [
        (path, node)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, FUNCTIONS) and node.name.startswith("test_")
    ]
    return [f"{path.name} {node.name}" for path, node in tests if len(node.name) > TEST_NAME_CHARS_MAX]
