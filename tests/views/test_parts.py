import pytest

from flightlog.model.address import parse
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Lane, Session, Step, Turn
from flightlog.model.usage import Cost, CostSource, Usage
from flightlog.views.parts import part_at

STEP = Step(1, "m", None, "model", (), (), Usage(), Cost(None, CostSource.UNKNOWN))
TURN = Turn(1, None, (), None, (STEP,))
LANES = tuple(Lane(name, "", "", "", (TURN,)) for name in ("a12", "a1", "b7"))
WHOLE = Session("s1", "a", "", "", "", "", "", None, None, (TURN,), LANES, None)


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("s1", WHOLE),
        ("s1#1", TURN),
        ("s1#1.1", STEP),
        ("s1@b", LANES[2]),
        ("s1@b7#1", TURN),
        ("s1@b7#1.1", STEP),
        ("s1@a1", LANES[1]),
        ("s1@a12", LANES[0]),
    ],
)
def test_an_address_names_a_part(written, part):
    assert part_at(WHOLE, parse(written)) is part


@pytest.mark.parametrize("written", ["s1#2", "s1#1.2", "s1@c", "s1@b7#2", "s1@b7#1.9", "s1#2.1"])
def test_an_address_that_leads_nowhere_is_refused_with_the_next_command(written):
    with pytest.raises(NotFound) as refusal:
        part_at(WHOLE, parse(written))

    assert refusal.value.hint.startswith("flightlog session show")


def test_a_beginning_that_several_subagents_share_is_refused_with_their_names():
    with pytest.raises(Invalid) as refusal:
        part_at(WHOLE, parse("s1@a"))

    assert refusal.value.hint == "write more of it: a12, a1"
