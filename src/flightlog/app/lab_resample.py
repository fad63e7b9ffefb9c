"""Wiring of samples: what a batch is given of this machine, where it is sent from, and how it is stopped."""

import asyncio
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import stamina.instrumentation
import uvloop
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.scripted import serve
from flightlog.app import lab
from flightlog.lab.book import Book
from flightlog.lab.events import Resampled
from flightlog.lab.layout import meta_page
from flightlog.lab.replaying.source import Source
from flightlog.lab.resampling import asking
from flightlog.lab.resampling.batch import Batch, Tell, Way, settled
from flightlog.lab.resampling.events import BatchEnded, BatchTaken, Limits, Target
from flightlog.lab.resampling.ledger import BatchState, Ledger, held
from flightlog.lab.resampling.recorded import Asked, Listed, recorded_body, requests
from flightlog.lab.resampling.sending import credentials
from flightlog.lab.resampling.sweep import Sweep, parse
from flightlog.lab.resampling.variants import Label, made
from flightlog.lab.resampling.widths import Widths
from flightlog.lab.running.run import more
from flightlog.lab.running.stage import Tell as Telling
from flightlog.model.errors import Misconfigured, NotFound
from flightlog.model.runtime import JobExecutors, Runtime
from flightlog.sources.api.scrub import Scrubber
from flightlog.store.files import process_tag
from flightlog.store.pages import publish


class Sent(Struct, frozen=True):
    """How a person wants samples sent: to where, with which limits; `tell` hears how far it is."""

    limits: Limits
    tell: Tell
    base_url: str = ""


def dumped(book: Book, session: int, replicate: int, request: int) -> dict[str, Any]:
    """A recorded request as a person edits it."""
    return recorded_body(book, Source(book, session, replicate, "").planned.name, request)


def listed(runtime: Runtime, book: Book, session: int, replicate: int) -> list[Listed]:
    """The requests of a session that can be asked again."""
    return requests(Source(book, session, replicate, runtime.program_path))


