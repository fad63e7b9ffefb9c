from concurrent.futures import ThreadPoolExecutor

import pytest

from flightlog.model.errors import Unreadable
from flightlog.privacy.trust import (
    ADDRESS,
    FILE,
    GRANTS,
    TrustStore,
    environment_grants,
    risky_settings,
)

SETTINGS = {"dataset": {"track_words": True, "colour": "red"}, "loop": {"gates": ["make test"]}}


def test_only_settings_that_publish_or_run_need_consent():
    assert risky_settings(SETTINGS) == {"dataset.track_words": True, "loop.gates": ["make test"]}
    assert risky_settings({"web": {"port": 1}}) == {}


def test_no_setting_counts_before_the_person_consents(tmp_path):
    trust, allows = TrustStore(tmp_path / "home/trust.json"), risky_settings(SETTINGS)

    assert not trust.is_allowed(tmp_path, allows)
    assert trust.is_allowed(tmp_path, {})

    trust.grant(tmp_path, allows)
    assert trust.is_allowed(tmp_path, allows)
    assert (tmp_path / "home/trust.json").stat().st_mode & 0o777 == 0o600


def test_a_changed_setting_and_another_place_need_consent_again(tmp_path):
    trust, allows = TrustStore(tmp_path / "trust.json"), risky_settings(SETTINGS)
    (tmp_path / "copy").mkdir()
    trust.grant(tmp_path, allows)

    assert not trust.is_allowed(tmp_path, {**allows, "loop.gates": ["curl evil"]})
    assert not trust.is_allowed(tmp_path / "copy", allows)


def test_a_link_to_a_trusted_place_is_that_place(tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    trust = TrustStore(tmp_path / "trust.json")

    trust.grant(tmp_path / "link", {"push": True})

    assert trust.is_allowed(tmp_path / "repo", {"push": True})


def test_consent_can_be_taken_back(tmp_path):
    trust = TrustStore(tmp_path / "trust.json")
    trust.grant(tmp_path, {"push": True})

    assert trust.revoke(tmp_path)
    assert not trust.revoke(tmp_path)
    assert not trust.is_allowed(tmp_path, {"push": True})


def test_a_damaged_record_trusts_nothing(tmp_path):
    (tmp_path / "trust.json").write_text("{\n")

    with pytest.raises(Unreadable):
        TrustStore(tmp_path / "trust.json").is_allowed(tmp_path, {"push": True})


def test_consents_written_at_once_are_all_kept(tmp_path):
    trust = TrustStore(tmp_path / FILE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: trust.grant(f"run {number}", {}), range(40)))
        list(pool.map(trust.allow_rows, [tmp_path / str(number) for number in range(10)]))

    assert all(trust.consent_for(f"run {number}").digest for number in range(40))
    assert all(trust.consent_for(tmp_path / str(number)).allows_rows for number in range(10))


def test_rows_and_settings_of_a_repository_are_allowed_apart(tmp_path):
    trust = TrustStore(tmp_path / FILE)
    trust.grant(tmp_path, {"push": True})
    trust.allow_rows(tmp_path)

    assert trust.is_allowed(tmp_path, {"push": True})
    trust.grant(tmp_path, {"push": True})
    assert not trust.consent_for(tmp_path).allows_rows


def test_consent_for_half_a_character_is_recorded(tmp_path):
    trust = TrustStore(tmp_path / FILE)
    trust.grant("plan \ud83d", {ADDRESS: "http://\ud83d", "prompt 1": "\ud83d"})

    assert trust.consent_for("plan \ud83d").digest
    assert trust.consent_for("plan \ud83d").address == "http://\\ud83d"


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        ("", set()),
        ("rows", {"rows"}),
        ("push", {"rows", "push"}),
        ("words,push,", set(GRANTS)),
        ("words push", set(GRANTS)),
    ],
)
def test_variable_allows_what_it_names_and_rows(value, allowed):
    assert environment_grants({"FLIGHTLOG_TRUST": value}) == allowed
