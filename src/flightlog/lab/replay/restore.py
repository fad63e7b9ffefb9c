"""Give a run its work tree: a copy, or the original directory; repair what killed runs left.

A run that works in place (`in_place`, or no mount namespace) saves the directory first and writes a
marker with the snapshot's name; the marker goes when the directory is restored. After a crash the
marker is still there, and the data directory names the run: the next command restores the directory
and removes the copies of replays. A run whose lock is held is left alone; what it recorded stays,
and it can be continued.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flightlog.agents.claude_code.resume import project_dir
from flightlog.agents.sandbox import IsolationMode
from flightlog.lab.config import RunConfig
from flightlog.lab.events import WorkTreeRestored
from flightlog.lab.runner.agent_setup import config_dir
from flightlog.lab.runner.context import RunEnvironment, copy_work_tree
from flightlog.lab.runner.session import kill_agent
from flightlog.lab.store import CONFIG, LOCK, SOURCE, RunStore
from flightlog.model.errors import Conflict, ConsentNeeded, FlightlogError, Invalid
from flightlog.model.runtime import Runtime
from flightlog.store.directories import remove_tree
from flightlog.store.files import ensure_dir, process_tag, replace_file, resolve_inside
from flightlog.store.git.repository import remove_stale
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.store.git.worktree import SnapshotPolicy
from flightlog.store.locks import exclusive_lock, find_holder
from flightlog.store.recordings.adoption import TRANSCRIPT

TREE = "tree"
SOURCE_GIT = "source_git"
_LOCK = ".replay-in-place.lock"
_MARKER = ".in_place"
_SCRATCH = ".work-"
# What a run changes in place has to come back: installed packages and large files, too.
_EVERYTHING = SnapshotPolicy(heavy=(), file_bytes_max=8 << 30, total_bytes_max=8 << 30)
_REGISTRY = "in-place"  # in the data directory, a file with the path of each such run


@contextmanager
def private_work_tree(run: RunStore, environment: RunEnvironment) -> Iterator[Path]:
    """Yield the directory that a run works in; a copy is kept if the run is killed."""
    work_dir = Path(run.config.work_dir).resolve()
    check_work_dir(run.path, work_dir, environment)
    if is_in_place(run.config, environment):
        if not run.config.track_changes:
            yield work_dir
            return
        with _work_in_place(run, environment):
            yield work_dir
        return
    tree = run.scratch_dir / TREE
    if not tree.is_dir():
        copy_work_tree(work_dir, work_dir, tree)
    yield tree


@contextmanager
def placed_outputs(run: RunStore, environment: RunEnvironment) -> Iterator[None]:
    """Put long outputs back where the recorded context names them: below the source's scratch.

    The last of several branches removes them; what a killed one left goes with the next.
    """
    branch, runtime = run.state.branch, environment.runtime
    assert branch is not None, "only for a run that is a replay"
    path = run.path.with_name(branch.source_run)
    if not (path / CONFIG).is_file():
        yield
        return
    source = RunStore(path, now=runtime.clock.timestamp, new_id=runtime.new_id)
    context = (run.path / SOURCE / TRANSCRIPT).read_bytes()
    for target, copy in _list_outputs(source):
        if source.state.end is not None and os.fsencode(target) in context:
            ensure_dir(target.parent)
            replace_file(target, copy.read_bytes(), durable=False)
    try:
        yield
    finally:
        others = {*path.parent.glob("replay_*"), path} - {run.path}
        if source.state.end is not None and not any(find_holder(one / LOCK) for one in others):
            remove_tree(source.scratch_dir)


def _list_outputs(source: RunStore) -> Iterator[tuple[Path, Path]]:
    """Yield where the client of a run wrote each long output, and the run's copy of it."""
    work_dir = Path(source.config.work_dir).resolve()
    project = project_dir(config_dir(source.scratch_dir), work_dir)
    for planned in source.planned_sessions():
        attempt = source.state.last_attempt(planned.session_dir)
        for copy in (source.path / planned.session_dir).glob("tool-results/*"):
            if attempt is not None and copy.is_file() and not copy.is_symlink():
                name = f"{attempt.session_id}/tool-results/{copy.name}"
                yield resolve_inside(project, name), copy


def is_in_place(config: RunConfig, environment: RunEnvironment) -> bool:
    """Return whether a run works in the work directory itself."""
    return bool(config.in_place) or environment.isolation_mode is IsolationMode.NONE


def check_work_dir(path: Path, work_dir: Path, environment: RunEnvironment) -> None:
    """Raise Invalid for a directory that must not be copied or saved; `path` is the run's."""
    if path.resolve().is_relative_to(work_dir):
        hint = "the agent would see its own recording; choose a --runs-dir outside"
        raise Invalid(f"the run is inside its work directory: {path}", hint=hint)
    if environment.home.resolve().is_relative_to(work_dir):
        hint = "work in a directory below it"
        raise Invalid(f"a home directory is not snapshotted: {work_dir}", hint=hint)


