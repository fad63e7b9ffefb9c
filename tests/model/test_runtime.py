"""What the composition root hands down."""

from datetime import UTC

from flightlog.model.runtime import Clock, ConfigValue, Runtime


def make_runtime(**given):
    values = {
        "environ": {},
        "home": "/h",
        "data_dir": "/d",
        "cwd": "/c",
        "zone": UTC,
        "new_id": str,
        "notify": print,
    }
    clock = Clock(lambda: 1_794_744_000_123, lambda: 0.0, lambda _: None)
    return Runtime(**{**values, "clock": clock, "read_config": lambda _: {}, **given})


def test_timestamps_are_utc_with_milliseconds():
    clock = make_runtime().clock

    assert clock.timestamp() == "2026-11-15T12:00:00.123Z"
    assert clock.now_s() == 1_794_744_000.123


def test_config_is_that_of_the_current_directory():
    value = ConfigValue("a.b", 1, "default")
    runtime = make_runtime(read_config=lambda folder: {folder: value})

    assert runtime.config == {"/c": value}


def test_programs_are_looked_for_on_the_path_given():
    assert make_runtime(environ={"PATH": "/x"}).program_path == "/x"
    assert make_runtime().program_path == "/bin:/usr/bin"
