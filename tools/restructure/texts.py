"""Names inside strings: `__all__`, getattr, module:attribute pairs, embedded scripts, the promise breaks."""
# ruff: noqa: C901, PLR0913, PLR0917

import ast
import re
from itertools import pairwise

from .literals import Literal
from .plan import Plan, Planner
from .resolve import Program
from .scopes import FileScopes, Use
from .source import SourceFile, Span

_BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "methodcaller", "attrgetter"}
_DOTTED = re.compile(r"\b[a-z_]+(?:\.\w+)+(?::\w+)?")


class TextPlanner:
    """Adds the edits inside strings to a plan."""

    def __init__(self, planner: Planner, plan: Plan) -> None:
        self.planner, self.plan = planner, plan
        self.program: Program = planner.program
        self.old_members = {name for _, name in plan.members}
        self.old_symbols = {name for _, name in plan.symbols}

    def run(self) -> None:
        for file in self.program.files.values():
            self._exports(file)
            self._calls(file)
            self._pairs(file)
            self._patterns(file)
            for node in ast.walk(file.source.tree):
                is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
                if node in file.spans and ((is_text and not _is_inner(file, node)) or isinstance(node, ast.JoinedStr)):
                    self._literal(file, node)

    def _edit(self, file: FileScopes, span: Span | None, new: str, what: str) -> None:
        if span is None:
            self.plan.review.append(f"{file.source.path}: {what} -> {new}: the literal cannot be edited in place")
        else:
            self.plan.edits[str(file.source.path)][span] = new

    def _constant(self, file: FileScopes, node: ast.Constant) -> Span:
        start, end = file.spans[node]
        return Literal(file.source.text, start, end).span(0, len(node.value))

    def _exports(self, file: FileScopes) -> None:
        for node in file.source.tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                for item in getattr(node.value, "elts", []):
                    for target in self.program.resolve_symbol(file.source.module, item.value):
                        new = self.plan.symbols.get((target.module, target.name))
                        if new and target.name == item.value:
                            self._edit(file, self._constant(file, item), new, item.value)

    def _calls(self, file: FileScopes) -> None:
        for node, scope in file.calls:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called not in _BY_NAME:
                if called in {"SimpleNamespace", "namedtuple"}:
                    for keyword in node.keywords:
                        if keyword.arg in self.old_members:
                            self.plan.review.append(f"{file.source.path}:{node.lineno}: {called}({keyword.arg}=...)")
                continue
            names = [each for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)][:1]
            for name in names:
                owners = self.program.resolve(file, node.args[0], scope)
                modules = [target.module for target in owners if not target.name]
                if modules:
                    news = {self.plan.symbols.get((module, name.value)) for module in modules} - {None}
                    if news:
                        self._edit(file, self._constant(file, name), news.pop(), name.value)
                elif name.value in self.old_members:
                    self._by_agreement(file, name)

    def _by_agreement(self, file: FileScopes, node: ast.Constant) -> None:
        new, reason = self.planner.guesser.agree(self.plan.members, file.source.module, node.value)
        line = f'{file.source.path}:{node.lineno}: "{node.value}" by name'
        if new:
            self._edit(file, self._constant(file, node), new, node.value)
            self.plan.guessed.append(f"{line} -> {new}")
        else:
            self.plan.review.append(f"{line} ({reason})")

    def _pairs(self, file: FileScopes) -> None:
        """Rename ("module", "attribute") next to each other."""
        for node in ast.walk(file.source.tree):
            items = getattr(node, "elts", None) or getattr(node, "args", None)
            if not isinstance(items, list):
                continue
            for first, second in pairwise(items):
                if not all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in (first, second)):
                    continue
                new = self.plan.symbols.get((self.program.names.get(first.value, ""), second.value))
                if new:
                    self._edit(file, self._constant(file, second), new, second.value)

    def _patterns(self, file: FileScopes) -> None:
        """Rename properties in class patterns: `case Session(is_open=True)`."""
        for node, scope in file.patterns:
            for name, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
                if name not in self.old_members:
                    continue
                keys = [
                    f"{target.module}:{binding.node.lineno}"
                    for target in self.program.resolve(file, node.cls, scope)
                    for binding in self.program.files[target.module].module.bindings.get(target.name, [])
                ]
                classes = self.planner.index.classes
                owners = [
                    base
                    for key in keys
                    if key in classes
                    for base in classes[key].mro
                    if (base, name) in self.plan.members
                ]
                if owners:
                    before = re.compile(rf"\b{name}(\s*=\s*)$").search(file.source.text[: file.spans[pattern][0]])
                    span = (before.start(), before.start() + len(name))
                    self._edit(file, span, self.plan.members[owners[0], name], name)

    # Literals ---------------------------------------------------------------------------------------------------

    def _literal(self, file: FileScopes, node: ast.AST) -> None:
        start, end = file.spans[node]
        raw = file.source.text[start:end]
        if "flightlog" not in raw and "import " not in raw:
            return
        literal = Literal(file.source.text, start, end)
        script = parse_script(literal.value)
        if script:
            self._script(file, literal, script, start)
        for match in _DOTTED.finditer(literal.value):
            self._dotted(file, literal, match)

    def _dotted(self, file: FileScopes, literal: Literal, match: re.Match[str]) -> None:
        module, _, name = match[0].replace(":", ".").rpartition(".")
        module = self.program.names.get(module, "")
        for target in self.program.resolve_symbol(module, name) if module else ():
            new = self.plan.symbols.get((target.module, target.name))
            if new and target.name == name:
                self._edit(file, literal.span(match.end() - len(name), match.end()), new, match[0])

    def _script(self, file: FileScopes, literal: Literal, script: tuple[str, int], start: int) -> None:
        text, shift = script
        inner = FileScopes(SourceFile(file.source.path, f"{file.source.module}.<script {start}>", text))
        place = file.source.place(start)
        for use in inner.names:
            for target in self.program.resolve(inner, use.node, use.scope):
                self._script_edit(file, literal, use, target.module, target.name, shift)
        for use in inner.attributes:
            targets = self.program.resolve(inner, use.node, use.scope)
            for target in targets:
                self._script_edit(file, literal, use, target.module, target.name, shift)
            if not targets and use.name in self.old_members:
                new, reason = self.planner.guesser.decide(self.plan.members, inner, use)
                if new:
                    self._edit(file, literal.span(use.span[0] - shift, use.span[1] - shift), new, use.name)
                    self.plan.guessed.append(f"{place}: script: .{use.name} -> {new}")
                elif reason:
                    self.plan.review.append(f"{place}: script: .{use.name} ({reason})")
        for scope in inner.scope_of.values():
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if binding.kind == "import" and binding.target[1]:
                        new = self.planner._imported(self.plan, inner, binding)  # noqa: SLF001
                        if new:
                            at = inner.spans[binding.node][0] - shift
                            self._edit(file, literal.span(at, at + len(binding.node.name)), new, binding.node.name)

    def _script_edit(self, file: FileScopes, literal: Literal, use: Use, module: str, name: str, shift: int) -> None:
        new = self.plan.symbols.get((module, name))
        if new and name == use.name:
            self._edit(file, literal.span(use.span[0] - shift, use.span[1] - shift), new, name)


def parse_script(value: str) -> tuple[str, int] | None:
    """Return the text of a Python script with imports, and how far it was shifted to parse; None for other text."""
    if not re.search(r"(?m)^\s*(?:[^#'\"\n]*;\s*)?(from\s+[\w.]+\s+)?import\s+\w", value):
        return None
    for head in ("", "if 1:\n"):
        try:
            ast.parse(head + value)
        except (SyntaxError, ValueError):
            continue
        return head + value, len(head)
    return None


def _is_inner(file: FileScopes, node: ast.AST) -> bool:
    """Say whether a constant is a piece of an f-string (which is handled whole)."""
    if not hasattr(file, "_pieces"):
        file._pieces = {  # noqa: SLF001
            id(piece)
            for each in ast.walk(file.source.tree)
            if isinstance(each, ast.JoinedStr)
            for piece in ast.walk(each)
            if isinstance(piece, ast.Constant)
        }
    return id(node) in file._pieces  # noqa: SLF001
