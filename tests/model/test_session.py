from flightlog.model.entries import Image, PromptKind, Text
from flightlog.model.session import Note, NoteKind, Session, Step, ToolCall, Turn
from flightlog.model.usage import CostSource

STEP = Step(1, "m", None, "model", (), (), cost_usd=None, cost_source=CostSource.UNKNOWN)


def test_a_turn_knows_its_steps_among_its_notes():
    turn = Turn(1, PromptKind.HUMAN, (Text("do it"),), None, (Note(NoteKind.HOOK, "x"), STEP))

    assert turn.steps == (STEP,)
    assert turn.text == "do it"
    assert Session("s", "a", "", "", "", "", "", None, None, (turn, turn), (), None).steps == (
        STEP,
        STEP,
    )


def test_a_call_without_a_result_has_no_output():
    picture = Image("image/png", 3)

    assert ToolCall("t", "Bash", {}).output == ""
    assert ToolCall("t", "Bash", {}).images == ()
    assert ToolCall("t", "Bash", {}, result=(Text("a"), picture, Text("b"))).output == "a\nb"
    assert ToolCall("t", "Bash", {}, result=(Text("a"), picture)).images == (picture,)
