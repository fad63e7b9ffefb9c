"""`flightlog dataset`, also installed as `ml-data-collector`: training rows in git."""

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import json_option
from flightlog.model.errors import Invalid
from flightlog.model.text import describe_redaction, make_inert, pluralize

_JSON = json_option()
_DRY = click.option("--dry-run", is_flag=True, help="Show what would be done and do nothing.")


@click.group(epilog="Example: flightlog dataset session sync-to-jsonl")
def dataset() -> None:
    """Training rows in git, told from your sessions."""


@dataset.group(epilog="Example: flightlog dataset session sync-to-jsonl")
def session() -> None:
    """Bring the rows up to date."""


@dataset.group(epilog="Example: flightlog dataset tracked compact --dry-run")
def tracked() -> None:
    """Look after the tracked files."""


@session.command("sync-to-jsonl", epilog="Example: flightlog dataset session sync-to-jsonl --compact")
@click.option("--compact", "then_compact", is_flag=True, help="Fold shards afterwards.")
@click.option("--commits", is_flag=True, help="Only the commits since the last time, as the git hook asks.")
@click.option("--hook", "from_hook", is_flag=True, help="As the repository's own hook: rows without words, no push.")
@_JSON
def sync_to_jsonl(*, then_compact: bool, commits: bool, from_hook: bool, as_json: bool) -> None:
    """Write every row of this repository that its files lack; running it again writes nothing."""
    from flightlog.cli.output import print_json
    from flightlog.dataset import service, state

    runtime = open_runtime()
    place, off = service.locate_dataset(runtime), state.report_if_off(runtime)
    if commits:
        new = service.sync_new_commits(runtime, place)
        click.echo(json.dumps({"commits": new}) if as_json else pluralize(new, "commit"))
        return
    allowed = service.allowed_writes(runtime, place.repository.top, own_hook=True) if from_hook else service.PERSON
    report = service.sync_repository(runtime, place, allowed)
    problem = service.push_if_enabled(runtime, place) if "push" in allowed and not off else None
    if as_json:
        print_json(report)
    else:
        written = f"{pluralize(report.sessions, 'session')} of this repository, {pluralize(report.rows, 'new row')}"
        click.echo(f"{written}; {describe_redaction(report.secrets, report.personal)}")
    if not (report.words or off):
        click.echo("words are withheld; to track them, redacted: track_words = true under [dataset]", err=True)
        click.echo("  in flightlog.toml, then: flightlog trust --yes", err=True)
    if problem is not None:
        click.echo(f"not pushed: {make_inert(problem.message)}", err=True)
    if then_compact and not off:
        _print_compaction(service.compact_repository(runtime, place, dry_run=False), err=True)


@tracked.command(epilog="Example: flightlog dataset tracked compact --commit")
@_DRY
@click.option("--commit", is_flag=True, help="Commit the base files too, in a way no branch can conflict with.")
@_JSON
def compact(*, dry_run: bool, commit: bool, as_json: bool) -> None:
    """Fold shards into the base files on the default branch, into one shard on any other."""
    from flightlog.cli.output import print_json
    from flightlog.dataset import service

    runtime = open_runtime()
    done = service.compact_repository(
        runtime, service.require_dataset(runtime), dry_run=dry_run, commit=commit and not dry_run
    )
    if as_json:
        print_json(done)
    else:
        _print_compaction(done, err=False)


@tracked.command(hidden=True, epilog="Example: flightlog dataset tracked merge %O %A %B %P (as git calls it)")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("ours", type=click.Path(path_type=Path))
@click.argument("theirs", type=click.Path(path_type=Path))
@click.argument("name")
def merge(base: Path, ours: Path, theirs: Path, name: str) -> None:
    """Merge versions of the base file NAME, as git asks of its merge drivers."""
    from flightlog.dataset.compact import merge_base_files
    from flightlog.store.files import replace_file

    del base  # rows are never edited, so what both sides began with says nothing
    replace_file(ours, merge_base_files(Path(name).name, [ours.read_bytes(), theirs.read_bytes()]), durable=False)


@dataset.command(epilog="Example: flightlog dataset stats --json | jq .counts")
@_JSON
def stats(*, as_json: bool) -> None:
    """Say what the dataset amounts to: counts, milestones, growth, quality, what is safe elsewhere."""
    from flightlog.dataset import service

    runtime = open_runtime()
    told = service.dataset_stats(runtime, service.require_dataset(runtime))
    if as_json:
        click.echo(json.dumps(told))
        return
    from flightlog.cli.dataset_output import stats_lines

    for line in stats_lines(told):
        click.echo(line)


@dataset.command(epilog="Example: flightlog dataset status")
@_JSON
def status(*, as_json: bool) -> None:
    """Say how old the last row is that is safe elsewhere, and what would be lost with this machine."""
    from flightlog.cli.dataset_output import safety_line
    from flightlog.cli.output import print_json
    from flightlog.dataset import service
    from flightlog.dataset.remote import measure_safety

    runtime = open_runtime()
    told = measure_safety(service.require_dataset(runtime))
    if as_json:
        print_json(told)
    else:
        click.echo(safety_line(told, runtime.clock.now_ms()))


