"""Digest the usage of sessions into buckets: tokens and cost by model and quarter of an hour.

The days of every time zone, months and 5-hour blocks consist of whole quarters, so reports add
up buckets instead of responses. Sessions that share responses are digested together, by the
rule of `usage.attribution`.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.usage import (
    ClientTotals,
    CostSource,
    ModelResponse,
    Usage,
    UsageLine,
    UsageQuality,
    response_to_row,
    row_to_response,
)
from flightlog.usage import prices
from flightlog.usage.attribution import attribute_responses, is_better_copy
from flightlog.usage.reconciliation import (
    FindEvidence,
    SessionTotals,
    UsageGap,
    latest_totals,
    own_client_totals,
    pack_reconciliation,
    reconcile,
)

QUARTER_MS = 900_000  # the offsets of all time zones are whole quarters of an hour
CHARS_PER_TOKEN = 4  # a usual value for English text; code and JSON have fewer
USD_DIGITS = 9  # a billionth of a dollar: finer than any price, coarser than the order of a sum
# Attribute getters in `map` halve the time of a loop over every response.
_message_id, _model, _at_ms, _project, _quality, _prompt_tokens = map(
    attrgetter, ("message_id", "model", "at_ms", "project", "quality", "prompt_tokens")
)
_TOKEN_CLASSES = tuple(map(attrgetter, Usage.__struct_fields__))  # a row names them as `Usage` does


class UsageBucket(Struct, frozen=True, array_like=True):
    """Responses of one model in one quarter of an hour."""

    model: str
    quarter_ms: int
    source: CostSource
    cost_usd: float | None
    responses: int
    first_ms: int
    last_ms: int
    usage: Usage
    unknown_responses: int = 0
    is_lower_bound: bool = False
    agent: str = ""  # only if sessions of several agents have this session's id
    is_estimate: bool = False  # of output that was not recorded; never stored


class UsageDigest(Struct, frozen=True, array_like=True):
    """One session's part of any report.

    `reconciliation` is packed, because few reports decode it; its gaps, which all reports show,
    are beside it.
    """

    session: str
    project: str
    buckets: tuple[UsageBucket, ...]
    gaps: tuple[UsageGap, ...] = ()
    reconciliation: bytes = b""


class SessionUsage(Struct, frozen=True):
    """Rows and client totals of all files of one session; `first_ms` is their first timestamp.

    `agents` names the agent of each response, if several agents have a session with this id.
    """

    session: str
    first_ms: int
    rows: Sequence[UsageLine]
    totals: Sequence[ClientTotals]
    agents: Mapping[str, str] = {}


PriceOf = Callable[[ModelResponse], float | None]


def costs_by_model(digest: UsageDigest) -> dict[str, float | None]:
    """Return the cost in USD of a session's own responses by model; None if it is unknown."""
    costs: dict[str, float | None] = {}
    for bucket in digest.buckets:
        known = costs.get(bucket.model)
        costs[bucket.model] = known if bucket.cost_usd is None else (known or 0.0) + bucket.cost_usd
    return costs


def digest_sessions(group: Sequence[SessionUsage], evidence: FindEvidence) -> list[UsageDigest]:
    """Digest sessions that share responses with each other and with no other session."""
    rows: Mapping[str, Sequence[UsageLine]] = {
        usage.session: best_rows(usage.rows) for usage in group
    }
    copies: Mapping[str, Sequence[ModelResponse]] = {}
    if len(group) > 1:
        first = {usage.session: usage.first_ms for usage in group if usage.first_ms}
        rows, copies = _attribute_rows(rows, first)
    history = {usage.session: usage.totals for usage in group if usage.totals}
    return [
        _digest(usage, rows[usage.session], copies.get(usage.session, ()), history, evidence)
        for usage in group
    ]


def _attribute_rows(
    rows: Mapping[str, Sequence[UsageLine]], first_ms: Mapping[str, int]
) -> tuple[dict[str, list[UsageLine]], Mapping[str, Sequence[ModelResponse]]]:
    """Give each shared response to the session that owns it; return its copies elsewhere too.

    Of the responses that are not shared, attribution needs the first of each session only.
    """
    holders = Counter(row.message_id for session_rows in rows.values() for row in session_rows)
    own = {
        session: [row for row in session_rows if holders[row.message_id] == 1]
        for session, session_rows in rows.items()
    }
    first = [min(session_rows, key=_at_ms) for session_rows in own.values() if session_rows]
    shared = [
        row for session_rows in rows.values() for row in session_rows if holders[row.message_id] > 1
    ]
    attribution = attribute_responses([row_to_response(row) for row in [*shared, *first]], first_ms)
    for owned in attribution.responses:
        if holders[owned.message_id] > 1:
            own[owned.session].append(response_to_row(owned))
    return own, attribution.copies


