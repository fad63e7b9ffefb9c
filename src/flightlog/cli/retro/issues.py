"""`flightlog issue` (also `issue-workflow`): from private drafts to issues that are safe to publish."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import json_option, print_json, print_outcome, print_table
from flightlog.model.errors import Invalid
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.retro.issues.board import Board, Issue


_SEVERITIES = click.Choice(["critical", "high", "medium", "low"])
_ISSUE = json_option("Print the issue as JSON.")
_NOTES = click.option("--notes", default="", help="Why; kept with the issue.")


@click.group(epilog="Example: flightlog issue process --yes")
def issue() -> None:
    """Issues that are safe to publish."""


@issue.command(epilog="Example: flightlog issue process --yes")
@click.option("-y", "--yes", is_flag=True, help="Approve and publish without asking.")
@click.option("--findings", is_flag=True, help="Draft issues from the last analysis first.")
@json_option("Print what was done as JSON.")
def process(*, yes: bool, findings: bool, as_json: bool) -> None:
    """Import, triage, cluster and rank every draft; ask, then approve and publish.

    What a loop, a run, a running session or the dataset of this project found wrong is drafted first.
    """
    from flightlog.retro.issues import triage, workflow
    from flightlog.retro.issues.workflow import draft_incidents
    from flightlog.retro.store import open_retro_store
    from flightlog.tracing.providers import iter_incidents

    runtime = open_runtime()
    room = open_retro_store(runtime)
    with room.lock():
        noticed = draft_incidents(room, iter_incidents(runtime, room.root.parent))
        analysis = room.load_analysis()
        for pattern in triage.worth_an_issue(analysis.patterns) if findings and analysis else ():
            room.store_draft(triage.draft_from_finding(pattern, room.now_ms()))
        done = workflow.process_drafts(room)
        published: list[str] = []
        if not as_json:
            _print_issues(done.board.open_issues())
        if _confirm_publishing(done.board, yes=yes):
            workflow.approve_clusters(room)
            published = workflow.publish_issues(room)
        board = room.load_board()
    for line in done.unreadable:
        click.echo(make_inert(f"left alone: {line}"), err=True)
    if as_json:
        counts = {"imported": done.imported, "repeated": done.repeated, "reopened": done.reopened}
        print_json(counts | {"published": published, "issues": board.open_issues()})
        return
    said = (
        f"{pluralize(len(noticed), 'incident')} noticed, {len(done.imported)} imported, {len(done.repeated)} repeated"
    )
    click.echo(f"{said}, {len(done.reopened)} reopened, {len(published)} published", err=True)


@issue.command("list", epilog="Example: flightlog issue list --status prioritized")
@click.option("--status", default="", help="Only issues with this status.")
@json_option()
def list_issues(*, status: str, as_json: bool) -> None:
    """List issues, most urgent first."""
    from flightlog.retro.issues.board import STATUSES
    from flightlog.retro.store import find_retro_store

    if status and status not in STATUSES:
        raise Invalid(f"no such status: {status[:40]}", hint=f"one of: {', '.join(STATUSES)}")
    board = find_retro_store(open_runtime()).load_board()
    chosen = [each for each in board.issues.values() if status in ("", each.status)]
    chosen.sort(key=lambda each: (-each.priority_score, each.id))
    if as_json:
        print_json(chosen)
        return
    _print_issues(chosen)


@issue.command(epilog="Example: flightlog issue clusters")
@json_option()
def clusters(*, as_json: bool) -> None:
    """List clusters with their rank and whether they were approved."""
    from flightlog.retro.store import find_retro_store

    found = sorted(
        find_retro_store(open_runtime()).load_board().clusters.values(),
        key=lambda each: (-each.aggregate_priority, each.id),
    )
    if as_json:
        print_json(found)
        return
    rows = [
        (each.id, each.status, f"{each.aggregate_priority:.1f}", str(len(each.issue_ids)), one_line(each.theme, 60))
        for each in found
    ]
    print_table(("cluster", "status", "priority", "issues", "theme"), rows, right=(2, 3))


@issue.command(epilog="Example: flightlog issue drafts")
@json_option()
def drafts(*, as_json: bool) -> None:
    """List drafts that wait to be imported."""
    from flightlog.retro.store import find_retro_store

    runtime = open_runtime()
    found = sorted(path.name for path in (find_retro_store(runtime).root / "issue-drafts").glob("draft_*.json"))
    if as_json:
        print_json(found)
        return
    for name in found:
        click.echo(make_inert(name))


@issue.command(epilog="Example: flightlog issue approve cluster-1f2e3d4c")
@click.argument("cluster")
@json_option("Print the clusters as JSON.")
def approve(cluster: str, *, as_json: bool) -> None:
    """Agree to work on a cluster, so that its issues may be published."""
    from flightlog.retro.issues import workflow
    from flightlog.retro.store import open_retro_store

    room = open_retro_store(open_runtime())
    with room.lock():
        names = workflow.approve_clusters(room, cluster)
    print_outcome({"approved": names}, f"approved: {', '.join(names)}", as_json=as_json)


@issue.command(epilog="Example: flightlog issue preview")
@click.argument("written", required=False, metavar="[ISSUE]")
@json_option()
def preview(written: str | None, *, as_json: bool) -> None:
    """Show exactly what publishing would write, checked for what is private."""
    from flightlog.model.output_files import Clean
    from flightlog.retro.issues import workflow
    from flightlog.retro.store import find_retro_store

    pages = workflow.preview_issues(find_retro_store(open_runtime()), written or "")
    told = [{"path": page.path, "body": page.body.text} for page in pages if isinstance(page.body, Clean)]
    for each in () if as_json else told:
        click.echo(make_inert(f"{each['path']}\n{each['body']}"))
    print_outcome(told, f"{len(told)} would be public", as_json=as_json)


@issue.command(epilog="Example: flightlog issue publish 1f2e3d4c5b6a")
@click.argument("written", required=False, metavar="[ISSUE]")
@click.option("--dry-run", is_flag=True, help="Show what would be written and write nothing.")
@json_option("Print the files as JSON.")
def publish(written: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Write the public files of approved issues, or of one issue."""
    from flightlog.retro.issues import workflow
    from flightlog.retro.store import open_retro_store

    room = open_retro_store(open_runtime())
    with room.lock():
        if dry_run:
            names = [page.path for page in workflow.preview_issues(room, written or "")]
        else:
            names = workflow.publish_issues(room, written or "")
    for name in () if as_json else names:
        click.echo(name)
    talk = f"{len(names)} {'would be' if dry_run else 'are'} public"
    print_outcome({"files": names, "written": not dry_run}, talk, as_json=as_json)


