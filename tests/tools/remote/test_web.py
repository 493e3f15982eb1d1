from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.errors import ConfigError, ToolError, ToolErrorKind
from monitor.tools.artifacts.artifact_store import InMemoryArtifacts, Recent, Reference
from monitor.tools.remote import page_program, web
from monitor.tools.remote.page_program import text_of_page
from monitor.tools.remote.web import SearchResult, WebTools, checked_url, is_public
from monitor.tools.results.call_results import ToolAnswer
from tests.processes import ask, nothing_left  # noqa: F401 - a fixture

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-01")]

PAGE = """<!doctype html><html><head><title>The  page</title><style>p {color: red}</style></head>
<body><h1>A heading</h1><p>Some <b>bold</b> text with a <a href="/next?a=1">link</a>.</p>
<script>alert("no")</script><ul><li>one<li>two</ul><pre>x = 1
  y = 2</pre><table><tr><td>a</td><td>b</td></tr></table><img alt="a cat" src="x"></body></html>"""


class Site(BaseHTTPRequestHandler):
    asked: list[str]
    validators: dict[str, str]
    """The headers by which each page says whether it has changed."""
    statuses: list[int]
    """200 or 304 for each page: whether it was sent."""

    @staticmethod
    def asks(headers: Any) -> Any:
        return headers.get("if-none-match") or headers.get("if-modified-since")

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        kind, content, headers = "text/html; charset=utf-8", PAGE.encode(), dict(type(self).validators)
        status = 200
        if headers and type(self).asks(self.headers) in headers.values():
            status, content = 304, b""
        type(self).statuses.append(status)
        match self.path:
            case "/latin":
                kind, content = "text/plain; charset=latin-1", "café".encode("latin-1")
            case "/json":
                kind, content = "application/json", b'{"a": 1}'
            case "/image":
                kind, content = "image/png", b"\x89PNG"
            case "/big":
                kind, content = "text/plain", b"x" * 300_000
            case "/zipped":
                kind, content, headers = "text/plain", gzip.compress(b"y" * 300_000), {"content-encoding": "gzip"}
            case "/missing":
                status, kind, content = 404, "text/plain", b"there is no such page"
            case "/once":
                status, headers = 302, {"location": "/json"}
            case "/round":
                status, headers = 302, {"location": "/round"}
            case "/out":
                status, headers = 302, {"location": "file:///etc/passwd"}
            case "/slow":
                threading.Event().wait(2)
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    Site.asked, Site.statuses, Site.validators = [], [], {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def fetch(url: str, **options: Any) -> ToolAnswer:
    return await ask(WebTools(**{"private": True, **options}).tools(), "web_fetch", url=url)


async def refused(url: str, **options: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await fetch(url, **options)
    return caught.value


@pytest.mark.usefixtures("nothing_left")
async def test_a_page_is_read_as_text(site: str):
    answer = await fetch(f"{site}/")
    assert answer.status == f"HTTP 200; {site}/"
    assert answer.text.split("\n") == [
        "The page", "", "# A heading", "", f"Some bold text with a [link]({site}/next?a=1).", "",
        "- one", "- two", "", "x = 1", "  y = 2", "", " | a | b", "", "[image: a cat]",
    ]  # fmt: skip


async def test_other_texts_are_read_as_they_are(site: str):
    assert (await fetch(f"{site}/json")).text == '{"a": 1}'
    assert (await fetch(f"{site}/latin")).text == "café"
    assert (await fetch(f"{site}/once")).text == '{"a": 1}'


async def test_what_is_no_text_is_refused(site: str):
    assert "image/png" in str(await refused(f"{site}/image"))


async def test_a_missing_page_is_an_error_that_can_be_read(site: str):
    answer = await fetch(f"{site}/missing")
    assert (answer.is_error, answer.error_kind) == (True, ToolErrorKind.NOT_FOUND)
    assert "no such page" in answer.text


@pytest.mark.parametrize("path", ["big", "zipped"])
async def test_a_page_is_bounded(site: str, path: str):
    answer = await fetch(f"{site}/{path}", max_bytes=100_000)
    assert len(answer.text) == 100_000
    assert answer.status is not None
    assert "the first 100,000 bytes" in answer.status


async def test_a_slow_page_and_endless_redirects_end(site: str):
    assert (await refused(f"{site}/slow", timeout_s=0.2)).kind is ToolErrorKind.TIMEOUT
    assert "redirects" in str(await refused(f"{site}/round"))


@pytest.mark.usefixtures("nothing_left")
async def test_a_page_that_takes_long_to_read_is_left(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hangs = tmp_path / "hangs.py"
    hangs.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(page_program, "__file__", str(hangs))
    monkeypatch.setattr(web, "PAGE_S", 0.001)
    assert (await refused(f"{site}/")).kind is ToolErrorKind.TIMEOUT


# --- pages that have not changed


@pytest.mark.feature("MA-01")
async def test_a_page_says_its_address_and_its_title_by_itself(site: str):
    assert (await fetch(f"{site}/")).reference == Reference(kind="page", url=f"{site}/", note="The page")
    assert (await fetch(f"{site}/once")).reference == Reference(kind="page", url=f"{site}/json")
    assert (await fetch(f"{site}/missing")).reference is None


@pytest.mark.feature("MA-03")
@pytest.mark.parametrize("validator", [{"ETag": '"v1"'}, {"ETag": 'W/"v1"'}, {"Last-Modified": "Mon, 01 Jan 2024"}])
async def test_a_page_that_has_not_changed_is_not_sent_again(site: str, validator: dict[str, str]):
    Site.validators = validator
    web_tools = WebTools(private=True)
    first = await ask(web_tools.tools(), "web_fetch", url=f"{site}/")
    assert await ask(web_tools.tools(), "web_fetch", url=f"{site}/") == first
    assert Site.statuses == [200, 304]
    Site.validators = {name: value.replace("1", "2") for name, value in validator.items()}
    assert await ask(web_tools.tools(), "web_fetch", url=f"{site}/") == first
    assert Site.statuses == [200, 304, 200]


@pytest.mark.feature("MA-03")
@pytest.mark.parametrize(
    "headers",
    [{}, {"ETag": '"v1"', "Cache-Control": "private, no-store"}, {"ETag": '"\xe9"'}, {"ETag": '"' + "v" * 2_000 + '"'}],
)
async def test_a_page_without_a_validator_that_can_be_sent_back_is_read_anew(site: str, headers: dict[str, str]):
    Site.validators = headers
    web_tools = WebTools(private=True)
    answers = [await ask(web_tools.tools(), "web_fetch", url=f"{site}/") for _ in range(2)]
    assert answers[0] == answers[1]
    assert Site.statuses == [200, 200]


@pytest.mark.feature("MA-03")
async def test_two_groups_of_tools_may_share_what_is_known_of_pages(site: str):
    Site.validators = {"ETag": '"v1"'}
    recent = Recent(InMemoryArtifacts())
    assert await fetch(f"{site}/", recent=recent) == await fetch(f"{site}/", recent=recent)
    assert Site.statuses == [200, 304]


@pytest.mark.feature("MA-03")
async def test_the_beginning_of_a_long_page_does_not_stand_for_the_page(site: str):
    Site.validators = {"ETag": '"v1"'}
    recent = Recent(InMemoryArtifacts())
    await fetch(f"{site}/big", recent=recent, max_bytes=1_000)
    assert len((await fetch(f"{site}/big", recent=recent)).text) == 300_000
    assert Site.statuses == [200, 200]


# --- addresses


async def test_private_addresses_are_refused_before_anything_is_sent(site: str):
    port = site.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::1]"):
        error = await refused(f"http://{host}:{port}/", private=False)
        assert error.kind in {ToolErrorKind.PERMISSION, ToolErrorKind.NOT_FOUND}
    assert Site.asked == []


async def test_a_name_that_leads_elsewhere_the_second_time_is_refused(site: str, monkeypatch: pytest.MonkeyPatch):
    """The check of the name passes; the connection is then made to this machine."""

    async def passes(host: str) -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(web, "check_public", passes)
    assert (await refused(f"{site}/", private=False)).kind is ToolErrorKind.PERMISSION
    assert Site.asked == []


async def test_a_redirect_is_checked_as_the_first_address_is(site: str):
    assert (await refused(f"{site}/out")).kind is ToolErrorKind.INVALID_ARGUMENTS
    assert Site.asked == ["/out"]


PUBLIC = ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
PRIVATE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1"),
    *("::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "localhost", ""),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_public_network(address: str):
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_no_public_network(address: str):
    assert not is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "ftp://a.b/c", "gopher://a", "http://", "http:///x", "a.b/c", "", "http://a:99999/"),
        *(
            "http://user:secret@a.b/",
            "http://a b/",
            "http://a/\r\nHost: x",
            "http://a/\u202e",
            "http://[::1",
            "http://a" + "b" * 5000,
        ),
    ],
)
def test_what_is_no_address_of_the_web_is_refused(url: str):
    with pytest.raises(ToolError) as caught:
        checked_url(url)
    assert "secret" not in str(caught.value)


