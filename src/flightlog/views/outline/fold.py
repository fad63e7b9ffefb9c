"""The outline of a session, made record by record in bounded memory.

What came long ago is put away as rows; only the last records are folded again, by the fold
everybody uses. That is right as long as records arrive about in order. Where they do not (a
person takes a prompt back, a file repeats an old record, subagents share a file with the main
thread), `Disorder` says so, and the session is told whole instead: `Whole`.
"""

from collections import Counter

from msgspec.structs import replace

from flightlog.model.damage import Damage
from flightlog.model.events import (
    Compacted,
    CostStated,
    Entry,
    LaneFacts,
    Prompted,
    PromptKind,
    Replied,
    Scene,
    Summarised,
    Titled,
    ToolReturned,
    Unknown,
)
from flightlog.model.session import TITLE_WIDTH, Session
from flightlog.model.text import one_line
from flightlog.model.usage import ClientTotals
from flightlog.views.lanes import INLINE
from flightlog.views.outline.rows import Places, Rows, remember
from flightlog.views.outline.shape import Outline
from flightlog.views.outline.tail import Disorder, Tail
from flightlog.views.outline.told import Thread, outline
from flightlog.views.session import Pricer, SessionFold, version_of
from flightlog.views.slim import slim

__all__ = ["Disorder", "Outlining", "Whole"]


class Outlining:
    """Takes records as they come; gives the outline when asked."""

    def __init__(self, session: str, agent: str, price: Pricer) -> None:
        """Begin with nothing known of `session`."""
        self._session, self._agent, self._price = session, agent, price
        self._keys: set[int] = set()
        self._replies: dict[int, str] = {}
        self._tails: dict[str, Tail] = {"": Tail(price, self._keys)}
        self._facts: dict[str, LaneFacts] = {}
        self._named: dict[str, str] = {}
        self._files: dict[str, int] = {}
        self._all = _All()

    def add(self, item: Entry | Damage | LaneFacts) -> None:
        """Take one more record into account."""
        match item:
            case Damage():
                self._all.damage.add(item)
            case LaneFacts():
                self._facts[item.lane] = item
            case Entry():
                self._entry(item)

    def value(self) -> Outline:
        """Tell the outline as far as it is known."""
        main = self._tails[""].value()
        ordered = sorted((each.first, name) for name, each in self._tails.items() if name)
        lanes = [
            Thread(name, self._tails[name].value(), self._tails[name].said, self._facts.get(name, LaneFacts(name)))
            for _, name in ordered
        ]
        session = self._all.told(self._session, self._agent, main, self._keys)
        return outline(session, main, lanes, self._named, self._files)

    def _entry(self, entry: Entry) -> None:
        if entry.lane == INLINE:
            raise Disorder("subagents stand inside the main file")
        file = self._files.setdefault(entry.path, len(self._files))
        if isinstance(entry.event, Replied):
            name = hash(entry.event.message_id or entry.key)
            owner = self._replies.setdefault(name, entry.lane)
            if owner != entry.lane:
                raise Disorder("a response stands in two threads")
        if isinstance(entry.event, ToolReturned) and entry.event.agent_id:
            self._named[entry.event.agent_id] = entry.event.call_id
        if entry.lane not in self._tails:
            self._tails[entry.lane] = Tail(self._price, self._keys)
        if self._tails[entry.lane].add(entry, file):
            self._all.add(entry)
        else:
            self._all.again(entry)


