"""`flightlog init`: register the hook with the agent, or take it out again."""

import json
import sys
from pathlib import Path

import click

from flightlog.app import open_runtime
from flightlog.app.install import DAYS_KEY, SettingsChange, apply_change, format_diff, has_other_status_line
from flightlog.app.setup import LONG_DAYS, InitRequest, change_guard, current_keep_days, plan_change, wants_guard
from flightlog.cli.output import json_option
from flightlog.model.runtime import Runtime
from flightlog.model.text import make_inert
from flightlog.store.migration import ensure_writable


@click.command(epilog="Example: flightlog init --dry-run")
@click.option("--user", "scope", flag_value="user", default="user", help="For all your projects (the default).")
@click.option("--project", "scope", flag_value="project", help="For the project in this directory only.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--remove", is_flag=True, help="Take the hook out again.")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@click.option("--keep-days", type=click.IntRange(1), help="Have the agent keep its transcripts this long.")
@click.option("--guard/--no-guard", default=True, help="With --project: stop commits and pushes that hold secrets.")
@click.option("--statusline/--no-statusline", default=True, help="Show flightlog's status line; another one stays.")
@click.option("--dataset/--no-dataset", default=None, help="With --project: collect training rows here.")
@click.option("--words/--no-words", default=None, help="With --dataset: track prompts and answers, redacted.")
@click.option("--inline", is_flag=True, help="Settle before the agent goes on, for machines that vanish.")
@json_option("Print the change as JSON.")
def init(  # noqa: PLR0913 - one parameter per option
    *,
    scope: str,
    yes: bool,
    remove: bool,
    dry_run: bool,
    keep_days: int | None,
    guard: bool,
    statusline: bool,
    dataset: bool | None,
    words: bool | None,
    inline: bool,
    as_json: bool,
) -> int:
    """Record every session from now on: register a hook with Claude Code."""
    runtime = open_runtime()
    place = InitRequest(scope=scope, cwd=Path(runtime.cwd))
    if not remove:
        ensure_writable(Path(runtime.data_dir))
    days = 0 if remove else keep_days or _ask_keep_days(runtime, place, ask=not (yes or dry_run or as_json))
    change = plan_change(runtime, place, remove=remove, keep_days=days, inline=inline, statusline=statusline)
    if not as_json:
        click.echo(make_inert(format_diff(change)) or f"nothing to change: {change.settings}")
    if statusline and not remove and has_other_status_line(change.before):
        click.echo("another status line is there and stays; what ours shows: flightlog live statusline", err=True)
    guards = guard and wants_guard(runtime, place, remove=remove)
    if guards:
        click.echo(f"{'without' if remove else 'with'} the guard before commits and pushes here", err=True)
    agreed = yes or dry_run or not (change.is_needed or guards) or _confirm_write(as_json=as_json)
    kept = apply_change(change) if agreed and not dry_run else None
    written = agreed and not dry_run and change.is_needed
    for hook in change_guard(runtime, place, remove=remove) if guards and agreed and not dry_run else ():
        click.echo(f"guard {'taken out' if remove else 'installed'}: {hook.name}", err=True)
    if scope == "project" and agreed and not (remove or dry_run):
        _offer_dataset(runtime, place.cwd, wanted=dataset, words=words, ask=not (yes or as_json))
    if as_json:
        click.echo(json.dumps(_change_fields(change, written=written, kept=kept)))
    _print_change(change, written=written, kept=kept, dry_run=dry_run)
    return 0 if agreed else 1


def _ask_keep_days(runtime: Runtime, place: InitRequest, *, ask: bool) -> int:
    """Ask whether the agent shall keep its transcripts longer; only a person at a terminal is asked."""
    days = current_keep_days(runtime, place)
    if not ask or not sys.stdin.isatty() or days >= LONG_DAYS:
        return 0
    question = f"Claude Code deletes transcripts after {days} days. Have it keep them for {LONG_DAYS} ({DAYS_KEY})?"
    return LONG_DAYS if click.confirm(question, default=False, err=True) else 0


def _offer_dataset(runtime: Runtime, folder: Path, *, wanted: bool | None, words: bool | None, ask: bool) -> None:
    """Begin a dataset if that is wanted; a person at a terminal is asked, about words only once."""
    ask = ask and sys.stdin.isatty()
    if wanted is None and ask:
        wanted = click.confirm("Collect training rows of sessions here, in .git-ml/tracked?", default=False, err=True)
    if not wanted:
        return
    from flightlog.app.dataset_setup import has_words_setting, init_dataset

    if words is None and ask and not has_words_setting(folder):
        words = click.confirm("Track prompts and answers too, redacted? Everybody with the repository reads them.",
                              default=False, err=True)  # fmt: skip
    for line in init_dataset(runtime, folder, words=words):
        click.echo(make_inert(line), err=True)


def _confirm_write(*, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        return False
    return click.confirm("Write this?", default=True, err=True)


def _change_fields(change: SettingsChange, *, written: bool, kept: Path | None) -> dict[str, object]:
    return {
        "settings": str(change.settings),
        "events": list(change.events),
        "needed": change.is_needed,
        "written": written,
        "backup": str(kept) if kept else None,
        "diff": format_diff(change),
    }


def _print_change(change: SettingsChange, *, written: bool, kept: Path | None, dry_run: bool) -> None:
    if kept:
        click.echo(f"the file as it was: {kept}", err=True)
    if written:
        click.echo("written; sessions started from now on follow it", err=True)
    elif change.is_needed and not dry_run:
        click.echo("nothing was written; add --yes to write it", err=True)
