"""The settle a hook starts: the same answer, with less loaded."""

from cli_runs import flightlog, within
from recordings import config_dir

CASE = "2.1.325/multi-turn-tools"


def test_the_hooks_settle_says_the_same_without_loading_what_it_does_not_need(tmp_path):
    config = config_dir(tmp_path, CASE)
    session = next(config.glob("projects/*/*.jsonl")).stem
    within(config, "settle", session)
    loud = {"PYTHONVERBOSE": "1"}

    quick, whole = flightlog(config, "settle", session), within(config, "settle", session)
    loaded = flightlog(config, "settle", session, "--json", **loud).err
    wrong = flightlog(config, "settle", "nobody")

    assert (quick.code, quick.out) == (whole.code, whole.out) == (0, "1 session kept, 0 new bytes\n")
    for name in ("click", "typing_extensions", "platformdirs", "tomllib", "flightlog.privacy.detect.rules"):
        assert f"import '{name}'" not in loaded, name
    assert wrong.code == 1
    assert "no session 'nobody'" in wrong.err
