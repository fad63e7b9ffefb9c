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

from flightlog.lab.events import Saved, Spent
from flightlog.lab.running.asking import UPSTREAMS, is_captured, keys
from flightlog.lab.running.asking import upstream as address_of
from flightlog.lab.running.stage import Stage
from flightlog.model.errors import Unavailable
from flightlog.model.exchange import Request
from flightlog.sources.api.proxy import Rewrite, Settings
from flightlog.sources.api.recorder import Arrived, Recorder, Sent, Served
from flightlog.sources.api.serving import capturing
from flightlog.sources.api.sse import answer
from flightlog.sources.api.upstream import proxy_for
from flightlog.sources.api.usage import decode_usage
from flightlog.sources.api.wire import Said
from flightlog.store.exchanges import Exchanges
from flightlog.store.trees import Trees
from flightlog.usage.prices import price


class Line(Struct, frozen=True):
    """Whose line it is, and the tree that is saved along it."""

    session: str
    attempt: int
    trees: Trees | None
    folder: Path


@contextmanager
def connected(
    stage: Stage, line: Line, upstream: str, rewrite: Rewrite | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Give the address the agent is to use, and what could not be kept; nothing where it is to use its own."""
    config = stage.book.config
    setting = stage.setting
    upstream = upstream or address_of(config, setting.environ)
    if not is_captured(config):
        yield "" if upstream == UPSTREAMS["anthropic"] else upstream, []
        return
    exchanges = Exchanges(line.folder, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id)
    recorder = Recorder(exchanges, tuple(keys(config, setting.environ).values()), _paying(stage, line))
    settings = Settings(
        upstream,
        setting.runtime.new_id().replace("-", ""),
        lambda: f"req_{setting.runtime.new_id().replace('-', '')[:24]}",
        barrier=_barrier(stage, line),
        rewrite=_within_budget(stage, rewrite),
        proxy=proxy_for(upstream, setting.environ),
    )
    with capturing(settings, recorder) as base_url:
        yield base_url, recorder.losses


def snapshot_name(session: str, attempt: int, request: int) -> str:
    """Name the snapshot taken at a request; the name is a tag of the shadow repository."""
    again = f"_a{attempt}" if attempt > 1 else ""
    return f"_step_{session.removeprefix('session_')}{again}_{request:03d}"


def _paying(stage: Stage, line: Line) -> Callable[[bytes], None]:
    """Tell the purse and the journal what an answer cost."""

    def paid(body: bytes) -> None:
        said = answer(body)
        if not said.usage or said.message is None:
            return
        usd = price(str(said.message.get("model", "")), decode_usage(said.usage)).usd
        stage.purse.pay(usd)
        if usd:
            stage.book.note(Spent(line.session, line.attempt, usd, str(said.message.get("id", ""))))
        stage.setting.tell(line.session, "", stage.purse.spent_usd)

    return paid


def _barrier(stage: Stage, line: Line) -> Callable[[Request], "asyncio.Future[None]"]:
    def save(request: Request) -> None:
        saved = stage.ground.save(line.trees, snapshot_name(line.session, line.attempt, request.index))
        if saved is not None:
            at_ms = int(stage.setting.runtime.clock.now_s() * 1000)
            lane = request.agent_id
            stage.book.note(Saved(line.session, line.attempt, saved.name, request.index, lane, at_ms))

    return lambda request: asyncio.get_running_loop().run_in_executor(None, save, request)


def _within_budget(stage: Stage, rewrite: Rewrite | None) -> Rewrite:
    def check(said: Said, arrived: Arrived) -> Sent | Served | None:
        if stage.purse.is_empty:
            raise Unavailable("the budget of this run is spent", hint="raise max_budget_usd")
        return rewrite(said, arrived) if rewrite is not None else None

    return check
