"""The header of a session: title, directory, version, times, client totals, counts of records.

It is built record by record, in any order. A repeated record changes only the time of a title.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from flightlog.model import entries
from flightlog.model.errors import Damage
from flightlog.model.session import Session, clean_title
from flightlog.model.usage import ClientTotals
from flightlog.views.session.turns import Rank, rank

_WORK = entries.UserPrompt | entries.AssistantReply | entries.ToolResult | entries.ContextCompacted
_ACTIVITY = entries.ApiError | entries.ClientNote | entries.PromptQueued | entries.QueueTakenBack


class SessionHeader:
    """The figures of a session that do not need its turns."""

    def __init__(self, session: str, agent: str) -> None:
        self.session, self.agent = session, agent
        self.damage: set[Damage] = set()
        self._records = 0
        self._unknown: Counter[str] = Counter()
        self._fields: Counter[str] = Counter()
        # Whether a subagent wrote the record, its rank, directory and entry point.
        self._first: tuple[bool, Rank, str, str] | None = None
        self._last: tuple[bool, Rank, str] | None = None  # is of the main thread, rank, branch
        self._version = ""
        self._first_ms: int | None = None
        self._activity: tuple[int, int] | None = None
        self._client: ClientTotals | None = None
        self._titles: dict[bool, tuple[Rank, str]] = {}  # by whether a person gave it
        self._summaries: list[tuple[Rank, str, str]] = []
        self._calls: dict[str, tuple[Rank, str]] = {}
        self.calls_by_run: dict[str, set[str]] = defaultdict(set)  # of a workflow

    def add(self, entry: entries.Entry, *, is_new: bool) -> None:
        """Add a record; one that is not new is another version of a record that was added."""
        if is_new:
            self._records += 1
            self._fields.update(entry.extra_fields)
            if isinstance(entry.event, entries.UnknownRecord):
                self._unknown[entry.event.kind] += 1
        if entry.context.cwd:
            self._add_scene(entry)
        self._add_event(entry)

    def _add_scene(self, entry: entries.Entry) -> None:
        # The main thread's directory is the session's: its secrets are redacted when it is shared.
        scene, is_subagent = entry.context, bool(entry.subagent)
        first = (is_subagent, rank(entry), scene.cwd, scene.entrypoint)
        last = (not is_subagent, rank(entry), scene.branch)
        self._first = min(self._first or first, first)
        self._last = max(self._last or last, last)
        if scene.version != self._version:
            self._version = max(self._version, scene.version, key=_parse_version)

    def _add_event(self, entry: entries.Entry) -> None:
        if isinstance(entry.event, entries.ToolResult) and entry.event.subagent:
            call = (rank(entry), entry.event.tool_call_id)
            name = entry.event.subagent
            self._calls[name] = max(call, self._calls.get(name, call))
        if isinstance(entry.event, entries.ToolResult) and entry.event.run:
            self.calls_by_run[entry.event.run].add(entry.event.tool_call_id)
        if entry.at_ms is not None:
            self._add_time(entry.event, entry.at_ms)
        match entry.event:
            case entries.ClientTotalReported() as event:
                # Totals only grow, so the largest one is the last.
                self._client = max(
                    self._client or event.client_totals,
                    event.client_totals,
                    key=lambda totals: (totals.cost_usd or 0.0, totals.usage.total_tokens),
                )
            case entries.SessionTitled() as event if event.text:
                title = (rank(entry), event.text)
                kind = event.is_user_title
                self._titles[kind] = max(title, self._titles.get(kind, title))
            case entries.SessionSummarized() as event:
                self._summaries.append((rank(entry), event.leaf_uuid, event.text))
            case _:
                pass

    def _add_time(self, event: entries.Event, at_ms: int) -> None:
        """Note when something happened; opening a session writes other records without any."""
        is_work = isinstance(event, _WORK)
        is_hidden_activity = isinstance(event, entries.Ignored) and event.is_activity
        if is_work:
            self._first_ms = at_ms if self._first_ms is None else min(self._first_ms, at_ms)
        if is_work or is_hidden_activity or isinstance(event, _ACTIVITY):
            early, late = self._activity or (at_ms, at_ms)
            self._activity = (min(early, at_ms), max(late, at_ms))

    def calls_by_subagent(self) -> dict[str, str]:
        """Return the call that a tool result names for each subagent."""
        return {subagent: call_id for subagent, (_, call_id) in self._calls.items()}

    def to_session(self, first_prompt: str, has_record: Callable[[str], bool]) -> Session:
        """Return the session without turns; without a title it has `first_prompt` for one."""
        _, _, cwd, entrypoint = self._first or (False, None, "", "")
        early, late = self._activity or (None, None)
        return Session(
            id=self.session,
            agent=self.agent,
            title=self._title(first_prompt, has_record),
            cwd=cwd,
            branch=self._last[2] if self._last else "",
            version=self._version,
            entrypoint=entrypoint,
            started_ms=early if self._first_ms is None else self._first_ms,
            ended_ms=late,
            turns=(),
            subagents=(),
            client_totals=self._client,
            unknown_record_types=tuple(sorted(self._unknown.items())),
            unknown_fields=tuple(sorted(self._fields.items())),
            damage=tuple(sorted(self.damage)),
            record_count=self._records,
        )

    def _title(self, first_prompt: str, has_record: Callable[[str], bool]) -> str:
        """Return the whole title: if it were cut before redaction, half of a secret could remain."""
        # A summary is the title of the session that has its last record.
        summaries = [(at, text) for at, leaf, text in self._summaries if leaf and has_record(leaf)]
        if given := self._titles.get(True, ("", ""))[1].strip():
            return given
        candidates = (
            max(summaries)[1] if summaries else "",
            self._titles.get(False, ("", ""))[1],
            first_prompt,
        )
        return next((title for text in candidates if (title := clean_title(text))), "")


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(
        int(part) if part.isdecimal() and len(part) < 10 else 0 for part in version.split(".")
    )
