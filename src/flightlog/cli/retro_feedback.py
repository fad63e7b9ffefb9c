"""`chat-retro feedback`: what a person thinks of findings."""

import click

from flightlog.cli.output import print_json, print_table


@click.group(epilog="Example: flightlog retro feedback rate topic-1f2e3d4c5b 4")
def feedback() -> None:
    """Rate findings, answer questions, report gaps; low-rated findings count less next time."""


@feedback.command(epilog="Example: flightlog retro feedback rate activity down --comment 'I know'")
@click.argument("pattern")
@click.argument("rating")
@click.option("--comment", default="")
def rate(pattern: str, rating: str, *, comment: str) -> None:
    """Rate a finding from 1 to 5, or up or down."""
    from flightlog.app.retro import open_room
    from flightlog.app.retro_session import rated

    click.echo(f"kept: {rated(open_room(), pattern, rating, comment)}", err=True)


@feedback.command(epilog="Example: flightlog retro feedback answer overall_value 'It saves me a morning' --rating 4")
@click.argument("question")
@click.argument("response")
@click.option("--rating", default=None, type=click.IntRange(1, 5))
def answer(question: str, response: str, *, rating: int | None) -> None:
    """Answer insight_accuracy, insight_actionable, missing_patterns, most_useful or overall_value."""
    from flightlog.app.retro import open_room
    from flightlog.app.retro_session import answered

    click.echo(f"kept: {answered(open_room(), question, response, rating)}", err=True)


@feedback.command(epilog="Example: flightlog retro feedback gap 'It misses my Rust work' --category topic_detection")
@click.argument("description")
@click.option("--category", default="other")
@click.option("--priority", default="medium", type=click.Choice(["low", "medium", "high"]))
def gap(description: str, *, category: str, priority: str) -> None:
    """Report what analysis did not find."""
    from flightlog.app.retro import open_room
    from flightlog.app.retro_session import missed

    click.echo(f"kept: {missed(open_room(), description, category, priority)}", err=True)


@feedback.command("import", epilog="Example: flightlog retro feedback import feedback.json")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
def take(path: str) -> None:
    """Take in the ratings an artifact saved."""
    from pathlib import Path

    from flightlog.app.retro import open_room
    from flightlog.app.retro_session import imported

    click.echo(f"kept: {imported(open_room(), Path(path))}", err=True)


@feedback.command(epilog="Example: flightlog retro feedback summary --json")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def summary(*, as_json: bool) -> None:
    """Sum up all feedback."""
    from flightlog.app.retro import find_room
    from flightlog.retro.events import FeedbackGiven
    from flightlog.retro.feedback import summary as summed_up

    told = summed_up(each for each in find_room().happened() if isinstance(each, FeedbackGiven))
    if as_json:
        print_json(told)
        return
    rows = [("ratings", str(told.ratings)), ("average", "" if told.average is None else f"{told.average:.2f}")]
    rows += [("answers", str(told.answers)), *((f"gap: {name}", str(count)) for name, count in told.gaps.items())]
    rows += [(f"low: {name}", f"{average:.1f}") for name, average in told.low_rated.items()]
    print_table(("feedback", ""), rows)
