"""A lock that is held by one, and lost for sure when another takes it over."""

import pytest

from flightlog.model.errors import Conflict
from flightlog.store.lease import Lease, holder


def test_a_lease_is_held_by_one_and_says_by_whom(tmp_path):
    lease = Lease(tmp_path / "l", "the first")

    with pytest.raises(Conflict, match="held by the first"):
        Lease(tmp_path / "l", "the second")

    assert holder(tmp_path / "l") == "the first"
    lease.release()
    assert holder(tmp_path / "l") == ""
    Lease(tmp_path / "l", "the second").release()


def test_who_was_robbed_learns_it_and_clears_nothing(tmp_path):
    old = Lease(tmp_path / "l", "the old one")
    new = Lease(tmp_path / "l", "the new one", steal=True)

    with pytest.raises(Conflict, match="the new one"):
        old.check()
    old.release()

    new.check()
    assert holder(tmp_path / "l") == "the new one"
    with pytest.raises(Conflict):
        Lease(tmp_path / "l", "a third")
    new.release()


def test_nobody_holds_what_is_not_there(tmp_path):
    assert holder(tmp_path / "none") == ""
