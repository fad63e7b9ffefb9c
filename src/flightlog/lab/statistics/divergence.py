"""Find where sessions diverge.

Sessions that take the same actions from the start share nodes of a tree. A branch shares the nodes
of its source up to the turn it goes back to. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from flightlog.lab.statistics.analysis import ShareEstimate
from flightlog.lab.statistics.groups import Action
from flightlog.model.text import one_line

# Bounds for one page: deeper or wider trees are cut.
STEPS_MAX = 400
OUTLINE_MAX = 400
_Begins = tuple[str, str, int]
CELLS = 24  # one cell is about 4 percentage points
_LINES_MAX = 60


class ActionPath(Struct, frozen=True):
    """The actions of one session; `begins` is the run, session and step count that it continues."""

    run: str
    session: str
    steps: tuple[Action, ...]
    begins: _Begins | None = None

    @property
    def label(self) -> str:
        return f"{self.run}/{self.session}"


class PathNode(Struct):
    """An action at a depth, the paths through it, and the paths that end at it."""

    action: Action
    depth: int
    addresses: list[str] = field(default_factory=list)
    ended_addresses: list[str] = field(default_factory=list)
    children: list["PathNode"] = field(default_factory=list)


def build_path_tree(paths: Iterable[ActionPath]) -> PathNode:
    """Merge paths into a tree; the root is the common start."""
    root = PathNode(Action("", "", ""), 0)
    ordered = sorted(paths, key=lambda path: (path.begins is not None, path.label))
    by_session = {(path.run, path.session): path for path in ordered}
    for path in ordered:
        steps = (*_inherited_actions(path, by_session), *path.steps)[:STEPS_MAX]
        node = root
        node.addresses.append(path.label)
        for action in steps:
            node = _find_or_add_child(node, action)
            node.addresses.append(path.label)
        node.ended_addresses.append(path.label)
    return root


def iter_forks(root: PathNode) -> Iterator[PathNode]:
    """Yield the nodes after which paths diverge, or some end, from the root down."""
    stack = [root]
    while stack:
        node = stack.pop()
        if len(node.children) > 1 or (node.children and node.ended_addresses):
            yield node
        stack += reversed(node.children)


class PathSegment(Struct, frozen=True):
    """Steps that some paths take without diverging; `depth` counts the divergences before."""

    depth: int
    first: PathNode
    last: PathNode

    @property
    def step_range(self) -> str:
        one = self.first.depth == self.last.depth
        return (
            f"step {self.first.depth}" if one else f"steps {self.first.depth} to {self.last.depth}"
        )


def list_segments(root: PathNode, most: int = OUTLINE_MAX) -> list[PathSegment]:
    """Return the segments of a tree, each followed by those after it; at most `most`."""
    segments: list[PathSegment] = []
    stack = [(0, node) for node in reversed(root.children)]
    while stack and len(segments) < most:
        level, first = stack.pop()
        last = first
        while len(last.children) == 1 and not last.ended_addresses:
            last = last.children[0]
        segments.append(PathSegment(level, first, last))
        stack += [(level + 1, child) for child in reversed(last.children)]
    return segments


def _inherited_actions(
    path: ActionPath, by_session: Mapping[tuple[str, str], ActionPath]
) -> tuple[Action, ...]:
    """Return the actions before a path begins: of its source, that one's source, and so on."""
    inherited: tuple[Action, ...] = ()
    seen = {path.label}
    while path.begins is not None:
        run, session, count = path.begins
        source = by_session.get((run, session))
        if source is None or source.label in seen:
            return inherited
        inherited = (*source.steps[:count], *inherited)
        seen.add(source.label)
        path = source
    return inherited


def _find_or_add_child(node: PathNode, action: Action) -> PathNode:
    child = next(
        (candidate for candidate in node.children if candidate.action.key == action.key), None
    )
    if child is None:
        child = PathNode(action, node.depth + 1)
        node.children.append(child)
    return child


def draw_share_bar(share: ShareEstimate, cells: int = CELLS) -> str:
    """Draw a share as filled cells, with its interval as shaded ones."""

    def cell(at: float) -> str:
        may_be = share.interval.low <= at <= share.interval.high
        return ("▓" if may_be else "█") if at < share.share else ("░" if may_be else "·")

    return "".join(cell((number + 0.5) / cells) for number in range(cells))


def iter_path_lines(root: PathNode, width: int = 100) -> Iterator[str]:
    """Yield one line for each segment, labeled with its first step."""
    segments = list_segments(root, _LINES_MAX + 1)
    for segment in segments[:_LINES_MAX]:
        ends = f", {len(segment.last.ended_addresses)} end" if segment.last.ended_addresses else ""
        indent, count = "  " * min(segment.depth, 20), len(segment.first.addresses)
        head = f"{indent}{segment.step_range}  {count} of {len(root.addresses)}{ends}"
        yield f"{head}  {one_line(segment.first.action.label, width)}"
    if len(segments) > _LINES_MAX:
        yield "…"
