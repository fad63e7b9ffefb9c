"""`flightlog trust`, and the question that a command asks before it does what needs consent."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import format_examples, json_option
from flightlog.model.errors import ConsentNeeded, Invalid
from flightlog.model.text import make_inert


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
        line = "to remove the words of existing rows: flightlog dataset strip-words --yes"
        click.echo(line, err=True)
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
        line = "trusted" if report["is_trusted"] else "not trusted; allow it with --yes"
        click.echo(line, err=True)


def _print_effects(effects: Any, *, err: bool) -> None:
    for name, value in effects.items():
        line = make_inert(f"{name} = {json.dumps(value, default=str, ensure_ascii=False)}")
        click.echo(line, err=err)
