"""Annotations that tests leave out, inferred so that mypy knows the receivers there."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from mypy import nodes, types

from .source import SourceFile

Walk = Callable[[nodes.Node], Iterator[nodes.Node]]
Hints = dict[int, dict[str, str]]  # line of the def -> parameter or "return" -> annotation
_FIXTURES = {"tmp_path": "pathlib.Path", "monkeypatch": "pytest.MonkeyPatch", "capsys": "pytest.CaptureFixture[str]"}


def needs_hints(source: SourceFile) -> bool:
    return source.path.parts[0] in {"tests", "tools"}


def inject(source: SourceFile, hints: Hints) -> str:
    """Return the text with annotations added in place; lines keep their numbers."""
    edits: dict[int, str] = {}
    modules: set[str] = set()
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.lineno not in hints:
            continue
        wanted = hints[node.lineno]
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for each in parameters:
            if each.annotation is None and each.arg in wanted:
                edits[source.spans[each][1]] = f': "{wanted[each.arg]}"'
        if node.returns is None and "return" in wanted:
            edits[_signature_end(source, node)] = f' -> "{wanted["return"]}"'
        for text in wanted.values():
            modules |= {name.rpartition(".")[0] for name in re.findall(r"[\w.]+\.\w+", text)}
    parts, at = [], 0
    for place, text in sorted(edits.items()):
        parts += [source.text[at:place], text]
        at = place
    tail = "".join(f"\nimport {module}" for module in sorted(modules))
    return "".join([*parts, source.text[at:]]) + tail + "\n"


def _signature_end(source: SourceFile, node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    at = source.text.index("(", source.spans[node][0])
    ends = [source.spans[each][1] for each in ast.walk(node.args) if each in source.spans]
    return source.text.index(")", max([at, *ends])) + 1


def collect(
    files: dict[str, nodes.MypyFile], known: dict, sources: dict[str, SourceFile], walk: Walk
) -> dict[str, Hints]:
    """Return what one run of mypy says about unannotated functions: returns, call arguments, fixtures."""
    returns: dict[tuple[str, int], tuple[str, bool]] = {}
    arguments: dict[tuple[str, int], dict[str, set[str | None]]] = defaultdict(lambda: defaultdict(set))
    functions: dict[nodes.FuncDef, tuple[str, int]] = {}
    for module, source in sources.items():
        for part in walk(files[module]) if needs_hints(source) and module in files else []:
            if isinstance(part, nodes.FuncDef):
                functions[part] = (module, part.line)
                text = _returned(part, known, walk)
                if text:
                    returns[module, part.line] = text, part.is_generator
    for module, source in sources.items():
        for part in walk(files[module]) if needs_hints(source) and module in files else []:
            if isinstance(part, nodes.CallExpr):
                _note_arguments(part, functions, known, arguments)
    found: dict[str, Hints] = {}
    for module, source in sources.items():
        if needs_hints(source):
            found[module] = _hints_of(source, sources, returns, arguments)
    return found


def _returned(function: nodes.FuncDef, known: dict, walk: Walk) -> str | None:
    inner = {id(each) for part in walk(function.body) if isinstance(part, (nodes.FuncDef, nodes.LambdaExpr))
             for each in walk(part)}  # fmt: skip
    kind = nodes.YieldExpr if function.is_generator else nodes.ReturnStmt
    texts = {
        _source(known.get(part.expr))
        for part in walk(function.body)
        if isinstance(part, kind) and part.expr is not None and id(part) not in inner
    }
    return texts.pop() if len(texts) == 1 else None


def _note_arguments(call: nodes.CallExpr, functions: dict, known: dict, arguments: dict) -> None:
    callee = call.callee
    node = callee.node if isinstance(callee, nodes.RefExpr) else None
    node = node.func if isinstance(node, nodes.Decorator) else node
    if node not in functions:
        return
    noted = arguments[functions[node]]
    for position, (argument, kind, name) in enumerate(zip(call.args, call.arg_kinds, call.arg_names, strict=True)):
        text = _source(known.get(argument))
        if kind == nodes.ARG_POS and position < len(node.arg_names):
            noted[node.arg_names[position]].add(text)
        elif kind == nodes.ARG_NAMED:
            noted[name].add(text)
        else:
            for each in node.arg_names:
                noted[each].add(None)


def _hints_of(source: SourceFile, sources: dict[str, SourceFile], returns: dict, arguments: dict) -> Hints:
    found: Hints = defaultdict(dict)
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        is_fixture = _is_fixture(node)
        text, is_generator = returns.get((source.module, node.lineno), (None, False))
        if text and not is_fixture:
            kind = "AsyncIterator" if isinstance(node, ast.AsyncFunctionDef) else "Iterator"
            found[node.lineno]["return"] = f"collections.abc.{kind}[{text}]" if is_generator else text
        for name, texts in arguments.get((source.module, node.lineno), {}).items():
            if len(texts) == 1 and None not in texts:
                found[node.lineno][name] = next(iter(texts))
        if is_fixture or node.name.startswith("test_"):
            for each in [*node.args.args, *node.args.kwonlyargs]:
                given = _fixture_type(each.arg, source, sources, returns) or _FIXTURES.get(each.arg)
                if given:
                    found[node.lineno][each.arg] = given
    return found


def _fixture_type(name: str, source: SourceFile, sources: dict[str, SourceFile], returns: dict) -> str | None:
    folder = Path(source.path).parent
    near = [source, *(sources.get(".".join([*part.parts[1:], "conftest"])) for part in [folder, *folder.parents])]
    imported = [
        sources.get(node.module or "")
        for node in source.tree.body
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names)
    ]
    for each in filter(None, [*imported, *near]):
        for node in each.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name and _is_fixture(node):
                return returns.get((each.module, node.lineno), (None,))[0]
    return None


def _is_fixture(node: ast.AST) -> bool:
    return any("fixture" in ast.unparse(each) for each in node.decorator_list)


def _source(kind: types.Type | None) -> str | None:
    """Return a type as an annotation with full names, or None where it says nothing of use."""
    kind = types.get_proper_type(kind) if kind is not None else None
    if isinstance(kind, types.NoneType):
        return "None"
    if isinstance(kind, types.UnionType):
        items = [_source(item) for item in kind.items]
        return " | ".join(items) if None not in items else None
    if isinstance(kind, types.TupleType) and kind.partial_fallback.type.fullname == "builtins.tuple":
        items = [_source(item) or "object" for item in kind.items]
        return f"tuple[{', '.join(items)}]" if items else None
    if isinstance(kind, types.TupleType):
        kind = kind.partial_fallback
    if isinstance(kind, types.LiteralType):
        kind = kind.fallback
    if not isinstance(kind, types.Instance) or "@" in kind.type.fullname or "-" in kind.type.fullname:
        return None
    name = kind.type.fullname.removeprefix("builtins.")
    arguments = [_source(item) for item in kind.args]
    if (name in {"tuple", "list", "dict", "set"} and None in arguments) or "ModuleType" in name:
        return None
    return f"{name}[{', '.join(arguments)}]" if arguments and None not in arguments else name
