"""Statistics of a dataset: counts, tokens, milestones, growth, quality. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from flightlog.dataset.reader import DatasetReader
from flightlog.dataset.rows import COUNTED, WITHHELD, Row, StepUsage, short_session_id

PLURALS = {"session": "sessions", "chat": "chats", "action": "actions", "commit": "commits"}
# Numbers of rows that training needs, from the source document's tool.
MILESTONES = {
    "file_prediction": {"commits": 500, "sessions": 100, "chats": 200},
    "commit_messages": {"commits": 2000, "sessions": 500, "chats": 1000},
    "code_suggestions": {"commits": 5000, "sessions": 2000, "chats": 5000},
}
_PROJECTED_CHATS = 5000  # the source document projects sizes at 5,000 chats
# The cache writes for one hour are part of all cache writes.
TOKENS = tuple(
    "input_tokens output_tokens cache_read_tokens cache_write_tokens cache_write_1h_tokens".split()
)


class RowResponse(NamedTuple):
    """One model response, counted once whatever rows hold it."""

    id: str
    model: str
    agent: str
    session_id: str
    chat_id: str
    subagent: str
    timestamp: str
    token_counts: tuple[int, int, int, int, int]


def count_by_kind(dataset: DatasetReader) -> dict[str, int]:
    """Return the number of rows of each kind, under the source document's names."""
    counts = dataset.count_rows()
    return {PLURALS.get(kind, kind): counts.get(kind, 0) for kind in COUNTED}


def iter_responses(dataset: DatasetReader) -> Iterator[RowResponse]:
    """Yield every response once: forks and resumed sessions repeat those of other sessions."""
    best: dict[str, RowResponse] = {}
    for response in [*_chat_steps(dataset), *_agent_steps(dataset)]:
        best[response.id] = min(best.get(response.id, response), response, key=_rank)
    yield from (best[name] for name in sorted(best))


def _rank(response: RowResponse) -> tuple[int, str, str]:
    """Order versions of a response: most output tokens first, then the earliest."""
    return -response.token_counts[1], response.timestamp, response.session_id


def agents_by_session(dataset: DatasetReader) -> dict[str, str]:
    """Return the agent of each session, by the short session id."""
    return {
        short_session_id(str(row.get("session", ""))): str(row.get("agent", ""))
        for row in dataset.rows_of_kind("session")
    }


def token_counts(dataset: DatasetReader) -> dict[str, int]:
    """Return the sum of the tokens of every response."""
    sums = [0] * len(TOKENS)
    for response in iter_responses(dataset):
        sums = [total + part for total, part in zip(sums, response.token_counts, strict=True)]
    return dict(zip(TOKENS, sums, strict=True))


def milestone_progress(counts: dict[str, int]) -> dict[str, dict[str, Any]]:
    """Return the progress towards each milestone: the lowest of its ratios."""
    progress = {}
    for name, needs in MILESTONES.items():
        ratio = min(min(counts.get(kind, 0) / need, 1.0) for kind, need in needs.items())
        progress[name] = {"needs": needs, "percent": round(100 * ratio, 1)}
    return progress


def chats_by_month(dataset: DatasetReader) -> dict[str, int]:
    """Return the number of chats by month."""
    months = (str(row.get("timestamp", ""))[:7] for row in dataset.rows_of_kind("chat"))
    return dict(sorted(Counter(months).items()))


def projected_bytes(dataset: DatasetReader) -> dict[str, int]:
    """Return the size of the base files at 5,000 chats, projected from today's rows."""
    chats = max(sum(1 for _ in dataset.rows_of_kind("chat")), 1)
    sizes: Counter[str] = Counter()
    for key, line in dataset.live_lines().items():
        sizes[str(dataset.rows[key].get("kind", ""))] += len(line) + 1
    return {kind: size * _PROJECTED_CHATS // chats for kind, size in sorted(sizes.items())}


def quality_score(dataset: DatasetReader) -> dict[str, float]:
    """Return the source document's score out of 100: completeness, anomalies, diversity."""
    chats, sessions = list(dataset.rows_of_kind("chat")), list(dataset.rows_of_kind("session"))
    commits = list(dataset.rows_of_kind("commit"))
    complete = _fraction_of(chats, lambda row: _has_text(row, "output") and _has_text(row, "input"))
    with_commits = _fraction_of(sessions, lambda row: row.get("commits"))
    with_ci = _fraction_of(commits, lambda row: row.get("ci_result"))
    with_feedback = _fraction_of(chats, lambda row: row.get("feedback"))
    completeness = 100 * (0.4 * complete + 0.3 * with_commits + 0.2 * with_ci + 0.1 * with_feedback)
    anomalous = _fraction_of(
        chats, lambda row: not _has_text(row, "output") or row.get("is_rewound")
    )
    tools = {tool for row in chats for tool in row.get("tools", ())}
    files = {name for row in chats for name in row.get("files", ())}
    diversity = 100 * (0.5 * min(len(tools) / 5, 1) + 0.5 * min(len(files) / 50, 1))
    anomalies = max(100 - anomalous * 200, 0.0)
    score = 0.4 * completeness + 0.3 * anomalies + 0.3 * diversity if chats else 0.0
    parts = {
        "score": score,
        "completeness": completeness,
        "anomalies": anomalies,
        "diversity": diversity,
    }
    return {name: round(value, 1) for name, value in parts.items()}


def count_withheld(dataset: DatasetReader) -> int:
    """Return the number of chats without words."""
    return sum(row.get("words") == WITHHELD for row in dataset.rows_of_kind("chat"))


def _chat_steps(dataset: DatasetReader) -> Iterator[RowResponse]:
    agents = agents_by_session(dataset)
    for row in dataset.rows_of_kind("chat"):
        session = str(row.get("session_id", ""))
        thread = (agents.get(session, ""), session, str(row["id"]), "")
        yield from _row_responses(row, thread, str(row.get("timestamp", "")))


def _agent_steps(dataset: DatasetReader) -> Iterator[RowResponse]:
    agents = agents_by_session(dataset)
    for row in dataset.rows_of_kind("orchestration"):
        session = str(row.get("session_id", ""))
        for agent in row.get("agents", ()):
            thread = (
                agents.get(session, ""),
                session,
                str(agent.get("chat_id", "")),
                str(agent["id"]),
            )
            yield from _row_responses(agent, thread, str(agent.get("started_at", "")))


def _row_responses(row: Row, thread: tuple[str, str, str, str], at: str) -> Iterator[RowResponse]:
    for step in msgspec.convert(row.get("steps", ()), list[StepUsage]):
        counts = (
            step.input_tokens,
            step.output_tokens,
            step.cache_read_tokens,
            step.cache_write_5m_tokens + step.cache_write_1h_tokens,
            step.cache_write_1h_tokens,
        )
        yield RowResponse(step.id, step.model or row.get("model", ""), *thread, at, counts)


def _has_text(row: Row, name: str) -> bool:
    return bool(row.get(name) or row.get(f"{name}_chars"))


def _fraction_of(rows: list[Row], predicate: Any) -> float:
    return sum(bool(predicate(row)) for row in rows) / len(rows) if rows else 0.0
