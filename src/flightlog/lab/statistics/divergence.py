"""Where sessions part.

Sessions that take the same action from the same place share a node. A branch begins where it went
back to: it shares the nodes of its source up to that turn. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from flightlog.lab.statistics.analysis import ShareEstimate
from flightlog.lab.statistics.groups import Action
from flightlog.model.text import one_line

STEPS_MAX = 400
OUTLINE_MAX = 400
_Begins = tuple[str, str, int]
CELLS = 24
_LINES_MAX = 60


class ActionPath(Struct, frozen=True):
    """What one session did; `begins` names the run, session and number of steps it goes on from."""

    run: str
    session: str
    steps: tuple[Action, ...]
    begins: _Begins | None = None

    @property
    def label(self) -> str:
        """How it is named."""
        return f"{self.run}/{self.session}"


class PathNode(Struct):
    """An action at a depth, the ways that came by, and those that ended here."""

    action: Action
    depth: int
    places: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    below: list["PathNode"] = field(default_factory=list)


def build_path_tree(ways: Iterable[ActionPath]) -> PathNode:
    """Lay the ways over each other; the root is where all begin."""
    root = PathNode(Action("", "", ""), 0)
    given = sorted(ways, key=lambda each: (each.begins is not None, each.label))
    known = {(way.run, way.session): way for way in given}
    for way in given:
        steps = (*_inherited_actions(way, known), *way.steps)[:STEPS_MAX]
        node = root
        node.places.append(way.label)
        for action in steps:
            node = _find_or_add_child(node, action)
            node.places.append(way.label)
        node.ends.append(way.label)
    return root


def iter_forks(root: PathNode) -> Iterator[PathNode]:
    """The nodes after which the ways go on differently, or some end; from the root down."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if len(node.below) > 1 or (node.below and node.ends):
            yield node
        waiting += reversed(node.below)


class PathSegment(Struct, frozen=True):
    """Steps that some ways take one after the other without parting; `level` says how often they parted before."""

    level: int
    first: PathNode
    last: PathNode

    @property
    def step_range(self) -> str:
        """Which steps these are."""
        one = self.first.depth == self.last.depth
        return f"step {self.first.depth}" if one else f"steps {self.first.depth} to {self.last.depth}"


def list_segments(root: PathNode, most: int = OUTLINE_MAX) -> list[PathSegment]:
    """The stretches of a tree, each followed by those that go on from it; at most so many."""
    told: list[PathSegment] = []
    waiting = [(0, node) for node in reversed(root.below)]
    while waiting and len(told) < most:
        level, first = waiting.pop()
        last = first
        while len(last.below) == 1 and not last.ends:
            last = last.below[0]
        told.append(PathSegment(level, first, last))
        waiting += [(level + 1, child) for child in reversed(last.below)]
    return told


def _inherited_actions(way: ActionPath, known: Mapping[tuple[str, str], ActionPath]) -> tuple[Action, ...]:
    """What was done before the way begins: by its source, by the source of that, and so on."""
    before: tuple[Action, ...] = ()
    seen = {way.label}
    while way.begins is not None:
        run, session, count = way.begins
        source = known.get((run, session))
        if source is None or source.label in seen:
            return before
        before = (*source.steps[:count], *before)
        seen.add(source.label)
        way = source
    return before


def _find_or_add_child(node: PathNode, action: Action) -> PathNode:
    found = next((each for each in node.below if each.action.key == action.key), None)
    if found is None:
        found = PathNode(action, node.depth + 1)
        node.below.append(found)
    return found


def draw_share_bar(share: ShareEstimate, cells: int = CELLS) -> str:
    """Draw the share as filled cells, where the true one may lie as shaded ones."""

    def cell(at: float) -> str:
        may_be = share.interval.low <= at <= share.interval.high
        return ("▓" if may_be else "█") if at < share.share else ("░" if may_be else "·")

    return "".join(cell((number + 0.5) / cells) for number in range(cells))


def iter_path_lines(root: PathNode, width: int = 100) -> Iterator[str]:
    """Tell where the ways part, one line for each stretch, by its first step."""
    told = list_segments(root, _LINES_MAX + 1)
    for each in told[:_LINES_MAX]:
        ends = f", {len(each.last.ends)} end" if each.last.ends else ""
        head = f"{'  ' * min(each.level, 20)}{each.step_range}  {len(each.first.places)} of {len(root.places)}{ends}"
        yield f"{head}  {one_line(each.first.action.label, width)}"
    if len(told) > _LINES_MAX:
        yield "…"
