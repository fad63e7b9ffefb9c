"""Shell completion.

One table says which ids a parameter takes. It is read while a shell asks, and at no other time;
whatever goes wrong then, nothing is offered and nothing is said.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import json_option

OFFERED_MAX = 200
NAMES = {
    "flightlog": "",
    "ralph-runtime": "loop",
    "harness": "lab",
    "chat-retro": "retro",
    "issue-workflow": "issue",
    "ml-data-collector": "dataset",
}
WHERE = {
    "bash": 'eval "$(flightlog completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(flightlog completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "flightlog completion fish > ~/.config/fish/completions/flightlog.fish",
}


def is_completing(environ: dict[str, str] | None = None) -> bool:
    """Whether a shell asks what to offer."""
    given = os.environ if environ is None else environ
    return any(name.endswith("_COMPLETE") and value.endswith("_complete") for name, value in given.items())


def offer_ids(command: click.Command, *path: str) -> click.Command:
    """Let the parameters of a command, and of those below it, offer ids."""
    for parameter in command.params:
        offer = _find_offer(path, parameter.name or "")
        if offer is not None:
            parameter.type = CompletableId(offer)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            if each is not None:
                offer_ids(each, *path, name)
    return command


class CompletableId(click.types.StringParamType):
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


def _session_ids() -> Iterable[tuple[str, str]]:
    from flightlog.archive.archive import open_archive

    found = open_archive(open_runtime()).recordings.values()
    newest = sorted(found, key=lambda each: -each.changed_ms)
    return [(each.session, "") for each in newest]


def _run_names() -> Iterable[tuple[str, str]]:
    from flightlog.lab.store import list_run_paths

    return [(path.name, "") for path in list_run_paths(Path.cwd() / "runs")]


def _loop_names() -> Iterable[tuple[str, str]]:
    from flightlog.loop.service import all_sessions

    runtime = open_runtime()
    return [(path.name, "") for path in all_sessions(runtime)]


def _issue_ids() -> Iterable[tuple[str, str]]:
    from flightlog.retro.store import read_analysis_and_board

    runtime = open_runtime()
    return [(each.id, each.title) for each in read_analysis_and_board(runtime)[1].issues.values()]


def _cluster_ids() -> Iterable[tuple[str, str]]:
    from flightlog.retro.store import read_analysis_and_board

    runtime = open_runtime()
    return [(each.id, each.theme) for each in read_analysis_and_board(runtime)[1].clusters.values()]


def _finding_ids() -> Iterable[tuple[str, str]]:
    from flightlog.retro.store import read_analysis_and_board

    analysis, _ = read_analysis_and_board(open_runtime())
    return [(each.id, each.label) for each in analysis.patterns] if analysis else []


def _row_ids() -> Iterable[tuple[str, str]]:
    from flightlog.dataset.reader import read_dataset
    from flightlog.dataset.service import find_dataset

    place = find_dataset(open_runtime())
    rows = read_dataset(place.tracked_dir).rows.values() if place else ()
    return [(str(row["id"]), str(row["kind"])) for row in rows if row.get("id") and row.get("kind") != "tombstone"]


def _traceable_ids() -> Iterable[tuple[str, str]]:
    return [
        pair
        for offer in (_session_ids, _loop_names, _run_names, _finding_ids, _issue_ids, _row_ids)
        for pair in offer()
    ]


Offer = Callable[[], Iterable[tuple[str, str]]]

# (command, or its beginning): {parameter: what it names}
_TABLE: dict[tuple[str, ...], dict[str, Offer]] = {
    ("session",): {"session_id": _session_ids, "address": _session_ids},
    ("settle",): {"session_id": _session_ids},
    ("share",): {"session_id": _session_ids},
    ("trace",): {"address": _traceable_ids},
    ("live", "swap"): {"session_id": _session_ids},
    ("privacy", "scan"): {"paths": _session_ids},
    ("loop",): {"written": _loop_names},
    ("lab", "collect"): {"session": _session_ids},
    ("lab",): {"run": _run_names, "runs": _run_names, "what": _run_names, "resume": _run_names},
    ("retro",): {"pattern": _finding_ids, "what": _finding_ids},
    ("issue",): {"written": _issue_ids, "cluster": _cluster_ids},
    ("dataset",): {"row_id": _row_ids, "row_ids": _row_ids},
}


def _find_offer(path: tuple[str, ...], parameter: str) -> Offer | None:
    found = [named[parameter] for begin, named in _TABLE.items() if path[: len(begin)] == begin and parameter in named]
    return found[0] if found else None


@click.command(epilog='Example: eval "$(flightlog completion bash)"')
@click.argument("shell", type=click.Choice(list(WHERE)))
@json_option("Print the script and where it belongs as JSON.")
def completion(shell: str, *, as_json: bool) -> None:
    """Print what a shell needs to complete commands and ids.

    It serves flightlog and its other names. Put it where your shell reads it:

    \b
    bash  eval "$(flightlog completion bash)"      in ~/.bashrc
    zsh   eval "$(flightlog completion zsh)"       in ~/.zshrc, after compinit
    fish  flightlog completion fish > ~/.config/fish/completions/flightlog.fish
    """  # noqa: D301 - the mark is click's, for lines that stay as they are
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, "click knows the three shells"
    parts = []
    for name in NAMES:
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        one = made(click.Command(name), {}, name, variable)
        parts.append(one.source_template % one.source_vars())
    script = "\n".join(parts)
    if as_json:
        from flightlog.cli.output import print_json

        print_json({"shell": shell, "script": script, "install": WHERE[shell]})
    else:
        click.echo(script)
