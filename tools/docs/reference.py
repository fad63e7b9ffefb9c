"""Writes `docs/reference/` pages that come from the source; a test holds the committed ones against them."""

import inspect
from pathlib import Path
from typing import Any, get_args

from tools.docs.files import files_page
from tools.docs.walk import ALIASES, commands, examples, options, text, usage

from flightlog.app.config import SETTINGS
from flightlog.lab.events import RunEvent
from flightlog.live.events import Event as LiveEvent
from flightlog.loop.events import Event as LoopEvent
from flightlog.privacy.trust import RISKY
from flightlog.retro.events import Event as RetroEvent

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_MADE = "<!-- Made by `make docs` from the source; a test holds it to that. -->\n"
_HEAD = """Every command takes `--json` (but `privacy redact`, a filter): standard output is then JSON and nothing else;
what is said to a person goes to standard error. Exit codes: [exit-codes.md](exit-codes.md).
"""
_JOURNALS = (
    ("loop", "ralph-loop-sessions/session-NNN-slug/journal.jsonl", LoopEvent),
    ("lab", "runs/<run>/.journal.jsonl", RunEvent),
    ("retro", ".chat-retro-runtime/state/journal.jsonl", RetroEvent),
    ("live", "<config dir>/session-health/.flightlog/journal.jsonl", LiveEvent),
)


def pages() -> dict[str, str]:
    """Every generated page, by file name."""
    return {
        "commands.md": _commands(),
        "config.md": _config(),
        "events.md": _events(),
        "files.md": _MADE + files_page(),
    }


def write() -> None:
    """Write them."""
    for name, body in pages().items():
        (FOLDER / name).write_text(body, "utf-8")


def _commands() -> str:
    every = list(commands())
    parts = [_MADE, "# Commands\n", _HEAD]
    for path, command in every[1:]:
        level = "##" if len(path) == 2 else "###"
        parts.append(f"{level} {' '.join(path)}\n")
        if len(path) == 2 and path[1] in ALIASES:
            parts.append(f"Also installed as `{ALIASES[path[1]]}`.\n")
        parts.append(f"    {usage(path, command)}\n")
        parts.append(f"{_inert(text(command))}\n")
        rows = [(names, meaning) for names, meaning in options(path, command) if "--help" not in names]
        if rows:
            lines = [f"| `{_cell(names)}` | {_cell(_inert(meaning))} |" for names, meaning in rows]
            parts.append("\n".join(["| option | meaning |", "|---|---|", *lines]) + "\n")
        shown = examples(command)
        if shown:
            head = "Examples" if len(shown) > 1 else "Example"
            parts.append("\n".join([f"{head}:\n", *(f"    {line}" for line in shown)]) + "\n")
    return "\n".join(parts)


def _config() -> str:
    told = [(each, "yes" if each.name.rpartition(".")[2] in RISKY else "") for each in SETTINGS]
    rows = [f"| `{each.name}` | `{each.default!r}` | {trust} | {each.help} |" for each, trust in told]
    said = """# Settings

`flightlog.toml`: the user's (in the configuration directory), then the project's (the nearest one upwards),
then `FLIGHTLOG_<GROUP>_<NAME>` in the environment; the later wins. `flightlog config show --origin` says what
holds and why. Settings marked *trust* count from a project's file only after `flightlog trust`, or where
`FLIGHTLOG_TRUST` allows them.

`FLIGHTLOG_TRUST` is consent for every repository of a machine, set where the machine is defined (a cloud environment,
a dev container, CI): a comma-separated list of `rows` (write training rows into a repository that collects them),
`words` (a repository's `dataset.track_words` counts) and `push` (its `dataset.push` counts); the last two include
rows. A repository's `dataset.remote` needs `flightlog trust`. What holds here: `flightlog trust`.
"""
    return "\n".join([_MADE, said, "| setting | default | trust | meaning |", "|---|---|---|---|", *rows, ""])


def _events() -> str:
    said = """# Events

What each journal holds: one JSON line for each event, with the journal's own `id`, `seq` and `ts`. A kind or a
field that this version does not know is kept as it is and counted.
"""
    parts = [_MADE, said]
    for room, path, union in _JOURNALS:
        lines = [f"| `{_tag(each)}` | {_fields(each)} | {_first(each)} |" for each in get_args(union)]
        table = "\n".join(["| kind | fields | meaning |", "|---|---|---|", *lines])
        parts += [f"## {room}\n", f"`{path}`\n", f"{table}\n"]
    return "\n".join(parts)


def _tag(event: Any) -> str:
    return str(event.__struct_config__.tag)


def _fields(event: Any) -> str:
    return " ".join(f"`{name}`" for name in event.__struct_encode_fields__) or "none"


def _first(event: Any) -> str:
    return _cell(inspect.cleandoc(event.__doc__ or "").split("\n\n")[0].replace("\n", " "))


def _cell(said: str) -> str:
    return said.replace("|", r"\|").replace("\n", " ")


def _inert(said: str) -> str:
    return said.replace("<", r"\<").replace("*", r"\*")


if __name__ == "__main__":
    write()
