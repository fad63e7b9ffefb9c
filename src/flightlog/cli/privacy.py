"""`flightlog privacy`: find, take out, preview and guard what is private.

No command prints a value it found: masked ones only.
"""

import difflib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import ON
from flightlog.cli.output import json_option, print_json, print_outcome
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.text import make_inert

if TYPE_CHECKING:
    from flightlog.model.runtime import Runtime
    from flightlog.privacy.detect.known_values import KnownSecrets
    from flightlog.privacy.scanner import LocatedFinding


_STDIN = "-"


@click.group(epilog="Example: flightlog privacy scan .")
def privacy() -> None:
    """Find, take out, preview and guard what is private."""


@privacy.command(epilog="Example: git log -p | flightlog privacy scan -")
@click.argument("paths", nargs=-1, metavar="[PATHS…|SESSION|-]")
@json_option("Print each finding as a line of JSON.")
@click.option("--secrets", is_flag=True, help="Leave personal data out.")
@click.option("--sessions", is_flag=True, help="Every session of the archive, instead of PATHS.")
@ON
def scan(paths: tuple[str, ...], *, as_json: bool, secrets: bool, sessions: bool, on: str) -> int:
    """Report what is private in files or a session, values masked; exit 1 if there are secrets."""
    from flightlog.privacy.service import make_redactor

    runtime = open_runtime(on=on)
    if sessions:
        from flightlog.archive.bulk_export import SECRETS, BulkExportOptions, scan_archive
        from flightlog.cli.output import Progress

        listed = scan_archive(runtime, BulkExportOptions(SECRETS), Progress("scanning"))
    else:
        listed = _iter_findings(runtime, paths or (".",), make_redactor(runtime).known)
    worst = count = 0
    for fields in listed:
        if "error" in fields:
            click.echo(make_inert(f"{fields['session']}: {fields['error']}"), err=True)
            continue
        if secrets and fields["kind"] != "secret":
            continue
        worst, count = max(worst, int(fields["kind"] == "secret")), count + 1
        click.echo(json.dumps(fields) if as_json else _finding_line(fields))
    click.echo(f"{count} found", err=True)
    return worst


@privacy.command(epilog="Example: flightlog privacy redact --jsonl session.jsonl > shared.jsonl")
@click.argument("path", default=_STDIN)
@click.option("--jsonl", is_flag=True, help="Redact every string of each line of JSON; one line in, one line out.")
@click.option("--separate", is_flag=True, help="With --jsonl: each line is a document of its own.")
def redact(path: str, *, jsonl: bool, separate: bool) -> None:
    """Write PATH (or standard input) without what is private.

    A file is read twice: a value recognized anywhere in it is replaced at every other occurrence.
    A pipe is read once: a value counts from the line in which it is recognized, and the last
    10,000 values are remembered.
    """
    from flightlog.privacy import scanner
    from flightlog.privacy.json_redactor import JsonRedactor
    from flightlog.privacy.service import make_redactor

    if separate and not jsonl:
        raise Invalid("--separate needs --jsonl", hint="flightlog privacy redact --jsonl --separate session.jsonl")
    out, cleaner = sys.stdout.buffer, make_redactor(open_runtime())
    records = JsonRedactor(cleaner)
    with _open_input(path) as source:
        if source.seekable() and not separate:
            begin = source.tell()
            if jsonl:
                records.collect_values(line.rstrip(b"\r\n") for line in source)
            else:
                for _ in scanner.redact_stream(cleaner, source):
                    pass
            source.seek(begin)
        if not jsonl:
            out.writelines(scanner.redact_stream(cleaner, source))
            return
        ends: list[bytes] = []
        read = records.redact_separate_lines if separate else records.redact_lines
        for line in read(_iter_lines_without_ends(source, ends)):
            out.write(line + ends.pop(0))


