"""Reconcile the client's own total with the recorded responses, each difference with a reason.

The client keeps a running total of its own. Some of it has no recorded message: compaction calls,
cut streams, what a fork inherited. `client = inherited + recorded + unrecorded` holds to the token.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from flightlog.model.usage import ClientTotals, ModelResponse, ModelTotal, Usage, UsageQuality


class GapReason(enum.Enum):
    """Why the client's total and the recorded messages differ."""

    COMPACTION = "compaction call"
    CUT = "cut stream"
    INTERRUPTED = "interrupted"
    COPY = "resumed copy"
    LATER = "not counted yet"
    WEB_SEARCH = "web search side call"
    SIDE_CALL = "call without a message"
    UNKNOWN = "unknown"


class GapEvidence(Struct, frozen=True):
    """What a session's recording shows that explains a difference.

    Some agents count calls that they do not record, such as the one that makes a title.
    """

    compactions: int = 0
    truncated_records: int = 0
    has_copied_records: bool = False
    web_searches: int = 0
    has_side_calls: bool = False


FindEvidence = Callable[[str, bool], GapEvidence]
"""Takes a session, and whether its client counted more than was recorded; searches its files."""


class UsageGap(Struct, frozen=True):
    """A part of the difference; below zero if the client counted less than was recorded."""

    session: str
    reason: GapReason
    usage: Usage
    cost_usd: float | None


class Reconciliation(Struct, frozen=True):
    """A session's client total against its record."""

    session: str
    client: ClientTotals
    recorded: Usage
    recorded_usd: float | None
    inherited: Usage
    inherited_usd: float | None
    inherited_from: str
    gaps: tuple[UsageGap, ...]


pack_reconciliation = msgspec.msgpack.Encoder().encode
unpack_reconciliation = msgspec.msgpack.Decoder(Reconciliation).decode


class SessionTotals(Struct, frozen=True):
    """What one session's files hold: the sum of its own responses, and copies of others'.

    `doubtful` are those of its own that the client may not have counted, with their cost.
    """

    session: str
    usage: Usage
    cost_usd: float | None
    began_ms: int | None
    doubtful: tuple[tuple[ModelResponse, float | None], ...]
    copies: tuple[ModelResponse, ...]


def latest_totals(totals: Iterable[ClientTotals]) -> ClientTotals:
    """Return the largest total, which is the last: the client only adds."""
    return max(
        totals,
        key=lambda stated: (stated.cost_usd or 0.0, stated.usage.total_tokens, stated.as_of_ms),
    )


def own_client_totals(
    totals: SessionTotals, history: Mapping[str, Sequence[ClientTotals]]
) -> ClientTotals:
    """Return what the client counted in this session alone, without what a fork inherited."""
    client = latest_totals(history[totals.session])
    parent = _parent_totals(totals, client, history)
    before = {model.model: model for model in parent.models} if parent else {}
    models = [
        _subtract(model, before[model.model]) if model.model in before else model
        for model in client.models
    ]
    return replace(client, models=tuple(models))


def _subtract(model: ModelTotal, inherited: ModelTotal) -> ModelTotal:
    cost_usd = None
    if model.cost_usd is not None:
        cost_usd = max(model.cost_usd - (inherited.cost_usd or 0.0), 0.0)
    return replace(model, cost_usd=cost_usd, **asdict(model.usage - inherited.usage))


def reconcile(
    totals: SessionTotals, history: Mapping[str, Sequence[ClientTotals]], evidence: FindEvidence
) -> Reconciliation:
    """Compare a session's record with its client's total; `history` has all totals by session."""
    client = latest_totals(history[totals.session])
    parent = _parent_totals(totals, client, history)
    inherited, inherited_usd = (parent.usage, parent.cost_usd) if parent else (Usage(), 0.0)
    inherited_from = parent.session if parent else ""
    copied = sum((response.usage for response in totals.copies), Usage())
    if totals.copies and inherited != copied and client.usage == copied + totals.usage:
        # An agent that copies messages into a fork counts them there again.
        inherited, inherited_from = copied, totals.copies[-1].session
        inherited_usd = max((client.cost_usd or 0.0) - (totals.cost_usd or 0.0), 0.0)
    gap_usage = client.usage - inherited - totals.usage
    gap_usd = None
    if client.cost_usd is not None:
        gap_usd = client.cost_usd - (inherited_usd or 0.0) - (totals.cost_usd or 0.0)
    gap = UsageGap(totals.session, GapReason.UNKNOWN, gap_usage, gap_usd)
    return Reconciliation(
        session=totals.session,
        client=client,
        recorded=totals.usage,
        recorded_usd=totals.cost_usd,
        inherited=inherited,
        inherited_usd=inherited_usd,
        inherited_from=inherited_from,
        gaps=tuple(_explain_gap(gap, totals, client, evidence)) if gap.usage else (),
    )


def _parent_totals(
    totals: SessionTotals, client: ClientTotals, history: Mapping[str, Sequence[ClientTotals]]
) -> ClientTotals | None:
    """Return the total a fork continued from: it has the same start; a copied file has none."""
    if not totals.copies:
        return None
    parent = max(totals.copies, key=lambda response: (response.at_ms, response.message_id)).session
    began = totals.began_ms
    own = [one for one in history.get(parent, ()) if one.started_ms == client.started_ms]
    earlier = [stated for stated in own if began is None or stated.as_of_ms <= began]
    return latest_totals(earlier) if earlier else None


def _explain_gap(
    gap: UsageGap, totals: SessionTotals, client: ClientTotals, evidence: FindEvidence
) -> Iterator[UsageGap]:
    """Yield the parts whose usage is known exactly, then the rest with its most likely reason."""
    late = [response for response, _ in totals.doubtful if 0 < client.as_of_ms < response.at_ms]
    later = [response for response in late if not response.is_aborted]
    if later and gap.usage == -sum((response.usage for response in later), Usage()):
        yield replace(gap, reason=GapReason.LATER)  # the client states its total when it ends
        return
    copied = [pair for pair in totals.doubtful if pair[0].at_ms < client.started_ms]
    aborted = [pair for pair in totals.doubtful if pair[0].is_aborted and pair not in copied]
    summaries = [pair for pair in totals.doubtful if pair[0].quality is UsageQuality.UNCOUNTED]
    rest, rest_usd = gap.usage, gap.cost_usd
    for reason, uncounted in (
        (GapReason.COPY, copied),
        (GapReason.INTERRUPTED, aborted),
        (GapReason.COMPACTION, [pair for pair in summaries if pair not in copied]),
    ):
        if uncounted:
            usage = -sum((response.usage for response, _ in uncounted), Usage())
            usd = -sum(usd or 0.0 for _, usd in uncounted)
            yield UsageGap(gap.session, reason, usage, None if rest_usd is None else usd)
            rest, rest_usd = rest - usage, None if rest_usd is None else rest_usd - usd
    if rest:
        more = rest.total_tokens > 0
        shown = evidence(gap.session, more)
        reason = GapReason.INTERRUPTED if aborted else GapReason.UNKNOWN
        if more and shown.web_searches and (rest.web_searches or not shown.compactions):
            reason = GapReason.WEB_SEARCH
        elif more and (shown.compactions or shown.truncated_records):
            reason = GapReason.COMPACTION if shown.compactions else GapReason.CUT
        elif shown.has_copied_records:
            reason = GapReason.COPY
        elif shown.has_side_calls:
            reason = GapReason.SIDE_CALL
        yield UsageGap(gap.session, reason, rest, rest_usd)
