"""Measures of the source that may only fall: each function returns the places that count, one string for each."""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
# Verbs, and one adjective: `privacy/detect/structured` finds secrets in structured text.
VERBS_IN_ED = frozenset(
    {"structured", "seed", "need", "feed", "speed", "embed", "shed", "proceed", "exceed", "succeed"}
)


@functools.cache
def _trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text("utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def _functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return every function and method of the source but for those that Python names."""
    nodes = [
        (path, node)
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
    ]
    return [(path, node) for path, node in nodes if not re.fullmatch("__.*__", node.name)]


def classes_sharing_a_name() -> list[str]:
    """Return every class whose name another class has too."""
    nodes = [
        (path, node)
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
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
    functions = [
        f"{path}:{node.lineno} {node.name}" for path, node in _functions() if is_banned(node.name)
    ]
    return functions + [path for path in _trees() if is_banned(Path(path).stem)]


def helpers_with_banned_names() -> list[str]:
    """Return every helper of tests and tools, and every class of them, that has a banned word."""
    banned = BANNED | {"nobody", "somebody", "whoever", "dearest"}
    words = banned & {"told", "said", "kept", "held", "nobody", "somebody", "whoever", "dearest"}
    return [place for place, name in _helpers() if name in banned or words & set(name.split("_"))]


def helpers_named_by_participles() -> list[str]:
    """Return every helper of tests and tools that is named by a regular participle."""
    named = [(place, name) for place, name in _helpers() if place.split()[-1].islower()]
    return [place for place, name in named if is_banned(name) and name not in BANNED]


def _helpers() -> list[tuple[str, str]]:
    """Return the functions and classes of tests and tools, test functions aside: place and name."""
    paths = [path for top in ("tests", "tools") for path in sorted((ROOT / top).rglob("*.py"))]
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node.name.strip("_").lower())
        for path in paths
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("test_")
    ]


# Variables are named after what they hold; in tests and tools `found` says too little as well.
VAGUE_VARIABLES = frozenset({"each", "told", "said", "kept", "held", "it"})


def vague_variables() -> list[str]:
    """Return every variable and parameter of src, tests and tools whose name does not say what it holds."""
    words = {
        "src": VAGUE_VARIABLES,
        **dict.fromkeys(("tests", "tools"), VAGUE_VARIABLES | {"found"}),
    }
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for top, banned in words.items()
        for path in sorted((ROOT / top).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.arg | ast.Name)
        and not isinstance(getattr(node, "ctx", None), ast.Load)
        if (name := node.arg if isinstance(node, ast.arg) else node.id) in banned
    ]


# Options, variables, files and record types of Claude Code that no other client has.
CLAUDE_CODE_NAME = re.compile(
    r"--(allowedTools|disallowedTools|output-format|permission-mode|mcp-config|settings|effort|fork-session)\b"
    r"|\bCLAUDE_(CODE|CONFIG|PROJECT|PLUGIN)_\w+|\.claude\b(?!\.)|\bCLAUDE\.md\b"
    r"|^(api-request(-\w+)?|file-history-\w+|queue-operation|cost-state|last-prompt|ai-title|fork-context-ref"
    r"|isSidechain|toolUseResult|requestRef|compact_boundary|<synthetic>)$"
)
CLAUDE_CODE_PLACES = (
    "agents/claude_code/",
    "agents/dialects/",
    "agents/scripted/",
    "hooks/",
    "views/atif/",
)


def names_of_claude_code() -> list[str]:
    """Return every text outside Claude Code's own packages that only makes sense for that client.

    The registry names each agent's directory; documentation in docstrings may name anything.
    """
    places = []
    for path, tree in _trees().items():
        if path.startswith(CLAUDE_CODE_PLACES) or path == "agents/__init__.py":
            continue
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        places += [
            f"{path}:{node.lineno} {node.value[:60]!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in documentation and CLAUDE_CODE_NAME.search(node.value)
        ]
    return places


def one_word_functions() -> list[str]:
    """Return every function whose name is one word."""
    return [
        f"{path}:{node.lineno} {node.name}"
        for path, node in _functions()
        if "_" not in node.name.strip("_")
    ]


