"""A session is redacted as one document, with the values of its own project, and both numbers are true."""

from datetime import UTC

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.archive.sharing import redact_session, rescan_page
from flightlog.model.output_files import Redacted
from flightlog.privacy.redactor import Redactor
from flightlog.web.share import SCRIPT, STYLES, render_share_page
from flightlog.web.templates import STATIC, make_environment
from support.cli_runs import within
from support.transcripts import SESSION, archive, assistant, user, write

VALUE = "9fQ2xL7vKp3WzR8tYb6N"
ASSIGNED = f"export ACME_TOKEN={VALUE}"


def redact(source):
    return redact_session(open_runtime(), source, source.read_session(SESSION), Redactor(b"k" * 32))


def test_value_recognized_once_is_replaced_in_every_thread(tmp_path):
    path = write(
        tmp_path,
        SESSION,
        user(ASSIGNED),
        assistant("m1", 2, {"type": "text", "text": f"I send {VALUE}"}),
    )
    subagent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    subagent.parent.mkdir(parents=True)
    write(tmp_path, "subagent", user(f"use {VALUE}", 5, isSidechain=True, agentId="a1")).rename(
        subagent
    )

    document, _ = redact(Archive({"claude-code": (str(tmp_path),)}))

    assert VALUE not in repr(document.value)
    assert len(document.value.session.subagents) == 1
    assert document.secrets == 4  # the title is the prompt again


def test_value_in_a_record_that_is_not_shown_is_still_known(tmp_path):
    unseen = {**user("x", 1), "type": "progress", "data": {"message": ASSIGNED}}

    document, _ = redact(archive(tmp_path, unseen, user(f"sent {VALUE}", 2)))

    assert VALUE not in repr(document.value)


def test_title_is_cut_after_it_was_redacted(tmp_path):
    document, _ = redact(archive(tmp_path, user(f"{'word ' * 13}{VALUE} {ASSIGNED}")))

    assert VALUE[:8] not in document.value.session.heading
    assert len(document.value.session.heading) <= 80


def test_secrets_and_personal_details_are_counted_apart(tmp_path):
    source = archive(tmp_path, user(f"{ASSIGNED}; mail ada.lovelace@engines.co.uk"))
    document, cleaner = redact(source)

    page = render_share_page(document, cleaner, make_environment(UTC, lambda: 0))

    # Both are in the title too; the directory of each record names a person.
    assert (page.secrets, page.personal > 2) == (2, True)
    assert f"2 secrets and {page.personal} personal details removed" in page.value


def test_page_is_searched_again_and_what_is_found_is_counted():
    cleaner = Redactor(b"k" * 32)

    page = rescan_page(Redacted(f"<p>{ASSIGNED}</p>", 1, 2), cleaner, html=True)

    assert VALUE not in page.value
    assert "&lt;secret:" in page.value
    assert (page.secrets, page.personal) == (2, 2)


@pytest.mark.parametrize("name", [*STYLES, SCRIPT])
def test_search_of_a_page_changes_none_of_its_own_parts(name):
    own = (STATIC / name).read_text("utf-8")

    assert Redactor(b"k" * 32).redact_string(own) == own


def test_page_without_anything_private_says_so(tmp_path):
    records = [{**record, "cwd": "/srv/shop"} for record in (user("hello"), assistant("m1", 2))]
    write(tmp_path, SESSION, *records)

    shared = within(tmp_path, "share", SESSION, "--output", str(tmp_path / "page.html"))
    exported = within(tmp_path, "session", "export", SESSION, "--redact")

    assert "0 secrets and 0 personal details removed" in shared.err
    assert "0 secrets and 0 personal details removed" in exported.err
    assert "<b>0 secrets and 0 personal details removed</b>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("form", [("--format", "md"), ("--format", "json"), ("--atif",)])
def test_export_that_is_not_redacted_says_so(tmp_path, form):
    write(tmp_path, SESSION, user(ASSIGNED))

    ran = within(tmp_path, "session", "export", SESSION, *form)

    assert VALUE in ran.out
    assert (
        f"not redacted, may contain secrets and personal data; before sharing: flightlog session export {SESSION}"
        in (ran.err)
    )
