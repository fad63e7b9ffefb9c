"""`flightlog demo`: see the real path on a scripted agent, in seconds, on any machine."""

import click


@click.command(epilog="Example: flightlog demo")
@click.option("--json", "as_json", is_flag=True, help="Print the recorded session and its usage as JSON.")
def demo(*, as_json: bool) -> None:
    """Let a scripted agent do a small piece of real work, and show what was recorded."""
    from datetime import UTC

    from flightlog.app import local_zone
    from flightlog.app.demo import SEARCHED, performed
    from flightlog.cli.output import print_json
    from flightlog.cli.story import print_story
    from flightlog.cli.usage import print_usage, usage_json
    from flightlog.views.story import Telling, story
    from flightlog.views.story_forms import short
    from flightlog.views.usage import By

    click.echo("a scripted agent works in a directory of its own; nothing of yours is touched", err=True)
    with performed() as shown:
        told = shown.archive.session(shown.session)
        report = shown.archive.usage(By.SESSION, UTC)
    if as_json:
        print_json(
            {"session": told, "usage": usage_json(report, "UTC"), "kept_bytes": shown.kept_bytes, "found": shown.found}
        )
        return
    print_story(story(told, Telling(local_zone())))
    click.echo()
    print_usage(report)
    same = "the same" if shown.same_without_the_agent else "NOT the same"
    click.echo(f"\nkept for good: {shown.kept_bytes:,} bytes; told from our copy alone it is {same}")
    click.echo(f"search for {SEARCHED!r}: {', '.join(short(address) for address in shown.found) or 'nothing found'}")
    click.echo("\nwhile it ran, `flightlog watch` showed:\n")
    for line in shown.board:
        click.echo(f"  {line}".rstrip())
    click.echo("\nyour own sessions: flightlog up", err=True)
