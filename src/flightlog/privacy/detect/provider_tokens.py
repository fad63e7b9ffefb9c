"""Judge tokens that are recognized by their own shape: `ghp_…`, `AKIA…`, JSON web tokens.

One alternation of all heads finds where to judge, in one pass for any number of rules; then
only the forms with that head are tried. A token cut by a line end is tried again with the lines
joined.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import re2

from flightlog.privacy.detect import randomness, rules
from flightlog.privacy.detect.candidates import HIGH, LATIN, Candidate, contains_needle
from flightlog.privacy.detect.line_wraps import LINE_END, ends_line, unwrap_around, unwrap_lines
from flightlog.privacy.detect.rules import TokenRule, load_rules

_WIDTH_MAX = 700  # bytes examined for a token, with its line ends; longer ones only in one line
# Characters that must follow a head, by its length: a short head alone is frequent in other text.
_WANTED = {1: 20, 2: 13, 3: 12}
_WANTED_ELSE = 1  # after a longer head
# If the line ends before that, fewer are enough: the value may go on in the next line.
_WANTED_CUT = {1: 6, 2: 4, 3: 3}
_HEAD_CHARS = 2  # forms are grouped by the first characters of their head
# `AKIA`, `ghp_`, `xoxb-`: shorter heads (`SK`, `6L`, `sk-`) begin hashes and words as well.
_PREFIX_MIN = 4
# If the head is inside the token, a tail of this length is judged without the text before the head.
_TAIL_MIN = 20
# A tail of up to three different characters (`xxxx`, `aaaa-aaaa`) is filler, not a name.
_FILLER_LETTERS = 3
# A token is not the name of a file.
_FILE = rules.quick_pattern(rb"\.(?:png|jpe?g|gif|svg|ico|webp|css|js|html?)\b")
_ADDRESS_LEAD = rules.quick_pattern(rb"(?:https?://)?[A-Za-z0-9.-]{0,40}\Z")  # scheme and host
# The characters of tokens after and before the head, and of the text that they are embedded in.
_RUN = rules.quick_pattern(rb"[A-Za-z0-9_.$/+=:|~%?&@;!,*-]*")
_RUN_BEFORE = rules.quick_pattern(rb"[A-Za-z0-9_.$/+=:|~%?&@;!-]*\Z")  # without list marks
_LOOK = 100  # the cost of trying a form, and how far a run around a head is followed
_AROUND = (120, 200)  # bytes before and after a head that is inside its token
_LINE_BEGINS = (b"\n", b"\n ", b"\n\t", b"\n+", b"\n  ", b"> ")  # also in diffs and quotes
_PADDED_MIN = 30  # a token that ends with a field of this length may have base64 padding after it
# English letter pairs: words have over half of them. A whole tail is words only if it clearly is.
_WORD_PAIRS, _TAIL_PAIRS = 0.5, 0.55


_Joined = tuple[bytes, Callable[[int], int]]


class _TokenForm(NamedTuple):
    rule: TokenRule
    text: str
    head: bytes  # the literal text that triggers find; inside a form that begins with a field
    lead: bool  # the head is the beginning


@functools.cache
def _forms_by_head() -> dict[bytes, list[_TokenForm]]:
    heads: dict[bytes, list[_TokenForm]] = {}
    for form in _load_token_forms():
        heads.setdefault(form.head[:_HEAD_CHARS], []).append(form)
    return heads


def find_forms(data: bytes) -> "tuple[_TokenForm, ...]":
    """Return the forms whose heads occur in `data`."""
    present = {head for head in _token_heads() if contains_needle(data, head)}
    return tuple(form for form in _load_token_forms() if form.head in present)


def token_head_patterns(among: "Iterable[_TokenForm] | None" = None) -> tuple[str, str]:
    """Return patterns for the distinctive heads of tokens, and for the others with what must follow.

    They are separate, since heads and counts in one automaton have more states than its memory
    allows on a hostile text.
    """
    forms = list(_load_token_forms() if among is None else among)
    plain = _build_head_patterns(form for form in forms if _is_distinctive_head(form))
    counted = _build_head_patterns(form for form in forms if not _is_distinctive_head(form))
    return join_alternatives(plain), join_alternatives(counted)


def _build_head_patterns(forms: "Iterable[_TokenForm]") -> list[str]:
    """Return one pattern per text that must follow, with all its heads: it compiles faster."""
    shared: dict[tuple[str, str], set[str]] = {}
    for form in forms:
        bound, head, after = _head_pattern(form)
        shared.setdefault((bound, after), set()).add(head)
    return [
        f"{bound}(?:{'|'.join(sort_for_pattern(heads))}){after}"
        for (bound, after), heads in shared.items()
    ]


def sort_for_pattern(texts: Iterable[str]) -> list[str]:
    """Sort `texts` so that common beginnings are adjacent, longer first: `re2` then factors them out."""
    return sorted(texts, reverse=True)


def join_alternatives(patterns: list[str]) -> str:
    r"""Return one pattern for any of `patterns`; those that begin with `\b` share it."""
    bound = [pattern.removeprefix(r"\b") for pattern in patterns if pattern.startswith(r"\b")]
    free = [pattern for pattern in patterns if not pattern.startswith(r"\b")]
    return "|".join([*free, *([rf"\b(?:{'|'.join(bound)})"] if bound else [])])


def _is_distinctive_head(form: _TokenForm) -> bool:
    head = form.head.decode()
    return len(head) > 3 and not (len(head) <= 8 and head[:-1].isalpha() and head.islower())


@functools.cache
def _token_heads() -> frozenset[bytes]:
    return frozenset(form.head for form in _load_token_forms())


@functools.cache
def _load_token_forms() -> list[_TokenForm]:
    own = (rule for rule in load_rules() if not rule.near)
    return [_make_token_form(rule, form) for rule in own for form in rule.forms]


def _make_token_form(rule: TokenRule, text: str) -> _TokenForm:
    head = rules.form_head(text)
    if head:
        return _TokenForm(rule, text, head.encode(), lead=True)
    literals = rules.FIELD.split(text)[:: rules.FIELD.groups + 1]
    return _TokenForm(rule, text, max(literals, key=len).encode(), lead=False)


def _head_pattern(form: _TokenForm) -> tuple[str, str, str]:
    """Return patterns for the edge before the head, the head, and the beginning of the value.

    The whole value is not in the pattern: a line end may cut it.
    """
    head = form.head.decode()
    after = form.text[form.text.index(head) + len(head) :]
    is_word = form.lead and head[0].isalnum() and not (len(head) > 3 and head[-1] in "_-.")
    bound = r"\b" if is_word else ""
    if _is_distinctive_head(form):
        return bound, re.escape(head), _prefix_pattern(after, _WANTED_ELSE, 0)
    cut = 0 if head[-1] in "_-." else _WANTED_CUT.get(len(head), _WANTED_CUT[3])
    return bound, re.escape(head), _prefix_pattern(after, _WANTED.get(len(head), _WANTED[3]), cut)


def _prefix_pattern(form: str, wanted: int, cut: int) -> str:
    """Return a pattern for the first `wanted` characters of `form`, or for `cut` and a line end."""
    field = rules.FIELD.search(form)
    if field is None:
        return re.escape(form)
    literal, rest = re.escape(form[: field.start()]), form[field.end() :]
    if field["name"] == "uuid":
        return f"{literal}(?:[0-9a-fA-F]{{8}}-|[0-9a-fA-F]{{{min(cut, 7)},7}}{LINE_END})"
    least, members = int(field["low"]), f"[{rules.CLASSES[field['name']]}]"
    if least < wanted:
        following = _prefix_pattern(rest, wanted - least, max(0, cut - least))
        whole = rules.form_pattern(field.group()) + following
        fewer = f"{members}{{{cut},{least - 1}}}"
    else:
        # The whole is found where as many follow: an upper bound would only make the pattern larger.
        whole, least = f"{members}{{{wanted}}}", wanted
        fewer = f"{members}{{{cut},}}" if cut + 1 < wanted else f"{members}{{{cut}}}"
    return f"{literal}(?:{whole}|{fewer}{LINE_END})" if cut < least else literal + whole


@functools.cache
def _compile_form(form: str) -> object:
    return re2.compile(rules.form_pattern(form).encode(), LATIN)


def has_head(data: bytes, start: int) -> bool:
    """Return whether a token may begin at `start`."""
    return bool(_forms_at(data, start))


def judgment_cost(data: bytes, start: int) -> int:
    """Return how many bytes the judgement at `start` may examine."""
    return _LOOK * max(1, len(_forms_at(data, start))) + _WIDTH_MAX


def judge_token(view: bytes, start: int) -> Candidate | None:
    """Return the longest token whose head begins at `start`, or None."""
    run_end = _RUN.match(view, start, start + _WIDTH_MAX).end()
    lines = unwrap_lines(view, start, _WIDTH_MAX) if ends_line(view, run_end) else None
    best: Candidate | None = None
    for form in _forms_at(view, start):
        hit = _try_form(view, start, form, lines)
        if best is None or (hit is not None and hit.end - hit.start > best.end - best.start):
            best = hit
    return best


def _forms_at(data: bytes, start: int) -> list[_TokenForm]:
    heads = _forms_by_head()
    short, single = data[start : start + _HEAD_CHARS], data[start : start + 1]
    forms = (*heads.get(short, ()), *heads.get(single, ()))
    return [form for form in forms if data.startswith(form.head, start)]


def _try_form(view: bytes, start: int, form: _TokenForm, lines: _Joined | None) -> Candidate | None:
    pattern = _compile_form(form.text)
    if not form.lead:
        hit = _match_around(view, start, form, pattern)
        return hit or _match_around_joined_lines(view, start, form, pattern)
    match = pattern.match(view, start, start + _WIDTH_MAX * 4)  # type: ignore[attr-defined]
    whole = _match_joined_lines(lines, start, form, pattern) if lines is not None else None
    if _begins_inside_word(view, start, form) or (
        match and _FILE.match(view, match.end(), match.end() + 6)
    ):
        return None
    if match and _ends_token(form.text, view[match.end() : match.end() + 1]):
        hit = _make_token_candidate(match.group(), start, match.end(), form)
        if hit and whole and _continues_next_line(view, hit, whole):
            hit = whole
        return _extend_to_scheme(view, _extend_over_padding(view, hit, form), form.head)
    return _extend_to_scheme(view, whole, form.head)


def _begins_inside_word(view: bytes, start: int, form: _TokenForm) -> bool:
    """Return whether the head ends a longer word or hash: `task_test_…`, `publico-…`, `sha512-6L…`."""
    before = view[start - 1 : start] if start else b""
    if len(form.head) < _PREFIX_MIN and before in (b"-", b"+"):
        return True
    return form.head[:1].islower() and before.islower()


def _match_joined_lines(
    lines: _Joined, start: int, form: _TokenForm, pattern: object
) -> Candidate | None:
    text, back = lines
    match = pattern.match(text)  # type: ignore[attr-defined]
    # Lines of capitals read as one are a list of words, not a token.
    if (
        match is None
        or _is_words(match.group()[len(form.head) :])
        or not _ends_token(form.text, text[match.end() :][:1])
    ):
        return None
    return _make_token_candidate(match.group(), start, back(match.end()), form)


def _is_words(value: bytes) -> bool:
    few_digits = randomness.count_digits(value) < 2
    return few_digits and randomness.english_pair_share(value) >= _TAIL_PAIRS


def _continues_next_line(view: bytes, hit: Candidate, whole: Candidate) -> bool:
    """Return whether a token that could end with its line goes on alone in the next."""
    extra = whole.value[len(hit.value) :]
    if len(extra) < 4 or view[whole.end : whole.end + 1] not in b"\n\r\"'`<\\\0;, ":
        return False
    return randomness.count_digits(extra) > 1 or randomness.english_pair_share(extra) < _WORD_PAIRS


def _extend_over_padding(view: bytes, hit: Candidate | None, form: _TokenForm) -> Candidate | None:
    """Return a long token with the `=` that pad its base64."""
    if hit is None or not form.text.endswith("}") or len(hit.value) < _PADDED_MIN:
        return hit
    end = hit.end
    while end < hit.end + 3 and view[end : end + 1] == b"=":
        end += 1
    return hit._replace(end=end, value=hit.value + view[hit.end : end]) if end > hit.end else hit


def _extend_to_scheme(view: bytes, hit: Candidate | None, head: bytes) -> Candidate | None:
    """Return a hit in a URL from the beginning of the URL: its host names the owner."""
    if hit is None or b"/" not in head or b"." not in head or head.startswith(b"http"):
        return hit
    lead = _ADDRESS_LEAD.search(view, max(0, hit.start - 50), hit.start)
    return hit._replace(start=lead.start()) if lead else hit


def _match_around(view: bytes, at: int, form: _TokenForm, pattern: object) -> Candidate | None:
    before_head, after_head = _AROUND
    for match in pattern.finditer(view, max(0, at - before_head), at + after_head):  # type: ignore[attr-defined]
        before = view[match.start() - 1 : match.start()] if match.start() else b""
        if (
            match.start() <= at < match.end()
            and (not before.isalnum() or (before.isalpha() and match.group()[:1].isdigit()))
            and _ends_token(form.text, view[match.end() :][:1])
        ):
            return _make_token_candidate(match.group(), match.start(), match.end(), form)
    return None


def _match_around_joined_lines(
    view: bytes, at: int, form: _TokenForm, pattern: object
) -> Candidate | None:
    """Return the token around the head at `at` if a line end cuts it, before or after the head."""
    end = _RUN.match(view, at, at + _LOOK).end()
    run = _RUN_BEFORE.search(view, max(0, at - _LOOK), at)
    begin = run.start() if run else at
    if not (ends_line(view, end) or view[:begin].endswith(_LINE_BEGINS)):
        return None
    text, back, middle = unwrap_around(view, at, *_AROUND)
    hit = _match_around(text, middle, form, pattern)
    return hit._replace(start=back(hit.start + 1) - 1, end=back(hit.end)) if hit else None


def _ends_token(form: str, after: bytes) -> bool:
    return form.endswith("-}") or not (after.isalnum() or after == b"_")


def _make_token_candidate(value: bytes, start: int, end: int, form: _TokenForm) -> Candidate | None:
    tail = value[value.find(form.head) + len(form.head) :]
    tail = tail if form.lead or len(tail) >= _TAIL_MIN else value
    # After a vendor's prefix an invented value counts, too; after a head that other text has it does not.
    if not _is_prefix(form) and (
        randomness.shannon_entropy(value) < form.rule.entropy or _is_stand_in(value)
    ):
        return None
    if randomness.is_reference(tail) or _is_code_name(tail, form.head):
        return None
    if value[1:2] in b"._-" and not randomness.count_digits(value):
        return None  # a head of one letter is weak evidence
    if value[3:4] == b"." and _is_words(value[4:]):
        return None  # and so are three letters before a dot: code has them
    return Candidate(start, end, form.rule.id, value, HIGH)


def _is_code_name(tail: bytes, head: bytes) -> bool:
    """Return whether a head begins a name in code or a word: `test_…`, `key…`, `ptr_…`."""
    wordy = len(set(tail)) > _FILLER_LETTERS and _is_words(tail)
    return wordy and (head.islower() or not randomness.count_digits(tail))


def _is_stand_in(value: bytes) -> bool:
    low = value.lower()
    is_example = b"xxxx" in low or b"example" in low or b"abcdefghij" in value
    return is_example or len(set(value[-12:])) <= 2


def _is_prefix(form: _TokenForm) -> bool:
    """Return whether the head is a vendor's own prefix: four characters or more that are no word."""
    is_name = form.head.isalpha() and not form.head.isupper()
    return form.lead and len(form.head) >= _PREFIX_MIN and not is_name
