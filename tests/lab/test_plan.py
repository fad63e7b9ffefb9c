from flightlog.lab.config import RunConfig, SessionConfig
from flightlog.lab.store import final_session, plan_sessions, ready_sessions


def plan_parents(mode, *sessions):
    config = RunConfig(
        "m",
        "w",
        tuple(SessionConfig(at, "p", **more) for at, more in enumerate(sessions, 1)),
        session_mode=mode,
    )
    return {
        session.session_dir: (session.parent_session, session.tree_session)
        for session in plan_sessions(config)
    }


def test_isolated_sessions_share_the_tree_but_no_conversation():
    assert plan_parents("isolated", {}, {}, {}) == {
        "session_01": ("", ""),
        "session_02": ("", "session_01"),
        "session_03": ("", "session_02"),
    }


def test_chained_sessions_go_on_from_the_one_before():
    assert plan_parents("chained", {}, {}) == {
        "session_01": ("", ""),
        "session_02": ("session_01", "session_01"),
    }


def test_forked_sessions_all_go_on_from_the_first():
    one = "session_01"

    assert plan_parents("forked", {}, {}, {}) == {
        one: ("", ""),
        "session_02": (one, one),
        "session_03": (one, one),
    }


def test_fork_from_overrides_the_mode():
    assert plan_parents("isolated", {}, {}, {"fork_from": 1})["session_03"] == (
        "session_01",
        "session_01",
    )
    assert plan_parents("forked", {}, {}, {"fork_from": 2})["session_03"] == (
        "session_02",
        "session_02",
    )


def test_what_follows_replicates_follows_the_first_of_them():
    assert plan_parents("chained", {"count": 2}, {}) == {
        "session_01_r01": ("", ""),
        "session_01_r02": ("", ""),
        "session_02": ("session_01_r01", "session_01_r01"),
    }


def test_ready_sessions_have_no_open_requirements_and_the_last_is_final():
    config = RunConfig(
        "m", "w", tuple(SessionConfig(at, "p", count=3) for at in (1, 2)), session_mode="forked"
    )
    planned = plan_sessions(config)
    names = [session.session_dir for session in planned]

    assert [session.session_dir for session in ready_sessions(planned, [], names)] == names[:3]
    assert [
        session.session_dir for session in ready_sessions(planned, ["session_01_r01"], names[2:])
    ] == names[2:]
    assert final_session(planned).session_dir == "session_02_r01"
