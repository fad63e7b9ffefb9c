"""A batch of samples carried out: each on record before it is sent, its file there before it counts.

    promised (budget) → its turn (rate) → sending (on record) → the answer's file → on disk → answered (on record)

Everything is decided here, on one loop: turns, money, retries, files. Jobs only send, wherever they
run, so that a rate and a budget hold for all machines together. Whoever takes a batch up again asks
for what has no file; what was in flight when its process died is the most that is paid for twice.
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
from flightlog.lab.resample.send import BatchBudget, RateLimiter, SampleCall, SampleResult, read_came
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
_AGAIN = frozenset({408, 409, 425})
_WAIT_S_MAX = 60.0
_BODY_CHARS_MAX = 20_000
_SETTLE_S = 0.5

Tell = Callable[[int, int, float], None]  # samples that ended, all samples, what was spent so far


class SendOptions(Struct, frozen=True):
    """How samples get to the model: who carries jobs out, the API's address, and whether a key is needed there."""

    jobs: JobExecutor
    upstream: str
    provider: str
    needs_key: bool
    tell: Tell
    goes_on: Callable[[SampleTarget], bool] = lambda _: True


class _RetryableAnswer(Exception):
    """An answer that is worth another try."""

    def __init__(self, came: SampleResult) -> None:
        super().__init__(f"status {came.status}")
        self.came = came


class SampleBatch:
    """A batch on its way."""

    def __init__(
        self, store: BatchStore, state: BatchState, asked: Mapping[SampleTarget, SampleRequest], way: SendOptions
    ) -> None:
        """Take a batch up where it stands; `asked` is what is sent for each of its targets."""
        self._store = store
        self._state = state
        self._asked = asked
        self._options = way
        self._left = list(reversed(state.remaining_samples))
        self._all = sum(target.count for target in state.targets)
        self._ended = self._all - len(self._left)
        self._dearest = {target: _highest_cost(state, target, each) for target, each in asked.items()}
        self._closed: set[SampleTarget] = set()
        self._folders: dict[str, Path] = {}
        self._fresh: list[tuple[Path, SampleAnswered | SampleFailed]] = []
        self._enough: set[SampleTarget] = set()
        self.reason = ""

    async def run_batch(self) -> str:
        """Ask for everything that is left, or until something stops it; return why it ended."""
        limits = self._state.limits
        self._pace = RateLimiter(limits.per_minute, asyncio.get_running_loop().time)
        self._money = BatchBudget(limits.max_budget_usd, self._state.cost_usd)
        keeping = asyncio.create_task(self._flush_periodically())
        try:
            async with asyncio.TaskGroup() as slots:
                for _ in range(min(limits.parallel, len(self._left))):
                    slots.create_task(self._run_slot())
        except BaseExceptionGroup as group:
            # One word for whoever asked; the others failed with it.
            raise group.exceptions[0] from None
        finally:
            # Also when the loop is torn down: what came is on disk, and the end is on record.
            keeping.cancel()
            sync_files(path for path, _ in self._fresh)
            self._flush_results(len(self._fresh))
            reason = self.reason or self._end_reason()
            self._store.append(BatchEnded(self._state.name, reason))
        return reason

    def _end_reason(self) -> str:
        if not self._state.remaining_samples:
            return "completed"
        if {target for target, _ in self._state.remaining_samples} <= self._enough:
            return WIDTH
        return "refused" if self._closed else "completed"

    def stop_sending(self, reason: str) -> None:
        """Send nothing more; what is on its way is still taken in."""
        self.reason = self.reason or reason

    async def _run_slot(self) -> None:
        while not self.reason and self._left:
            target, item = self._left.pop()
            if target in self._closed or target in self._enough:
                continue
            if not self._options.goes_on(target):
                self._enough.add(target)
                continue
            promised = await self._money.reserve_cost(partial(self._expected_cost, target))
            if promised is None:
                self.stop_sending("budget_exhausted")
            if promised is None or self.reason:
                return
            usd = None
            try:
                usd = await self._fetch_sample(target, item)
            finally:
                self._money.commit(promised, usd)
            self._options.tell(self._ended, self._all, self._money.spent_usd)

    def _expected_cost(self, target: SampleTarget) -> float:
        return self._dearest[target]

    async def _fetch_sample(self, target: SampleTarget, item: SampleItem) -> float | None:
        """Ask for one sample until there is an answer or no use in asking; return what it cost."""
        await self._pace.wait_turn()
        if self.reason:
            return None
        came = await self._send_once(target, item)
        if _is_worth_again(came):
            came = await self._retry_send(target, item, came)
        if self.reason and _is_worth_again(came):
            return None  # somebody stopped the batch: it stays to be asked for
        if _decode_message(came) is not None:
            return self._record_answer(target, item, came)
        self._record_failure(target, item, came)
        return None

    async def _retry_send(self, target: SampleTarget, item: SampleItem, came: SampleResult) -> SampleResult:
        """Try until the answer is worth keeping, or has been tried for often enough; the first try is over."""
        limits = self._state.limits
        tries = stamina.retry_context(
            on=_retry_delay,
            attempts=limits.retries + 1,
            timeout=None,
            wait_initial=limits.wait_s,
            wait_max=_WAIT_S_MAX,
            wait_jitter=limits.wait_s,
        )
        is_first = True
        with suppress(_RetryableAnswer):
            async for attempt in tries:
                with attempt:
                    if not is_first:
                        await self._pace.wait_turn()
                        if self.reason:
                            return came
                        came = await self._send_once(target, item)
                    is_first = False
                    self._raise_if_retryable(came)
        return came

    def _raise_if_retryable(self, came: SampleResult) -> None:
        """Where another try is worth it: nobody gets a turn until the API wants to hear of us again."""
        if _is_worth_again(came):
            self._pace.delay_turns(min(came.retry_after_s or 0.0, _WAIT_S_MAX))
            raise _RetryableAnswer(came)

    async def _send_once(self, target: SampleTarget, item: SampleItem) -> SampleResult:
        attempt = self._state.sent.get(item, 0) + 1
        asked = self._asked[target]
        self._store.append(SampleSent(self._state.name, item, attempt))
        name = hashlib.sha256(f"{self._state.name}/{item.answer_file}".encode()).hexdigest()[:32]
        ask = SampleCall(
            self._options.upstream.rstrip("/") + asked.path,
            asked.headers | {"idempotency-key": f"flightlog-{name}"},
            self._options.provider,
            self._state.limits.timeout_s,
            self._options.needs_key,
        )
        job = Job(f"flightlog-{WORK}-{name}-{attempt}", WORK, msgspec.json.encode(ask), asked.body)
        try:
            return read_came(await self._options.jobs.submit(job))
        except JobError as error:
            return SampleResult(0, error=str(error), is_final=True)

    def _record_answer(self, target: SampleTarget, item: SampleItem, came: SampleResult) -> float | None:
        event = _answer_event(self._state.name, item, self._asked[target].model, _decode_message(came) or {})
        self._dearest[target] = max(self._dearest[target], event.usd or 0.0)
        self._write_result(item.answer_file, came.body, event)
        return event.usd

    def _record_failure(self, target: SampleTarget, item: SampleItem, came: SampleResult) -> None:
        """Put on record that no answer came; what would fail the same way is not sent."""
        if came.status in _BUSY:
            self.stop_sending("rate_limited")
            return
        if not came.status and not came.is_final:
            self.stop_sending("unavailable")
            return
        if came.status in _AUTH or (came.is_final and "no key" in came.error):
            self.stop_sending("auth_error")
        elif 400 <= came.status < 500:
            self._closed.add(target)
        error = _error_text(came)
        told = {"error": error, "status": came.status or None, "body": _decode_body(came)}
        event = SampleFailed(self._state.name, item, self._asked[target].model, came.status, error[:500])
        self._write_result(item.error_file, json.dumps(told, indent=1).encode() + b"\n", event)

    def _write_result(self, name: str, data: bytes, event: SampleAnswered | SampleFailed) -> None:
        """Put a file where it stays, whatever becomes of this process; a power cut is waited for together."""
        folder, _, file = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = resolve_inside(self._store.run, name).parent
        path = self._folders[folder] / file
        create_file(path, data, durable=False)
        self._fresh.append((path, event))
        self._ended += 1

    async def _flush_periodically(self) -> None:
        while True:
            await asyncio.sleep(_SETTLE_S)
            fresh = list(self._fresh)
            await asyncio.to_thread(sync_files, [path for path, _ in fresh])
            for _ in fresh:
                self._flush_results(1)
                await asyncio.sleep(0)  # whoever waits for a turn does not wait for all of them

    def _flush_results(self, count: int) -> None:
        """Put the oldest of what is on disk for good on record."""
        for _, event in self._fresh[:count]:
            self._store.append(event)
        del self._fresh[:count]