def _digest(
    session: SessionUsage,
    rows: Sequence[UsageLine],
    copies: Sequence[ModelResponse],
    history: Mapping[str, Sequence[ClientTotals]],
    evidence: FindEvidence,
) -> UsageDigest:
    if all(map(prices.is_priced, set(map(_model, rows)))):
        buckets = _bucket_rows(rows, session.agents)
        price_of: PriceOf = _table_price
    else:
        buckets, price_of = _bucket_by_client_price(session, rows, copies, history)
    project = _first_project(rows)
    if not session.totals:
        return UsageDigest(session.session, project, buckets)
    totals = _session_totals(session, rows, copies, buckets, price_of)
    result = reconcile(totals, history, evidence)
    return UsageDigest(session.session, project, buckets, result.gaps, pack_reconciliation(result))


def _session_totals(
    session: SessionUsage,
    rows: Sequence[UsageLine],
    copies: Sequence[ModelResponse],
    buckets: Sequence[UsageBucket],
    price_of: PriceOf,
) -> SessionTotals:
    client = latest_totals(session.totals)
    first_ms, last_ms = client.started_ms, client.as_of_ms or sys.maxsize
    # The client may not have counted what came before it started, after its total, or was cut off.
    doubtful = [
        row_to_response(row)
        for row in rows
        if not first_ms <= row.at_ms <= last_ms
        or row.is_aborted
        or row.quality == UsageQuality.UNCOUNTED
    ]
    counted = [bucket for bucket in buckets if bucket.unknown_responses < bucket.responses]
    amounts = [bucket.cost_usd for bucket in counted if bucket.cost_usd is not None]
    return SessionTotals(
        session.session,
        sum((bucket.usage for bucket in buckets), Usage()),
        round(sum(amounts), USD_DIGITS) if len(amounts) == len(counted) else None,
        min(map(_at_ms, rows), default=None),
        tuple((response, price_of(response)) for response in doubtful),
        tuple(copies),
    )


def _table_price(response: ModelResponse) -> float | None:
    return prices.price(response.model, response.usage, response.at_ms).usd


def _bucket_by_client_price(
    session: SessionUsage,
    rows: Sequence[UsageLine],
    copies: Sequence[ModelResponse],
    history: Mapping[str, Sequence[ClientTotals]],
) -> tuple[tuple[UsageBucket, ...], PriceOf]:
    """Price every response by itself; models without a table price share the client's amount."""
    ordered = sorted(rows, key=lambda row: (row.at_ms, row.message_id))
    responses = [row_to_response(row) for row in ordered]
    client = {}
    if session.totals:
        unpriced = _session_totals(session, rows, copies, (), lambda _: None)
        client[session.session] = own_client_totals(unpriced, history)
    priced = prices.price_responses(responses, client)
    costs = {item.response.message_id: item.cost.usd for item in priced}
    single = [_single_bucket(item, session.agents) for item in priced]
    return tuple(_merge_buckets(single)), lambda response: costs[response.message_id]


def best_rows(rows: Sequence[UsageLine]) -> Sequence[UsageLine]:
    """Return one row for each response, its best copy."""
    best = dict(zip(map(_message_id, rows), rows, strict=True))
    if len(best) == len(rows):
        return rows
    for row in rows:
        other = best[row.message_id]
        is_other = other is not row and other != row
        if is_other and is_better_copy(row_to_response(row), row_to_response(other)):
            best[row.message_id] = row
    return list(best.values())


