"""`flightlog demo`: see the real path on a scripted agent, in seconds, on any machine."""

import click


@click.command(epilog="Example: flightlog demo")
@click.option("--json", "as_json", is_flag=True, help="Print the recorded session and its usage as JSON.")
def demo(*, as_json: bool) -> None:
    """Let a scripted agent do a small piece of real work, and show what was recorded."""
    from datetime import UTC

    from flightlog.app import local_zone
    from flightlog.app.demo import performed
    from flightlog.cli.output import print_json
    from flightlog.cli.story import print_story
    from flightlog.cli.usage import print_usage, usage_json
    from flightlog.views.story import Telling, story
    from flightlog.views.usage import By

    click.echo("a scripted agent works in a directory of its own; nothing of yours is touched", err=True)
    with performed() as (archive, session):
        told = archive.session(session)
        report = archive.usage(By.SESSION, UTC)
    if as_json:
        print_json({"session": told, "usage": usage_json(report, "UTC")})
        return
    print_story(story(told, Telling(local_zone())))
    click.echo()
    print_usage(report)
    click.echo("\nyour own sessions: flightlog up", err=True)
