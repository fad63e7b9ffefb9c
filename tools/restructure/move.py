"""Move modules to the target tree: `python -m tools.restructure.move TABLE... [--write]`.

Each TABLE has the columns `old_module` and `new_module`; later tables win. Rows `name OLD.QUALIFIED NEW` in a
table's third form rename a top-level name on the way. Merged modules keep their statements in the order of
their dependencies. Imports and module-qualified uses in `src`, `tests` and `tools` are rewritten.
"""

import argparse
import ast
import collections
import csv
import io
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

SRC = Path("src")
DELETED = "(deleted)"
problems: list[str] = []


def read_tables(paths):
    """Return old module -> new module, and (old module, top-level name) -> new name."""
    moves, names = {}, {}
    for path in paths:
        for cells in csv.reader(Path(path).open(), delimiter="\t", quoting=csv.QUOTE_NONE):
            if len(cells) < 2 or cells[0] in {"old_module", "(new)"} or cells[0].startswith("#"):
                continue
            if cells[0] == "name":
                module, _, name = cells[1].rpartition(".")
                names[module, name] = cells[2]
            else:
                moves[cells[0]] = cells[1]
    return moves, names


class Scope:
    """Names bound in one function, or in the module."""

    def __init__(self, node, parent):
        self.node, self.parent, self.bound = node, parent, set()


