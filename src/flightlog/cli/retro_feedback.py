"""`chat-retro feedback`: what a person thinks of findings."""

from pathlib import Path

import click

from flightlog.app import open_runtime
from flightlog.cli.output import json_option, print_json, print_outcome, print_table

_KEPT = json_option("Print the path of what was kept as JSON.")


@click.group(epilog="Example: flightlog retro feedback rate topic-1f2e3d4c5b 4")
def feedback() -> None:
    """Rate findings, answer questions, report gaps; low-rated findings count less next time."""


@feedback.command(epilog="Example: flightlog retro feedback rate activity down --comment 'I know'")
@click.argument("pattern")
@click.argument("rating")
@click.option("--comment", default="", help="Why.")
@_KEPT
def rate(pattern: str, rating: str, *, comment: str, as_json: bool) -> None:
    """Rate a finding from 1 to 5, or up or down."""
    from flightlog.app.retro import open_retro_store
    from flightlog.app.retro_session import record_rating

    _print_saved(record_rating(open_retro_store(open_runtime()), pattern, rating, comment), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback answer overall_value 'It saves a morning'")
@click.argument("question")
@click.argument("response")
@click.option("--rating", default=None, type=click.IntRange(1, 5), help="A number beside the words.")
@_KEPT
def answer(question: str, response: str, *, rating: int | None, as_json: bool) -> None:
    """Answer insight_accuracy, insight_actionable, missing_patterns, most_useful or overall_value."""
    from flightlog.app.retro import open_retro_store
    from flightlog.app.retro_session import record_answer

    _print_saved(record_answer(open_retro_store(open_runtime()), question, response, rating), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback gap 'It misses my Rust work'")
@click.argument("description")
@click.option("--category", default="other", show_default=True, help="What kind of thing was missed.")
@click.option(
    "--priority",
    default="medium",
    show_default=True,
    type=click.Choice(["low", "medium", "high"]),
    help="How much it matters.",
)
@_KEPT
def gap(description: str, *, category: str, priority: str, as_json: bool) -> None:
    """Report what analysis did not find."""
    from flightlog.app.retro import open_retro_store
    from flightlog.app.retro_session import record_gap

    _print_saved(record_gap(open_retro_store(open_runtime()), description, category, priority), as_json=as_json)


@feedback.command("import", epilog="Example: flightlog retro feedback import feedback.json")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@_KEPT
def import_feedback(path: str, *, as_json: bool) -> None:
    """Take in the ratings an artifact saved."""
    from flightlog.app.retro import open_retro_store
    from flightlog.app.retro_session import import_ratings

    _print_saved(import_ratings(open_retro_store(open_runtime()), Path(path)), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback summary --json")
@json_option()
def summary(*, as_json: bool) -> None:
    """Sum up all feedback."""
    from flightlog.app.retro import find_retro_store
    from flightlog.retro.events import FeedbackGiven
    from flightlog.retro.feedback import summarize_feedback as summed_up

    runtime = open_runtime()
    told = summed_up(each for each in find_retro_store(runtime).iter_events() if isinstance(each, FeedbackGiven))
    if as_json:
        print_json(told)
        return
    rows = [("ratings", str(told.ratings)), ("average", "" if told.average is None else f"{told.average:.2f}")]
    rows += [("answers", str(told.answers)), *((f"gap: {name}", str(count)) for name, count in told.gaps.items())]
    rows += [(f"low: {name}", f"{average:.1f}") for name, average in told.low_rated.items()]
    print_table(("feedback", ""), rows)


def _print_saved(path: Path, *, as_json: bool) -> None:
    print_outcome({"kept": str(path)}, f"kept: {path}", as_json=as_json)
