import json

from tools.bench.corpus import generate, grow, manifest_of


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    one, two = generate(tmp_path / "one", 300_000), generate(tmp_path / "two", 300_000)

    assert one == two
    assert _files(tmp_path / "one") == _files(tmp_path / "two")
    assert _files(tmp_path / "one") != _files_of(tmp_path / "three", seed=2)


def test_growth_appends_and_keeps_the_manifest_true(tmp_path):
    before = generate(tmp_path, 500_000)
    files = _files(tmp_path)

    after = grow(tmp_path, 100_000, seed=9)

    assert after["responses"] > before["responses"]
    assert all(_files(tmp_path)[name].startswith(body) for name, body in files.items())
    assert json.loads((tmp_path / "manifest.json").read_text()) == after


def test_every_line_but_the_torn_is_a_record(tmp_path):
    generate(tmp_path, 1_000_000)
    torn = 0
    for body in _files(tmp_path).values():
        *whole, rest = body.split(b"\n")
        torn += bool(rest)
        assert all(json.loads(line)["type"] for line in whole)
    assert torn <= 3


def test_a_manifest_of_nothing_is_empty():
    assert manifest_of([])["responses"] == 0


def _files(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.jsonl")}


def _files_of(root, seed):
    generate(root, 300_000, seed)
    return _files(root)
