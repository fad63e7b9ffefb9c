import pytest

from flightlog.model.errors import Unreadable
from flightlog.privacy.trust import Trust, risky

SETTINGS = {"dataset": {"track_words": True, "colour": "red"}, "loop": {"gates": ["make test"]}}


def test_only_settings_that_publish_or_run_need_consent():
    assert risky(SETTINGS) == {"dataset.track_words": True, "loop.gates": ["make test"]}
    assert risky({"web": {"port": 1}}) == {}


def test_nothing_counts_before_the_person_says_so(tmp_path):
    trust, allows = Trust(tmp_path / "home/trust.json"), risky(SETTINGS)

    assert not trust.allows(tmp_path, allows)
    assert trust.allows(tmp_path, {})

    trust.grant(tmp_path, allows)
    assert trust.allows(tmp_path, allows)
    assert (tmp_path / "home/trust.json").stat().st_mode & 0o777 == 0o600


def test_a_changed_setting_and_another_place_need_consent_again(tmp_path):
    trust, allows = Trust(tmp_path / "trust.json"), risky(SETTINGS)
    (tmp_path / "copy").mkdir()
    trust.grant(tmp_path, allows)

    assert not trust.allows(tmp_path, {**allows, "loop.gates": ["curl evil"]})
    assert not trust.allows(tmp_path / "copy", allows)


def test_a_link_to_a_trusted_place_is_that_place(tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    trust = Trust(tmp_path / "trust.json")

    trust.grant(tmp_path / "link", {"push": True})

    assert trust.allows(tmp_path / "repo", {"push": True})


def test_consent_can_be_taken_back(tmp_path):
    trust = Trust(tmp_path / "trust.json")
    trust.grant(tmp_path, {"push": True})

    assert trust.revoke(tmp_path)
    assert not trust.revoke(tmp_path)
    assert not trust.allows(tmp_path, {"push": True})


def test_a_damaged_record_trusts_nothing(tmp_path):
    (tmp_path / "trust.json").write_text("{\n")

    with pytest.raises(Unreadable):
        Trust(tmp_path / "trust.json").allows(tmp_path, {"push": True})