@issue.command(epilog="Example: flightlog issue start 1f2e3d")
@click.argument("written", metavar="ISSUE")
@_ISSUE
def start(written: str, *, as_json: bool) -> None:
    """Take an issue up: in progress."""
    _move_issue(written, "in_progress", as_json=as_json)


@issue.command(epilog="Example: flightlog issue defer 1f2e3d --notes 'after the release'")
@click.argument("written", metavar="ISSUE")
@_NOTES
@_ISSUE
def defer(written: str, *, notes: str, as_json: bool) -> None:
    """Put an issue off."""
    _move_issue(written, "deferred", notes, as_json=as_json)


@issue.command(epilog="Example: flightlog issue wontfix 1f2e3d --notes 'as it should be'")
@click.argument("written", metavar="ISSUE")
@_NOTES
@_ISSUE
def wontfix(written: str, *, notes: str, as_json: bool) -> None:
    """Give an issue up."""
    _move_issue(written, "wont_fix", notes, as_json=as_json)


@issue.command(epilog="Example: flightlog issue reopen 1f2e3d")
@click.argument("written", metavar="ISSUE")
@_ISSUE
def reopen(written: str, *, as_json: bool) -> None:
    """Take an issue back that was put off, given up or resolved."""
    _move_issue(written, "triaged", as_json=as_json)


