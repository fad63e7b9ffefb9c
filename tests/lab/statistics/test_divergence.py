from flightlog.lab.statistics.divergence import (
    ActionPath,
    build_path_tree,
    iter_forks,
    list_segments,
)
from flightlog.lab.statistics.groups import Action


def way(run, steps, begins=None, session="session_01"):
    return ActionPath(run, session, tuple(Action(each, each, each) for each in steps), begins)


def shape(node):
    return {each.action.key: (len(each.addresses), shape(each)) for each in node.children}


def test_paths_share_equal_actions_and_a_branch_starts_at_its_turn():
    root = build_path_tree([
        way("replay_replay", "z", ("replay", "session_01", 1)),
        way("replay", "xy", ("run", "session_01", 2)),
        way("run", "abcd"),
    ])  # fmt: skip

    assert shape(root) == {
        "a": (3, {"b": (3, {"c": (1, {"d": (1, {})}), "x": (2, {"y": (1, {}), "z": (1, {})})})})
    }
    assert [each.action.key for each in iter_forks(root)] == ["b", "x"]


def test_one_that_ends_while_another_goes_on_parts_from_it():
    root = build_path_tree([way("a", "xy"), way("b", "xyz"), way("c", "")])

    assert [(each.action.key, each.ended_addresses) for each in iter_forks(root)] == [
        ("", ["c/session_01"]),
        ("y", ["a/session_01"]),
    ]


def test_a_branch_without_a_source_is_shown_alone():
    assert shape(build_path_tree([way("b", "x", ("gone", "session_01", 3))])) == {"x": (1, {})}
    assert shape(build_path_tree([way("b", "x", ("b", "session_01", 3))])) == {"x": (1, {})}


def test_the_outline_says_where_ways_part_and_end():
    root = build_path_tree([way("a", "xyz"), way("b", "xyq")])

    told = [
        (each.depth, each.step_range, each.first.action.key, each.last.ended_addresses)
        for each in list_segments(root)
    ]
    assert told == [
        (0, "steps 1 to 2", "x", []),
        (1, "step 3", "z", ["a/session_01"]),
        (1, "step 3", "q", ["b/session_01"]),
    ]
