"""The fold from entries to a session; the same entries give the same session in any order.

Files may arrive shuffled, split or twice: a record counts once (by its key), a response
once (by its message id), and order comes from times and replies (`views.order`). Asking for
the value while a session runs and asking at the end is the same question.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from flightlog.model.damage import Damage
from flightlog.model.events import (
    Compacted,
    CostStated,
    Entry,
    LaneFacts,
    Prompted,
    PromptKind,
    Replied,
    Summarised,
    Titled,
    ToolReturned,
    Unknown,
)
from flightlog.model.session import Lane, Session, Turn
from flightlog.model.usage import ClientTotals, Cost, Usage
from flightlog.views.lanes import asked, begin, by_lane, calls_by_lane
from flightlog.views.order import in_order
from flightlog.views.turns import turns

Pricer = Callable[[str, Usage, int | None], Cost]


class SessionFold:
    """Takes entries one at a time; gives the session when asked."""

    def __init__(self, session: str, agent: str, price: Pricer) -> None:
        """Begin with nothing known of `session`; `price` says what a response cost."""
        self._session = session
        self._agent = agent
        self._price = price
        self._entries: dict[str, Entry] = {}
        self._facts: dict[str, LaneFacts] = {}
        self._damage: set[Damage] = set()

    def add(self, entry: Entry) -> None:
        """Take one more record into account; of two versions of one record the fuller counts."""
        known = self._entries.get(entry.key)
        if known is None or fullness(entry) > fullness(known):
            self._entries[entry.key] = entry

    def add_damage(self, damage: Damage) -> None:
        """Take damage into account."""
        self._damage.add(damage)

    def add_facts(self, facts: LaneFacts) -> None:
        """Take what stands beside a subagent's transcript into account."""
        self._facts[facts.lane] = facts

    def value(self) -> Session:
        """Tell the session as far as it is known."""
        ordered = in_order(self._entries.values())
        lanes = by_lane(ordered)
        main = turns(lanes.pop("", []), self._price)
        scenes = [entry.scene for entry in ordered if entry.scene.cwd]
        times = [entry.at_ms for entry in ordered if entry.at_ms is not None and _moves(entry)]
        unknown = Counter(entry.event.kind for entry in ordered if isinstance(entry.event, Unknown))
        fields = Counter(name for entry in ordered for name in entry.extra)
        return Session(
            id=self._session,
            agent=self._agent,
            title=_title(ordered, main),
            cwd=scenes[0].cwd if scenes else "",
            branch=scenes[-1].branch if scenes else "",
            version=max((scene.version for scene in scenes), key=version_of, default=""),
            entrypoint=scenes[0].entrypoint if scenes else "",
            started_ms=min(times, default=None),
            ended_ms=max(times, default=None),
            turns=tuple(main),
            lanes=self._lanes(lanes, ordered),
            client=_client(ordered),
            unknown=tuple(sorted(unknown.items())),
            unknown_fields=tuple(sorted(fields.items())),
            damage=tuple(sorted(self._damage)),
            records=len(ordered),
        )

    def _lanes(self, lanes: dict[str, list[Entry]], ordered: list[Entry]) -> tuple[Lane, ...]:
        calls = calls_by_lane(lanes, ordered)
        told = []
        for name, entries in lanes.items():
            facts = self._facts.get(name, LaneFacts(name))
            steps = turns(entries, self._price)
            words = steps[0].text if steps else ""
            call = facts.call_id or calls.get(name, "")
            kind, description = facts.agent_type, facts.description
            if call and not (kind and description):
                said_kind, said_task = asked(ordered, call)
                kind, description = kind or said_kind, description or said_task
            told.append(Lane(name, kind, description, call, tuple(steps), warmup=not call and words == "Warmup"))
        return tuple(sorted(told, key=lambda lane: (begin(lane), lane.id)))


def fold(session: str, agent: str, price: Pricer, entries: Iterable[Entry | Damage | LaneFacts]) -> Session:
    """Fold everything at once."""
    folded = SessionFold(session, agent, price)
    for item in entries:
        match item:
            case Entry():
                folded.add(item)
            case Damage():
                folded.add_damage(item)
            case LaneFacts():
                folded.add_facts(item)
    return folded.value()


def fullness(entry: Entry) -> tuple[int, int, str, int, str]:
    """More output, more bytes; then the later one, as a title given again is; then any fixed order."""
    output = entry.event.usage.output if isinstance(entry.event, Replied) else 0
    return (output, entry.length, repr(entry.event), entry.order_ms, repr(entry))


def _moves(entry: Entry) -> bool:
    """Whether a record is part of the work; bookkeeping on opening a session is not."""
    return isinstance(entry.event, Prompted | Replied | ToolReturned | Compacted)


def _client(ordered: list[Entry]) -> ClientTotals | None:
    """The last total is the largest: the client only ever adds."""
    stated = [entry.event.totals for entry in ordered if isinstance(entry.event, CostStated)]
    return max(stated, key=lambda totals: (totals.total_usd, totals.usage.total), default=None)


def _title(ordered: list[Entry], main: list[Turn]) -> str:
    titles = [entry.event for entry in ordered if isinstance(entry.event, Titled) and entry.event.text]
    given = [title.text for title in titles if title.by_person]
    uuids = {entry.uuid for entry in ordered if entry.uuid}
    summaries = [
        entry.event.text for entry in ordered if isinstance(entry.event, Summarised) and entry.event.leaf in uuids
    ]
    asked = [turn.text for kind in (PromptKind.HUMAN, PromptKind.COMMAND) for turn in main if turn.kind is kind]
    options = given[-1:] or summaries[-1:] or [title.text for title in titles[-1:]] or asked[:1]
    # Whole, because a title that is cut before it is redacted can hold half of a secret.
    return options[0] if options else ""


def version_of(version: str) -> tuple[int, ...]:
    """Order versions as people count them."""
    return tuple(int(part) if part.isdecimal() and len(part) < 10 else 0 for part in version.split("."))
