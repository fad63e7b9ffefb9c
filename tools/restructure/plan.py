"""Decide every edit of a rename, and find what stands in its way, before anything is written."""
# ruff: noqa: PLR0911

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field

from .families import Families, Member
from .guess import Guesser
from .resolve import Program, Target
from .scopes import Binding, FileScopes, Scope, Use
from .source import Span
from .table import Row
from .typed import UNKNOWN, TypeIndex

Symbol = tuple[str, str]  # module, name


@dataclass
class Plan:
    """What would be done."""

    symbols: dict[Symbol, str] = field(default_factory=dict)
    members: dict[Member, str] = field(default_factory=dict)
    row_of: dict[Symbol | Member, Row] = field(default_factory=dict)
    edits: dict[str, dict[Span, str]] = field(default_factory=lambda: defaultdict(dict))
    skipped: list[tuple[str, str]] = field(default_factory=list)
    clashes: list[tuple[Row, str]] = field(default_factory=list)
    review: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    as_data: list[str] = field(default_factory=list)
    mentions: list[str] = field(default_factory=list)
    applied: list[tuple[str, str, str]] = field(default_factory=list)


class Planner:
    """Makes plans for one tree; the index and the candidate uses are shared between attempts."""

    def __init__(self, program: Program, index: TypeIndex, guesser: Guesser) -> None:
        self.program, self.index, self.guesser = program, index, guesser

    def make(self, rows: list[Row]) -> Plan:
        """Return a plan without clashes: rows that clash are left out, which may make others clash in turn."""
        refused: list[tuple[Row, str]] = []
        active = rows
        while True:
            plan = self._attempt(active)
            if not plan.clashes:
                plan.clashes = refused
                return plan
            refused.extend(plan.clashes)
            blamed = {row.old for row, _ in plan.clashes}
            active = [row for row in active if row.old not in blamed]

    def _attempt(self, rows: list[Row]) -> Plan:
        plan = Plan()
        wanted = {row.old.rpartition(".")[2] for row in rows}
        families = Families(self.index, wanted)
        for row in rows:
            reason = self._enter(plan, row, families)
            if reason:
                plan.skipped.append((f"{row.kind} {row.old} -> {row.new} ({row.origin})", reason))
        old_names = {name for _, name in [*plan.symbols, *plan.members]}
        new_names = {*plan.symbols.values(), *plan.members.values()}
        for file in self.program.files.values():
            self._edit_file(plan, file, old_names, new_names)
        self._check_classes(plan, families)
        return plan

    # Rows -------------------------------------------------------------------------------------------------------

    def _enter(self, plan: Plan, row: Row, families: Families) -> str:
        """Note what a row renames; return why not, if so."""
        module, rest = self._split(row.old)
        if module is None:
            return "no such module now"
        file = self.program.files[module]
        if len(rest) == 1:
            return self._enter_symbol(plan, row, file, rest[0])
        classes = self.program.defining_classes(module, rest[:-1])
        if not classes:
            return "no such class now"
        name = rest[-1]
        reasons = [self._enter_member(plan, row, (f"{module}:{each.lineno}", name), families) for each in classes]
        return next(filter(None, reasons), "")

    def _split(self, old: str) -> tuple[str | None, list[str]]:
        parts = [part for part in old.split(".") if part != "__init__"]
        for count in range(len(parts) - 1, 0, -1):
            module = self.program.names.get(".".join(parts[:count]))
            if module:
                return module, parts[count:]
        return None, parts

    def _enter_symbol(self, plan: Plan, row: Row, file: FileScopes, name: str) -> str:
        bindings = file.module.bindings.get(name, [])
        kinds = {binding.kind for binding in bindings}
        if not bindings:
            return "no such name in the module now"
        if kinds == {"import"}:
            return "only imported here; defined elsewhere now"
        if name.startswith("__"):
            return "a name Python knows"
        if any(_is_fixture(binding.node) for binding in bindings):
            return "a pytest fixture"
        plan.symbols[file.source.module, name] = row.new
        plan.row_of[file.source.module, name] = row
        return ""

    def _enter_member(self, plan: Plan, row: Row, member: Member, families: Families) -> str:
        key, name = member
        kind = self.index.classes[key].members.get(name) if key in self.index.classes else None
        if kind is None:
            return "no such member now"
        if kind == "field":
            return "a field; fields are not renamed"
        if name.startswith("__") and name.endswith("__"):
            return "a name Python knows"
        if families.is_foreign(member):
            return "overrides a method of a library"
        family = families.members(member)
        for each in family:
            facts = self.index.classes[each[0]]
            if facts.members.get(name) == "field" and facts.name.startswith("flightlog."):
                return f"shares its name with the field {facts.name}.{name}"
            if plan.members.get(each, row.new) != row.new:
                other = plan.row_of[each]
                return f"must share a name with {other.old}, which becomes {other.new}"
        for each in family:
            if each != member and each not in plan.members:
                facts = self.index.classes[each[0]]
                plan.notes.append(f"{facts.name}.{name} -> {row.new} too, by {row.old}")
            plan.members[each] = row.new
            plan.row_of.setdefault(each, row)
        return ""

    # Uses -------------------------------------------------------------------------------------------------------

    def _edit_file(self, plan: Plan, file: FileScopes, old_names: set[str], new_names: set[str]) -> None:
        path = str(file.source.path)
        for scope in file.scope_of.values():
            self._edit_bindings(plan, file, scope, old_names)
        for use in file.names:
            if use.name in old_names:
                self._edit_name(plan, file, use)
        for use in file.attributes:
            if use.name in old_names:
                new = self._renamed_attribute(plan, file, use)
                if new:
                    plan.edits[path][use.span] = new
        for use in file.names:
            if use.name in new_names:
                self._check_capture(plan, file, use)

    def _edit_bindings(self, plan: Plan, file: FileScopes, scope: Scope, old_names: set[str]) -> None:
        finals: dict[str, set[str]] = defaultdict(set)
        for name, bindings in scope.bindings.items():
            for binding in bindings:
                new = self._final(plan, file, scope, name, binding)
                finals[new or name].add(name)
                token = binding.node.name if isinstance(binding.node, ast.alias) else name
                if isinstance(binding.node, ast.alias) and token in old_names and binding.target[1]:
                    renamed = self._imported(plan, file, binding)
                    if renamed:
                        start = file.spans[binding.node][0]
                        plan.edits[str(file.source.path)][start, start + len(token)] = renamed
                elif new and binding.kind in {"def", "class"}:
                    plan.edits[str(file.source.path)][_definition(file, binding.node)] = new
        for new, olds in finals.items():
            if len(olds) > 1:
                self._blame_scope(plan, file, scope, new, olds)

    def _final(self, plan: Plan, file: FileScopes, scope: Scope, name: str, binding: Binding) -> str | None:
        """Return the new name of what `binding` binds in `scope`, or None where it stays."""
        if binding.kind == "import":
            return None if binding.is_alias else self._imported(plan, file, binding)
        if scope.kind == "module":
            return plan.symbols.get((file.source.module, name))
        if scope.kind == "class":
            return plan.members.get((f"{file.source.module}:{scope.owner.lineno}", name))
        return None

    def _imported(self, plan: Plan, file: FileScopes, binding: Binding) -> str | None:
        target = self._import_target(file, binding)
        return plan.symbols.get((target.module, target.name)) if target else None

    def _import_target(self, file: FileScopes, binding: Binding) -> Target | None:
        module, wanted = binding.target
        actual = self.program.find_module(module, file.source)
        for target in self.program.resolve_symbol(actual or module, wanted) if wanted else ():
            if target.name == wanted:
                return target
        return None

    def _blame_scope(self, plan: Plan, file: FileScopes, scope: Scope, new: str, olds: set[str]) -> None:
        where = f"{file.source.path}:{getattr(scope.owner, 'lineno', 1)}"
        for name in olds - {new}:
            for binding in scope.bindings[name]:
                row = self._row(plan, file, scope, name, binding)
                if row:
                    others = ", ".join(sorted(olds - {name}))
                    plan.clashes.append((row, f"{new} is also bound in {scope.kind} {where} (by {others})"))
                    break

    def _row(self, plan: Plan, file: FileScopes, scope: Scope, name: str, binding: Binding) -> Row | None:
        if binding.kind == "import":
            target = self._import_target(file, binding)
            return plan.row_of.get((target.module, target.name)) if target else None
        if scope.kind == "class":
            return plan.row_of.get((f"{file.source.module}:{scope.owner.lineno}", name))
        return plan.row_of.get((file.source.module, name)) if scope.kind == "module" else None

    def _edit_name(self, plan: Plan, file: FileScopes, use: Use) -> None:
        where = use.scope.find(use.name)
        if where is None:
            return
        for binding in where.bindings[use.name]:
            new = self._final(plan, file, where, use.name, binding)
            if not new:
                continue
            plan.edits[str(file.source.path)][use.span] = new
            hidden = [scope for scope in use.scope.between(where) if new in scope.bindings]
            row = self._row(plan, file, where, use.name, binding)
            if hidden and row:
                owner = getattr(hidden[0].owner, "name", hidden[0].kind)
                plan.clashes.append((row, f"a local {new} of {owner} hides it at {file.source.place(use.span[0])}"))

    def _check_capture(self, plan: Plan, file: FileScopes, use: Use) -> None:
        """Find a name that means something else today and would mean a renamed thing afterwards."""
        if use.span in plan.edits[str(file.source.path)]:
            return
        where = use.scope.find(use.name)
        for scope in use.scope.between(where) if where else _chain(use.scope):
            for name, bindings in scope.bindings.items():
                for binding in bindings:
                    if name != use.name and self._final(plan, file, scope, name, binding) == use.name:
                        row = self._row(plan, file, scope, name, binding)
                        plan.clashes.append(
                            (row, f"{use.name} means something else at {file.source.place(use.span[0])}")
                        )
                        return

    def _renamed_attribute(self, plan: Plan, file: FileScopes, use: Use) -> str | None:
        for target in self.program.resolve(file, use.node, use.scope):
            return plan.symbols.get((target.module, target.name)) if target.name == use.name else None
        if any(not target.name for target in self.program.resolve(file, use.node.value, use.scope)):
            return None
        node = use.node
        owners = self.index.owners.get(
            (str(file.source.path), node.end_lineno, node.end_col_offset, use.name), {UNKNOWN}
        )
        if owners != {UNKNOWN}:
            return next((plan.members[owner, use.name] for owner in owners if (owner, use.name) in plan.members), None)
        return self.guess(plan, file, use)

    def guess(self, plan: Plan, file: FileScopes, use: Use) -> str | None:
        """Decide about an attribute whose receiver mypy does not know."""
        place = file.source.place(use.span[0])
        if not any(name == use.name for _, name in plan.members):
            return None
        new, reason = self.guesser.decide(plan.members, file, use)
        line = file.source.text.splitlines()[file.source.line_of(use.span[0]) - 1].strip()
        if new:
            plan.guessed.append(f"{place}: .{use.name} -> {new} ({reason}): {line}")
        elif reason:
            plan.review.append(f"{place}: .{use.name} ({reason}): {line}")
        return new

    # Classes ----------------------------------------------------------------------------------------------------

    def _check_classes(self, plan: Plan, families: Families) -> None:
        for (key, name), new in plan.members.items():
            related = {*self.index.classes[key].mro, *families.children[key]}
            for child in families.children[key]:
                related |= set(self.index.classes[child].mro)
            for other in related & self.index.classes.keys():
                facts = self.index.classes[other]
                taken = {plan.members.get((other, each), each) for each in facts.members if each != name}
                if new in taken:
                    plan.clashes.append((plan.row_of[key, name], f"{facts.name} has a member {new} already"))
                    break


def _chain(scope: Scope) -> list[Scope]:
    found, each = [], scope
    while each:
        if each is scope or each.kind != "class":
            found.append(each)
        each = each.parent
    return found


def _definition(file: FileScopes, node: ast.AST) -> Span:
    """Return where the name stands in a def or class statement."""
    start = file.spans[node][0]
    match = re.compile(r"(?:async\s+def|def|class)\s+").match(file.source.text, start)
    return match.end(), match.end() + len(node.name)


def _is_fixture(node: ast.AST) -> bool:
    return any("fixture" in ast.unparse(each) for each in getattr(node, "decorator_list", []))
