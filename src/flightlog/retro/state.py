"""Analysis, preferences, feedback as values.

Field names are the source document's; `kind`, `detail` and `evidence` come on top. Reading checks
every field: a file that does not fit is set aside by the caller, never mended.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from flightlog.model.errors import Invalid, Misconfigured
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
VERSION = 1


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


class PatternTiming(Struct, frozen=True):
    """When a pattern is seen most, and how often."""

    peak_month: str | None = None
    frequency: int | None = None


class PatternEvidence(Struct, frozen=True):
    """A place that shows it; `flightlog retro show ADDRESS` opens it."""

    address: str
    text: str = ""


class Pattern(Struct, frozen=True):
    """One finding."""

    id: str
    label: str
    type: Literal["theme", "temporal", "behavioral", "other"]
    confidence: float
    conversation_ids: tuple[str, ...] = ()
    temporal: PatternTiming | None = None
    kind: str = ""
    detail: str = ""
    count: int = 0
    evidence: tuple[PatternEvidence, ...] = ()
    name: str = ""

    @property
    def title(self) -> str:
        """What an analyst called it, else what was counted."""
        return self.name or self.label


class Preferences(Struct, frozen=True):
    """What a person asked analysis to look at, to leave out, and to draw first."""

    focus_areas: tuple[str, ...] = ()
    excluded_topics: tuple[str, ...] = ()
    preferred_viz: str | None = None


class ArtifactRecord(Struct, frozen=True):
    """An artifact that was made."""

    date: str
    artifact: str


class AnalysisMeta(Struct, frozen=True):
    """What the analysis is of."""

    created: str
    last_updated: str
    conversation_count: int = 0
    date_range: tuple[str, str] | None = None
    export_format: Literal["chatgpt", "claude"] | None = None
    export_file_hash: str | None = None


class RetroAnalysis(Struct, frozen=True):
    """The whole file."""

    schema_version: int
    meta: AnalysisMeta
    patterns: tuple[Pattern, ...] = ()
    user_preferences: Preferences = Preferences()
    snapshots: tuple[ArtifactRecord, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no version of the schema allows."""
        if self.schema_version != VERSION:
            raise ValueError(f"schema version {self.schema_version}, expected {VERSION}")
        names = [pattern.id for pattern in self.patterns]
        if len(set(names)) != len(names):
            raise ValueError("two patterns share an id")
        if not all(0 <= pattern.confidence <= 1 for pattern in self.patterns):
            raise ValueError("a confidence is not between 0 and 1")


def encode_analysis(analysis: RetroAnalysis) -> str:
    """Return the file's text."""
    return msgspec.json.format(msgspec.json.encode(analysis), indent=2).decode() + "\n"


class _AnalysisHead(Struct):
    schema_version: int = VERSION


def decode_analysis(data: bytes) -> RetroAnalysis:
    """Decode the file; raise `msgspec.DecodeError` if it does not fit, `Misconfigured` if a later version wrote it."""
    version = msgspec.json.decode(data, type=_AnalysisHead).schema_version
    if version > VERSION:
        raise Misconfigured(
            f"the analysis was written by a later flightlog (schema {version}; this one knows {VERSION})",
            hint="pip install --upgrade flightlog",
        )
    return msgspec.json.decode(data, type=RetroAnalysis)
