import pytest

from flightlog.model.errors import Conflict
from flightlog.store.edited import content, rewrite, waiting_lock


def test_a_file_is_rewritten_only_if_it_is_what_we_read(tmp_path):
    path, aside = tmp_path / "a", tmp_path / "own" / "before"

    assert rewrite(path, None, b"one", aside)
    assert not rewrite(path, None, b"lost", aside)
    assert rewrite(path, b"one", b"two", aside)
    assert not rewrite(path, b"one", b"lost", aside)

    assert (content(path), content(aside)) == (b"two", b"one")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "own"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_lock_waits_and_then_says_so(tmp_path):
    with (
        waiting_lock(tmp_path / "lock", 1),
        pytest.raises(Conflict, match="held by another"),
        waiting_lock(tmp_path / "lock", 0.05),
    ):
        pass
    with waiting_lock(tmp_path / "lock", 0.05):
        assert content(tmp_path / "nothing") is None