def read_sweep(path: Path) -> Sweep:
    """Read a grid from a file."""
    try:
        return parse(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NotFound(f"no such sweep: {path}", hint="write one as in docs/how-to/ask-again.md") from None


def resampled(runtime: Runtime, book: Book, sweep: Sweep, sent: Sent, *, dry_run: bool) -> dict[str, Any]:
    """Ask for every cell of a grid as one batch."""
    if not dry_run:
        lab.permit(runtime, book)
    with _alone(runtime, book) as ledger:
        source = Source(book, sweep.session, sweep.replicate, runtime.program_path)
        if dry_run:
            targets = asking.numbered(ledger, asking.grid(source, sweep, asking.imagining(ledger, book)))
            return _imagined(book, targets, sent)
        told = (Label("", "sweep", runtime.clock.timestamp()), _scrubber(runtime, book))
        return _asked(runtime, book, ledger, asking.grid(source, sweep, asking.making(ledger, book, told)), sent)


def edited(  # noqa: PLR0913 - what is asked, and how it is sent
    runtime: Runtime, book: Book, sweep: Sweep, body: dict[str, Any], label: str, *, sent: Sent
) -> dict[str, Any]:
    """Make a variant of the one request a sweep names, and ask for samples of it."""
    lab.permit(runtime, book)
    with _alone(runtime, book) as ledger:
        session = Source(book, sweep.session, sweep.replicate, "").planned.name
        told = (Label(label, "cli", runtime.clock.timestamp()), _scrubber(runtime, book))
        number = made(ledger, book, (session, sweep.requests[0]), body, told)
        cells = [
            asking.Planned(session, sweep.requests[0], number, model, sweep.count) for model in sweep.models or ("",)
        ]
        return _asked(runtime, book, ledger, cells, sent)


def resumed(runtime: Runtime, book: Book, name: str, sent: Sent, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Go on with a batch that was left, within the limits it had but for those that are said anew."""
    lab.permit(runtime, book)
    with _alone(runtime, book) as ledger:
        state = ledger.open_batch(name)
        state.limits = replace(state.limits, **limits)
        return _carried_out(runtime, book, ledger, state, asking.sent_for(book, state.targets, state.limits), sent=sent)


def session_again(  # noqa: PLR0913 - one parameter per option
    runtime: Runtime, book: Book, session: int, count: int, *, budget_usd: float | None, tell: Telling
) -> Book:
    """Run a whole session so many times more, with what may be spent on that."""
    with lab.spread(lab.prepare_run(runtime, tell)) as setting:
        return more(book, session, count, setting, budget_usd)


def unfinished(runtime: Runtime, book: Book) -> list[BatchState]:
    """Batches that still have something to ask for."""
    ledger = Ledger(book.path, now=runtime.clock.timestamp, new_id=runtime.new_id)
    return [each for each in ledger.batches.values() if each.left]


@contextmanager
def _alone(runtime: Runtime, book: Book) -> Iterator[Ledger]:
    with held(book.path, f"process {process_tag()}"):
        ledger = Ledger(book.path, now=runtime.clock.timestamp, new_id=runtime.new_id)
        for state in ledger.batches.values():
            if not state.reason:  # its process died: what it paid for counts all the same
                settled(ledger, state)
                ledger.note(BatchEnded(state.name, "interrupted"))
                _counted(book, state)
        yield ledger


def _asked(runtime: Runtime, book: Book, ledger: Ledger, cells: list[asking.Planned], sent: Sent) -> dict[str, Any]:
    targets = asking.numbered(ledger, cells)
    bodies = asking.sent_for(book, targets, sent.limits)
    _upstream(runtime, book, sent)  # what cannot be sent is said before anything is on record
    state = asking.begun(ledger, runtime.new_id(), targets, sent.limits)
    return _carried_out(runtime, book, ledger, state, bodies, sent=sent)


def _imagined(book: Book, targets: tuple[Target, ...], sent: Sent) -> dict[str, Any]:
    """What would be asked; a variant that is not made yet costs about what its request does."""
    here = [replace(each, variant=0) for each in targets]
    bodies = asking.sent_for(book, tuple(here), sent.limits)
    costs = [bodies[each].expected_usd for each in here for _ in each.items]
    expected = None if None in costs else round(sum(usd or 0.0 for usd in costs), 6)
    return asking.told_of(BatchState("", targets, sent.limits, ""), "dry run") | {"expected_usd": expected}


def _upstream(runtime: Runtime, book: Book, sent: Sent) -> tuple[str, bool]:
    """Where samples go, and whether a key is needed there; a scripted model is served here and needs none."""
    if book.config.scenario is not None and not sent.base_url:
        return "", False
    jobs = _executors(runtime)
    address = asking.upstream(book.config, sent.base_url, runtime.environ)
    if jobs.is_local and not credentials(book.config.provider, runtime.environ):
        name = "OPENROUTER_API_KEY" if book.config.provider == "openrouter" else "ANTHROPIC_API_KEY"
        raise Misconfigured("there is no key to ask a model with", hint=f"set it for this command: export {name}=…")
    return address, True


def _carried_out(  # noqa: PLR0913 - what is asked, and how it is sent
    runtime: Runtime, book: Book, ledger: Ledger, state: BatchState, bodies: dict[Any, Asked], *, sent: Sent
) -> dict[str, Any]:
    address, needs_key = _upstream(runtime, book, sent)
    jobs = _executors(runtime)
    settled(ledger, state)
    ledger.note(BatchTaken(state.name, process_tag(), state.limits))
    scripted = book.config.scenario if not address else None
    stopping = _Stopping()
    reason = "interrupted"
    # Retries are on record in the journal; nobody needs them on stderr as well.
    stamina.instrumentation.set_on_retry_hooks([])

    async def main(url: str) -> str:
        async with jobs.open(state.limits.parallel) as there:
            way = Way(there, url, book.config.provider, needs_key, sent.tell)
            if state.limits.until_width is not None:
                way = replace(way, goes_on=Widths(book.path, state.limits.until_width, book.config.work_dir).goes_on)
            batch = Batch(ledger, state, bodies, way)
            stopping.of(batch)
            return await batch.run()

    try:
        with ExitStack() as held_open:
            if scripted is not None:
                address = held_open.enter_context(serve(scripted, keep=False)).url
            runner = held_open.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
            reason = runner.run(main(address))
    finally:
        _counted(book, state)
    if stopping.asked:
        raise KeyboardInterrupt
    return asking.told_of(state, reason)


def _executors(runtime: Runtime) -> JobExecutors:
    assert runtime.jobs is not None, "samples are sent as jobs"
    return runtime.jobs


def _counted(book: Book, state: BatchState) -> None:
    """Keep the run's own totals true, whatever else was written there meanwhile."""
    book.look_again()
    facts = (len(state.answered), len(state.failed), round(state.usd, 9), state.unpriced)
    book.note(Resampled(state.name, *facts))
    publish(book.path, [meta_page(book.name, book.config, book.state)], durable=False)


def _scrubber(runtime: Runtime, book: Book) -> Scrubber:
    scrubber = Scrubber()
    scrubber.learn(credentials(book.config.provider, runtime.environ))
    return scrubber


class _Stopping:
    """The first Ctrl-C sends nothing more and waits for what is on its way; the second does not wait."""

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self.asked = False

    def of(self, batch: Batch) -> None:
        self._batch = batch
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop)

    def _stop(self) -> None:
        if self.asked or self._batch is None:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            return
        self.asked = True
        self._batch.stop("interrupted")
