"""Which binding a name refers to: Python's scoping rules, over the syntax tree."""

import ast
from dataclasses import dataclass, field

from .source import SourceFile, Span, node_spans

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Binding:
    """A name bound in a scope; `target` is (module, name) of an import, name None for a module."""

    kind: str  # param, assign, def, class, import
    node: ast.AST
    target: tuple[str, str | None] | None = None
    is_alias: bool = False


@dataclass
class Scope:
    """One block; `owner` is the function or class that makes it."""

    kind: str  # module, class, function, comprehension
    owner: ast.AST
    parent: "Scope | None" = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    def bind(self, name: str, binding: Binding) -> None:
        scope = self
        if name in self.globals:
            while scope.parent:
                scope = scope.parent
        elif name in self.nonlocals:
            scope = self.parent.find(name) or self
        scope.bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> "Scope | None":
        """Return the scope that binds `name` as seen from here."""
        scope: Scope | None = self
        while scope:
            visible = scope is self or scope.kind != "class"
            if visible and name in scope.bindings and not (scope is self and name in self.globals):
                return scope
            scope = scope.parent
        return None

    def between(self, outer: "Scope") -> list["Scope"]:
        """Return the scopes from here up to, not including, `outer`; classes passed through do not count."""
        found, scope = [], self
        while scope and scope is not outer:
            if scope is self or scope.kind != "class":
                found.append(scope)
            scope = scope.parent
        return found


@dataclass
class Use:
    """A name or attribute in the text; `span` is the identifier itself."""

    node: ast.AST
    name: str
    span: Span
    scope: Scope


class FileScopes(ast.NodeVisitor):
    """All scopes, names and attributes of one file."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.spans = dict(source.spans)
        self.module = Scope("module", source.tree)
        self.names: list[Use] = []
        self.attributes: list[Use] = []
        self.classes: dict[int, ast.ClassDef] = {}
        self.scope_of: dict[ast.AST, Scope] = {source.tree: self.module}
        self.strings: list[ast.Constant] = []
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.patterns: list[tuple[ast.MatchClass, Scope]] = []
        self._scope = self.module
        self._declare(source.tree.body)
        for statement in source.tree.body:
            self.visit(statement)

    # Scopes -----------------------------------------------------------------------------------------------------

    def _inside(self, kind: str, owner: ast.AST) -> Scope:
        scope = Scope(kind, owner, self._scope)
        self.scope_of[owner] = scope
        return scope

    def _declare(self, body: list[ast.stmt]) -> None:
        """Note global and nonlocal statements before the names they change."""
        todo: list[ast.AST] = list(body)
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Global):
                self._scope.globals.update(node.names)
            elif isinstance(node, ast.Nonlocal):
                self._scope.nonlocals.update(node.names)
            elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                todo.extend(
                    child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.excepthandler))
                )

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._scope.bind(node.name, Binding("def", node))
        arguments = node.args
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            self.visit(default)
        for each in _parameters(arguments):
            self._annotation(each.annotation)
        self._annotation(node.returns)
        outer, self._scope = self._scope, self._inside("function", node)
        for each in _parameters(arguments):
            self._scope.bind(each.arg, Binding("param", each))
        self._declare(node.body)
        for statement in node.body:
            self.visit(statement)
        self._scope = outer

    visit_FunctionDef = _function  # noqa: N815
    visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        outer, self._scope = self._scope, self._inside("function", node)
        for each in _parameters(node.args):
            self._scope.bind(each.arg, Binding("param", each))
        self.visit(node.body)
        self._scope = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        self._scope.bind(node.name, Binding("class", node))
        self.classes[node.lineno] = node
        outer, self._scope = self._scope, self._inside("class", node)
        for statement in node.body:
            self.visit(statement)
        self._scope = outer

    def generic_visit(self, node: ast.AST) -> None:
        if not isinstance(node, _COMPREHENSIONS):
            super().generic_visit(node)
            return
        first = node.generators[0]
        self.visit(first.iter)
        outer, self._scope = self._scope, self._inside("comprehension", node)
        for generator in node.generators:
            self.visit(generator.target)
            if generator is not first:
                self.visit(generator.iter)
            for condition in generator.ifs:
                self.visit(condition)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                self.visit(getattr(node, part))
        self._scope = outer

    # Bindings ---------------------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self._scope.bind(alias.asname, Binding("import", alias, (alias.name, None), is_alias=True))
            else:
                self._scope.bind(
                    alias.name.partition(".")[0], Binding("import", alias, (alias.name.partition(".")[0], None))
                )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parts = self.source.module.split(".")
            parts = parts[: len(parts) - node.level + (1 if self.source.is_package else 0)]
            module = ".".join([*parts, *filter(None, [node.module])])
        for alias in node.names:
            binding = Binding("import", alias, (module, alias.name), is_alias=alias.asname is not None)
            self._scope.bind(alias.asname or alias.name, binding)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._scope.bind(node.id, Binding("assign", node))
        self.names.append(Use(node, node.id, self.spans[node], self._scope))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        inner, scope = self._scope, self._scope
        while scope.kind == "comprehension":
            scope = scope.parent
        self._scope = scope
        self.visit(node.target)
        self._scope = inner

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._scope.bind(node.name, Binding("assign", node))
        self.generic_visit(node)

    def _pattern(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self._scope.bind(node.name, Binding("assign", node))
        self.generic_visit(node)

    visit_MatchAs = _pattern  # noqa: N815
    visit_MatchStar = _pattern  # noqa: N815

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self._scope.bind(node.rest, Binding("assign", node))
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self.patterns.append((node, self._scope))
        self.generic_visit(node)

    # Uses -------------------------------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> None:
        end = self.spans[node][1]
        self.attributes.append(Use(node, node.attr, (end - len(node.attr), end), self._scope))
        self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.strings.append(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self._scope))
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "cast" and node.args:
            self._annotation(node.args[0])
        if name == "TypeVar":
            for keyword in node.keywords:
                self._annotation(keyword.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        self.visit(node.target)
        if node.value and "TypeAlias" in ast.unparse(node.annotation):
            self._annotation(node.value)
        elif node.value:
            self.visit(node.value)

    def _annotation(self, node: ast.AST | None) -> None:
        """Visit an annotation; names in quotes count as names."""
        if node is None:
            return
        is_literal = (
            isinstance(node, ast.Subscript) and getattr(node.value, "id", getattr(node.value, "attr", "")) == "Literal"
        )
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._quoted(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) or is_literal:
            self.visit(node)
        else:
            for child in ast.iter_child_nodes(node):
                self._annotation(child)

    def _quoted(self, node: ast.Constant) -> None:
        start, end = self.spans[node]
        raw = self.source.text[start:end]
        if raw[1:-1] != node.value:
            return
        try:
            inner = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            return
        for part, (first, last) in node_spans(inner, node.value).items():
            self.spans[part] = (start + 1 + first, start + 1 + last)
        self._annotation(inner)


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    extra = filter(None, [arguments.vararg, arguments.kwarg])
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]