@dataset.command(epilog="Example: flightlog dataset check --fix")
@click.option("--fix", is_flag=True, help="Put right what can be put right; nothing is deleted.")
@_JSON
def check(*, fix: bool, as_json: bool) -> int:
    """Look for damage, wrong ids, lost links, secrets and files too large; exit 1 if something is wrong."""
    from flightlog.cli.output import print_json
    from flightlog.dataset import service
    from flightlog.dataset.check import check_dataset, fix_dataset

    runtime = open_runtime()
    place = service.require_dataset(runtime)
    for line in fix_dataset(place, service.make_row_redactor(runtime, place)) if fix else ():
        click.echo(make_inert(line), err=True)
    found = check_dataset(place)
    if as_json:
        print_json(found)
    else:
        for one in found:
            mark = "note" if one.is_note else "wrong"
            click.echo(make_inert(f"{mark}  {one.what}: {one.text} ({one.where})"))
            if one.next:
                click.secho(f"    {one.next}", fg="cyan")
        click.echo(
            f"{sum(not one.is_note for one in found)} wrong, {pluralize(sum(one.is_note for one in found), 'note')}",
            err=True,
        )
    return int(any(not one.is_note for one in found))


@dataset.command(epilog="Example: flightlog dataset export --format parquet --output rows/")
@click.option(
    "--format", "form", default="jsonl", show_default=True,
    type=click.Choice(["jsonl", "csv", "parquet", "huggingface", "sft", "preferences"]), help="What to write.",
)  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The file, or the directory, to write.")
@_JSON
def export(form: str, output: Path, *, as_json: bool) -> None:
    """Write the rows for other programs; what is in them was redacted before it was first written."""
    from flightlog.dataset import service
    from flightlog.dataset.exports import export_dataset as write
    from flightlog.dataset.reader import read_dataset

    made = write(read_dataset(service.require_dataset(open_runtime()).tracked_dir), form, output.resolve())
    if as_json:
        click.echo(json.dumps({"format": form, "output": str(output), "rows": made}))
    else:
        for name, rows in made.items():
            click.echo(f"{rows:>9,}  {name}")
        click.echo(f"written: {output}", err=True)


@dataset.command(epilog="Example: flightlog dataset push")
@click.option("--remote", help="Where to; the setting dataset.remote otherwise.")
@_JSON
def push(remote: str | None, *, as_json: bool) -> None:
    """Push the rows to a ref of this clone's own; your branch, index and files are not touched."""
    from flightlog.cli.output import print_json
    from flightlog.dataset import service
    from flightlog.dataset.remote import push_shards as send

    runtime = open_runtime()
    place = service.require_dataset(runtime)
    done = send(
        place,
        remote or str(service.load_project_settings(runtime, place)["dataset.remote"].value),
        runtime.clock.now_ms(),
    )
    if as_json:
        print_json(done)
    else:
        click.echo(f"{pluralize(done.shards, 'shard')} safe on {done.remote} as {done.ref}")


@dataset.command(epilog="Example: flightlog dataset pull")
@click.option("--remote", help="Where from; the setting dataset.remote otherwise.")
@_JSON
def pull(remote: str | None, *, as_json: bool) -> None:
    """Gather the rows every clone has pushed."""
    from flightlog.cli.output import print_json
    from flightlog.dataset import service, state
    from flightlog.dataset.remote import pull_rows as gather

    runtime = open_runtime()
    if state.report_if_off(runtime):
        return
    place = service.locate_dataset(runtime)
    where = remote or str(service.load_project_settings(runtime, place)["dataset.remote"].value)
    done = gather(place, where, service.make_row_redactor(runtime, place))
    if as_json:
        print_json(done)
    else:
        click.echo(f"{pluralize(done.rows, 'new row')} from {pluralize(done.writers, 'writer')}")


@dataset.command(epilog="Example: flightlog dataset judge chat-20261102-120001-3fa9c1 feedback good")
@click.argument("row_id")
@click.argument("field")
@click.argument("value")
@_JSON
def judge(row_id: str, field: str, value: str, *, as_json: bool) -> None:
    """Say something of a row later: feedback, ci_result, reverted_by, related_commit, task."""
    from flightlog.dataset import service, state

    runtime = open_runtime()
    if state.report_if_off(runtime):
        return
    try:
        said = json.loads(value)
    except ValueError:
        said = value
    key = service.record_judgment(runtime, service.require_dataset(runtime), row_id, field, said)
    click.echo(json.dumps({"of": key, "field": field, "value": said}) if as_json else make_inert(f"noted: {key}"))


