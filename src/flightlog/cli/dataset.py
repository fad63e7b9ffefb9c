"""`flightlog dataset`, also installed as `ml-data-collector`: training rows in git."""

import json
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import json_option, print_json
from flightlog.hooks import recorder
from flightlog.model.errors import Invalid
from flightlog.model.text import describe_redaction, make_inert, parse_since, pluralize

_JSON = json_option()
_DRY = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
_YES = click.option("--yes", is_flag=True, help="Remove the rows instead of only listing them.")


@click.group(epilog="Example: flightlog dataset session sync-to-jsonl")
def dataset() -> None:
    """Track training rows in git."""


@dataset.group(epilog="Example: flightlog dataset session sync-to-jsonl")
def session() -> None:
    """Update the rows from sessions."""


@dataset.group("tracked", epilog="Example: flightlog dataset tracked compact --dry-run")
def tracked_group() -> None:
    """Maintain the tracked files."""


@session.command(
    "sync-to-jsonl", epilog="Example: flightlog dataset session sync-to-jsonl --compact"
)
@click.option("--compact", "then_compact", is_flag=True, help="Compact shards afterwards.")
@click.option("--commits", is_flag=True, help="Only new commits; the git hook uses this.")
@click.option(
    "--hook", "from_hook", is_flag=True,
    help="For the repository's hook: only the session of the event on stdin; no words, no push.",
)  # fmt: skip
@_JSON
def sync_to_jsonl(*, then_compact: bool, commits: bool, from_hook: bool, as_json: bool) -> None:
    """Write missing rows of this repository. Running it again writes nothing."""
    if from_hook and sys.stdin and not sys.stdin.isatty() and recorder.main(["--project"]):
        return  # before the imports: the agent waits for them too
    from flightlog.cli.dataset_output import print_compaction, print_sync_notes
    from flightlog.dataset import service, state

    runtime = open_runtime()
    location, is_off = service.locate_dataset(runtime), state.report_if_off(runtime)
    if commits:
        count = service.sync_new_commits(runtime, location)
        click.echo(json.dumps({"commits": count}) if as_json else pluralize(count, "commit"))
        return
    top = location.repository.top
    allowed = service.allowed_writes(runtime, top, own_hook=True) if from_hook else service.PERSON
    report = service.sync_repository(runtime, location, allowed)
    may_push = "push" in allowed and not is_off
    problem = service.push_if_enabled(runtime, location) if may_push else None
    if as_json:
        print_json(report)
    else:
        counts = f"{pluralize(report.sessions, 'session')} of this repository, {pluralize(report.rows, 'new row')}"
        click.echo(f"{counts}; {describe_redaction(report.secrets, report.personal)}")
    print_sync_notes(report, is_off=is_off)
    if problem is not None:
        click.echo(f"not pushed: {make_inert(problem.message)}", err=True)
    if then_compact and not is_off:
        compaction = service.compact_repository(runtime, location, service.CompactMode.WRITE)
        print_compaction(compaction, err=True)


@tracked_group.command(epilog="Example: flightlog dataset tracked compact --commit")
@_DRY
@click.option(
    "--commit",
    is_flag=True,
    help="Also commit the base files, without conflicts on other branches.",
)
@_JSON
def compact(*, dry_run: bool, commit: bool, as_json: bool) -> None:
    """Merge shards into fewer files.

    On the default branch they go into the base files, on any other branch into one shard.
    """
    from flightlog.cli.dataset_output import print_compaction
    from flightlog.dataset import service
    from flightlog.dataset.service import CompactMode

    runtime = open_runtime()
    mode = CompactMode.COMMIT if commit else CompactMode.WRITE
    mode = CompactMode.DRY_RUN if dry_run else mode
    compaction = service.compact_repository(runtime, service.require_dataset(runtime), mode)
    print_json(compaction) if as_json else print_compaction(compaction, err=False)


@tracked_group.command(
    hidden=True, epilog="Example: flightlog dataset tracked merge %O %A %B %P (as git calls it)"
)
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("ours", type=click.Path(path_type=Path))
@click.argument("theirs", type=click.Path(path_type=Path))
@click.argument("name")
def merge(base: Path, ours: Path, theirs: Path, name: str) -> None:
    """Merge two versions of a base file for git."""
    from flightlog.dataset.compact import merge_base_files
    from flightlog.store.files import replace_file

    del base  # rows are never edited, so the common ancestor adds nothing
    data = merge_base_files(Path(name).name, [ours.read_bytes(), theirs.read_bytes()])
    replace_file(ours, data, durable=False)


@dataset.command(epilog="Example: flightlog dataset stats --json | jq .counts")
@_JSON
def stats(*, as_json: bool) -> None:
    """Show counts, milestones, growth and quality."""
    from flightlog.cli.dataset_output import stats_lines
    from flightlog.dataset import service

    runtime = open_runtime()
    report = service.dataset_stats(runtime, service.require_dataset(runtime))
    for line in [json.dumps(report)] if as_json else stats_lines(report):
        click.echo(line)


