"""Init, doctor, config, trust, settle."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import Progress, format_examples, json_option, print_json
from flightlog.model.errors import ConsentNeeded, Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.text import make_inert, pluralize
from flightlog.setup.init import (
    LONG_DAYS,
    InitRequest,
    change_guard,
    current_keep_days,
    plan_change,
    plan_removal,
    wants_guard,
)
from flightlog.setup.install import (
    DAYS_KEY,
    InstallOptions,
    SettingsChange,
    apply_change,
    format_diff,
    has_other_status_line,
)
from flightlog.store.directories import ensure_writable

if TYPE_CHECKING:
    from flightlog.recorder.settle import SettleReport


@click.group(epilog="Example: flightlog config show --origin")
def config() -> None:
    """Show the settings in force."""


@config.command(epilog="Example: flightlog config show --origin")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@json_option()
def show(*, origin: bool, as_json: bool) -> None:
    """Show every setting and its value."""
    from flightlog.app.config import SETTINGS
    from flightlog.cli.output import print_json, print_table

    values = open_runtime().config
    if as_json:
        print_json(list(values.values()))
        return
    heads = ["setting", "value", *(["from"] if origin else []), "meaning"]
    rows = [
        [each.name, str(values[each.name].value), *([values[each.name].origin] if origin else []), each.help]
        for each in SETTINGS
    ]
    print_table(heads, rows)


@click.command(epilog=format_examples("flightlog doctor --json", "flightlog doctor --verify"))
@click.option("--fix", is_flag=True, help="Put right what can be put right; never deletes anything.")
@click.option("--formats", "by_format", is_flag=True, help="Hold what the agent writes against the formats on file.")
@click.option("--verify", "by_manifest", is_flag=True, help="Read the archive back, restore what the agent still has.")
@json_option("Print the findings as JSON.")
def doctor(*, fix: bool, by_format: bool, by_manifest: bool, as_json: bool) -> int:
    """Check that everything is in order; exit code 3 means damaged data, 1 lost events or a full disk."""
    from flightlog.cli.output import Progress, print_json
    from flightlog.model.text import make_inert
    from flightlog.setup.doctor import CheckLevel, check_formats, examine_installation, repair_installation

    runtime = open_runtime()
    if by_manifest:
        return _run_verify(runtime, accept=fix, as_json=as_json)
    progress = Progress("reading sessions")
    findings = (
        check_formats(runtime)
        if by_format
        else [*(repair_installation(runtime) if fix else []), *examine_installation(runtime, progress)]
    )
    progress.close()
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            click.echo(f"{finding.level.value:8}{finding.about:12}{make_inert(finding.text)}")
            if finding.next and finding.level is not CheckLevel.OK:
                click.secho(f"{'':20}{make_inert(finding.next)}", fg="cyan")
    levels = {finding.level for finding in findings}
    return 3 if CheckLevel.DAMAGE in levels else 1 if CheckLevel.FAILURE in levels else 0


def _run_verify(runtime: Runtime, *, accept: bool, as_json: bool) -> int:
    from flightlog.cli.output import Progress, print_json
    from flightlog.model.text import make_inert, pluralize
    from flightlog.setup.doctor import verify_archive

    progress = Progress("reading the archive back")
    found = verify_archive(runtime, progress, accept=accept)
    progress.close()
    left = [fault for fault in found.faults if not fault.repaired]
    code = 3 if left else 75 if found.busy else 0
    if as_json:
        print_json(found)
        return code
    session = ""
    for fault in found.faults:
        if fault.session != session:
            session = fault.session
            click.echo(f"session {make_inert(session)}")
        done = f"; {fault.repaired}" if fault.repaired else ""
        click.echo(f"  {fault.what:11}{make_inert(f'{fault.file}: {fault.text}{done}')}")
    repaired = pluralize(len(found.faults) - len(left), "fault")
    click.echo(f"{pluralize(found.sessions, 'session')} read back, {repaired} repaired, {len(left):,} left")
    for message in found.busy:
        click.echo(f"not read back: {make_inert(message)}", err=True)
    return code


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
    options = InstallOptions(days, inline=inline, statusline=statusline)
    change = plan_removal(runtime, place) if remove else plan_change(runtime, place, options)
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
    from flightlog.setup.init import has_words_setting, init_dataset

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


@click.command(epilog=format_examples("flightlog settle", "flightlog settle 2123f2df"))
@click.argument("session_id", required=False)
@json_option("Print what was done as JSON.")
def settle(session_id: str | None, *, as_json: bool) -> int:
    """Keep sessions for good: copy what is new, bring the index up to date; without an id, all of them."""
    from flightlog.app.runtime import open_runtime
    from flightlog.model.addresses import parse_address
    from flightlog.recorder.settle import settle_all, settle_one

    runtime = open_runtime()
    if session_id:
        report = settle_one(runtime, parse_address(session_id).session)
    else:
        progress = Progress("keeping session")
        try:
            report = settle_all(runtime, progress)
        finally:
            progress.close()
    if as_json:
        print_json(report)
    else:
        sealed = f", {pluralize(report.sealed, 'file')} sealed" if report.sealed else ""
        click.echo(f"{pluralize(report.sessions, 'session')} kept, {report.bytes_adopted:,} new bytes{sealed}")
    _print_failures(report)
    return 1 if report.failed else 75 if report.busy else 0


def _print_failures(report: "SettleReport") -> None:
    for line in report.failed:
        click.echo(f"not kept: {make_inert(line)}", err=True)
    for line in report.busy:
        click.echo(f"not kept now: {make_inert(line)}", err=True)
    for fault in report.damage:
        repair = f"; {fault.repaired}" if fault.repaired else ": flightlog doctor --verify"
        text = f"{fault.session}/{fault.file}: {fault.what}, {fault.text}{repair}"
        click.echo(f"damaged: {make_inert(text)}", err=True)


@click.command(epilog=format_examples("flightlog trust --yes", "flightlog trust runs/their-run"))
@click.argument("target", default=".")
@click.option("--yes", is_flag=True, help="Allow what is shown.")
@click.option("--revoke", is_flag=True, help="Take consent back.")
@json_option("Print what it allows as JSON.")
def trust(target: str, *, yes: bool, revoke: bool, as_json: bool) -> int:
    """Show what TARGET would publish, send or run, and allow it with --yes; exit 1 if not allowed.

    TARGET is a repository (this one by default), a run, a loop session, or the address of an API.
    """
    from flightlog.app import consent

    runtime = open_runtime()
    if yes and revoke:
        raise Invalid("--yes and --revoke cannot go together", hint="leave one of them out")
    found = consent.find_target(runtime, target)
    if revoke:
        click.echo("consent taken back" if consent.revoke_consent(runtime, found) else "there was no consent", err=True)
        click.echo("training rows keep their words until: flightlog dataset strip-words --yes", err=True)
    if yes:
        consent.grant_consent(runtime, found)
    found = consent.find_target(runtime, target)
    report: dict[str, Any] = {found.kind: found.name, "allows": found.allows, "trusted": found.trusted}
    if found.kind == "repository":
        report["dataset"] = consent.describe_dataset(runtime, Path(found.name))
    if as_json:
        click.echo(json.dumps(report, default=str))
    else:
        _print_report(report)
    return 0 if found.trusted else 1


def ask_consent(needed: ConsentNeeded) -> bool:
    """Show what something foreign would do, ask a person at a terminal, and record a yes; return whether it was one."""
    _print_effects(needed.effects, err=True)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    click.echo(make_inert(needed.message), err=True)
    try:
        agreed = click.confirm("Allow exactly this?", default=False, err=True)
    except click.Abort:
        return False
    if agreed:
        from flightlog.privacy.trust import open_trust

        open_trust(open_runtime()).grant(needed.subject, needed.effects)
    return agreed


def _print_report(report: dict[str, Any]) -> None:
    _print_effects(report["allows"], err=False)
    for name, allowed in report.get("dataset", {}).get("sources", {}).items():
        click.echo(f"training rows by {name}: {', '.join(allowed) or 'no'}", err=True)
    if not report["allows"]:
        click.echo("nothing here publishes or runs anything", err=True)
    else:
        click.echo("trusted" if report["trusted"] else "not trusted; allow it with --yes", err=True)


def _print_effects(effects: Any, *, err: bool) -> None:
    for name, value in effects.items():
        click.echo(make_inert(f"{name} = {json.dumps(value, default=str, ensure_ascii=False)}"), err=err)
