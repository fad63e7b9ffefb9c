"""Save the work tree at each request, or after each tool call where requests are not captured.

The proxy saves the tree while the model already works, and holds back what the agent can act on
until the snapshot is saved: what changed since the previous request was done by the previous step.
The budget is checked before each request and charged after each response.

Without capture, a hook of the client writes its payload into a directory and waits until the file
is renamed, which means that the tree is saved; it gives up after ten seconds and always exits 0.
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
from flightlog.agents.capture.recorder import (
    ExchangeRecorder,
    IncomingRequest,
    RewrittenRequest,
    ServedResponse,
)
from flightlog.agents.capture.server import capture_in_thread, certificate_files, proxy_for
from flightlog.agents.claude_code import use_settings
from flightlog.agents.dialects.anthropic_messages import RequestInfo, decode_response, decode_usage
from flightlog.lab.events import CostRecorded, SnapshotSaved
from flightlog.lab.runner.agent_setup import UPSTREAMS, is_captured, known_secrets, resolve_upstream
from flightlog.lab.runner.context import RunContext
from flightlog.model.errors import FlightlogError, Unavailable
from flightlog.model.exchange import ApiRequest
from flightlog.store.exchanges import ExchangeStore
from flightlog.store.files import ensure_dir, rename_file, replace_file
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.usage.prices import price

_EVENTS = ("PostToolUse", "PostToolUseFailure")
_POLL_S = 0.01  # the agent waits for the snapshot after each tool, so look often
_HOOK = b"""\
d=$1
cat > "$d/.$$" && mv "$d/.$$" "$d/ask.$$"
i=0
while [ ! -e "$d/done.$$" ] && [ "$i" -lt 500 ]; do sleep 0.02; i=$((i + 1)); done
rm -f "$d/done.$$"
exit 0
"""


class CaptureTarget(Struct, frozen=True):
    """The attempt that is captured, and the trees that are saved for it."""

    session: str
    attempt: int
    trees: WorkTreeSnapshots | None
    folder: Path


@contextmanager
def capture_session(
    context: RunContext, target: CaptureTarget, upstream: str, rewrite: Rewrite | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the address the agent must use ("" for its default), and the list of lost records."""
    config = context.run.config
    environment = context.environment
    upstream = upstream or resolve_upstream(config, environment.environ)
    if not is_captured(config):
        yield "" if upstream == UPSTREAMS["anthropic"] else upstream, []
        return
    exchanges = ExchangeStore(
        target.folder, now=environment.runtime.clock.timestamp, new_id=environment.runtime.new_id
    )
    secrets = known_secrets(config, environment.environ)
    recorder = ExchangeRecorder(exchanges, secrets, _cost_recorder(context, target))
    settings = ProxySettings(
        upstream,
        environment.runtime.new_id().replace("-", ""),
        lambda: f"req_{environment.runtime.new_id().replace('-', '')[:24]}",
        barrier=SharedSaver(_tree_recorder(context, target)).save,
        rewrite=_within_budget(context, rewrite),
        proxy=proxy_for(upstream, environment.environ),
        certificates=certificate_files(environment.environ),
    )
    with capture_in_thread(settings, recorder) as base_url:
        yield base_url, recorder.losses


def snapshot_name(session: str, attempt: int, request: int) -> str:
    """Return the name of the snapshot at a request; it is a tag in the shadow repository."""
    again = f"_a{attempt}" if attempt > 1 else ""
    return f"_step_{session.removeprefix('session_')}{again}_{request:03d}"


def _cost_recorder(context: RunContext, target: CaptureTarget) -> Callable[[bytes], None]:
    """Return a callback that charges the budget and records the cost of a response."""

    def record(body: bytes) -> None:
        response = decode_response(body)
        if not response.usage or response.message is None:
            return
        usd = price(str(response.message.get("model", "")), decode_usage(response.usage)).usd
        context.budget.charge(usd)
        if usd:
            message_id = str(response.message.get("id", ""))
            context.run.append(CostRecorded(target.session, target.attempt, usd, message_id))
        context.environment.tell(target.session, "", context.budget.spent_usd)

    return record


