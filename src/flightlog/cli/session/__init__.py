"""`flightlog session`: list, show, findings, follow, usage, search and export."""

import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from flightlog.app.runtime import open_runtime, write_export
from flightlog.cli.options import AGENT, ON, parse_zone, range_options, read_range
from flightlog.cli.output import (
    Progress,
    format_examples,
    json_option,
    name_program,
    print_hits,
    print_json,
    print_more,
    print_outcome,
    print_redaction,
    print_sessions,
    read_only,
    redaction_fields,
)
from flightlog.cli.session.show import follow, show
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.text import make_inert, one_line, parse_since, pluralize

if TYPE_CHECKING:
    from flightlog.archive.archive import Archive
    from flightlog.model.output_files import Redacted
    from flightlog.model.runtime import Runtime
    from flightlog.model.session import Session

_EXCLUDED = re.compile(r'-(?:[^\W\d]|")[^ ]')  # of a search; `-h` and `--limit -5` are not
_NO_SESSIONS = (
    "no sessions found; to record one: flightlog demo; to see the paths: flightlog doctor"
)


@click.group(epilog="Example: flightlog session list")
def session() -> None:
    """List, show, search, count, export sessions."""


@session.command("list", epilog="Example: flightlog session list --since 7d --project shop")
@click.option("--project", default="", help="Only sessions whose directory contains this.")
@range_options
@AGENT
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True,
    help="Sessions to show; 0 shows all.",
)  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show sessions without prompt and response too.")
@json_option("Print every field as JSON.")
def list_(*, project: str, limit: int, every: bool, **flags: Any) -> None:
    """List sessions, newest first. Those without prompt and response are counted, not shown."""
    from flightlog.archive.archive import open_archive
    from flightlog.model.addresses import unique_prefixes
    from flightlog.views.session.outline import sort_newest_first

    runtime = open_runtime()
    progress = Progress("reading sessions")
    start, end = read_range(flags["since"], flags["until"])
    recorded = list(open_archive(runtime).iter_summaries(progress))
    own = [one for one in sort_newest_first(recorded) if flags["agent"] in {"", one.agent}]
    timely = [one for one in own if start <= (one.ended_ms or 0) < end]
    found = [summary for summary in timely if project in summary.project]
    progress.close()
    summaries = [summary for summary in found if every or not summary.is_empty]
    shown = summaries[:limit] if limit else summaries
    if flags["as_json"]:
        print_json(shown)
        return
    names = unique_prefixes(summary.session for summary in recorded)
    has_several = len({item.agent for item in recorded}) > 1
    print_sessions(shown, runtime.zone, names, with_agent=has_several)
    if len(shown) < len(summaries):
        print_more(len(summaries) - len(shown))
    if hidden := len(found) - len(summaries):
        click.echo(f"{pluralize(hidden, 'empty session')} hidden: --all", err=True)
    if not found:
        count = pluralize(len(recorded), "session")
        all_sessions = f"none of {count} matches: {name_program()} session list"
        click.echo(all_sessions if recorded else _NO_SESSIONS, err=True)


@session.command(epilog="Example: flightlog session findings --since 7d")
@click.argument("session_id", required=False, default="")
@range_options
@click.option("--project", default="", help="Only sessions whose directory contains this.")
@AGENT
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True,
              help="Rows of the table; 0 shows all.")  # fmt: skip
@json_option()
@read_only
def findings(session_id: str, **options: Any) -> None:
    """Show what went wrong, where and at what cost. Without SESSION_ID: in all sessions."""
    from flightlog.cli.session.analysis import print_findings

    print_findings(session_id, options)


@session.command(epilog="Example: flightlog session usage --by day --since 30d")
@click.option("--by", type=click.Choice(["session", "day", "month", "model", "project", "agent", "block"]),
              default="day", show_default=True, help="Grouping of the rows; a block is a 5-hour window.")  # fmt: skip
@range_options
@click.option("--project", default="", help="Only sessions whose directory contains this.")
@AGENT
@click.option("--timezone", default="", help="Time zone of the days, e.g. UTC or Europe/Berlin.")
@click.option("--estimate", is_flag=True, help="Add an estimate of unrecorded output.")
@json_option()
@read_only
def usage(*, by: str, project: str, timezone: str, **flags: Any) -> None:
    """Report tokens and cost. Differences from the client's totals are listed below the table."""
    from flightlog.cli.session.usage import print_usage_report
    from flightlog.model.usage import Breakdown
    from flightlog.usage.report import UsageFilter

    runtime = open_runtime()
    zone = parse_zone(timezone) if timezone else runtime.zone
    start, end = read_range(flags["since"], flags["until"], zone)
    is_part = flags["since"] or flags["until"] or project
    only = UsageFilter(start, project, end) if is_part else None
    options = {name: flags[name] for name in ("agent", "estimate")}
    ask = lambda usage: usage.report(Breakdown(by), zone, only, **options)  # noqa: E731
    print_usage_report(ask, zone, as_json=flags["as_json"])


