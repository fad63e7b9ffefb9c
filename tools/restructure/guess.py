"""Attributes of receivers without a type: ask jedi, then the rule that all owners agree."""

import contextlib
from collections import defaultdict
from pathlib import Path

import jedi

from .families import Member
from .scopes import FileScopes, Use
from .typed import TypeIndex

# Types that tests hold without mypy knowing; a name one of them has is never renamed on suspicion.
_ALWAYS = {"builtins", "pathlib", "subprocess", "datetime", "re", "collections", "io", "typing", "click.testing"}
_ALWAYS |= {
    "threading",
    "asyncio.subprocess",
    "aiohttp.client",
    "aiohttp.client_reqrep",
    "multidict",
    "sqlite3",
    "argparse",
}


class Guesser:
    """Answers per place are remembered: plans are made several times."""

    def __init__(self, root: Path, index: TypeIndex) -> None:
        self._root, self._index = root, index
        self._project = jedi.Project(
            root, added_sys_path=[str(root / "src"), str(root / "tests")], smart_sys_path=False
        )
        self._scripts: dict[str, jedi.Script] = {}
        self._answers: dict[tuple[str, int], str | None] = {}
        self.owners: dict[str, set[str]] = defaultdict(set)
        self._foreign: dict[str, set[str]] = defaultdict(set)
        self._by_line: dict[tuple[str, str], str] = {}
        for key, facts in index.classes.items():
            for name in facts.members:
                if facts.is_ours:
                    self.owners[name].add(key)
                else:
                    self._foreign[facts.module].add(name)

    def decide(self, members: dict[Member, str], file: FileScopes, use: Use) -> tuple[str | None, str]:
        """Return the new name or None, and why; a None without a reason needs no review."""
        owner = self._ask_jedi(file, use)
        if owner == "foreign":
            return None, ""
        if owner:
            new = members.get((owner, use.name))
            return new, "jedi" if new else ""
        return self.agree(members, file.source.module, use.name)

    def agree(self, members: dict[Member, str], module: str, name: str) -> tuple[str | None, str]:
        """Return the one new name all our classes with this attribute agree on, if no foreign type has it too."""
        news = {members.get((key, name)) for key in self.owners[name]}
        if len(news) != 1 or None in news:
            names = sorted(self._index.classes[key].name for key in self.owners[name])
            return None, "owners differ: " + ", ".join(names[:6])
        modules = _ALWAYS | self._index.imports.get(module, set())
        foreign = sorted(module for module in modules if name in self._foreign[module])
        if foreign:
            return None, f"also an attribute in {', '.join(foreign[:3])}"
        return news.pop(), "all owners agree"

    def _ask_jedi(self, file: FileScopes, use: Use) -> str | None:
        """Return the key of the owning class, "foreign" for anything else, None where jedi knows nothing."""
        place = (file.source.module, use.span[0])
        if place not in self._answers:
            self._answers[place] = None
            with contextlib.suppress(Exception):  # jedi fails on some code in many ways
                self._answers[place] = self._goto(file, use)
        return self._answers[place]

    def _goto(self, file: FileScopes, use: Use) -> str | None:
        module = file.source.module
        if module not in self._scripts:
            path = self._root / file.source.path
            self._scripts[module] = jedi.Script(file.source.text, path=path, project=self._project)
        before = file.source.text[: use.span[0]]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n") - 1
        found = {self._owner(each, use.name) for each in self._scripts[module].goto(line, column, follow_imports=True)}
        found.discard(None)
        return found.pop() if len(found) == 1 else None

    def _owner(self, name: "jedi.api.classes.Name", attribute: str) -> str | None:
        if name.module_path is None or not Path(name.module_path).is_relative_to(self._root):
            return "foreign"
        if ".venv" in Path(name.module_path).parts:
            return "foreign"
        parent = name.parent()
        if parent.type == "class":
            short = str(Path(parent.module_path).relative_to(self._root))
            return self._class_at(short, parent.line)
        if parent.type == "function" and parent.parent().type == "class" and name.type == "statement":
            short = str(Path(parent.module_path).relative_to(self._root))
            return self._class_at(short, parent.parent().line)
        return "foreign" if name.name == attribute and parent.type == "module" else None

    def _class_at(self, path: str, line: int) -> str | None:
        from .source import _module_names  # noqa: PLC0415 - one place decides module names

        key = f"{_module_names(Path(path))[0]}:{line}"
        return key if key in self._index.classes else None