def _tree_recorder(
    context: RunContext, target: CaptureTarget
) -> Callable[[list[ApiRequest]], None]:
    """Return a callback that saves the work tree and records the snapshot for each request."""

    def record(requests: list[ApiRequest]) -> None:
        session, attempt = target.session, target.attempt
        name = snapshot_name(session, attempt, requests[0].index)
        snapshot = context.work_tree.save_tree(target.trees, name)
        if snapshot is not None:
            at_ms = int(context.environment.runtime.clock.now_s() * 1000)
            for request in requests:
                place = (snapshot.name, request.index, request.agent_id, at_ms)
                context.run.append(SnapshotSaved(session, attempt, *place))

    return record


class SharedSaver:
    """Saves something for each request; requests that come meanwhile share the next save."""

    def __init__(self, save_for: Callable[[list[ApiRequest]], None]) -> None:
        """Use `save_for`, which is called on another thread, once at a time."""
        self._save_for = save_for
        self._waiting: list[tuple[ApiRequest, asyncio.Future[None]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def save(self, request: ApiRequest) -> None:
        """Wait until a save that began after this request has ended."""
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[None] = loop.create_future()
        self._waiting.append((request, saved))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        await saved

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            failure = None
            try:
                await loop.run_in_executor(None, self._save_for, [request for request, _ in group])
            except Exception as error:  # noqa: BLE001 - each of these requests reports it
                failure = error
            for saved in (saved for _, saved in group if not saved.cancelled()):
                saved.set_exception(failure) if failure else saved.set_result(None)


def _within_budget(context: RunContext, rewrite: Rewrite | None) -> Rewrite:
    def check(
        request: RequestInfo, incoming: IncomingRequest
    ) -> RewrittenRequest | ServedResponse | None:
        if not context.budget.allows_call():
            raise Unavailable("the budget of this run is spent", hint="raise max_budget_usd")
        return rewrite(request, incoming) if rewrite is not None else None

    return check


@contextmanager
def snapshot_hook(context: RunContext, target: CaptureTarget) -> Iterator[tuple[str, ...]]:
    """Yield the agent's arguments for a hook that waits after each tool until the tree is saved."""
    config = context.run.config
    if is_captured(config) or config.engine != "claude_code" or target.trees is None:
        yield ()
        return
    folder = context.run.scratch_dir / "hooks" / f"{target.session}_{target.attempt}"
    ensure_dir(folder)
    script = folder.parent / "wait.sh"
    replace_file(script, _HOOK, durable=False)
    is_over = threading.Event()
    args = (context, target, folder, is_over)
    watcher = threading.Thread(target=_serve_hooks, args=args, name="hooks", daemon=True)
    watcher.start()
    try:
        yield use_settings(_hook_settings(script, folder))
    finally:
        is_over.set()
        watcher.join()


def _hook_settings(script: Path, folder: Path) -> str:
    command = f"sh {shlex.quote(str(script))} {shlex.quote(str(folder))} >/dev/null 2>&1 || :"
    hook = {"matcher": "", "hooks": [{"type": "command", "command": command, "timeout": 20}]}
    return json.dumps({"hooks": {event: [hook] for event in _EVENTS}})


def _serve_hooks(
    context: RunContext, target: CaptureTarget, folder: Path, is_over: threading.Event
) -> None:
    """Save the tree for each waiting hook, in the order they are seen."""
    number = 0
    while not is_over.wait(_POLL_S):
        for payload in sorted(folder.glob("ask.*"), key=lambda path: path.stat().st_mtime_ns):
            number += 1
            try:
                _save_tree(context, target, payload, number)
            finally:
                rename_file(payload, payload.name.replace("ask.", "done."))


def _save_tree(context: RunContext, target: CaptureTarget, payload: Path, number: int) -> None:
    try:
        event = json.loads(payload.read_bytes())
        snapshot = context.work_tree.save_tree(
            target.trees, snapshot_name(target.session, target.attempt, number)
        )
    except (FlightlogError, ValueError, OSError):
        return  # The agent must not hang on a failed snapshot; the change shows in the next one.
    if snapshot is not None and isinstance(event, dict):
        at_ms = int(context.environment.runtime.clock.now_s() * 1000)
        subagent, call = str(event.get("agent_id") or ""), str(event.get("tool_use_id") or "")
        context.run.append(
            SnapshotSaved(
                target.session, target.attempt, snapshot.name, number, subagent, at_ms, call
            )
        )