class _All:
    """What is true of all of a session."""

    def __init__(self) -> None:
        self.damage: set[Damage] = set()
        self._records = 0
        self._unknown: Counter[str] = Counter()
        self._fields: Counter[str] = Counter()
        self._first: tuple[tuple[int, str], Scene] | None = None
        self._last: tuple[tuple[int, str], Scene] | None = None
        self._version = ""
        self._times: tuple[int, int] | None = None
        self._client: ClientTotals | None = None
        self._titles: dict[bool, tuple[tuple[int, str], str]] = {}
        self._summaries: list[tuple[tuple[int, str], str, str]] = []

    def add(self, entry: Entry) -> None:
        self._records += 1
        self._fields.update(entry.extra)
        rank = (entry.order_ms, entry.key)
        if entry.scene.cwd:
            if self._first is None or rank < self._first[0]:
                self._first = (rank, entry.scene)
            if self._last is None or rank > self._last[0]:
                self._last = (rank, entry.scene)
            if entry.scene.version != self._version:
                self._version = max(self._version, entry.scene.version, key=version_of)
        self._event(entry, rank)

    def again(self, entry: Entry) -> None:
        """A record that was met before; a title given again is the last one given."""
        if isinstance(entry.event, Titled):
            self._event(entry, (entry.order_ms, entry.key))

    def _event(self, entry: Entry, rank: tuple[int, str]) -> None:
        match entry.event:
            case Prompted() | Replied() | ToolReturned() | Compacted() if entry.at_ms is not None:
                early, late = self._times or (entry.at_ms, entry.at_ms)
                self._times = (min(early, entry.at_ms), max(late, entry.at_ms))
            case CostStated() as event:
                known = [self._client] if self._client else []
                self._client = max([*known, event.totals], key=lambda each: (each.total_usd, each.usage.total))
            case Titled() as event if event.text:
                before = self._titles.get(event.by_person)
                if before is None or rank > before[0]:
                    self._titles[event.by_person] = (rank, event.text)
            case Summarised() as event:
                self._summaries.append((rank, event.leaf, event.text))
            case Unknown() as event:
                self._unknown[event.kind] += 1
            case _:
                pass

    def told(self, name: str, agent: str, main: Rows, keys: set[int]) -> Session:
        first = self._first[1] if self._first else Scene()
        early, late = self._times or (None, None)
        return Session(
            id=name,
            agent=agent,
            title=self._title(main, keys),
            cwd=first.cwd,
            branch=self._last[1].branch if self._last else "",
            version=self._version,
            entrypoint=first.entrypoint,
            started_ms=early,
            ended_ms=late,
            turns=(),
            lanes=(),
            client=self._client,
            unknown=tuple(sorted(self._unknown.items())),
            unknown_fields=tuple(sorted(self._fields.items())),
            damage=tuple(sorted(self.damage)),
            records=self._records,
        )

    def _title(self, main: Rows, keys: set[int]) -> str:
        if True in self._titles:
            return one_line(self._titles[True][1], TITLE_WIDTH)
        summaries = [(rank, text) for rank, leaf, text in self._summaries if leaf and hash(f"{leaf}:0") in keys]
        if summaries:
            return one_line(max(summaries)[1], TITLE_WIDTH)
        if False in self._titles:
            return one_line(self._titles[False][1], TITLE_WIDTH)
        return main.titles.get(PromptKind.HUMAN) or main.titles.get(PromptKind.COMMAND) or ""


class Whole:
    """The same outline from the fold of a whole session: for records in any order, at the price of holding them."""

    def __init__(self, session: str, agent: str, price: Pricer) -> None:
        """Begin with nothing known of `session`."""
        self._fold = SessionFold(session, agent, price)
        self._places: Places = {}
        self._files: dict[str, int] = {}

    def add(self, item: Entry | Damage | LaneFacts) -> None:
        """Take one more record into account."""
        match item:
            case Damage():
                self._fold.add_damage(item)
            case LaneFacts():
                self._fold.add_facts(item)
            case Entry():
                remember(self._places, item, self._files.setdefault(item.path, len(self._files)))
                self._fold.add(slim(item))

    def value(self) -> Outline:
        """Tell the outline as far as it is known."""
        session = self._fold.value()
        main = Rows()
        main.add(session.turns, self._places, goes_on=False)
        lanes = []
        for lane in session.lanes:
            rows = Rows()
            rows.add(lane.turns, self._places, goes_on=False)
            facts = LaneFacts(lane.id, lane.agent_type, lane.description, lane.call_id)
            lanes.append(Thread(lane.id, rows, "", facts))
        return outline(replace(session, title=session.heading, turns=(), lanes=()), main, lanes, {}, self._files)
