import pytest

from flightlog.model.errors import Conflict, Invalid, Unreadable
from flightlog.privacy import redactor


def test_the_key_is_made_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "home" / "privacy.key"

    first = redactor.load_key(path)

    assert redactor.load_key(path) == first
    assert len(first) == 32
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_moves_to_a_second_machine(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"

    line = redactor.encode_key(redactor.load_key(here))
    redactor.import_key(there, line)

    assert redactor.load_key(there) == redactor.load_key(here)


def test_another_key_is_not_replaced_unless_asked(tmp_path):
    line = redactor.encode_key(redactor.load_key(tmp_path / "one"))
    other = redactor.load_key(tmp_path / "two")

    with pytest.raises(Conflict):
        redactor.import_key(tmp_path / "two", line)

    assert redactor.load_key(tmp_path / "two") == other
    assert redactor.import_key(tmp_path / "two", line, replace=True) == redactor.load_key(
        tmp_path / "one"
    )


def test_a_line_cut_short_is_refused(tmp_path):
    with pytest.raises(Invalid):
        redactor.import_key(tmp_path / "key", redactor.encode_key(bytes(32))[:-3])


def test_a_damaged_key_is_reported(tmp_path):
    (tmp_path / "key").write_text("zz")

    with pytest.raises(Unreadable):
        redactor.load_key(tmp_path / "key")
