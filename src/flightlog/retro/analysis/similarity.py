"""MinHash groups, paraphrases, repeated questions and repeated failures.

Texts that share enough words almost surely share a band of their smallest hashes (three rows,
twenty bands); only those are compared, so the work grows with the number of texts. The hash seeds
are fixed: the same texts give the same groups. numpy is imported only for a comparison.

Paraphrases share few words: they are grouped by average linkage over the words that carry meaning.
"""

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from flightlog.retro.analysis.digests import ConversationDigest, DigestMark, DigestPrompt

BANDS, ROWS = 20, 3  # texts that share 60 % of their words share a band in 99 % of cases
BUCKET_MAX = 40  # neighbors compared per text in a bucket: bounds the pairs for boilerplate texts
# A word in more than 1 % of the texts (and more than 50) does not tell texts apart.
_COMMON_MIN, _COMMON_PART = 50, 0.01
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?", re.UNICODE)
_TAGS = re.compile(r"<[a-z]+:[\w.-]+:[0-9a-f]{6}>")  # redaction placeholders
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
    question quick""".split()
)
_ENDINGS = ("ingly", "edly", "ations", "ation", "ings", "ing", "ies", "ied", "ness", "ment", "ers", "er", "ed", "es",
            "ly", "s")  # fmt: skip
QUESTION_OVERLAP = 0.6  # share of common words from which two questions are the same
QUESTION_WORDS_MIN = 3  # distinctive words; shorter prompts are alike by chance
FAILURES_MIN = 2  # conversations a failure must occur in
# Words that say the same of an instruction; each line is one meaning. What a sentence is about
# counts, not what it demands: "short" and "long" are both about length.
_MEANINGS = """
    done finish finished finishing complete completed completing ready report claim
    test tests tested testing suite pytest jest spec specs unittest
    run rerun execute running verify check confirm pass passes passing green
    answer answers reply replies respond response responses
    short brief briefly concise concisely terse succinct long lengthy verbose length wordy
    comment comments docstring docstrings
    emoji emojis emoticon emoticons smiley smileys
    commit commits committing committed
    ask asking approval permission confirmation
    dependency dependencies package packages library libraries
    format formatter formatting lint linter linting
    type types typed typing annotation annotations
    example examples sample samples
    explain explains explanation explanations
    summary summarize summarise recap
