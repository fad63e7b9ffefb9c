"""Shell completion of commands and ids.

One table maps parameters to the ids they take. It is read only while a shell asks for
completions. An error then offers nothing and prints nothing.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import json_option, print_json

if TYPE_CHECKING:
    from flightlog.retro.issues.board import Board
    from flightlog.retro.state import RetroAnalysis


OFFERED_MAX = 200  # a longer list is of no use to a person pressing Tab
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
    """Return whether a shell is asking for completions."""
    variables = os.environ if environ is None else environ
    return any(
        name.endswith("_COMPLETE") and value.endswith("_complete")
        for name, value in variables.items()
    )


def offer_ids(command: click.Command, *path: str) -> click.Command:
    """Make the parameters of a command and its subcommands complete ids."""
    for parameter in command.params:
        offer = _find_offer(path, parameter.name or "")
        if offer is not None:
            parameter.type = CompletableId(offer)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand is not None:
                offer_ids(subcommand, *path, name)
    return command


class CompletableId(click.types.StringParamType):
    """Text that names something; `offer` lists the possible names."""

    def __init__(self, offer: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Take a function that returns pairs of id and description."""
        self._offer = offer

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:  # fmt: skip
        """Return the ids that start with `incomplete`."""
        del ctx, param
        try:
            matches = [pair for pair in self._offer() if pair[0].startswith(incomplete)]
        except Exception:  # noqa: BLE001 - a message would end up in the command line being typed
            return []
        return [CompletionItem(name, help=help_ or None) for name, help_ in matches[:OFFERED_MAX]]


def _session_ids() -> Iterable[tuple[str, str]]:
    from flightlog.archive.archive import open_archive

    recordings = open_archive(open_runtime()).recordings.values()
    newest = sorted(recordings, key=lambda recording: -recording.changed_ms)
    return [(recording.session, "") for recording in newest]


def _run_names() -> Iterable[tuple[str, str]]:
    from flightlog.lab.store import list_run_paths

    return [(path.name, "") for path in list_run_paths(Path.cwd() / "runs")]


def _loop_names() -> Iterable[tuple[str, str]]:
    from flightlog.loop.service import all_sessions

    return [(path.name, "") for path in all_sessions(open_runtime())]


def _read_retro() -> "tuple[RetroAnalysis | None, Board]":
    from flightlog.retro.store import read_analysis_and_board

    return read_analysis_and_board(open_runtime())


def _issue_ids() -> Iterable[tuple[str, str]]:
    return [(issue.id, issue.title) for issue in _read_retro()[1].issues.values()]


def _cluster_ids() -> Iterable[tuple[str, str]]:
    return [(cluster.id, cluster.theme) for cluster in _read_retro()[1].clusters.values()]


def _finding_ids() -> Iterable[tuple[str, str]]:
    analysis, _ = _read_retro()
    return [(pattern.id, pattern.label) for pattern in analysis.patterns] if analysis else []


def _row_ids() -> Iterable[tuple[str, str]]:
    from flightlog.dataset.reader import read_dataset
    from flightlog.dataset.service import find_dataset

    dataset = find_dataset(open_runtime())
    rows = read_dataset(dataset.tracked_dir).rows.values() if dataset else ()
    shown = [row for row in rows if row.get("id") and row.get("kind") != "tombstone"]
    return [(str(row["id"]), str(row["kind"])) for row in shown]


def _traceable_ids() -> Iterable[tuple[str, str]]:
    offers = (_session_ids, _loop_names, _run_names, _finding_ids, _issue_ids, _row_ids)
    return [pair for offer in offers for pair in offer()]


Offer = Callable[[], Iterable[tuple[str, str]]]

# command path or a prefix of it: {parameter: function that lists its ids}
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
    tables = (table for prefix, table in _TABLE.items() if path[: len(prefix)] == prefix)
    offers = [table[parameter] for table in tables if parameter in table]
    return offers[0] if offers else None


@click.command(epilog='Example: eval "$(flightlog completion bash)"')
@click.argument("shell", type=click.Choice(list(WHERE)))
@json_option("Print the script and its place as JSON.")
def completion(shell: str, *, as_json: bool) -> None:
    """Print the shell completion script.

    It completes commands and ids of flightlog and its aliases. Load it when your shell starts:

    \b
    bash  eval "$(flightlog completion bash)"      in ~/.bashrc
    zsh   eval "$(flightlog completion zsh)"       in ~/.zshrc, after compinit
    fish  flightlog completion fish > ~/.config/fish/completions/flightlog.fish
    """  # noqa: D301 - click keeps the line breaks of a paragraph after \b
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    assert shell_class is not None, "click supports the three shells"
    parts = []
    for name in NAMES:
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        completer = shell_class(click.Command(name), {}, name, variable)
        parts.append(completer.source_template % completer.source_vars())
    script = "\n".join(parts)
    fields = {"shell": shell, "script": script, "install": WHERE[shell]}
    print_json(fields) if as_json else click.echo(script)
