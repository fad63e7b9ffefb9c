"""The way to the upstream: TLS that is verified, connections that are used again, a path of the address kept."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.agents.capture.server import certificate_files, proxy_for, trust_certificates
from flightlog.lab.resample.send import SampleCall, open_client, send_request
from flightlog.model.errors import Invalid
from flightlog.model.exchange import ResponseOutcome
from support.captures import BODY, exchanges, plain, running_proxy
from support.upstream import answering, call, parts

CALL = """
import socket, ssl, sys, threading
from pathlib import Path
from support.captures import BODY, exchanges, running_proxy
from support.upstream import call, parts

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
listener = socket.create_server(("127.0.0.1", 0))

def serve():
    while True:
        plain, _ = listener.accept()
        try:
            with context.wrap_socket(plain, server_side=True) as connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 6\\r\\n\\r\\nsecret")
        except ssl.SSLError:
            pass

threading.Thread(target=serve, daemon=True).start()
with running_proxy(f"https://localhost:{listener.getsockname()[1]}", Path("x")) as (url, recorder):
    status, _, body, _ = parts(call(url, BODY))
print(status, body.decode(), exchanges(Path("x")).read_exchanges()[0].response.ending.value, len(recorder.losses))
"""


def make_certificate(folder):
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "2",
    ]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


def test_certificates_are_read_once_and_those_that_cannot_be_are_named(tmp_path):
    files = certificate_files({"SSL_CERT_FILE": str(make_certificate(tmp_path))})
    (tmp_path / "empty.pem").touch()

    trusted = trust_certificates(files)

    assert trust_certificates(files) is trusted, "requests of one context share connections"
    assert {("commonName", "localhost")} in [
        set(names) for authority in trusted.get_ca_certs() for names in authority["subject"]
    ]
    assert trust_certificates(()) is True
    with pytest.raises(Invalid, match=r"no certificates can be read: .*empty\.pem"):
        trust_certificates((str(tmp_path / "empty.pem"),))


def over_tls(folder, *, trusted):
    """Call an upstream with a certificate of its own, in a process that trusts it or does not."""
    make_certificate(folder)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    env |= {"SSL_CERT_FILE": "cert.pem"} if trusted else {}
    ran = subprocess.run(
        [sys.executable, "-c", CALL],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.strip()


def test_call_reaches_an_upstream_with_tls(tmp_path):
    assert over_tls(tmp_path, trusted=True) == "200 secret complete 0"


def test_an_untrusted_upstream_is_not_used(tmp_path):
    answer = over_tls(tmp_path, trusted=False)

    assert answer.startswith("502 ")
    assert "secret" not in answer
    assert answer.endswith("unanswered 0")


def test_a_path_of_the_upstream_precedes_the_clients(tmp_path):
    seen = []

    def answer(connection, request):
        seen.append(request.partition(b" HTTP")[0])
        plain(b"{}")(connection, request)

    with (
        answering(answer) as upstream,
        running_proxy(f"{upstream}/gate/way/", tmp_path / "x") as (url, _),
    ):
        call(url, BODY, path="/v1/messages?beta=true&x=%2F")
        call(url, b"", method="HEAD", path="/")

    assert seen == [b"POST /gate/way/v1/messages?beta=true&x=%2F", b"HEAD /gate/way/"]


def test_sequential_calls_share_a_connection_unless_it_was_closed(tmp_path):
    ports = []

    def answer(connection, request):
        ports.append(connection.getpeername()[1])
        plain(b"{}", headers="connection: close\r\n" if len(ports) == 2 else "")(
            connection, request
        )

    with answering(answer) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        for _ in range(3):
            assert parts(call(url, BODY))[0] == 200

    assert ports[0] == ports[1] != ports[2]


def test_answer_that_is_not_http_becomes_a_502(tmp_path):
    def answer(connection, _):
        connection.sendall(b"SSH-2.0-x\r\n\r\n")

    with answering(answer) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        status = parts(call(url, BODY))[0]

    assert status == 502
    assert (
        exchanges(tmp_path / "x").read_exchanges()[0].response.ending is ResponseOutcome.UNANSWERED
    )


def test_upstream_with_tls_is_reached_through_the_machines_proxy(tmp_path):
    seen = []

    def refuse(connection, request):
        seen.append(request)
        connection.sendall(b"HTTP/1.1 502 no\r\ncontent-length: 0\r\n\r\n")

    with (
        answering(refuse) as proxy,
        running_proxy("https://api.example.invalid", tmp_path, proxy=proxy) as (url, _),
    ):
        status, *_ = parts(call(url, BODY, "x-api-key: hidden\r\n"))

    assert status == 502
    assert seen[0].startswith(b"CONNECT api.example.invalid:443 ")
    assert not [request for request in seen if b"hidden" in request]


def forwarding(target, seen):
    """Answer as a forward proxy does: send each request on to `target`, whatever its host."""

    def answer(connection, request):
        seen.append(request)
        head, _, body = request.partition(b"\r\n\r\n")
        words = head.split(b"\r\n")[0].split(b" ")
        path = b"/" + words[1].split(b"/", 3)[3]
        connection.sendall(call(target, body, path=path.decode()))

    return answer


def test_upstream_without_tls_is_reached_through_the_machines_proxy(tmp_path):
    seen, reached = [], []

    def model(connection, request):
        reached.append(request.partition(b" HTTP")[0])
        plain(b'{"from": "the model"}')(connection, request)

    with answering(model) as target, answering(forwarding(target, seen)) as proxy:
        login = proxy.replace("//", "//me:word@")
        with running_proxy("http://api.example.invalid/v", tmp_path, proxy=login) as (url, _):
            answers = [parts(call(url, BODY)) for _ in range(2)]
        sent = asyncio.run(send_sample(login))

    assert [(answer[0], answer[2]) for answer in answers] == [(200, b'{"from": "the model"}')] * 2
    assert (sent.status, sent.body) == (200, b'{"from": "the model"}')
    assert reached == [b"POST /v/v1/messages"] * 3
    for request in seen:
        head = request.partition(b"\r\n\r\n")[0].lower()
        assert head.startswith(b"post http://api.example.invalid/v/v1/messages http/1.1\r\n")
        assert b"\r\nhost: api.example.invalid\r\n" in head
        assert b"\r\nproxy-authorization: basic " in head


async def send_sample(proxy):
    made = SampleCall(
        "http://api.example.invalid/v/v1/messages", {}, "anthropic", 20.0, needs_key=False
    )
    async with open_client() as http:
        return await send_request(http, made, BODY, {"HTTP_PROXY": proxy})


@pytest.mark.parametrize(
    ("address", "given", "expected"),
    [
        ("https://api.example", {"HTTPS_PROXY": "http://proxy:1"}, "http://proxy:1"),
        ("https://api.example", {"https_proxy": "proxy:1"}, "http://proxy:1"),
        ("https://api.example", {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "x, .example"}, ""),
        ("https://api.example", {"HTTPS_PROXY": "http://proxy:1", "no_proxy": "*"}, ""),
        (
            "http://api.example",
            {"HTTPS_PROXY": "http://proxy:1", "HTTP_PROXY": "http://proxy:2"},
            "http://proxy:2",
        ),
        ("http://api.example", {"HTTPS_PROXY": "http://proxy:1"}, ""),
        (
            "http://api.example:81",
            {"http_proxy": "proxy:2", "NO_PROXY": "api.example:80"},
            "http://proxy:2",
        ),
        ("http://api.example:81", {"http_proxy": "proxy:2", "NO_PROXY": "api.example:81"}, ""),
        ("http://[::1]:8", {"HTTP_PROXY": "http://proxy:1", "ALL_PROXY": "http://proxy:1"}, ""),
        ("https://127.0.0.1:8", {"HTTPS_PROXY": "http://proxy:1"}, ""),
        ("https://localhost", {"HTTPS_PROXY": "http://proxy:1"}, ""),
        ("https://api.example", {}, ""),
    ],
)
def test_proxy_comes_from_the_environment_but_not_for_this_machine(address, given, expected):
    assert proxy_for(address, given) == expected
