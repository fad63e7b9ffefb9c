"""What a run's samples, replicates and branches can be asked, read from what is on record; writes nothing.

The trees of actions come from here too: how far replicates and branches go the same way.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from flightlog.lab.book import Book
from flightlog.lab.layout import run_meta
from flightlog.lab.plan import Planned
from flightlog.lab.reading import Reading, trees_of
from flightlog.lab.resampling.events import BatchBegun
from flightlog.lab.resampling.reading import Sample, journal_events, samples, variants
from flightlog.lab.statistics.actions import Action, of_response, of_step
from flightlog.lab.statistics.divergence import Way
from flightlog.lab.statistics.gathering import Branch, Known, Recorded, branched, resampled, sessions_of
from flightlog.lab.statistics.groups import Question
from flightlog.lab.told import exchanges_of
from flightlog.model.errors import FlightlogError
from flightlog.sources.api.sse import answer

PAIR = 2


class Taste(Struct, frozen=True):
    """How actions are told apart, and where programs are."""

    told_by: Callable[[Action], Action]
    programs: str


def of_samples(book: Book, taste: Taste, *, prefix: str = "") -> list[Question]:
    """The requests of a run that were asked again; `prefix` leads from where the places are read to the run."""
    found = samples(book.path)
    if not found:
        return []
    stopped = {
        (target.session, target.request, target.variant)
        for event in journal_events(book.path)
        if isinstance(event, BatchBegun) and event.limits.until_width is not None
        for target in event.targets
    }
    known = Known(_recorded(book, found), variants(book.path), stopped, book.config.work_dir, prefix, taste.told_by)
    return resampled(found, known)


def of_sessions(books: Sequence[Book]) -> list[Question]:
    """The sessions of several runs, or of one with replicates, that ended more than once."""
    told = [(book.name, run_meta(book.name, book.config, book.state)["sessions"]) for book in books]
    last = max((len(book.config.sessions) for book in books), default=0)
    questions = [sessions_of(told, index) for index in range(1, last + 1)]
    return [each for each in questions if sum(len(group.trials) for group in each.groups) >= PAIR]


def of_branches(books: Sequence[Book], taste: Taste) -> list[Question]:
    """The turns that some of these runs go back to."""
    return branched(_branches(books, taste))


def ways(books: Sequence[Book], taste: Taste) -> Iterator[Way]:
    """What each session of these runs did, action by action, with its place."""
    for book in books:
        trees = trees_of(book, taste.programs)
        for planned in book.planned():
            if book.state.last(planned.name) is not None:
                yield _way(book, planned, Reading(book, planned, trees), taste)


def _way(book: Book, planned: Planned, read: Reading, taste: Taste) -> Way:
    branch = book.state.branch if planned.index == 1 else None
    steps = tuple(taste.told_by(of_step(each, book.config.work_dir)) for each in read.steps())
    begins = (branch.source_run, branch.source_dir, branch.turn - 1) if branch else None
    return Way(book.name, planned.name, steps, begins)


def _branches(books: Sequence[Book], taste: Taste) -> Iterator[Branch]:
    names = {book.name: book for book in books}
    for book in books:
        branch = book.state.branch
        if branch is None:
            continue
        said = run_meta(book.name, book.config, book.state)["sessions"][0]
        if not said["finished_at"]:
            continue
        first = _step(book, book.planned()[0].name, 1, taste)
        source = names.get(branch.source_run)
        then = _step(source, branch.source_dir, branch.turn, taste) if source else None
        yield Branch(book.name, (branch.source_run, branch.source_dir, branch.turn), branch.prompt, said, first, then)


def _step(book: Book, session: str, turn: int, taste: Taste) -> Action | None:
    planned = next((each for each in book.planned() if each.name == session), None)
    if planned is None or book.state.last(session) is None:
        return None
    steps = Reading(book, planned, trees_of(book, taste.programs)).steps()
    return taste.told_by(of_step(steps[turn - 1], book.config.work_dir)) if turn <= len(steps) else None


def _recorded(book: Book, found: Sequence[Sample]) -> dict[tuple[str, int], Recorded]:
    """What each request that was asked again was answered with the first time."""
    wanted: dict[str, set[int]] = {}
    for each in found:
        wanted.setdefault(each.session, set()).add(each.request)
    told = {}
    for session, requests in wanted.items():
        exchanges = exchanges_of(book.path / session)
        for exchange in exchanges.read():
            if exchange.index in requests:
                try:
                    message = answer(exchanges.received(exchange)).message
                except FlightlogError:
                    message = None
                if message:
                    told[session, exchange.index] = _then(message, book.config.work_dir)
    return told


def _then(message: dict[str, object], work_dir: str) -> Recorded:
    content = message.get("content")
    blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    action = of_response(blocks, str(message.get("stop_reason") or ""), work_dir)
    return Recorded(action, str(message.get("model") or ""))
