import stat

import pytest

from flightlog.model.errors import Invalid
from flightlog.model.output_files import Clean, OutputFile, Tier
from flightlog.store.output_files import write_output_files

BOOK = [
    OutputFile("README.md", Tier.PRIVATE, "words"),
    OutputFile("logs/metrics.jsonl", Tier.TRACKED, Clean("{}\n")),
    OutputFile(".gitignore", Tier.TRACKED, Clean("README.md\n")),
]


def test_a_layout_is_written_where_it_says(tmp_path):
    changed = write_output_files(tmp_path, BOOK)

    assert [path.relative_to(tmp_path).as_posix() for path in changed] == [
        page.path for page in BOOK
    ]
    assert (tmp_path / "logs/metrics.jsonl").read_text() == "{}\n"
    assert stat.S_IMODE((tmp_path / "README.md").stat().st_mode) == 0o600


def test_publishing_again_writes_only_what_changed(tmp_path):
    write_output_files(tmp_path, BOOK)
    (tmp_path / "mine.txt").write_text("not yours")
    before = (tmp_path / ".gitignore").stat().st_ino

    assert write_output_files(tmp_path, BOOK) == []
    assert write_output_files(
        tmp_path, [OutputFile("README.md", Tier.PRIVATE, "other"), *BOOK[1:]]
    ) == [tmp_path / "README.md"]
    assert (tmp_path / ".gitignore").stat().st_ino == before
    assert (tmp_path / "mine.txt").read_text() == "not yours"


def test_a_tracked_page_takes_clean_text_only(tmp_path):
    with pytest.raises(TypeError, match="clean"):
        write_output_files(tmp_path, [OutputFile("a.md", Tier.TRACKED, "my secret plan")])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../a", "/tmp/a", "way/a", "a/../../b"])
def test_a_page_stays_inside_its_directory(tmp_path, path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "way").symlink_to(tmp_path)

    with pytest.raises(Invalid):
        write_output_files(root, [OutputFile(path, Tier.PRIVATE, "x")])

    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_a_link_in_place_of_a_page_is_replaced_and_not_written_through(tmp_path):
    (tmp_path / "b").write_text("same")
    (tmp_path / "a").symlink_to(tmp_path / "b")

    write_output_files(tmp_path, [OutputFile("a", Tier.PRIVATE, "same")])

    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "a").read_text() == "same"


def test_half_an_emoji_does_not_stop_a_page(tmp_path):
    write_output_files(tmp_path, [OutputFile("a", Tier.PRIVATE, "x\ud83d")], durable=False)

    assert (tmp_path / "a").read_text() == "x?"
