"""What is sent in place of what a client says, told on small requests."""

from msgspec.structs import replace

from flightlog.lab.replay.certificate import (
    Certificate,
    RequestFacts,
    WorkTreeState,
    certify_request,
    certify_work_tree,
)
from flightlog.lab.replay.recorded_context import (
    RecordedContext,
    insert_counters,
    insert_reminders,
)

MARK = "[flightlog branch point 1]"
CACHED = {"cache_control": {"type": "ephemeral"}}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def make_reply(words):
    return {"role": "assistant", "content": [text(words)]}


RECORDED = {
    "model": "m",
    "system": [text("be good")],
    "tools": [{"name": "Bash", "input_schema": {}}],
    "max_tokens": 10,
    "messages": [user(text("hello")), make_reply("hi"), user(text("result", **CACHED))],
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
            user(text("hello")),
            make_reply("hi"),
            mine,
            {"role": "system", "content": "added with it"},
        )
    )
    more = [make_reply("more"), user(text("done", **CACHED))]

    later = context.splice_context(
        client(
            user(text("hello")),
            make_reply("hi"),
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
        client(user(text("hello")), make_reply("hi"), user(text("result"), text(MARK)))
    )

    later = context.splice_context(
        client(user(text("summary"), text(MARK)), make_reply("more"), user(text("x")))
    )

    assert later.body["messages"] == [user(text("summary")), make_reply("more"), user(text("x"))]
    assert later.replacements == ("sentinel",)


def test_a_request_without_the_marker_is_unchanged_and_differs():
    context = RecordedContext(RECORDED, MARK)

    assert context.splice_context(client(user(text("hello")))) is None
    certificate = certify_request(context, None, RequestFacts(), "any")
    assert (certificate.context, certificate.first_difference) == (
        "differs",
        "the branch point is not in the client's first request",
    )


def test_difference_that_the_proxy_cannot_fix_is_reported():
    def verdict(**facts):
        context = RecordedContext(RECORDED, MARK, "please")
        spliced = context.splice_context(client(user(text(f"{MARK}\nplease"))))
        certificate = certify_request(context, spliced, RequestFacts(**facts), "any")
        return certificate.context, certificate.environment, certificate.first_difference

    known = {"client": "2", "recorded_client": "2"}
    assert verdict(tools=frozenset({"Bash", "Read"}), **known) == ("exact+prompt", "exact", "")
    assert verdict(tools=frozenset({"Read"}), **known) == (
        "exact+prompt",
        "differs",
        "tools.Bash (the client does not have it)",
    )
    assert verdict(client="1", recorded_client="2")[1:] == (
        "differs",
        "client 1 (recorded with 2)",
    )
    assert verdict(scrubbed_fields=("a credential",))[0] == "differs"
    assert verdict(rebuilt_fidelity="partial")[:2] == ("unknown", "unknown")


def test_the_verdict_is_the_worst_of_its_parts():
    recorded = WorkTreeState({"a": "1"}, {"a": (5, 0o644)}, {".git/HEAD": "2"})
    certificate = Certificate("exact+prompt", "any", environment="exact")

    same = certify_work_tree(certificate, recorded, recorded)
    touched = certify_work_tree(certificate, replace(recorded, times={"a": (6, 0o644)}), recorded)
    committed = certify_work_tree(certificate, replace(recorded, repository={}), recorded)
    unsaved = certify_work_tree(certificate, recorded, None)

    assert (same.verdict, same.files, same.repository) == ("exact+prompt", "exact", "exact")
    assert (touched.verdict, touched.first_difference) == ("differs", "files.a (time or mode)")
    assert (committed.repository, committed.first_difference) == (
        "differs",
        "repository..git/HEAD",
    )
    assert (unsaved.verdict, unsaved.is_drift) == ("unknown", False)


def test_counters_in_tool_results_are_the_recorded_ones():
    def result(count, words="same"):
        text = f"{words}\n<total_tokens>{count} tokens left</total_tokens>"
        return user({"type": "tool_result", "tool_use_id": "t", "content": text})

    after = [make_reply("go"), result(10), make_reply("more"), result(8)]
    own = [make_reply("go"), result(99, "other"), make_reply("else"), result(98)]

    merged = insert_reminders(own, after)

    assert merged == [make_reply("go"), result(10, "other"), make_reply("else"), result(98)]


def test_reminders_after_a_tools_text_are_the_recorded_ones():
    note, todo = (f"\n\n<system-reminder>\n{word}\n</system-reminder>" for word in ("n", "todo"))

    assert insert_counters(f"1 a{note}{todo}", f"    1 a{note}\n") == f"    1 a{note}\n"
    assert insert_counters("1 a", f"1 a{todo}") == f"1 a{todo}"
    assert insert_counters(f"other{todo}", "    1 a") == "other"
    assert insert_counters(f"other{note}", f"1 a{todo}") == f"other{todo}"
    assert insert_counters(note, "1 a") == note


def test_a_session_that_resumes_later_sends_what_its_recording_sent():
    context = RecordedContext(
        {"messages": [user(text("do it")), make_reply("a"), user(text("b"))]}, MARK
    )
    recorded = [user(text("do it")), make_reply("a"), user(text("c"), text("go on"))]
    context.mark_resumed(recorded)

    sent = context.splice_context({"messages": [user(text(MARK), text("go on"))]}, compacts=True)

    assert sent.body["messages"] == recorded
