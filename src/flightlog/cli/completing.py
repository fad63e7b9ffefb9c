"""What the Tab key offers: commands and options from click, and ids from this machine.

One table says which ids a parameter takes. It is read while a shell asks, and at no other time;
whatever goes wrong then, nothing is offered and nothing is said.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from flightlog.app import open_runtime

OFFERED_MAX = 200


def is_asked(environ: dict[str, str] | None = None) -> bool:
    """Whether a shell asks what to offer."""
    given = os.environ if environ is None else environ
    return any(name.endswith("_COMPLETE") and value.endswith("_complete") for name, value in given.items())


def taught(command: click.Command, *path: str) -> click.Command:
    """Let the parameters of a command, and of those below it, offer ids."""
    for parameter in command.params:
        offer = _offer(path, parameter.name or "")
        if offer is not None:
            parameter.type = Ids(offer)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            if each is not None:
                taught(each, *path, name)
    return command


class Ids(click.types.StringParamType):
    """Text that names something; what there is to name is told by `offer`."""

    def __init__(self, offer: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Offer these pairs of id and meaning."""
        self._offer = offer

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:  # fmt: skip
        """Offer the ids that begin so."""
        del ctx, param
        try:
            every = [pair for pair in self._offer() if pair[0].startswith(incomplete)]
        except Exception:  # noqa: BLE001 - a shell waits: no message could be read
            return []
        return [CompletionItem(name, help=help_ or None) for name, help_ in every[:OFFERED_MAX]]


def _sessions() -> Iterable[tuple[str, str]]:
    from flightlog.archive.door import open_archive

    found = open_archive(open_runtime()).recordings.values()
    newest = sorted(found, key=lambda each: -each.changed_ms)
    return [(each.session, "") for each in newest]


def _runs() -> Iterable[tuple[str, str]]:
    from flightlog.lab.book import paths

    return [(path.name, "") for path in paths(Path.cwd() / "runs")]


def _loops() -> Iterable[tuple[str, str]]:
    from flightlog.app.loop_look import all_sessions

    runtime = open_runtime()
    return [(path.name, "") for path in all_sessions(runtime)]


def _issues() -> Iterable[tuple[str, str]]:
    from flightlog.app.retro import look

    runtime = open_runtime()
    return [(each.id, each.title) for each in look(runtime)[1].issues.values()]


def _clusters() -> Iterable[tuple[str, str]]:
    from flightlog.app.retro import look

    runtime = open_runtime()
    return [(each.id, each.theme) for each in look(runtime)[1].clusters.values()]


def _findings() -> Iterable[tuple[str, str]]:
    from flightlog.app.retro import look

    analysis, _ = look(open_runtime())
    return [(each.id, each.label) for each in analysis.patterns] if analysis else []


def _rows() -> Iterable[tuple[str, str]]:
    from flightlog.app.dataset import looked_at
    from flightlog.dataset.book import read_book

    place = looked_at(open_runtime())
    rows = read_book(place.tracked).rows.values() if place else ()
    return [(str(row["id"]), str(row["kind"])) for row in rows if row.get("id") and row.get("kind") != "tombstone"]


def _traceable() -> Iterable[tuple[str, str]]:
    return [pair for offer in (_sessions, _loops, _runs, _findings, _issues, _rows) for pair in offer()]


Offer = Callable[[], Iterable[tuple[str, str]]]

# (command, or its beginning): {parameter: what it names}
_TABLE: dict[tuple[str, ...], dict[str, Offer]] = {
    ("session",): {"session_id": _sessions, "address": _sessions},
    ("settle",): {"session_id": _sessions},
    ("share",): {"session_id": _sessions},
    ("trace",): {"address": _traceable},
    ("live", "swap"): {"session_id": _sessions},
    ("privacy", "scan"): {"paths": _sessions},
    ("loop",): {"written": _loops},
    ("lab", "collect"): {"session": _sessions},
    ("lab",): {"run": _runs, "runs": _runs, "what": _runs, "resume": _runs},
    ("retro",): {"pattern": _findings, "what": _findings},
    ("issue",): {"written": _issues, "cluster": _clusters},
    ("dataset",): {"row_id": _rows, "row_ids": _rows},
}


def _offer(path: tuple[str, ...], parameter: str) -> Offer | None:
    found = [named[parameter] for begin, named in _TABLE.items() if path[: len(begin)] == begin and parameter in named]
    return found[0] if found else None
