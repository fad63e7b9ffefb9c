"""Feedback: what people think of findings, summed up. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct

from flightlog.model.errors import Invalid
from flightlog.retro.events import FeedbackGiven

QUESTIONS = {
    "insight_accuracy": "How accurate are the findings?",
    "insight_actionable": "Can you act on them?",
    "missing_patterns": "What is missing?",
    "most_useful": "What was most useful?",
    "overall_value": "What is it worth to you?",
}
GAPS = ("topic_detection", "sentiment_analysis", "temporal_patterns", "prompt_suggestions", "visualization", "other")
LOW_RATED = 2.5
THUMBS = {"up": 5, "down": 1}


class FeedbackSummary(Struct, frozen=True):
    """All feedback in a few numbers."""

    sittings: int
    ratings: int
    average: float | None
    by_score: dict[str, int]
    low_rated: dict[str, float]
    answers: int
    gaps: dict[str, int]


def parse_rating(written: str) -> int:
    """Read a rating: 1 to 5, or a thumb up or down."""
    number = THUMBS.get(written.lower()) or (int(written) if written.isdigit() else 0)
    if not 1 <= number <= 5:
        raise Invalid(f"not a rating: {written[:20]!r}", hint="write 1 to 5, or up, or down")
    return number


def average_ratings(given: Iterable[FeedbackGiven]) -> dict[str, float]:
    """Return each finding's average rating."""
    scores: dict[str, list[int]] = defaultdict(list)
    for one in given:
        for rating in one.ratings:
            scores[rating.pattern_id].append(rating.rating)
    return {name: round(sum(each) / len(each), 2) for name, each in sorted(scores.items())}


def summarize_feedback(given: Iterable[FeedbackGiven]) -> FeedbackSummary:
    """Sum up everything said."""
    known = list(given)
    scores = [rating.rating for one in known for rating in one.ratings]
    low = {name: average for name, average in average_ratings(known).items() if average <= LOW_RATED}
    return FeedbackSummary(
        len(known),
        len(scores),
        round(sum(scores) / len(scores), 2) if scores else None,
        {str(number): Counter(scores)[number] for number in range(1, 6)},
        low,
        sum(len(one.quality_responses) for one in known),
        dict(sorted(Counter(gap.category for one in known for gap in one.gaps).items())),
    )
