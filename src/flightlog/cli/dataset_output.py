"""Text output and questions of the dataset commands."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from flightlog.cli.output import print_json
from flightlog.dataset.compact import Compaction
from flightlog.dataset.extract.sync import SyncReport
from flightlog.dataset.remote import RemoteSafety
from flightlog.dataset.retention import RemovalReport
from flightlog.model.retention import RetentionMove
from flightlog.model.runtime import Runtime
from flightlog.model.text import format_age, make_inert, pluralize
from flightlog.setup.init import has_words_setting, init_dataset


def print_sync_notes(report: SyncReport, *, is_off: bool) -> None:
    """Print what keeps the rows of a sync from being useful."""
    if report.is_ignored:
        find = "git check-ignore -v .git-ml/tracked/pending/x.jsonl"
        click.echo(f"git ignores the rows, so they leave with this machine: {find}", err=True)
    if report.has_words or is_off:
        return
    if report.chats_with_words:
        earlier = pluralize(report.chats_with_words, "earlier chat")
        line = f"new rows have no words; {earlier} with words: flightlog dataset strip-words"
        click.echo(line, err=True)
    else:
        line = "words are left out; to track them redacted, set track_words = true under [dataset]"
        click.echo(line, err=True)
        click.echo("  in flightlog.toml, then: flightlog trust --yes", err=True)


def retention_lines(actions: Sequence[RetentionMove], *, is_done: bool) -> Iterator[str]:
    """Yield how many rows of each kind are too old, and the age of the oldest."""
    for kind, number in sorted(Counter(action.item.kind for action in actions).items()):
        oldest = max(action.age_days for action in actions if action.item.kind == kind)
        would = "" if is_done else "would be "
        age = pluralize(oldest, "day")
        yield f"{pluralize(number, f'{kind} row')} {would}removed, the oldest {age} old"


def print_compaction(compaction: Compaction, *, err: bool) -> None:
    """Describe a compaction on stdout, or on stderr if `err`."""
    for line in _compaction_lines(compaction):
        click.echo(line, err=err)


def print_removal(report: RemovalReport, **options: Any) -> int:
    """Print what was removed; return exit code 1 without --yes or --dry-run."""
    if options["as_json"]:
        print_json(report)
    for line in () if options["as_json"] else _removal_lines(report):
        click.echo(make_inert(line))
    if not (options["yes"] or options["dry_run"]):
        click.echo("nothing was removed; add --yes to remove it", err=True)
    return 0 if options["yes"] or options["dry_run"] else 1


def _compaction_lines(compaction: Compaction) -> Iterator[str]:
    would = "would be " if compaction.dry_run else ""
    shard = "one shard, because this is not the default branch"
    into = "the base files" if compaction.target == "base" else shard
    yield f"{pluralize(compaction.shards, 'shard')} {would}merged into {into}"
    counts = (
        ", ".join(f"{number:,} {kind}" for kind, number in compaction.rows.items()) or "no rows"
    )
    older = pluralize(compaction.superseded_rows, "older version")
    yield f"{counts}; {compaction.duplicate_rows:,} repeated, {older}, {compaction.deleted_rows:,} removed"
    if compaction.restored_rows:
        yield f"{pluralize(compaction.restored_rows, 'row')} restored from shards that history had dropped"
    yield f"{compaction.bytes_before:,} bytes before, {compaction.bytes_after:,} after"
    for path in compaction.quarantined_files:
        yield f"damaged, backup copy: {path}"
    if compaction.commit:
        yield f"committed as {compaction.commit[:12]}, a merge commit"
    elif compaction.commit is not None:
        advice = "commit shards like any other file: git add .git-ml"
        unchanged = "nothing to commit, the base files are unchanged"
        yield unchanged if compaction.target == "base" else advice
    elif compaction.target == "base" and compaction.shards and not compaction.dry_run:
        yield "to commit it: flightlog dataset tracked compact --commit"


def _removal_lines(report: RemovalReport) -> Iterator[str]:
    """Yield lines on removed rows, files that repeat them, and how to clean git's history."""
    would = "" if report.is_done else "would be "
    counts = report.deleted_by_kind.items()
    kinds = ", ".join(pluralize(number, kind) for kind, number in counts) or "no row"
    yield f"{kinds} {would}removed; {pluralize(len(report.stripped_rows), 'other row')} {would}stripped of words"
    yield from (f"{would}removed, contains the same rows: {path}" for path in report.removed_files)
    for path in report.remaining_files:
        is_row_file = path.startswith(".git-ml/tracked")
        until = "the default branch is compacted" if is_row_file else "you delete it"
        yield f"still contains them until {until}: {path}"
    versions = pluralize(report.versions_in_history, "version")
    yield f"git history contains them in {versions} of files{'; to remove them there:' if report.commands else ''}"
    yield from (f"  {command}" for command in report.commands)


def stats_lines(stats: dict[str, Any]) -> Iterator[str]:
    """Yield lines that summarize a dataset."""
    yield ", ".join(
        pluralize(number, name.removesuffix("s")) if name.endswith("s") else f"{number:,} {name}"
        for name, number in stats["counts"].items()
    )
    yield f"{stats['total_bytes']:,} bytes tracked, {pluralize(stats['pending_shards'], 'shard')} not compacted"
    tokens = stats["tokens"]
    yield f"{tokens['input_tokens']:,} input, {tokens['output_tokens']:,} output tokens, each response counted once"
    for name, milestone in stats["milestones"].items():
        needs = ", ".join(f"{number:,} {kind}" for kind, number in milestone["needs"].items())
        yield f"{milestone['percent']:>5}%  {name.replace('_', ' ')} ({needs})"
    yield f"quality {stats['quality']['score']} of 100"
    if stats["words"]["chats_without_words"]:
        yield f"{pluralize(stats['words']['chats_without_words'], 'chat')} without words"
    yield safety_line(msgspec.convert(stats["safety"], RemoteSafety), stats["now_ms"])


def safety_line(safe: Any, now_ms: int) -> str:
    """Describe what would be lost with this machine."""
    if not safe.last_row_ms:
        return "no rows yet"
    if not safe.last_pushed_ms:
        return "not backed up yet: commit and push, or flightlog dataset push"
    age = format_age(now_ms - safe.last_pushed_ms)
    behind = (safe.last_row_ms - safe.last_pushed_ms) // 1000
    if behind <= 0 and not safe.unpushed_shards:
        return f"all rows are backed up, the last one {age} ago"
    unsafe = pluralize(safe.unpushed_shards, "shard")
    return f"the last backup is {age} old, {unsafe} not backed up: flightlog dataset push"


def offer_dataset(
    runtime: Runtime, folder: Path, *, wanted: bool | None, words: bool | None, ask: bool
) -> None:
    """Start a dataset if wanted. Ask at a terminal, about words only the first time."""
    ask = ask and sys.stdin.isatty()
    if wanted is None and ask:
        question = "Collect training rows from sessions here, in .git-ml/tracked?"
        wanted = click.confirm(question, default=False, err=True)
    if not wanted:
        return
    if words is None and ask and not has_words_setting(folder):
        words = click.confirm("Track redacted prompts and answers too? All readers of the repository see them.",
                              default=False, err=True)  # fmt: skip
    for line in init_dataset(runtime, folder, words=words):
        click.echo(make_inert(line), err=True)
