"""Reading and writing documents of every version."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flightlog.model.errors import Invalid
from flightlog.views.atif.document import VERSIONS, encode_trajectory, read_trajectory
from support.atif_documents import embed_subagent, replace_value, sound

OLD = {"name": "codex", "version": "1"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_document_of_any_version_is_read_and_written_again_equal(version):
    document = sound(version.removeprefix("ATIF-v"), agent=OLD)

    assert json.loads(encode_trajectory(read_trajectory(json.dumps(document).encode()))) == document


@pytest.mark.parametrize(
    "document",
    [
        embed_subagent(),
        sound(notes=None, extra=None, continued_trajectory_ref=None),
        replace_value(sound(), "steps.0.message", [{"type": "text", "text": "a", "source": None}]),
        replace_value(
            sound("1.8"),
            "steps.0.message",
            [
                {
                    "type": "audio",
                    "source": {"media_type": "audio/wav", "path": "a.wav", "duration_sec": 1.5},
                }
            ],
        ),
        replace_value(sound(), "steps.1.reasoning_effort", 0.5),
        replace_value(sound(), "steps.1.metrics.logprobs", [-0.5]),
    ],
)
def test_what_is_absent_stays_absent_and_what_is_null_stays_null(document):
    assert json.loads(encode_trajectory(read_trajectory(json.dumps(document).encode()))) == document


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not an ATIF trajectory"),
        (b"\xff", "not an ATIF trajectory"),
        (json.dumps(sound(mood=1)).encode(), "mood"),
        (json.dumps(replace_value(sound(), "steps.0.source", "tool")).encode(), "steps[0].source"),
        (json.dumps(sound("9.9")).encode(), "ATIF-v9.9"),
    ],
)
def test_invalid_document_is_refused_with_its_location(body, message):
    with pytest.raises(Invalid) as error:
        read_trajectory(body)

    assert message in error.value.message


@example("half of \ud83d")
@given(text=st.text(st.characters(exclude_categories=())))
def test_any_text_is_written_in_ascii_and_comes_back_whole(text):
    document = read_trajectory(
        json.dumps(replace_value(sound(), "steps.0.message", "plain")).encode()
    )
    document.steps[0] = type(document.steps[0])(1, "user", text)

    body = encode_trajectory(document)

    assert body.isascii()
    assert read_trajectory(body).steps[0].message == text.encode("utf-8", "replace").decode()
