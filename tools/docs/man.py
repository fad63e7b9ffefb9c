"""Writes a man page for every command from its help text: `make man`."""

import sys
from pathlib import Path

import click
from tools.docs.walk import ALIASES, commands, examples, options, text, usage

from flightlog import __version__

_CODES = (
    ("0", "done"),
    ("1", "not found, or failed as reported"),
    ("2", "the command line is wrong"),
    ("3", "recorded data is damaged"),
    ("4", "a configuration file or variable is wrong"),
    ("69", "a required program or service does not answer"),
    ("75", "held by another process"),
    ("130", "interrupted"),
)


def pages() -> dict[str, str]:
    """Return every page by file name."""
    listed = list(commands())
    bodies = {}
    for path, command in listed:
        subcommands = [
            (subpath, subcommand) for subpath, subcommand in listed if subpath[:-1] == path
        ]
        bodies[f"{'-'.join(path)}.1"] = _page(path, command, subcommands)
    for noun, name in ALIASES.items():
        bodies[f"{name}.1"] = f".so man1/flightlog-{noun}.1\n"
    return bodies


def write(folder: Path) -> None:
    """Write every page below `folder/man1`."""
    (folder / "man1").mkdir(parents=True, exist_ok=True)
    for name, body in pages().items():
        (folder / "man1" / name).write_text(body, "utf-8")


def _page(
    path: tuple[str, ...],
    command: click.Command,
    subcommands: list[tuple[tuple[str, ...], click.Command]],
) -> str:
    first, _, rest = text(command).partition("\n\n")
    lines = [
        f'.TH "{"-".join(path).upper()}" "1" "" "flightlog {__version__}" "flightlog"',
        ".SH NAME",
        f"{_safe('-'.join(path))} \\- {_safe(' '.join(first.split()))}",
        ".SH SYNOPSIS",
        f".B {_safe(usage(path, command))}",
    ]
    if rest:
        lines += [
            ".SH DESCRIPTION",
            *(f".P\n{_safe(' '.join(part.split()))}" for part in rest.split("\n\n")),
        ]
    if subcommands:
        lines.append(".SH COMMANDS")
        lines += [
            f".TP\n.B {_safe(' '.join(subpath[1:]))}\n{_safe(_first_paragraph(subcommand))}"
            for subpath, subcommand in subcommands
        ]
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


def _first_paragraph(command: click.Command) -> str:
    return " ".join(text(command).split("\n\n")[0].split())


def _safe(line: str) -> str:
    """Escape a line so that groff reads it as text."""
    plain = line.replace("\\", r"\e").replace("-", r"\-").replace("\n", " ")
    escaped = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in plain)
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


if __name__ == "__main__":
    write(Path(sys.argv[1]))
