"""Judge personal data: addresses, numbers and names of a person or a machine.

Checksums decide where a format has one (cards, IBAN). Reserved, loopback and private addresses
do not count. Names of people are not guessed from prose.
"""

import functools
import ipaddress

from flightlog.privacy.detect import rules
from flightlog.privacy.detect.candidates import HIGH, MEDIUM, PERSON, Candidate, where

HOME = "home-path"
LOOK_COST = 90  # of one judgement, in bytes examined
# In this order: email, home directories (Unix, Windows, as slugs of Claude Code's project
# directories), IPv4, phone numbers, US social security numbers, cards, IBAN, IPv6, internal hosts,
# ids of accounts and devices.
PATTERN = (
    rb"[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9][A-Za-z0-9-]*\.[A-Za-z0-9.-]*[A-Za-z0-9]"
    rb"|/(?:(?:mnt/)?[a-z]/Users|(?:srv|export|var|data|nfs)/homes?|home|Users)/[A-Za-z0-9._-]+"
    rb"|[A-Za-z]:(?:\\+|/)Users(?:\\+|/)[A-Za-z0-9._-]+|-(?:home|Users)-[a-z][a-z0-9]+"
    rb"|\b[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\b"
    rb"|\+[1-9][0-9]{0,2}[ .(-]{0,2}[0-9][0-9 .()-]{6,14}[0-9]|\([2-9][0-9]{2}\) ?[0-9]{3}-[0-9]{4}"
    rb"|\b[2-9][0-9]{2}-[2-9][0-9]{2}-[0-9]{4}\b|\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b"
    rb"|\b[3-6][0-9]{3}[ -]?[0-9]{4,6}[ -]?[0-9]{4,5}[ -]?[0-9]{0,7}\b"
    rb"|\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"
    rb"|\b[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){3,7}\b"
    rb"|\b[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)*\.(?:internal|corp|lan|intranet|ts\.net)\b"
    rb"|(?i:(?:device|account|organization|org|user|member)_?(?:uu)?id[\"'\\: =]{1,8}[0-9a-f-]{32,64})"
    rb"|user_[0-9a-f]{64}"
)
_BEFORE_SLUG = (b"/", b"\\", b'"', b" ", b"")
_INSIDE_PATH = (b".", b"-", b"_", b"~")
# A path that goes on with one of these is another, longer name.
_AFTER_SLUG = frozenset(bytes((byte,)) for byte in b"abcdefghijklmnopqrstuvwxyz0123456789")
_AFTER_HOME = _AFTER_SLUG | {
    bytes((byte,)) for byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ._-"
}  # of a path
# RFC 2606: these domains and all below them never receive mail. Compared by labels, since
# `myexample.com` is a real domain.
_RESERVED = ((b"example", b"com"), (b"example", b"net"), (b"example", b"org"))
_RESERVED_TOP = frozenset(b"example test invalid localhost".split())
# Four numbers after such words are a version or the number of a section.
_COUNTED = rules.linear_pattern(
    rb"(?i)(?:version|\bver|release|section|sect|chapter|clause|appendix|\bsec|\bv|\xc2\xa7)[\"'(:=. ]{0,4}$"
    rb"|[a-z_]/$|[^0-9]-$"
)
_COUNTED_REACH = 20  # the longest of these words and its marks fit
# The commands of SVG path data, with numbers that share their dots: `c.5.3.2.1`.
_DRAWN = rules.linear_pattern(rb"(?i)(?:^|[^a-z])[mlhvcsqta] ?[-.0-9][-., 0-9]*$|\.$")
# A longer version number, or the name of a package's file.
_PACKAGED = rules.quick_pattern(
    rb"\.(?:[0-9]|(?:jar|tar|t?gz|zip|whl|deb|rpm|exe|msi|dll|so|nupkg)\b)"
)
# One in 4,000 public addresses has only numbers below this; most section numbers have no others.
_SMALL = 32
# Words and marks before the address of a machine.
_ADDRESSED = rules.linear_pattern(
    rb"(?i)(?:://|@|\b(?:ip|host|server|addr(?:ess)?|ssh|ping|peer|from|to|client|dns)\b\W{0,4})$"
)
# Every tenth number has the right check digit, so a card also needs groups of digits or a word.
_CARD_WORDS = rules.linear_pattern(
    rb"(?i)card|visa|amex|american express|discover|credit|debit|\bpan\b|\bcc\b|payment"
)
_CARD_REACH = 40  # bytes before a number in which that word counts
_NUMBER_REACH = 30  # bytes before a phone or social security number in which a word for it counts
# Before the name of a package in code.
_IMPORTED = rules.linear_pattern(
    rb"(?i)(?:\b(?:import|from|package|module|require|include|use|using)\b[ (\"']*)$"
)
_FUNCTION_BOXES = frozenset(b"noreply no-reply git donotreply".split())
_DOCUMENT_NET = ipaddress.ip_network("2001:db8::/32")  # RFC 3849
_DOUBLED = bytes.maketrans(b"0123456789", b"0246813579")  # twice a digit, its own digits added up
_WELL_KNOWN = (b"8.8.8.8", b"8.8.4.4", b"1.1.1.1", b"1.0.0.1")


