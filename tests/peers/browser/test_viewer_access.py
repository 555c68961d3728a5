"""The viewer for everybody: axe finds nothing in any view, and the keyboard is enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect
from viewer_data import write_predictions
from viewer_process import RunningViewer, open_page, run_viewer

Served: TypeAlias = tuple[Path, RunningViewer]

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
SIZES = [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]


def find_violations(page: Page) -> list[str]:
    """What axe finds, one line each."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


VIEWS = {
    "gallery": ("?", ".tile-link"),
    "filtered": ("?in.label=1&range.width=0..9", ".chip"),
    "table": ("?view=table", ".table-row[data-index]"),
    "mosaic": ("?view=mosaic&by=label", ".mosaic-canvas"),
    "record": ("?view=record&record=3", ".legend li"),
    "query": ("?view=query&query=select+label,+count(*)+from+records+group+by+1", "tbody td"),
    "empty": ("?where=label+%3D+99", ".empty button"),
    "error": ("?where=labl+%3D+1", ".notice"),
}


@pytest.mark.parametrize(("theme", "width"), SIZES)
def test_axe_finds_nothing_in_any_view_of_records(browser: Browser, masks: Served, theme: str, width: int) -> None:
    for query, shown in VIEWS.values():
        page, log = open_page(browser, masks[1].url + query, theme=theme, width=width)
        expect(page.locator(shown).first).to_be_visible()
        expect(page.locator(".state b")).to_have_text("12")
        assert find_violations(page) == [], query
        assert page.evaluate("document.documentElement.scrollWidth") <= width, query
        assert log.errors == []
        page.context.close()


@pytest.mark.parametrize(("theme", "width"), SIZES)
def test_axe_finds_nothing_in_dialogs_and_after_a_selection(
    browser: Browser, masks: Served, theme: str, width: int
) -> None:
    page, _ = open_page(browser, f"{masks[1].url}?view=record&record=3", theme=theme, width=width)
    page.locator(".record-nav input[type=checkbox]").check()
    expect(page.locator(".selection-bar")).to_be_visible()
    assert find_violations(page) == []
    for name in ("Tag", "Delete", "Relabel"):
        page.locator(".selection-bar button", has_text=name).click()
        expect(page.locator("dialog")).to_be_visible()
        if name == "Delete":
            expect(page.locator("pre[data-kind=csv]")).to_be_visible()
        assert find_violations(page) == [], name
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_be_visible()
    assert find_violations(page) == []


@pytest.mark.parametrize(("theme", "width"), SIZES)
def test_axe_finds_nothing_in_findings_pairs_and_damage(
    browser: Browser, damaged: Served, leak: Served, hostile: Served, theme: str, width: int
) -> None:
    places = [
        (damaged, "?view=findings", ".finding"),
        (damaged, "?view=record&record=25", ".notice"),
        (damaged, "?view=table&at=20", ".table-row .pill.alert"),
        (leak, "?view=pairs&kind=leak", ".twin .stage"),
        (leak, "?view=pairs", ".empty"),
        (hostile, "?view=record&record=0", "table.features"),
    ]
    for (_, viewer), query, shown in places:
        page, _ = open_page(browser, viewer.url + query, theme=theme, width=width)
        expect(page.locator(shown).first).to_be_visible()
        assert find_violations(page) == [], query
        page.context.close()


@pytest.mark.parametrize(("theme", "width"), SIZES)
@pytest.mark.parametrize("records", [0, 5])
def test_axe_finds_nothing_while_records_are_indexed(
    browser: Browser, masks: Served, theme: str, width: int, records: int
) -> None:
    """The server answers as it does early on; the state lasts as long as the test needs it."""

    def answer_early(route: Route) -> None:
        response = route.fetch()
        document = response.json()
        if "sides" in document:
            document["busy"] = True
            document["sides"][0]["splits"][0] |= {"records": records, "complete": False, "state": "indexing"}
        elif "rows" in document:
            document |= {"rows": document["rows"][:records], "total": records, "complete": False}
        route.fulfill(response=response, json=document)

    page, _ = open_page(browser, "about:blank", theme=theme, width=width)
    page.route(re.compile("/api/(status|rows)"), answer_early)
    page.goto(masks[1].url)
    expect(page.locator(".state progress")).to_be_visible()
    expect(page.locator(".empty h2" if not records else ".tile-link").first).to_be_visible()
    assert find_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.unroute_all(behavior="ignoreErrors")
    page.context.close()


@pytest.mark.parametrize(("theme", "width"), SIZES)
def test_axe_finds_nothing_after_the_server_is_gone(
    browser: Browser, masks: Served, cache: Path, theme: str, width: int
) -> None:
    with run_viewer(masks[0], cache=cache) as viewer:
        page, _ = open_page(browser, viewer.url, theme=theme, width=width)
        expect(page.locator(".tile-link").first).to_be_visible()
        viewer.process.kill()
        viewer.process.wait()
        page.locator(".tabs a", has_text="Findings").click()
        expect(page.locator(".banner")).to_be_visible()
        expect(page.locator(".view .notice")).to_be_visible()
        assert find_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.context.close()


