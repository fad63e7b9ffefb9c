"""`flightlog init`, `doctor`, `config`, `trust` and `settle`."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import (
    Progress,
    format_examples,
    format_value,
    json_option,
    print_json,
    print_table,
)
from flightlog.model.errors import ConsentNeeded, Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.text import make_inert, pluralize

if TYPE_CHECKING:
    from flightlog.recorder.settle import SettleReport
    from flightlog.setup.doctor import ArchiveVerification
    from flightlog.setup.init import InitRequest
    from flightlog.setup.install import SettingsChange


@click.group(epilog="Example: flightlog config show --origin")
def config() -> None:
    """Show the settings and where each comes from."""


@config.command(epilog="Example: flightlog config show --origin")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@json_option()
def show(*, origin: bool, as_json: bool) -> None:
    """Show every setting and its value."""
    from flightlog.app.config import SETTINGS

    values = open_runtime().config
    if as_json:
        print_json(list(values.values()))
        return
    heads = ["setting", "value", *(["from"] if origin else []), "meaning"]
    rows = [
        [
            setting.name,
            format_value(values[setting.name].value),
            *([values[setting.name].origin] if origin else []),
            setting.help,
        ]
        for setting in SETTINGS
    ]
    print_table(heads, rows)


@click.command(epilog=format_examples("flightlog doctor --json", "flightlog doctor --verify"))
@click.option("--fix", is_flag=True, help="Repair what can be repaired; deletes nothing.")
@click.option(
    "--formats", "by_format", is_flag=True, help="Show what each agent records; report new formats."
)
@click.option(
    "--verify",
    "by_manifest",
    is_flag=True,
    help="Read the archive and restore damaged files from the agent's.",
)
@json_option("Print the findings as JSON.")
def doctor(*, fix: bool, by_format: bool, by_manifest: bool, as_json: bool) -> int:
    """Check the installation and report problems.

    Exit 3 if data is damaged, 1 if events were lost or the disk is full.
    """
    from flightlog.setup.doctor import (
        CheckLevel,
        examine_installation,
        repair_installation,
        verify_archive,
    )

    runtime = open_runtime()
    if by_manifest:
        with closing(Progress("verifying the archive")) as progress:
            report = verify_archive(runtime, progress, accept=fix)
        return _print_verification(report, as_json=as_json)
    kept: list[dict[str, Any]] = []
    if by_format:
        from flightlog.setup.formats import check_formats, list_fidelity, tabulate_fidelity

        findings, kept = check_formats(runtime), list_fidelity()
    else:
        repairs = repair_installation(runtime) if fix else []
        with closing(Progress("reading sessions")) as progress:
            findings = [*repairs, *examine_installation(runtime, progress)]
    if as_json:
        print_json([*findings, *kept])
    else:
        if kept:
            print_table(*tabulate_fidelity(kept))
            click.echo()
        for finding in findings:
            click.echo(f"{finding.level.value:8}{finding.subject:12}{make_inert(finding.message)}")
            if finding.next_command and finding.level is not CheckLevel.OK:
                click.secho(f"{'':20}{make_inert(finding.next_command)}", fg="cyan")
    levels = {finding.level for finding in findings}
    return 3 if CheckLevel.DAMAGE in levels else 1 if CheckLevel.FAILURE in levels else 0


def _print_verification(report: "ArchiveVerification", *, as_json: bool) -> int:
    unrepaired = [fault for fault in report.faults if not fault.repair]
    code = 3 if unrepaired else 75 if report.locked else 0
    if as_json:
        print_json(report)
        return code
    session = ""
    for fault in report.faults:
        if fault.session != session:
            session = fault.session
            click.echo(f"session {make_inert(session)}")
        done = f"; {fault.repair}" if fault.repair else ""
        click.echo(f"  {fault.kind:11}{make_inert(f'{fault.file}: {fault.message}{done}')}")
    repaired = pluralize(len(report.faults) - len(unrepaired), "fault")
    click.echo(
        f"{pluralize(report.sessions, 'session')} verified, {repaired} repaired, {len(unrepaired):,} left"
    )
    for message in report.locked:
        click.echo(f"not verified: {make_inert(message)}", err=True)
    return code


@click.command(epilog="Example: flightlog init --dry-run")
@click.option(
    "--user", "scope", flag_value="user", default="user", help="For all your projects (default)."
)
@click.option(
    "--project", "scope", flag_value="project", help="For the project in this directory only."
)
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--remove", is_flag=True, help="Remove the hook.")
@click.option("--dry-run", is_flag=True, help="Show the change without writing it.")
@click.option(
    "--keep-days", type=click.IntRange(1), help="Days for which the agent keeps transcripts."
)
@click.option(
    "--guard/--no-guard", default=True, help="With --project: block commits and pushes of secrets."
)
@click.option(
    "--statusline/--no-statusline",
    default=True,
    help="Install our status line, unless you have another.",
)
@click.option(
    "--dataset/--no-dataset", default=None, help="With --project: collect training rows here."
)
@click.option(
    "--words/--no-words", default=None, help="With --dataset: track prompts and answers, redacted."
)
@click.option(
    "--inline", is_flag=True, help="Archive before the agent continues, for short-lived machines."
)
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
    """Register the recording hook with Claude Code."""
    from flightlog.setup.init import InitRequest, plan_change, plan_removal, wants_guard
    from flightlog.setup.install import InstallOptions, apply_change, has_other_status_line
    from flightlog.store.directories import ensure_writable

    runtime = open_runtime()
    request = InitRequest(scope=scope, cwd=Path(runtime.cwd))
    if not remove:
        ensure_writable(Path(runtime.data_dir))
    ask = not (yes or dry_run or as_json)
    days = 0 if remove else keep_days or _ask_keep_days(runtime, request, ask=ask)
    options = InstallOptions(days, inline=inline, statusline=statusline)
    change = plan_removal(runtime, request) if remove else plan_change(runtime, request, options)
    if not as_json:
        _print_diff(change, is_short=dry_run)
    if statusline and not remove and has_other_status_line(change.before):
        message = "your own status line is kept; to preview ours: flightlog live statusline"
        click.echo(message, err=True)
    guards = guard and wants_guard(runtime, request, remove=remove)
    if guards:
        outcome = "removed" if remove else "installed"
        click.echo(f"the guard on commits and pushes here will be {outcome}", err=True)
    agreed = yes or dry_run or not (change.is_needed or guards) or _confirm_write(as_json=as_json)
    backup = apply_change(change) if agreed and not dry_run else None
    written = agreed and not dry_run and change.is_needed
    if guards and agreed and not dry_run:
        _change_guard(runtime, request, remove=remove)
    if scope == "project" and agreed and not (remove or dry_run):
        _offer_dataset(runtime, request.cwd, wanted=dataset, words=words, ask=not (yes or as_json))
    if as_json:
        click.echo(json.dumps(_change_fields(change, written=written, backup=backup)))
    _print_change(None if dry_run else change, backup, written=written)
    return 0 if agreed else 1


def _print_diff(change: "SettingsChange", *, is_short: bool = False) -> None:
    from flightlog.setup.install import format_diff, summarize_change

    text = summarize_change(change) if is_short else format_diff(change)
    click.echo(make_inert(text) or f"nothing to change: {change.settings}")


def _change_guard(runtime: Runtime, request: "InitRequest", *, remove: bool) -> None:
    from flightlog.setup.init import change_guard

    for hook in change_guard(runtime, request, remove=remove):
        click.echo(f"guard {'removed' if remove else 'installed'}: {hook.name}", err=True)


def _ask_keep_days(runtime: Runtime, request: "InitRequest", *, ask: bool) -> int:
    """Ask at a terminal whether the agent keeps its transcripts longer; return days, or 0."""
    from flightlog.setup.init import LONG_DAYS, current_keep_days
    from flightlog.setup.install import DAYS_KEY

    days = current_keep_days(runtime, request)
    if not ask or not sys.stdin.isatty() or days >= LONG_DAYS:
        return 0
    now = f"Claude Code deletes transcripts after {pluralize(days, 'day')}."
    question = f"{now} Have it keep them for {LONG_DAYS} ({DAYS_KEY})?"
    return LONG_DAYS if click.confirm(question, default=False, err=True) else 0


def _offer_dataset(
    runtime: Runtime, folder: Path, *, wanted: bool | None, words: bool | None, ask: bool
) -> None:
    """Start a dataset if wanted. Ask at a terminal, about words only the first time."""
    ask = ask and sys.stdin.isatty()
    if wanted is None and ask:
        wanted = click.confirm(
            "Collect training rows from sessions here, in .git-ml/tracked?", default=False, err=True
        )
    if not wanted:
        return
    from flightlog.setup.init import has_words_setting, init_dataset

    if words is None and ask and not has_words_setting(folder):
        words = click.confirm("Track redacted prompts and answers too? All readers of the repository see them.",
                              default=False, err=True)  # fmt: skip
    for line in init_dataset(runtime, folder, words=words):
        click.echo(make_inert(line), err=True)


def _confirm_write(*, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        return False
    return click.confirm("Write this?", default=True, err=True)


def _change_fields(
    change: "SettingsChange", *, written: bool, backup: Path | None
) -> dict[str, object]:
    from flightlog.setup.install import format_diff

    return {
        "settings_path": str(change.settings),
        "events": list(change.events),
        "is_needed": change.is_needed,
        "is_written": written,
        "backup_path": str(backup) if backup else None,
        "diff": format_diff(change),
    }


def _print_change(wanted: "SettingsChange | None", backup: Path | None, *, written: bool) -> None:
    if backup:
        click.echo(f"backup: {backup}", err=True)
    if written:
        click.echo("written; it applies to sessions started from now on", err=True)
    elif wanted and wanted.is_needed:
        click.echo("nothing was written; add --yes to write it", err=True)


@click.command(epilog=format_examples("flightlog settle", "flightlog settle 2123f2df"))
@click.argument("session_id", required=False)
@click.option("--ended", is_flag=True, hidden=True, help="The session has ended (for the hook).")
@json_option("Print what was done as JSON.")
def settle(session_id: str | None, *, ended: bool, as_json: bool) -> int:
    """Archive new session data, update the index. Without an id, archive all sessions."""
    from flightlog.model.addresses import parse_address
    from flightlog.recorder.settle import settle_all, settle_one

    runtime = open_runtime()
    if session_id:
        report = settle_one(runtime, parse_address(session_id).session, is_ended=ended)
    else:
        with closing(Progress("archiving session")) as progress:
            report = settle_all(runtime, progress)
    if as_json:
        print_json(report)
    else:
        sealed = f", {pluralize(report.sealed_files, 'file')} sealed" if report.sealed_files else ""
        click.echo(
            f"{pluralize(report.sessions, 'session')} archived, {report.adopted_bytes:,} new bytes{sealed}"
        )
    _print_failures(report)
    return 1 if report.failures else 75 if report.locked else 0


def _print_failures(report: "SettleReport") -> None:
    for line in report.failures:
        click.echo(f"not archived: {make_inert(line)}", err=True)
    for line in report.locked:
        click.echo(f"not archived, busy: {make_inert(line)}", err=True)
    for fault in report.faults:
        repair = f"; {fault.repair}" if fault.repair else ": flightlog doctor --verify"
        text = f"{fault.session}/{fault.file}: {fault.kind}, {fault.message}{repair}"
        click.echo(f"damaged: {make_inert(text)}", err=True)


@click.command(epilog=format_examples("flightlog trust --yes", "flightlog trust runs/their-run"))
@click.argument("target", default=".")
@click.option("--yes", is_flag=True, help="Allow what is shown.")
@click.option("--revoke", is_flag=True, help="Revoke the consent.")
@json_option("Print the permissions as JSON.")
def trust(target: str, *, yes: bool, revoke: bool, as_json: bool) -> int:
    """Allow what a repository, run or plan may do.

    Shows what TARGET would publish, send or run; --yes allows it. TARGET is a repository (this one
    by default), a run, a loop session, or the address of an API. Exit 1 if it is not allowed.
    """
    from flightlog.app import consent

    runtime = open_runtime()
    if yes and revoke:
        raise Invalid("--yes and --revoke exclude each other", hint="use only one of them")
    subject = consent.find_target(runtime, target)
    if revoke:
        had_consent = consent.revoke_consent(runtime, subject)
        click.echo("consent revoked" if had_consent else "there was no consent", err=True)
        click.echo(
            "to remove the words of existing rows: flightlog dataset strip-words --yes", err=True
        )
    if yes:
        consent.grant_consent(runtime, subject)
    subject = consent.find_target(runtime, target)
    report: dict[str, Any] = {
        "kind": subject.kind,
        "name": subject.name,
        "effects": subject.allows,
        "is_trusted": subject.is_trusted,
    }
    if subject.kind == "repository":
        report["dataset"] = consent.describe_dataset(runtime, Path(subject.name))
    click.echo(json.dumps(report, default=str)) if as_json else _print_report(report)
    return 0 if subject.is_trusted else 1


def ask_consent(needed: ConsentNeeded) -> bool:
    """Show the effects, ask for consent at a terminal and record it; return the answer."""
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
    _print_effects(report["effects"], err=False)
    for name, allowed in report.get("dataset", {}).get("sources", {}).items():
        click.echo(f"training rows by {name}: {', '.join(allowed) or 'no'}", err=True)
    if not report["effects"]:
        click.echo("it publishes, sends and runs nothing", err=True)
    else:
        click.echo(
            "trusted" if report["is_trusted"] else "not trusted; allow it with --yes", err=True
        )


def _print_effects(effects: Any, *, err: bool) -> None:
    for name, value in effects.items():
        click.echo(
            make_inert(f"{name} = {json.dumps(value, default=str, ensure_ascii=False)}"), err=err
        )
