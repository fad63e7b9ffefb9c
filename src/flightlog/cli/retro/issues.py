"""`flightlog issue` (also `issue-workflow`): turn private drafts into safe public issues."""

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
    from flightlog.retro.store import RetroStore


_SEVERITIES = click.Choice(["critical", "high", "medium", "low"])
_ISSUE = json_option("Print the issue as JSON.")
_NOTES = click.option("--notes", default="", help="Reason, stored with the issue.")


@click.group(epilog="Example: flightlog issue process --yes")
def issue() -> None:
    """Draft, rank and publish safe issues."""


@issue.command(epilog="Example: flightlog issue process --yes")
@click.option("-y", "--yes", is_flag=True, help="Approve and publish without asking.")
@click.option("--findings", is_flag=True, help="Draft issues from the last analysis first.")
@json_option("Print what was done as JSON.")
def process(*, yes: bool, findings: bool, as_json: bool) -> None:
    """Process all drafts and publish issues.

    Imports, triages, clusters and ranks every draft; then asks before it approves and publishes.
    Problems of loops, runs, running sessions and the dataset of this project become drafts first.
    """
    from flightlog.retro.issues import triage, workflow
    from flightlog.retro.issues.workflow import draft_incidents
    from flightlog.tracing.providers import iter_incidents

    runtime = open_runtime()
    store = open_store()
    with store.lock():
        incidents = draft_incidents(store, iter_incidents(runtime, store.root.parent))
        analysis = store.load_analysis()
        for pattern in triage.worth_an_issue(analysis.patterns) if findings and analysis else ():
            store.store_draft(triage.draft_from_finding(pattern, store.now_ms()))
        processed = workflow.process_drafts(store)
        published: list[str] = []
        if not as_json:
            _print_issues(processed.board.open_issues())
        if _confirm_publishing(processed.board, yes=yes):
            workflow.approve_clusters(store)
            published = workflow.publish_issues(store)
        board = store.load_board()
    for line in processed.unreadable_drafts:
        click.echo(make_inert(f"skipped: {line}"), err=True)
    changes: dict[str, Sequence[str]] = {
        "imported_issues": processed.imported_issues,
        "duplicate_drafts": processed.duplicate_drafts,
        "reopened_issues": processed.reopened_issues,
        "published_files": published,
    }
    counts = zip(
        map(len, changes.values()), ("imported", "repeated", "reopened", "published"), strict=True
    )
    summary = ", ".join(f"{count} {state}" for count, state in counts)
    line = f"{pluralize(len(incidents), 'incident')} drafted, {summary}"
    print_outcome({**changes, "open_issues": board.open_issues()}, line, as_json=as_json)


@issue.command("list", epilog="Example: flightlog issue list --status prioritized")
@click.option("--status", default="", help="Only issues with this status.")
@json_option()
def list_issues(*, status: str, as_json: bool) -> None:
    """List issues, most urgent first."""
    from flightlog.retro.issues.board import STATUSES

    if status and status not in STATUSES:
        raise Invalid(f"no such status: {status[:40]}", hint=f"one of: {', '.join(STATUSES)}")
    board = find_store().load_board()
    chosen = [entry for entry in board.issues.values() if status in ("", entry.status)]
    chosen.sort(key=lambda entry: (-entry.priority_score, entry.id))
    print_json(chosen) if as_json else _print_issues(chosen)


@issue.command(epilog="Example: flightlog issue clusters")
@json_option()
def clusters(*, as_json: bool) -> None:
    """List clusters with priority and status."""
    ranked = sorted(
        find_store().load_board().clusters.values(),
        key=lambda cluster: (-cluster.aggregate_priority, cluster.id),
    )
    if as_json:
        print_json(ranked)
        return
    rows = []
    for cluster in ranked:
        counts = (f"{cluster.aggregate_priority:.1f}", str(len(cluster.issue_ids)))
        rows.append((cluster.id, cluster.status, *counts, one_line(cluster.theme, 60)))
    print_table(("cluster", "status", "priority", "issues", "theme"), rows, right=(2, 3))


