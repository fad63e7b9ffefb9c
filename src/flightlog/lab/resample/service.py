"""Sample requests as the command line does: run batches, resume them, stop them with Ctrl-C."""

import asyncio
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import stamina.instrumentation
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.capture.sanitize import Scrubber
from flightlog.lab import service
from flightlog.lab.events import SamplesUpdated
from flightlog.lab.layout import meta_page
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.resample import plan
from flightlog.lab.resample.batch import SampleBatch, SendOptions, Tell, recover_answered
from flightlog.lab.resample.layout import LOCK
from flightlog.lab.resample.plan import Sweep, VariantLabel, make_variant, parse_sweep
from flightlog.lab.resample.requests import (
    RequestListing,
    SampleRequest,
    list_session_requests,
    load_recorded_body,
)
from flightlog.lab.resample.send import StoppingRule, credential_headers
from flightlog.lab.resample.state import (
    BatchEnded,
    BatchLimits,
    BatchResumed,
    BatchState,
    BatchStore,
    SampleTarget,
)
from flightlog.lab.runner.context import Tell as Telling
from flightlog.lab.runner.run import add_replicates
from flightlog.lab.runner.session import scripted_model
from flightlog.lab.store import RunStore
from flightlog.model.errors import Misconfigured, NotFound
from flightlog.model.runtime import JobExecutors, Runtime
from flightlog.store.files import process_tag
from flightlog.store.locks import exclusive_lock
from flightlog.store.output_files import write_output_files


class SamplingOptions(Struct, frozen=True):
    """Limits and address of a batch; `tell` receives the progress."""

    limits: BatchLimits
    tell: Tell
    base_url: str = ""


def dump_request(run: RunStore, session: int, replicate: int, request: int) -> dict[str, Any]:
    return load_recorded_body(
        run, ReplaySource(run, session, replicate, "").planned.session_dir, request
    )


def list_requests(
    runtime: Runtime, run: RunStore, session: int, replicate: int
) -> list[RequestListing]:
    return list_session_requests(ReplaySource(run, session, replicate, runtime.program_path))


def read_sweep(path: Path) -> Sweep:
    try:
        return parse_sweep(path.read_text("utf-8"))
    except FileNotFoundError:
        hint = "name a YAML file: flightlog lab resample --help"
        raise NotFound(f"no such sweep: {path}", hint=hint) from None


def resample_grid(
    runtime: Runtime, run: RunStore, sweep: Sweep, options: SamplingOptions, *, dry_run: bool
) -> dict[str, Any]:
    """Send every cell of a sweep as one batch, or with `dry_run` estimate it."""
    if not dry_run:
        service.check_permission(runtime, run)
    with _locked_store(runtime, run) as store:
        source = ReplaySource(run, sweep.session, sweep.replicate, runtime.program_path)
        if dry_run:
            make = plan.variant_previewer(store, run)
            targets = plan.number_samples(store, plan.plan_samples(source, sweep, make))
            return _estimate_batch(run, targets, options)
        created_at = runtime.clock.timestamp()
        origin = (VariantLabel("", "sweep", created_at), _make_scrubber(runtime, run))
        cells = plan.plan_samples(source, sweep, plan.variant_maker(store, run, origin))
        return _run_batch(runtime, run, store, cells, options)


def resample_edited(  # noqa: PLR0913 - the request, and how it is sent
    runtime: Runtime,
    run: RunStore,
    sweep: Sweep,
    body: dict[str, Any],
    label: str,
    *,
    sent: SamplingOptions,
) -> dict[str, Any]:
    """Create a variant of the one request that a sweep names, and sample it."""
    service.check_permission(runtime, run)
    with _locked_store(runtime, run) as store:
        session = ReplaySource(run, sweep.session, sweep.replicate, "").planned.session_dir
        created_at = runtime.clock.timestamp()
        origin = (VariantLabel(label, "cli", created_at), _make_scrubber(runtime, run))
        request = sweep.requests[0]
        number = make_variant(store, run, (session, request), body, origin)
        models = sweep.models or ("",)
        cells = [
            plan.PlannedSamples(session, request, number, model, sweep.count) for model in models
        ]
        return _run_batch(runtime, run, store, cells, sent)


def resume_batch(
    runtime: Runtime, run: RunStore, name: str, sent: SamplingOptions, limits: Mapping[str, Any]
) -> dict[str, Any]:
    """Resume a batch with its own limits, except for those given in `limits`."""
    service.check_permission(runtime, run)
    with _locked_store(runtime, run) as store:
        state = store.open_batch(name)
        state.limits = replace(state.limits, **limits)
        bodies = plan.build_sample_requests(run, state.targets, state.limits)
        return _execute_batch(runtime, run, store, state, bodies, sent=sent)


def rerun_session(  # noqa: PLR0913 - one parameter per option
    runtime: Runtime,
    run: RunStore,
    session: int,
    count: int,
    *,
    budget_usd: float | None,
    tell: Telling,
) -> RunStore:
    """Run a whole session `count` more times, within a budget."""
    with service.attach_executor(service.prepare_run(runtime, tell)) as environment:
        return add_replicates(run, session, count, environment, budget_usd)


def list_unfinished_batches(runtime: Runtime, run: RunStore) -> list[BatchState]:
    store = BatchStore(run.path, now=runtime.clock.timestamp, new_id=runtime.new_id)
    return [batch for batch in store.batches.values() if batch.remaining_samples]


