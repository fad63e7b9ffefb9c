"""What a report needs of a session, worked out once: tokens and cost by model and quarter of an hour.

Every time zone's days, every month and every 5-hour block is made of whole quarters, so
reports add up digests instead of responses. Sessions that share responses are worked out
together by the ledger's rule; one that shares none takes a short cut to the same digest.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from flightlog.model.usage import ClientTotals, CostSource, Response, Row, Usage, response, row_of
from flightlog.views.ledger import better, settled
from flightlog.views.prices import is_priced, long_above, price_at
from flightlog.views.truth import Account, Evidence, Truth, counted_here, last, truth_of
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
    rows = {said.session: _counted(said.rows) for said in group}
    copies: Mapping[str, Sequence[Response]] = {}
    if len(group) > 1:
        rows, copies = _shared_out(rows, {said.session: said.born_ms for said in group if said.born_ms})
    history = {said.session: said.totals for said in group if said.totals}
    return [_digest(said, rows[said.session], copies.get(said.session, ()), history, evidence) for said in group]


def _shared_out(
    rows: Mapping[str, Sequence[Row]], born_ms: Mapping[str, int]
) -> tuple[dict[str, list[Row]], Mapping[str, Sequence[Response]]]:
    """Give each shared response to the session it belongs to, by the ledger's rule.

    The ledger is asked only about those that are shared; of the others it needs to know when
    each session first said something of its own.
    """
    held = Counter(row[0] for each in rows.values() for row in each)
    own = {session: [row for row in each if held[row[0]] == 1] for session, each in rows.items()}
    first = [min(each, key=lambda row: row.at_ms) for each in own.values() if each]
    shared = [row for each in rows.values() for row in each if held[row[0]] > 1]
    ledger = settled([response(row) for row in [*shared, *first]], born_ms)
    for each in ledger.responses:
        if held[each.message_id] > 1:
            own[each.session].append(row_of(each))
    return own, ledger.copies


def _digest(
    said: Said,
    rows: Sequence[Row],
    copies: Sequence[Response],
    history: Mapping[str, Sequence[ClientTotals]],
    evidence: AskEvidence,
) -> SessionDigest:
    if all(is_priced(model) for model in {row.model for row in rows}):
        tallies = _tallied_rows(rows)
        truth = None if copies and _may_inherit(said, history) else _plain_truth(said, tallies)
        if truth is not None or not said.totals:
            project = _project((row.at_ms, row[0], row.project) for row in rows)
            return SessionDigest(said.session, project, tallies, truth)
    return _long_way(said, rows, copies, history, evidence)


def _counted(rows: Iterable[Row]) -> list[Row]:
    best: dict[str, Row] = {}
    for row in rows:
        known = best.get(row[0])
        if known is None or (known != row and better(response(row), response(known))):
            best[row[0]] = row
    return list(best.values())


def _tallied_rows(rows: Iterable[Row]) -> tuple[Tally, ...]:
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[2], row[9] // QUARTER_MS].append(row)
    return tuple(tally for (model, quarter) in sorted(groups) for tally in _priced_rows(model, groups[model, quarter]))


def _priced_rows(model: str, rows: list[Row]) -> Iterator[Tally]:
    """Price rows of one quarter; those with long-context prices are added up apart."""
    threshold = long_above(model, rows[0].at_ms)
    if not threshold:
        yield _tally(model, rows, long=False)
        return
    long = [row for row in rows if row[3] + row[5] + row[6] + row[7] > threshold]
    if not long:
        yield _tally(model, rows, long=False)
        return
    short = [row for row in rows if row[3] + row[5] + row[6] + row[7] <= threshold]
    yield from _joined(_tally(model, part, long=part is long) for part in (short, long) if part)


def _tally(model: str, rows: list[Row], *, long: bool) -> Tally:
    columns = list(zip(*rows, strict=True))
    usage = Usage(*map(sum, columns[3:9]))
    times = columns[9]
    cost = price_at(model, usage, times[0], long=long)
    usd = None if cost.usd is None else round(cost.usd, _USD_DIGITS)
    quarter_ms = times[0] // QUARTER_MS * QUARTER_MS
    return Tally(model, quarter_ms, cost.source, usd, len(rows), min(times), max(times), usage)


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


def _may_inherit(said: Said, history: Mapping[str, Sequence[ClientTotals]]) -> bool:
    """Whether the session may have gone on from another one's total: a fork keeps the time its client started."""
    started = {totals.started_ms for totals in said.totals}
    return any(
        totals.started_ms in started for session, each in history.items() if session != said.session for totals in each
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


def _long_way(
    said: Said,
    rows: Sequence[Row],
    copies: Sequence[Response],
    history: Mapping[str, Sequence[ClientTotals]],
    evidence: AskEvidence,
) -> SessionDigest:
    """Price every response, and ask for evidence where the client disagrees."""
    responses = sorted((response(row) for row in rows), key=lambda each: (each.at_ms, each.message_id))
    unpriced = Account(said.session, tuple((each, None) for each in responses), tuple(copies))
    known = priced(responses, {said.session: counted_here(unpriced, history)} if said.totals else {})
    account = Account(said.session, tuple((item.response, item.cost.usd) for item in known), tuple(copies))
    truth = truth_of(account, history, evidence) if said.totals else None
    project = _project((row.at_ms, row[0], row.project) for row in rows)
    parts = (_single(item) for item in known)
    return SessionDigest(said.session, project, tuple(_joined(parts)), truth)


def _single(item: Priced) -> Tally:
    said, at_ms = item.response, item.response.at_ms
    quarter_ms = at_ms // QUARTER_MS * QUARTER_MS
    return Tally(said.model, quarter_ms, item.cost.source, item.cost.usd, 1, at_ms, at_ms, said.usage)


def _project(said: Iterable[tuple[int, str, str]]) -> str:
    """A session belongs to the directory of its first response."""
    return min((each for each in said if each[2]), default=(0, "", ""))[2]
