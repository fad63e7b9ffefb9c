"""Proxy and hook that save the tree at each request or tool call.

The tree is saved while the model already works, and the answer waits for it: what changed since the
request before is what the step before did. Before each request the purse is asked, after each
answer it is told.

The hook puts what it was told into a directory and waits until the file is renamed, which says that
the tree is saved; after ten seconds it waits no longer. It exits 0 whatever happens.
"""

import asyncio
import json
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from flightlog.agents.capture.proxy import ProxySettings, Rewrite
from flightlog.agents.capture.recorder import ExchangeRecorder, IncomingRequest, RewrittenRequest, ServedResponse
from flightlog.agents.capture.server import capture_in_thread
from flightlog.agents.capture.upstream import proxy_for
from flightlog.agents.dialects.anthropic_messages import RequestInfo, decode_response, decode_usage
from flightlog.lab.events import CostRecorded, SnapshotSaved
from flightlog.lab.runner.agent_setup import UPSTREAMS, agent_credentials, is_captured
from flightlog.lab.runner.agent_setup import resolve_upstream as address_of
from flightlog.lab.runner.context import RunContext
from flightlog.model.errors import FlightlogError, Unavailable
from flightlog.model.exchange import ApiRequest
from flightlog.store.exchanges import ExchangeStore
from flightlog.store.files import ensure_dir, rename_file, replace_file
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.usage.prices import price

_EVENTS = ("PostToolUse", "PostToolUseFailure")
_LOOK_S = 0.01
_HOOK = b"""\
d=$1
cat > "$d/.$$" && mv "$d/.$$" "$d/ask.$$"
i=0
while [ ! -e "$d/done.$$" ] && [ "$i" -lt 500 ]; do sleep 0.02; i=$((i + 1)); done
rm -f "$d/done.$$"
exit 0
"""


class CaptureTarget(Struct, frozen=True):
    """Whose line it is, and the tree that is saved along it."""

    session: str
    attempt: int
    trees: WorkTreeSnapshots | None
    folder: Path


@contextmanager
def capture_session(
    context: RunContext, line: CaptureTarget, upstream: str, rewrite: Rewrite | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Give the address the agent is to use, and what could not be kept; nothing where it is to use its own."""
    config = context.run.config
    environment = context.environment
    upstream = upstream or address_of(config, environment.environ)
    if not is_captured(config):
        yield "" if upstream == UPSTREAMS["anthropic"] else upstream, []
        return
    exchanges = ExchangeStore(line.folder, now=environment.runtime.clock.timestamp, new_id=environment.runtime.new_id)
    recorder = ExchangeRecorder(
        exchanges, tuple(agent_credentials(config, environment.environ).values()), _cost_recorder(context, line)
    )
    settings = ProxySettings(
        upstream,
        environment.runtime.new_id().replace("-", ""),
        lambda: f"req_{environment.runtime.new_id().replace('-', '')[:24]}",
        barrier=_tree_saver(context, line),
        rewrite=_within_budget(context, rewrite),
        proxy=proxy_for(upstream, environment.environ),
    )
    with capture_in_thread(settings, recorder) as base_url:
        yield base_url, recorder.losses


def snapshot_name(session: str, attempt: int, request: int) -> str:
    """Name the snapshot taken at a request; the name is a tag of the shadow repository."""
    again = f"_a{attempt}" if attempt > 1 else ""
    return f"_step_{session.removeprefix('session_')}{again}_{request:03d}"


def _cost_recorder(context: RunContext, line: CaptureTarget) -> Callable[[bytes], None]:
    """Tell the purse and the journal what an answer cost."""

    def paid(body: bytes) -> None:
        said = decode_response(body)
        if not said.usage or said.message is None:
            return
        usd = price(str(said.message.get("model", "")), decode_usage(said.usage)).usd
        context.budget.charge(usd)
        if usd:
            context.run.append(CostRecorded(line.session, line.attempt, usd, str(said.message.get("id", ""))))
        context.environment.tell(line.session, "", context.budget.spent_usd)

    return paid


def _tree_saver(context: RunContext, line: CaptureTarget) -> Callable[[ApiRequest], "asyncio.Future[None]"]:
    def save(request: ApiRequest) -> None:
        saved = context.work_tree.save_tree(line.trees, snapshot_name(line.session, line.attempt, request.index))
        if saved is not None:
            at_ms = int(context.environment.runtime.clock.now_s() * 1000)
            lane = request.agent_id
            context.run.append(SnapshotSaved(line.session, line.attempt, saved.name, request.index, lane, at_ms))

    return lambda request: asyncio.get_running_loop().run_in_executor(None, save, request)


def _within_budget(context: RunContext, rewrite: Rewrite | None) -> Rewrite:
    def check(said: RequestInfo, arrived: IncomingRequest) -> RewrittenRequest | ServedResponse | None:
        if context.budget.is_empty:
            raise Unavailable("the budget of this run is spent", hint="raise max_budget_usd")
        return rewrite(said, arrived) if rewrite is not None else None

    return check


@contextmanager
def snapshot_hook(context: RunContext, line: CaptureTarget) -> Iterator[tuple[str, ...]]:
    """Give the words that make the client wait after each tool, and save the tree whenever it does."""
    config = context.run.config
    if is_captured(config) or config.engine != "claude_code" or line.trees is None:
        yield ()
        return
    folder = context.run.scratch_dir / "hooks" / f"{line.session}_{line.attempt}"
    ensure_dir(folder)
    script = folder.parent / "wait.sh"
    replace_file(script, _HOOK, durable=False)
    over = threading.Event()
    watcher = threading.Thread(target=_serve_hooks, args=(context, line, folder, over), name="hooks", daemon=True)
    watcher.start()
    try:
        yield ("--settings", _hook_settings(script, folder))
    finally:
        over.set()
        watcher.join()


def _hook_settings(script: Path, folder: Path) -> str:
    command = f"sh {shlex.quote(str(script))} {shlex.quote(str(folder))} >/dev/null 2>&1 || :"
    hook = {"matcher": "", "hooks": [{"type": "command", "command": command, "timeout": 20}]}
    return json.dumps({"hooks": {event: [hook] for event in _EVENTS}})


def _serve_hooks(context: RunContext, line: CaptureTarget, folder: Path, over: threading.Event) -> None:
    """Save the tree for each hook that waits, in the order they are seen."""
    number = 0
    while not over.wait(_LOOK_S):
        for asked in sorted(folder.glob("ask.*"), key=lambda path: path.stat().st_mtime_ns):
            number += 1
            try:
                _save_tree(context, line, asked, number)
            finally:
                rename_file(asked, asked.name.replace("ask.", "done."))


def _save_tree(context: RunContext, line: CaptureTarget, asked: Path, number: int) -> None:
    try:
        told = json.loads(asked.read_bytes())
        saved = context.work_tree.save_tree(line.trees, snapshot_name(line.session, line.attempt, number))
    except (FlightlogError, ValueError, OSError):
        return  # The agent does not wait for what cannot be saved; the change shows in the next tree.
    if saved is not None and isinstance(told, dict):
        at_ms = int(context.environment.runtime.clock.now_s() * 1000)
        lane, call = str(told.get("agent_id") or ""), str(told.get("tool_use_id") or "")
        context.run.append(SnapshotSaved(line.session, line.attempt, saved.name, number, lane, at_ms, call))
