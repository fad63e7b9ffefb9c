"""Open, start and find runs; check consent before a run executes anything."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.sandbox import parent_death_prefix, probe_isolation
from flightlog.agents.scripted.scenario import load_scenario
from flightlog.analysis.requests import has_sent_requests
from flightlog.lab import store
from flightlog.lab.config import RunConfig, parse_run_config
from flightlog.lab.run_reader import read_run_sessions
from flightlog.lab.runner.agent_setup import resolve_upstream
from flightlog.lab.runner.context import RunEnvironment, Tell
from flightlog.lab.store import RunStore
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.exchange import is_loopback
from flightlog.model.runtime import Runtime
from flightlog.privacy import trust
from flightlog.store.files import contained_in_project

RUNS = "runs"
JOBS_AT_ONCE = 8
Permit = Callable[[RunConfig, Path, str], None]
COUNT_MAX = 20


def prepare_run(runtime: Runtime, tell: Tell, permit: Permit | None = None) -> RunEnvironment:
    """Return what a run needs from this machine; `permit` replaces the consent check."""
    path = runtime.program_path
    return RunEnvironment(
        runtime=runtime,
        tell=tell,
        permit=permit or partial(permit_run, runtime),
        remember=partial(remember_run, runtime),
        isolation_mode=probe_isolation(path),
        parent_death_prefix=parent_death_prefix(path),
    )


def remember_run(runtime: Runtime, digest: str) -> None:
    """Record the digest of a run's `config.yaml` as the person's own."""
    trust.open_trust(runtime).grant(f"run {digest}", {})


def permit_run(runtime: Runtime, config: RunConfig, path: Path, digest: str) -> None:
    """Raise ConsentNeeded unless the run is the person's or allowed, and its key encrypted.

    Without `digest` the run is about to be created by the person.
    """
    run = run_target(runtime, path, config, digest)
    address = run.allows[trust.ADDRESS]
    if digest and not run.is_trusted:
        raise trust.consent_needed(
            run,
            f"this run was not started here; its key would go to {address[:100]}: {path.name[:60]}",
        )
    if config.scenario is None:
        resolve_upstream(config, runtime.environ)  # raises for a key of another address
    allowed_address = trust.open_trust(runtime).consent_for(run.subject).address
    target = trust.address_target(runtime, address)
    if (
        address.startswith("http://")
        and not is_loopback(address)
        and allowed_address != address
        and not target.is_trusted
    ):
        raise trust.consent_needed(
            target, f"the key would be sent without encryption to {address[:100]}"
        )


@contextmanager
def attach_executor(environment: RunEnvironment) -> Iterator[RunEnvironment]:
    """Submit sessions that can run in parallel as jobs, within the block."""
    jobs = environment.runtime.jobs
    if jobs is None or jobs.is_local:
        yield environment
        return
    with jobs.open_in_thread(JOBS_AT_ONCE) as submit:
        yield replace(environment, elsewhere=submit)


def read_config(path: Path, overrides: Mapping[str, Any]) -> RunConfig:
    """Read a run's configuration; relative paths are relative to the working directory."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise NotFound(
            f"no such configuration: {path}", hint="name a YAML file: flightlog lab run --help"
        ) from None
    config = parse_run_config(
        text, overrides, scenario=lambda name: load_scenario(path.parent / name)
    )
    work_dir = Path(config.work_dir).expanduser()
    if not work_dir.is_dir():
        hint = "name the directory the agent is to work in"
        raise NotFound(f"work_dir is not a directory: {work_dir}", hint=hint)
    return replace(config, work_dir=str(work_dir.resolve()))


def run_name(runtime: Runtime, config: RunConfig) -> str:
    """Return the configured name of a run, else one made of the time and the model."""
    slug = re.sub(r"[^a-z0-9]+", "-", config.model.lower()).strip("-")[:40]
    now = datetime.fromtimestamp(runtime.clock.now_s(), tz=UTC)
    return config.run_name or f"{now:%Y%m%dT%H%M%SZ}_{slug}"


def check_permission(runtime: Runtime, run: RunStore) -> None:
    """Raise ConsentNeeded for a run that the person neither started here nor allowed."""
    permit_run(runtime, run.config, run.path, run.config_digest)


def open_run(runtime: Runtime, runs_dir: Path, name: str) -> RunStore:
    """Open a run by path, name or unique prefix."""
    return _open_store(runtime, store.find_run(runs_dir, name))