@dataset.command(epilog="Example: flightlog dataset forget 2026-11-02_13a84f73 --yes")
@click.argument("row_ids", nargs=-1, metavar="[ID]...")
@click.option("--text", default="", help="Rows with this text, in any case.")
@click.option("--since", help="Rows from this time on, such as 2026-11-02.")
@click.option("--before", help="Rows before this time, such as 2026-11-03.")
@_DRY
@click.option("--yes", is_flag=True, help="Do it.")
@_JSON
def forget(row_ids: tuple[str, ...], **said: Any) -> int:
    """Remove sessions, chats or other rows and what repeats them; no merge brings them back.

    Any unique prefix of an id of a session or a row works. A session goes with its chats, actions and subagents, a chat
    with its actions and the session's summary. Git's history keeps what it has: the commands that remove it are shown.
    """
    from flightlog.cli.session import since_ms
    from flightlog.dataset import service

    runtime = open_runtime()
    if not (row_ids or said["text"] or said["since"] or said["before"]):
        raise Invalid("nothing to forget", hint="flightlog dataset forget ID, or --text, --since, --before")
    times = [since_ms(said[name], runtime.clock.now_ms(), UTC) if said[name] else None for name in ("since", "before")]
    done = service.forget_rows(
        runtime,
        service.require_dataset(runtime),
        row_ids,
        said["text"],
        times,
        dry_run=said["dry_run"] or not said["yes"],
    )
    return _print_removal(done, **said)


@dataset.command("strip-words", epilog="Example: flightlog dataset strip-words --dry-run")
@_DRY
@click.option("--yes", is_flag=True, help="Do it.")
@_JSON
def strip_words(**said: Any) -> int:
    """Remove the words of every row until now, as if they had never been captured; no merge brings them back."""
    from flightlog.dataset import service

    runtime = open_runtime()
    return _print_removal(
        service.strip_words(runtime, service.require_dataset(runtime), dry_run=said["dry_run"] or not said["yes"]),
        **said,
    )


@dataset.command(epilog="Example: flightlog dataset retain --dry-run")
@_DRY
@click.option("--yes", is_flag=True, help="Do it.")
@_JSON
def retain(*, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Let rows go that are older than the setting dataset.keep_days (730)."""
    from flightlog.cli.output import print_json
    from flightlog.dataset import service

    runtime = open_runtime()
    moves = service.retain_dataset(runtime, service.require_dataset(runtime), dry_run=dry_run or not yes)
    if as_json:
        print_json(moves)
    else:
        for move in moves:
            click.echo(make_inert(f"{move.deed.value}  {move.age_days:,} days  {move.item.name}"))
    if not moves:
        click.echo("no row is older than the setting dataset.keep_days", err=True)
    elif not (yes or dry_run):
        click.echo("nothing was done; add --yes to let them go", err=True)
    return 0 if yes or dry_run or not moves else 1


@dataset.command("install-hooks", epilog="Example: flightlog dataset install-hooks --dry-run")
@_DRY
@click.option("--remove", is_flag=True, help="Take them out again.")
@_JSON
def install_hooks(*, dry_run: bool, remove: bool, as_json: bool) -> None:
    """Put the collector's script, a git hook and the merge driver into this repository, and begin a dataset."""
    from flightlog.dataset import git_hooks, service
    from flightlog.dataset.layout import prepare_dataset
    from flightlog.privacy.trust import open_trust
    from flightlog.setup.init import hook_command

    runtime = open_runtime()
    place = service.locate_dataset(runtime)
    command = hook_command()
    changes = git_hooks.plan_removal(place.repository) if remove else git_hooks.plan_hooks(place.repository, command)
    if not dry_run:
        git_hooks.apply_changes(place.repository, changes, command)
        if not remove:
            prepare_dataset(place, service.make_row_redactor(runtime, place))
            open_trust(runtime).allow_rows(place.repository.top)
    told = [{"path": str(change.path), "removed": change.body is None} for change in changes]
    if as_json:
        click.echo(json.dumps({"changes": told, "done": not dry_run}))
        return
    for change in told:
        click.echo(make_inert(f"{'removed' if change['removed'] else 'written'}: {change['path']}"))
    click.echo("nothing was done" if dry_run else f"{pluralize(len(told), 'file')} changed", err=True)


def _print_removal(done: Any, **said: Any) -> int:
    """Say what was let go; exit 1 where --yes or --dry-run is missing."""
    from flightlog.cli.dataset_output import removal_lines
    from flightlog.cli.output import print_json

    if said["as_json"]:
        print_json(done)
    for line in () if said["as_json"] else removal_lines(done):
        click.echo(make_inert(line))
    if not (said["yes"] or said["dry_run"]):
        click.echo("nothing was done; add --yes to do it", err=True)
    return 0 if said["yes"] or said["dry_run"] else 1


def _print_compaction(done: object, *, err: bool) -> None:
    from flightlog.cli.dataset_output import compaction_lines

    for line in compaction_lines(done):
        click.echo(line, err=err)
