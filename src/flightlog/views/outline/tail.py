"""The last records of one thread, before they are put away as rows.

Folded again whenever somebody asks; everything before them is rows already. A cut between the
two is made only where nothing later can reach back over it, but for results, which are let through.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from flightlog.model.events import (
    ContextGiven,
    CostStated,
    Entry,
    InputRewritten,
    Kept,
    Prompted,
    Replied,
    Requested,
    Summarised,
    Titled,
    ToolReturned,
    ToolUse,
    words,
)
from flightlog.views.order import in_order
from flightlog.views.outline.rows import Places, Rows, remember
from flightlog.views.session import Pricer, fullness
from flightlog.views.turns import STARTS, turns

SETTLE_AT = 2_000
KEEP = 200
LINKS_MAX = 4_096
SILENT = (ContextGiven, CostStated, Kept, Requested, Summarised, Titled)  # what makes no row may come at any time


class Disorder(Exception):
    """The records do not come in an order that lets old ones be put away."""


class Tail:
    """One thread."""

    def __init__(self, price: Pricer, keys: set[int]) -> None:
        """Begin with nothing; `keys` are those of every record met, of any thread."""
        self._price, self._keys = price, keys
        self._entries: dict[str, Entry] = {}
        self._places: Places = {}
        self._rows = Rows()
        self._settled: tuple[int, str] | None = None
        self._asked: set[str] = set()
        self._strays: set[str] = set()
        self._missing: set[str] = set()
        self._links: set[str] = set()
        self._next = SETTLE_AT
        self._said: tuple[tuple[int, str], str] | None = None
        self.first: tuple[int, str] = (1 << 62, "")

    @property
    def said(self) -> str:
        """The first words addressed to this thread."""
        return self._said[1] if self._said else ""

    def add(self, entry: Entry, file: int) -> bool:
        """Take one more record; say whether it is a new one."""
        known = self._entries.get(entry.key)
        number = hash(entry.key)
        if known is None and number in self._keys:
            if isinstance(entry.event, SILENT) and not entry.uuid:
                return False
            raise Disorder("an old record stands here again")
        if known is None and self._reaches_back(entry):
            raise Disorder("a record comes late")
        self._note_start(entry)
        if isinstance(entry.event, ToolReturned) and entry.event.call_id in self._rows.open:
            if entry.event.call_id in self._rows.writing and (entry.event.is_error or entry.event.denied):
                raise Disorder("a change that was put away failed")
            place = (file, entry.offset, entry.length)
            self._rows.answer(self._rows.open[entry.event.call_id], entry.event, place)
        self._asked.update(_asked(entry))
        remember(self._places, entry, file)
        if known is None or fullness(entry) > fullness(known):
            self._entries[entry.key] = entry
        self._keys.add(number)
        if len(self._entries) >= self._next:
            self._settle()
        return known is None

    def value(self) -> Rows:
        """Every row, those of the last records included."""
        ordered = in_order(self._entries.values())
        if self._settled is not None:
            self._not_taken_back(ordered, self._chained(ordered))
        rows = self._rows.twin()
        rows.add(turns(ordered, self._price), self._places, goes_on=self._settled is not None)
        return rows

    def _reaches_back(self, entry: Entry) -> bool:
        """Whether a record belongs before what was put away, or changes it."""
        if self._settled is None:
            return False
        if isinstance(entry.event, InputRewritten) and entry.event.call_id not in self._asked:
            return True
        early = (entry.order_ms, entry.key) < self._settled and not self._makes_no_row(entry)
        return early or entry.uuid in self._missing or not self._strays.isdisjoint(_asked(entry))

    def _makes_no_row(self, entry: Entry) -> bool:
        """Whether it does not matter when a record comes: a result is told with its call."""
        if isinstance(entry.event, ToolReturned):
            return entry.event.call_id in self._asked or entry.event.call_id in self._rows.open
        return isinstance(entry.event, SILENT)

    def _note_start(self, entry: Entry) -> None:
        rank = (entry.order_ms, entry.key)
        self.first = min(self.first, rank)
        if isinstance(entry.event, Prompted) and (self._said is None or rank < self._said[0]):
            self._said = (rank, words(entry.event.content))

    def _settle(self) -> None:
        """Put old records away, if there is a place to cut."""
        ordered = in_order(self._entries.values())
        chain = self._chained(ordered)
        cut = self._cut(ordered)
        self._next = max(SETTLE_AT, 2 * (len(ordered) - cut))
        if not cut:
            return
        old, rest = ordered[:cut], ordered[cut:]
        self._not_taken_back(ordered, chain)
        calls = {call for entry in old for call in _asked(entry)}
        answers = [each for each in rest if isinstance(each.event, ToolReturned) and each.event.call_id in calls]
        told = [replace(turn, rewound=False) for turn in turns([*old, *answers], self._price)]
        self._rows.add(told, self._places, goes_on=self._settled is not None)
        self._strays |= _returned(old) - calls
        self._missing |= {each.parent for each in old if each.parent and hash(f"{each.parent}:0") not in self._keys}
        self._link(old, chain)
        self._settled = (rest[0].order_ms, rest[0].key)
        self._forget(rest)

    def _forget(self, rest: Sequence[Entry]) -> None:
        self._entries = {entry.key: entry for entry in rest}
        self._asked = {call for entry in rest for call in _asked(entry)}
        kept = {entry.uuid for entry in rest} | {f"result:{call}" for call in _returned(rest)}
        kept |= {f"rewrite:{each.event.call_id}" for each in rest if isinstance(each.event, InputRewritten)}
        self._places = {name: place for name, place in self._places.items() if name in kept}

    def _cut(self, ordered: Sequence[Entry]) -> int:
        """Find the last place, not too near the end, over which nothing reaches back; 0 means there is none."""
        late = len(ordered)
        first_of: dict[str, int] = {}
        calls_at: dict[str, int] = {}
        tops = [-1]
        for place, entry in enumerate(ordered):
            first_of.setdefault(_name(entry) or "", place)
            calls_at.update((call, place) for call in _asked(entry))
            tops.append(tops[-1] if isinstance(entry.event, SILENT) else max(tops[-1], entry.order_ms))
        needs = _needs(ordered)
        reach, floor_ms = late, 1 << 62
        for place in range(late - 1, 0, -1):
            entry = ordered[place]
            if not isinstance(entry.event, SILENT):
                floor_ms = min(floor_ms, entry.order_ms)
            if isinstance(entry.event, Replied):
                reach = min(reach, first_of[_name(entry) or ""])
            if isinstance(entry.event, InputRewritten):
                reach = min(reach, calls_at.get(entry.event.call_id, reach))
            clear = reach >= place and needs[place - 1] < place and tops[place] < floor_ms == entry.order_ms
            if clear and place <= late - KEEP and _begins(entry):
                return place
        return 0

    def _chained(self, ordered: Sequence[Entry]) -> set[str]:
        """Follow the replies back from the last one; they must meet what was put away where it ended."""
        parents = {entry.uuid: entry.parent for entry in ordered if entry.uuid}
        uuid = next((each.uuid for each in reversed(ordered) if each.uuid and isinstance(each.event, _CARRYING)), "")
        chain: set[str] = set()
        while uuid in parents and uuid not in chain:
            chain.add(uuid)
            uuid = parents[uuid]
        if self._settled is not None and uuid not in self._links and hash(f"{uuid}:0") in self._keys:
            raise Disorder("the thread goes on from an older place")
        return chain

    def _not_taken_back(self, ordered: Sequence[Entry], chain: set[str]) -> None:
        living = chain | self._links
        for entry in ordered:
            if _starts(entry) and entry.uuid and entry.uuid not in chain and entry.parent in living:
                raise Disorder("a prompt was taken back")

    def _link(self, old: Sequence[Entry], chain: set[str]) -> None:
        links = [] if any(_starts(each) and each.uuid in chain for each in old) else list(self._links)
        for entry in old:
            if _starts(entry) and entry.uuid in chain:
                links = []
            if entry.uuid in chain:
                links.append(entry.uuid)
        self._links = set(links[-LINKS_MAX:])


_CARRYING = (Prompted, Replied, ToolReturned)


def _asked(entry: Entry) -> list[str]:
    said = entry.event
    return [block.id for block in said.content if isinstance(block, ToolUse)] if isinstance(said, Replied) else []


def _returned(entries: Sequence[Entry]) -> set[str]:
    return {entry.event.call_id for entry in entries if isinstance(entry.event, ToolReturned)}


def _name(entry: Entry) -> str | None:
    said = entry.event
    return said.message_id or said.request_id or entry.key if isinstance(said, Replied) else None


def _starts(entry: Entry) -> bool:
    return isinstance(entry.event, Prompted) and entry.event.kind in STARTS


def _begins(entry: Entry) -> bool:
    """Whether a thread can be told from here: a note would be taken for the next turn's."""
    return _starts(entry) or (isinstance(entry.event, Replied) and not entry.event.synthetic)


def _needs(ordered: Sequence[Entry]) -> list[int]:
    """For each place, how far on the records up to it refer."""
    place_of = {entry.uuid: place for place, entry in enumerate(ordered) if entry.uuid}
    needs, furthest = [], -1
    for entry in ordered:
        furthest = max(furthest, place_of.get(entry.parent, -1))
        needs.append(furthest)
    return needs