"""
# Words of an instruction that say how strongly it is meant, and not what is meant.
_STRENGTH = frozenset(
    """always never every time must should ensure remember dont forget avoid prefer rather kindly important reminder
    note strictly absolutely really everything anything whenever future keep leave stop stick without instead unless
    until actual actually usual everywhere throughout add adding write writing install include put provide
    another""".split()
)
_FOR_ALL = re.compile(r"(?i)\b(?:always|never|from now on|every time|each time|whenever)\b")
INSTRUCTIONS_MIN = 3  # conversations in which an instruction is demanded; two may be chance
DEMANDED_SHARE = 0.3  # of the occurrences beside a task, and with a word such as "always"
USUAL_SHARE = 0.1  # of all conversations that hold one wording, which then needs no such word
STEM_CHARS = 6  # of a word in an instruction: "apologize" and "apologies" are one
PART_SHARE = 0.7  # of the prompts of an instruction that hold a more frequent one, too
MACHINE_CHARS = 300  # equal prompts of this length are a program's, or pasted
PARAPHRASES_MAX = 1500  # sentences compared with each other: the matrix grows with the square
_PARAPHRASE_CUT = 0.75  # average distance up to which two groups of sentences are one


def group_similar(
    texts: Iterable[Iterable[str]], threshold: float, least_words: int = 2
) -> list[list[int]]:
    """Return groups of two or more texts that share `threshold` of their words.

    Texts are given by index; groups are ordered by their first text.
    """
    import numpy as np  # noqa: PLC0415 - takes 0.1 s, and most commands compare nothing

    ids: dict[str, int] = {}
    word_ids = [
        array("i", sorted({ids.setdefault(word, len(ids)) for word in words})) for words in texts
    ]
    candidates = [index for index, words in enumerate(word_ids) if len(words) >= least_words]
    flat = np.fromiter((word for index in candidates for word in word_ids[index]), np.int32)
    counts = np.bincount(flat, minlength=len(ids) + 1)
    weights = np.log(1 + len(word_ids) / np.maximum(counts, 1))
    parent = list(range(len(word_ids)))
    starts = np.cumsum([0, *(len(word_ids[index]) for index in candidates)])
    for i, j in _candidate_pairs(flat, starts, weights, counts, threshold) if candidates else ():
        one, other = word_ids[candidates[i]], word_ids[candidates[j]]
        first, second = sorted(_find_root(parent, candidates[at]) for at in (i, j))
        if first != second and _are_similar(one, other, weights, threshold):
            parent[second] = first
    groups: dict[int, list[int]] = defaultdict(list)
    for index in range(len(word_ids)):
        groups[_find_root(parent, index)].append(index)
    return [
        group for _, group in sorted(groups.items(), key=lambda pair: pair[1][0]) if len(group) > 1
    ]


def word_overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the number of shared words divided by the number of all words."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def _candidate_pairs(
    flat: Any, starts: Any, weights: Any, counts: Any, threshold: float
) -> Iterable[tuple[int, int]]:
    """Yield pairs worth comparing: texts in one bucket, each with the few before it."""
    import numpy as np  # noqa: PLC0415 - as above

    random = np.random.default_rng(20)
    common = max(_COMMON_MIN, math.ceil(_COMMON_PART * (len(starts) - 1)))
    sizes, totals = np.diff(starts), np.add.reduceat(weights[flat], starts[:-1])
    for _ in range(BANDS):
        key = np.zeros(len(sizes), np.uint64)
        for _ in range(ROWS):
            hashes = random.integers(0, 2**63, size=len(counts), dtype=np.uint64)
            # The top bit puts very common words last, so that they decide only texts without others.
            hashes[counts > common] |= np.uint64(2**63)
            key = key * np.uint64(0x9E3779B97F4A7C15) + np.minimum.reduceat(
                hashes[flat], starts[:-1]
            )
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        for distance in range(1, BUCKET_MAX + 1):
            matches = np.flatnonzero(ordered[distance:] == ordered[:-distance])
            if not len(matches):
                break
            one, other = order[matches + distance], order[matches]
            # A text much longer than another cannot share enough with it.
            comparable = _is_within(sizes[one], sizes[other], threshold) & _is_within(
                totals[one], totals[other], threshold
            )
            yield from zip(one[comparable].tolist(), other[comparable].tolist(), strict=True)


def _is_within(one: Any, other: Any, threshold: float) -> Any:
    return (one >= threshold * other) & (other >= threshold * one)


def _are_similar(one: "array[int]", other: "array[int]", weights: Any, threshold: float) -> bool:
    """Return whether two texts share enough words, by number and weighted by rarity.

    The weights make a shared name count more than a shared phrase.
    """
    shared = set(one) & set(other)
    if len(shared) < threshold * (len(one) + len(other) - len(shared)):
        return False
    shared_weight = weights[list(shared)].sum()
    return bool(
        shared_weight
        >= threshold * (weights[list(one)].sum() + weights[list(other)].sum() - shared_weight)
    )


def _find_root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def content_words(text: str) -> list[str]:
    """Return the stems of the distinctive words of `text` in order."""
    return [
        stem
        for word in _WORD.findall(_TAGS.sub(" ", text.lower()))
        if (stem := _distinctive_stem(word))
    ]


def meaning_words(text: str) -> frozenset[str]:
    """Return the stems that say what an instruction is about; words of one meaning are one."""
    meanings = _stems_by_meaning()
    stems = (stem[:STEM_CHARS] for stem in content_words(text))
    return frozenset(meanings.get(stem, stem) for stem in stems) - {""}


@lru_cache(maxsize=1)
def _stems_by_meaning() -> dict[str, str]:
    lines = [line.split() for line in _MEANINGS.strip().splitlines()]
    meanings = {
        stem_word(word)[:STEM_CHARS]: stem_word(words[0]) for words in lines for word in words
    }
    return meanings | {stem_word(word)[:STEM_CHARS]: "" for word in _STRENGTH}


def group_paraphrases(sentences: Sequence[frozenset[str]]) -> list[list[int]]:
    """Return groups of sentences, given by their meaning words, that say the same.

    The most frequent ones are compared with each other; every other one joins the nearest group.
    """
    import numpy as np  # noqa: PLC0415 - as above

    members: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, words in enumerate(sentences):
        members[words].append(index)
    members.pop(frozenset(), None)
    texts = sorted(members, key=lambda words: (-len(members[words]), sorted(words)))
    compared = texts[:PARAPHRASES_MAX]
    if not compared:
        return []
    ids = {word: number for number, word in enumerate(sorted(frozenset().union(*compared)))}
    rows = np.zeros((len(compared), len(ids)), np.float32)
    for number, text in enumerate(compared):
        rows[number, [ids[word] for word in text]] = 1
    sizes = rows.sum(axis=1)
    shared = rows @ rows.T
    distances = 1 - shared / (sizes[:, None] + sizes[None, :] - shared)
    labels = np.array(link_average(distances, _PARAPHRASE_CUT))
    centers = np.stack([rows[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    groups: dict[int, list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        if number < len(compared):
            label = int(labels[number])
        else:
            near = centers[:, [ids[word] for word in text if word in ids]].sum(axis=1) / len(text)
            label = int(near.argmax())
            if near[label] < 1 - _PARAPHRASE_CUT:
                continue
        groups[label] += members[text]
    return [sorted(group) for group in groups.values()]


def link_average(distances: Any, cut: float) -> list[int]:
    """Return the cluster of each point, from 0, by average linkage up to the distance `cut`.

    A cluster has the number of one of its members. Following nearest neighbors until two are each
    other's nearest finds every merge in quadratic time, though not in the order of distances.
    """
    between = distances + 0
    between.flat[:: len(between) + 1] = math.inf
    sizes, labels = [1] * len(between), list(range(len(between)))
    chain: list[int] = []
    for _ in range(len(between) - 1):
        chain = chain or [next(number for number, size in enumerate(sizes) if size)]
        while True:
            row = between[chain[-1]]
            nearest = int(row.argmin())
            # Of equally near clusters the one before in the chain is taken; others never end it.
            if len(chain) > 1 and row[nearest] >= row[chain[-2]]:
                break
            chain.append(nearest)
        ended, grown = chain.pop(), chain.pop()
        if row[grown] <= cut:
            labels = [grown if label == ended else label for label in labels]
        sizes_both = sizes[ended] + sizes[grown]
        mean = (sizes[ended] * between[ended] + sizes[grown] * between[grown]) / sizes_both
        between[grown] = between[:, grown] = mean
        between[ended] = between[:, ended] = math.inf
        sizes[grown], sizes[ended] = sizes_both, 0
    numbers = {label: number for number, label in enumerate(sorted(set(labels)))}
    return [numbers[label] for label in labels]


@lru_cache(maxsize=100_000)
def _distinctive_stem(word: str) -> str:
    """Return the stem of a word, or "" for a filler word. Cached: most words repeat."""
    plain = word.replace("\u2019", "").replace("'", "")
    return "" if plain in _FILLERS or (len(plain) == 1 and plain.isascii()) else stem_word(plain)


def stem_word(word: str) -> str:
    """Return `word` without its most common endings; meant for comparison only."""
    if not word.isascii() or len(word) < 5:
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] else root.removesuffix("e")
    return word.removesuffix("e")


class Repetition(Struct, frozen=True):
    """A question or failure that occurred more than once, with its conversations."""

    text: str
    occurrences: tuple[DigestPrompt | DigestMark, ...]
    conversations: tuple[str, ...]


def repeated_questions(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return questions asked in more than one conversation, most frequent first."""
    prompts = [(digest.id, prompt) for digest in digests for prompt in digest.prompts]
    texts = (content_words(prompt.text) for _, prompt in prompts)
    repetitions = []
    for group in group_similar(texts, QUESTION_OVERLAP, QUESTION_WORDS_MIN):
        conversations = tuple(dict.fromkeys(prompts[index][0] for index in group))
        if len(conversations) > 1:
            repeated = tuple(prompts[index][1] for index in group)
            shortest = min((prompt.text for prompt in repeated), key=lambda text: (len(text), text))
            repetitions.append(Repetition(shortest, repeated, conversations))
    return _most_frequent_first(repetitions)


