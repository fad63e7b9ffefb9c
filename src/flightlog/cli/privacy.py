"""`flightlog privacy`: find, redact, preview and guard private data.

No command prints a detected value; values are always masked.
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
from flightlog.cli.output import Progress, json_option, print_json, print_outcome
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.text import make_inert, pluralize

if TYPE_CHECKING:
    from flightlog.model.runtime import Runtime
    from flightlog.privacy.detect.known_values import KnownSecrets
    from flightlog.privacy.scanner import LocatedFinding


_STDIN = "-"


@click.group(epilog="Example: flightlog privacy scan .")
def privacy() -> None:
    """Find, redact and guard private data."""


@privacy.command(epilog="Example: git log -p | flightlog privacy scan -")
@click.argument("paths", nargs=-1, metavar="[PATHS…|SESSION|-]")
@json_option("Print each finding as a line of JSON.")
@click.option("--secrets", is_flag=True, help="Report secrets only, not personal data.")
@click.option(
    "--sessions", is_flag=True, help="Scan all sessions of the archive, instead of PATHS."
)
@ON
def scan(paths: tuple[str, ...], *, as_json: bool, secrets: bool, sessions: bool, on: str) -> int:
    """Find private data in files or sessions. Values are masked. Exit 1 if there are secrets."""
    from flightlog.privacy.service import make_redactor

    runtime = open_runtime(on=on)
    if sessions:
        from flightlog.archive.bulk_export import SECRETS, BulkExportOptions, scan_archive

        findings = scan_archive(runtime, BulkExportOptions(SECRETS), Progress("scanning"))
    else:
        findings = _iter_findings(runtime, paths or (".",), make_redactor(runtime).known)
    exit_code = count = 0
    for fields in findings:
        if "error" in fields:
            click.echo(make_inert(f"{fields['session']}: {fields['error']}"), err=True)
            continue
        if secrets and fields["kind"] != "secret":
            continue
        exit_code, count = max(exit_code, int(fields["kind"] == "secret")), count + 1
        click.echo(json.dumps(fields) if as_json else _finding_line(fields))
    click.echo(pluralize(count, "finding"), err=True)
    return exit_code


@privacy.command(epilog="Example: flightlog privacy redact --jsonl session.jsonl > shared.jsonl")
@click.argument("path", default=_STDIN)
@click.option("--jsonl", is_flag=True, help="Redact every string of each line of JSON.")
@click.option(
    "--separate", is_flag=True, help="With --jsonl: treat each line as a separate document."
)
def redact(path: str, *, jsonl: bool, separate: bool) -> None:
    """Print PATH or stdin without private data.

    A file is read twice, so a value detected anywhere in it is removed everywhere. A pipe is read
    once: a value is removed from the line where it is first detected, and the last 10,000 values
    are remembered.
    """
    from flightlog.privacy import scanner
    from flightlog.privacy.json_redactor import JsonRedactor
    from flightlog.privacy.service import make_redactor

    if separate and not jsonl:
        hint = "flightlog privacy redact --jsonl --separate session.jsonl"
        raise Invalid("--separate needs --jsonl", hint=hint)
    out, redactor = sys.stdout.buffer, make_redactor(open_runtime())
    records = JsonRedactor(redactor)
    with _open_input(path) as source:
        if source.seekable() and not separate:
            start = source.tell()
            if jsonl:
                records.collect_values(line.rstrip(b"\r\n") for line in source)
            else:
                for _ in scanner.redact_stream(redactor, source):
                    pass
            source.seek(start)
        if not jsonl:
            out.writelines(scanner.redact_stream(redactor, source))
            return
        ends: list[bytes] = []
        read = records.redact_separate_lines if separate else records.redact_lines
        for line in read(_iter_lines_without_ends(source, ends)):
            out.write(line + ends.pop(0))


@privacy.command(epilog="Example: flightlog privacy preview notes.md")
@click.argument("paths", nargs=-1, required=True)
@json_option("Print the redacted texts as JSON.")
def preview(paths: tuple[str, ...], *, as_json: bool) -> None:
    """Show a redaction of PATHS as a diff."""
    from flightlog.privacy.service import make_redactor

    redactor = make_redactor(open_runtime())
    for name, text in _iter_texts(paths):
        redactor.known.forget_learned()
        clean = redactor.redact_string(text)
        if as_json:
            click.echo(json.dumps({"path": name, "is_changed": clean != text, "text": clean}))
            continue
        old, new = (side.splitlines(keepends=True) for side in (text, clean))
        # Removed lines are masked too: a preview may end up in a log.
        for line in difflib.unified_diff(old, new, f"private/{name}", f"public/{name}"):
            is_removed = line[:1] == "-" and not line.startswith("---")
            shown = f"-{'·' * min(len(line.rstrip()) - 1, 20)}\n" if is_removed else line
            click.echo(make_inert(shown), nl=not line.endswith("\n"))


@privacy.command(epilog="Example: flightlog privacy check")
@click.argument("repository", default=".", type=click.Path(path_type=Path))
@json_option("Print each verdict as a line of JSON.")
@click.option("--quiet", is_flag=True, help="Print only violations.")
@click.option(
    "--install", is_flag=True, help="Install the guard on commits and pushes; keeps other hooks."
)
@click.option(
    "--push", metavar="REMOTE", help="Check a push; reads git's pre-push lines from stdin."
)
def check(repository: Path, *, as_json: bool, quiet: bool, install: bool, push: str | None) -> int:
    """Check tracked and staged files.

    Names the rule for each file that is tracked, staged or would be added. Exit 1 on a violation.
    """
    import msgspec

    from flightlog.privacy import git_guard
    from flightlog.privacy.service import guard_git

    git = guard_git(open_runtime(), repository)
    if install:
        for hook in git_guard.install_guard(git):
            click.echo(f"guard installed: {hook}", err=True)
    verdicts = (
        git_guard.check_repository(git)
        if push is None
        else git_guard.check_push(git, push, sys.stdin)
    )
    for verdict in verdicts:
        if quiet and verdict.is_allowed:
            continue
        words = "ok" if verdict.is_allowed else verdict.reason
        plain = f"{verdict.state}\t{verdict.path}\t{verdict.tier or '-'}\t{verdict.rule}\t{words}"
        click.echo(msgspec.json.encode(verdict).decode() if as_json else make_inert(plain))
    return int(any(not verdict.is_allowed for verdict in verdicts))


@privacy.command(epilog="Example: flightlog privacy rules --family clouds")
@click.option("--family", help="Only rules of this family.")
@json_option("Print each rule as a line of JSON.")
def rules(family: str | None, *, as_json: bool) -> None:
    """List the detection rules."""
    import msgspec

    from flightlog.privacy.detect.rules import load_rule_families

    families = load_rule_families()
    if family is not None and family not in families:
        raise NotFound(f"no such rule family: {family}", hint=f"one of: {', '.join(families)}")
    for name, members in families.items():
        for rule in members if family in (None, name) else ():
            forms = ", ".join(rule.forms) or "any random value"
            context = f" near {', '.join(rule.near)}" if rule.near else ""
            click.echo(
                msgspec.json.encode(rule).decode()
                if as_json
                else f"{name}\t{rule.id}\t{rule.provider}\t{forms}{context}"
            )


@privacy.group(
    epilog="Example: flightlog privacy key export | ssh other flightlog privacy key import"
)
def key() -> None:
    """Move the redaction key to another machine."""


@key.command("show", epilog="Example: flightlog privacy key show --json")
@json_option()
def show_key(*, as_json: bool) -> None:
    """Show the fingerprint of the key."""
    from flightlog.privacy.redactor import key_fingerprint, load_key
    from flightlog.privacy.service import key_path

    runtime = open_runtime()
    fingerprint = key_fingerprint(load_key(key_path(runtime)))
    fields = {"fingerprint": fingerprint, "path": str(key_path(runtime))}
    print_json(fields) if as_json else click.echo(f"{fingerprint}\t{key_path(runtime)}")


@key.command("export", epilog="Example: flightlog privacy key export > key.txt")
@json_option("Print the key and its fingerprint as JSON.")
def export_key(*, as_json: bool) -> None:
    """Print the key for `privacy key import`. Protect it like a password."""
    from flightlog.privacy.redactor import encode_key, key_fingerprint, load_key
    from flightlog.privacy.service import key_path

    secret = load_key(key_path(open_runtime()))
    fields = {"fingerprint": key_fingerprint(secret), "key": encode_key(secret)}
    print_json(fields) if as_json else click.echo(fields["key"])


@key.command("import", epilog="Example: flightlog privacy key import < key.txt")
@click.option("--yes", is_flag=True, help="Replace the existing key.")
@json_option("Print the key's fingerprint as JSON.")
def import_key(*, yes: bool, as_json: bool) -> None:
    """Read an exported key from stdin."""
    from flightlog.privacy.redactor import import_key, key_fingerprint
    from flightlog.privacy.service import key_path

    runtime = open_runtime()
    if sys.stdin.isatty():
        raise Invalid("no key on stdin", hint="flightlog privacy key import < key.txt")
    fingerprint = key_fingerprint(import_key(key_path(runtime), sys.stdin.readline(), replace=yes))
    outcome = {"fingerprint": fingerprint, "path": str(key_path(runtime))}
    print_outcome(outcome, f"key {fingerprint} is in use", as_json=as_json)


def _finding_line(fields: dict[str, object]) -> str:
    location = f"{fields['path']}:{fields['line']}:{fields['start']}"
    text = f"{location}\t{fields['kind']}\t{fields['rule']}\t{fields['confidence']}\t{fields['masked_value']}"
    return make_inert(text)


def _iter_texts(paths: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == _STDIN:
            yield _STDIN, sys.stdin.buffer.read().decode("utf-8", "replace")
            continue
        root = Path(path)
        if not root.exists():
            hint = "name files, directories, or - for standard input"
            raise NotFound(f"no such file or directory: {path}", hint=hint)
        for file in _iter_text_files(root):
            yield str(file), file.read_text("utf-8", "replace")


def _iter_findings(
    runtime: "Runtime", paths: tuple[str, ...], known: "KnownSecrets"
) -> Iterator[dict[str, object]]:
    from flightlog.archive.sharing import find_private_in_session
    from flightlog.privacy import scanner
    from flightlog.privacy.service import finding_fields

    for path in paths:
        if path == _STDIN:
            known.forget_learned()
            findings = (
                (_STDIN, finding) for finding in scanner.find_in_stream(sys.stdin.buffer, known)
            )
            yield from (
                finding_fields(*located) for located in scanner.learn_while_reading(findings, known)
            )
        elif Path(path).exists():
            for file in _iter_text_files(Path(path)):
                yield from (
                    finding_fields(*located)
                    for located in scanner.read_twice(partial(_find_in_file, file, known), known)
                )
        else:
            try:
                session_findings = find_private_in_session(runtime, path)
            except (NotFound, Invalid) as error:
                hint = "name files, directories, a session, or - for standard input"
                raise NotFound(f"no such file, directory or session: {path}", hint=hint) from error
            yield from session_findings


def _find_in_file(file: Path, known: "KnownSecrets") -> "Iterator[tuple[str, LocatedFinding]]":
    from flightlog.privacy import scanner

    with file.open("rb") as source:
        find = scanner.find_in_lines if file.suffix == ".jsonl" else scanner.find_in_stream
        yield from ((str(file), finding) for finding in find(source, known))


def _iter_text_files(root: Path) -> Iterator[Path]:
    for file in [root] if root.is_file() else sorted(filter(Path.is_file, root.rglob("*"))):
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
    """Yield lines without line ends; append the ends to `ends`, as the last line may have none."""
    for line in source:
        body = line.rstrip(b"\r\n")
        ends.append(line[len(body) :])
        yield body
