"""Copies of directories that change while they are copied."""

import threading

import pytest

from flightlog.model.errors import Unavailable
from flightlog.store.directories import copy_tree


def test_files_removed_while_a_directory_is_copied_are_left_out(tmp_path):
    source = tmp_path / "source"
    for folder in range(40):
        (source / f"{folder:02}").mkdir(parents=True)
        for number in range(60):
            (source / f"{folder:02}" / str(number)).write_text("x")
    stayed = source / "stays"
    stayed.write_text("whole")

    def remove_files():
        for path in sorted(source.glob("[23]*/*"), reverse=True):
            path.unlink()

    remover = threading.Thread(target=remove_files)
    remover.start()
    copy_tree(source, tmp_path / "copy")
    remover.join()

    assert (tmp_path / "copy" / "stays").read_text() == "whole"
    assert len(list((tmp_path / "copy").glob("[01]*/*"))) == 20 * 60


def test_a_directory_that_does_not_exist_is_not_copied(tmp_path):
    with pytest.raises(Unavailable, match="cannot be copied"):
        copy_tree(tmp_path / "missing", tmp_path / "copy")
