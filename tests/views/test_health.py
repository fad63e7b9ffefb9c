from msgspec.structs import replace

from flightlog.views.overview import HealthLevel, judge_health
from flightlog.views.session.summary import outline_session
from support.recordings import archive


def make_summary(tmp_path, **more):
    source = archive(tmp_path, "2.1.325/single-turn")
    return replace(outline_session(source.read_session(source.latest_session())).summary, **more)


def test_a_session_without_faults_is_good(tmp_path):
    assert judge_health(make_summary(tmp_path)).level is HealthLevel.GOOD


def test_a_session_without_steps_is_quiet_not_healthy(tmp_path):
    assert judge_health(make_summary(tmp_path, steps=0)).level is HealthLevel.QUIET


def test_health_lists_each_reason(tmp_path):
    health = judge_health(
        make_summary(tmp_path, failed_tool_calls=1, tool_calls=40, compactions=2, unknown_records=1)
    )

    assert health.level is HealthLevel.LOOK
    assert health.reasons == (
        "1 of 40 tool calls failed",
        "context compacted 2 times",
        "1 record of unknown type",
    )


def test_many_failures_and_damage_are_bad(tmp_path):
    assert (
        judge_health(make_summary(tmp_path / "a", failed_tool_calls=5, tool_calls=10)).level
        is HealthLevel.BAD
    )
    assert judge_health(make_summary(tmp_path / "b", damage_count=1)).reasons == (
        "1 damaged span in the recording",
    )


def test_an_unknown_price_is_worth_a_look(tmp_path):
    assert judge_health(make_summary(tmp_path, cost_usd=None)).level is HealthLevel.LOOK
