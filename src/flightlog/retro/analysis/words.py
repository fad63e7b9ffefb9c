"""Words that tell one question from another: lower case, without fillers, crudely stemmed."""

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?", re.UNICODE)
_TAGS = re.compile(r"<[a-z]+:[\w.-]+:[0-9a-f]{6}>")
_FILLERS = frozenset(
    """a about above after again all also am an and another any are as at back be because been before being below
    between both but by can cannot cant could couldnt did didnt do does doesnt doing dont down during each else ever
    every few for from further get gets getting give given go goes going got had has have having he hello help her here
    hers hey hi him his how i id if ill im in into is isnt it its itself ive just know let lets like ll make makes many
    may maybe me might more most much must my need needs new no nor not now of off ok okay on once one only or other our
    out over own please possible quick quickly really remind right same say see shall she should show so some something
    still such sure take tell than thank thanks that thats the their them then there these they thing things think this
    those through to too trying try two under until up us use used using very want wants was wasnt way ways we well were
    what whats when where which while who whom whose why will with within without wont work working would wouldnt yes
    yet you your yours yesterday today tomorrow earlier forgot forget question asked asking ask explain wondering
    question quick""".split()  # noqa: SIM905 - a word list reads better than 200 quoted words
)
_ENDINGS = ("ingly", "edly", "ations", "ation", "ings", "ing", "ies", "ied", "ness", "ment", "ers", "er", "ed", "es",
            "ly", "s")  # fmt: skip


def content_words(text: str) -> list[str]:
    """Return the telling words of `text` in order."""
    return [telling for word in _WORD.findall(_TAGS.sub(" ", text.lower())) if (telling := _distinctive_stem(word))]


def words_by_stem(text: str) -> dict[str, str]:
    """Return the telling words of `text` by their stem, as they were written."""
    found = (word.replace("\u2019", "").replace("'", "") for word in _WORD.findall(text.lower()))
    return {stem_word(word): word for word in found}


@lru_cache(maxsize=100_000)
def _distinctive_stem(word: str) -> str:
    """Return the stem of a word, or nothing when it tells nothing; most words are met again and again."""
    plain = word.replace("\u2019", "").replace("'", "")
    return "" if plain in _FILLERS or (len(plain) == 1 and plain.isascii()) else stem_word(plain)


def stem_word(word: str) -> str:
    """Return `word` without its commonest endings; only ever compared with others done alike."""
    if not word.isascii() or len(word) < 5:
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] else root.removesuffix("e")
    return word.removesuffix("e")