def repeated_failures(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return failures with the same words in several sessions, most frequent first."""
    failures: dict[object, list[tuple[str, DigestMark]]] = defaultdict(list)
    for digest in digests:
        for mark in digest.failures:
            failures[frozenset(content_words(mark.key)) or mark.key].append((digest.id, mark))
    repetitions = []
    for occurrences in failures.values():
        sessions, marks = zip(*occurrences, strict=True)
        if len(set(sessions)) >= FAILURES_MIN:
            repetitions.append(Repetition(marks[0].key, marks, tuple(dict.fromkeys(sessions))))
    return _most_frequent_first(repetitions)


def repeated_instructions(digests: Sequence[ConversationDigest]) -> list[Repetition]:
    """Return what a person demanded in several conversations, in whatever words, by conversations.

    The prompts of programs are left out: long ones that are equal in several conversations. The
    text is the person's most usual wording; the first occurrences have different wordings.
    """
    machine = _find_machine_prompts(digests)
    all_marks = ((digest.id, mark) for digest in digests for mark in digest.instructions)
    marks = [(name, mark) for name, mark in all_marks if mark.address not in machine]
    groups = [
        {marks[index][1].address: marks[index] for index in group}
        for group in group_paraphrases([meaning_words(mark.text) for _, mark in marks])
    ]
    repetitions: list[Repetition] = []
    covered: list[set[str]] = []
    for prompts in sorted(groups, key=lambda prompts: (-len(prompts), min(prompts))):
        # A part of one wording is not another instruction; two that always come together are.
        is_part = any(
            len(prompts) * 2 <= len(addresses)
            and len(prompts.keys() & addresses) >= PART_SHARE * len(prompts)
            for addresses in covered
        )
        repetition = None if is_part else _merge_wordings(list(prompts.values()), len(digests))
        if repetition and not any(_is_run_on(repetition, usual) for usual in repetitions):
            repetitions.append(repetition)
            covered.append(set(prompts))
    return sorted(repetitions, key=lambda again: (-len(again.conversations), again.text))


def _is_run_on(one: Repetition, usual: Repetition) -> bool:
    """Return whether `one` is a wording of `usual` and what follows it without a full stop."""
    wordings = {mark.text.lower().rstrip(".! ") for mark in usual.occurrences}
    return any(wording in one.text.lower() for wording in wordings if wording.count(" ") > 1)


def _merge_wordings(prompts: Sequence[tuple[str, DigestMark]], total: int) -> Repetition | None:
    """Return one instruction in several wordings, unless it is a task or too rare."""
    conversations = tuple(dict.fromkeys(name for name, _ in prompts))
    occurrences = [mark for _, mark in prompts]
    wordings: dict[str, list[DigestMark]] = defaultdict(list)
    for mark in occurrences:
        wordings[mark.text.lower()].append(mark)
    usual = wordings[max(wordings, key=lambda text: (len(wordings[text]), -len(text), text))]
    enough = len(occurrences) * DEMANDED_SHARE
    marked = sum(mark.kind == "marked" for mark in occurrences)
    is_demanded = marked >= enough or len(usual) >= USUAL_SHARE * total
    # Alone it may be the task itself, unless it says that it is for every task.
    is_rule = sum(mark.amount or bool(_FOR_ALL.search(mark.text)) for mark in occurrences) >= enough
    if len(conversations) < INSTRUCTIONS_MIN or not is_demanded or not is_rule:
        return None
    # Each wording once, the usual one first, then again: the first ones are shown as evidence.
    columns = sorted(wordings.values(), key=lambda marks: marks is not usual)
    ordered = tuple(mark for row in zip_longest(*columns) for mark in row if mark)
    return Repetition(usual[0].text, ordered, conversations)


def _find_machine_prompts(digests: Sequence[ConversationDigest]) -> frozenset[str]:
    """Return the addresses of long prompts that are equal in several conversations."""
    equal: dict[tuple[str, int], list[DigestPrompt]] = defaultdict(list)
    for digest in digests:
        for prompt in digest.prompts:
            if prompt.chars >= MACHINE_CHARS:
                equal[prompt.text, prompt.chars].append(prompt)
    repeated = (prompts for prompts in equal.values() if len(prompts) >= INSTRUCTIONS_MIN)
    return frozenset(prompt.address for prompts in repeated for prompt in prompts)


def _most_frequent_first(repetitions: list[Repetition]) -> list[Repetition]:
    return sorted(repetitions, key=lambda again: (-len(again.occurrences), again.text))
