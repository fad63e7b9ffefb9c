"""What a report needs of a session, worked out once: tokens and cost by model and quarter of an hour.

Every time zone's days, every month and every 5-hour block is made of whole quarters, so
reports add up digests instead of responses. Sessions that share responses are worked out
together by the ledger's rule.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct

from flightlog.model.usage import ClientTotals, CostSource, Response, Row, Usage, response, row_of
from flightlog.views.ledger import better, settled
from flightlog.views.prices import is_priced, long_above, price, price_at
from flightlog.views.truth import Account, AskEvidence, Gap, counted_here, last, packed, truth_of
from flightlog.views.usage import Priced, priced

QUARTER_MS = 900_000
_name, _model, _at_ms, _place = itemgetter(0), itemgetter(2), itemgetter(9), itemgetter(10)
USD_DIGITS = 9  # a billionth of a dollar: finer than any price, coarser than the order of a sum


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
    """One session's part of any report.

    `told` is its row of the truth table, packed, because few reports look at it; its gaps, which all of them
    show, stand beside it.
    """

    session: str
    project: str
    tallies: tuple[Tally, ...]
    gaps: tuple[Gap, ...] = ()
    told: bytes = b""


class Said(Struct, frozen=True):
    """Everything the files of one session say about usage; `born_ms` is their first time stamp."""

    session: str
    born_ms: int
    rows: Sequence[Row]
    totals: Sequence[ClientTotals]


PriceOf = Callable[[Response], float | None]


def digested(group: Sequence[Said], evidence: AskEvidence) -> list[SessionDigest]:
    """Work out the digests of sessions that share responses with each other, and with nobody else."""
    rows: Mapping[str, Sequence[Row]] = {said.session: _counted(said.rows) for said in group}
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
    first = [min(each, key=_at_ms) for each in own.values() if each]
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
    if all(map(is_priced, set(map(_model, rows)))):
        tallies = _tallied_rows(rows)
        price_of: PriceOf = _table_price
    else:
        tallies, price_of = _client_priced(said, rows, copies, history)
    truth = truth_of(_account(said, rows, copies, tallies, price_of), history, evidence) if said.totals else None
    if truth is None:
        return SessionDigest(said.session, _project(rows), tallies)
    return SessionDigest(said.session, _project(rows), tallies, truth.gaps, packed(truth))


def _account(
    said: Said, rows: Sequence[Row], copies: Sequence[Response], tallies: Sequence[Tally], price_of: PriceOf
) -> Account:
    started_ms = last(said.totals).started_ms
    # What may be missing from what the client counted: said before it started, or cut off.
    doubtful = [response(row) for row in rows if row[9] < started_ms or row[13]]
    known = [tally.usd for tally in tallies if tally.usd is not None]
    return Account(
        said.session,
        sum((tally.usage for tally in tallies), Usage()),
        round(sum(known), USD_DIGITS) if len(known) == len(tallies) else None,
        min(map(_at_ms, rows), default=None),
        tuple((each, price_of(each)) for each in doubtful),
        tuple(copies),
    )


def _table_price(said: Response) -> float | None:
    return price(said.model, said.usage, said.at_ms).usd


def _client_priced(
    said: Said, rows: Sequence[Row], copies: Sequence[Response], history: Mapping[str, Sequence[ClientTotals]]
) -> tuple[tuple[Tally, ...], PriceOf]:
    """Price every response by itself: what the table does not know is shared out from what the client said."""
    responses = sorted((response(row) for row in rows), key=lambda each: (each.at_ms, each.message_id))
    client = {}
    if said.totals:
        unpriced = _account(said, rows, copies, (), lambda _: None)
        client[said.session] = counted_here(unpriced, history)
    known = priced(responses, client)
    costs = {item.response.message_id: item.cost.usd for item in known}
    return tuple(_joined(map(_single, known))), lambda each: costs[each.message_id]


def _counted(rows: Sequence[Row]) -> Sequence[Row]:
    """Return one row for each response; few stand in a session's files more than once."""
    best = dict(zip(map(_name, rows), rows, strict=True))
    if len(best) == len(rows):
        return rows
    for row in rows:
        known = best[row[0]]
        if known is not row and known != row and better(response(row), response(known)):
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
    usd = None if cost.usd is None else round(cost.usd, USD_DIGITS)
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
        round(sum(known), USD_DIGITS) if known else None,
        sum(part.responses for part in parts),
        min(part.first_ms for part in parts),
        max(part.last_ms for part in parts),
        sum((part.usage for part in parts), Usage()),
    )


def _single(item: Priced) -> Tally:
    said, at_ms = item.response, item.response.at_ms
    quarter_ms = at_ms // QUARTER_MS * QUARTER_MS
    return Tally(said.model, quarter_ms, item.cost.source, item.cost.usd, 1, at_ms, at_ms, said.usage)


def _project(rows: Sequence[Row]) -> str:
    """A session belongs to the directory of its first response that says one."""
    named = rows if all(map(_place, rows)) else [row for row in rows if row[10]]
    if not named:
        return ""
    began_ms = min(map(_at_ms, named))
    return min((row.message_id, row.project) for row in named if row.at_ms == began_ms)[1]
