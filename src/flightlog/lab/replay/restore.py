"""Work in the original directory without a mount namespace, and repair what killed replays left.

A replay that works in place saves the directory first and writes a marker with the snapshot's
name; the marker goes when the directory is restored. After a crash the marker is still there: the
next command restores the directory and removes the private copies. A replay whose lock is held is
left alone; what it recorded stays, and it can be continued.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flightlog.lab.runner.context import RunEnvironment
from flightlog.lab.runner.session import kill_agent
from flightlog.lab.store import CONFIG, LOCK, RunStore
from flightlog.model.errors import Conflict, ConsentNeeded, FlightlogError
from flightlog.store.directories import remove_tree
from flightlog.store.files import process_tag, replace_file
from flightlog.store.git.repository import remove_stale
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.store.locks import exclusive_lock

TREE = "tree"
SOURCE_GIT = "source_git"
_LOCK = ".replay-in-place.lock"
_MARKER = ".in_place"
_SCRATCH = ".work-"


@contextmanager
def work_in_place(run: RunStore, environment: RunEnvironment) -> Iterator[Path]:
    """Lock and save the work directory, yield it, and restore it at the end."""
    with exclusive_lock(run.path.with_name(_LOCK), who=f"process {process_tag()}"):
        trees, marker = _open_original(run, environment), run.path / _MARKER
        if not marker.exists():
            replace_file(
                marker, trees.save_snapshot(f"_original_{run.state.takeover_count}").name.encode()
            )
        try:
            yield trees.work_tree
        finally:
            _restore_original(run, trees)


def restore_killed_replays(runs_dir: Path, environment: RunEnvironment) -> Iterator[str]:
    """Repair what killed replays left, and yield a line about each."""
    killed = {
        runs_dir / tree.parent.name.removeprefix(_SCRATCH)
        for tree in runs_dir.glob(f"{_SCRATCH}*/{TREE}")
    }
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
            if run.state.branch is not None:
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
    for name in (TREE, SOURCE_GIT):
        remove_tree(run.scratch_dir / name)


def _restore_after_kill(run: RunStore, environment: RunEnvironment) -> str:
    trees = _open_original(run, environment)
    original = (run.path / _MARKER).read_text("utf-8").removeprefix("_")
    # A person may have worked in the directory since the crash.
    saved = trees.save_snapshot(
        f"_found_{original}_{int(environment.runtime.clock.now_s() * 1000)}"
    )
    _restore_original(run, trees)
    return (
        f"restored {trees.work_tree} to its state before {run.name}, which was killed; "
        f"the files found there are saved as {saved.name}"
    )


def _open_original(run: RunStore, environment: RunEnvironment) -> WorkTreeSnapshots:
    return environment.open_snapshots(
        run.shadow_dir, Path(run.config.work_dir).resolve(), line="original"
    )


def _restore_original(run: RunStore, trees: WorkTreeSnapshots) -> None:
    marker = run.path / _MARKER
    trees.restore_snapshot(marker.read_text("utf-8"))
    remove_stale(marker)
