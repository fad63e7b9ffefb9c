"""The session's line to its model: captured where that can be, with the tree saved at every request.

The tree is saved while the model already works, and the answer waits for it: what changed since the
request before is what the step before did. Before each request the purse is asked, after each
answer it is told.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from flightlog.lab.events import CostRecorded, SnapshotSaved
from flightlog.lab.running.asking import UPSTREAMS, agent_credentials, is_captured
from flightlog.lab.running.asking import resolve_upstream as address_of
from flightlog.lab.running.stage import RunContext
from flightlog.model.errors import Unavailable
from flightlog.model.exchange import ApiRequest
from flightlog.sources.api.proxy import ProxySettings, Rewrite
from flightlog.sources.api.recorder import ExchangeRecorder, IncomingRequest, RewrittenRequest, ServedResponse
from flightlog.sources.api.serving import capture_in_thread
from flightlog.sources.api.sse import decode_response
from flightlog.sources.api.upstream import proxy_for
from flightlog.sources.api.usage import decode_usage
from flightlog.sources.api.wire import RequestInfo
from flightlog.store.exchanges import ExchangeStore
from flightlog.store.trees import WorkTreeSnapshots
from flightlog.usage.prices import price


class CaptureTarget(Struct, frozen=True):
    """Whose line it is, and the tree that is saved along it."""

    session: str
    attempt: int
    trees: WorkTreeSnapshots | None
    folder: Path


@contextmanager
def capture_session(
    stage: RunContext, line: CaptureTarget, upstream: str, rewrite: Rewrite | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Give the address the agent is to use, and what could not be kept; nothing where it is to use its own."""
    config = stage.book.config
    setting = stage.setting
    upstream = upstream or address_of(config, setting.environ)
    if not is_captured(config):
        yield "" if upstream == UPSTREAMS["anthropic"] else upstream, []
        return
    exchanges = ExchangeStore(line.folder, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id)
    recorder = ExchangeRecorder(
        exchanges, tuple(agent_credentials(config, setting.environ).values()), _cost_recorder(stage, line)
    )
    settings = ProxySettings(
        upstream,
        setting.runtime.new_id().replace("-", ""),
        lambda: f"req_{setting.runtime.new_id().replace('-', '')[:24]}",
        barrier=_tree_saver(stage, line),
        rewrite=_within_budget(stage, rewrite),
        proxy=proxy_for(upstream, setting.environ),
    )
    with capture_in_thread(settings, recorder) as base_url:
        yield base_url, recorder.losses


def snapshot_name(session: str, attempt: int, request: int) -> str:
    """Name the snapshot taken at a request; the name is a tag of the shadow repository."""
    again = f"_a{attempt}" if attempt > 1 else ""
    return f"_step_{session.removeprefix('session_')}{again}_{request:03d}"


def _cost_recorder(stage: RunContext, line: CaptureTarget) -> Callable[[bytes], None]:
    """Tell the purse and the journal what an answer cost."""

    def paid(body: bytes) -> None:
        said = decode_response(body)
        if not said.usage or said.message is None:
            return
        usd = price(str(said.message.get("model", "")), decode_usage(said.usage)).usd
        stage.purse.charge(usd)
        if usd:
            stage.book.append(CostRecorded(line.session, line.attempt, usd, str(said.message.get("id", ""))))
        stage.setting.tell(line.session, "", stage.purse.spent_usd)

    return paid


def _tree_saver(stage: RunContext, line: CaptureTarget) -> Callable[[ApiRequest], "asyncio.Future[None]"]:
    def save(request: ApiRequest) -> None:
        saved = stage.ground.save_tree(line.trees, snapshot_name(line.session, line.attempt, request.index))
        if saved is not None:
            at_ms = int(stage.setting.runtime.clock.now_s() * 1000)
            lane = request.agent_id
            stage.book.append(SnapshotSaved(line.session, line.attempt, saved.name, request.index, lane, at_ms))

    return lambda request: asyncio.get_running_loop().run_in_executor(None, save, request)


def _within_budget(stage: RunContext, rewrite: Rewrite | None) -> Rewrite:
    def check(said: RequestInfo, arrived: IncomingRequest) -> RewrittenRequest | ServedResponse | None:
        if stage.purse.is_empty:
            raise Unavailable("the budget of this run is spent", hint="raise max_budget_usd")
        return rewrite(said, arrived) if rewrite is not None else None

    return check
