"""The shape of the source: contracts, sizes, and rules that only hold when something checks them."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import shape_measures as measures

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flightlog"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "recordings" not in path.parts)
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
# All of src. A change that adds a feature raises these by what the feature may take; nothing else raises them.
SOURCE_LINES_MAX = 91_123
SOURCE_FILES_MAX = 450


def name(path):
    return str(path.relative_to(SOURCE))


def tree(path):
    return ast.parse(path.read_text("utf-8"))


def functions(path):
    return [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_and_its_functions_are_short_and_documented(path):
    source = path.read_text("utf-8")
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions(path)}

    assert source.count("\n") <= FILE_LINES_MAX
    assert {
        function: length for function, length in lengths.items() if length > FUNCTION_LINES_MAX
    } == {}
    assert ast.get_docstring(ast.parse(source)), "a module opens with what it is"


def test_source_stays_within_its_budget():
    paths = sorted((ROOT / "src").rglob("*.py"))

    assert len(paths) <= SOURCE_FILES_MAX
    assert sum(path.read_bytes().count(b"\n") for path in paths) <= SOURCE_LINES_MAX


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_use_real_parts(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            assert not any(re.search(r"(^|\.)mock$", imported) for imported in names)
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "monkeypatch"
        ):
            assert node.attr in {"setenv", "delenv", "chdir", "syspath_prepend"}


def alternatives(path):
    """Yield the line of each assert in `path` that more than one outcome satisfies."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Assert):
            parts = node.test.values if isinstance(node.test, ast.BoolOp) else []
            if any(
                isinstance(part, ast.BoolOp) and isinstance(part.op, ast.Or)
                for part in [node.test, *parts]
            ):
                yield node.lineno


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_assert_has_one_outcome(path):
    assert list(alternatives(path)) == []


def test_the_check_for_asserts_sees_an_or(tmp_path):
    path = tmp_path / "x.py"
    for words in ("a or b", "a == 1 or b", "c and (a or b)", "a or b, 'message'"):
        path.write_text(f"assert {words}")
        assert list(alternatives(path)) == [1], words
    path.write_text("assert (a or 0) == 1\nassert 'this or that' in x\nassert a and b\n")
    assert list(alternatives(path)) == []


CLASS_ATTRIBUTE = re.compile(r"^\s*[A-Z]\w*[.]\w+ = ", re.MULTILINE)


def replaced_methods(path):
    """Yield the line of each statement in `path`, or in a script it holds, that replaces a part of a class."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and CLASS_ATTRIBUTE.search(node.value)
        ):
            yield node.lineno
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and re.match(
                "[A-Z]", getattr(target.value, "id", "")
            ):
                yield node.lineno


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_replaces_a_method_of_a_class(path):
    assert list(replaced_methods(path)) == []


def test_the_check_for_replaced_methods_sees_scripts_too(tmp_path):
    path = tmp_path / "x.py"
    for words in (
        "Machine" + ".run = f",
        f"SCRIPT = {'import x' + chr(10) + 'Machine' + '.run = f'!r}",
    ):
        path.write_text(words)
        assert list(replaced_methods(path)) == [1], words
    path.write_text("machine.run = f\nCONSTANT = 1\nx = 'Machine.run == f'\n")
    assert list(replaced_methods(path)) == []


def derived_tags(path):
    """Yield each class of `path` whose tag comes from its name, so that a rename would change files."""
    for node in ast.walk(tree(path)):
        given = {word.arg: word.value for word in getattr(node, "keywords", ()) if word.arg}
        tagged = {"tag", "tag_field"} & set(given)
        literal = isinstance(tag := given.get("tag"), ast.Constant) and isinstance(tag.value, str)
        if isinstance(node, ast.ClassDef) and tagged and not literal:
            yield node.name


def test_every_tag_is_a_literal():
    assert {f"{name(path)} {tag}" for path in MODULES for tag in derived_tags(path)} == set()


def test_the_check_for_tags_sees_every_derived_tag(tmp_path):
    path = tmp_path / "x.py"
    for words in (
        "tag=True",
        "tag=str.lower",
        'tag_field="kind"',
        'tag_field="kind", tag=True',
        "tag=name",
    ):
        path.write_text(f"class X(Struct, frozen=True, {words}): ...")
        assert list(derived_tags(path)) == ["X"], words
    path.write_text('class X(Struct, tag_field="kind", tag="x"): ...\nclass Y(Struct): ...\n')
    assert list(derived_tags(path)) == []


WRITING_CALLS = {
    *("write_text", "write_bytes", "rename", "renames", "unlink", "rmdir", "rmtree", "symlink_to"),
    *(
        "hardlink_to",
        "touch",
        "mkdir",
        "makedirs",
        "copy",
        "copy2",
        "copyfile",
        "copytree",
        "move",
        "truncate",
        "mkfifo",
    ),
}
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}
MODULES_THAT_WRITE = {"os", "shutil"}


def writes(path):
    """Yield each place where `path` writes to the file system."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and node.attr in WRITING_FLAGS:
            yield node.lineno, node.attr
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = (
            function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        )
        of = (
            function.value.id
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
            else ""
        )
        if called in WRITING_CALLS or (
            called in {"remove", "replace", "link", "symlink"} and of in MODULES_THAT_WRITE
        ):
            yield node.lineno, called
        if called == "open" and of != "os" and _mode(node) & set("wax+"):
            yield node.lineno, "open"