def judge_personal_value(text: bytes, start: int, view: bytes) -> Candidate | None:
    """Return the personal data at `start`, or None; `text` is the match of `PATTERN` there."""
    if b"@" in text:
        return _judge_email(text, start, view)
    if text[:1] in b"/-" or b"Users" in text[:12]:
        return _judge_home_path(text, start, view)
    if text[:1] in b"+(":
        return _judge_phone_number(text, start, view)
    if text[:2].isupper() and text[:2].isalpha():
        return _make_person_candidate(text, start, "iban") if _is_iban(text) else None
    if b"." in text and text.replace(b".", b"").isdigit():
        return _judge_ip_address(text, start, view) if text.count(b".") == 3 else None
    return _judge_number_or_name(text, start, view)


def _judge_ip_address(text: bytes, start: int, view: bytes) -> Candidate | None:
    before = view[max(0, start - _COUNTED_REACH) : start]
    if _COUNTED.search(before) or _DRAWN.search(before) or _PACKAGED.match(view, start + len(text)):
        return None
    if max(map(int, text.split(b"."))) < _SMALL and not _ADDRESSED.search(before):
        return None
    return _make_person_candidate(text, start, "ip") if _is_public(text) else None


def _judge_phone_number(text: bytes, start: int, view: bytes) -> Candidate | None:
    digits = sum(48 <= byte <= 57 for byte in text)
    alone = not start or view[start - 1] in b" \n\t\"':=,>(["
    if alone and 9 <= digits <= 15:
        return _make_person_candidate(text, start, "phone", MEDIUM)
    return None


def _judge_number_or_name(text: bytes, start: int, view: bytes) -> Candidate | None:
    digits = text.replace(b" ", b"").replace(b"-", b"")
    if digits.isdigit():
        return _judge_number(text, digits, start, view)
    if b":" in text and not text[:4].isalpha():
        return _make_person_candidate(text, start, "ip", MEDIUM) if _is_public(text) else None
    if text.endswith((b".internal", b".corp", b".lan", b".intranet", b".ts.net")):
        if _is_host(text, start, view):
            return _make_person_candidate(text, start, "host", MEDIUM)
        return None
    if text.startswith(b"user_"):
        return _make_person_candidate(text, start, "device-id")
    return _judge_account_id(text, start)


def _is_host(text: bytes, start: int, view: bytes) -> bool:
    """Return whether `text` is a machine, not a package that code imports (`hypothesis.internal`)."""
    end = start + len(text)
    before, after = view[max(0, start - _COUNTED_REACH) : start], view[end : end + 2]
    if not text.endswith(b".internal"):
        return True
    if _IMPORTED.search(before) or (after[:1] == b"." and after[1:].isalpha()) or after[:1] == b"(":
        return False
    numbered = b"-" in text or any(48 <= byte <= 57 for byte in text) or after[:1] == b":"
    return numbered or _ADDRESSED.search(before) is not None


def _judge_number(text: bytes, digits: bytes, start: int, view: bytes) -> Candidate | None:
    before = view[max(0, start - _NUMBER_REACH) : start].lower()
    if len(text) == 12 and text.count(b"-") == 2:
        named = b"call" in before or b"phone" in before or b"tel" in before
        return _make_person_candidate(text, start, "phone", MEDIUM) if named else None
    if len(text) == 11 and text.count(b"-") == 2:
        if b"ssn" in before or b"social" in before:
            return _make_person_candidate(text, start, "ssn", MEDIUM)
        return None
    is_grouped = len(digits) < len(text)
    is_card = is_grouped or _CARD_WORDS.search(view, max(0, start - _CARD_REACH), start)
    is_card = is_card and before[-1:] != b"." and _is_card(digits)
    return _make_person_candidate(text, start, "card") if is_card else None