@dataset.command(epilog="Example: flightlog dataset status")
@_JSON
def status(*, as_json: bool) -> None:
    """Show how much of the dataset is backed up.

    Prints the age of the last row on a remote, and what would be lost with this machine.
    """
    from flightlog.cli.dataset_output import safety_line
    from flightlog.dataset import service
    from flightlog.dataset.remote import measure_safety

    runtime = open_runtime()
    safety = measure_safety(service.require_dataset(runtime))
    print_json(safety) if as_json else click.echo(safety_line(safety, runtime.clock.now_ms()))


@dataset.command(epilog="Example: flightlog dataset check --fix")
@click.option("--fix", is_flag=True, help="Repair what can be repaired; deletes nothing.")
@_JSON
def check(*, fix: bool, as_json: bool) -> int:
    """Check rows, links, secrets and file sizes. Exit 1 if something is wrong."""
    from flightlog.dataset import service
    from flightlog.dataset.check import check_dataset, fix_dataset

    runtime = open_runtime()
    location = service.require_dataset(runtime)
    for line in fix_dataset(location, service.make_row_redactor(runtime, location)) if fix else ():
        click.echo(make_inert(line), err=True)
    findings = check_dataset(location)
    wrong = sum(not finding.is_note for finding in findings)
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            label = "note" if finding.is_note else "wrong"
            text = make_inert(f"{label}  {finding.kind}: {finding.message} ({finding.location})")
            click.echo(text)
            if finding.next_command:
                click.secho(f"    {finding.next_command}", fg="cyan")
        text = f"{pluralize(wrong, 'problem')}, {pluralize(len(findings) - wrong, 'note')}"
        click.echo(text, err=True)
    return int(wrong > 0)


@dataset.command(epilog="Example: flightlog dataset export --format parquet --output rows/")
@click.option(
    "--format", "form", default="jsonl", show_default=True,
    type=click.Choice(["jsonl", "csv", "parquet", "huggingface", "sft", "preferences"]), help="Output format.",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="File or directory to write."
)
@_JSON
def export(form: str, output: Path, *, as_json: bool) -> None:
    """Export the rows to another format. Rows were redacted before they were first written."""
    from flightlog.dataset import service
    from flightlog.dataset.exports import export_dataset
    from flightlog.dataset.reader import read_dataset

    counts = export_dataset(
        read_dataset(service.require_dataset(open_runtime()).tracked_dir), form, output.resolve()
    )
    if as_json:
        click.echo(json.dumps({"format": form, "output": str(output), "rows": counts}))
    else:
        for name, rows in counts.items():
            click.echo(f"{rows:>9,}  {name}")
        click.echo(f"written: {output}", err=True)


@dataset.command(epilog="Example: flightlog dataset push")
@click.option("--remote", help="Remote to push to (default: dataset.remote).")
@_JSON
def push(remote: str | None, *, as_json: bool) -> None:
    """Push the rows to a ref of this clone. Your branch, index and files are not touched."""
    from flightlog.dataset import service
    from flightlog.dataset.remote import push_shards

    runtime = open_runtime()
    location = service.require_dataset(runtime)
    target = remote or str(service.load_project_settings(runtime, location)["dataset.remote"].value)
    pushed = push_shards(location, target, runtime.clock.now_ms())
    if as_json:
        print_json(pushed)
    else:
        click.echo(f"{pluralize(pushed.shards, 'shard')} on {pushed.remote} as {pushed.ref}")


@dataset.command(epilog="Example: flightlog dataset pull")
@click.option("--remote", help="Remote to pull from (default: dataset.remote).")
@_JSON
def pull(remote: str | None, *, as_json: bool) -> None:
    """Fetch the rows that all clones have pushed."""
    from flightlog.dataset import service, state
    from flightlog.dataset.remote import pull_rows

    runtime = open_runtime()
    if state.report_if_off(runtime):
        return
    location = service.locate_dataset(runtime)
    source = remote or str(service.load_project_settings(runtime, location)["dataset.remote"].value)
    pulled = pull_rows(location, source, service.make_row_redactor(runtime, location))
    if as_json:
        print_json(pulled)
    else:
        line = f"{pluralize(pulled.rows, 'new row')} from {pluralize(pulled.writers, 'writer')}"
        click.echo(line)


@dataset.command(
    epilog="Example: flightlog dataset judge chat-20261102-120001-3fa9c1 feedback good",
    context_settings={"ignore_unknown_options": True},  # a reward such as -1 is no option
)
@click.argument("row_id")
@click.argument("field")
@click.argument("value")
@_JSON
def judge(row_id: str, field: str, value: str, *, as_json: bool) -> None:
    """Add a judgment to a row.

    FIELD is feedback, reward (a number), task or related_commit; of a commit also ci_result,
    ci_details, reverted and reverted_by.
    """
    from flightlog.dataset import service, state

    runtime = open_runtime()
    if state.report_if_off(runtime):
        return
    try:
        judgment = json.loads(value)
    except ValueError:
        judgment = value
    location = service.require_dataset(runtime)
    key = service.record_judgment(runtime, location, row_id, field, judgment)
    outcome = json.dumps({"row_id": key, "field": field, "value": judgment})
    click.echo(outcome if as_json else make_inert(f"recorded: {key}"))