def _mode(call):
    """The mode of `open(path, mode)` or `path.open(mode)`."""
    place = 0 if isinstance(call.func, ast.Attribute) else 1
    modes = [
        *call.args[place : place + 1],
        *(keyword.value for keyword in call.keywords if keyword.arg == "mode"),
    ]
    return set().union(
        *(
            mode.value
            for mode in modes
            if isinstance(mode, ast.Constant) and isinstance(mode.value, str)
        )
    )


def test_only_the_store_and_the_hook_write_files():
    allowed = (SOURCE / "store", SOURCE / "hooks")
    writers = {
        f"{name(path)}:{line} {what}"
        for path in MODULES
        if not path.is_relative_to(allowed[0]) and not path.is_relative_to(allowed[1])
        for line, what in writes(path)
    }

    # Directories of the demo's own making, gone when it ends.
    assert {writer for writer in writers if not writer.startswith("setup/demo.py")} == set()


def test_the_check_for_writing_sees_every_way_to_write(tmp_path):
    ways = """
        open('x', 'w')  open('x', mode='ab')  p.open('x+')  p.write_text('')  p.write_bytes(b'')  p.unlink()  p.touch()
        os.open('x', os.O_RDWR)  os.rename('a', 'b')  os.replace('a', 'b')  shutil.copy('a', 'b')  os.remove('a')
    """
    for way in re.split(r"\s{2,}", ways.strip()):
        path = tmp_path / "x.py"
        path.write_text(way)
        assert list(writes(path)), way
    path.write_text(
        "open('x')\nopen('x', 'rb')\n'abc'.replace('a', 'b')\nos.open('x', os.O_RDONLY)\nitems.remove(1)\n"
    )
    assert list(writes(path)) == []


STARTERS = re.compile(
    r"run|Popen|call|check_call|check_output|getoutput|getstatusoutput|system|popen|which"
    r"|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?|create_subprocess_(exec|shell)|subprocess_(exec|shell)"
)
GIT_WORD = re.compile(r"([\w./-]*/)?git(\s.*)?", re.DOTALL)
GIT_LINE = re.compile(r"(?m)(?:^|[;&|(`]|\b(?:exec|env|command|if|then|do|while))\s*git\s")


