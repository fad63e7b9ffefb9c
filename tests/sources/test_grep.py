import json

from flightlog.sources.foreign_json import find_lines


def test_lines_that_hold_the_words_are_found_in_either_case(tmp_path):
    lines = [{"text": "Nothing"}, {"text": 'say "Hello\nWorld" é'}, {"text": "hello"}]
    body = [json.dumps(line, ensure_ascii=False).encode() for line in lines]
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"\n".join(body))

    def find_texts(words):
        return [
            json.loads(file.read_bytes()[at : at + length])["text"]
            for at, length in find_lines(str(file), words)
        ]

    assert find_texts("HELLO") == ['say "Hello\nWorld" é', "hello"]
    assert find_texts('"hello\nworld') == ['say "Hello\nWorld" é']
    assert find_texts("é") == ['say "Hello\nWorld" é']
    assert find_texts("absent") == []


def test_a_line_across_blocks_is_found_once(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"x" * (4 << 20) + b" needle " + b"y" * 100 + b"\nneedle\n")

    assert [length for _, length in find_lines(str(file), "needle")] == [(4 << 20) + 108, 6]


def test_a_file_that_is_gone_holds_nothing(tmp_path):
    assert list(find_lines(str(tmp_path / "gone"), "x")) == []
