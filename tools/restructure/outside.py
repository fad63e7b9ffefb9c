"""What refers to names without being ordinary code: breaks, templates, click commands, project files, documents."""

import ast
import re
from pathlib import Path

import jinja2

from .literals import Literal
from .plan import Plan, Planner
from .scopes import FileScopes
from .source import Span

_CLICK = {"command", "group"}
_WORD = re.compile(r"(?<![\w\"'])(\.?)([A-Za-z_]\w*)")


def plan_breaks(planner: Planner, plan: Plan) -> None:
    """Carry the edits of a source file over to the texts that breaks.py searches in it."""
    path = "tools/promises/breaks.py"
    file = planner.program.by_path.get(path)
    for node, _ in file.calls if file else []:
        values = [each.value if isinstance(each, ast.Constant) else None for each in node.args]
        if getattr(node.func, "id", "") != "Break" or len(values) != 5 or None in values:
            continue
        target = planner.program.by_path.get(f"src/flightlog/{values[1]}")
        if target is None or target.source.text.count(values[2]) != 1:
            plan.review.append(f"{path}:{node.lineno}: the text to break is not found once today")
            continue
        _plan_break(planner, plan, file, node, target)


def _plan_break(planner: Planner, plan: Plan, file: FileScopes, node: ast.Call, target: FileScopes) -> None:
    searched, replacement = (Literal(file.source.text, *file.spans[node.args[at]]) for at in (2, 3))
    begin = target.source.text.index(searched.value)
    changed: dict[str, str] = {}
    mine = plan.edits[str(file.source.path)]
    for (start, end), new in plan.edits[str(target.source.path)].items():
        if begin <= start and end <= begin + len(searched.value):
            span = searched.span(start - begin, end - begin)
            changed[target.source.text[max(start - 1, 0) : end].lstrip(" \n([{:,-!@")] = new
            changed[target.source.text[start:end]] = new
            if span:
                mine[span] = new
            else:
                plan.review.append(
                    f"{file.source.path}:{node.lineno}: {target.source.text[start:end]} -> {new} by hand"
                )
    for match in _WORD.finditer(replacement.value):
        word, span = match[2], replacement.span(match.start(2), match.end(2))
        symbol = {
            plan.symbols.get((each.module, each.name))
            for each in planner.program.resolve_symbol(target.source.module, word)
            if each.name == word
        } - {None}
        new = changed.get(word) or (symbol.pop() if symbol and not match[1] else None)
        is_member = match[1] and any(name == word for _, name in plan.members)
        if new and span:
            mine[span] = new
        elif is_member:
            new, reason = planner.guesser.agree(plan.members, target.source.module, word)
            if new and span:
                mine[span] = new
            else:
                plan.review.append(f"{file.source.path}:{node.lineno}: replacement: .{word} ({reason})")


def plan_templates(planner: Planner, plan: Plan, root: Path) -> dict[str, str]:
    """Rename attributes in templates where all owners agree; return the texts by path."""
    texts = {}
    names = {name for _, name in plan.members}
    environment = jinja2.Environment(autoescape=True)
    for path in sorted((root / "src").rglob("templates/**/*.html")):
        short, text, at, before = str(path.relative_to(root)), path.read_text(encoding="utf-8"), 0, ""
        texts[short] = text
        for line, kind, value in environment.lex(text):
            start = text.index(value, at)
            assert not text[at:start].strip(), (short, line)  # `{%-` takes blanks away
            at = start
            if kind == "name" and before == "." and value in names:
                new, reason = planner.guesser.agree(plan.members, "flightlog.web.render", value)
                if new:
                    plan.edits[short][at, at + len(value)] = new
                    plan.guessed.append(f"{short}:{line}: .{value} -> {new} (template)")
                else:
                    plan.review.append(f"{short}:{line}: .{value} (template; {reason})")
            at += len(value)
            if kind != "whitespace":
                before = value
    return texts


def plan_commands(planner: Planner, plan: Plan) -> None:
    """Give renamed click commands their old name as a literal, since click takes it from the function."""
    for (module, name), new in plan.symbols.items():
        file = planner.program.files[module]
        for binding in file.module.bindings[name]:
            for each in getattr(binding.node, "decorator_list", []):
                call = each.func if isinstance(each, ast.Call) else each
                if getattr(call, "attr", "") not in _CLICK:
                    continue
                if not isinstance(each, ast.Call):
                    plan.edits[str(file.source.path)][(file.spans[each][1],) * 2] = f'("{_click_name(name)}")'
                elif not each.args and not any(keyword.arg == "name" for keyword in each.keywords):
                    at = file.spans[call][1] + 1
                    text = f'"{_click_name(name)}"' + (", " if each.keywords else "")
                    plan.edits[str(file.source.path)][at, at] = text
                plan.notes.append(f"click command {module}.{name} -> {new} keeps its name {_click_name(name)}")


def _click_name(name: str) -> str:
    parts = name.lower().replace("_", "-").rsplit("-", 1)
    return parts[0] if len(parts) == 2 and parts[1] in {"command", "cmd", "group", "grp"} else "-".join(parts)


def plan_project(planner: Planner, plan: Plan, root: Path) -> dict[str, str]:
    """Rename module:function in pyproject.toml; return the text by path."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    for match in re.finditer(r"\"([\w.]+):(\w+)\"", text):
        module = planner.program.names.get(match[1], "")
        for target in planner.program.resolve_symbol(module, match[2]) if module else ():
            new = plan.symbols.get((target.module, target.name))
            if new and target.name == match[2]:
                plan.edits["pyproject.toml"][match.span(2)] = new
    return {"pyproject.toml": text}


def find_names_as_data(planner: Planner, plan: Plan) -> list[str]:
    """List renamed classes whose name becomes data, and the places that turn a class name into text."""
    found = []
    for file in planner.program.files.values():
        for node in ast.walk(file.source.tree):
            if isinstance(node, ast.ClassDef) and (file.source.module, node.name) in plan.symbols:
                for keyword in node.keywords:
                    if keyword.arg == "tag" and getattr(keyword.value, "value", None) is True:
                        new = plan.symbols[file.source.module, node.name]
                        found.append(f"{file.source.path}:{node.lineno}: tag=True: the tag {node.name} becomes {new}")
            elif isinstance(node, ast.Attribute) and node.attr in {"__name__", "__qualname__"}:
                found.append(f"{file.source.path}:{node.lineno}: {ast.unparse(node)}")
    return found


def find_mentions(plan: Plan, root: Path) -> list[str]:
    """List renamed names that documents have in backticks."""
    names = {name: new for (_, name), new in plan.symbols.items() if name[:1].isupper() or "_" in name}
    found = []
    for path in [*sorted((root / "docs").rglob("*.md")), root / "README.md", root / "CONTRIBUTING.md"]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            words = re.findall(r"`([A-Za-z_]\w*)(?:\(\))?`", line)
            found += [
                f"{path.relative_to(root)}:{number}: `{word}` -> {names[word]}?" for word in words if word in names
            ]
    return found


def apply_edits(text: str, edits: dict[Span, str]) -> str:
    """Return the text with every span replaced; spans do not overlap."""
    parts, at = [], 0
    for (start, end), new in sorted(edits.items()):
        assert start >= at, (text[start:end], new)
        parts += [text[at:start], new]
        at = end
    return "".join([*parts, text[at:]])