def recover_answered(store: BatchStore, state: BatchState) -> None:
    """Count answers whose file is there and whose line is not: their process died in between."""
    for target, item in state.remaining_samples:
        path = store.run / item.answer_file
        if path.is_file():
            message = _decode_message(SampleResult(200, path.read_bytes())) or {}
            model = target.model or str(message.get("model") or "")
            store.append(_answer_event(state.name, item, model, message))


def _answer_event(batch: str, item: SampleItem, model: str, message: Mapping[str, Any]) -> SampleAnswered:
    usd = price(str(message.get("model") or model), decode_usage(message.get("usage"))).usd
    return SampleAnswered(batch, item, model, usd, str(message.get("id") or ""))


def _highest_cost(state: BatchState, target: SampleTarget, asked: SampleRequest) -> float:
    """What a sample may cost: the dearest so far, and what the recorded answer cost."""
    return max([asked.expected_usd or 0.0, *(state.answered.get(item) or 0.0 for item in target.items)])


def _retry_delay(error: Exception) -> bool | float:
    """Say whether and when to try again: as the API says, if it says."""
    if not isinstance(error, _RetryableAnswer):
        return False
    said = error.came.retry_after_s
    return True if said is None else min(said, _WAIT_S_MAX)


def _is_worth_again(came: SampleResult) -> bool:
    if came.is_final:
        return False
    if came.status == 200:
        return _decode_message(came) is None
    return came.status in _BUSY | _AGAIN or came.status >= 500 or not came.status


def _decode_message(came: SampleResult) -> dict[str, Any] | None:
    if came.status != 200:
        return None
    try:
        said = msgspec.json.decode(came.body)
    except UNREADABLE:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("content"), list) else None


def _error_text(came: SampleResult) -> str:
    if came.error:
        return came.error
    try:
        said = msgspec.json.decode(came.body)
        return str(said["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return f"status {came.status}" if came.status != 200 else "the answer is no message"


def _decode_body(came: SampleResult) -> Any:
    try:
        return msgspec.json.decode(came.body)
    except UNREADABLE:
        return came.body.decode("utf-8", "replace")[:_BODY_CHARS_MAX]
