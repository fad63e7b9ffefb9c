"""Session list, show, follow, search, export."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import ON
from flightlog.cli.output import Progress, format_examples, json_option, print_json, print_outcome, read_only
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.text import describe_redaction, make_inert, one_line, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flightlog.archive.archive import Archive
    from flightlog.archive.search import SearchResult
    from flightlog.model.output_files import Redacted
    from flightlog.model.runtime import Runtime
    from flightlog.model.session import Session
    from flightlog.views.session.outline import SessionSummary
    from flightlog.views.transcript import RenderOptions

EMPTY = 'nothing found; try fewer words, or the beginning of one: "migrat*"'


def print_hits(found: "Sequence[tuple[SearchResult, str]]", zone: tzinfo, *, as_json: bool) -> None:
    """Print the address of each hit and the passage that matched."""
    from flightlog.views.transcript import format_timestamp
    from flightlog.views.transcript_formats import short_address

    if as_json:
        print_json({"hits": [_hit_fields(each, address) for each, address in found]})
        return
    if not found:
        click.echo(EMPTY, err=True)
    for each, address in found:
        when = format_timestamp(each.hit.at_ms or None, zone, "%Y-%m-%d %H:%M")
        place = one_line(each.hit.project, 60)
        at = short_address(address) if address != each.hit.session else ""
        click.echo(f"{each.hit.session[:8]}{at}  {when}  {place}\n    {one_line(each.snippet, 170)}")


def _hit_fields(found: "SearchResult", address: str) -> dict[str, object]:
    hit = found.hit
    return {
        "address": address,
        "session": hit.session,
        "lane": hit.lane,
        "uuid": hit.uuid,
        "at_ms": hit.at_ms,
        "project": hit.project,
        "path": hit.path,
        "offset": hit.offset,
        "length": hit.length,
        "snippet": found.snippet,
    }


@click.group(epilog="Example: flightlog session list")
def session() -> None:
    """List, show, search, count and export sessions."""


@session.command("list", epilog="Example: flightlog session list --since 7d --project shop")
@click.option("--project", default="", help="Only sessions whose directory contains this.")
@click.option("--since", default="", help="Only sessions active since then: 2026-11-01, 7d, 12h.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="How many to show; 0 means all."
)
@json_option("Print every field as JSON.")
def list_(*, project: str, since: str, limit: int, as_json: bool) -> None:
    """List sessions, newest first."""
    from flightlog.archive.archive import open_archive
    from flightlog.cli.output import Progress, print_json

    runtime = open_runtime()
    progress = Progress("reading sessions")
    start = since_ms(since, runtime.clock.now_ms(), runtime.zone) if since else 0
    told = [
        each
        for each in open_archive(runtime).iter_summaries(progress)
        if project in each.project and max(each.ended_ms or 0, each.changed_ms if not each.ended_ms else 0) >= start
    ]
    progress.close()
    shown = told[:limit] if limit else told
    if as_json:
        print_json(shown)
        return
    _print_list(shown, runtime.zone)
    if len(shown) < len(told):
        click.echo(f"{len(told) - len(shown)} more: flightlog session list --limit 0", err=True)
    if not told:
        click.echo("no sessions found; make one: flightlog demo; see where it looked: flightlog doctor", err=True)


@session.command(
    epilog=format_examples("flightlog session show 2123f2df", "flightlog session show '2123f2df#1.2' --full")
)
@click.argument("address")
@click.option("--full", is_flag=True, help="Leave nothing out.")
@json_option("Print the session, turn or step as JSON.")
def show(address: str, *, full: bool, as_json: bool) -> None:
    """Tell the story of a session, a turn or a step (SESSION, SESSION#turn, SESSION#turn.step)."""
    from msgspec.structs import replace

    from flightlog.archive.archive import open_archive
    from flightlog.cli.output import print_json, print_story
    from flightlog.model.addresses import parse_address
    from flightlog.views.session.timeline import find_part
    from flightlog.views.transcript import RenderOptions, render_passage, render_session

    runtime = open_runtime()
    at = parse_address(address)
    archive = open_archive(runtime)
    told = archive.read_session(at.session)
    if as_json:
        print_json(find_part(replace(told, title=told.heading), at))
        return
    telling = RenderOptions(runtime.zone, full, lambda said: archive.read_spilled_output(told.id, said))
    print_story(render_passage(told, at, telling) if at.turn or at.lane else render_session(told, telling))


@session.command(epilog="Example: flightlog session follow 2123f2df")
@click.argument("session_id", required=False)
@click.option("--idle", default=0.0, help="End after so many seconds without news; 0 means never.")
@json_option("Print one JSON object per record.")
def follow(session_id: str | None, *, idle: float, as_json: bool) -> None:
    """Tell a session as it happens; without an id, the one that changed last."""
    from flightlog.app.runtime import IdleTimer
    from flightlog.archive.archive import open_archive
    from flightlog.cli.output import print_story
    from flightlog.model.addresses import parse_address
    from flightlog.model.errors import Damage
    from flightlog.views.json_output import as_json_line
    from flightlog.views.transcript_formats import FollowFormatter

    archive = open_archive(open_runtime())
    feed, watch = FollowFormatter(), IdleTimer(idle)
    for item in archive.follow_session(
        parse_address(session_id).session if session_id else archive.latest_session(), watch.pause
    ):
        watch.reset_idle()
        if as_json:
            click.echo(as_json_line(item))
        elif isinstance(item, Damage):
            click.echo(f"damaged: {item.length:,} bytes at {item.offset:,}: {item.why}", err=True)
        else:
            print_story(feed.render_lines(item))


@session.command(epilog="Example: flightlog session usage --by day --since 30d")
@click.option(
    "--by",
    type=click.Choice(["session", "day", "month", "model", "project", "block"]),
    default="day",
    show_default=True,
    help="What a row is; a block is a 5-hour window.",
)
@click.option("--since", default="", help="Only from then on: 2026-11-01, 7d, 12h.")
@click.option("--project", default="", help="Only sessions whose directory contains this.")
@click.option("--timezone", default="", help="Days of this time zone, e.g. UTC or Europe/Berlin.")
@json_option()
@read_only
def usage(*, by: str, since: str, project: str, timezone: str, as_json: bool) -> None:
    """Count tokens and cost, each response once, and say what the client counted besides."""
    from flightlog.cli.usage import print_usage_report
    from flightlog.model.usage import Breakdown
    from flightlog.usage.report import UsageFilter

    runtime = open_runtime()
    zone = _parse_zone(timezone) if timezone else runtime.zone
    start = since_ms(since, runtime.clock.now_ms(), zone) if since else 0
    only = UsageFilter(start, project) if since or project else None
    print_usage_report(Breakdown(by), zone, only, as_json=as_json)


@session.command(epilog='Example: flightlog session search "retry loop" tool:Bash since:7d cost:">1"')
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", default=20, show_default=True, help="How many hits to show.")
@json_option()
def search(words: tuple[str, ...], *, limit: int, as_json: bool) -> None:
    """Find records by WORDS, "phrases", and tool: model: file: project: since: cost:."""
    from flightlog.archive.archive import open_archive
    from flightlog.archive.search import parse_query

    runtime = open_runtime()
    zone = runtime.zone
    query = parse_query(
        " ".join(_restore_quotes(word) for word in words), lambda said: since_ms(said, runtime.clock.now_ms(), zone)
    )
    print_hits(open_archive(runtime).search_records(query, limit), zone, as_json=as_json)


def _restore_quotes(word: str) -> str:
    """The shell took the quotes away: a word with a space in it was a phrase."""
    if " " not in word or '"' in word:
        return word
    key, colon, rest = word.partition(":")
    return f'{key}:"{rest}"' if colon and key.isalpha() else f'"{word}"'


@session.command(
    epilog=format_examples(
        "flightlog session export 2123f2df --format html --output session.html",
        "flightlog session export 2123f2df --atif --output trajectory/",
        "flightlog session export --all --format parquet --output rows/",
    )
)
@click.argument("session_id", required=False)
@click.option("--all", "every", is_flag=True, help="Every session, as ATIF or Parquet, below --output.")
@click.option("--format", "form", type=click.Choice(["md", "html", "json", "parquet"]), default="md", show_default=True,
              help="What to write.")  # fmt: skip
@click.option("--atif", "atif", flag_value="1.6", help="Write an ATIF 1.6 trajectory; --output is then a directory.")
@click.option("--atif-1.7", "atif", flag_value="1.7", help="The same, in version 1.7.")
@click.option("--output", type=click.Path(), help="Write here instead of standard output.")
@click.option("--redact", is_flag=True, help="Take out secrets and personal data, to share it.")
@ON
@json_option("With --output: print what was written as JSON.")
def export(session_id: str | None, *, form: str, atif: str | None, output: str | None, **given: Any) -> int:
    """Write a session as Markdown, one HTML page, JSON, or an ATIF trajectory; or all of them (--all).

    Nothing is left out, nor taken out but with --redact. A trajectory's subagents and pictures
    are files beside it.
    """
    from pathlib import Path

    from flightlog.app.runtime import write_export
    from flightlog.archive.archive import open_archive
    from flightlog.model.addresses import parse_address
    from flightlog.views.transcript import RenderOptions
    from flightlog.views.transcript_formats import export_session

    runtime = open_runtime(on=given["on"])
    target = Path(output) if output is not None else None
    redact = given["redact"]
    if given["every"]:
        return write_all(runtime, atif, form, target, given)
    if session_id is None or form == "parquet":
        raise click.UsageError("name a SESSION_ID, or use --all; Parquet is for all of them")
    if given["as_json"] and target is None:
        raise click.UsageError("--json says what was written: give --output, or --format json for the session as JSON")
    archive = open_archive(runtime)
    told = archive.read_session(parse_address(session_id).session)
    if atif:
        write_trajectory(runtime, archive, told, atif, output=target, given=given)
        return 0
    telling = RenderOptions(runtime.zone, full=True, spilled=lambda said: archive.read_spilled_output(told.id, said))
    redacted = _export_redacted(runtime, archive, told, form, telling) if redact else None
    removed = redaction_fields(redacted)
    body = redacted.value if redacted else export_session(told, form, telling)
    if target is None:
        click.echo(body, nl=False)
    else:
        write_export(target, body)
        done = {"session": told.id, "format": form, "output": str(target), "files": 1}
        print_outcome(done | removed, f"written: {target}", as_json=given["as_json"])
    print_redaction(removed, told.id)
    return 0


def _export_redacted(
    runtime: "Runtime", archive: "Archive", session: "Session", form: str, telling: "RenderOptions"
) -> "Redacted[str]":
    from msgspec.structs import replace

    from flightlog.archive.sharing import redact_session, rescan_page
    from flightlog.views.transcript_formats import export_session

    document, cleaner = redact_session(runtime, archive, session)
    telling = replace(telling, spilled=document.value.outputs.get)
    page = document.map(lambda redacted: export_session(redacted.session, form, telling))
    return page if form == "json" else rescan_page(page, cleaner, html=form == "html")


def since_ms(said: str, now_ms: int, zone: tzinfo) -> int:
    """Read a point in time: a date, a date and time, or how long ago."""
    ago = re.fullmatch(r"(\d{1,6})([mhdw])", said.strip())
    if ago:
        units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
        passed = timedelta(**{units[ago[2]]: int(ago[1])})
        return now_ms - int(passed.total_seconds() * 1000)
    try:
        moment = datetime.fromisoformat(said.strip())
        return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(f"not a time: {said[:40]!r}", hint="write 2026-11-01, 2026-11-01T13:00, 7d or 12h") from None


def _parse_zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid(f"no such time zone: {name[:40]!r}", hint="write UTC or a name like Europe/Berlin") from None


def _summary_title(summary: "SessionSummary") -> str:
    return summary.title or ("(warm-up only)" if summary.steps else "(no prompt)")


def _print_list(shown: "Sequence[SessionSummary]", zone: tzinfo) -> None:
    from pathlib import Path

    from flightlog.cli.output import print_table
    from flightlog.model.usage import format_cost
    from flightlog.views.transcript import format_timestamp

    print_table(
        ["session", "last active", "turns", "steps", "tokens", "cost", "project", "title"],
        [
            [
                each.session[:8],
                format_timestamp(each.ended_ms or each.changed_ms, zone, "%Y-%m-%d %H:%M"),
                str(each.turns),
                str(each.steps),
                f"{each.usage.total:,}",
                format_cost(each.cost),
                Path(each.project).name,
                ("(damaged) " if each.damaged else "") + _summary_title(each),
            ]
            for each in shown
        ],
        right=(2, 3, 4, 5),
    )


def write_trajectory(  # noqa: PLR0913 - what to write, and how
    runtime: "Runtime", archive: "Archive", told: "Session", version: str, *, output: Path | None, given: dict[str, Any]
) -> None:
    """Print the trajectory, or write it with its subagents and pictures below `output`."""
    from flightlog.archive.trajectories import build_session_bundle, write_bundle

    bundle, redacted = build_session_bundle(runtime, archive, told, version, redact=given["redact"])
    removed = redaction_fields(redacted)
    files = len(bundle.documents) + len(bundle.pictures)
    if output is not None:
        if output.exists() and not output.is_dir():
            raise Conflict(f"not a directory: {output}", hint="name a new directory: a trajectory is several files")
        write_bundle(output, bundle)
        done = {"session": told.id, "format": f"atif-{version}", "output": str(output), "files": files}
        talk = f"written: {pluralize(files, 'file')} below {output}; look at it: flightlog lab lint {output}"
        print_outcome(done | removed, talk, as_json=given["as_json"])
        print_redaction(removed, told.id)
        return
    if files > 1:
        raise Invalid(
            f"the trajectory is {files} files: subagents and pictures stand beside it",
            hint=f"flightlog session export {told.id} --atif --output DIR",
        )
    click.echo(next(bundle.iter_files())[1], nl=False)
    print_redaction(removed, told.id)


def redaction_fields(redacted: "Redacted[Any] | None") -> dict[str, Any]:
    """Return what `--json` says of a redaction; `None` means that there was none."""
    if redacted is None:
        return {"redacted": False}
    return {"redacted": True, "secrets": redacted.secrets, "personal": redacted.personal}


def print_redaction(fields: Mapping[str, Any], session: str = "--all") -> None:
    """Say on stderr how much was removed, or that the output is not redacted."""
    if fields["redacted"]:
        said = describe_redaction(fields["secrets"], fields["personal"])
        click.echo(f"{said}; read it through before you pass it on", err=True)
    else:
        again = f"flightlog session export {session} --redact"
        click.echo(f"not redacted: it may hold secrets and personal details; to share it: {again}", err=True)


def write_all(runtime: "Runtime", atif: str | None, form: str, output: Path | None, given: dict[str, Any]) -> int:
    """Write every session below `output`; exit 1 when one could not be told."""
    from flightlog.archive.bulk_export import ATIF, PARQUET, BulkExportOptions, export_archive

    if output is None or not (atif or form == "parquet"):
        raise click.UsageError("with --all give --output DIR, and --atif or --format parquet")
    how = BulkExportOptions(ATIF if atif else PARQUET, atif or "1.6", given["redact"])
    told = export_archive(runtime, how, output, Progress("writing"))
    if given["as_json"]:
        print_json(told)
    else:
        click.echo(
            f"written: {pluralize(told['sessions'], 'session')}, {pluralize(told['files'], 'file')} below {output}",
            err=True,
        )
        print_redaction(told)
        for session, why in told["failed"].items():
            click.echo(make_inert(f"not written: {session}: {one_line(why, 200)}"), err=True)
    return int(bool(told["failed"]))
