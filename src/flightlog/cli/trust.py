"""`flightlog trust`: a person says what a repository's settings may publish or run."""

import json
from pathlib import Path

import click

from flightlog.cli.output import json_option
from flightlog.model.errors import Invalid
from flightlog.model.text import inert


@click.command(epilog="Example: flightlog trust --yes")
@click.argument("repository", default=".", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Allow what is shown.")
@click.option("--revoke", is_flag=True, help="Take consent back.")
@json_option("Print what it allows as JSON.")
def trust(repository: Path, *, yes: bool, revoke: bool, as_json: bool) -> int:
    """Show what REPOSITORY's settings would publish or run, and allow it with --yes; exit 1 if not allowed."""
    from flightlog.app import privacy as wiring
    from flightlog.privacy.trust import risky

    if yes and revoke:
        raise Invalid("--yes and --revoke cannot go together", hint="leave one of them out")
    consents = wiring.trust()
    allows = risky(wiring.repository_settings(repository))
    if revoke:
        click.echo("consent taken back" if consents.revoke(repository) else "there was no consent", err=True)
        click.echo("training rows keep their words until: flightlog dataset strip-words --yes", err=True)
    if yes:
        consents.grant(repository, allows)
    allowed = consents.allows(repository, allows)
    if as_json:
        click.echo(
            json.dumps({"repository": str(repository.resolve()), "allows": allows, "trusted": allowed}, default=str)
        )
    else:
        for name, value in allows.items():
            click.echo(inert(f"{name} = {json.dumps(value, default=str)}"))
        click.echo(_told(allowed=allowed, anything=bool(allows)), err=True)
    return 0 if allowed else 1


def _told(*, allowed: bool, anything: bool) -> str:
    if not anything:
        return "nothing here publishes or runs anything"
    return "trusted" if allowed else "not trusted; allow it with: flightlog trust --yes"
