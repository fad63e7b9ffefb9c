"""What a run's samples, replicates and branches can be asked, read from what is on record; writes nothing.

The trees of actions come from here too: how far replicates and branches go the same way.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from flightlog.lab.book import RunStore
from flightlog.lab.layout import run_meta
from flightlog.lab.plan import PlannedSession
from flightlog.lab.reading import RunSession, trees_of
from flightlog.lab.resampling.events import BatchStarted
from flightlog.lab.resampling.reading import Sample, journal_events, list_samples, list_variants
from flightlog.lab.statistics.actions import Action, action_of_response, action_of_step
from flightlog.lab.statistics.divergence import ActionPath
from flightlog.lab.statistics.gathering import (
    BranchTrial,
    RecordedAction,
    SampleContext,
    question_from_sessions,
    questions_from_branches,
    questions_from_samples,
)
from flightlog.lab.statistics.groups import ComparisonQuestion
from flightlog.lab.told import exchanges_of
from flightlog.model.errors import FlightlogError
from flightlog.sources.api.sse import decode_response

PAIR = 2


class ComparisonOptions(Struct, frozen=True):
    """How actions are told apart, and where programs are."""

    told_by: Callable[[Action], Action]
    programs: str


def sample_questions(book: RunStore, taste: ComparisonOptions, *, prefix: str = "") -> list[ComparisonQuestion]:
    """The requests of a run that were asked again; `prefix` leads from where the places are read to the run."""
    found = list_samples(book.path)
    if not found:
        return []
    stopped = {
        (target.session, target.request, target.variant)
        for event in journal_events(book.path)
        if isinstance(event, BatchStarted) and event.limits.until_width is not None
        for target in event.targets
    }
    known = SampleContext(
        _load_recorded_actions(book, found),
        list_variants(book.path),
        stopped,
        book.config.work_dir,
        prefix,
        taste.told_by,
    )
    return questions_from_samples(found, known)


def session_questions(books: Sequence[RunStore]) -> list[ComparisonQuestion]:
    """The sessions of several runs, or of one with replicates, that ended more than once."""
    told = [(book.name, run_meta(book.name, book.config, book.state)["sessions"]) for book in books]
    last = max((len(book.config.sessions) for book in books), default=0)
    questions = [question_from_sessions(told, index) for index in range(1, last + 1)]
    return [each for each in questions if sum(len(group.trials) for group in each.groups) >= PAIR]


def branch_questions(books: Sequence[RunStore], taste: ComparisonOptions) -> list[ComparisonQuestion]:
    """The turns that some of these runs go back to."""
    return questions_from_branches(_iter_branches(books, taste))


def iter_action_paths(books: Sequence[RunStore], taste: ComparisonOptions) -> Iterator[ActionPath]:
    """What each session of these runs did, action by action, with its place."""
    for book in books:
        trees = trees_of(book, taste.programs)
        for planned in book.planned_sessions():
            if book.state.last_attempt(planned.name) is not None:
                yield _build_action_path(book, planned, RunSession(book, planned, trees), taste)


def _build_action_path(
    book: RunStore, planned: PlannedSession, read: RunSession, taste: ComparisonOptions
) -> ActionPath:
    branch = book.state.branch if planned.index == 1 else None
    steps = tuple(taste.told_by(action_of_step(each, book.config.work_dir)) for each in read.own_steps())
    begins = (branch.source_run, branch.source_dir, branch.turn - 1) if branch else None
    return ActionPath(book.name, planned.name, steps, begins)


def _iter_branches(books: Sequence[RunStore], taste: ComparisonOptions) -> Iterator[BranchTrial]:
    names = {book.name: book for book in books}
    for book in books:
        branch = book.state.branch
        if branch is None:
            continue
        said = run_meta(book.name, book.config, book.state)["sessions"][0]
        if not said["finished_at"]:
            continue
        first = _action_at_turn(book, book.planned_sessions()[0].name, 1, taste)
        source = names.get(branch.source_run)
        then = _action_at_turn(source, branch.source_dir, branch.turn, taste) if source else None
        yield BranchTrial(
            book.name, (branch.source_run, branch.source_dir, branch.turn), branch.prompt, said, first, then
        )


def _action_at_turn(book: RunStore, session: str, turn: int, taste: ComparisonOptions) -> Action | None:
    planned = next((each for each in book.planned_sessions() if each.name == session), None)
    if planned is None or book.state.last_attempt(session) is None:
        return None
    steps = RunSession(book, planned, trees_of(book, taste.programs)).own_steps()
    return taste.told_by(action_of_step(steps[turn - 1], book.config.work_dir)) if turn <= len(steps) else None


def _load_recorded_actions(book: RunStore, found: Sequence[Sample]) -> dict[tuple[str, int], RecordedAction]:
    """What each request that was asked again was answered with the first time."""
    wanted: dict[str, set[int]] = {}
    for each in found:
        wanted.setdefault(each.session, set()).add(each.request)
    told = {}
    for session, requests in wanted.items():
        exchanges = exchanges_of(book.path / session)
        for exchange in exchanges.read_exchanges():
            if exchange.index in requests:
                try:
                    message = decode_response(exchanges.response_body(exchange)).message
                except FlightlogError:
                    message = None
                if message:
                    told[session, exchange.index] = _recorded_action(message, book.config.work_dir)
    return told


def _recorded_action(message: dict[str, object], work_dir: str) -> RecordedAction:
    content = message.get("content")
    blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    action = action_of_response(blocks, str(message.get("stop_reason") or ""), work_dir)
    return RecordedAction(action, str(message.get("model") or ""))
