"""Pictures in plain text: a share with its interval as a bar, and where ways part as an indented list. Pure."""

from collections.abc import Iterator

from flightlog.lab.statistics.divergence import PathNode, list_segments
from flightlog.lab.statistics.shape import ShareEstimate
from flightlog.model.text import one_line

CELLS = 24
_LINES_MAX = 60


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
