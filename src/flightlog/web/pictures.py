"""Pictures made on the server: where ways part, as nodes and lines with places. Pure; numbers are in pixels."""

from collections.abc import Iterator

from msgspec import Struct

from flightlog.lab.statistics.divergence import PathNode
from flightlog.model.text import one_line

COLUMN = 210
ROW = 46
MARGIN = 14
LABEL_CHARS = 27
NODES_MAX = 400


class DiagramNode(Struct, frozen=True):
    """A stretch of steps that some ways have in common; `first` and `last` are their numbers."""

    x: float
    y: float
    radius: float
    first: int
    last: int
    label: str
    title: str
    ways: int
    ends: tuple[str, ...]


class DiagramEdge(Struct, frozen=True):
    """From one stretch to the next."""

    path: str
    weight: float


class Diagram(Struct, frozen=True):
    """A tree, laid out."""

    width: int
    height: int
    dots: tuple[DiagramNode, ...]
    lines: tuple[DiagramEdge, ...]
    left_out: int = 0


class _DiagramSegment(Struct):
    nodes: list[PathNode]
    below: list["_DiagramSegment"]
    column: int
    row: float = 0.0


def draw_diagram(root: PathNode) -> Diagram:
    """Lay a tree out: time to the right, ways one below the other."""
    top, left_out = _join_stretches(root)
    every = list(_iter_stretches(top))
    rows = _assign_rows(top)
    most = max(len(root.places), 1)
    dots = tuple(_draw_dot(each, most) for each in every)
    lines = tuple(_draw_edge(each, child, most) for each in every for child in each.below)
    width = (max(each.column for each in every) + 1) * COLUMN + MARGIN
    return Diagram(width, max(rows, 1) * ROW + MARGIN, dots, lines, left_out)


def _join_stretches(root: PathNode) -> tuple[_DiagramSegment, int]:
    """Join what follows without a choice into one stretch; a tree too large to look at is cut."""
    top = _DiagramSegment([root], [], 0)
    waiting, count, left_out = [top], 1, 0
    while waiting:
        each = waiting.pop(0)
        while len(each.nodes[-1].below) == 1 and not each.nodes[-1].ends and each.nodes[-1].depth:
            each.nodes.append(each.nodes[-1].below[0])
        for child in sorted(each.nodes[-1].below, key=lambda node: -len(node.places)):
            if count >= NODES_MAX:
                left_out += 1
                continue
            below = _DiagramSegment([child], [], each.column + 1)
            each.below.append(below)
            waiting.append(below)
            count += 1
    return top, left_out


def _assign_rows(top: _DiagramSegment) -> int:
    """Give each end a row, and whatever leads there the middle of its rows; return how many there are."""
    rows = 0
    for each in reversed(list(_iter_stretches(top))):
        if not each.below:
            each.row = rows
            rows += 1
        else:
            each.row = sum(child.row for child in each.below) / len(each.below)
    return rows


def _iter_stretches(top: _DiagramSegment) -> Iterator[_DiagramSegment]:
    waiting = [top]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += each.below


def _coordinates_of(each: _DiagramSegment) -> tuple[float, float]:
    return MARGIN + each.column * COLUMN, MARGIN + each.row * ROW + ROW / 3


def _draw_dot(each: _DiagramSegment, most: int) -> DiagramNode:
    x, y = _coordinates_of(each)
    first, last = each.nodes[0], each.nodes[-1]
    steps = [node for node in each.nodes if node.depth]
    title = "\n".join(f"{node.depth}: {one_line(node.action.label, 160)}" for node in steps[:20])
    label = one_line(first.action.label, LABEL_CHARS)
    ways = len(first.places)
    return DiagramNode(x, y, 3 + 5 * ways / most, first.depth, last.depth, label, title, ways, tuple(last.ends))


def _draw_edge(one: _DiagramSegment, other: _DiagramSegment, most: int) -> DiagramEdge:
    (x, y), (to_x, to_y) = _coordinates_of(one), _coordinates_of(other)
    bend = to_x - COLUMN * 0.12
    path = f"M{x:.1f} {y:.1f} H{bend - 14:.1f} C{bend:.1f} {y:.1f} {bend - 8:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    return DiagramEdge(path, 1 + 4 * len(other.nodes[0].places) / most)