def _judge_account_id(text: bytes, start: int) -> Candidate | None:
    value = text[max(text.rfind(mark) for mark in (b'"', b"'", b":", b" ", b"=", b"\\")) + 1 :]
    if len(value) not in (32, 36, 64):
        return None
    rule = "device-id" if b"device" in text.lower() or len(value) == 64 else "account-id"
    return _make_person_candidate(value, start + len(text) - len(value), rule)


def _judge_email(text: bytes, start: int, view: bytes) -> Candidate | None:
    box, _, host = text.rpartition(b"@")
    host = host.lower()
    if host.replace(b".", b"").isdigit() and host.count(b".") == 3:
        return _judge_ip_address(host, start + len(box) + 1, view)
    top = host.rpartition(b".")[2]
    if top == host or not top.isalpha() or top in (b"local", b"py", b"js", b"ts"):
        return None
    labels = tuple(host.split(b"."))
    if labels[-2:] in _RESERVED or labels[-1] in _RESERVED_TOP or box.lower() in _FUNCTION_BOXES:
        return None
    # A user in a URL, a package and its version, or a version after an `@`.
    end = start + len(text)
    is_url = view[start - 3 : start] == b"://" or view[end : end + 1] == b"/"
    return None if is_url or labels[0].isdigit() else _make_person_candidate(text, start, "email")


def _judge_home_path(text: bytes, start: int, view: bytes) -> Candidate | None:
    # A path inside an address or another directory does not count.
    begins = text[:1] not in b"/-" or _begins_path(text[:1], view[max(0, start - 2) : start])
    return _make_person_candidate(text, start, HOME) if begins else None


def anonymous_home(path: bytes) -> bytes:
    """Return the replacement for a home directory."""
    return b"-~" if path[:1] == b"-" else b"~"


def strip_owner(data: bytes, path: bytes, name: bytes = b"") -> bytes:
    """Replace a known home directory in `data`, exactly where a detector would find it."""
    first, bounds, usual = (
        (b"-", _AFTER_SLUG, b"/") if path[:1] == b"-" else (b"/", _AFTER_HOME, b'"')
    )
    parts: list[bytes] = []
    at, start = 0, where(data, path, 0)
    while start >= 0:
        end = start + len(path)
        # Nearly all come after the usual mark.
        before = data[max(0, start - 2) : start]
        begins = before[-1:] == usual or _begins_path(first, before)
        if begins and data[end : end + 1] not in bounds:
            parts.append(data[at:start])
            at = end
        start = where(data, path, end)
    parts.append(data[at:])
    return (name or anonymous_home(path)).join(parts)


def _begins_path(first: bytes, before: bytes) -> bool:
    if first == b"-":
        return before[-1:] in _BEFORE_SLUG
    return before in (b"\\n", b"\\t") or not (before[-1:].isalnum() or before[-1:] in _INSIDE_PATH)


@functools.lru_cache(maxsize=4096)
def _is_public(text: bytes) -> bool:
    if b":" not in text:
        return _is_public_four(text)
    try:
        address = ipaddress.ip_address(text.decode())
    except ValueError:
        return False
    return address.is_global and not address.is_multicast and address not in _DOCUMENT_NET


def _is_public_four(text: bytes) -> bool:
    """Return whether an IPv4 address is public: faster than `ipaddress`, a text may have very many."""
    try:
        first, second, third, _ = numbers = tuple(map(int, text.split(b".")))
    except ValueError:
        return False
    if max(numbers) > 255 or first in (0, 10, 127) or first >= 224 or text in _WELL_KNOWN:
        return False
    if first in (100, 169, 172, 192, 198, 203):
        return not (
            (first == 100 and 64 <= second < 128)
            or (first, second) in ((169, 254), (192, 168), (198, 18), (198, 19))
            or (first == 172 and 16 <= second < 32)
            or (first, second, third) in ((192, 0, 0), (192, 0, 2), (198, 51, 100), (203, 0, 113))
        )
    return True


def _is_card(digits: bytes) -> bool:
    if not 13 <= len(digits) <= 19 or len(set(digits)) < 2:
        return False
    if digits[:1] not in b"3456":
        return False
    total = sum(digits[::-2]) + sum(digits[-2::-2].translate(_DOUBLED)) - 48 * len(digits)
    return total % 10 == 0


def _is_iban(text: bytes) -> bool:
    plain = text.replace(b" ", b"").decode()
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _make_person_candidate(text: bytes, start: int, rule: str, weight: int = HIGH) -> Candidate:
    return Candidate(start, start + len(text), rule, text, weight, PERSON)
