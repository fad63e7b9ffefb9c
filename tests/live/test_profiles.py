from flightlog.live.billing import profile_urgency, rank_profiles, switch_advice
from flightlog.live.profiles import (
    ProfileHints,
    ProfileMatch,
    match_profile,
)
from flightlog.live.state import AuthProfile, Billing, VendorLimits, VendorWindow
from flightlog.sources.hook_log import StatusLaunch

WORK = AuthProfile("work", aliases=["claude2"], billing_fingerprint="oauth-1")
SHOP = AuthProfile("shop", path_patterns=["/srv/shop/**"], config_dirs=["/home/ada/.claude-shop/"])


def match_launch(*profiles, project="", current="", **launch):
    return match_profile(ProfileHints(StatusLaunch(**launch), project), profiles, current)


def test_known_fingerprint_overrides_every_other_claim():
    assert match_launch(
        WORK, SHOP, account="oauth-1", profile="shop", config_dir="/home/ada/.claude-shop"
    ) == ProfileMatch("work", "fingerprint")


def test_variable_alias_directory_and_path_claim_in_this_order():
    assert match_launch(WORK, SHOP, profile="shop", alias="claude2") == ProfileMatch("shop", "env")
    assert match_launch(
        WORK, SHOP, alias="claude2", config_dir="/home/ada/.claude-shop"
    ) == ProfileMatch("work", "alias")
    assert match_launch(
        WORK, SHOP, config_dir="/home/ada/.claude-shop", project="/elsewhere"
    ) == ProfileMatch("shop", "config")
    assert match_launch(WORK, SHOP, project="/srv/shop/api") == ProfileMatch("shop", "path")
    assert match_launch(WORK, SHOP, project="/srv/shopping") == ProfileMatch("default", "default")


def test_a_tilde_in_a_directory_or_pattern_is_the_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    mine = AuthProfile("mine", path_patterns=["~/shop/**"], config_dirs=["~/.claude-mine/"])

    assert match_launch(mine, config_dir="/home/ada/.claude-mine").profile == "mine"
    assert match_launch(mine, project="/home/ada/shop/api").profile == "mine"


def test_new_fingerprint_goes_to_the_claiming_profile_if_it_has_none():
    assert match_launch(WORK, SHOP, account="oauth-2", project="/srv/shop") == ProfileMatch(
        "shop", "path", "oauth-2"
    )
    assert match_launch(WORK, SHOP, account="oauth-2beef", alias="claude2") == ProfileMatch(
        "account-2bee", "fingerprint", "oauth-2beef"
    )
    assert match_launch(account="oauth-2") == ProfileMatch("default", "fingerprint", "oauth-2")
    assert match_launch(WORK, account="key-9f8e7d") == ProfileMatch(
        "account-9f8e", "fingerprint", "key-9f8e7d"
    )


def test_accounts_whose_fingerprints_begin_alike_get_ids_of_their_own():
    taken = AuthProfile("account-abcd", billing_fingerprint="key-abcd1111")

    ids = [
        match_launch(WORK, taken, account=account).profile
        for account in ("key-abcd2222", "oauth-abcd1111", "key-abcd1111")
    ]

    assert ids == ["account-abcd2", "account-abcd1", "account-abcd"]


def test_the_profile_with_most_room_comes_first():
    def make_profile(name, week, five, burn):
        return AuthProfile(
            name,
            billing=Billing(
                burn_rate_per_hour=burn, limits=VendorLimits(VendorWindow(five), VendorWindow(week))
            ),
        )

    busy, free = make_profile("busy", 90.0, 90.0, 40.0), make_profile("free", 10.0, 0.0, 0.0)

    assert [profile.profile_id for profile, _ in rank_profiles([busy, free])] == ["free", "busy"]
    assert (profile_urgency(busy), profile_urgency(free)) == (90.0, 10.0)


def test_advice_follows_the_tightest_window():
    def make_profile(name, week, five):
        windows = VendorLimits(VendorWindow(five, 2000), VendorWindow(week, 2000))
        return AuthProfile(name, name, Billing(last_fetched=1000, limits=windows))

    full, free = make_profile("full", 30.0, 100.0), make_profile("free", 0.0, 0.0)

    assert profile_urgency(full) == 100
    assert switch_advice([full, free]).startswith("full is nearly used up: go to free now")
    full.billing.last_fetched = 3000  # both windows are over
    assert switch_advice([full, free]) == ""