@dataset.command(epilog="Example: flightlog dataset forget 2026-11-02_13a84f73 --yes")
@click.argument("row_ids", nargs=-1, metavar="[ID]...")
@click.option("--text", default="", help="Rows with this text, ignoring case.")
@click.option("--since", help="Rows since this time, such as 2026-11-02.")
@click.option("--before", help="Rows before this time, such as 2026-11-03.")
@_DRY
@_YES
@_JSON
def forget(row_ids: tuple[str, ...], **options: Any) -> int:
    """Remove rows for good.

    No merge brings them back. Any unique prefix of a session or row id works. Removing a session
    removes its chats, actions and subagents; removing a chat removes its actions and the session's
    summary. Git's history is not changed: the commands that change it are shown.
    """
    from flightlog.cli.dataset_output import print_removal
    from flightlog.dataset import service

    runtime = open_runtime()
    if not (row_ids or options["text"] or options["since"] or options["before"]):
        hint = "flightlog dataset forget ID, or --text, --since, --before"
        raise Invalid("nothing to forget", hint=hint)
    times = [
        parse_since(options[name], runtime.clock.now_ms(), UTC) if options[name] else None
        for name in ("since", "before")
    ]
    dry_run = options["dry_run"] or not options["yes"]
    dirs = service.require_dataset(runtime)
    report = service.forget_rows(runtime, dirs, row_ids, options["text"], times, dry_run=dry_run)
    return print_removal(report, **options)


@dataset.command("strip-words", epilog="Example: flightlog dataset strip-words --dry-run")
@_DRY
@_YES
@_JSON
def strip_words(**options: Any) -> int:
    """Remove the words of all existing rows. No merge brings them back."""
    from flightlog.cli.dataset_output import print_removal
    from flightlog.dataset import service

    runtime, dry_run = open_runtime(), options["dry_run"] or not options["yes"]
    report = service.strip_words(runtime, service.require_dataset(runtime), dry_run=dry_run)
    return print_removal(report, **options)


@dataset.command(epilog="Example: flightlog dataset retain --dry-run")
@_DRY
@_YES
@_JSON
def retain(*, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove rows older than dataset.keep_days."""
    from flightlog.cli.dataset_output import retention_lines
    from flightlog.dataset import service

    runtime = open_runtime()
    dirs = service.require_dataset(runtime)
    actions = service.retain_dataset(runtime, dirs, dry_run=dry_run or not yes)
    if as_json:
        print_json(actions)
    for line in () if as_json else retention_lines(actions, is_done=yes and not dry_run):
        click.echo(line)
    if not actions:
        click.echo("no row is older than dataset.keep_days", err=True)
    elif not (yes or dry_run):
        click.echo("nothing was removed; add --yes to remove them", err=True)
    return 0 if yes or dry_run or not actions else 1


@dataset.command("install-hooks", epilog="Example: flightlog dataset install-hooks --dry-run")
@_DRY
@click.option("--remove", is_flag=True, help="Remove the hooks.")
@_JSON
def install_hooks(*, dry_run: bool, remove: bool, as_json: bool) -> None:
    """Install git hooks and start a dataset.

    Writes the collector's scripts, the agent's hook that clones share (.claude/settings.json), a
    git hook and the merge driver into this repository.
    """
    from flightlog.dataset import git_hooks, service
    from flightlog.dataset.layout import prepare_dataset
    from flightlog.privacy.trust import open_trust
    from flightlog.setup import install
    from flightlog.setup.init import hook_command

    runtime = open_runtime()
    location, command = service.locate_dataset(runtime), hook_command()
    git = location.repository
    changes = git_hooks.plan_removal(git) if remove else git_hooks.plan_hooks(git, command)
    settings = install.plan_capture_hook(git.top, remove=remove)
    if not dry_run:
        git_hooks.apply_changes(git, changes, command)
        install.apply_change(settings)
        if not remove:
            prepare_dataset(location, service.make_row_redactor(runtime, location))
            open_trust(runtime).allow_rows(git.top)
    files = [(str(change.path), change.body is None) for change in changes]
    files += [(str(settings.settings), settings.after is None)] if settings.is_needed else []
    if as_json:
        rows = [{"path": path, "is_removed": is_removed} for path, is_removed in files]
        click.echo(json.dumps({"changes": rows, "is_done": not dry_run}))
        return
    would = "would be " if dry_run else ""
    for path, is_removed in files:
        click.echo(make_inert(f"{would}{'removed' if is_removed else 'written'}: {path}"))
    line = "nothing was changed" if dry_run else f"{pluralize(len(files), 'file')} changed"
    click.echo(line, err=True)
