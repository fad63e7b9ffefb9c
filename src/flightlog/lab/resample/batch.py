"""Send a batch of samples.

    reserve (budget) -> wait (rate) -> record as sent -> write answer -> fsync -> record as answered

Rate, budget, retries and files are decided here, on one event loop; jobs only send, on any machine,
so rate and budget hold for all machines together. A process that resumes a batch sends what has no
file; only the samples in flight when a process died can be paid twice.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import stamina
from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import decode_usage
from flightlog.lab.resample.layout import SampleItem
from flightlog.lab.resample.requests import SampleRequest
from flightlog.lab.resample.send import (
    BatchBudget,
    RateLimiter,
    SampleCall,
    SampleResult,
    decode_result,
)
from flightlog.lab.resample.state import (
    WIDTH,
    BatchEnded,
    BatchState,
    BatchStore,
    SampleAnswered,
    SampleFailed,
    SampleSent,
    SampleTarget,
)
from flightlog.model.errors import UNREADABLE
from flightlog.model.runtime import Job, JobError, JobExecutor
from flightlog.store.files import create_file, resolve_inside, sync_files
from flightlog.usage.prices import price

WORK = "sample"
_AUTH = frozenset({401, 403})
_BUSY = frozenset({429, 529})
_RETRYABLE = frozenset({408, 409, 425})
_WAIT_S_MAX = 60.0  # a longer retry-after is not worth waiting for
_BODY_CHARS_MAX = 20_000
_SYNC_EVERY_S = 0.5  # one fsync for many answers; so much may be lost in a power cut

Tell = Callable[[int, int, float], None]  # samples that ended, all samples, what was spent so far


class SendOptions(Struct, frozen=True):
    """How samples reach the model: job executor, address, whether it needs a key, callbacks."""

    jobs: JobExecutor
    upstream: str
    provider: str
    needs_key: bool
    tell: Tell
    goes_on: Callable[[SampleTarget], bool] = lambda _: True


class _RetryableAnswer(Exception):
    def __init__(self, result: SampleResult) -> None:
        super().__init__(f"status {result.status}")
        self.result = result


class SampleBatch:
    def __init__(
        self,
        store: BatchStore,
        state: BatchState,
        requests: Mapping[SampleTarget, SampleRequest],
        options: SendOptions,
    ) -> None:
        """Continue a batch from its state; `requests` is what is sent for each target."""
        self._store = store
        self._state = state
        self._requests = requests
        self._options = options
        self._remaining = list(reversed(state.remaining_samples))
        self._total = sum(target.count for target in state.targets)
        self._done = self._total - len(self._remaining)
        self._highest_usd = {
            target: _highest_cost(state, target, request) for target, request in requests.items()
        }
        self._closed: set[SampleTarget] = set()
        self._folders: dict[str, Path] = {}
        self._unsynced: list[tuple[Path, SampleAnswered | SampleFailed]] = []
        self._satisfied: set[SampleTarget] = set()
        self.reason = ""

    async def run_batch(self) -> str:
        """Send everything that is left, until something stops it; return why it ended."""
        limits = self._state.limits
        self._rate = RateLimiter(limits.per_minute, asyncio.get_running_loop().time)
        self._budget = BatchBudget(limits.max_budget_usd, self._state.cost_usd)
        flushing = asyncio.create_task(self._flush_periodically())
        try:
            async with asyncio.TaskGroup() as slots:
                for _ in range(min(limits.parallel, len(self._remaining))):
                    slots.create_task(self._run_slot())
        except BaseExceptionGroup as group:
            # One error is enough for the caller; the others are its consequences.
            raise group.exceptions[0] from None
        finally:
            # Also when the loop is torn down, answers must be on disk and the end on record.
            flushing.cancel()
            sync_files(path for path, _ in self._unsynced)
            self._flush_results(len(self._unsynced))
            reason = self.reason or self._end_reason()
            self._store.append(BatchEnded(self._state.name, reason))
        return reason

    def _end_reason(self) -> str:
        if not self._state.remaining_samples:
            return "completed"
        if {target for target, _ in self._state.remaining_samples} <= self._satisfied:
            return WIDTH
        return "refused" if self._closed else "completed"

    def stop_sending(self, reason: str) -> None:
        """Send nothing more; answers in flight are still recorded."""
        self.reason = self.reason or reason

    async def _run_slot(self) -> None:
        while not self.reason and self._remaining:
            target, item = self._remaining.pop()
            if target in self._closed or target in self._satisfied:
                continue
            if not self._options.goes_on(target):
                self._satisfied.add(target)
                continue
            reserved = await self._budget.reserve_cost(
                partial(self._highest_usd.__getitem__, target)
            )
            if reserved is None:
                self.stop_sending("budget_exhausted")
            if reserved is None or self.reason:
                return
            usd = None
            try:
                usd = await self._fetch_sample(target, item)
            finally:
                self._budget.commit(reserved, usd)
            self._options.tell(self._done, self._total, self._budget.spent_usd)

    async def _fetch_sample(self, target: SampleTarget, item: SampleItem) -> float | None:
        """Send one sample until it is answered or retrying is useless; return its cost."""
        await self._rate.wait_turn()
        if self.reason:
            return None
        result = await self._send_once(target, item)
        if _is_worth_again(result):
            result = await self._retry_send(target, item, result)
        if self.reason and _is_worth_again(result):
            return None  # the batch was stopped: the sample is sent when it is resumed
        if _decode_message(result) is not None:
            return self._record_answer(target, item, result)
        self._record_failure(target, item, result)
        return None

    async def _retry_send(
        self, target: SampleTarget, item: SampleItem, result: SampleResult
    ) -> SampleResult:
        """Retry after a failed first attempt, within the limits."""
        limits = self._state.limits
        attempts = stamina.retry_context(
            on=_retry_delay,
            attempts=limits.retries + 1,
            timeout=None,
            wait_initial=limits.wait_s,
            wait_max=_WAIT_S_MAX,
            wait_jitter=limits.wait_s,
        )
        is_first = True
        with suppress(_RetryableAnswer):
            async for attempt in attempts:
                with attempt:
                    if not is_first:
                        await self._rate.wait_turn()
                        if self.reason:
                            return result
                        result = await self._send_once(target, item)
                    is_first = False
                    self._raise_if_retryable(result)
        return result

    def _raise_if_retryable(self, result: SampleResult) -> None:
        """Raise `_RetryableAnswer`, and pause all senders until `retry-after` has passed."""
        if _is_worth_again(result):
            self._rate.delay_turns(min(result.retry_after_s or 0.0, _WAIT_S_MAX))
            raise _RetryableAnswer(result)

    async def _send_once(self, target: SampleTarget, item: SampleItem) -> SampleResult:
        attempt = self._state.send_counts.get(item, 0) + 1
        request = self._requests[target]
        self._store.append(SampleSent(self._state.name, item, attempt))
        name = hashlib.sha256(f"{self._state.name}/{item.answer_file}".encode()).hexdigest()[:32]
        call = SampleCall(
            self._options.upstream.rstrip("/") + request.path,
            request.headers | {"idempotency-key": f"flightlog-{name}"},
            self._options.provider,
            self._state.limits.timeout_s,
            self._options.needs_key,
        )
        key = f"flightlog-{WORK}-{name}-{attempt}"
        job = Job(key, WORK, msgspec.json.encode(call), request.body)
        try:
            return decode_result(await self._options.jobs.submit(job))
        except JobError as error:
            return SampleResult(0, error=str(error), is_final=True)

    def _record_answer(
        self, target: SampleTarget, item: SampleItem, result: SampleResult
    ) -> float | None:
        message = _decode_message(result) or {}
        event = _answer_event(self._state.name, item, self._requests[target].model, message)
        self._highest_usd[target] = max(self._highest_usd[target], event.cost_usd or 0.0)
        self._write_result(item.answer_file, result.body, event)
        return event.cost_usd

    def _record_failure(self, target: SampleTarget, item: SampleItem, result: SampleResult) -> None:
        """Record that no answer came; stop sending what would fail the same way."""
        if result.status in _BUSY or (not result.status and not result.is_final):
            self.stop_sending("rate_limited" if result.status else "unavailable")
            return
        if result.status in _AUTH or result.is_keyless:
            self.stop_sending("auth_error")
        elif 400 <= result.status < 500:
            self._closed.add(target)
        error = _error_text(result)
        fields = {"error": error, "status": result.status or None, "body": _decode_body(result)}
        event = SampleFailed(
            self._state.name, item, self._requests[target].model, result.status, error[:500]
        )
        self._write_result(item.error_file, json.dumps(fields, indent=1).encode() + b"\n", event)

    def _write_result(self, name: str, data: bytes, event: SampleAnswered | SampleFailed) -> None:
        """Write a file without fsync; `_flush_periodically` syncs many at once."""
        folder, _, file = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = resolve_inside(self._store.run, name).parent
        path = self._folders[folder] / file
        create_file(path, data, durable=False)
        self._unsynced.append((path, event))
        self._done += 1

    async def _flush_periodically(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_EVERY_S)
            unsynced = list(self._unsynced)
            await asyncio.to_thread(sync_files, [path for path, _ in unsynced])
            for _ in unsynced:
                self._flush_results(1)
                await asyncio.sleep(0)  # let senders run between journal writes

    def _flush_results(self, count: int) -> None:
        """Record the oldest `count` results, whose files are synced."""
        for _, event in self._unsynced[:count]:
            self._store.append(event)
        del self._unsynced[:count]


def recover_answered(store: BatchStore, state: BatchState) -> None:
    """Record answers whose file exists but not their event: their process died in between."""
    for target, item in state.remaining_samples:
        path = store.run / item.answer_file
        if path.is_file():
            message = _decode_message(SampleResult(200, path.read_bytes())) or {}
            model = target.model or str(message.get("model") or "")
            store.append(_answer_event(state.name, item, model, message))


def _answer_event(
    batch: str, item: SampleItem, model: str, message: Mapping[str, Any]
) -> SampleAnswered:
    usd = price(str(message.get("model") or model), decode_usage(message.get("usage"))).usd
    return SampleAnswered(batch, item, model, usd, str(message.get("id") or ""))


def _highest_cost(state: BatchState, target: SampleTarget, request: SampleRequest) -> float:
    """Return the highest cost of an answer so far, the recorded answer included."""
    costs = [state.answer_costs.get(item) or 0.0 for item in target.items]
    return max([request.expected_cost_usd or 0.0, *costs])


def _retry_delay(error: Exception) -> bool | float:
    """Return whether to retry, or the delay that the API asked for."""
    if not isinstance(error, _RetryableAnswer):
        return False
    delay = error.result.retry_after_s
    return True if delay is None else min(delay, _WAIT_S_MAX)


def _is_worth_again(result: SampleResult) -> bool:
    if result.is_final:
        return False
    if result.status == 200:
        return _decode_message(result) is None
    return result.status in _BUSY | _RETRYABLE or result.status >= 500 or not result.status


def _decode_message(result: SampleResult) -> dict[str, Any] | None:
    if result.status != 200:
        return None
    try:
        message = msgspec.json.decode(result.body)
    except UNREADABLE:
        return None
    is_message = isinstance(message, dict) and isinstance(message.get("content"), list)
    return message if is_message else None


def _error_text(result: SampleResult) -> str:
    if result.error:
        return result.error
    try:
        return str(msgspec.json.decode(result.body)["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return f"status {result.status}" if result.status != 200 else "the answer is not a message"


def _decode_body(result: SampleResult) -> Any:
    try:
        return msgspec.json.decode(result.body)
    except UNREADABLE:
        return result.body.decode("utf-8", "replace")[:_BODY_CHARS_MAX]
