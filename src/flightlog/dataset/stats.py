"""What a dataset amounts to: counts, tokens, milestones, growth, quality. Pure, over a book."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from flightlog.dataset.reader import DatasetReader
from flightlog.dataset.rows import COUNTED, WITHHELD, Row, short_session_id

PLURALS = {"session": "sessions", "chat": "chats", "action": "actions", "commit": "commits"}
MILESTONES = {
    "file_prediction": {"commits": 500, "sessions": 100, "chats": 200},
    "commit_messages": {"commits": 2000, "sessions": 500, "chats": 1000},
    "code_suggestions": {"commits": 5000, "sessions": 2000, "chats": 5000},
}
_PROJECTED_CHATS = 5000
_TOKENS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")


class RowResponse(NamedTuple):
    """One model response, counted once wherever it stands."""

    id: str
    model: str
    agent: str
    session_id: str
    chat_id: str
    lane: str
    timestamp: str
    tokens: tuple[int, int, int, int, int]


def count_by_kind(book: DatasetReader) -> dict[str, int]:
    """Return the number of rows of each kind, under the document's names."""
    found = book.count_rows()
    return {PLURALS.get(kind, kind): found.get(kind, 0) for kind in COUNTED}


def iter_responses(book: DatasetReader) -> Iterator[RowResponse]:
    """Yield every response once: forks and resumed sessions repeat those of another session."""
    best: dict[str, RowResponse] = {}
    for said in [*_chat_steps(book), *_agent_steps(book)]:
        known = best.get(said.id)
        if known is None or (said.tokens[1], known.timestamp, known.session_id) > (
            known.tokens[1],
            said.timestamp,
            said.session_id,
        ):
            best[said.id] = said
    yield from (best[name] for name in sorted(best))


def agents_by_session(book: DatasetReader) -> dict[str, str]:
    """Return which agent each session was, by the id that chats and actions name it by."""
    return {
        short_session_id(str(row.get("session", ""))): str(row.get("agent", "")) for row in book.rows_of_kind("session")
    }


def token_counts(book: DatasetReader) -> dict[str, int]:
    """Add up the tokens of every response."""
    sums = [0] * len(_TOKENS)
    for said in iter_responses(book):
        sums = [total + part for total, part in zip(sums, said.tokens, strict=True)]
    return dict(zip(_TOKENS, sums, strict=True))


def milestone_progress(have: dict[str, int]) -> dict[str, dict[str, Any]]:
    """Say how far each milestone is: the lowest of its ratios."""
    told = {}
    for name, needs in MILESTONES.items():
        ratios = {what: min(have.get(what, 0) / need, 1.0) for what, need in needs.items()}
        told[name] = {"needs": needs, "percent": round(100 * min(ratios.values()), 1)}
    return told


def chats_by_month(book: DatasetReader) -> dict[str, int]:
    """Return how many chats there were in each month."""
    return dict(sorted(Counter(str(row.get("timestamp", ""))[:7] for row in book.rows_of_kind("chat")).items()))


def projected_bytes(book: DatasetReader) -> dict[str, int]:
    """Say how many bytes the base files would take at the document's 5,000 chats, by today's rows."""
    chats = max(sum(1 for _ in book.rows_of_kind("chat")), 1)
    sizes: Counter[str] = Counter()
    for key, line in book.live_lines().items():
        sizes[str(book.rows[key].get("kind", ""))] += len(line) + 1
    return {kind: size * _PROJECTED_CHATS // chats for kind, size in sorted(sizes.items())}


def quality_score(book: DatasetReader) -> dict[str, float]:
    """Return the source's score out of 100: completeness, freedom from anomalies, diversity."""
    chats, sessions = list(book.rows_of_kind("chat")), list(book.rows_of_kind("session"))
    commits = list(book.rows_of_kind("commit"))
    complete = _fraction_of(chats, lambda row: _has_text(row, "output") and _has_text(row, "input"))
    with_commits = _fraction_of(sessions, lambda row: row.get("commits"))
    with_ci = _fraction_of(commits, lambda row: row.get("ci_result"))
    with_feedback = _fraction_of(chats, lambda row: row.get("feedback"))
    completeness = 100 * (0.4 * complete + 0.3 * with_commits + 0.2 * with_ci + 0.1 * with_feedback)
    odd = _fraction_of(chats, lambda row: not _has_text(row, "output") or row.get("rewound"))
    tools = {tool for row in chats for tool in row.get("tools", ())}
    files = {name for row in chats for name in row.get("files", ())}
    diversity = 100 * (0.5 * min(len(tools) / 5, 1) + 0.5 * min(len(files) / 50, 1))
    anomalies = max(100 - odd * 200, 0.0)
    score = 0.4 * completeness + 0.3 * anomalies + 0.3 * diversity if chats else 0.0
    parts = {"score": score, "completeness": completeness, "anomalies": anomalies, "diversity": diversity}
    return {name: round(value, 1) for name, value in parts.items()}


def count_withheld(book: DatasetReader) -> int:
    """Return how many chats have no words."""
    return sum(row.get("words") == WITHHELD for row in book.rows_of_kind("chat"))


def _chat_steps(book: DatasetReader) -> Iterator[RowResponse]:
    homes = agents_by_session(book)
    for row in book.rows_of_kind("chat"):
        session = str(row.get("session_id", ""))
        yield from _row_responses(
            row, (homes.get(session, ""), session, str(row["id"]), ""), str(row.get("timestamp", ""))
        )


def _agent_steps(book: DatasetReader) -> Iterator[RowResponse]:
    homes = agents_by_session(book)
    for row in book.rows_of_kind("orchestration"):
        session = str(row.get("session_id", ""))
        for agent in row.get("agents", ()):
            place = (homes.get(session, ""), session, str(agent.get("chat_id", "")), str(agent["id"]))
            yield from _row_responses(agent, place, str(agent.get("started_at", "")))


def _row_responses(row: Row, place: tuple[str, str, str, str], at: str) -> Iterator[RowResponse]:
    for step in row.get("steps", ()):
        if isinstance(step, list) and len(step) > len(_TOKENS):
            name, *parts = step
            model = parts[len(_TOKENS)] if len(parts) > len(_TOKENS) else row.get("model", "")
            numbers = (parts[0], parts[1], parts[2], parts[3], parts[4])
            yield RowResponse(str(name), str(model), *place, at, numbers)


def _has_text(row: Row, name: str) -> bool:
    return bool(row.get(name) or row.get(f"{name}_chars"))


def _fraction_of(rows: list[Row], holds: Any) -> float:
    return sum(bool(holds(row)) for row in rows) / len(rows) if rows else 0.0
