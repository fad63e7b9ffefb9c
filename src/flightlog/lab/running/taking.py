"""Taking in what an agent wrote: its transcript, its subagents', its large results; and giving one back.

The run's copy is the agent's own bytes but for the credentials it was given, which never stand in
a run. A session that goes on from another finds its transcript again by the copy in the run, so
a run that was moved can be taken up on another machine.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from flightlog.agents.claude_code.driver import project_folder
from flightlog.lab.running.asking import config_dir, has_own_config_dir, keys
from flightlog.lab.running.stage import Stage
from flightlog.lab.state import Attempt
from flightlog.sources.api.scrub import Scrubber
from flightlog.store.files import ensure_dir, inside, replace

TRANSCRIPT = "transcript.jsonl"


def take_in(stage: Stage, session: str, session_id: str) -> bool:
    """Copy what the agent wrote into the session's directory; say whether there was a transcript."""
    scrub = Scrubber(keys(stage.book.config, stage.setting.environ).values())
    folder = stage.book.path / session
    found = False
    for name, path in _files(project(stage), session_id):
        data = path.read_bytes()
        replace(inside(folder, name), scrub.clean(data), durable=True)
        found = found or name == TRANSCRIPT
    return found


def place_parent(stage: Stage, parent: Attempt) -> None:
    """Put the transcript a session goes on from where its agent looks for it."""
    there = project(stage) / f"{parent.session_id}.jsonl"
    kept = stage.book.path / parent.session / TRANSCRIPT
    if not there.exists() and kept.exists():
        ensure_dir(there.parent)
        replace(there, kept.read_bytes(), durable=False)


def client_cost(folder: Path) -> float:
    """What the client says a session had cost at its end, which a fork of it begins with."""
    try:
        lines = (folder / TRANSCRIPT).read_bytes().splitlines()
    except FileNotFoundError:
        return 0.0
    stated = [line for line in lines if b'"cost-state"' in line]
    for line in reversed(stated):
        try:
            record = json.loads(line)
            if record.get("type") == "cost-state":
                return float(record.get("totalCostUSD") or 0.0)
        except (ValueError, AttributeError, TypeError):
            continue
    return 0.0


def project(stage: Stage) -> Path:
    """Where the agent keeps the transcripts of the work directory."""
    config, setting = stage.book.config, stage.setting
    if has_own_config_dir(config, setting.environ):
        root = config_dir(stage.book.scratch)
    else:
        said = setting.environ.get("CLAUDE_CONFIG_DIR", "")
        root = Path(said) if said else setting.home / ".claude"
    return root / "projects" / project_folder(str(stage.ground.work_dir))


def _files(project: Path, session_id: str) -> Iterator[tuple[str, Path]]:
    """The files of one session, by the names they get in the run."""
    main = project / f"{session_id}.jsonl"
    if main.is_file():
        yield TRANSCRIPT, main
    for folder in ("subagents", "tool-results"):
        beside = project / session_id / folder
        for path in sorted(beside.iterdir()) if beside.is_dir() else ():
            if path.is_file() and not path.is_symlink():
                yield f"{folder}/{path.name}", path
