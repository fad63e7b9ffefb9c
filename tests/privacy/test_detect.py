"""What is found, measured on labelled texts and on real transcripts."""

import itertools
import random
import string
from pathlib import Path

import pytest

from flightlog.privacy.detect import engine, rules
from flightlog.privacy.detect.assignments import WORDS
from flightlog.privacy.detect.candidates import DEBT_MAX, WorkBudget
from flightlog.privacy.detect.rules import load_rules
from flightlog.privacy.redactor import Redactor
from privacy import hostile, labelled

RECORDINGS = Path(__file__).parent.parent / "recordings" / "claude-code"


def spans(text):
    return [
        span
        for detection in engine.find_private_values(text.encode())
        if detection.kind == "secret"
        for span in detection.spans
    ]


def is_covered(one):
    left = set(range(one.start, one.end))
    for start, end in spans(one.text):
        left -= set(range(start, end))
    return len(left) <= max(2, len(one.secret) // 10)


def share(texts):
    judged = [is_covered(one) for one in texts]
    return sum(judged) / len(judged)


def sample(style, count=1200):
    return random.Random(7).sample(list(style()), count)


@pytest.mark.parametrize(
    ("style", "least"),
    [(labelled.config_style, 0.99), (labelled.nearby_style, 0.99), (labelled.tool_style, 0.99)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_secrets_are_found_in_every_syntax(style, least):
    assert share(sample(style)) >= least


@pytest.mark.parametrize("way", labelled.TRANSFORMS, ids=lambda way: way.__name__)
def test_secrets_are_found_however_they_are_written(way):
    styles = (labelled.config_style, labelled.nearby_style, labelled.tool_style)
    plain = [one for style in styles for one in sample(style, 150) if is_covered(one)]

    if way is labelled.split_into_stream:
        gone = [_streamed_is_gone(one) for one in plain]
        assert sum(gone) / len(gone) >= 0.95
    else:
        assert share([way(one) for one in plain]) >= (0.5 if way is labelled.in_base64 else 0.95)


def _streamed_is_gone(one):
    text = labelled.split_into_stream(one).text
    for start, end in sorted(spans(text), reverse=True):
        text = text[:start] + text[end:]
    middle = (one.start + one.end) // 2
    return one.text[one.start : middle] not in text and one.text[middle : one.end] not in text


def test_text_that_only_looks_like_a_secret_is_left_alone():
    texts = labelled.negatives()

    wrong = [text for text in texts if spans(text)]

    assert len(wrong) / len(texts) <= 0.01, wrong[:5]


def test_a_clean_transcript_gets_less_than_one_secret_tag_in_50_kilobytes():
    files = sorted(RECORDINGS.rglob("*.jsonl"))
    tags = sum(len(spans(file.read_text())) for file in files)
    size = sum(file.stat().st_size for file in files)

    assert size > 100_000
    assert tags <= size / 50_000


HOSTILE = {
    "keys": "key=" * 250_000,
    "names": "github token " * 80_000,
    "quotes": '"' * 1_000_000,
    "backslashes": "\\" * 1_000_000,
    "percents": "%41" * 330_000,
    "pem": "-----BEGIN PRIVATE KEY-----\n" * 36_000,
    "addresses": "://a:b" * 160_000,
    "ats": "a@" * 500_000,
    "ansi": "\x1b[3m" * 250_000,
    "base64": "aGVsbG8gd29ybGQg" * 62_000,
    "events": 'data: {"delta":{"text":"a"}}\n\n' * 33_000,
    "heads": "sk-ant-" * 140_000,
    "digits": "4111-1111-1111-1112 " * 50_000,
    "newlines": "token=abcdef1234567890\n" * 43_000,
}


def _soup(seed, make):
    chance = random.Random(seed)
    parts, size = [], 0
    while size < 200_000:
        parts.append(make(chance))
        size += len(parts[-1])
    return "".join(parts)


def _noise(chance, count):
    return "".join(chance.choices(string.ascii_letters + string.digits, k=count))


HEADS = sorted(
    {rules.form_head(form) for rule in load_rules() if not rule.near for form in rule.forms}
)
NAMES = sorted({name for rule in load_rules() for name in rule.near})
SOUPS = {
    "heads": lambda chance: chance.choice(HEADS),
    "heads and noise": lambda chance: f"\n{chance.choice(HEADS)}{_noise(chance, 8)}",
    "names": lambda chance: f"{chance.choice(NAMES)} {_noise(chance, 12)} ",
    "words": lambda chance: f"{chance.choice(WORDS)}={_noise(chance, 6)}",
    "passwords": lambda chance: f'{chance.choice(WORDS)}="{_noise(chance, 10)}"\n',
    "headers": lambda chance: f"bearer {_noise(chance, 13)} ",
    "addresses": lambda chance: f"{_noise(chance, 3)}@{_noise(chance, 3)}.io ",
    "colours": lambda chance: f"\x1b[3m{chance.choice(WORDS)}={_noise(chance, 6)}",
}
VIEWS_MAX = 3
DETECTORS = 6


@pytest.mark.parametrize("name", [*HOSTILE, *SOUPS])
def test_a_hostile_text_causes_no_more_work_than_its_length_allows(name):
    text = HOSTILE[name][:200_000] if name in HOSTILE else _soup(3, SOUPS[name])
    meter = WorkBudget()

    detections = engine.find_private_values(text.encode(), meter=meter)

    assert meter.spent <= meter.granted + DEBT_MAX
    assert meter.granted <= 2 * DETECTORS * VIEWS_MAX * len(text) + (128 << 10)
    assert len(detections) <= len(text) / 4


def test_everything_is_redacted_once_the_budget_is_used_up():
    soup = _soup(5, SOUPS["heads and noise"])
    secret = next(iter(labelled.tool_style()))

    detections = engine.find_private_values(f"{soup}\n{secret.text}\n{soup}".encode())

    text = f"{soup}\n{secret.text}\n{soup}"
    for one in reversed(detections):
        text = text[: one.start] + text[one.end :]
    assert "unjudged" in {one.rule for one in detections}
    assert secret.secret[-8:] not in text


PERSONAL = {
    "mail bob.smith@acme.io now": "email",
    "call +1 (415) 555-2671": "phone",
    "card 4111 1111 1111 1111 ok": "card",
    "iban DE89 3704 0044 0532 0130 00": "iban",
    "from 93.184.216.34 port": "ip",
    "cd /home/alice/project": "home-path",
    "open /Users/bob/x": "home-path",
    "C:\\Users\\carol\\x": "home-path",
    "ssh build-7.corp": "host",
    "curl https://vault.internal/v1": "host",
    "ping 8.9.10.11": "ip",
    "ssh root@93.184.216.34": "ip",
    "paid by card 4111111111111111": "card",
    "ls /srv/homes/jdoe/x": "home-path",
    "cd /mnt/c/Users/jdoe": "home-path",
    "jane@myexample.com": "email",
    "jane@counterexample.org": "email",
    "jane@example.com.acme.io": "email",
    '"device_id":"' + "0a1b" * 16 + '"': "device-id",
    '"account_uuid":"0a1b2c3d-0a1b-4c3d-8a1b-0a1b2c3d4e5f"': "account-id",
}


@pytest.mark.parametrize(("text", "rule"), PERSONAL.items(), ids=PERSONAL)
def test_personal_data_is_found(text, rule):
    assert rule in {
        detection.rule
        for detection in engine.find_private_values(text.encode())
        if detection.kind == "person"
    }


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 192.168.0.7 10.1.2.3 192.0.2.9 version 1.2.3.4000",
        "someone@example.com git@github.com:org/repo noreply@acme.io",
        "4111 1111 1111 1112",
        "DE89 3704 0044 0532 0130 01",
        "https://x.example/home/about",
        "::1 fe80::1 12:30:45",
        "2026-11-15 08:54:40 1700000000000",
        "jane@mail.example.org a@b.test x@y.invalid bob@foo.example",
        "version 69.71.62.82 Chrome/69.71.62.82 foo-69.71.62.82.jar",
        "8.3.2.7 Overview (see section 12.31.4.5)",
        '<path d="M12.3.4.5 62.3.44.5l.5.3.2.1z"/>',
        "order 4111111111111111 f1-score: 0.4111111111111111",
        "from hypothesis.internal import reflection; pkg.internal.utils",
    ],
)
def test_text_that_identifies_no_person_stays(text):
    assert [detection.rule for detection in engine.find_private_values(text.encode())] == []


def test_nothing_reaches_over_the_mark_between_records():
    halves = [
        ("api_key = ", '"k3J9x2Lq8Zr5Tn1Vb7Wc4"'),
        ("github_token: ", "gh" + "p_" + "a1B2" * 9),
    ]

    for before, after in itertools.chain(halves):
        joined = engine.find_private_values(f"{before}\0{after}".encode())
        alone = engine.find_private_values(after.encode())
        assert [detection.rule for detection in joined] == [detection.rule for detection in alone]


FAMILIES = dict(hostile.families(30_000))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_hostile_text_is_redacted_within_its_budget_once_and_for_all(name):
    meter = WorkBudget()
    engine.find_private_values(FAMILIES[name].encode(), meter=meter)
    redactor = Redactor(bytes(32))

    once = redactor.redact_string(FAMILIES[name])

    assert meter.spent <= meter.granted + DEBT_MAX
    assert redactor.redact_string(once) == once
