"""What is sent in place of what a client says, told on small requests."""

from flightlog.lab.replay.certificate import RequestFacts, certify_request
from flightlog.lab.replay.recorded_context import RecordedContext

MARK = "[flightlog branch point 1]"
CACHED = {"cache_control": {"type": "ephemeral"}}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def said(words):
    return {"role": "assistant", "content": [text(words)]}


RECORDED = {
    "model": "m",
    "system": [text("be good")],
    "tools": [{"name": "Bash", "input_schema": {}}],
    "max_tokens": 10,
    "messages": [user(text("hello")), said("hi"), user(text("result", **CACHED))],
    "metadata": {"user_id": "[scrubbed]"},
}


def client(*messages, **more):
    return {**RECORDED, "metadata": {"user_id": "me"}, "messages": list(messages), **more}


def test_context_before_the_marker_is_recorded_but_identity_is_kept():
    context = RecordedContext(RECORDED, MARK)

    first = context.splice_context(
        client(user(text("hello!")), user(text("result"), text(MARK, **CACHED)), system=[])
    )

    assert first.body == {**RECORDED, "metadata": {"user_id": "me"}}
    assert "messages[0].content[0].text" in first.replacements
    assert "system[0] (missing)" in first.replacements


def test_messages_after_the_marker_stay_and_the_cache_marker_moves():
    context = RecordedContext(RECORDED, MARK)
    mine = user(text("result"), text(MARK))
    context.splice_context(
        client(
            user(text("hello")), said("hi"), mine, {"role": "system", "content": "added with it"}
        )
    )
    more = [said("more"), user(text("done", **CACHED))]

    later = context.splice_context(
        client(
            user(text("hello")),
            said("hi"),
            mine,
            {"role": "system", "content": "added with it"},
            *more,
        )
    )

    plain = [*RECORDED["messages"][:2], user(text("result"))]
    assert later.body["messages"] == [*plain, *more]


def test_a_client_that_compacted_goes_on_from_its_own_summary():
    context = RecordedContext(RECORDED, MARK)
    context.splice_context(
        client(user(text("hello")), said("hi"), user(text("result"), text(MARK)))
    )

    later = context.splice_context(
        client(user(text("summary"), text(MARK)), said("more"), user(text("x")))
    )

    assert later.body["messages"] == [user(text("summary")), said("more"), user(text("x"))]
    assert later.replacements == ("sentinel",)


def test_a_request_without_the_marker_is_unchanged_and_differs():
    context = RecordedContext(RECORDED, MARK)

    assert context.splice_context(client(user(text("hello")))) is None
    found = certify_request(context, None, RequestFacts(), "any")
    assert (found.verdict, found.first_difference) == (
        "differs",
        "the branch point is not in the client's first request",
    )


def test_what_the_proxy_cannot_put_right_is_a_difference():
    def verdict(**facts):
        context = RecordedContext(RECORDED, MARK, "please")
        spliced = context.splice_context(client(user(text(f"{MARK}\nplease"))))
        found = certify_request(context, spliced, RequestFacts(**facts), "any")
        return found.verdict, found.first_difference

    assert verdict(tools=frozenset({"Bash", "Read"})) == ("exact+prompt", "")
    assert verdict(tools=frozenset({"Read"})) == (
        "differs",
        "tools.Bash (the client does not have it)",
    )
    assert verdict(betas="a", recorded_betas="a,b") == ("differs", "header anthropic-beta")
    assert verdict(scrubbed_fields=("a credential",))[0] == "differs"