def modules_too_many() -> list[str]:
    """Return the modules that a package has above the limit."""
    excess = []
    for folder in sorted({path.parent for path in SOURCE.rglob("*.py")} - {SOURCE}):
        modules = sorted(path for path in folder.glob("*.py") if not path.name.startswith("__"))
        excess += [str(path.relative_to(SOURCE)) for path in modules[MODULES_MAX:]]
    return excess


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
    places = []
    for path, node in _functions():
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        booleans = [
            parameter
            for parameter in parameters
            if isinstance(parameter.annotation, ast.Name) and parameter.annotation.id == "bool"
        ]
        if len(booleans) > 1 and not node.decorator_list:
            places.append(f"{path}:{node.lineno} {node.name}")
    return places


def long_test_names() -> list[str]:
    """Return every test whose name has more than 70 characters."""
    return [name for name in _test_names() if len(name.rpartition(" ")[2]) > TEST_NAME_CHARS_MAX]


def _test_names() -> list[str]:
    """Return file and name of every test."""
    return [
        f"{path.name} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, FUNCTIONS) and node.name.startswith("test_")
    ]


# Words of test_voice.py that a name can hold.
VAGUE = frozenset({"anybody", "anew", "dearest", "nobody", "shall", "somebody", "told", "whoever"})


def vague_test_names() -> list[str]:
    """Return every test whose name has a word that prose does not have either."""
    return [name for name in _test_names() if VAGUE & set(name.rpartition(" ")[2].split("_"))]


# Files that every feature has, so that a reader knows where to look; one importer is what they are for.
SKELETON = frozenset(
    {"events", "state", "store", "layout", "service", "links", "protocol", "rows", "reader"}
)
SMALL_LINES = 60


@functools.cache
def _importers() -> dict[str, frozenset[str]]:
    """Return the modules that import each module, `__init__` and entry points aside."""
    modules = {path[:-3].replace("/", "."): path for path in _trees()}
    names = {f"flightlog.{name}".removesuffix(".__init__"): name for name in modules}
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for importer, path in modules.items():
        for node in ast.walk(_trees()[path]):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            for alias in node.names:
                target = names.get(f"{node.module}.{alias.name}") or names.get(node.module)
                if target and target != importer:
                    importers[target].add(importer)
    return {
        name: frozenset(by)
        for name, by in importers.items()
        if not name.rpartition(".")[2].startswith("__")
    }


def modules_with_one_importer() -> list[str]:
    """Return every module that one other module imports."""
    return sorted(name for name, by in _importers().items() if len(by) == 1)


def small_modules_with_one_importer() -> list[str]:
    """Return those below 60 lines; files of the skeleton and of an agent's package are exempt."""
    return [
        name
        for name in modules_with_one_importer()
        if not name.startswith("agents.") and name.rpartition(".")[2] not in SKELETON
        if (SOURCE / f"{name.replace('.', '/')}.py").read_text("utf-8").count("\n") < SMALL_LINES
    ]


def repeated_module_names() -> list[str]:
    """Return every module whose name another one has, the skeleton and the interfaces aside.

    The packages of agents are a skeleton too: each has the same modules.
    """
    paths = [path for path in _trees() if not re.match(r"agents/\w+/", path)]
    stems = Counter(Path(path).stem for path in paths)
    return [
        path
        for path in paths
        if stems[Path(path).stem] > 1 and Path(path).stem not in SKELETON | {"__init__", "__main__"}
        if not path.startswith(("cli/", "web/"))
    ]


def unexplained_constants() -> list[str]:
    """Return numbers and patterns at module level in `privacy/detect`, `store` and `usage` without a comment."""
    places = []
    for path, tree in _trees().items():
        if not path.startswith(("privacy/detect/", "store/", "usage/")) or path.endswith(
            "price_table.py"
        ):
            continue
        lines = (SOURCE / path).read_text("utf-8").splitlines()
        for node in tree.body:
            if (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and node.value
                and _is_threshold(node.value)
            ):
                above = lines[node.lineno - 2].lstrip() if node.lineno > 1 else ""
                own = lines[node.lineno - 1 : node.end_lineno]
                if not above.startswith("#") and not any("#" in line for line in own):
                    places.append(f"{path}:{node.lineno}")
    return places


def _is_threshold(value: ast.expr) -> bool:
    """Return whether a value is a number, or a pattern."""
    numbers = [
        node
        for node in ast.walk(value)
        if isinstance(node, ast.Constant | ast.operator | ast.BinOp)
    ]
    plain = isinstance(value, ast.Constant | ast.BinOp) and any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
        for node in numbers
    )
    return plain or (
        isinstance(value, ast.Call) and ast.unparse(value.func).endswith(("compile", "linear"))
    )