@privacy.command(epilog="Example: flightlog privacy preview notes.md")
@click.argument("paths", nargs=-1, required=True)
@json_option("Print the redacted texts as JSON.")
def preview(paths: tuple[str, ...], *, as_json: bool) -> None:
    """Show what would become public of PATHS, as a diff against what is there."""
    from flightlog.privacy.service import make_redactor

    cleaner = make_redactor(open_runtime())
    for name, text in _iter_texts(paths):
        cleaner.known.forget_learned()
        clean = cleaner.redact_string(text)
        if as_json:
            click.echo(json.dumps({"path": name, "changed": clean != text, "text": clean}))
            continue
        old, new = (side.splitlines(keepends=True) for side in (text, clean))
        # What is taken out is masked here too: a preview may end up in a log.
        rows = difflib.unified_diff(old, new, f"private/{name}", f"public/{name}")
        for row in rows:
            shown = (
                row if row[:1] != "-" or row.startswith("---") else "-" + "·" * min(len(row.rstrip()) - 1, 20) + "\n"
            )
            click.echo(make_inert(shown), nl=not row.endswith("\n"))


@privacy.command(epilog="Example: flightlog privacy check")
@click.argument("repository", default=".", type=click.Path(path_type=Path))
@json_option("Print each verdict as a line of JSON.")
@click.option("--quiet", is_flag=True, help="Print only what must not be there.")
@click.option("--install", is_flag=True, help="Put the guard before commits and pushes; other hooks are kept.")
@click.option("--push", metavar="REMOTE", help="Check what a push sends; git's lines come on standard input.")
def check(repository: Path, *, as_json: bool, quiet: bool, install: bool, push: str | None) -> int:
    """Ask git what is tracked, staged or would be added, and name the rule for each file; exit 1 if one is wrong."""
    import msgspec

    from flightlog.privacy import git_guard
    from flightlog.privacy.service import guard_git

    git = guard_git(open_runtime(), repository)
    if install:
        for hook in git_guard.install_guard(git):
            click.echo(f"guard installed: {hook}", err=True)
    verdicts = git_guard.check_repository(git) if push is None else git_guard.check_push(git, push, sys.stdin)
    for verdict in verdicts:
        if quiet and verdict.fine:
            continue
        words = "ok" if verdict.fine else verdict.why
        plain = f"{verdict.state}\t{verdict.path}\t{verdict.tier or '-'}\t{verdict.rule}\t{words}"
        click.echo(msgspec.json.encode(verdict).decode() if as_json else make_inert(plain))
    return int(any(not verdict.fine for verdict in verdicts))


@privacy.command(epilog="Example: flightlog privacy rules --family clouds")
@click.option("--family", help="Only this family.")
@json_option("Print each rule as a line of JSON.")
def rules(family: str | None, *, as_json: bool) -> None:
    """List what is looked for: rule, provider, forms."""
    import msgspec

    from flightlog.privacy.detect.rules import load_rule_families

    known = load_rule_families()
    if family is not None and family not in known:
        raise NotFound(f"no such family of rules: {family}", hint=f"one of: {', '.join(known)}")
    for name, members in known.items():
        for rule in members if family in (None, name) else ():
            shown = ", ".join(rule.forms) or "any value drawn at random"
            near = f" near {', '.join(rule.near)}" if rule.near else ""
            click.echo(
                msgspec.json.encode(rule).decode() if as_json else f"{name}\t{rule.id}\t{rule.provider}\t{shown}{near}"
            )


@privacy.group(epilog="Example: flightlog privacy key export | ssh other flightlog privacy key import")
def key() -> None:
    """Move the key that makes tags to a second machine."""


@key.command("show", epilog="Example: flightlog privacy key show --json")
@json_option()
def show_key(*, as_json: bool) -> None:
    """Show which key is used, not the key."""
    from flightlog.privacy.redactor import key_fingerprint, load_key
    from flightlog.privacy.service import key_path

    runtime = open_runtime()
    name = key_fingerprint(load_key(key_path(runtime)))
    told = {"fingerprint": name, "path": str(key_path(runtime))}
    print_json(told) if as_json else click.echo(f"{name}\t{key_path(runtime)}")


