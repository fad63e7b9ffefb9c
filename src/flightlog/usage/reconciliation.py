"""The cost truth table: what was recorded, what the client counted besides, and why they differ.

The client keeps a running total of its own. What it counted and left no message for
(compaction calls, streams that were cut, what a fork inherited) is told apart from what was
recorded, so that  client = inherited + recorded + unrecorded  holds to the token.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.usage import ClientTotals, Response, Usage


class GapReason(enum.Enum):
    """Why the client's total and the recorded messages differ."""

    COMPACTION = "compaction call"
    CUT = "cut stream"
    INTERRUPTED = "interrupted"
    COPY = "resumed copy"
    UNKNOWN = "unknown"


class GapEvidence(Struct, frozen=True):
    """What a session's recording shows that explains a difference."""

    compactions: int = 0
    cuts: int = 0
    copied: bool = False


FindEvidence = Callable[[str, bool], GapEvidence]
"""Asked about a session, and whether its client counted more than was recorded."""


class UsageGap(Struct, frozen=True):
    """A part of the difference, with its reason; below zero when the client counted less than was recorded."""

    session: str
    reason: GapReason
    usage: Usage
    cost_usd: float


class Reconciliation(Struct, frozen=True):
    """One row of the table."""

    session: str
    client: ClientTotals
    recorded: Usage
    recorded_usd: float | None
    inherited: Usage
    inherited_usd: float
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
    usd: float | None
    began_ms: int | None
    doubtful: tuple[tuple[Response, float | None], ...]
    copies: tuple[Response, ...]


def latest_totals(totals: Iterable[ClientTotals]) -> ClientTotals:
    """The last total is the largest: the client only ever adds."""
    return max(totals, key=lambda stated: (stated.total_usd, stated.usage.total, stated.as_of_ms))


def own_client_totals(account: SessionTotals, history: Mapping[str, Sequence[ClientTotals]]) -> ClientTotals:
    """What the client counted in this session alone: a fork's total without what it inherited."""
    client = latest_totals(history[account.session])
    parent = _inherited(account, client, history)
    before = {model.model: model for model in parent.models} if parent else {}
    models = [
        replace(model, usage=model.usage - known.usage, cost_usd=max(model.cost_usd - known.cost_usd, 0.0))
        if (known := before.get(model.model))
        else model
        for model in client.models
    ]
    return replace(client, models=tuple(models))


def reconcile(
    account: SessionTotals, history: Mapping[str, Sequence[ClientTotals]], evidence: FindEvidence
) -> Reconciliation:
    """Hold one session's record against what its client said; `history` is what every client said, by session."""
    client = latest_totals(history[account.session])
    parent = _inherited(account, client, history)
    inherited, inherited_usd = (parent.usage, parent.total_usd) if parent else (Usage(), 0.0)
    usd = account.usd
    gap = UsageGap(
        account.session,
        GapReason.UNKNOWN,
        client.usage - inherited - account.usage,
        client.total_usd - inherited_usd - (usd or 0.0),
    )
    return Reconciliation(
        session=account.session,
        client=client,
        recorded=account.usage,
        recorded_usd=usd,
        inherited=inherited,
        inherited_usd=inherited_usd,
        inherited_from=parent.session if parent else "",
        gaps=tuple(_explained(gap, account, client, evidence)) if gap.usage else (),
    )


def _inherited(
    account: SessionTotals, client: ClientTotals, history: Mapping[str, Sequence[ClientTotals]]
) -> ClientTotals | None:
    """A fork goes on from its parent's total and start time; a copied file begins at nothing."""
    if not account.copies:
        return None
    parent = max(account.copies, key=lambda response: (response.at_ms, response.message_id)).session
    began = account.began_ms
    known = [
        totals
        for totals in history.get(parent, ())
        if totals.started_ms == client.started_ms and (began is None or totals.as_of_ms <= began)
    ]
    return latest_totals(known) if known else None


def _explained(
    gap: UsageGap, account: SessionTotals, client: ClientTotals, evidence: FindEvidence
) -> Iterator[UsageGap]:
    """Take out what is known exactly, then name what remains."""
    copied = [pair for pair in account.doubtful if pair[0].at_ms < client.started_ms]
    aborted = [pair for pair in account.doubtful if pair[0].aborted and pair not in copied]
    rest, rest_usd = gap.usage, gap.cost_usd
    for reason, uncounted in ((GapReason.COPY, copied), (GapReason.INTERRUPTED, aborted)):
        if uncounted:
            usage = -sum((response.usage for response, _ in uncounted), Usage())
            usd = -sum(usd or 0.0 for _, usd in uncounted)
            yield UsageGap(gap.session, reason, usage, usd)
            rest, rest_usd = rest - usage, rest_usd - usd
    if rest:
        more = rest.total > 0
        reason = _reason(evidence(gap.session, more), more=more, interrupted=bool(aborted))
        yield UsageGap(gap.session, reason, rest, rest_usd)


def _reason(shown: GapEvidence, *, more: bool, interrupted: bool) -> GapReason:
    if more and shown.compactions:
        return GapReason.COMPACTION
    if more and shown.cuts:
        return GapReason.CUT
    if shown.copied:
        return GapReason.COPY
    return GapReason.INTERRUPTED if interrupted else GapReason.UNKNOWN
