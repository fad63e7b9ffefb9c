"""The tool `file_history`: the steps that changed a file, and the prompt behind a line."""

from contextlib import suppress
from os.path import normpath, relpath
from pathlib import Path

from msgspec.structs import replace

from flightlog.mcp.render import TITLE_CHARS, ToolAnswer, ToolArguments, cut_title, describe_time
from flightlog.mcp.scope import SessionScope
from flightlog.model.addresses import parse_address
from flightlog.model.errors import Invalid
from flightlog.model.session import Session
from flightlog.model.text import pluralize
from flightlog.store.git.repository import Repository, find_repository
from flightlog.tracing.blame import attribute_lines
from flightlog.views.session.edits import LineEdit

EDITS_SHOWN = 20
SESSIONS_SEARCHED = 200  # the newest that name a file; reading the edits of all takes seconds
PROMPT_CHARS = 1_000


def answer_file_history(scope: SessionScope, arguments: ToolArguments, answer: ToolAnswer) -> str:
    """Add the edits of a file to `answer`, newest first; return its first line."""
    typed = arguments.get_text("path", required=True)
    line = arguments.get_count("line", 0, 10**9)
    path = _project_path(scope, typed)
    named = _find_naming(scope, path)
    names = [name for name in scope.sessions if name in named][:SESSIONS_SEARCHED]
    blame = FileBlame(scope, names)
    edits = [edit for _, own in blame.all_edits for edit in own if edit.path == path]
    if line:
        _say_line(scope, answer, blame, line, path)
    newest = sorted(edits, key=lambda edit: -edit.at_ms)[:EDITS_SHOWN]
    sessions = sorted({parse_address(edit.at).session for edit in newest})
    summaries = scope.read_summaries([scope.sessions[name] for name in sessions])
    titles = {summary.session: cut_title(summary.title) for summary in summaries}
    for edit in newest:
        found = scope.sessions[parse_address(edit.at).session]
        answer.add_line(
            f"{edit.at}  {describe_time(scope, edit.at_ms)}, {pluralize(len(edit.lines), 'line')} "
            f"from line {edit.line}, session:"
        )
        answer.add_quotation(found, titles[found.session], TITLE_CHARS)
    steps = len({edit.at for edit in edits})
    readers = len(named) - len({parse_address(edit.at).session for edit in edits})
    more = f"; {pluralize(readers, 'other session')} only named it" if readers > 0 else ""
    return f"{pluralize(steps, 'step')} changed this file{more}."


def _find_naming(scope: SessionScope, path: str) -> set[str]:
    """Return the sessions that name a file relative to the project, or to where they began."""
    trees, names, named = _list_trees(scope), {}, set[str]()
    for project in {one.project for one in scope.sessions.values()}:
        with suppress(ValueError):
            name = relpath(path, _relative_path(Path(project), trees))
            names[project] = name if name.strip("./") else path
    for name in {path, *names.values()}:
        own = [one for one in scope.sessions.values() if names.get(one.project, path) == name]
        named |= scope.find_naming(name, own)
    return named


def _list_trees(scope: SessionScope) -> list[Path]:
    return [Path(root) for root in scope.roots or (str(scope.folder),)]


def _relative_path(path: Path, trees: list[Path]) -> str:
    """Return a path relative to the work tree that it is in; raise `ValueError` for no tree."""
    inside = [tree for tree in trees if path.is_relative_to(tree)]
    return str(path.relative_to(max(inside, key=lambda tree: len(tree.parts), default=trees[0])))


def _project_path(scope: SessionScope, typed: str) -> str:
    """Return a path below the project, relative to it; a path elsewhere is refused."""
    given = Path(typed)
    if ".." in given.parts:
        raise Invalid("this path has '..' in it", hint="give a path relative to the project")
    if not given.is_absolute():
        return str(given)
    try:
        return _relative_path(given, _list_trees(scope))
    except ValueError:
        if scope.roots is None:
            return str(given)
        hint = "give a path relative to the project"
        raise Invalid("this path is outside the project", hint=hint) from None


def _say_line(
    scope: SessionScope, answer: ToolAnswer, blame: "FileBlame", line: int, path: str
) -> None:
    [origin] = attribute_lines(_list_trees(scope)[0] / path, line, line, blame)
    commit = origin.commit[:12] or "not committed"
    if not origin.step:
        answer.add_line(f"Line {line}: {origin.attribution}; commit: {commit}.")
        return
    found = scope.sessions[parse_address(origin.step).session]
    answer.add_line(
        f"Line {line} was written at {origin.step}, {describe_time(scope, origin.at_ms)} "
        f"({origin.attribution}; commit: {commit}). Its prompt:"
    )
    answer.add_quotation(found, origin.prompt or "(no prompt on record)", PROMPT_CHARS)


class FileBlame:
    """What blame needs to know, for the sessions of the scope that name one file."""

    def __init__(self, scope: SessionScope, sessions: list[str]) -> None:
        """Attribute lines to the edits of `sessions`."""
        self.archive, self._sessions = scope.archive, sessions
        self._trees = _list_trees(scope)
        self.repository: Repository | None = find_repository(self._trees[0])

    @property
    def all_edits(self) -> tuple[tuple[str, tuple[LineEdit, ...]], ...]:
        """The edits of each session."""
        edits = self.archive.iter_edits(self._sessions)
        return tuple((name, tuple(map(self._shorten_path, own))) for name, own in edits)

    def find_session(self, name: str) -> Session | None:
        """Return a session of the scope, or None."""
        return self.archive.read_session(name) if name in self.archive.recordings else None

    def relative_path(self, file: Path) -> str:
        """Return a file's path relative to the project."""
        return _relative_path(file, self._trees)

    def _shorten_path(self, edit: LineEdit) -> LineEdit:
        with suppress(ValueError):
            path = Path(normpath(edit.path))  # a session that began below may write to ../FILE
            return replace(edit, path=_relative_path(path, self._trees))
        return edit
