from flightlog.lab.statistics.divergence import (
    OUTLINE_MAX,
    ActionPath,
    build_path_tree,
    list_segments,
)
from flightlog.lab.statistics.groups import Action
from flightlog.web.pages.lab import MARGIN, NODES_MAX, draw_diagram


def way(run, steps):
    return ActionPath(run, "session_01", tuple(Action(step, step, step) for step in steps))


def test_a_diagram_has_a_dot_for_each_segment_and_nothing_overlaps():
    root = build_path_tree([way("a", "xyzp"), way("b", "xyzq"), way("c", "xk"), way("d", "xyzp")])

    picture = draw_diagram(root)

    dots = {(dot.label, dot.first, dot.last): dot for dot in picture.dots}
    assert set(dots) == {
        ("", 0, 0),
        ("x", 1, 1),
        ("y", 2, 3),
        ("p", 4, 4),
        ("q", 4, 4),
        ("k", 2, 2),
    }
    assert len({(dot.x, dot.y) for dot in picture.dots}) == len(picture.dots)
    assert all(
        MARGIN <= dot.x < picture.width and 0 < dot.y < picture.height for dot in picture.dots
    )
    assert (dots["p", 4, 4].path_count, dots["p", 4, 4].ended_addresses) == (
        2,
        ("a/session_01", "d/session_01"),
    )
    assert dots["y", 2, 3].title == "2: y\n3: z"
    assert dots["x", 1, 1].radius > dots["k", 2, 2].radius
    assert len(picture.lines) == 5


def test_a_tree_too_large_to_look_at_is_cut_and_says_so():
    root = build_path_tree(
        [way(f"r{number:04d}", [f"step {number}"]) for number in range(NODES_MAX + 50)]
    )

    picture = draw_diagram(root)

    assert len(picture.dots) == NODES_MAX
    assert picture.omitted_count == 51
    assert len(list_segments(root)) == OUTLINE_MAX