class _SearchCommand(click.Command):
    """A command that takes `-word` as an argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options first, then all excluded words; the order of words means nothing."""
        excluded = [word for word in args if _EXCLUDED.match(word)] if "--" not in args else []
        given = [word for word in args if word not in excluded]
        return super().parse_args(ctx, [*given, "--", *excluded] if excluded else args)


@session.command(
    cls=_SearchCommand,
    epilog=format_examples(
        "flightlog search greeting",
        """flightlog session search '"python3 greet.py" tool:bash since:2026-11-01'""",
    ),
)
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True,
    help="Hits to show; 0 shows all.",
)  # fmt: skip
@json_option()
def search(words: tuple[str, ...], *, limit: int, as_json: bool) -> None:
    """Search all sessions.

    WORDS match at their beginning, words of one or two letters and "quoted phrases" as a whole;
    -WORD excludes. Filters: tool: model: file: project: agent: since: cost: (session, in USD).
    """
    from flightlog.archive.archive import open_archive
    from flightlog.archive.search import locate_results, parse_query

    runtime = open_runtime()
    now_ms = runtime.clock.now_ms()
    query = parse_query(" ".join(words), lambda time: parse_since(time, now_ms, runtime.zone))
    archive = open_archive(runtime)
    found = archive.search_index.search_records(query, limit)
    rows = archive.usage_pipeline.session_rows({result.hit.session for result in found.results})
    costs = {session: row.cost for session, row in rows.items()}
    hits = locate_results(archive, found.results, costs)
    archive.usage_pipeline.save()
    if as_json:
        print_json({"hits": hits, "total": found.total})
        return
    print_hits(hits, runtime.zone, archive.recordings)
    if not hits:
        click.echo("nothing found; try fewer words, or only their beginnings", err=True)
    elif len(hits) < found.total:
        print_more(found.total - len(hits))


@session.command(
    epilog=format_examples(
        "flightlog session export 2123f2df --format html --output session.html",
        "flightlog session export 2123f2df --atif --output trajectory/",
        "flightlog session export --all --format parquet --output rows/",
    )
)
@click.argument("session_id", required=False)
@click.option("--all", "every", is_flag=True, help="Export every session, as ATIF or Parquet.")
@click.option("--format", "form", type=click.Choice(["md", "html", "json", "parquet"]), default="md", show_default=True,
              help="Output format.")  # fmt: skip
@click.option("--atif", "atif", flag_value="1.6",
              help="Write an ATIF 1.6 trajectory; --output is then a directory.")  # fmt: skip
@click.option("--atif-1.7", "atif", flag_value="1.7", help="Like --atif, in version 1.7.")
@click.option("--output", type=click.Path(), help="File or directory, instead of stdout.")
@click.option("--redact", is_flag=True, help="Remove secrets and personal data.")
@AGENT
@ON
@json_option("With --output: print what was written as JSON.")
def export(
    session_id: str | None, *, form: str, atif: str | None, output: str | None, **arguments: Any
) -> int:
    """Export a session, or all of them.

    The export is complete. Only --redact removes anything. Subagents and pictures of a trajectory
    become separate files.
    """
    from flightlog.archive.archive import open_archive
    from flightlog.model.addresses import parse_address

    runtime = open_runtime(on=arguments["on"])
    target = Path(output) if output is not None else None
    if arguments["every"]:
        return write_all(runtime, atif, form, target, arguments)
    if session_id is None or form == "parquet" or arguments["agent"]:
        raise click.UsageError("name a SESSION_ID, or use --all; Parquet and --agent need --all")
    if arguments["as_json"] and target is None:
        raise click.UsageError("--json needs --output; to print the session use --format json")
    archive = open_archive(runtime)
    recorded = archive.read_session(parse_address(session_id).session)
    if atif:
        write_trajectory(runtime, archive, recorded, atif, output=target, options=arguments)
        return 0
    redacted = _export_redacted(runtime, archive, recorded, form) if arguments["redact"] else None
    removed = redaction_fields(redacted)
    body = redacted.value if redacted else _export_complete(runtime, archive, recorded, form)
    if target is None:
        click.echo(body, nl=False)
    else:
        write_export(target, body)
        outcome = {"session": recorded.id, "format": form, "output": str(target), "files": 1}
        print_outcome(outcome | removed, f"written: {target}", as_json=arguments["as_json"])
    print_redaction(removed, recorded.id)
    return 0


