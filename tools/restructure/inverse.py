"""Compare a tree with an older commit, function by function, docstrings aside."""

import ast
import difflib
import subprocess
from collections.abc import Iterator
from pathlib import Path


def compare_trees(root: Path, commit: str, texts: dict[str, str]) -> int:
    """Print what differs between `commit` and `texts`; return 1 if anything does."""
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", commit, "src", "tests", "tools", "pyproject.toml"],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    differing = 0
    for path in sorted({*listed, *texts}):
        if path.startswith("tools/restructure/") or (not path.endswith((".py", ".html")) and path not in texts):
            continue
        if path not in texts or path not in listed:
            print(f"{path}: only in {'the commit' if path in listed else 'the tree'}")
            differing += 1
            continue
        old = subprocess.run(
            ["git", "show", f"{commit}:{path}"], cwd=root, check=True, capture_output=True, text=True
        ).stdout
        if old != texts[path]:
            differing += _compare(path, old, texts[path])
    print(f"{differing} differences")
    return 1 if differing else 0


def _compare(path: str, old: str, new: str) -> int:
    if not path.endswith(".py"):
        print("\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="", n=0)))
        return 1
    before, after = dict(_units(ast.parse(old))), dict(_units(ast.parse(new)))
    count = 0
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            count += 1
            print(f"{path}: {name}")
            lines = difflib.unified_diff(
                before.get(name, "").splitlines(), after.get(name, "").splitlines(), lineterm="", n=0
            )
            print("\n".join(f"    {line}" for line in list(lines)[2:]))
    return count


def _units(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each function and the rest of each class and module, as normalized source."""
    seen: dict[str, int] = {}
    yield from _parts(tree, "", seen)


def _parts(node: ast.AST, name: str, seen: dict[str, int]) -> Iterator[tuple[str, str]]:
    rest = []
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield _unique(f"{name}{child.name}", seen), ast.unparse(_without_docstrings(child))
        elif isinstance(child, ast.ClassDef):
            yield from _parts(child, f"{name}{child.name}.", seen)
            heads = [*child.decorator_list, *child.bases, *child.keywords]
            rest.append(f"class {child.name}: " + ", ".join(map(ast.unparse, heads)))
        elif not _is_docstring(child):
            rest.append(ast.unparse(child))
    imports = [line for line in rest if line.startswith(("from ", "import "))]
    others = [line for line in rest if not line.startswith(("from ", "import "))]
    yield _unique(f"{name}<body>", seen), "\n".join([*sorted(map(_sorted_import, imports)), *others])


def _unique(name: str, seen: dict[str, int]) -> str:
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name}#{seen[name]}"


def _sorted_import(line: str) -> str:
    head, found, names = line.partition(" import ")
    return head + found + ", ".join(sorted(names.split(", ")))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [child for child in body if not _is_docstring(child)] or [ast.Pass()]
            imports = [child for child in node.body if isinstance(child, ast.ImportFrom)]
            for child in imports:
                child.names.sort(key=lambda alias: alias.name)
    return tree
