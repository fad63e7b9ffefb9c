"""The same question again, and the same failure again."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from flightlog.retro.analysis.alike import group_similar
from flightlog.retro.analysis.words import content_words
from flightlog.retro.digest import ConversationDigest, DigestMark, DigestPrompt

QUESTION_OVERLAP = 0.6
QUESTION_WORDS_MIN = 3
FAILURES_MIN = 2


class Repetition(Struct, frozen=True):
    """What was said or met again: the places, and the conversations they are in."""

    text: str
    places: tuple[DigestPrompt | DigestMark, ...]
    conversations: tuple[str, ...]


def repeated_questions(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return questions asked in more than one conversation, commonest first."""
    asked = [(digest.id, prompt) for digest in digests for prompt in digest.prompts]
    found = []
    for group in group_similar(
        (content_words(prompt.text) for _, prompt in asked), QUESTION_OVERLAP, QUESTION_WORDS_MIN
    ):
        where = tuple(dict.fromkeys(asked[number][0] for number in group))
        if len(where) > 1:
            places = tuple(asked[number][1] for number in group)
            found.append(
                Repetition(min((place.text for place in places), key=lambda text: (len(text), text)), places, where)
            )
    return sorted(found, key=lambda each: (-len(each.places), each.text))


def repeated_failures(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return failures met in more than one session, commonest first; told by their signature."""
    met: dict[str, list[tuple[str, DigestMark]]] = defaultdict(list)
    for digest in digests:
        for mark in digest.failures:
            met[mark.key].append((digest.id, mark))
    found = []
    for key, seen in met.items():
        where = tuple(dict.fromkeys(name for name, _ in seen))
        if len(where) >= FAILURES_MIN:
            found.append(Repetition(key, tuple(mark for _, mark in seen), where))
    return sorted(found, key=lambda each: (-len(each.places), each.text))
