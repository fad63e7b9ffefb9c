"""Tables of text, one line per row, at any width.

If a table is too wide, columns are dropped by priority, then text is cut with an ellipsis; numbers
are never cut.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from flightlog.model.text import cell_width, fit_cells, one_line

CELL_CHARS_MAX = 200  # a longer text fits no terminal; cut before it is measured


class TableLayout(Struct, frozen=True):
    """How a table fits a terminal; columns are numbered from 0.

    `right` are columns of numbers, aligned right and never cut. `dropped` are the columns to leave
    out, in this order. `least` are the widths below which text is not cut while a column can go.
    """

    right: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    least: Mapping[int, int] = {}
    gap: str = "  "


def lay_out_table(rows: Sequence[Sequence[str]], layout: TableLayout, width: int) -> list[str]:
    """Return one line per row, the head first; columns without any value are left out."""
    clean = [[one_line(cell, CELL_CHARS_MAX) for cell in row] for row in rows]
    widths = {
        column: max(cell_width(row[column]) for row in clean)
        for column in range(len(rows[0]))
        if len(rows) == 1 or any(row[column] for row in clean[1:])
    }
    least = {
        column: full if column in layout.right else min(full, layout.least.get(column, full))
        for column, full in widths.items()
    }
    for column in layout.dropped:
        if _total_width(list(least.values()), layout) > width and column in widths:
            del widths[column], least[column]
    while _total_width(list(widths.values()), layout) > width:
        column = max(widths, key=lambda at: (widths[at] - least[at], at not in layout.right, at))
        if widths[column] <= 1:
            break
        widths[column] -= 1
    return [_join_cells(row, widths, layout) for row in clean]


def _total_width(widths: Sequence[int], layout: TableLayout) -> int:
    return sum(widths) + len(layout.gap) * (len(widths) - 1)


def _join_cells(row: Sequence[str], widths: Mapping[int, int], layout: TableLayout) -> str:
    aligned = ((column, width, column in layout.right) for column, width in widths.items())
    cells = [fit_cells(row[at], width, ">" if right else "<") for at, width, right in aligned]
    return layout.gap.join(cells).rstrip()