def open_runs(runtime: Runtime, runs_dir: Path) -> list[RunStore]:
    return [_open_store(runtime, path) for path in store.list_run_paths(runs_dir)]


def open_readable_runs(runtime: Runtime, runs_dir: Path) -> tuple[list[RunStore], list[str]]:
    """Open every readable run of a directory; also return what is wrong with the others."""
    opened, broken = [], []
    for path in store.list_run_paths(runs_dir):
        try:
            opened.append(_open_store(runtime, path))
        except (FlightlogError, OSError) as error:
            broken.append(f"{path.name}: {error}")
    return opened, broken


def run_target(runtime: Runtime, path: Path, config: RunConfig, digest: str) -> trust.ConsentTarget:
    subject = f"run {digest}"
    trusted = bool(trust.open_trust(runtime).consent_for(subject).digest)
    allows = _run_effects(runtime, config)
    return trust.ConsentTarget("run", str(path.resolve()), subject, allows, trusted)


def _run_effects(runtime: Runtime, config: RunConfig) -> dict[str, Any]:
    """Return what continuing a run can execute, send and write, by name."""
    address = config.base_url or resolve_upstream(config, runtime.environ) or config.provider
    if config.scenario is not None:
        address = "a scripted model on this machine"
    effects: dict[str, Any] = {trust.ADDRESS: address.rstrip("/"), "works in": config.work_dir}
    agent = f"{config.engine}, {config.permission_mode}, tools {', '.join(config.allowed_tools)}"
    effects["agent"] = list(config.command) if config.engine == "command" else agent
    effects |= {"arguments": list(config.args)} if config.args else {}
    effects |= {f"env {name}": value for name, value in config.env.items()}
    effects |= {"MCP servers": config.mcp_config} if config.mcp_config else {}
    if config.load_project_settings:
        effects["project settings"] = "hooks and servers of the work directory are started"
    phases = {"before": config.pre_run_commands, "after": config.post_run_commands}
    for name, commands in phases.items():
        effects |= {
            f"{name} {number}": command.command for number, command in enumerate(commands, 1)
        }
    effects |= {
        f"verifier {number}": command.command or command.python
        for number, command in enumerate(config.verifiers, 1)
    }
    return effects | {
        f"prompt {session.session_index}": session.prompt for session in config.sessions
    }


class ReplayRequest(Struct, frozen=True):
    """A replay requested on a web page."""

    run: str
    session: int
    replicate: int
    turn: int
    prompt: str = ""
    count: int = 1


def runs_dir(runtime: Runtime) -> Path:
    return contained_in_project(runtime, Path(runtime.cwd) / RUNS)


def all_runs(runtime: Runtime) -> tuple[list[RunStore], list[str]]:
    """Open every run of the project; also return what is wrong with unreadable ones."""
    return open_readable_runs(runtime, runs_dir(runtime))


def explain_runs(runtime: Runtime) -> list[bool]:
    """Return for each session of the project's runs whether its requests are known."""
    try:
        runs = all_runs(runtime)[0]
    except Invalid:  # the directory of the runs is a link out of the project
        return []
    archives = [read_run_sessions(run, run.planned_sessions()) for run in runs]
    read = ((session, archive) for archive in archives for session in archive.iter_sessions())
    return [has_sent_requests(session, own.recordings[session.id]) for session, own in read]


def find_run(runtime: Runtime, name: str) -> RunStore:
    path = next((run for run in store.list_run_paths(runs_dir(runtime)) if run.name == name), None)
    if path is None:
        raise NotFound(f"no such run: {name[:60]!r}", hint="flightlog lab list")
    return _open_store(runtime, path)


def _open_store(runtime: Runtime, path: Path) -> RunStore:
    return RunStore(path, now=runtime.clock.timestamp, new_id=runtime.new_id)


def start_replay(runtime: Runtime, request: ReplayRequest) -> "subprocess.Popen[str]":
    """Start `lab replay` in a process of its own, which reports progress on its stderr.

    The process has its own session, so Ctrl-C in the server's terminal reaches only the server,
    which passes it on once. If the server is killed, the process dies with it.
    """
    arguments = ["lab", "replay", request.run, f"--session={request.session}"]
    arguments += [f"--turn={request.turn}", f"--count={request.count}"]
    arguments += [f"--replicate={request.replicate}"] if request.replicate else []
    arguments += [f"--prompt={request.prompt}", f"--runs-dir={runs_dir(runtime)}", "--json"]
    return subprocess.Popen(
        [*parent_death_prefix(runtime.program_path), sys.executable, "-m", "flightlog", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