# --- pages


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("just text", "just text"),
        ("a<br>b", "a\nb"),
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("a <i>b</i> c", "a b c"),
        ("a&amp;b &#8364; &nosuch;", "a&b € &nosuch;"),
        ("<head><title>T</title><body>x", "T\n\nx"),
        ("<script>never closed", ""),
        ("x<!-- closed -->y", "xy"),
        ("<a href='javascript:alert(1)'>y</a>", "y"),
        ("<a href='b'>y</a>", "[y](http://a/b)"),
        ("</li></a></pre></x>z", "z"),
    ],
)
def test_a_page_becomes_text(page: str, text: str):
    assert text_of_page(page, "http://a/") == text


# --- search


class Found:
    async def search(self, query: str, limit: int) -> list[SearchResult]:
        return [SearchResult(f"{query} {number}", f"http://a/{number}", "About it.") for number in range(20)]


async def test_a_search_asks_the_provider():
    answer = await ask(WebTools(search=Found()).tools(), "web_search", query="cats")
    assert answer.status == "10 found"
    assert answer.text.startswith("cats 0\nhttp://a/0\nAbout it.\n\ncats 1\n")


def test_without_a_provider_there_is_no_search():
    assert [tool.spec.name for tool in WebTools().tools()] == ["web_fetch"]


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"max_bytes": 0}, {"search": Found}, {"search": "google"}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match="WebTools"):
        WebTools(**options)
