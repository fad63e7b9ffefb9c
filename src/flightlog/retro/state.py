"""Analysis, recommendations, preferences and feedback as values.

Field names are the source document's; `kind`, `detail`, `evidence` and `name` of a pattern are
additions, and so are `summary`, `recommendations` and `applied`.
Decoding checks every field; the caller quarantines a file that does not fit and never repairs it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from flightlog.model.errors import Invalid, Misconfigured
from flightlog.model.shares import wilson_bounds
from flightlog.model.text import pluralize
from flightlog.retro.events import FeedbackGiven

QUESTIONS = {
    "insight_accuracy": "How accurate are the findings?",
    "insight_actionable": "Can you act on them?",
    "missing_patterns": "What is missing?",
    "most_useful": "What was most useful?",
    "overall_value": "What is it worth to you?",
}
GAPS = tuple(
    "topic_detection sentiment_analysis temporal_patterns prompt_suggestions visualization "
    "other".split()
)
LOW_RATED = 2.5  # of 5; an average up to this is low, as in the source document's tool
THUMBS = {"up": 5, "down": 1}  # the artifact's thumbs as ratings
VERSION = 1  # schema of `state/analysis.json`


class FeedbackSummary(Struct, frozen=True):
    """Totals of all feedback."""

    feedback_sessions: int
    ratings: int
    average_rating: float | None
    ratings_by_score: dict[str, int]
    low_rated_patterns: dict[str, float]
    answers: int
    gaps_by_category: dict[str, int]


def parse_rating(text: str) -> int:
    """Parse a rating: 1 to 5, `up` or `down`."""
    number = THUMBS.get(text.lower()) or (int(text) if text.isdigit() else 0)
    if not 1 <= number <= 5:
        raise Invalid(f"not a rating: {text[:20]!r}", hint="write 1 to 5, or up, or down")
    return number


def average_ratings(feedback: Iterable[FeedbackGiven]) -> dict[str, float]:
    """Return the average rating of every rated finding."""
    scores: dict[str, list[int]] = defaultdict(list)
    for sitting in feedback:
        for rating in sitting.ratings:
            scores[rating.pattern_id].append(rating.rating)
    means = {pattern: sum(ratings) / len(ratings) for pattern, ratings in sorted(scores.items())}
    return {pattern: round(mean, 2) for pattern, mean in means.items()}


def summarize_feedback(feedback: Iterable[FeedbackGiven]) -> FeedbackSummary:
    """Return the totals of all feedback."""
    feedback = list(feedback)
    scores = [rating.rating for sitting in feedback for rating in sitting.ratings]
    averages = average_ratings(feedback).items()
    low_rated = {pattern: average for pattern, average in averages if average <= LOW_RATED}
    gaps = Counter(gap.category for sitting in feedback for gap in sitting.gaps)
    return FeedbackSummary(
        len(feedback),
        len(scores),
        round(sum(scores) / len(scores), 2) if scores else None,
        {str(score): scores.count(score) for score in range(1, 6)},
        low_rated,
        sum(len(sitting.quality_responses) for sitting in feedback),
        dict(sorted(gaps.items())),
    )


class PatternTiming(Struct, frozen=True):
    """The month in which a pattern occurred most, and how often."""

    peak_month: str | None = None
    frequency: int | None = None


class PatternEvidence(Struct, frozen=True):
    """An address that shows a pattern; `flightlog retro show ADDRESS` opens it."""

    address: str
    text: str = ""


class Pattern(Struct, frozen=True):
    """One finding; `name` is what an analyst called it."""

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
        """Return the analyst's name, or the counted label."""
        return self.name or self.label


class CountShare(Struct, frozen=True):
    """A count, what it is a part of, and the 95 % interval of the share."""

    count: int
    of: int
    low: float
    high: float


def estimate_share(count: int, total: int) -> CountShare | None:
    """Return a share with its interval, None of nothing."""
    if not total:
        return None
    low, high = wilson_bounds(count, total)
    return CountShare(count, total, round(low, 3), round(high, 3))


def describe_share(share: CountShare | None, things: str) -> str:
    """Return a share in words: `34 of 82 sessions (41 %, 31-53 %)`."""
    if share is None:
        return ""
    percent = f"{share.count / share.of:.0%}, {share.low:.0%} to {share.high:.0%}"
    return f"{share.count} of {pluralize(share.of, things)} ({percent.replace('%', ' %')})"


