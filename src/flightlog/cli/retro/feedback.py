"""`flightlog retro feedback`: rate patterns and recommendations, answer questions, report gaps."""

from pathlib import Path

import click

from flightlog.cli.output import json_option, print_json, print_outcome, print_table
from flightlog.cli.retro.issues import find_store, open_store

_KEPT = json_option("Print the path of the feedback as JSON.")


@click.group(epilog="Example: flightlog retro feedback rate corrections 4")
def feedback() -> None:
    """Give feedback on findings. Findings with a low rating count less in the next analysis."""


@feedback.command(
    epilog="Example: flightlog retro feedback rate corrections down --comment 'I know'"
)
@click.argument("pattern")
@click.argument("rating")
@click.option("--comment", default="", help="Reason for the rating.")
@_KEPT
def rate(pattern: str, rating: str, *, comment: str, as_json: bool) -> None:
    """Rate a finding from 1 to 5, or up or down."""
    from flightlog.retro.service import record_rating

    _print_saved(record_rating(open_store(), pattern, rating, comment), as_json=as_json)


@feedback.command(
    epilog="Example: flightlog retro feedback answer overall_value 'It saves a morning'"
)
@click.argument("question")
@click.argument("response")
@click.option(
    "--rating", default=None, type=click.IntRange(1, 5), help="Rating in addition to the answer."
)
@_KEPT
def answer(question: str, response: str, *, rating: int | None, as_json: bool) -> None:
    """Answer a feedback question.

    QUESTION: insight_accuracy, insight_actionable, missing_patterns, most_useful, overall_value.
    """
    from flightlog.retro.service import record_answer

    _print_saved(record_answer(open_store(), question, response, rating), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback gap 'It misses my Rust work'")
@click.argument("description")
@click.option("--category", default="other", show_default=True, help="Category of what was missed.")
@click.option(
    "--priority", default="medium", show_default=True,
    type=click.Choice(["low", "medium", "high"]), help="Importance of the gap.",
)  # fmt: skip
@_KEPT
def gap(description: str, *, category: str, priority: str, as_json: bool) -> None:
    """Report something the analysis missed."""
    from flightlog.retro.service import record_gap

    _print_saved(record_gap(open_store(), description, category, priority), as_json=as_json)


@feedback.command("import", epilog="Example: flightlog retro feedback import feedback.json")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@_KEPT
def import_feedback(path: str, *, as_json: bool) -> None:
    """Import ratings saved by an HTML artifact."""
    from flightlog.retro.service import import_ratings

    _print_saved(import_ratings(open_store(), Path(path)), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback summary --json")
@json_option()
def summary(*, as_json: bool) -> None:
    """Summarize all feedback."""
    from flightlog.retro.events import FeedbackGiven
    from flightlog.retro.state import summarize_feedback

    history = find_store().iter_events()
    totals = summarize_feedback(event for event in history if isinstance(event, FeedbackGiven))
    if as_json:
        print_json(totals)
        return
    average = "" if totals.average_rating is None else f"{totals.average_rating:.2f}"
    gaps, low_rated = totals.gaps_by_category, totals.low_rated_patterns
    rows = [
        ("ratings", str(totals.ratings)),
        ("average", average),
        ("answers", str(totals.answers)),
        *((f"gap: {name}", str(count)) for name, count in gaps.items()),
        *((f"low: {name}", f"{rating:.1f}") for name, rating in low_rated.items()),
    ]
    print_table(("feedback", ""), rows)


def _print_saved(path: Path, *, as_json: bool) -> None:
    print_outcome({"path": str(path)}, f"saved: {path}", as_json=as_json)