def git_starts(path):
    """Yield each line where `path` starts git: as a list of words, by a call, or in a script it writes."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.List | ast.Tuple):
            words = [word.value for word in node.elts if isinstance(word, ast.Constant)]
            if words[:1] == ["git"] or (words[:1] == ["env"] and "git" in words):
                yield node.lineno
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = [
                argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)
            ]
            if STARTERS.fullmatch(called) and any(
                isinstance(one, str) and GIT_WORD.fullmatch(one) for one in given
            ):
                yield node.lineno
        elif isinstance(node, ast.JoinedStr | ast.Constant):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts
            )
            if text.startswith("#!") and GIT_LINE.search(text):
                yield node.lineno


def test_only_one_module_starts_git():
    others = [path for path in MODULES if not path.is_relative_to(SOURCE / "store" / "git")]
    bare = {"start_command", "find_git"}  # what starts git without the checks
    imported = {
        name(path)
        for path in others
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module == "flightlog.store.git.command"
        if bare & {alias.name for alias in node.names}
    }

    assert {f"{name(path)}:{line}" for path in others for line in git_starts(path)} == set()
    assert imported == set()


def test_the_check_for_git_sees_every_way_to_start_it(tmp_path):
    ways = """
        subprocess.run(['git', 'x'])  Popen(("git", *words))  words = ["git", "status"]  os.execvp("git", words)
        subprocess.run("git status", shell=True)  asyncio.create_subprocess_exec("git", "x")  os.system("git gc")
        ["env", "-u", "X", "git", "x"]  shutil.which("git")  subprocess.run(["/usr/bin/env"] + ["git"])
        f"#!/bin/sh\\n{x}\\ngit diff\\n"  "#!/bin/sh\\n[ -d x ] && git gc\\n"  subprocess.run("/usr/bin/git gc")
    """
    path = tmp_path / "x.py"
    for way in re.split(r"\s{2,}", ways.strip()):
        path.write_text(way)
        assert list(git_starts(path)), way
    path.write_text("x = {'git': 1}\nhint = 'git status'\nkind('git', 2)\ny = ('dirty', 'git')\n")
    assert list(git_starts(path)) == []


def test_redacted_values_are_made_by_the_redactor_alone():
    made_here = ("Clean", "Redacted")
    makers = {
        name(path)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in made_here
    }

    assert makers <= {"privacy/redactor.py", "privacy/json_redactor.py"}


def test_a_stray_package_breaks_the_import_contract(tmp_path):
    shutil.copytree(
        SOURCE, tmp_path / "src" / "flightlog", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    program = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports_command as main; main()"

    def lint_imports():
        ran = subprocess.run(
            [sys.executable, "-c", program, "--no-cache"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    assert lint_imports()[0] == 0, lint_imports()[1]
    stray = tmp_path / "src" / "flightlog" / "stray"
    stray.mkdir()
    (stray / "__init__.py").write_text('"""Lost."""\n')
    code, output = lint_imports()
    assert code != 0
    assert "stray" in output
    shutil.rmtree(stray)
    (tmp_path / "src/flightlog/model/errors.py").write_text(
        '"""Upwards."""\nimport flightlog.store.jsonl\n'
    )
    assert lint_imports()[0] != 0


def list_tracked_files():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / file for file in listed.splitlines()]


def test_no_lock_file_names_where_a_package_came_from():
    for path in list_tracked_files():
        if path.name == "package-lock.json":
            packages = json.loads(path.read_text())["packages"].values()
            assert not any("resolved" in package for package in packages)
        if path.suffix in {".txt", ".in", ".toml", ".lock"} and "requirements" in str(path):
            assert not re.search(r"--(extra-)?index-url|--find-links|https?://", path.read_text())
        assert path.name != "uv.lock"


# Each measure with its limit. Those above 0 are what is left to do; a change may lower them, never raise them.
LIMITS = {
    measures.classes_sharing_a_name: 0,
    measures.participles: 0,
    measures.helpers_with_banned_names: 0,
    measures.helpers_named_by_participles: 0,
    measures.vague_variables: 0,
    measures.one_word_functions: 534,  # a tenth of all; each agent has the same few
    measures.names_of_claude_code: 0,
    measures.modules_too_many: 0,
    measures.modules_with_one_importer: 71,  # 16 % of all
    measures.small_modules_with_one_importer: 0,
    measures.repeated_module_names: 60,
    measures.boolean_pairs: 0,
    measures.unexplained_constants: 0,
    measures.late_imports: 60,
    measures.long_lines: 700,  # less than 1 % of all
    measures.long_test_names: 0,
    measures.vague_test_names: 0,
}


@pytest.mark.parametrize("measure", LIMITS, ids=lambda measure: measure.__name__)
def test_measure_is_within_its_limit(measure):
    places = measure()

    assert len(places) <= LIMITS[measure], "\n".join(places)


def test_the_check_for_participles_spares_verbs():
    words = ("told", "_kept", "decoded", "written")
    verbs = ("decode", "seed", "find_sessions", "_read", "is_settled", "feed", "cut")

    assert [measures.is_banned(word) for word in words] == [True] * len(words)
    assert [measures.is_banned(word) for word in verbs] == [False] * len(verbs)


def test_only_hooks_and_forked_children_end_without_cleaning_up():
    ending = {name(path) for path in MODULES if "os._exit(" in path.read_text("utf-8")}

    # A hook must never fail its agent; a forked child must not run its parent's exit handlers.
    assert {path for path in ending if not path.startswith("hooks/")} == {"sources/workers.py"}


def test_the_readme_is_short():
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 120


CLIENT_WORDS = re.compile(
    r"cache_creation_input_tokens|cost-state|<synthetic>|isSidechain|requestRef"
)
READERS = ("agents", "hooks", "views/atif")


def test_only_an_agents_own_package_knows_its_records():
    knowing = [name(path) for path in MODULES if CLIENT_WORDS.search(path.read_text("utf-8"))]

    assert [path for path in knowing if not path.startswith(READERS)] == []
    assert knowing, "the words are still those of the client"