def list_unrestored(runtime: Runtime) -> list[Path]:
    """Return the runs that were killed while they worked in place, and left their directory so."""
    folder = Path(runtime.data_dir) / _REGISTRY
    names = (path.read_text("utf-8") for path in sorted(folder.glob("*")) if path.is_file())
    return [path for path in map(Path, names) if is_unrestored(path)]


def is_unrestored(path: Path) -> bool:
    """Return whether the run at `path` was killed while it worked in place."""
    return (path / _MARKER).exists() and find_holder(path / LOCK) is None


def describe_unrestored(path: Path) -> tuple[str, str]:
    """Return what is wrong with such a run, and the command that restores its directory."""
    message = f"{path.name} was killed while it worked in place; its directory is not restored"
    return message, f"flightlog lab inspect {path.name} --runs-dir {path.parent}"


@contextmanager
def _work_in_place(run: RunStore, environment: RunEnvironment) -> Iterator[None]:
    """Lock and save the work directory, and restore it at the end unless its changes are wanted."""
    with exclusive_lock(run.path.with_name(_LOCK), who=f"process {process_tag()}"):
        trees, marker = _open_original(run, environment), run.path / _MARKER
        if not marker.exists():
            # The registry first: it may name a run without a marker, but not the other way round.
            replace_file(_registry_entry(run, environment), str(run.path).encode())
            data = trees.save_snapshot(f"_original_{run.state.takeover_count}").name.encode()
            replace_file(marker, data)
        try:
            yield
        finally:
            if run.config.in_place == "keep":
                remove_stale(marker, _registry_entry(run, environment))
            else:
                _restore_original(run, trees, environment)


def restore_killed_runs(runs_dir: Path, environment: RunEnvironment) -> Iterator[str]:
    """Repair what killed runs left, and yield a line about each."""
    trees = runs_dir.glob(f"{_SCRATCH}*/{TREE}")
    killed = {runs_dir / tree.parent.name.removeprefix(_SCRATCH) for tree in trees}
    killed |= {marker.parent for marker in runs_dir.glob(f"*/{_MARKER}")}
    for path in sorted(folder for folder in killed if (folder / CONFIG).is_file()):
        # Restoring writes where the run's own files say, so a foreign run needs consent first.
        with (
            suppress(Conflict, ConsentNeeded),
            exclusive_lock(path / LOCK, who=f"process {process_tag()}"),
        ):
            run = RunStore(
                path, now=environment.runtime.clock.timestamp, new_id=environment.runtime.new_id
            )
            if run.state.branch is not None or (path / _MARKER).exists():
                environment.permit(run.config, path, run.config_digest)
                yield from _repair_run(run, environment)


def _repair_run(run: RunStore, environment: RunEnvironment) -> Iterator[str]:
    for attempt in run.state.in_flight:
        kill_agent(attempt)
    if (run.path / _MARKER).exists():
        try:
            with exclusive_lock(run.path.with_name(_LOCK), who=f"process {process_tag()}"):
                yield _restore_after_kill(run, environment)
        except FlightlogError as error:
            yield f"cannot restore {run.config.work_dir} to its state before {run.name}: {error}"
    if run.state.branch is not None:
        # A replay makes its copy again; the copy of a run has what its last session did.
        for name in (TREE, f"{TREE}.git", SOURCE_GIT):
            remove_tree(run.scratch_dir / name)


def _restore_after_kill(run: RunStore, environment: RunEnvironment) -> str:
    trees = _open_original(run, environment)
    original = (run.path / _MARKER).read_text("utf-8").removeprefix("_")
    # A person may have worked in the directory since the crash.
    saved = trees.save_snapshot(
        f"_found_{original}_{int(environment.runtime.clock.now_s() * 1000)}"
    )
    run.append(WorkTreeRestored(run.state.tree, saved.name), durable=True)
    _restore_original(run, trees, environment)
    return (
        f"restored {trees.work_tree} to its state before {run.name}, which was killed; "
        f"the files found there are saved as {saved.name}"
    )


def _open_original(run: RunStore, environment: RunEnvironment) -> WorkTreeSnapshots:
    work_dir = Path(run.config.work_dir).resolve()
    return environment.open_snapshots(run.shadow_dir, work_dir, work_dir, "original", _EVERYTHING)


def _restore_original(run: RunStore, trees: WorkTreeSnapshots, environment: RunEnvironment) -> None:
    marker = run.path / _MARKER
    trees.restore_snapshot(marker.read_text("utf-8"))
    remove_stale(marker, _registry_entry(run, environment))


def _registry_entry(run: RunStore, environment: RunEnvironment) -> Path:
    name = hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:16]
    return Path(environment.runtime.data_dir) / _REGISTRY / name