class Source:
    """One file: its tree, scopes, bindings made by our imports, and the edits to apply."""

    def __init__(self, path, module):
        self.path, self.module = path, module
        self.text = path.read_text()
        self.tree = ast.parse(self.text)
        self.starts = [0]
        for line in self.text.encode().splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.data = self.text.encode()
        self.edits = []  # (start, end, bytes)
        self.top = Scope(self.tree, None)
        self.scope_of = {}
        self.imports = []  # (node, scope, is_typing)
        self._walk(self.tree, self.top, in_class=False, typing=False)
        self.class_targets = {
            target
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ClassDef)
            for statement in node.body
            if isinstance(statement, (ast.Assign, ast.AnnAssign))
            for target in ast.walk(statement)
            if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
        }
        self.nodes = [*ast.walk(self.tree), *self._quoted()]

    def _quoted(self):
        """Yield the nodes inside string annotations, with their places in the file."""
        for holder in ast.walk(self.tree):
            parts = []
            if isinstance(holder, ast.arg):
                parts = [holder.annotation]
            elif isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef)):
                parts = [holder.returns]
            elif isinstance(holder, ast.AnnAssign):
                parts = [holder.annotation]
            elif isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id == "cast":
                parts = holder.args[:1]
            for part in filter(None, parts):
                for text in ast.walk(part):
                    if (
                        isinstance(text, ast.Constant)
                        and isinstance(text.value, str)
                        and text.lineno == text.end_lineno
                    ):
                        yield from self._inside(text)

    def _inside(self, text):
        try:
            tree = ast.parse(text.value, mode="eval")
        except SyntaxError:
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.expr):
                node.lineno = node.end_lineno = text.lineno
                node.col_offset += text.col_offset + 1
                node.end_col_offset += text.col_offset + 1
                self.scope_of[node] = self.scope_of.get(text) or self.top
                yield node

    def span(self, node):
        return (self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset)

    def _walk(self, node, scope, *, in_class, typing):
        for child in ast.iter_child_nodes(node):
            self.scope_of[child] = scope
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not in_class:
                    scope.bound.add(child.name)
                inner = Scope(child, scope)
                for part in [*child.decorator_list, *child.args.defaults, *[d for d in child.args.kw_defaults if d]]:
                    self.scope_of[part] = scope
                    self._walk(part, scope, in_class=False, typing=typing)
                a = child.args
                for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, [a.vararg, a.kwarg])]:
                    inner.bound.add(arg.arg)
                    if arg.annotation:
                        self.scope_of[arg.annotation] = scope
                        self._walk(arg.annotation, scope, in_class=False, typing=typing)
                if child.returns:
                    self.scope_of[child.returns] = scope
                    self._walk(child.returns, scope, in_class=False, typing=typing)
                for stmt in child.body:
                    self.scope_of[stmt] = inner
                    self._visit(stmt, inner, in_class=False, typing=typing)
                continue
            self._visit(child, scope, in_class=in_class, typing=typing)

    def _visit(self, child, scope, *, in_class, typing):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._walk(ast.Module([child], []), scope, in_class=in_class, typing=typing)
            return
        if isinstance(child, ast.Lambda):
            inner = Scope(child, scope)
            a = child.args
            for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, [a.vararg, a.kwarg])]:
                inner.bound.add(arg.arg)
            for d in [*a.defaults, *filter(None, a.kw_defaults)]:
                self.scope_of[d] = scope
                self._visit(d, scope, in_class=False, typing=typing)
            self.scope_of[child.body] = inner
            self._visit(child.body, inner, in_class=False, typing=typing)
            return
        if isinstance(child, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            inner = Scope(child, scope)
            for gen in child.generators:
                for t in ast.walk(gen.target):
                    if isinstance(t, ast.Name):
                        inner.bound.add(t.id)
            for part in ast.iter_child_nodes(child):
                self.scope_of[part] = inner
                self._visit(part, inner, in_class=False, typing=typing)
            return
        if isinstance(child, ast.ClassDef):
            if not in_class:
                scope.bound.add(child.name)
            self._walk(child, scope, in_class=True, typing=typing)
            return
        if isinstance(child, ast.Name) and isinstance(child.ctx, (ast.Store, ast.Del)) and not in_class:
            target = scope
            if isinstance(scope.node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                pass
            target.bound.add(child.id)
        if isinstance(child, ast.ExceptHandler) and child.name:
            scope.bound.add(child.name)
        if isinstance(child, (ast.MatchAs, ast.MatchStar)) and child.name:
            scope.bound.add(child.name)
        if isinstance(child, ast.MatchMapping) and child.rest:
            scope.bound.add(child.rest)
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            self.imports.append((child, scope, typing))
            for alias in child.names:
                scope.bound.add((alias.asname or alias.name).split(".")[0])
            return
        checking = typing or (
            isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        )
        self._walk(child, scope, in_class=in_class, typing=checking)

    def binder(self, name, scope):
        """Return the scope that binds `name` as seen from `scope`."""
        while scope is not None:
            if name in scope.bound:
                return scope
            scope = scope.parent
        return None

    def replace(self, node, new):
        self.edits.append((*self.span(node), new.encode()))


class Mover:
    """The whole move."""

    def __init__(self, moves, names):
        self.moves, self.names = moves, names
        self.sources = {}
        for path in sorted(SRC.rglob("*.py")):
            module = ".".join(path.relative_to(SRC).with_suffix("").parts)
            self.sources[module] = Source(path, module)
        self.outside = [
            Source(path, None)
            for top in ("tests", "tools")
            for path in sorted(Path(top).rglob("*.py"))
            if "restructure" not in path.parts and "golden" not in path.parts and "recordings" not in path.parts
        ]
        for module in self.sources:
            if self.moves.setdefault(module, module) == DELETED and not self.is_empty(module):
                problems.append(f"{module} is to be deleted but exists")
                self.moves[module] = module
        self.new_tops = collections.defaultdict(set)
        for module, source in self.sources.items():
            for name in source.top.bound:
                if not self.import_of(source, name):
                    new = self.names.get((module, name), name)
                    if new in self.new_tops[self.moves[module]] and self.moves[module] != DELETED:
                        problems.append(f"CLASH {self.moves[module]}: {new} defined again in {module}")
                    self.new_tops[self.moves[module]].add(new)

    def is_empty(self, module):
        return len(self.sources[module].tree.body) <= 1

    def real(self, module):
        return (
            module if module in self.sources else f"{module}.__init__" if f"{module}.__init__" in self.sources else None
        )

    def import_of(self, source, name):
        """Return the target of the top-level import that binds `name`: (module, symbol or None), or None."""
        for node, scope, _ in source.imports:
            if scope is not source.top:
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return self.target(node, alias)
        return None

    def target(self, node, alias):
        """Return what an import alias names: (module, symbol), (module, None) or ("", "") for foreign code."""
        if isinstance(node, ast.Import):
            real = self.real(alias.name) if alias.name.startswith(("flightlog", "ralph", "ml_data")) else None
            return (real, None) if real else ("", "")
        if node.level or not node.module:
            return ("", "")
        if (sub := self.real(f"{node.module}.{alias.name}")) and node.module.startswith("flightlog"):
            return (sub, None)
        if real := self.real(node.module):
            return self.definer(real, alias.name)
        return ("", "")

    def definer(self, module, name):
        """Follow re-exports to the module that defines `name`."""
        source = self.sources[module]
        via = self.import_of(source, name)
        if via and via[0]:
            return via
        if name not in source.top.bound:
            for other in (module.removesuffix("__init__") + "door", module.removesuffix("__init__") + "archive"):
                if other in self.sources and name in self.sources[other].top.bound:
                    return self.definer(other, name)
            problems.append(f"{module} does not define {name}")
        return (module, name)

    def home(self, module, name):
        """Return the new module and the new name of a top-level name."""
        return self.moves[module], self.names.get((module, name), name)

    # --- rewriting one file -------------------------------------------------

    def rewrite(self, source, new_module, taken):
        """Rewrite imports and uses in `source`; return top-level imports to add: {(module, name, as): typing}."""
        wanted = {}
        renames = collections.defaultdict(dict)  # scope -> {alias: new text} for symbols
        module_aliases = collections.defaultdict(dict)  # scope -> {alias: old module}
        plans = []
        for node, scope, typing in source.imports:
            ours, foreign = [], []
            for alias in node.names:
                module, symbol = self.target(node, alias)
                (ours if module else foreign).append((alias, module, symbol))
            plans.append((node, scope, typing, ours, foreign))
            for alias, module, symbol in ours:
                local = alias.asname or alias.name
                if symbol is None:
                    module_aliases[scope][local] = module
                else:
                    home, name = self.home(module, symbol)
                    if home == new_module or alias.asname is None or alias.asname == name:
                        if local != name:
                            renames[scope][local] = name
        # own top-level names that are renamed on the way
        if source.module:
            for (module, name), new in self.names.items():
                if module == source.module:
                    renames[source.top][name] = new
        needed = collections.defaultdict(set)  # scope -> {(module, name, asname)}
        handled = set()
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                scope = source.scope_of.get(node.value) or source.scope_of.get(node)
                binder = source.binder(node.value.id, scope)
                if binder and node.value.id in module_aliases.get(binder, {}):
                    handled.add(node.value)
                    self.use_module(
                        source, node, scope, binder, module_aliases[binder][node.value.id], new_module, needed, taken
                    )
        for node in source.nodes:
            if isinstance(node, ast.Name) and node not in handled and node not in source.class_targets:
                scope = source.scope_of.get(node)
                binder = source.binder(node.id, scope)
                if not binder:
                    continue
                if node.id in module_aliases.get(binder, {}):
                    module = module_aliases[binder][node.id]
                    home = self.moves[module]
                    base = home.rpartition(".")[2]
                    problems.append(f"{source.path}:{node.lineno}: module {node.id} used as a value")
                    needed[binder].add((home.rpartition(".")[0], base, None))
                    if base != node.id:
                        source.replace(node, base)
                elif node.id in renames.get(binder, {}):
                    new = renames[binder][node.id]
                    self.check_shadow(source, node, scope, binder, new)
                    source.replace(node, new)
        # definitions of renamed own names
        for node in source.tree.body:
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                and node.name in renames[source.top]
            ):
                if (source.module, node.name) in self.names:
                    start, end = source.span(node)
                    at = source.data.index(node.name.encode(), source.starts[node.lineno - 1])
                    source.edits.append((at, at + len(node.name), renames[source.top][node.name].encode()))
        for node, scope, typing, ours, foreign in plans:
            if not ours:
                continue
            lines = set()
            for alias, module, symbol in ours:
                if symbol is None:
                    continue
                home, name = self.home(module, symbol)
                if home == new_module:
                    continue
                asname = alias.asname if alias.asname and alias.asname != name else None
                lines.add((home, name, asname))
            if scope is source.top:
                for item in lines:
                    wanted[item] = wanted.get(item, True) and typing
                self.drop(source, node, foreign)
            else:
                lines |= needed.pop(scope, set())
                text = [self.line(item) for item in sorted(lines, key=str)]
                text += [
                    f"from {node.module} import {a.name}" + (f" as {a.asname}" if a.asname else "") for a, *_ in foreign
                ]
                self.replace_statement(source, node, text)
        for scope, items in needed.items():
            for item in items:
                if scope is source.top:
                    wanted[item] = wanted.get(item, True) and self.only_typing(source, item)
                else:
                    problems.append(f"{source.path}: late import lost {item}")
        return wanted

    def only_typing(self, source, item):
        """Return whether every top-level import that leads to `item` was under TYPE_CHECKING."""
        full = f"{item[0]}.{item[1]}"
        flags = [
            typing
            for node, scope, typing in source.imports
            if scope is source.top
            for alias in node.names
            for module, _ in [self.target(node, alias)]
            if module and self.moves[module] in {full, item[0], full + ".__init__"}
        ]
        return bool(flags) and all(flags)

    def use_module(self, source, node, scope, binder, module, new_module, needed, taken):
        """Rewrite `alias.attr`."""
        definer, name = self.definer(module, node.attr)
        if name is None:  # a submodule reached through its package
            problems.append(f"{source.path}:{node.lineno}: submodule {module}.{node.attr} through its package")
            return
        home, new = self.home(definer, name)
        if home == new_module:
            self.check_shadow(source, node, scope, source.top, new)
            source.replace(node, new)
            return
        package, _, base = home.rpartition(".")
        if base == "__init__":
            home, package, base = package, *package.rpartition(".")[::2]
        if self.free(source, scope, binder, base, new_module, taken, (package, base)):
            taken[base] = (package, base)
            needed[binder].add((package, base, None))
            source.replace(node, f"{base}.{new}")
        elif self.free(source, scope, binder, new, new_module, taken, (home, new)):
            taken[new] = (home, new)
            needed[binder].add((home, new, None))
            source.replace(node, new)
        else:
            alias = f"{package.rpartition('.')[2]}_{base}"
            problems.append(f"{source.path}:{node.lineno}: {base}.{new} imported as {alias}.{new}")
            needed[binder].add((package, base, alias))
            source.replace(node, f"{alias}.{new}")

    def free(self, source, scope, binder, name, new_module, taken, target):
        """Return whether `name` may mean `target` at this use."""
        if taken.get(name, target) != target:
            return False
        if new_module and name in self.new_tops[new_module]:
            return False
        # shadowed anywhere in this file's functions: a reader would stumble, so it is not free
        while scope is not None and scope is not source.top:
            if name in scope.bound and scope is not binder:
                return False
            if scope is binder and name in scope.bound and not self.binds_by_import(source, scope, name):
                return False
            scope = scope.parent
        bound = source.top.bound
        return name not in bound or self.binds_by_import(source, source.top, name)

    def binds_by_import(self, source, scope, name):
        for node, where, _ in source.imports:
            if where is scope:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.target(node, alias)[1] is None and bool(self.target(node, alias)[0])
        return False

    def check_shadow(self, source, node, scope, binder, new):
        while scope is not None and scope is not binder:
            if new in scope.bound:
                problems.append(f"{source.path}:{node.lineno}: {new} is a local here")
                return
            scope = scope.parent

    @staticmethod
    def line(item):
        module, name, asname = item
        module = module.removesuffix(".__init__")
        return f"from {module} import {name}" + (f" as {asname}" if asname else "")

    def drop(self, source, node, foreign):
        text = [f"from {node.module} import {a.name}" + (f" as {a.asname}" if a.asname else "") for a, *_ in foreign]
        self.replace_statement(source, node, text, top=True)

    def replace_statement(self, source, node, lines, *, top=False):
        start, end = source.span(node)
        indent = " " * node.col_offset
        stop = source.data.find(b"\n", end)
        comment = source.data[end:stop].strip().decode()
        if lines:
            body = f"\n{indent}".join(line + (f"  {comment}" if comment else "") for line in lines)
            source.edits.append((start, stop, body.encode()))
        else:
            parent = self.parent_of(source, node)
            if parent is not None and parent is not source.tree.body:
                source.edits.append((start, stop, b"pass"))
            else:
                source.edits.append((source.starts[node.lineno - 1], stop + 1, b""))

    @staticmethod
    def parent_of(source, node):
        for parent in ast.walk(source.tree):
            for field in ("body", "orelse", "finalbody"):
                if node in (getattr(parent, field, None) or []):
                    return getattr(parent, field)
        return None

    # --- merging --------------------------------------------------------------

    def merge(self):
        groups = collections.defaultdict(list)
        for old, new in self.moves.items():
            if old in self.sources and new != DELETED:
                groups[new].append(old)
        results = {}
        for new, olds in sorted(groups.items()):
            olds = self.ordered(olds)
            taken, wanted = {}, {}
            for old in olds:
                for item, typing in self.rewrite(self.sources[old], new, taken).items():
                    wanted[item] = wanted.get(item, True) and typing
            self.check_names(new, wanted)
            results[new] = self.assemble(new, [self.sources[old] for old in olds], wanted)
        for source in self.outside:
            wanted = self.rewrite(source, None, {})
            self.write_outside(source, wanted)
        return results

    def check_names(self, new, wanted):
        seen = {}
        for module, name, asname in wanted:
            local = asname or name
            if local in seen and seen[local] != (module, name):
                problems.append(f"{new}: {local} imported from {seen[local]} and {(module, name)}")
            seen[local] = (module, name)
            if local in self.new_tops[new]:
                problems.append(f"{new}: {local} imported from {module} and defined")

    def ordered(self, olds):
        order = []

        def visit(old, trail=()):
            if old in order or old in trail:
                return
            for node, scope, typing in self.sources[old].imports:
                if scope is self.sources[old].top and not typing:
                    for alias in node.names:
                        module = self.target(node, alias)[0]
                        if module in olds and module != old:
                            visit(module, (*trail, old))
            order.append(old)

        for old in olds:
            visit(old)
        return order

    def assemble(self, new, sources, wanted):
        docs, foreign, typing_foreign, constants, bodies = [], [], [], [], []
        single = len(sources) == 1
        blocked = {
            self.names.get((s.module, n.name), n.name)
            for s in sources
            for n in s.tree.body
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        for source in sources:
            doc, plain, typed, leading, rest = split(source, blocked, hoist=not single)
            docs.append(doc)
            foreign += plain
            typing_foreign += typed
            constants += leading
            bodies.append(rest)
        ours = [self.line(item) for item, typing in wanted.items() if not typing]
        typed = [self.line(item) for item, typing in wanted.items() if typing] + typing_foreign
        parts = [docs[0] if single else merged_doc(new, docs), "\n"]
        lines = list(dict.fromkeys([*foreign, *sorted(ours)]))
        if typed and "from typing import TYPE_CHECKING" not in lines:
            lines.append("from typing import TYPE_CHECKING")
        parts.append("\n".join(lines) + "\n")
        if typed:
            parts.append("\nif TYPE_CHECKING:\n" + "".join(f"    {line}\n" for line in dict.fromkeys(typed)))
        parts.append("\n" + "".join(dict.fromkeys(constants)))
        parts += ["\n\n" + body.strip("\n") + "\n" for body in bodies if body.strip()]
        return "".join(parts)

    def write_outside(self, source, wanted):
        if not source.edits and not wanted:
            return
        text = apply(source)
        if wanted:
            tree = ast.parse(text)
            last = max((n.end_lineno for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))), default=0)
            if not last and tree.body and ast.get_docstring(tree) is not None:
                last = tree.body[0].end_lineno
            rows = text.splitlines(keepends=True)
            rows.insert(last, "\n".join(self.line(item) for item in sorted(wanted, key=str)) + "\n")
            text = "".join(rows)
        source.result = text