@contextmanager
def _locked_store(runtime: Runtime, run: RunStore) -> Iterator[BatchStore]:
    with exclusive_lock(run.path / LOCK, who=f"process {process_tag()}"):
        store = BatchStore(run.path, now=runtime.clock.timestamp, new_id=runtime.new_id)
        for state in store.batches.values():
            if not state.stop_reason:  # its process died: its answers are paid and count
                recover_answered(store, state)
                store.append(BatchEnded(state.name, "interrupted"))
                _update_run_totals(run, state)
        yield store


def _run_batch(
    runtime: Runtime,
    run: RunStore,
    store: BatchStore,
    cells: list[plan.PlannedSamples],
    sent: SamplingOptions,
) -> dict[str, Any]:
    targets = plan.number_samples(store, cells)
    bodies = plan.build_sample_requests(run, targets, sent.limits)
    _choose_upstream(runtime, run, sent)  # raises for a missing key before anything is on record
    state = plan.start_batch(store, runtime.new_id(), targets, sent.limits)
    return _execute_batch(runtime, run, store, state, bodies, sent=sent)


def _estimate_batch(
    run: RunStore, targets: tuple[SampleTarget, ...], sent: SamplingOptions
) -> dict[str, Any]:
    """Report what would be sent; a new variant is priced as its request."""
    unchanged = [replace(target, variant=0) for target in targets]
    bodies = plan.build_sample_requests(run, tuple(unchanged), sent.limits)
    costs = [bodies[target].expected_cost_usd for target in unchanged for _ in target.items]
    expected = None if None in costs else round(sum(usd or 0.0 for usd in costs), 6)
    state = BatchState("", targets, sent.limits, "")
    return plan.batch_report(state, "dry run") | {"expected_cost_usd": expected}


def _choose_upstream(runtime: Runtime, run: RunStore, sent: SamplingOptions) -> tuple[str, bool]:
    """Return the address for samples ("" for a scripted model), and whether it needs a key."""
    if run.config.scenario is not None and not sent.base_url:
        return "", False
    jobs = _executors(runtime)
    address = plan.resolve_sample_upstream(run.config, sent.base_url, runtime.environ)
    if jobs.is_local and not credential_headers(run.config.provider, runtime.environ):
        name = "OPENROUTER_API_KEY" if run.config.provider == "openrouter" else "ANTHROPIC_API_KEY"
        raise Misconfigured("no API key is set", hint=f"set it for this command: export {name}=…")
    return address, True


def _execute_batch(  # noqa: PLR0913 - the batch, its requests and how they are sent
    runtime: Runtime,
    run: RunStore,
    store: BatchStore,
    state: BatchState,
    bodies: dict[Any, SampleRequest],
    *,
    sent: SamplingOptions,
) -> dict[str, Any]:
    address, needs_key = _choose_upstream(runtime, run, sent)
    jobs = _executors(runtime)
    recover_answered(store, state)
    store.append(BatchResumed(state.name, process_tag(), state.limits))
    interrupt = _InterruptHandler()
    reason = "interrupted"
    # Retries are in the journal, so stamina need not log them to stderr.
    stamina.instrumentation.set_on_retry_hooks([])

    async def main(url: str) -> str:
        async with jobs.open(state.limits.parallel) as executor:
            options = SendOptions(executor, url, run.config.provider, needs_key, sent.tell)
            if state.limits.until_width is not None:
                rule = StoppingRule(run.path, state.limits.until_width, run.config.work_dir)
                options = replace(options, goes_on=rule.needs_more_samples)
            batch = SampleBatch(store, state, bodies, options)
            interrupt.attach(batch)
            return await batch.run_batch()

    try:
        with ExitStack() as stack:
            if not address:
                address = stack.enter_context(scripted_model(run.config))
            reason = asyncio.run(main(address))
    finally:
        _update_run_totals(run, state)
    if interrupt.was_asked:
        raise KeyboardInterrupt
    return plan.batch_report(state, reason)


def _executors(runtime: Runtime) -> JobExecutors:
    assert runtime.jobs is not None, "samples are sent as jobs"
    return runtime.jobs


def _update_run_totals(run: RunStore, state: BatchState) -> None:
    """Record the totals of a batch in the run and rewrite its meta file."""
    run.reload()
    counts = (len(state.answer_costs), len(state.failures))
    facts = (*counts, round(state.cost_usd, 9), state.unpriced_count)
    run.append(SamplesUpdated(state.name, *facts))
    write_output_files(run.path, [meta_page(run.name, run.config, run.state)], durable=False)


def _make_scrubber(runtime: Runtime, run: RunStore) -> Scrubber:
    scrubber = Scrubber()
    scrubber.learn_credentials(credential_headers(run.config.provider, runtime.environ))
    return scrubber


class _InterruptHandler:
    """On the first Ctrl-C stops sending and waits for answers; on the second interrupts at once."""

    def __init__(self) -> None:
        self._batch: SampleBatch | None = None
        self.was_asked = False

    def attach(self, batch: SampleBatch) -> None:
        self._batch = batch
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop_batch)

    def _stop_batch(self) -> None:
        if self.was_asked or self._batch is None:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            return
        self.was_asked = True
        self._batch.stop_sending("interrupted")
