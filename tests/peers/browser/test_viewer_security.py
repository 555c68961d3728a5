"""The viewer against hostile records, pages and hosts, in a real browser."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect
from viewer_process import RunningViewer, open_page

Served: TypeAlias = tuple[Path, RunningViewer]

VIEWS = [
    "",
    "?view=table",
    "?view=record&record=0",
    "?view=findings",
    "?view=pairs",
    "?view=query&query=select+*+from+records",
]


def test_nothing_in_records_runs(browser: Browser, hostile: Served) -> None:
    for view in VIEWS:
        page, log = open_page(browser, hostile[1].url + view)
        expect(page.locator(".state b")).to_have_text("4")
        if "record=0" in view:
            expect(page.locator("table.features")).to_contain_text("<script>document.title = 'broken'</script>")
            # Letters that reorder or end text are spelled out.
            expect(page.locator("table.features")).to_contain_text("right\\u202eleft")
            expect(page.locator("table.features")).to_contain_text("nul\\x00key")
        if "findings" in view:
            expect(page.locator(".finding").first).to_be_visible()
        assert "broken" not in page.title()
        assert page.locator("main script, main svg script, main iframe, main object").count() == 0
        assert log.errors == []
        assert log.console == []
        page.context.close()


def test_hostile_addresses_of_the_page_are_harmless(browser: Browser, hostile: Served) -> None:
    for query in (
        "?view=%3Cscript%3E&split=%3Cb%3E&record=99999999999999999999&at=-5",
        "?in.%3Cimg%20src=x%20onerror=alert(1)%3E=1&range.x=1..%3Cb%3E",
        "?view=record&record=77",
        "?view=__proto__&finding=__proto__&sort=constructor&side=9",
    ):
        page, log = open_page(browser, hostile[1].url + query)
        expect(page.locator("h1")).to_contain_text("hostile.tfrecord")
        expect(page.locator(".state b")).to_have_text("4")
        assert log.errors == []
        page.context.close()


def test_every_request_goes_to_our_own_origin_below_the_token(
    browser: Browser, masks: Served, damaged: Served, leak: Served
) -> None:
    for (_, viewer), views in (
        (masks, ["", "?view=table", "?view=mosaic", "?view=record&record=1"]),
        (damaged, ["?view=findings"]),
        (leak, ["?view=pairs&kind=leak"]),
    ):
        for view in views:
            page, log = open_page(browser, viewer.url + view)
            expect(page.locator("main :is(.tile-link, .table-row, canvas, .stage, .finding)").first).to_be_visible()
            assert log.requests != []
            assert [url for url in log.requests if not url.startswith((viewer.url, "blob:"))] == []
            assert log.console == []
            assert log.errors == []
            page.context.close()


def test_the_files_of_the_page_are_small_and_all_our_own(browser: Browser, masks: Served) -> None:
    page, log = open_page(browser, masks[1].url)
    expect(page.locator(".tile-link").first).to_be_visible()
    static = Path(__file__).parents[3] / "src" / "rekord" / "viewer" / "static"
    names = {urlsplit(url).path.rpartition("/")[2] for url in log.paths("/static/")}
    assert names - {"tokens.css"} <= {file.name for file in static.iterdir()}
    folder = urlsplit(masks[1].url).path
    packed = {"Accept-Encoding": "gzip"}
    answers = [ask(masks[1], f"{folder}static/{name}", packed) for name in sorted(names)]
    assert {answer.getheader("Content-Encoding") for answer in answers} == {"gzip"}
    assert sum(int(str(answer.getheader("Content-Length"))) for answer in answers) <= 75_000


def ask(viewer: RunningViewer, path: str, headers: dict[str, str], method: str = "GET") -> http.client.HTTPResponse:
    """A request as a program sends it, to the address as it is."""
    parts = urlsplit(viewer.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in ({"Host": parts.netloc} | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("{token}/api/session", {}, {200}),
        ("/api/session", {}, {403, 404}),
        ("/" + "0" * 32 + "/api/session", {}, {403, 404}),
        ("{token}/api/session", {"Host": "evil.example"}, {421}),
        ("{token}/api/session", {"Host": "localhost:1"}, {200}),  # a tunnel of ssh has a port of its own
        ("{token}/api/session", {"Origin": "https://evil.example"}, {403}),
        ("{token}/static/..%2f..%2fserver.py", {}, {404}),
        ("{token}/static/../../server.py", {}, {404}),
        ("{token}/..%2f..%2fetc%2fpasswd", {}, {404}),
    ],
)
def test_requests_without_token_host_or_origin_are_refused(
    masks: Served, path: str, headers: dict[str, str], status: set[int]
) -> None:
    token = urlsplit(masks[1].url).path.rstrip("/")
    assert ask(masks[1], path.replace("{token}", token), headers).status in status


def test_the_page_is_sent_with_a_strict_policy(masks: Served) -> None:
    answer = ask(masks[1], urlsplit(masks[1].url).path, {})
    policy = str(answer.getheader("Content-Security-Policy"))
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "base-uri 'none'", "frame-ancestors"):
        assert part in policy
    assert "unsafe" not in policy
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
