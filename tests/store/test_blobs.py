import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.errors import Invalid, NotFound, Unreadable
from flightlog.store.blobs import BLOB_BYTES_MAX, load_blob, store_blob
from flightlog.store.compression import zstd

CUT = zstd.compress(b"a" * 1000)[:-3]


def files(root):
    return sorted(path for path in root.rglob("*") if path.is_file())


@given(
    st.binary(max_size=200) | st.binary(min_size=1, max_size=3).map(lambda few: few * 500),
    st.booleans(),
)
def test_what_is_put_comes_back_under_its_hash(tmp_path_factory, data, durable):
    root = tmp_path_factory.mktemp("blobs")

    digest = store_blob(root, data, durable=durable)

    assert digest == hashlib.sha256(data).hexdigest()
    assert load_blob(root, digest) == data


def test_putting_twice_writes_once(tmp_path):
    digest = store_blob(tmp_path, b"same" * 1000)
    before = [(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files(tmp_path)]

    assert store_blob(tmp_path, b"same" * 1000) == digest
    assert [
        (path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files(tmp_path)
    ] == before


def test_content_is_compressed_where_it_pays(tmp_path):
    store_blob(tmp_path, b"a" * 100_000)
    store_blob(tmp_path, b"short")
    sizes = {path.suffix: path.stat().st_size for path in files(tmp_path)}

    assert sizes[""] == 5
    assert sizes[".zst"] < 1000


@pytest.mark.parametrize(
    "harm", [b"", b"not zstd", b"\0" * 50, zstd.compress(b"other content"), CUT]
)
def test_a_damaged_blob_is_not_returned_and_is_repaired_when_put_again(tmp_path, harm):
    digest = store_blob(tmp_path, b"a" * 1000)
    (path,) = files(tmp_path)
    path.write_bytes(harm)

    with pytest.raises(Unreadable):
        load_blob(tmp_path, digest)
    store_blob(tmp_path, b"a" * 1000)

    assert load_blob(tmp_path, digest) == b"a" * 1000
    assert path.with_name(path.name + ".damaged-1").read_bytes() == harm


def test_a_blob_that_claims_to_be_huge_is_not_unpacked(tmp_path):
    digest = store_blob(tmp_path, b"a" * 1000)
    (path,) = files(tmp_path)
    packer = zstd.ZstdCompressor()
    packer.set_pledged_input_size(BLOB_BYTES_MAX + 1)
    path.write_bytes(packer.compress(b"a" * 300_000, packer.FLUSH_BLOCK))

    with pytest.raises(Unreadable):
        load_blob(tmp_path, digest)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_a_name_that_is_no_digest_is_refused(tmp_path, digest):
    with pytest.raises(Invalid):
        load_blob(tmp_path, digest)


def test_a_blob_that_was_never_put_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        load_blob(tmp_path, "0" * 64)
