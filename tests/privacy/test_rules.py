import random

import pytest
import re2
from tools.bench import token_examples

from flightlog.privacy.detect import engine, rules
from flightlog.privacy.detect.rules import load_rule_families, load_rules


def secrets(text):
    return [
        detection
        for detection in engine.find_private_values(text.encode())
        if detection.kind == "secret"
    ]


@pytest.mark.parametrize("family", load_rule_families())
def test_each_rule_finds_its_own_examples(family):
    missed = [
        text
        for rule in load_rule_families()[family]
        for text in token_examples.make_examples(rule)
        if not secrets(text)
    ]

    assert missed == []


@pytest.mark.parametrize("family", load_rule_families())
def test_each_rule_leaves_truncated_examples(family):
    for rule in load_rule_families()[family]:
        for text in token_examples.make_negatives(rule):
            assert rule.id not in {detection.rule for detection in secrets(text)}, text


def test_the_rules_cover_two_hundred_providers_and_name_each_once():
    ids = [rule.id for rule in load_rules()]

    assert len({rule.provider for rule in load_rules()}) >= 200
    assert sum(bool(rule.forms) for rule in load_rules()) >= 200
    assert len(ids) == len(set(ids))
    assert {
        "clouds",
        "models",
        "code_hosts",
        "chat",
        "payments",
        "mail",
        "packages",
        "monitoring",
    } <= set(load_rule_families())


def test_no_example_of_a_secret_is_in_the_rule_data():
    for rule in load_rules():
        for form in rule.forms:
            assert not secrets(form), rule.id


def test_a_form_gives_a_pattern_that_its_examples_match():
    chance = random.Random(1)
    for form in ("ab_{hex:32}", "{uuid}", "x{url:20-40}y", "{b64:86}==", "k{digits:3-}"):
        assert re2.fullmatch(rules.form_pattern(form), token_examples.make_example(form, chance))
