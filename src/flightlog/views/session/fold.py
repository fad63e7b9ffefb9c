"""Fold the entries of a session into its `Session` and its `SessionOutline`.

The same entries give the same result in any order: an entry counts once (by its key), a response
once (by its message id), and order comes from times and replies.
"""

import enum
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from flightlog.model.entries import Entry, PromptKind, PromptSubmitted, SubagentInfo, Text, ToolHook
from flightlog.model.errors import Damage
from flightlog.model.session import Session, Step, ToolCall, Turn, clean_title
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

_HOOK_WAIT_MS = 60_000  # a hook may take as long before the next record is written
SessionItem = Entry | Damage | SubagentInfo | ToolHook | PromptSubmitted


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
        self._hooks: dict[str, ToolHook] = {}
        self._submitted = PromptSubmitted(0)
        self._files: dict[str, int] = {}
        is_whole = retain is Retain.ALL
        self._entries = _AllEntries(price) if is_whole else _TailEntries(price, eviction)

    def add(self, item: SessionItem) -> None:
        """Add an item; what hooks reported may come before or after the records."""
        match item:
            case Entry():
                file = self._files.setdefault(item.path, len(self._files))
                self._header.add(item, is_new=self._entries.add(item, file))
            case Damage():
                self._header.damage.add(item)
            case SubagentInfo():
                self._info[item.subagent] = item
            case ToolHook():
                before = self._hooks.get(item.tool_call_id, item)
                self._hooks[item.tool_call_id] = _join_hooks(before, item)
            case PromptSubmitted():
                self._submitted = max(self._submitted, item, key=lambda prompt: prompt.at_ms)

    def session(self) -> Session:
        """Return the whole session; only `Retain.ALL` has it."""
        assert isinstance(self._entries, _AllEntries), "a session needs Retain.ALL"
        session = self._entries.build_session(self._header, self._info)
        last = session.turns[-1] if session.turns else None
        last_step_ms = max((step.at_ms or 0 for step in session.steps), default=0)
        before = (last.at_ms if last else None, last.text if last else "")
        running = running_turn(self._submitted, before, last_step_ms)
        session = replace(
            session,
            title=session.title or (clean_title(running.text) if running else ""),
            turns=(*session.turns, replace(running, number=len(session.turns) + 1))
            if running
            else session.turns,
        )
        return _add_hooks(session, self._hooks) if self._hooks else session

    def outline(self) -> SessionOutline:
        """Return header, summary and rows of the session."""
        if isinstance(self._entries, _AllEntries):
            locations = self._entries.find_locations(self._files)
            outline = outline_session(self.session(), locations, self._files)
        else:
            facts = (self._header, self._info, self._files, self._submitted)
            outline = self._entries.build_outline(*facts)
        if not self._hooks and not self._submitted.text:
            return outline
        main = outline.threads[""]
        last = main.read_records(main.total - 1, main.total)[0].turn if main.total else None
        is_running = last is not None and not last.uuid and last.at_ms == self._submitted.at_ms
        return replace(outline, tool_hooks=dict(self._hooks), is_prompt_running=is_running)


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
        items = threads.items()
        turns = {name: tuple(build_turns(entries, self._price)) for name, entries in items}
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
        steps = (step for thread in own for turn in thread for step in turn.steps)
        calls = (call for step in steps for call in step.tool_calls)
        started, by_subagent = find_subagent_calls(calls), header.calls_by_subagent()
        subagent_ids = link_subagents(subagents, started, by_subagent, header.calls_by_run)
        session = header.to_session(_first_prompt(main), lambda uuid: f"{uuid}:0" in self._entries)
        linked = tuple(replace(one, turns=turns[one.id]) for one in subagent_ids)
        return replace(session, turns=main, subagents=linked)


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
        self,
        header: SessionHeader,
        info: dict[str, SubagentInfo],
        files: Iterable[str],
        submitted: PromptSubmitted,
    ) -> SessionOutline:
        rows = {name: thread.build_rows() for name, thread in self._threads.items()}
        main = rows[""]
        last_step_ms = main.step_times[1] if main.step_times else 0
        if running := running_turn(submitted, main.last_prompt, last_step_ms):
            rows[""].add([running], {})
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
        calls = dict(pair for thread in ordered for pair in thread.subagent_calls.items())
        by_subagent = header.calls_by_subagent()
        subagent_ids = link_subagents(subagents, calls, by_subagent, header.calls_by_run)
        session = header.to_session(rows[""].title, self._seen.has_record)
        return build_outline(session, rows, subagent_ids, files)


def _first_prompt(turns: Iterable[Turn]) -> str:
    # A command that the model did not answer ("/cost") is no title.
    asked = (
        turn
        for turn in turns
        if turn.kind is PromptKind.HUMAN or (turn.kind is PromptKind.COMMAND and turn.steps)
    )
    return next((title for turn in asked if (title := clean_title(turn.text))), "")


def running_turn(
    submitted: PromptSubmitted, last_prompt: tuple[int | None, str], last_step_ms: int
) -> Turn | None:
    """Return the turn of a submitted prompt that is not the last one of the transcript yet.

    A response after the hook answers a prompt that is recorded, whatever text the hook gave.
    """
    last_ms, last_text = last_prompt
    is_recorded = last_ms is not None and (
        max(last_ms, last_step_ms) >= submitted.at_ms
        # The record has the time at which the prompt was sent, the hook that of its end.
        or (
            last_text.split() == submitted.text.split()
            and submitted.at_ms - last_ms < _HOOK_WAIT_MS
        )
    )
    if not submitted.text or is_recorded:
        return None
    kind = PromptKind.COMMAND if submitted.text.startswith("/") else PromptKind.HUMAN
    return Turn(1, kind, (Text(submitted.text),), submitted.at_ms, ())


def _join_hooks(before: ToolHook, item: ToolHook) -> ToolHook:
    return ToolHook(
        item.tool_call_id,
        item.permission_decision or before.permission_decision,
        item.executed_input if item.executed_input is not None else before.executed_input,
        item.duration_ms if item.duration_ms is not None else before.duration_ms,
    )


def _add_hooks(session: Session, hooks: Mapping[str, ToolHook]) -> Session:
    def add_to_turn(turn: Turn) -> Turn:
        items = (add_step_hooks(i, hooks) if isinstance(i, Step) else i for i in turn.items)
        return replace(turn, items=tuple(items))

    subagents = tuple(
        replace(subagent, turns=tuple(map(add_to_turn, subagent.turns)))
        for subagent in session.subagents
    )
    return replace(session, turns=tuple(map(add_to_turn, session.turns)), subagents=subagents)


def add_step_hooks(step: Step, hooks: Mapping[str, ToolHook]) -> Step:
    """Return a step whose tool calls have what hooks reported of them."""
    calls = tuple(
        _add_call_hook(call, hooks[call.id]) if call.id in hooks else call
        for call in step.tool_calls
    )
    return replace(step, tool_calls=calls)


def _add_call_hook(call: ToolCall, hook: ToolHook) -> ToolCall:
    is_pending = hook.permission_decision == "ask" and call.result is not None
    return replace(
        call,
        permission_decision=call.permission_decision
        or ("" if is_pending else hook.permission_decision),
        executed_input=hook.executed_input if call.executed_input is None else call.executed_input,
        duration_ms=hook.duration_ms,
    )