@issue.command(epilog="Example: flightlog issue drafts")
@json_option()
def drafts(*, as_json: bool) -> None:
    """List drafts that are not imported yet."""
    names = sorted(path.name for path in (find_store().root / "issue-drafts").glob("draft_*.json"))
    if as_json:
        print_json(names)
        return
    for name in names:
        click.echo(make_inert(name))


@issue.command(epilog="Example: flightlog issue approve cluster-1f2e3d4c")
@click.argument("cluster")
@json_option("Print the clusters as JSON.")
def approve(cluster: str, *, as_json: bool) -> None:
    """Approve a cluster for publishing."""
    from flightlog.retro.issues import workflow

    store = open_store()
    with store.lock():
        names = workflow.approve_clusters(store, cluster)
    print_outcome({"approved_clusters": names}, f"approved: {', '.join(names)}", as_json=as_json)


@issue.command(epilog="Example: flightlog issue preview")
@click.argument("written", required=False, metavar="[ISSUE]")
@json_option()
def preview(written: str | None, *, as_json: bool) -> None:
    """Show what publishing would write. The text is already checked for private data."""
    from flightlog.model.output_files import Clean
    from flightlog.retro.issues import workflow

    pages = workflow.preview_issues(find_store(), written or "")
    clean = [(page.path, page.body) for page in pages if isinstance(page.body, Clean)]
    files = [{"path": path, "body": body.text} for path, body in clean]
    for file in () if as_json else files:
        click.echo(make_inert(f"{file['path']}\n{file['body']}"))
    print_outcome(files, f"{pluralize(len(files), 'file')} would be published", as_json=as_json)


