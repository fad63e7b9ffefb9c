"""`flightlog init`, `doctor` and `config`."""

import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.structs import replace

from flightlog.agents import agent_label
from flightlog.app.runtime import open_runtime
from flightlog.cli.options import check_agent_or_all
from flightlog.cli.output import (
    Progress,
    format_examples,
    format_value,
    json_option,
    print_json,
    print_table,
    repeat_command,
    wrap_words,
)
from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.text import make_inert, pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flightlog.model.runtime import ConfigValue
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
    _check_template(values)
    if as_json:
        print_json(list(values.values()))
        return
    heads = ["setting", "value", *(["from"] if origin else []), "meaning"]
    rows = []
    for setting in SETTINGS:
        value = values[setting.name]
        origins = [value.origin] if origin else []
        rows.append([setting.name, format_value(value.value), *origins, setting.help])
    print_table(heads, rows)


def _check_template(values: "Mapping[str, ConfigValue]") -> None:
    from flightlog.live.layout import check_template

    template = values["statusline.template"]
    check_template(str(template.value), template.origin)


@click.command(epilog=format_examples("flightlog doctor --json", "flightlog doctor --verify"))
@click.option("--fix", is_flag=True, help="Repair what can be repaired; deletes nothing.")
@click.option(
    "--formats", "by_format", is_flag=True, help="Show what each agent records; report new formats."
)
@click.option(
    "--verify", "by_manifest", is_flag=True,
    help="Read the archive and restore damaged files from the agent's.",
)  # fmt: skip
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
    fidelity: list[dict[str, Any]] = []
    if by_format:
        from flightlog.setup.format_drift import check_formats, list_fidelity, tabulate_fidelity

        findings, fidelity = check_formats(runtime), list_fidelity()
    else:
        repairs = repair_installation(runtime) if fix else []
        with closing(Progress("reading sessions")) as progress:
            findings = [*repairs, *examine_installation(runtime, progress)]
    if as_json:
        print_json([*findings, *fidelity])
    else:
        if fidelity:
            print_table(*tabulate_fidelity(fidelity))
            click.echo()
        for finding in findings:
            head = f"{finding.level.value:8}{finding.subject:12}"
            click.echo(wrap_words(make_inert(finding.message), head, 20))
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
    line = f"{pluralize(report.sessions, 'session')} verified, {repaired} repaired, {len(unrepaired):,} left"
    click.echo(line)
    for message in report.locked:
        click.echo(f"not verified: {make_inert(message)}", err=True)
    return code


@click.command(epilog=format_examples("flightlog init --dry-run", "flightlog init --agent all"))
@click.option(
    "--agent", default=DEFAULT_AGENT, metavar="NAME", callback=check_agent_or_all,
    help="An agent, or all (claude-code).",
)  # fmt: skip
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
def init(*, agent: str, scope: str, dataset: bool | None, words: bool | None, **flags: Any) -> int:
    """Register the recording hook with an agent."""
    from flightlog.cli.dataset_output import offer_dataset
    from flightlog.setup.init import InitRequest, list_init_agents
    from flightlog.store.directories import ensure_writable, find_existing

    runtime, options = open_runtime(), InitFlags(**flags)
    if (dataset or words) and scope != "project":
        hint = "flightlog init --project --dataset"
        raise Invalid("--dataset and --words are for one project", hint=hint)
    if not options.remove:
        ensure_writable(Path(runtime.data_dir))
        present = find_existing(Path(runtime.data_dir))
        if not os.access(present, os.W_OK | os.X_OK):
            raise Unavailable(f"not writable: {present}", hint=f"chmod u+rwx {present}")
        _check_template(runtime.config)
    request = InitRequest(scope=scope, cwd=Path(runtime.cwd))
    names = list_init_agents(runtime, agent)
    codes = [_init_agent(runtime, replace(request, agent=name), options) for name in names]
    if scope == "project" and not any(codes) and not (options.remove or options.dry_run):
        ask = not (options.yes or options.as_json)
        offer_dataset(runtime, request.cwd, wanted=dataset, words=words, ask=ask)
    return max(codes)


class InitFlags(NamedTuple):
    """The options of `init` that apply to each agent."""

    yes: bool
    remove: bool
    dry_run: bool
    keep_days: int | None
    guard: bool
    statusline: bool
    inline: bool
    as_json: bool


def _init_agent(runtime: Runtime, request: "InitRequest", flags: InitFlags) -> int:
    """Register the hook with one agent, or remove it; return the exit code."""
    from flightlog.setup.hook_check import find_plugin, list_init_notes
    from flightlog.setup.init import find_hook_settings, plan_change, plan_removal, wants_guard
    from flightlog.setup.install import InstallOptions

    remove, dry_run, as_json = flags.remove, flags.dry_run, flags.as_json
    label, is_default = agent_label(request.agent), request.agent == DEFAULT_AGENT
    plugin = find_plugin(runtime, request.agent)
    if find_hook_settings(request.agent) is None:
        # Some of these agents have hooks of their own; flightlog does not use them.
        way = "`flightlog settle` finds its sessions by their files"
        way = f"the plugin's own hook records; to remove it: {plugin}" if plugin else way
        click.echo(f"no hook is registered with {label}: {way}", err=as_json)
        return 0
    if flags.keep_days and not is_default:
        click.echo(f"--keep-days does not apply to {label}", err=True)
    ask = is_default and not (flags.yes or dry_run or as_json)
    days = 0 if remove else flags.keep_days or _ask_keep_days(runtime, request, ask=ask)
    options = InstallOptions(days, inline=flags.inline, statusline=flags.statusline)
    change = plan_removal(runtime, request) if remove else plan_change(runtime, request, options)
    if not as_json:
        _print_diff(change, is_short=dry_run)
    for note in () if remove else list_init_notes(change.before, statusline=flags.statusline):
        click.echo(note, err=True)
    guards = flags.guard and is_default and wants_guard(runtime, request, remove=remove)
    if guards:
        outcome = "removed" if remove else "installed"
        click.echo(f"the guard on commits and pushes here will be {outcome}", err=True)
    is_asked = not (flags.yes or dry_run) and (change.is_needed or guards)
    agreed = not is_asked or _confirm_write(as_json=as_json)
    is_applied = agreed and not dry_run
    backup = _apply_change(runtime, request, change, remove=remove) if is_applied else None
    written = is_applied and change.is_needed
    if guards and is_applied:
        _change_guard(runtime, request, remove=remove)
    if as_json:
        click.echo(json.dumps(_change_fields(change, written=written, backup=backup)))
    _print_change(None if dry_run else change, backup, written=written)
    if plugin and not as_json:
        now = "records from now on" if remove else "ends at once while this hook is registered"
        click.echo(f"the plugin's own hook {now}; to remove it: {plugin}", err=True)
    if written and not (remove or is_default):
        click.echo(f"{label} asks you to trust the hook before it runs it", err=True)
    return 0 if agreed else 1


def _print_diff(change: "SettingsChange", *, is_short: bool = False) -> None:
    from flightlog.setup.install import format_diff, summarize_change

    text = summarize_change(change) if is_short else format_diff(change)
    if is_short and text:
        text += f"; to see them: {repeat_command(json=True)}"
    click.echo(make_inert(text) or f"nothing to change: {change.settings}")


def _apply_change(
    runtime: Runtime, request: "InitRequest", change: "SettingsChange", *, remove: bool
) -> Path | None:
    """Write the settings, noted for `uninstall`; return the backup, if one was made."""
    from flightlog.setup.init import note_init
    from flightlog.setup.install import apply_change

    if not remove:
        note_init(runtime, request)
    return apply_change(change)


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