@issue.command(epilog="Example: flightlog issue resolve 1f2e3d --notes 'Fixed state validation'")
@click.argument("written", metavar="ISSUE")
@click.option("--notes", required=True, help="How it was resolved; goes into the changelog.")
@click.option("--by", default="", help="A commit or a name.")
@_ISSUE
def resolve(written: str, *, notes: str, by: str, as_json: bool) -> None:
    """Move an issue out of issues/ and into the changelog."""
    from flightlog.retro.issues import workflow
    from flightlog.retro.store import open_retro_store

    room = open_retro_store(open_runtime())
    with room.lock():
        done = workflow.resolve_issue(room, written, notes, by)
    print_outcome(done, f"{done.id} is {done.status}", as_json=as_json)


@issue.command("report-bug", epilog="Example: flightlog issue report-bug --title 'Wrong total' --description '…'")
@click.option("--title", default="", help="The bug in one line.")
@click.option("--description", default="", help="What happened.")
@click.option("--severity", type=_SEVERITIES, default=None, help="How bad it is; worked out if not said.")
@click.option("--file", "files", multiple=True, help="A file it is about; may be repeated.")
@json_option("Print the draft and its path as JSON.")
def report_bug(*, title: str, description: str, severity: str | None, files: tuple[str, ...], as_json: bool) -> None:
    """Write a private draft: asks at a terminal, else takes --title and --description."""
    from flightlog.retro.issues import triage
    from flightlog.retro.store import open_retro_store

    if not title and sys.stdin.isatty():
        title = click.prompt("Title")
        description = description or click.prompt("What happened", default="")
        severity = severity or click.prompt("Severity", type=_SEVERITIES, default="medium")
    room = open_retro_store(open_runtime())
    state = room.load_analysis()
    facts = {
        "schema_version": str(state.schema_version) if state else "none",
        "patterns": str(len(state.patterns)) if state else "0",
        "corrupt_state": str(any((room.root / "state").glob("*.corrupt-*"))),
    }
    one = triage.make_draft(title, description, room.now_ms(), severity, affected_files=files, context=facts)  # type: ignore[arg-type]
    path = str(room.store_draft(one))
    print_json({"path": path, "draft": one}) if as_json else click.echo(path)


def _move_issue(written: str, to: str, notes: str = "", *, as_json: bool) -> None:
    from flightlog.retro.issues import workflow
    from flightlog.retro.store import open_retro_store

    room = open_retro_store(open_runtime())
    with room.lock():
        moved = workflow.move_issue(room, written, to, notes)  # type: ignore[arg-type]
    print_outcome(moved, f"{moved.id} is {moved.status}", as_json=as_json)


def _confirm_publishing(board: "Board", *, yes: bool) -> bool:
    from flightlog.retro.issues.workflow import has_finding

    pending = [each for each in board.clusters.values() if each.status == "pending"]
    findings = [each for each in pending if has_finding(board, each)]
    for each in findings:
        click.echo(f"words of a conversation, not approved: flightlog issue approve {each.id}", err=True)
    waiting = len(pending) - len(findings)
    if yes or not waiting:
        return True
    if not sys.stdin.isatty():
        click.echo(f"{pluralize(waiting, 'cluster')} to be approved: flightlog issue process --yes", err=True)
        return False
    return click.confirm(f"Approve and publish {pluralize(waiting, 'cluster')}?", default=True, err=True)


def _print_issues(issues: "Sequence[Issue]") -> None:
    rows = [
        (each.id, each.status, each.severity or "", str(each.frequency), f"{each.priority_score:.1f}",
         each.cluster_id, one_line(each.title, 60))
        for each in issues
    ]  # fmt: skip
    print_table(("issue", "status", "severity", "seen", "priority", "cluster", "title"), rows, right=(3, 4))