def apply(source):
    data = source.data
    spans = sorted(set(source.edits), reverse=True)
    for i in range(len(spans) - 1):
        if spans[i + 1][1] > spans[i][0]:
            problems.append(f"{source.path}: edits overlap at {spans[i]} and {spans[i + 1]}")
    for start, end, new in spans:
        data = data[:start] + new + data[end:]
    return data.decode()


def split(source, blocked, *, hoist):
    """Return docstring, foreign imports, foreign typing imports, leading constants, and the other text."""
    text = apply(source)
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    doc, plain, typed, leading, cut = "", [], [], [], set()
    body = tree.body
    first = 0
    if (
        body
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        doc = "".join(lines[: body[0].end_lineno])
        cut.update(range(body[0].end_lineno))
        first = body[0].end_lineno
    names = set()
    running = True
    previous = first
    for node in body[1 if first else 0 :]:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            comment = lines[node.end_lineno - 1].rstrip("\n")[node.end_col_offset :]
            for alias in node.names:
                tail = f" as {alias.asname}" if alias.asname else ""
                head = (
                    f"import {alias.name}"
                    if isinstance(node, ast.Import)
                    else f"from {'.' * node.level}{node.module or ''} import {alias.name}"
                )
                plain.append(head + tail + comment)
            cut.update(range(node.lineno - 1, node.end_lineno))
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for inner in node.body:
                if isinstance(inner, (ast.Import, ast.ImportFrom)):
                    for alias in inner.names:
                        tail = f" as {alias.asname}" if alias.asname else ""
                        head = (
                            f"import {alias.name}"
                            if isinstance(inner, ast.Import)
                            else f"from {inner.module} import {alias.name}"
                        )
                        typed.append(head + tail)
                elif not isinstance(inner, ast.Pass):
                    problems.append(f"{source.path}: a statement under TYPE_CHECKING")
            cut.update(range(node.lineno - 1, node.end_lineno))
        elif running and hoist and isinstance(node, (ast.Assign, ast.AnnAssign)):
            used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            late = {
                t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
            } - names
            targets = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            if not used & blocked and not used & (late - targets):
                names |= targets
                start = node.lineno - 1
                while start - 1 > 0 and lines[start - 1].lstrip().startswith("#") and start - 1 not in cut:
                    start -= 1
                leading.append("".join(lines[start : node.end_lineno]))
                cut.update(range(start, node.end_lineno))
            else:
                running = False
        else:
            running = False
    rest = "".join(line for number, line in enumerate(lines) if number not in cut)
    return doc, plain, typed, leading, rest


TREE_LINES = {}


def load_tree(path):
    """Read the one-line purpose of each new module and package from the table of the target tree."""
    package = ""
    for line in Path(path).read_text().splitlines():
        if match := re.match(r"## (\S+)/ \(\d+\): (.*)|## (\S+)/, .*|## top level", line):
            package = "flightlog." + (match[1] or "").replace("/", ".") if match[1] else "flightlog"
            if match[1]:
                TREE_LINES[f"{package}.__init__"] = match[2]
        elif match := re.match(r"\| `(\w+)` \| (.*?) \|", line):
            TREE_LINES[f"{package}.{match[1]}"] = match[2]


def sentence(text):
    text = text[0].upper() + text[1:]
    return text if text.endswith(".") else text + "."


def merged_doc(new, docs):
    """Return the docstring of a merged module: its purpose, then what the parts said beyond their first lines."""
    head = sentence(TREE_LINES.get(new, new.rpartition(".")[2].replace("_", " ")))
    rest = []
    for doc in docs:
        if doc:
            body = ast.literal_eval(doc.strip()[doc.strip().index('"""') :]) if '"""' in doc else ""
            _, _, more = body.partition("\n\n")
            if more.strip():
                rest.append(more.strip())
    if not rest:
        return f'"""{head}"""\n'
    return f'"""{head}\n\n' + "\n\n".join(rest) + '\n"""\n'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--tree")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.tree:
        load_tree(args.tree)
    mover = Mover(*read_tables(args.tables))
    results = mover.merge()
    for problem in problems:
        print(problem)
    print(len(problems), "problems;", len(results), "files")
    if not args.write:
        return
    write(mover, results)


def plan_tests(mover):
    """Return old test path -> new test path, by the module that a test file is named after."""
    plan, used = {}, set()
    for path in sorted(Path("tests").rglob("test_*.py")):
        parts = path.relative_to("tests").parts
        if len(parts) < 2:
            continue
        old = ".".join(["flightlog", *parts[:-1], path.stem.removeprefix("test_")])
        real = old if old in mover.sources else None
        if real is None and f"{old}.__init__" in mover.sources:
            real = f"{old}.__init__"
        if real:
            new = mover.moves[real].split(".")
            packages, base = new[1:-1], new[-1]
            alone = sum(1 for each in mover.moves.values() if each == mover.moves[real]) == 1
            stem = base if alone and base != "__init__" else path.stem.removeprefix("test_")
        else:
            homes = collections.Counter(
                tuple(mover.moves[m].split(".")[1:-1])
                for m in mover.sources
                if m.rpartition(".")[0] == ".".join(["flightlog", *parts[:-1]]) and not m.endswith("__init__")
            )
            if len(homes) != 1:
                continue
            packages, stem = list(next(iter(homes))), path.stem.removeprefix("test_")
        target = Path("tests", *packages, f"test_{stem}.py")
        if target in used:
            target = Path("tests", *packages, f"test_{stem}_{path.stem.removeprefix('test_')}.py")
        used.add(target)
        if target != path:
            plan[path] = target
    return plan


def move_tests(plan):
    """Move test files; paths relative to the file follow its new depth."""
    staged = {}
    for old, new in plan.items():
        text = old.read_text()
        deeper = len(new.parts) - len(old.parts)
        text = re.sub(r"(Path\(__file__\)\.parents\[)(\d)\]", lambda m: f"{m[1]}{int(m[2]) + deeper}]", text)
        staged[old] = text
    for old, new in plan.items():
        aside = old.with_name(old.name + ".moving")
        subprocess.run(["git", "mv", str(old), str(aside)], check=True)
    for old, new in plan.items():
        aside = old.with_name(old.name + ".moving")
        new.parent.mkdir(parents=True, exist_ok=True)
        if new.exists():
            problems.append(f"{new} exists already")
            continue
        subprocess.run(["git", "mv", str(aside), str(new)], check=True)
        new.write_text(staged[old])


def rewrite_strings(mover, tests):
    """Rewrite dotted module names and file paths in text files."""
    dotted = {}
    for old, new in mover.moves.items():
        if old in mover.sources and new != DELETED:
            dotted[old.removesuffix(".__init__")] = new.removesuffix(".__init__")
    paths = {str(s.path): "src/" + mover.moves[m].replace(".", "/") + ".py" for m, s in mover.sources.items()}
    paths |= {str(old): str(new) for old, new in tests.items()}
    files = [
        p
        for top in ("src", "tests", "tools", "docs")
        for p in Path(top).rglob("*")
        if p.suffix in {".py", ".md", ".sh", ".toml", ".yaml", ".html"}
        and "restructure" not in p.parts
        and "golden" not in p.parts
        and "recordings" not in p.parts
        and p.is_file()
    ]
    files += [
        Path(n)
        for n in ("pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md", "SECURITY.md")
        if Path(n).exists()
    ]

    def swap_dotted(match):
        whole = match[0]
        if whole in dotted:
            return dotted[whole]
        head, _, tail = whole.rpartition(".")
        real = mover.real(head)
        if real and head in dotted and tail in mover.sources[real].top.bound:
            module, name = mover.definer(real, tail)
            home, new = mover.home(module, name) if name else (dotted[head], tail)
            return f"{home.removesuffix('.__init__')}.{new}"
        return whole

    def swap(text):
        text = re.sub(r"\bflightlog(?:\.\w+)+", swap_dotted, text)
        return re.sub(r"\b(?:src|tests)/[\w/]+\.py\b", lambda m: paths.get(m[0], m[0]), text)

    for path in files:
        text = before = path.read_text()
        text = swap_in_strings(text, swap) if path.suffix == ".py" else swap(text)
        if path.name == "breaks.py":
            short = {k.removeprefix("src/flightlog/"): v.removeprefix("src/flightlog/") for k, v in paths.items()}
            text = re.sub(r'"([\w/]+\.py)"', lambda m: f'"{short.get(m[1], m[1])}"', text)
        if text != before:
            path.write_text(text)


def swap_in_strings(text, swap):
    """Apply `swap` to the string literals of Python source."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    out, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING:
            start = starts[token.start[0] - 1] + token.start[1]
            end = starts[token.end[0] - 1] + token.end[1]
            out += [text[at:start], swap(text[start:end])]
            at = end
    return "".join([*out, text[at:]])


def write(mover, results):
    olds = {source.path for source in mover.sources.values()}
    news = set()
    by_new = collections.defaultdict(list)
    for old, new in mover.moves.items():
        if old in mover.sources:
            by_new[new].append(old)
    for new, text in results.items():
        path = SRC / (new.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        source = max((mover.sources[old] for old in by_new[new]), key=lambda s: len(s.text))
        if source.path != path and not path.exists():
            subprocess.run(["git", "mv", str(source.path), str(path)], check=True)
        news.add(path)
    for new, text in results.items():
        path = SRC / (new.replace(".", "/") + ".py")
        ast.parse(text)
        path.write_text(text)
    for path in olds - news:
        if path.exists():
            subprocess.run(["git", "rm", "-qf", str(path)], check=True)
    packages = {parent for path in news for parent in path.relative_to(SRC).parents if str(parent) != "."}
    for package in sorted(packages):
        init = SRC / package / "__init__.py"
        if not init.exists():
            name = str(package).replace("/", ".") + ".__init__"
            init.write_text(f'"""{sentence(TREE_LINES.get(name, package.name))}"""\n')
    for source in mover.outside:
        if getattr(source, "result", None):
            source.path.write_text(source.result)
    tests = plan_tests(mover)
    move_tests(tests)
    rewrite_strings(mover, tests)
    for empty in sorted((p for p in SRC.rglob("*") if p.is_dir()), reverse=True):
        left = [p for p in empty.iterdir() if p.name != "__pycache__"]
        if not left:
            shutil.rmtree(empty)
    subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--fix", "--select", "I001,F401,F811", "-q", "src", "tests", "tools"],
        check=False,
    )
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", "src", "tests", "tools"], check=False)


if __name__ == "__main__":
    main()
