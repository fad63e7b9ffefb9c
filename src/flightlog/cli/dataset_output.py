"""What the dataset commands say to a person."""

from collections.abc import Iterator
from typing import Any

import msgspec

from flightlog.dataset.compact import Compaction
from flightlog.dataset.remote import RemoteSafety
from flightlog.dataset.retention import RemovalReport
from flightlog.model.text import pluralize


def compaction_lines(done: Any) -> Iterator[str]:
    """Tell what a compaction did."""
    assert isinstance(done, Compaction)
    would = "would be " if done.dry_run else ""
    into = "the base files" if done.into == "base" else "one shard, because this is not the default branch"
    yield f"{pluralize(done.shards, 'shard')} {would}folded into {into}"
    told = ", ".join(f"{number:,} {kind}" for kind, number in done.rows.items()) or "no rows"
    yield f"{told}; {done.repeats:,} repeated, {pluralize(done.older, 'older version')}, {done.gone:,} gone for good"
    if done.restored:
        yield f"{pluralize(done.restored, 'row')} came back from shards that history had dropped"
    yield f"{done.bytes_before:,} bytes before, {done.bytes_after:,} after"
    for path in done.set_aside:
        yield f"could not be read whole, copied aside: {path}"
    if done.commit:
        yield f"committed as {done.commit[:12]}, a merge: git picks, reverts and rebases around it"
    elif done.commit is not None:
        elsewhere = "commit shards like any other file: git add .git-ml"
        yield "nothing to commit, the base files are as they were" if done.into == "base" else elsewhere
    elif done.into == "base" and done.shards and not done.dry_run:
        yield "to commit it: flightlog dataset tracked compact --commit"


def removal_lines(done: RemovalReport) -> Iterator[str]:
    """Tell which rows went, what repeats them, and how to remove them from history."""
    would = "" if done.done else "would be "
    kinds = ", ".join(pluralize(number, kind) for kind, number in done.counts.items()) or "no row"
    yield f"{kinds} {would}removed; {pluralize(len(done.stripped), 'other row')} {would}without their words"
    yield from (f"{would}removed, it repeats them: {path}" for path in done.files_removed)
    for path in done.files_left:
        is_row_file = path.startswith(".git-ml/tracked")
        yield f"holds them until {'the default branch is compacted' if is_row_file else 'you delete it'}: {path}"
    versions = pluralize(done.versions_in_history, "version")
    yield f"git history holds them in {versions} of files{'; to remove them there:' if done.commands else ''}"
    yield from (f"  {command}" for command in done.commands)


def stats_lines(told: dict[str, Any]) -> Iterator[str]:
    """Tell what a dataset amounts to."""
    have = told["counts"]
    yield ", ".join(f"{number:,} {name}" for name, number in have.items())
    yield f"{told['bytes']:,} bytes tracked, {pluralize(told['pending'], 'shard')} not compacted"
    spent = told["tokens"]
    yield f"{spent['input']:,} input, {spent['output']:,} output tokens, each response counted once"
    for name, one in told["milestones"].items():
        needs = ", ".join(f"{number:,} {what}" for what, number in one["needs"].items())
        yield f"{one['percent']:>5}%  {name.replace('_', ' ')} ({needs})"
    yield f"quality {told['quality']['score']} of 100"
    if told["words"]["chats_without_words"]:
        yield f"{pluralize(told['words']['chats_without_words'], 'chat')} without words"
    yield safety_line(msgspec.convert(told["safety"], RemoteSafety), told["now_ms"])


def safety_line(safe: Any, now_ms: int) -> str:
    """Tell what would be lost if this machine went now."""
    if not safe.last_record_ms:
        return "none yet"
    if not safe.last_safe_ms:
        return "nothing of it is safe elsewhere yet: commit and push, or flightlog dataset push"
    age = format_age(now_ms - safe.last_safe_ms)
    behind = (safe.last_record_ms - safe.last_safe_ms) // 1000
    if behind <= 0 and not safe.shards_unsafe:
        return f"all of it is safe elsewhere, the last record of {age} ago too"
    unsafe = pluralize(safe.shards_unsafe, "shard")
    return f"the last record that is safe elsewhere is {age} old, {unsafe} not: flightlog dataset push"


def format_age(ms: int) -> str:
    """Tell an age in its largest unit."""
    seconds = max(ms, 0) // 1000
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return pluralize(seconds // size, unit)
    return pluralize(seconds, "second")