@key.command("export", epilog="Example: flightlog privacy key export > key.txt")
@json_option("Print the key and its fingerprint as JSON.")
def export_key(*, as_json: bool) -> None:
    """Print the key, to be read by `privacy key import` elsewhere; keep it as you would a password."""
    from flightlog.privacy.redactor import encode_key, key_fingerprint, load_key
    from flightlog.privacy.service import key_path

    one = load_key(key_path(open_runtime()))
    told = {"fingerprint": key_fingerprint(one), "key": encode_key(one)}
    print_json(told) if as_json else click.echo(told["key"])


@key.command("import", epilog="Example: flightlog privacy key import < key.txt")
@click.option("--yes", is_flag=True, help="Replace another key that is here.")
@json_option("Print which key is used as JSON.")
def import_key(*, yes: bool, as_json: bool) -> None:
    """Read an exported key from standard input."""
    from flightlog.privacy.redactor import import_key, key_fingerprint
    from flightlog.privacy.service import key_path

    runtime = open_runtime()
    if sys.stdin.isatty():
        raise Invalid("nothing to read", hint="flightlog privacy key import < key.txt")
    name = key_fingerprint(import_key(key_path(runtime), sys.stdin.readline(), replace=yes))
    print_outcome({"fingerprint": name, "path": str(key_path(runtime))}, f"key {name} is in use", as_json=as_json)


def _finding_line(fields: dict[str, object]) -> str:
    place = f"{fields['path']}:{fields['line']}:{fields['offset']}"
    return make_inert(f"{place}\t{fields['kind']}\t{fields['rule']}\t{fields['confidence']}\t{fields['masked']}")


def _iter_texts(paths: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == _STDIN:
            yield _STDIN, sys.stdin.buffer.read().decode("utf-8", "replace")
            continue
        root = Path(path)
        if not root.exists():
            raise NotFound(
                f"no such file or directory: {path}", hint="name files, directories, or - for standard input"
            )
        for file in _iter_text_files(root):
            yield str(file), file.read_text("utf-8", "replace")


def _iter_findings(runtime: "Runtime", paths: tuple[str, ...], known: "KnownSecrets") -> Iterator[dict[str, object]]:
    from flightlog.archive.sharing import find_private_in_session
    from flightlog.privacy import scanner
    from flightlog.privacy.service import finding_fields

    for path in paths:
        if path == _STDIN:
            known.forget_learned()
            places = ((_STDIN, place) for place in scanner.find_in_stream(sys.stdin.buffer, known))
            yield from (finding_fields(*each) for each in scanner.learn_while_reading(places, known))
        elif Path(path).exists():
            for file in _iter_text_files(Path(path)):
                yield from (
                    finding_fields(*each) for each in scanner.read_twice(partial(_find_in_file, file, known), known)
                )
        else:
            try:
                found = find_private_in_session(runtime, path)
            except (NotFound, Invalid) as error:
                hint = "name files, directories, a session, or - for standard input"
                raise NotFound(f"no such file, directory or session: {path}", hint=hint) from error
            yield from found


def _find_in_file(file: Path, known: "KnownSecrets") -> "Iterator[tuple[str, LocatedFinding]]":
    from flightlog.privacy import scanner

    with file.open("rb") as source:
        look = scanner.find_in_lines if file.suffix == ".jsonl" else scanner.find_in_stream
        yield from ((str(file), place) for place in look(source, known))


def _iter_text_files(root: Path) -> Iterator[Path]:
    for file in [root] if root.is_file() else sorted(one for one in root.rglob("*") if one.is_file()):
        if ".git" not in file.parts:
            with file.open("rb") as source:
                if b"\0" not in source.read(8000):
                    yield file


def _open_input(path: str) -> BinaryIO:
    if path == _STDIN:
        return sys.stdin.buffer
    if not Path(path).is_file():
        raise NotFound(f"no such file: {path}", hint="name a file, or - for standard input")
    return Path(path).open("rb")


def _iter_lines_without_ends(source: BinaryIO, ends: list[bytes]) -> Iterator[bytes]:
    """Yield lines without their ends, keeping the ends aside: the last line may have none."""
    for line in source:
        body = line.rstrip(b"\r\n")
        ends.append(line[len(body) :])
        yield body
