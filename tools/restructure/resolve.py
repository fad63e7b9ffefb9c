"""Follow names through imports to what defines them."""
# ruff: noqa: PLR0911

import ast
from dataclasses import dataclass

from .scopes import Binding, FileScopes, Scope
from .source import SourceFile


@dataclass(frozen=True)
class Target:
    """A module (`name` empty), a module-level symbol, or a class member (`line` is the class statement's)."""

    module: str
    name: str = ""
    line: int = 0


class Program:
    """All files, found by module name."""

    def __init__(self, sources: list[SourceFile]) -> None:
        self.files = {source.module: FileScopes(source) for source in sources}
        self.by_path = {str(file.source.path): file for file in self.files.values()}
        self.names: dict[str, str] = {name: name for name in self.files}
        for source in sources:
            for alias in source.aliases:
                self.names.setdefault(alias, source.module)
        self.packages = {name.rsplit(".", count)[0] for name in self.names for count in range(1, name.count(".") + 1)}

    def find_module(self, name: str, importer: SourceFile) -> str | None:
        """Return the module `name` means in `importer`; scripts that run alone import their neighbors bare."""
        if name in self.names:
            return self.names[name]
        neighbor = str(importer.path.with_name(f"{name}.py"))
        if neighbor in self.by_path:
            return self.by_path[neighbor].source.module
        hooks = [f"{package}.{name}" for package in ("flightlog.app.hook", "flightlog.hooks")]
        return next((module for module in hooks if module in self.files), None)

    def resolve_symbol(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> set[Target]:
        """Return what `module.name` is: a symbol defined somewhere, or a module."""
        if (module, name) in seen:
            return set()
        file = self.files.get(module)
        if file and name in file.module.bindings:
            found: set[Target] = set()
            for binding in file.module.bindings[name]:
                found |= self.resolve_binding(file, file.module, name, binding, seen | {(module, name)})
            return found
        inner = self.names.get(f"{module}.{name}")
        if inner or f"{module}.{name}" in self.packages:
            return {Target(inner or f"{module}.{name}")}
        return set()

    def resolve_binding(
        self,
        file: FileScopes,
        scope: Scope,
        name: str,
        binding: Binding,
        seen: frozenset[tuple[str, str]] = frozenset(),
    ) -> set[Target]:
        if binding.kind == "import":
            module, wanted = binding.target
            actual = self.find_module(module, file.source)
            if wanted is None:
                if actual or module in self.packages:
                    return {Target(actual or module)}
                return set()
            if actual or module in self.packages:
                return self.resolve_symbol(actual or module, wanted, seen)
            return set()
        if scope.kind == "module":
            return {Target(file.source.module, name)}
        if scope.kind == "class":
            return {Target(file.source.module, name, scope.owner.lineno)}
        return set()

    def resolve(self, file: FileScopes, node: ast.AST, scope: Scope) -> set[Target]:
        """Return what an expression of names and dots refers to; empty for locals and foreign things."""
        if isinstance(node, ast.Name):
            where = scope.find(node.id)
            if where is None:
                return set()
            found: set[Target] = set()
            for binding in where.bindings[node.id]:
                found |= self.resolve_binding(file, where, node.id, binding)
            return found
        if isinstance(node, ast.Attribute):
            found = set()
            for target in self.resolve(file, node.value, scope):
                if not target.name:
                    found |= self.resolve_symbol(target.module, node.attr)
            return found
        return set()

    def defining_classes(self, module: str, path: list[str]) -> list[ast.ClassDef]:
        """Return the class statements that `module` and nested class names mean."""
        file = self.files[module]
        scopes = [file.module]
        nodes: list[ast.ClassDef] = []
        for part in path:
            nodes = [
                binding.node for scope in scopes for binding in scope.bindings.get(part, []) if binding.kind == "class"
            ]
            scopes = [file.scope_of[node] for node in nodes]
        return nodes
