"""Taking in what an agent wrote: its transcript, its subagents', its large results; and giving one back.

The run's copy is the agent's own bytes but for the credentials it was given, which never stand in
a run. A session that goes on from another finds its transcript again by the copy in the run, so
a run that was moved can be taken up on another machine.
"""

from pathlib import Path

from flightlog.agents import source_of
from flightlog.agents.claude_code.resume import find_config_dir, list_output, project_dir, transcript_file
from flightlog.archive.growing import list_session_folder
from flightlog.lab.running.asking import agent_credentials, config_dir, has_own_config_dir
from flightlog.lab.running.stage import RunContext
from flightlog.lab.state import SessionAttempt
from flightlog.sources.api.scrub import Scrubber
from flightlog.sources.claude_code.discover import AGENT
from flightlog.store.files import ensure_dir, replace_file, resolve_inside
from flightlog.store.kept import TRANSCRIPT


def collect_output(stage: RunContext, session: str, session_id: str) -> bool:
    """Copy what the agent wrote into the session's directory; say whether there was a transcript."""
    scrub = Scrubber(agent_credentials(stage.book.config, stage.setting.environ).values())
    folder = stage.book.path / session
    found = False
    for name, path in list_output(transcript_dir(stage), session_id):
        data = path.read_bytes()
        replace_file(resolve_inside(folder, name), scrub.clean_bytes(data), durable=True)
        found = found or name == TRANSCRIPT
    return found


def place_transcript(stage: RunContext, parent: SessionAttempt) -> None:
    """Put the transcript a session goes on from where its agent looks for it."""
    there = transcript_file(transcript_dir(stage), parent.session_id)
    kept = stage.book.path / parent.session / TRANSCRIPT
    if not there.exists() and kept.exists():
        ensure_dir(there.parent)
        replace_file(there, kept.read_bytes(), durable=False)


def client_cost(folder: Path) -> float:
    """Return what the client says a session had cost at its end, which a fork of it begins with."""
    main = [file for file in list_session_folder(folder, "") if not file.lane]
    totals = [total for file in main for total in source_of(AGENT).scan_usage(file).totals]
    return totals[-1].total_usd if totals else 0.0


def transcript_dir(stage: RunContext) -> Path:
    """Return where the agent keeps the transcripts of the work directory."""
    config, setting = stage.book.config, stage.setting
    own = has_own_config_dir(config, setting.environ)
    root = config_dir(stage.book.scratch_dir) if own else find_config_dir(setting.environ, setting.home)
    return project_dir(root, stage.ground.work_dir)
