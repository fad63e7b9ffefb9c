"""`flightlog trust`: a person allows what a repository, a run, a loop session or an address may do."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from flightlog.app import open_runtime
from flightlog.cli.output import format_examples, json_option
from flightlog.model.errors import ConsentNeeded, Invalid
from flightlog.model.text import make_inert


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