class RecommendedAction(Struct, frozen=True):
    """What a recommendation proposes: lines or rules for a file, or a command that shows more.

    `file` and `diff` are those of the last analysis; applying reads the file again. `entries` are
    quoted sentences, or rules of the list that `type` names.
    """

    type: Literal["instructions", "custom-instructions", "allow", "deny", "open"]
    file: str = ""
    diff: str = ""
    command: str = ""
    entries: tuple[str, ...] = ()
    project: str = ""
    agent: str = ""


class Recommendation(Struct, frozen=True):
    """One thing to do, with the addresses that show why; `quotes` are the words found there.

    `share` is of the last `period_days`, `previous` of as many days before them, or `share` is of
    everything and `previous` unknown if the recordings cover less time.
    """

    id: str
    kind: Literal[
        "standing-instruction",
        "permission",
        "recurring-failure",
        "correction",
        "spend",
        "cache",
        "context",
        "prompt",
    ]
    title: str
    count: int
    evidence: tuple[str, ...]
    action: RecommendedAction
    detail: str = ""
    quotes: tuple[str, ...] = ()
    share: CountShare | None = None
    previous: CountShare | None = None
    period_days: int = 0
    cost_usd: float | None = None
    score: float = 0.0


class AppliedRecommendation(Struct, frozen=True):
    """A recommendation that was applied: how often its reason occurred before and since."""

    id: str
    title: str
    file: str
    applied_at: str
    before: CountShare | None = None
    since: CountShare | None = None


def describe_trend(one: Recommendation) -> str:
    """Return how often it occurred in the last period and in the one before, "" if unknown."""
    if one.share is None or one.previous is None or not (one.share.count or one.previous.count):
        return ""
    now, before = one.share, one.previous
    is_more, is_less = now.low > before.high, now.high < before.low
    change = "more than before" if is_more else "less than before" if is_less else "no clear change"
    days = pluralize(one.period_days, "day")
    last = f"{now.count} of {now.of} in the last {days}"
    return f"{last}, {before.count} of {before.of} in the {days} before them: {change}"


def describe_action(one: Recommendation) -> str:
    """Return the command to run next."""
    return one.action.command or f"flightlog retro apply {one.id}"


def describe_applied(one: AppliedRecommendation) -> str:
    """Return whether an applied instruction had to be repeated."""
    line = f"{one.id} applied {one.applied_at[:10]} to {one.file}"
    if one.since is None:
        return f"{line}: no conversation since"
    before = f"; before: {one.before.count} of {one.before.of}" if one.before else ""
    return f"{line}: since then in {describe_share(one.since, 'conversation')}{before}"


class Preferences(Struct, frozen=True):
    """What analysis focuses on and excludes, and which chart comes first."""

    focus_areas: tuple[str, ...] = ()
    excluded_topics: tuple[str, ...] = ()
    preferred_viz: str | None = None


class ArtifactRecord(Struct, frozen=True):
    """An artifact that was written."""

    date: str
    artifact: str


class AnalysisMeta(Struct, frozen=True):
    """Times, size and source of the analyzed conversations."""

    created: str
    last_updated: str
    conversation_count: int = 0
    date_range: tuple[str, str] | None = None
    export_format: Literal["chatgpt", "claude"] | None = None
    export_file_hash: str | None = None


class RetroAnalysis(Struct, frozen=True):
    """The content of `state/analysis.json`."""

    schema_version: int
    meta: AnalysisMeta
    patterns: tuple[Pattern, ...] = ()
    user_preferences: Preferences = Preferences()
    snapshots: tuple[ArtifactRecord, ...] = ()
    summary: tuple[str, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()
    applied: tuple[AppliedRecommendation, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` for values that the types do not exclude."""
        if self.schema_version != VERSION:
            raise ValueError(f"schema version {self.schema_version}, expected {VERSION}")
        names = [pattern.id for pattern in self.patterns]
        if len(set(names)) != len(names):
            raise ValueError("two patterns share an id")
        if not all(0 <= pattern.confidence <= 1 for pattern in self.patterns):
            raise ValueError("a confidence is not between 0 and 1")


class _AnalysisHead(Struct):
    schema_version: int = VERSION


def decode_analysis(data: bytes) -> RetroAnalysis:
    """Decode the file.

    Raise `msgspec.DecodeError` if it does not fit, `Misconfigured` if a later version wrote it.
    """
    version = msgspec.json.decode(data, type=_AnalysisHead).schema_version
    if version > VERSION:
        text = f"a later flightlog wrote the analysis (schema {version}, this one reads {VERSION})"
        raise Misconfigured(text, hint="pip install --upgrade flightlog")
    return msgspec.json.decode(data, type=RetroAnalysis)
