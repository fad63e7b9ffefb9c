"""Link the sessions of runs into traces, and report what went wrong in runs.

A verifier that fails is a result, not an incident.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from flightlog.lab.resample.layout import RESAMPLES, iter_sample_files
from flightlog.lab.run_reader import RunSession, trees_of
from flightlog.lab.state import RunState
from flightlog.lab.store import PlannedSession, RunStore
from flightlog.model.addresses import TraceLink
from flightlog.model.errors import Incident
from flightlog.model.session import Session
from flightlog.views.session.edits import LineEdit, fingerprint_lines
from flightlog.views.session.timeline import iter_steps

ROOM: Final = "lab"
WRONG = frozenset({"error", "timeout", "auth_error"})
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)", re.MULTILINE)


def find_incidents(run: str, state: RunState) -> Iterator[Incident]:
    """Yield failed sessions, failed commands and damaged journal lines."""
    for session, attempts in state.attempts.items():
        for attempt in attempts:
            if attempt.end is not None and attempt.stop_reason in WRONG:
                evidence = (f"{run}/{session}", attempt.session_id)
                yield Incident("failed run", _parse_ms(attempt.finished_at), ROOM, evidence)
    for command in state.commands:
        if command.exit_code != 0:
            at_ms = _parse_ms(state.finished_at or state.started_at)
            address = f"{run}/{command.phase}-{command.number}"
            yield Incident(
                "failed command", at_ms, ROOM, (address,), {"exit code": command.exit_code}
            )
    for damage in state.damage:
        place, at_ms = f"{run}:{damage.offset}", _parse_ms(state.started_at)
        yield Incident("damaged journal", at_ms, ROOM, (place,), {"bytes": damage.length})


def _parse_ms(timestamp: str) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:
        return 0


class RunLinks:
    """Trace links of the sessions in some runs."""

    def __init__(self, runs: Sequence[RunStore], programs: str) -> None:
        self._programs = programs
        # Several if a run's directory was copied: each is found by its name.
        self._sessions: dict[str, list[tuple[RunStore, PlannedSession]]] = defaultdict(list)
        for run in runs:
            for planned in run.planned_sessions():
                last = run.state.last_attempt(planned.session_dir)
                if last is not None and last.session_id:
                    self._sessions[last.session_id].append((run, planned))

    def find_links(self, written: str) -> Iterator[TraceLink]:
        """Yield runs, requests and samples whose address starts with `written`."""
        entries = [(session, *entry) for session, runs in self._sessions.items() for entry in runs]
        for session, run, planned in entries:
            name = f"{run.name}/{planned.session_dir}"
            if written.startswith((f"{name}/", "req_")):
                transcript = self.read_session(session)
                links = self.links_for_session(transcript) if transcript else ()
                parts = (link for link in links if link.kind != "run")
                yield from (link for link in parts if _matches_address(link, written))
            elif name.startswith(written):
                yield _run_link(run, planned, session)

    def sessions_starting_with(self, written: str) -> list[str]:
        return [session for session in self._sessions if session.startswith(written)]

    def read_session(self, session: str) -> Session | None:
        runs = self._sessions.get(session)
        return RunSession(*runs[0], None).session if runs else None

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield the run of a session, and its requests and samples at their steps."""
        for run, planned in self._sessions.get(session.id, ()):
            yield _run_link(run, planned, session.id)
            lineage = RunSession(run, planned, trees_of(run, self._programs)).lineage
            for at, step in iter_steps(session):
                call = lineage.find_request(step) if lineage else None
                if call is not None:
                    name = f"{run.name}/{planned.session_dir}/request_{call.index:03d}"
                    yield TraceLink("request", name, step.request_id, (str(at),))
                    yield from _sample_links(run, planned, call.index, str(at))

    def edits_of_session(self, session: Session) -> tuple[LineEdit, ...] | None:
        """Return the edits that a run's snapshots show for a session; None outside of runs."""
        runs = self._sessions.get(session.id)
        if not runs:
            return None
        reading = RunSession(*runs[0], trees_of(runs[0][0], self._programs))
        return tuple(_iter_edits(reading, session))


def _matches_address(link: TraceLink, written: str) -> bool:
    is_prefix = link.kind == "sample" and link.address.startswith(written)
    return is_prefix or written in {link.address, link.title}


def _sample_links(
    run: RunStore, planned: PlannedSession, request: int, at: str
) -> Iterator[TraceLink]:
    base = f"request_{request:03d}"
    for folder in sorted((run.path / planned.session_dir / RESAMPLES).glob(f"{base}*")):
        if folder.name != base and not folder.name.startswith(f"{base}_v"):
            continue
        for number, is_error, _ in iter_sample_files(folder):
            name = f"{run.name}/{planned.session_dir}/{folder.name}/sample_{number:02d}"
            yield TraceLink("sample", name, "no answer came" if is_error else "", (at,))


def _run_link(run: RunStore, planned: PlannedSession, session: str) -> TraceLink:
    branch = run.state.branch
    names: tuple[tuple[str, str], ...] = ()
    if branch is not None and planned.session_index == 1:
        names = (("run", f"{branch.source_run}/{branch.source_session_dir}"),)
    last = run.state.last_attempt(planned.session_dir)
    address = f"{run.name}/{planned.session_dir}"
    return TraceLink("run", address, last.stop_reason if last else "", (session,), names)


def _iter_edits(reading: RunSession, session: Session) -> Iterator[LineEdit]:
    """Yield the edits in snapshots; a change without a step has no address and is left out."""
    addresses = {step.message_id: str(address) for address, step in iter_steps(session)}
    top = session.cwd.rstrip("/")
    for change in reading.iter_changes():
        address = addresses.get(str(change.get("message_id")))
        if address is not None:
            path = f"{top}/{change['file_path']}"
            for line, added in _added_lines(str(change.get("diff", ""))):
                at_ms = _parse_ms(str(change.get("timestamp", "")))
                yield LineEdit(address, at_ms, path, line, fingerprint_lines(added))


def _added_lines(diff: str) -> Iterator[tuple[int, list[str]]]:
    hunks = list(_HUNK.finditer(diff))
    ends = [hunk.start() for hunk in hunks[1:]] + [len(diff)]
    for hunk, end in zip(hunks, ends, strict=True):
        lines = diff[hunk.end() : end].split("\n")[1:]
        yield int(hunk[1]), [line[1:] for line in lines if line.startswith("+")]
    if not hunks and diff:
        yield 1, []
