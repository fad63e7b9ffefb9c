from flightlog.model.output_files import Clean, OutputFile, Tier


def test_tiers_go_from_narrow_to_wide():
    assert [tier.value for tier in Tier] == ["private", "shareable", "tracked"]


def test_a_page_holds_its_text_or_clean_text():
    assert OutputFile("a.md", Tier.PRIVATE, "x").body == "x"
    assert OutputFile("a.md", Tier.TRACKED, Clean("x")).body == Clean("x")
