import pytest

from flightlog.views.transcript import format_arguments


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, ""),
        ({"command": "ls", "description": "List"}, "ls"),
        ({"command": "ls", "timeout": 3}, 'ls {"timeout": 3}'),
        ({"command": ["ls"]}, '{"command": ["ls"]}'),
        ({"file_path": "a", "content": "x\ny\n"}, "a\n+ x\n+ y"),
        (
            {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True},
            "a\n- x\n+ y",
        ),
        ({"odd": "é"}, '{"odd": "é"}'),
    ],
)
def test_main_argument_comes_first_and_an_edit_reads_like_a_diff(given, text):
    assert format_arguments(given) == text
