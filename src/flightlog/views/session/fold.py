"""Fold the entries of a session into its `Session` and its `SessionOutline`.

The same entries give the same result in any order: an entry counts once (by its key), a response
once (by its message id), and order comes from times and replies.
"""

import enum
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from flightlog.model.entries import Entry, HookRecord, PromptKind, SubagentInfo
from flightlog.model.errors import Damage
from flightlog.model.session import Session, Turn
from flightlog.views.session.header import SessionHeader
from flightlog.views.session.outline import SessionOutline
from flightlog.views.session.rows import Locations, add_location
from flightlog.views.session.subagents import (
    INLINE,
    SubagentThread,
    find_subagent_calls,
    first_prompt,
    link_subagents,
    sort_threads,
    split_threads,
)
from flightlog.views.session.summary import build_outline, outline_session
from flightlog.views.session.thread import (
    EVICTION,
    Eviction,
    OutOfOrder,
    SeenRecords,
    ThreadFold,
    fuller,
    shorten_texts,
)
from flightlog.views.session.turns import Pricer, build_turns, rank, sort_entries

SessionItem = Entry | Damage | SubagentInfo | HookRecord


class Retain(enum.Enum):
    """Which entries a fold keeps."""

    ALL = "all"
    TAIL = "tail"


class SessionFold:
    """Takes the entries of one session; returns the session or its outline at any time.

    With `Retain.TAIL` old entries become rows, so memory is bounded, but there is only an outline,
    and entries out of order raise `OutOfOrder`: read them again with `ALL`.
    """

    def __init__(
        self,
        session: str,
        agent: str,
        price: Pricer,
        retain: Retain = Retain.ALL,
        eviction: Eviction = EVICTION,
    ) -> None:
        """Start without entries; `eviction` is for `Retain.TAIL`."""
        self._header = SessionHeader(session, agent)
        self._info: dict[str, SubagentInfo] = {}
        self._files: dict[str, int] = {}
        self._entries = (
            _AllEntries(price) if retain is Retain.ALL else _TailEntries(price, eviction)
        )

    def add(self, item: SessionItem) -> None:
        """Add an item. Hook records are accepted, but not shown yet."""
        match item:
            case Entry():
                file = self._files.setdefault(item.path, len(self._files))
                self._header.add(item, is_new=self._entries.add(item, file))
            case Damage():
                self._header.damage.add(item)
            case SubagentInfo():
                self._info[item.subagent] = item
            case HookRecord():
                pass

    def session(self) -> Session:
        """Return the whole session; only `Retain.ALL` has it."""
        assert isinstance(self._entries, _AllEntries), "a session needs Retain.ALL"
        return self._entries.build_session(self._header, self._info)

    def outline(self) -> SessionOutline:
        """Return header, summary and rows of the session."""
        if isinstance(self._entries, _AllEntries):
            return outline_session(
                self.session(), self._entries.find_locations(self._files), self._files
            )
        return self._entries.build_outline(self._header, self._info, self._files)


def fold_session(session: str, agent: str, price: Pricer, items: Iterable[SessionItem]) -> Session:
    """Return the session that `items` make."""
    fold = SessionFold(session, agent, price)
    for item in items:
        fold.add(item)
    return fold.session()


def fold_outline(
    session: str,
    agent: str,
    price: Pricer,
    read_items: Callable[[], Iterable[Entry | Damage | SubagentInfo]],
) -> SessionOutline:
    """Return the outline, made in bounded memory if the order of the records allows it.

    If it does not, the records are read a second time and kept whole, without their long texts.
    """
    fold = SessionFold(session, agent, price, Retain.TAIL)
    try:
        for item in read_items():
            fold.add(item)
        return fold.outline()
    except OutOfOrder:
        fold = SessionFold(session, agent, price, Retain.ALL)
        for item in read_items():
            fold.add(shorten_texts(item))
        return fold.outline()


class _AllEntries:
    """Every entry, in any order."""

    def __init__(self, price: Pricer) -> None:
        self._price = price
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry, _file: int) -> bool:
        before = self._entries.get(entry.key)
        self._entries[entry.key] = entry if before is None else fuller(before, entry)
        return before is None

    def find_locations(self, files: Mapping[str, int]) -> Locations:
        locations: Locations = {}
        for entry in self._entries.values():
            add_location(locations, entry, files[entry.path])
        return locations

    def build_session(self, header: SessionHeader, info: dict[str, SubagentInfo]) -> Session:
        threads = split_threads(sort_entries(self._entries.values()))
        main = tuple(build_turns(threads.pop("", []), self._price))
        turns = {
            name: tuple(build_turns(entries, self._price)) for name, entries in threads.items()
        }
        subagents = sort_threads(
            SubagentThread(
                min(map(rank, entries)),
                first_prompt(entries),
                turns[name][0].text if turns[name] else "",
                next((turn.at_ms for turn in turns[name] if turn.at_ms is not None), 0),
                info.get(name, SubagentInfo(name)),
            )
            for name, entries in threads.items()
        )
        own = (main, *(turns[subagent.info.subagent] for subagent in subagents))
        calls = (
            call
            for thread in own
            for turn in thread
            for step in turn.steps
            for call in step.tool_calls
        )
        subagent_ids = link_subagents(
            subagents, find_subagent_calls(calls), header.calls_by_subagent(), header.calls_by_run
        )
        session = header.to_session(_first_prompts(main), lambda uuid: f"{uuid}:0" in self._entries)
        return replace(
            session,
            turns=main,
            subagents=tuple(
                replace(subagent_id, turns=turns[subagent_id.id]) for subagent_id in subagent_ids
            ),
        )


class _TailEntries:
    """The last entries of each thread, and the rows of those before."""

    def __init__(self, price: Pricer, eviction: Eviction) -> None:
        self._price, self._eviction = price, eviction
        self._seen = SeenRecords()
        self._threads: dict[str, ThreadFold] = {"": self._new_thread()}

    def add(self, entry: Entry, file: int) -> bool:
        if entry.subagent == INLINE:
            raise OutOfOrder("subagents are inside the main file")
        if entry.subagent not in self._threads:
            self._threads[entry.subagent] = self._new_thread()
        return self._threads[entry.subagent].add(entry, file)

    def _new_thread(self) -> ThreadFold:
        return ThreadFold(self._price, self._seen, self._eviction)

    def build_outline(
        self, header: SessionHeader, info: dict[str, SubagentInfo], files: Iterable[str]
    ) -> SessionOutline:
        rows = {name: thread.build_rows() for name, thread in self._threads.items()}
        subagents = sort_threads(
            SubagentThread(
                thread.first,
                thread.first_prompt,
                rows[name].first_turn or "",
                rows[name].started_ms or 0,
                info.get(name, SubagentInfo(name)),
            )
            for name, thread in self._threads.items()
            if name
        )
        ordered = (rows[""], *(rows[subagent.info.subagent] for subagent in subagents))
        calls = {
            call_id: call for thread in ordered for call_id, call in thread.subagent_calls.items()
        }
        subagent_ids = link_subagents(
            subagents, calls, header.calls_by_subagent(), header.calls_by_run
        )
        session = header.to_session(rows[""].titles, self._seen.has_record)
        return build_outline(session, rows, subagent_ids, files)


def _first_prompts(turns: Iterable[Turn]) -> dict[PromptKind, str]:
    prompts: dict[PromptKind, str] = {}
    for turn in turns:
        if turn.kind in {PromptKind.HUMAN, PromptKind.COMMAND}:
            assert turn.kind is not None
            prompts.setdefault(turn.kind, turn.text)
    return prompts
