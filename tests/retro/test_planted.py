"""What was planted is found, with seeds nobody has seen: precision and recall of each detector."""

from flightlog.retro.analysis import digests
from flightlog.retro.analysis.findings import collect_findings
from flightlog.retro.analysis.similarity import repeated_questions
from flightlog.retro.state import Preferences
from flightlog.sources.chat_exports import chatgpt
from retro.planted import chats as plant_chats
from retro.planted import encode_chats
from support.fresh import seeds

BAR = 0.9


def digests_of(conversations):
    made = [chatgpt.decode_chat(encode_chats(conversation)) for conversation in conversations]
    return [digests.digest_chat(chat, chat.id) for chat in made]


def test_questions_asked_again_are_found():
    """Over many seeds together: one holds eight such questions, too few for a share of nine tenths."""
    right = there = reported = 0
    for seed in seeds(12):
        conversations, truth = plant_chats(seed)
        groups = [
            set(finding.conversations) for finding in repeated_questions(digests_of(conversations))
        ]
        right += sum(group in truth.repeated for group in groups)
        there += len(truth.repeated)
        reported += len(groups)

    assert right >= BAR * there
    assert right >= BAR * reported


def test_the_same_input_gives_the_same_findings_in_any_order():
    digests = digests_of(plant_chats(7)[0])

    one = collect_findings(digests, Preferences())
    two = collect_findings(
        sorted(digests, key=lambda digest: digest.id, reverse=True), Preferences()
    )

    assert one == collect_findings(digests, Preferences())
    assert {pattern.id for pattern in one} == {pattern.id for pattern in two}
