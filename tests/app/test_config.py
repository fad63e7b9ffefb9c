import pytest

from flightlog.app.config import DEFAULT, load_settings
from flightlog.model.errors import Misconfigured


def values(where, environ=None):
    return load_settings(
        {"FLIGHTLOG_CONFIG": str(where / "user.toml"), **(environ or {})}, where / "project"
    )


@pytest.fixture
def place(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path


def test_the_last_value_wins_and_has_its_location(place):
    assert values(place)["show.timezone"].origin == DEFAULT
    (place / "user.toml").write_text('[show]\ntimezone = "UTC"\n[archive]\nseal_after_days = 7\n')
    (place / "project" / "flightlog.toml").write_text('[show]\ntimezone = "Asia/Kolkata"\n')

    settings = values(place, {"FLIGHTLOG_ARCHIVE_SEAL_AFTER_DAYS": "9"})

    assert (settings["show.timezone"].value, settings["show.timezone"].origin) == (
        "Asia/Kolkata",
        str(place / "project/flightlog.toml"),
    )
    assert settings["archive.seal_after_days"].value == 9


@pytest.mark.parametrize(
    "body",
    [
        "[",
        "x = 1",
        "[show]\ntimezon = 'UTC'",
        "[show]\ntimezone = 1",
        "[hook]\ninline = 1",
        "[archive]\nseal_after_days = true",
    ],
)
def test_a_setting_that_is_wrong_is_refused_with_what_to_do(place, body):
    (place / "user.toml").write_text(body)

    with pytest.raises(Misconfigured) as refusal:
        values(place)

    assert refusal.value.hint


def test_a_misspelled_setting_names_the_nearest(place):
    (place / "user.toml").write_text("[show]\ntimezon = 'UTC'")

    with pytest.raises(Misconfigured) as refusal:
        values(place)

    assert refusal.value.hint == "did you mean `show.timezone`?"


@pytest.mark.parametrize(
    ("name", "value"), [("HOOK_INLINE", "perhaps"), ("ARCHIVE_SEAL_AFTER_DAYS", "-1")]
)
def test_a_variable_that_is_wrong_is_refused(place, name, value):
    with pytest.raises(Misconfigured):
        values(place, {f"FLIGHTLOG_{name}": value})


def test_settings_are_not_looked_for_above_the_repository(place):
    (place / "flightlog.toml").write_text('[show]\ntimezone = "UTC"\n')
    (place / "project" / ".git").mkdir()

    assert values(place)["show.timezone"].origin == DEFAULT