@pytest.mark.parametrize(("theme", "width"), SIZES)
def test_axe_finds_nothing_in_comparisons_and_predictions(
    browser: Browser, masks: Served, cache: Path, tmp_path: Path, theme: str, width: int
) -> None:
    path, _ = masks
    predictions = write_predictions(tmp_path)
    with run_viewer(path, path, "--predictions", predictions, cache=cache) as viewer:
        for query, shown in (
            ("?view=compare&key=note&only=all", ".pair-list a"),
            ("?view=predictions", "table.heat"),
        ):
            page, _ = open_page(browser, viewer.url + query, theme=theme, width=width)
            expect(page.locator(shown).first).to_be_visible()
            assert find_violations(page) == [], query
            page.context.close()


def test_a_cell_of_the_confusion_matrix_opens_its_records(
    browser: Browser, masks: Served, cache: Path, tmp_path: Path
) -> None:
    path, _ = masks
    with run_viewer(path, "--predictions", write_predictions(tmp_path), cache=cache) as viewer:
        page, _ = open_page(browser, f"{viewer.url}?view=predictions")
        page.locator("table.heat a[aria-label='2 of dog predicted as cat']").click()
        expect(page.locator(".tile-caption b")).to_have_text(["2", "6"])


def test_everything_is_reached_by_keyboard_alone(browser: Browser, masks: Served) -> None:
    page, _ = open_page(browser, masks[1].url)
    expect(page.locator(".tile-link")).to_have_count(12)
    keys = page.keyboard
    # Into the gallery, along it, into a record, to the next one, and back to the tile that was left.
    keys.press("ArrowDown")
    expect(page.locator("[data-index='0'] a")).to_be_focused()
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    expect(page.locator("[data-index='2'] a")).to_be_focused()
    keys.press("Enter")
    expect(page.locator(".record-title")).to_contain_text("Record 2")
    expect(page.locator(".stage")).to_be_focused()
    keys.press("n")
    expect(page.locator(".record-title")).to_contain_text("Record 3")
    keys.press("x")
    expect(page.locator(".selection-bar b")).to_have_text("1 selected")
    keys.press("Escape")
    expect(page.locator("[data-index='3'] a")).to_be_focused()
    expect(page.locator("[data-index='3']")).to_have_class(re.compile("selected"))
    # Themes, overlays, the query box, a jump.
    keys.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    keys.press("m")
    expect(page.locator("html")).to_have_class(re.compile("no-masks"))
    keys.press("b")
    expect(page.locator("html")).to_have_class(re.compile("no-boxes"))
    keys.press("g")
    keys.type("9")
    keys.press("Enter")
    expect(page.locator("[data-index='9'] a")).to_be_focused()
    keys.press("/")
    keys.type("label = 1")
    keys.press("Enter")
    expect(page.locator(".tile")).to_have_count(3)
    keys.press("Escape")
    # A slider of a histogram, reached with Tab, filters too.
    page.locator("[data-column=width] input").first.focus()
    for _ in range(3):
        keys.press("ArrowRight")
    expect(page).to_have_url(re.compile("range.width="))
    # Every view has a number.
    for number, name in enumerate(("gallery", "table", "mosaic", "findings", "pairs"), 1):
        page.locator("body").evaluate("() => document.activeElement.blur()")
        keys.press(str(number))
        expect(page.locator(f".view-{name}")).to_be_visible()
    # Tab alone reaches the first tab after the link that skips to the records.
    page.goto(masks[1].url)
    expect(page.locator(".tile-link")).to_have_count(12)
    keys.press("Tab")
    expect(page.locator(".skip")).to_be_focused()


def test_single_keys_can_be_switched_off(browser: Browser, masks: Served) -> None:
    page, _ = open_page(browser, masks[1].url)
    page.keyboard.press("?")
    page.locator("dialog input[type=checkbox]").uncheck()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("?")
    page.keyboard.press("t")
    expect(page.locator("dialog")).to_have_count(0)
    page.reload()
    expect(page.locator(".tile-link")).to_have_count(12)
    page.keyboard.press("t")
    assert page.locator("html").get_attribute("data-theme") is None


def test_what_happens_is_told_to_screen_readers(browser: Browser, masks: Served) -> None:
    page, _ = open_page(browser, masks[1].url)
    expect(page.locator(".tile-link")).to_have_count(12)
    said = page.locator("[role=status][aria-live=polite]")
    page.locator("[data-index='1'] a").focus()
    page.keyboard.press("x")
    expect(said).to_have_text("Record 1 selected")
    page.locator("[data-column=label] .bar-button", has_text="dog").click()
    expect(said).to_have_text("label: dog selected")
    # Charts have tables behind them, and classes have patterns next to colours.
    page.locator("[data-column=width] summary").click()
    expect(page.locator("[data-column=width] tbody th").first).to_be_visible()
    page.locator(".overlay-tools label", has_text="Patterns").click()
    page.locator("[data-index='0'] a").click()
    expect(page.locator(".legend-button").nth(1)).to_have_attribute("aria-label", re.compile("lines|dots|solid"))
