from flightlog.live.profiles import Found, Sight, advice, recognise, urgency
from flightlog.live.state import AuthProfile, Billing, Limits, Window
from flightlog.sources.hook_log import StatusLaunch

WORK = AuthProfile("work", aliases=["claude2"], billing_fingerprint="oauth-1")
SHOP = AuthProfile("shop", path_patterns=["/srv/shop/**"], config_dirs=["/home/ada/.claude-shop/"])


def found(*profiles, project="", current="", **launch):
    return recognise(Sight(StatusLaunch(**launch), project), profiles, current)


def test_a_known_print_wins_over_everything_said():
    assert found(WORK, SHOP, account="oauth-1", profile="shop", config_dir="/home/ada/.claude-shop") == Found(
        "work", "fingerprint"
    )


def test_variable_alias_directory_and_path_claim_in_this_order():
    assert found(WORK, SHOP, profile="shop", alias="claude2") == Found("shop", "env")
    assert found(WORK, SHOP, alias="claude2", config_dir="/home/ada/.claude-shop") == Found("work", "alias")
    assert found(WORK, SHOP, config_dir="/home/ada/.claude-shop", project="/elsewhere") == Found("shop", "config")
    assert found(WORK, SHOP, project="/srv/shop/api") == Found("shop", "path")
    assert found(WORK, SHOP, project="/srv/shopping") == Found("default", "default")


def test_a_new_print_belongs_to_who_claims_the_session_unless_they_have_another():
    assert found(WORK, SHOP, account="oauth-2", project="/srv/shop") == Found("shop", "path", "oauth-2")
    assert found(WORK, SHOP, account="oauth-2beef", alias="claude2") == Found(
        "account-2bee", "fingerprint", "oauth-2beef"
    )
    assert found(account="oauth-2") == Found("default", "fingerprint", "oauth-2")
    assert found(WORK, account="key-9f8e7d") == Found("account-9f8e", "fingerprint", "key-9f8e7d")


def test_the_profile_with_most_room_comes_first():
    def used(name, week, five, burn):
        return AuthProfile(name, billing=Billing(burn_rate_per_hour=burn, limits=Limits(Window(five), Window(week))))

    busy, free = used("busy", 90.0, 90.0, 40.0), used("free", 10.0, 0.0, 0.0)

    assert [each.profile_id for each, _ in advice([busy, free])] == ["free", "busy"]
    assert (urgency(busy), urgency(free)) == (0.6 * 90 + 0.3 * 90 + 0.1 * 100, 6.0)
