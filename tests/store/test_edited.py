from flightlog.store.shared_files import replace_if_unchanged


def test_a_file_is_rewritten_only_if_it_is_what_we_read(tmp_path):
    path, aside = tmp_path / "a", tmp_path / "own" / "before"

    assert replace_if_unchanged(path, None, b"one", aside)
    assert not replace_if_unchanged(path, None, b"lost", aside)
    assert replace_if_unchanged(path, b"one", b"two", aside)
    assert not replace_if_unchanged(path, b"one", b"lost", aside)

    assert (path.read_bytes(), aside.read_bytes()) == (b"two", b"one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "own"]
    assert path.stat().st_mode & 0o777 == 0o600
