from flightlog.lab.statistics.analysis import ShareEstimate
from flightlog.lab.statistics.divergence import (
    ActionPath,
    build_path_tree,
    draw_share_bar,
    iter_path_lines,
)
from flightlog.lab.statistics.groups import Action
from flightlog.lab.statistics.inference import ConfidenceInterval


def test_a_bar_is_as_long_as_the_share_and_shaded_where_it_may_be():
    def draw_bar(share, low, high):
        return draw_share_bar(
            ShareEstimate("a", 1, 2, share, ConfidenceInterval(low, high, "any"), ()), 10
        )

    assert draw_bar(0.5, 0.2, 0.8) == "██▓▓▓░░░··"
    assert draw_bar(0.0, 0.0, 0.3) == "░░░·······"
    assert draw_bar(1.0, 0.7, 1.0) == "███████▓▓▓"


def test_path_lines_name_the_diverging_step_and_stay_on_one_line():
    def way(run, *steps):
        return ActionPath(run, "s", tuple(Action(step, step, step) for step in steps))

    lines = list(
        iter_path_lines(
            build_path_tree(
                [
                    way("a", "ls", "cat\n# x"),
                    way("b", "ls", "rm", "pwd"),
                    way("c", "ls", "rm", "pwd"),
                ]
            )
        )
    )

    assert lines == [
        "step 1  3 of 3  ls",
        "  step 2  1 of 3, 1 end  cat # x",
        "  steps 2 to 3  2 of 3, 2 end  rm",
    ]
    assert (
        list(iter_path_lines(build_path_tree(way(f"r{n:03d}", str(n)) for n in range(90))))[-1]
        == "…"
    )