@issue.command(epilog="Example: flightlog issue publish 1f2e3d4c5b6a")
@click.argument("written", required=False, metavar="[ISSUE]")
@click.option("--dry-run", is_flag=True, help="Show the files without writing them.")
@json_option("Print the files as JSON.")
def publish(written: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Publish approved issues, or one issue."""
    from flightlog.retro.issues import workflow

    store = open_store()
    with store.lock():
        if dry_run:
            names = [page.path for page in workflow.preview_issues(store, written or "")]
        else:
            names = workflow.publish_issues(store, written or "")
    for name in () if as_json else names:
        click.echo(name)
    line = f"{pluralize(len(names), 'file')} {'would be ' if dry_run else ''}published"
    print_outcome({"files": names, "is_written": not dry_run}, line, as_json=as_json)


@issue.command(epilog="Example: flightlog issue start 1f2e3d")
@click.argument("written", metavar="ISSUE")
@_ISSUE
def start(written: str, *, as_json: bool) -> None:
    """Mark an issue as in progress."""
    _move_issue(written, "in_progress", as_json=as_json)


@issue.command(epilog="Example: flightlog issue defer 1f2e3d --notes 'after the release'")
@click.argument("written", metavar="ISSUE")
@_NOTES
@_ISSUE
def defer(written: str, *, notes: str, as_json: bool) -> None:
    """Defer an issue."""
    _move_issue(written, "deferred", notes, as_json=as_json)


@issue.command(epilog="Example: flightlog issue wontfix 1f2e3d --notes 'as it should be'")
@click.argument("written", metavar="ISSUE")
@_NOTES
@_ISSUE
def wontfix(written: str, *, notes: str, as_json: bool) -> None:
    """Mark an issue as won't fix."""
    _move_issue(written, "wont_fix", notes, as_json=as_json)


@issue.command(epilog="Example: flightlog issue reopen 1f2e3d")
@click.argument("written", metavar="ISSUE")
@_ISSUE
def reopen(written: str, *, as_json: bool) -> None:
    """Reopen a deferred or closed issue."""
    _move_issue(written, "triaged", as_json=as_json)


@issue.command(epilog="Example: flightlog issue resolve 1f2e3d --notes 'Fixed state validation'")
@click.argument("written", metavar="ISSUE")
@click.option("--notes", required=True, help="How it was resolved, for the changelog.")
@click.option("--by", default="", help="Commit or person that resolved it.")
@_ISSUE
def resolve(written: str, *, notes: str, by: str, as_json: bool) -> None:
    """Move an issue to the changelog."""
    from flightlog.retro.issues import workflow

    store = open_store()
    with store.lock():
        resolved = workflow.resolve_issue(store, written, notes, by)
    print_outcome(resolved, f"{resolved.id} is {resolved.status}", as_json=as_json)


@issue.command(
    "report-bug",
    epilog="Example: flightlog issue report-bug --title 'Wrong total' --description '…'",
)
@click.option("--title", default="", help="Summary in one line.")
@click.option("--description", default="", help="What happened.")
@click.option("--severity", type=_SEVERITIES, default=None, help="Severity (default: computed).")
@click.option("--file", "files", multiple=True, help="Affected file; may be repeated.")
@json_option("Print the draft and its path as JSON.")
def report_bug(
    *, title: str, description: str, severity: str | None, files: tuple[str, ...], as_json: bool
) -> None:
    """Write a private bug draft. Asks at a terminal if --title is missing."""
    from flightlog.retro.issues import triage

    if not title and sys.stdin.isatty():
        title = click.prompt("Title")
        description = description or click.prompt("What happened", default="")
        severity = severity or click.prompt("Severity", type=_SEVERITIES, default="medium")
    store = open_store()
    analysis = store.load_analysis()
    draft = triage.make_draft(
        title,
        description,
        store.now_ms(),
        severity,  # type: ignore[arg-type]
        affected_files=files,
        context={
            "schema_version": str(analysis.schema_version) if analysis else "none",
            "patterns": str(len(analysis.patterns)) if analysis else "0",
            "corrupt_state": str(any((store.root / "state").glob("*.corrupt-*"))),
        },
    )
    path = str(store.store_draft(draft))
    print_json({"path": path, "draft": draft}) if as_json else click.echo(path)


def open_store() -> "RetroStore":
    """Return the store of the project here, and create its directory."""
    from flightlog.retro.store import open_retro_store

    return open_retro_store(open_runtime())


def find_store() -> "RetroStore":
    """Return the store of the project here without creating anything."""
    from flightlog.retro.store import find_retro_store

    return find_retro_store(open_runtime())


def _move_issue(issue_id: str, to: str, notes: str = "", *, as_json: bool) -> None:
    from flightlog.retro.issues import workflow

    store = open_store()
    with store.lock():
        moved = workflow.move_issue(store, issue_id, to, notes)  # type: ignore[arg-type]
    print_outcome(moved, f"{moved.id} is {moved.status}", as_json=as_json)


def _confirm_publishing(board: "Board", *, yes: bool) -> bool:
    from flightlog.retro.issues.workflow import has_finding

    pending = [cluster for cluster in board.clusters.values() if cluster.status == "pending"]
    findings = [cluster for cluster in pending if has_finding(board, cluster)]
    for cluster in findings:
        click.echo(
            f"quotes a conversation, so approve it yourself: flightlog issue approve {cluster.id}",
            err=True,
        )
    waiting = len(pending) - len(findings)
    if yes or not waiting:
        return True
    if not sys.stdin.isatty():
        line = f"{pluralize(waiting, 'cluster')} not approved: flightlog issue process --yes"
        click.echo(line, err=True)
        return False
    question = f"Approve and publish {pluralize(waiting, 'cluster')}?"
    return click.confirm(question, default=True, err=True)


def _print_issues(issues: "Sequence[Issue]") -> None:
    rows = [
        (entry.id, entry.status, entry.severity or "", str(entry.frequency), f"{entry.priority_score:.1f}",
         entry.cluster_id, one_line(entry.title, 60))
        for entry in issues
    ]  # fmt: skip
    heads = ("issue", "status", "severity", "seen", "priority", "cluster", "title")
    print_table(heads, rows, right=(3, 4))
