"""The sessions of an agent below a home, as a test asks for them."""

from datetime import UTC
from pathlib import Path

from flightlog.agents import find_agent, source_of
from flightlog.archive.archive import Archive
from flightlog.model.entries import Entry
from flightlog.model.session import Session, SessionFile, Step
from flightlog.model.usage import Breakdown, Usage, UsageLine, row_to_response
from flightlog.usage.report import UsageReport
from flightlog.views.session.timeline import all_steps
from support.real_clients import RECIPES


def own_dir(agent: str, home: Path) -> str:
    """The directory of an agent below a home."""
    return str(home / RECIPES[agent].folder)


def open_archive(agent: str, home: Path, data: Path | str = "") -> Archive:
    """The sessions of an agent, and our copies of them below `data`."""
    return Archive({agent: (own_dir(agent, home),)}, str(data))


def find_files(agent: str, home: Path) -> tuple[SessionFile, ...]:
    """The session files of an agent."""
    return find_agent(agent).find([own_dir(agent, home)]).files


def read_session(agent: str, home: Path) -> Session:
    """The only session of an agent."""
    (session,) = open_archive(agent, home).iter_sessions()
    return session


def report_usage(agent: str, home: Path, data: Path | str = "") -> UsageReport:
    """The usage of an agent's sessions, and of our copies of them below `data`."""
    return open_archive(agent, home, data).usage_report(Breakdown.SESSION, UTC)


def events_of(file: SessionFile) -> list:
    """The events of a file, without damage."""
    items = source_of(file.agent).entries(file)
    return [item.event for item in items if isinstance(item, Entry)]


def usage_rows(file: SessionFile) -> list[UsageLine]:
    """The usage that a file reports."""
    return source_of(file.agent).scan_usage(file).rows


def sum_rows(rows: list[UsageLine]) -> Usage:
    """The tokens of some rows."""
    return sum((row_to_response(row).usage for row in rows), Usage())


def steps_of(session: Session) -> list[Step]:
    """The steps of a session and of its subagents."""
    return list(all_steps(session))