def _bucket_rows(rows: Iterable[UsageLine], agents: Mapping[str, str]) -> tuple[UsageBucket, ...]:
    if agents:
        apart: dict[str, list[UsageLine]] = defaultdict(list)
        for row in rows:
            apart[agents.get(row.message_id, "")].append(row)
        buckets = ((agent, _bucket_rows(apart[agent], {})) for agent in sorted(apart))
        return tuple(replace(bucket, agent=agent) for agent, own in buckets for bucket in own)
    groups: dict[tuple[str, int], list[UsageLine]] = defaultdict(list)
    for row in rows:
        groups[row.model, row.at_ms // QUARTER_MS].append(row)
    return tuple(bucket for key in sorted(groups) for bucket in _price_quarter(key[0], groups[key]))


def _price_quarter(model: str, rows: list[UsageLine]) -> Iterator[UsageBucket]:
    """Price the rows of one quarter; those of another band of prices are summed apart."""
    at_ms = rows[0].at_ms
    if not prices.context_band(model, max(map(_prompt_tokens, rows)), at_ms):
        yield _bucket(model, rows, 0)
        return
    bands: dict[int, list[UsageLine]] = defaultdict(list)
    for row in rows:
        bands[prices.context_band(model, row.prompt_tokens, at_ms)].append(row)
    yield from _merge_buckets(_bucket(model, bands[band], band) for band in sorted(bands))


def _bucket(model: str, rows: list[UsageLine], band: int) -> UsageBucket:
    usage = Usage(*[sum(map(tokens, rows)) for tokens in _TOKEN_CLASSES])
    times = list(map(_at_ms, rows))
    cost = prices.price_in_band(model, usage, times[0], band)
    usd = None if cost.usd is None else round(cost.usd, USD_DIGITS)
    source, unknown, is_lower_bound = cost.source, 0, False
    if any(map(_quality, rows)):
        unknown = sum(row.quality == UsageQuality.MISSING for row in rows)
        is_lower_bound = any(row.quality == UsageQuality.LOWER_BOUND for row in rows)
        usd, source = (None, CostSource.UNKNOWN) if unknown == len(rows) else (usd, source)
    quarter_ms = times[0] // QUARTER_MS * QUARTER_MS
    counts = (len(rows), min(times), max(times), usage, unknown, is_lower_bound)
    return UsageBucket(model, quarter_ms, source, usd, *counts)


def _merge_buckets(parts: Iterable[UsageBucket]) -> list[UsageBucket]:
    """Add up buckets of one model, quarter, cost source and agent that were priced apart."""
    groups: dict[tuple[str, int, str, str], list[UsageBucket]] = defaultdict(list)
    for part in parts:
        groups[part.model, part.quarter_ms, part.source.value, part.agent].append(part)
    return [_sum_buckets(groups[key]) for key in sorted(groups)]


def _sum_buckets(parts: list[UsageBucket]) -> UsageBucket:
    amounts = [part.cost_usd for part in parts if part.cost_usd is not None]
    return UsageBucket(
        parts[0].model,
        parts[0].quarter_ms,
        parts[0].source,
        round(sum(amounts), USD_DIGITS) if amounts else None,
        sum(part.responses for part in parts),
        min(part.first_ms for part in parts),
        max(part.last_ms for part in parts),
        sum((part.usage for part in parts), Usage()),
        sum(part.unknown_responses for part in parts),
        any(part.is_lower_bound for part in parts),
        parts[0].agent,
    )


def _single_bucket(item: prices.PricedResponse, agents: Mapping[str, str]) -> UsageBucket:
    response, cost = item.response, item.cost
    at_ms, quality = response.at_ms, response.quality
    return UsageBucket(
        response.model,
        at_ms // QUARTER_MS * QUARTER_MS,
        cost.source,
        cost.usd,
        1,
        at_ms,
        at_ms,
        response.usage,
        int(quality is UsageQuality.MISSING),
        quality is UsageQuality.LOWER_BOUND,
        agents.get(response.message_id, ""),
    )


def estimate_bucket(row: UsageLine, chars: int) -> UsageBucket | None:
    """Return the output of a response of `chars` characters that its row lacks, priced."""
    missing = -(-chars // CHARS_PER_TOKEN) - row.output_tokens
    if missing <= 0:
        return None
    usage = Usage(output_tokens=missing)
    cost = prices.price(row.model, usage, row.at_ms)
    quarter_ms = row.at_ms // QUARTER_MS * QUARTER_MS
    counts = (0, row.at_ms, row.at_ms, usage)
    return UsageBucket(row.model, quarter_ms, cost.source, cost.usd, *counts, is_estimate=True)


def _first_project(rows: Sequence[UsageLine]) -> str:
    """Return the directory of the first response that has one; the session belongs to it."""
    named = rows if all(map(_project, rows)) else [row for row in rows if row.project]
    if not named:
        return ""
    first_ms = min(map(_at_ms, named))
    return min((row.message_id, row.project) for row in named if row.at_ms == first_ms)[1]