def _export_complete(runtime: "Runtime", archive: "Archive", session: "Session", form: str) -> str:
    from flightlog.archive.session_reader import read_own_usage
    from flightlog.views.transcript import RenderOptions
    from flightlog.views.transcript_formats import export_session

    if form == "html":  # packages of one layer do not import each other, so it is found by name
        return str(import_module("flightlog.web.commands").export_html(runtime, archive, session))
    read_output = partial(archive.read_spilled_output, session.id)
    usage = read_own_usage(archive, session.id)
    options = RenderOptions(runtime.zone, True, read_output, own_usage=usage)
    return export_session(session, form, options)


def _export_redacted(
    runtime: "Runtime", archive: "Archive", session: "Session", form: str
) -> "Redacted[str]":
    from flightlog.archive.sharing import redact_session, rescan_page
    from flightlog.views.transcript import RenderOptions
    from flightlog.views.transcript_formats import export_session

    document, redactor = redact_session(runtime, archive, session)
    if form == "html":
        pages = import_module("flightlog.web.commands")
        return cast("Redacted[str]", pages.render_redacted(runtime, document, redactor))
    usage = document.value.own_usage
    options = RenderOptions(runtime.zone, True, document.value.outputs.get, own_usage=usage)
    page = document.map(lambda redacted: export_session(redacted.session, form, options))
    return page if form == "json" else rescan_page(page, redactor, html=False)


def write_trajectory(  # noqa: PLR0913 - the parts and options of one export
    runtime: "Runtime",
    archive: "Archive",
    session: "Session",
    version: str,
    *,
    output: Path | None,
    options: dict[str, Any],
) -> None:
    """Print the trajectory, or write it with its subagents and pictures below `output`."""
    from flightlog.archive.trajectories import build_session_bundle, write_bundle

    bundle, redacted = build_session_bundle(
        runtime, archive, session, version, redact=options["redact"]
    )
    removed = redaction_fields(redacted)
    files = len(bundle.documents) + len(bundle.pictures)
    if output is not None:
        if output.exists() and not output.is_dir():
            hint = "a trajectory has several files: name a new directory"
            raise Conflict(f"not a directory: {output}", hint=hint)
        write_bundle(output, bundle)
        outcome = {
            "session": session.id,
            "format": f"atif-{version}",
            "output": str(output),
            "files": files,
        }
        line = f"written: {pluralize(files, 'file')} below {output}; check it: flightlog lab lint {output}"
        print_outcome(outcome | removed, line, as_json=options["as_json"])
        print_redaction(removed, session.id)
        return
    if files > 1:
        text = f"the trajectory has {files} files, with its subagents and pictures"
        raise Invalid(text, hint=f"flightlog session export {session.id} --atif --output DIR")
    click.echo(next(bundle.iter_files())[1], nl=False)
    print_redaction(removed, session.id)


def write_all(
    runtime: "Runtime", atif: str | None, form: str, output: Path | None, options: dict[str, Any]
) -> int:
    """Write every session below `output`; return exit code 1 if one failed."""
    from flightlog.archive.bulk_export import ATIF, PARQUET, BulkExportOptions, export_archive

    if output is None or not (atif or form == "parquet"):
        raise click.UsageError("with --all give --output DIR, and --atif or --format parquet")
    kind, agent = ATIF if atif else PARQUET, options["agent"]
    bulk_options = BulkExportOptions(kind, atif or "1.6", options["redact"], agent)
    report = export_archive(runtime, bulk_options, output, Progress("writing"))
    if options["as_json"]:
        print_json(report)
    else:
        counts = f"{pluralize(report['sessions'], 'session')}, {pluralize(report['files'], 'file')}"
        click.echo(f"written: {counts} below {output}", err=True)
        print_redaction(report)
        for session, reason in report["failed"].items():
            click.echo(make_inert(f"not written: {session}: {one_line(reason, 200)}"), err=True)
    return int(bool(report["failed"]))


for _command in (show, follow):
    session.add_command(_command)
