from flightlog.lab.statistics.divergence import (
    ActionPath,
    build_path_tree,
    iter_forks,
    list_segments,
)
from flightlog.lab.statistics.groups import Action


def way(run, steps, begins=None, session="session_01"):
    return ActionPath(run, session, tuple(Action(step, step, step) for step in steps), begins)


def shape(node):
    return {child.action.key: (len(child.addresses), shape(child)) for child in node.children}


def test_paths_share_equal_actions_and_a_branch_starts_at_its_turn():
    root = build_path_tree([
        way("replay_replay", "z", ("replay", "session_01", 1)),
        way("replay", "xy", ("run", "session_01", 2)),
        way("run", "abcd"),
    ])  # fmt: skip

    assert shape(root) == {
        "a": (3, {"b": (3, {"c": (1, {"d": (1, {})}), "x": (2, {"y": (1, {}), "z": (1, {})})})})
    }
    assert [fork.action.key for fork in iter_forks(root)] == ["b", "x"]


def test_path_that_ends_early_diverges_from_a_longer_one():
    root = build_path_tree([way("a", "xy"), way("b", "xyz"), way("c", "")])

    assert [(fork.action.key, fork.ended_addresses) for fork in iter_forks(root)] == [
        ("", ["c/session_01"]),
        ("y", ["a/session_01"]),
    ]


def test_a_branch_without_a_source_is_shown_alone():
    assert shape(build_path_tree([way("b", "x", ("gone", "session_01", 3))])) == {"x": (1, {})}
    assert shape(build_path_tree([way("b", "x", ("b", "session_01", 3))])) == {"x": (1, {})}


def test_outline_names_where_paths_diverge_and_end():
    root = build_path_tree([way("a", "xyz"), way("b", "xyq")])

    segments = [
        (segment.depth, segment.step_range, segment.first.action.key, segment.last.ended_addresses)
        for segment in list_segments(root)
    ]
    assert segments == [
        (0, "steps 1 to 2", "x", []),
        (1, "step 3", "z", ["a/session_01"]),
        (1, "step 3", "q", ["b/session_01"]),
    ]
