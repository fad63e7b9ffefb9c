"""What a report needs of a session, worked out once: tokens and cost by model and quarter of an hour.

Every time zone's days, every month and every 5-hour block is made of whole quarters, so
reports add up digests instead of responses. Sessions that share responses are worked out
together by the ledger's rule; one that shares none takes a short cut to the same digest.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from flightlog.model.usage import ClientTotals, CostSource, Response, Row, Usage, response
from flightlog.views.ledger import Ledger, better, settled
from flightlog.views.prices import is_priced, long_above, price_at
from flightlog.views.truth import Account, Evidence, Truth, last, truths
from flightlog.views.usage import Priced, priced

QUARTER_MS = 900_000
_USD_DIGITS = 9  # a billionth of a dollar: finer than any price, coarser than the order of a sum


class Tally(Struct, frozen=True, array_like=True):
    """Responses of one model in one quarter of an hour."""

    model: str
    quarter_ms: int
    source: CostSource
    usd: float | None
    responses: int
    first_ms: int
    last_ms: int
    usage: Usage


class SessionDigest(Struct, frozen=True, array_like=True):
    """One session's part of any report."""

    session: str
    project: str
    tallies: tuple[Tally, ...]
    truth: Truth | None


class Said(Struct, frozen=True):
    """Everything the files of one session say about usage; `born_ms` is their first time stamp."""

    session: str
    born_ms: int
    rows: Sequence[Row]
    totals: Sequence[ClientTotals]


AskEvidence = Callable[[str], Evidence]


def digested(group: Sequence[Said], evidence: AskEvidence) -> list[SessionDigest]:
    """Work out the digests of sessions that share responses with each other, and with nobody else."""
    if len(group) == 1:
        short = _short_cut(group[0])
        if short is not None:
            return [short]
    return _settled(group, evidence)


def _short_cut(said: Said) -> SessionDigest | None:
    """Digest a session alone; None when something about it needs the long way."""
    rows = _counted(said.rows)
    if not all(is_priced(model) for model in {row.model for row in rows}):
        return None
    tallies = _tallied_rows(rows)
    truth = _plain_truth(said, tallies)
    if said.totals and truth is None:
        return None
    return SessionDigest(said.session, _project((row.at_ms, row[0], row.project) for row in rows), tallies, truth)


def _counted(rows: Iterable[Row]) -> list[Row]:
    best: dict[str, Row] = {}
    for row in rows:
        known = best.get(row[0])
        if known is None or (known != row and better(response(row), response(known))):
            best[row[0]] = row
    return list(best.values())


def _tallied_rows(rows: Iterable[Row]) -> tuple[Tally, ...]:
    groups: dict[tuple[str, int, bool], list[Row]] = defaultdict(list)
    thresholds: dict[tuple[str, int], int] = {}
    for row in rows:
        model, quarter = row[2], row[9] // QUARTER_MS
        threshold = thresholds.get((model, quarter))
        if threshold is None:
            threshold = thresholds[model, quarter] = long_above(model, row[9])
        long = threshold > 0 and row[3] + row[5] + row[6] + row[7] > threshold
        groups[model, quarter, long].append(row)
    parts = [_tally(key, groups[key]) for key in sorted(groups)]
    return tuple(_joined(parts)) if len(thresholds) < len(parts) else tuple(parts)


def _tally(key: tuple[str, int, bool], rows: list[Row]) -> Tally:
    model, quarter, long = key
    columns = list(zip(*rows, strict=True))
    usage = Usage(*map(sum, columns[3:9]))
    times = columns[9]
    cost = price_at(model, usage, times[0], long=long)
    usd = None if cost.usd is None else round(cost.usd, _USD_DIGITS)
    return Tally(model, quarter * QUARTER_MS, cost.source, usd, len(rows), min(times), max(times), usage)


def _joined(parts: Iterable[Tally]) -> list[Tally]:
    """Put together what was priced apart."""
    groups: dict[tuple[str, int, str], list[Tally]] = defaultdict(list)
    for part in parts:
        groups[part.model, part.quarter_ms, part.source.value].append(part)
    return [_sum(groups[key]) for key in sorted(groups)]


def _sum(parts: list[Tally]) -> Tally:
    known = [part.usd for part in parts if part.usd is not None]
    return Tally(
        parts[0].model,
        parts[0].quarter_ms,
        parts[0].source,
        round(sum(known), _USD_DIGITS) if known else None,
        sum(part.responses for part in parts),
        min(part.first_ms for part in parts),
        max(part.last_ms for part in parts),
        sum((part.usage for part in parts), Usage()),
    )


def _plain_truth(said: Said, tallies: Iterable[Tally]) -> Truth | None:
    """The truth where client and record agree to the token, which needs no evidence."""
    if not said.totals:
        return None
    client = last(said.totals)
    recorded = sum((tally.usage for tally in tallies), Usage())
    if client.usage != recorded:
        return None
    usd = round(sum(tally.usd or 0.0 for tally in tallies), _USD_DIGITS)
    return Truth(said.session, client, recorded, usd, Usage(), 0.0, "", ())


def _settled(group: Sequence[Said], evidence: AskEvidence) -> list[SessionDigest]:
    lines = [response(row) for said in group for row in said.rows]
    ledger = settled(lines, {said.session: said.born_ms for said in group if said.born_ms})
    stated = {said.session: said.totals for said in group if said.totals}
    known = priced(ledger.responses, {session: last(totals) for session, totals in stated.items()})
    accounts = accounts_of(known, ledger)
    told = {
        each.session: each for each in truths(accounts, [one for each in stated.values() for one in each], evidence)
    }
    items: dict[str, list[Priced]] = defaultdict(list)
    for item in known:
        items[item.response.session].append(item)
    return [_long_way(said.session, items[said.session], told.get(said.session)) for said in group]


def _long_way(session: str, items: list[Priced], truth: Truth | None) -> SessionDigest:
    parts = [
        Tally(
            item.response.model,
            item.response.at_ms // QUARTER_MS * QUARTER_MS,
            item.cost.source,
            item.cost.usd,
            1,
            item.response.at_ms,
            item.response.at_ms,
            item.response.usage,
        )
        for item in items
    ]
    said = ((item.response.at_ms, item.response.message_id, item.response.project) for item in items)
    return SessionDigest(session, _project(said), tuple(_joined(parts)), truth)


def accounts_of(known: Iterable[Priced], ledger: Ledger) -> dict[str, Account]:
    """Give each session its own responses and the copies of others' it holds."""
    own: dict[str, list[tuple[Response, float | None]]] = defaultdict(list)
    for item in known:
        own[item.response.session].append((item.response, item.cost.usd))
    sessions = own.keys() | ledger.copies.keys()
    return {session: Account(session, tuple(own[session]), ledger.copies.get(session, ())) for session in sessions}


def _project(said: Iterable[tuple[int, str, str]]) -> str:
    """A session belongs to the directory of its first response."""
    return min((each for each in said if each[2]), default=(0, "", ""))[2]
