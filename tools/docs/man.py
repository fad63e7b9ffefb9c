"""Writes a man page for every command, from what the command says about itself: `make man`."""

import sys
from pathlib import Path

import click
from tools.docs.walk import ALIASES, commands, examples, options, text, usage

from flightlog import __version__

_CODES = (
    ("0", "done"),
    ("1", "no such thing, or failed as told"),
    ("2", "the command line is wrong"),
    ("3", "recorded data is damaged"),
    ("4", "a configuration file or variable is wrong"),
    ("69", "a program or service that is needed does not answer"),
    ("75", "held by another process"),
    ("130", "interrupted"),
)


def pages() -> dict[str, str]:
    """Every page by its file name."""
    every = list(commands())
    made = {}
    for path, command in every:
        below = [(each, one) for each, one in every if each[:-1] == path]
        made[f"{'-'.join(path)}.1"] = _page(path, command, below)
    for noun, name in ALIASES.items():
        made[f"{name}.1"] = f".so man1/flightlog-{noun}.1\n"
    return made


def write(folder: Path) -> None:
    """Write them below `folder/man1`."""
    (folder / "man1").mkdir(parents=True, exist_ok=True)
    for name, body in pages().items():
        (folder / "man1" / name).write_text(body, "utf-8")


def _page(path: tuple[str, ...], command: click.Command, below: list[tuple[tuple[str, ...], click.Command]]) -> str:
    said = text(command)
    first, _, rest = said.partition("\n\n")
    lines = [
        f'.TH "{"-".join(path).upper()}" "1" "" "flightlog {__version__}" "flightlog"',
        ".SH NAME",
        f"{_safe('-'.join(path))} \\- {_safe(' '.join(first.split()))}",
        ".SH SYNOPSIS",
        f".B {_safe(usage(path, command))}",
    ]
    if rest:
        lines += [".SH DESCRIPTION", *(f".P\n{_safe(' '.join(part.split()))}" for part in rest.split("\n\n"))]
    if below:
        lines.append(".SH COMMANDS")
        lines += [f".TP\n.B {_safe(' '.join(each[1:]))}\n{_safe(_first(one))}" for each, one in below]
    rows = options(path, command)
    if rows:
        lines.append(".SH OPTIONS")
        lines += [f".TP\n.B {_safe(names)}\n{_safe(meaning)}" for names, meaning in rows]
    shown = examples(command)
    if shown:
        lines += [".SH EXAMPLES", ".nf", *map(_safe, shown), ".fi"]
    if path == ("flightlog",):
        lines += [".SH EXIT STATUS", *(f".TP\n.B {code}\n{meaning}" for code, meaning in _CODES)]
    else:
        lines += [".SH SEE ALSO", f".BR {_safe('-'.join(path[:-1]))} (1)"]
    return "\n".join(lines) + "\n"


def _first(command: click.Command) -> str:
    return " ".join(text(command).split("\n\n")[0].split())


def _safe(said: str) -> str:
    """Text that groff takes for text."""
    plain = said.replace("\\", r"\e").replace("-", r"\-").replace("\n", " ")
    told = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in plain)
    return f"\\&{told}" if told[:1] in {".", "'"} else told


if __name__ == "__main__":
    write(Path(sys.argv[1]))
