"""The viewer in a real browser: what a person sees and does, compared with what rekord reads."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as Pillow
from playwright.sync_api import Browser, Locator, Page, expect
from viewer_data import CLASSES, MARKER, MARKER_BOX, write_bomb, write_media, write_numbers
from viewer_process import RunningViewer, open_page, run_viewer

import rekord as rk

Served: TypeAlias = tuple[Path, RunningViewer]

MILLION = 1_000_000


def centre(locator: Locator) -> tuple[float, float]:
    """The middle of an element, in pixels of the page."""
    box = locator.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def read_total(page: Page) -> int:
    """The number of records that the filters leave."""
    return int(page.locator(".facet-total b").inner_text().replace(",", ""))


def test_a_jump_in_a_file_of_a_million_records_shows_what_reading_gives(browser: Browser, tmp_path: Path) -> None:
    path = write_numbers(tmp_path, MILLION)
    split = next(iter(rk.open(path).splits.values()))
    with run_viewer(path, cache=tmp_path / "cache") as viewer:
        page, log = open_page(browser, viewer.url)
        # The first records are there before the file is indexed.
        expect(page.locator("[data-index='0'] [role=cell]").nth(2)).to_have_text("0")
        expect(page.locator(".state b")).to_have_text(f"{MILLION:,}")
        for number in (765_432, 999_999, 3):
            before = len(log.paths("api/rows"))
            page.keyboard.press("g")
            page.locator("#jump-to").fill(str(number))
            page.keyboard.press("Enter")
            cells = page.locator(f"[data-index='{number}'] [role=cell]")
            row = split[number]
            names = [name.strip() for name in page.locator(".table-head [role=columnheader]").all_inner_texts()]
            for i, name in enumerate(names[1:], 1):
                expect(cells.nth(i)).to_have_text(str(row[name.split()[0]]))
            expect(page.locator(f"[data-index='{number}'] a")).to_be_focused()
            assert len(log.paths("api/rows")) - before <= 3  # it did not page through what lies between
        # Of all rows only the visible ones exist.
        assert page.locator(".table-row").count() < 100


def test_the_scroll_bar_reaches_the_last_of_a_million_records(browser: Browser, tmp_path: Path) -> None:
    with run_viewer(write_numbers(tmp_path, MILLION), cache=tmp_path / "cache") as viewer:
        page, _ = open_page(browser, viewer.url)
        expect(page.locator(".state b")).to_have_text(f"{MILLION:,}")
        table = page.locator(".records-table")
        height = table.evaluate("element => element.scrollHeight")
        assert height < 17_895_697  # the tallest element of Firefox
        table.evaluate("element => { element.scrollTop = element.scrollHeight }")
        expect(page.locator(f"[data-index='{MILLION - 1}']")).to_be_in_viewport()
        table.evaluate("element => { element.scrollTop = 0 }")
        expect(page.locator("[data-index='0']")).to_be_in_viewport()


def test_hovering_a_mask_reads_the_class_ids_that_decoding_gives(browser: Browser, masks: Served) -> None:
    path, viewer = masks
    decoded = next(iter(rk.open(path)["train"].batches(12, decode=True)))
    page, _ = open_page(browser, f"{viewer.url}?view=record&record=3")
    stage = page.locator(".stage")
    expect(page.locator(".legend li").first).to_be_visible()
    box = stage.bounding_box()
    assert box is not None
    ids = np.asarray(decoded["mask"][3])
    height, width = ids.shape[:2]
    for x, y in ((0, 0), (10, 40), (60, 10), (95, 63), (47, 31), (48, 32)):
        page.mouse.move(box["x"] + (x + 0.5) * box["width"] / width, box["y"] + (y + 0.5) * box["height"] / height)
        expect(page.locator(".reading")).to_contain_text(f"x {x}, y {y}")
        expect(page.locator(".reading-id")).to_have_text(str(int(ids[y, x])))
    # The same by keyboard: the pixel at the centre, then one to the left.
    stage.focus()
    page.keyboard.press("ArrowLeft")
    x, y = width // 2 - 1, height // 2
    expect(page.locator(".reading")).to_contain_text(f"x {x}, y {y}")
    expect(page.locator(".reading-id")).to_have_text(str(int(ids[y, x])))


def test_masks_are_drawn_over_the_image_and_switched_off(browser: Browser, masks: Served) -> None:
    _, viewer = masks
    page, log = open_page(browser, f"{viewer.url}?view=record&record=3")
    mask = page.locator(".stage canvas.mask")
    expect(mask).to_be_visible()
    before = len(log.requests)
    page.keyboard.press("m")
    expect(mask).to_be_hidden()
    page.keyboard.press("m")
    expect(mask).to_be_visible()
    page.keyboard.press("]")
    expect(mask).to_have_css("opacity", "0.7")
    page.keyboard.press("[")
    page.keyboard.press("[")
    expect(mask).to_have_css("opacity", "0.5")
    assert [url for url in log.requests[before:] if "status" not in url] == []  # switching requests nothing


@pytest.mark.parametrize("view", ["record", "gallery"])
def test_boxes_of_a_rotated_jpeg_lie_on_what_they_mark(browser: Browser, rotated: Served, view: str) -> None:
    _, viewer = rotated
    query = "?view=record&record=0" if view == "record" else "?view=gallery"
    page, _ = open_page(browser, viewer.url + query, height=1000)
    if view == "gallery":
        page.locator(".tile-size input").fill("420")
    box = page.locator(".box").first
    expect(box).to_contain_text("marker")
    image = page.locator(".stage img" if view == "record" else ".frame img").first
    image.evaluate("element => element.decode()")
    shown = box.bounding_box()
    assert shown is not None
    page.keyboard.press("b")
    expect(box).to_be_hidden()
    around = page.locator(".stage" if view == "record" else ".shot").first.bounding_box()
    assert around is not None
    centres = [(x + around["x"], y + around["y"]) for x, y in find_marker_centres(page.screenshot(clip={**around}))]
    assert len(centres) == 4
    corners = [
        (shown["x"] + dx * shown["width"], shown["y"] + dy * shown["height"]) for dx in (0, 1) for dy in (0, 1)
    ]
    for x, y in corners:
        assert min(max(abs(x - a), abs(y - b)) for a, b in centres) <= 1
    # Upright: what is stored as rows is shown as columns.
    ymin, xmin, ymax, xmax = MARKER_BOX
    frame = image.bounding_box()
    assert frame is not None
    assert shown["width"] / frame["width"] == pytest.approx(ymax - ymin, abs=0.01)
    assert shown["height"] / frame["height"] == pytest.approx(xmax - xmin, abs=0.01)


def find_marker_centres(screenshot: bytes) -> list[tuple[float, float]]:
    """The centres of the magenta squares."""
    pixels = np.asarray(Pillow.open(io.BytesIO(screenshot)).convert("RGB")).astype(int)
    marked: npt.NDArray[np.bool_] = np.abs(pixels - np.array(MARKER)).sum(axis=2) < 120
    rows, columns = np.nonzero(marked)
    found = []
    for top in (rows < (rows.min() + rows.max()) / 2, rows >= (rows.min() + rows.max()) / 2):
        for left in (columns < (columns.min() + columns.max()) / 2, columns >= (columns.min() + columns.max()) / 2):
            here = top & left
            if here.any():
                found.append(
                    (
                        (columns[here].min() + columns[here].max() + 1) / 2,
                        (rows[here].min() + rows[here].max() + 1) / 2,
                    )
                )
    return found


def test_class_bars_sql_and_brushes_agree_with_queries(browser: Browser, masks: Served) -> None:
    path, viewer = masks

    def count(condition: str) -> int:
        found: int = rk.query(path, f"select count(*) as n from records where {condition}")["n"][0].as_py()
        return found

    page, log = open_page(browser, viewer.url)
    expect(page.locator(".facet-total b")).to_have_text("12")
    dog = page.locator("[data-column=label] .bar-button", has_text="dog")
    dog.click()
    expect(dog).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".facet-total b")).to_have_text(str(count("label = 2")))
    expect(page.locator(".tile")).to_have_count(count("label = 2"))
    expect(page.locator("[data-column=label] .bar-button", has_text="dog")).to_be_focused()

    # A filter on the same column is widened, one on another column narrows.
    page.locator("[data-column=label] .bar-button", has_text="cat").click()
    expect(page.locator(".facet-total b")).to_have_text(str(count("label in (1, 2)")))
    brush = page.locator("[data-column=width] .brush")
    box = brush.bounding_box()
    assert box is not None
    with page.expect_response(re.compile("api/cube")):
        page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 20)
    page.mouse.down()
    before = len(log.requests)
    for step in range(1, 11):
        page.mouse.move(box["x"] + box["width"] * (0.4 + 0.05 * step), box["y"] + 20)
    expect(page.locator("[data-column=width] output")).to_contain_text("selected")
    assert [url for url in log.requests[before:] if "status" not in url] == []
    expect(page.locator("[data-column=width].is-brushed")).to_be_visible()
    brushed = read_total(page)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"range\.width="))
    found = re.search(r"range\.width=([\d.]+?)\.\.([\d.]+)", page.url)
    assert found is not None
    low, high = map(float, found.groups())
    expected = count(f"label in (1, 2) and width >= {low} and width < {high}")
    assert brushed == expected
    expect(page.locator(".tile")).to_have_count(expected)

    page.keyboard.press("/")
    page.keyboard.type("label = 1")
    page.keyboard.press("Enter")
    narrower = count(f"label = 1 and width >= {low} and width < {high}")
    expect(page.locator(".tile")).to_have_count(narrower)
    expect(page.locator(".facet-total b")).to_have_text(str(narrower))

    # A copied link shows the same elsewhere, and Back undoes one step at a time.
    copy, _ = open_page(browser, page.url)
    expect(copy.locator(".tile")).to_have_count(narrower)
    expect(copy.locator(".query")).to_have_value("label = 1")
    page.go_back()
    expect(page.locator(".tile")).to_have_count(expected)
    page.go_back()
    expect(page.locator(".facet-total b")).to_have_text(str(count("label in (1, 2)")))
    expect(page.locator("[data-column=width].is-brushed")).to_have_count(0)


def test_facets_that_filter_something_come_first_and_the_others_are_only_named(
    browser: Browser, cache: Path, tmp_path: Path
) -> None:
    rows = [
        {"file": f"{i}.png", "height": 480, "width": i * 3 % 7, "kind": "ab"[i % 2], "main": i % 3} for i in range(9)
    ]
    schema = rk.Schema(
        {"file": rk.Text(), "height": rk.Int64(), "width": rk.Int64(), "kind": rk.Text(), "main": rk.Label(CLASSES)}
    )
    rk.write(rows, tmp_path / "data", schema=schema, progress=False)
    with run_viewer(tmp_path / "data", cache=cache) as viewer:
        page, _ = open_page(browser, viewer.url)
        expect(page.locator(".facet h3")).to_have_text(
            ["main", "kind", "width", "Same in every record", "Different in every record"]
        )
        expect(page.locator(".facet dl").nth(0)).to_have_text("height480")
        expect(page.locator(".facet dl").nth(1)).to_have_text("file9 values")
        # A filter that a link has is shown, and can be removed.
        page, _ = open_page(browser, f"{viewer.url}?in.file=3.png")
        expect(page.locator("[data-column=file] .bar-button", has_text="3.png")).to_have_attribute(
            "aria-pressed", "true"
        )


def test_findings_of_the_check_reach_rows_that_were_shown_before(browser: Browser, leak: Served) -> None:
    page, _ = open_page(browser, f"{leak[1].url}?split=train")
    expect(page.locator("[data-index='5'] .pill")).to_have_text("1 finding")
    page.locator("[data-index='5'] a").click()
    expect(page.locator(".record-findings a")).to_contain_text("H787: ")
    page.locator(".record-findings a").click()
    expect(page.locator(".finding")).to_have_count(1)


def test_columns_of_a_table_are_as_wide_as_their_names(browser: Browser, cache: Path, tmp_path: Path) -> None:
    names = ["next_time_step/observation", "next_time_step/reward", "x"]
    rk.write([dict.fromkeys(names, 1)] * 3, tmp_path / "data", progress=False)
    with run_viewer(tmp_path / "data", cache=cache) as viewer:
        page, _ = open_page(browser, f"{viewer.url}?view=table", width=390)
        heads = page.locator(".table-head [role=columnheader]")
        expect(heads).to_have_count(4)
        for i in range(1, 4):
            assert heads.nth(i).locator("button").evaluate("one => one.scrollWidth <= one.clientWidth + 1")


def test_a_mosaic_without_classes_has_no_table_of_them(browser: Browser, cache: Path, tmp_path: Path) -> None:
    rows = [{"image": np.full((8, 8, 3), i, np.uint8)} for i in range(4)]
    rk.write(rows, tmp_path / "data", schema=rk.Schema({"image": rk.Image(format="png")}), progress=False)
    with run_viewer(tmp_path / "data", cache=cache) as viewer:
        page, _ = open_page(browser, f"{viewer.url}?view=mosaic")
        expect(page.locator(".mosaic-tools progress")).to_be_hidden()
        expect(page.locator(".mosaic-table")).to_be_hidden()


def test_an_invalid_condition_is_explained(browser: Browser, masks: Served) -> None:
    page, _ = open_page(browser, masks[1].url)
    page.locator(".query").fill("labl = 1")
    page.keyboard.press("Enter")
    expect(page.locator(".view .notice")).to_contain_text("labl")


def test_damage_is_marked_and_every_finding_leads_to_its_record(browser: Browser, damaged: Served) -> None:
    _, viewer = damaged
    page, _ = open_page(browser, viewer.url)
    expect(page.locator(".damaged-badge")).to_have_text("100 damaged")
    expect(page.locator("[data-index='3']")).to_contain_text("record 3")
    page.keyboard.press("g")
    page.locator("#jump-to").fill("150")
    page.keyboard.press("Enter")
    expect(page.locator("[data-index='150']")).to_contain_text("record 150")
    expect(page.locator("[data-index='150'] .pill")).to_have_count(0)
    page.keyboard.press("g")
    page.locator("#jump-to").fill("25")
    page.keyboard.press("Enter")
    expect(page.locator("[data-index='25'] .pill").first).to_have_text("damaged")
    page.locator(".damaged-badge").click()
    reached: set[str] = set()
    while True:
        expect(page.locator(".finding").first).to_be_visible()
        for button in page.locator(".record-links button").all():
            button.click()
        reached |= {str(link.get_attribute("href")) for link in page.locator(".record-links a").all()}
        following = page.locator(".pager button", has_text="Next")
        if following.count() == 0 or following.is_disabled():
            break
        first = page.locator(".finding").first.get_attribute("id")
        following.click()
        expect(page.locator(".finding").first).not_to_have_attribute("id", str(first))
    records = {int(found[1]) for link in reached if (found := re.search(r"record=(\d+)", link))}
    assert records == set(range(20, 120))
    page.locator(".record-links a").last.click()
    expect(page.locator(".view .notice")).to_contain_text("payload checksum does not match")
    page.locator("summary", has_text="Bytes of the frame").click()
    expect(page.locator(".hex-parts")).to_contain_text("does not match")


def test_a_leak_is_shown_side_by_side_with_one_zoom(browser: Browser, leak: Served) -> None:
    page, _ = open_page(browser, f"{leak[1].url}?view=pairs&kind=leak")
    expect(page.locator(".pair-list a")).to_have_text(["train 5 = validation 3"])
    stages = page.locator(".twin .stage")
    expect(stages).to_have_count(2)
    stages.first.focus()
    page.keyboard.press("+")
    transforms = [stages.nth(i).locator(".stage-content").evaluate("one => one.style.transform") for i in (0, 1)]
    assert transforms[0] == transforms[1]
    assert transforms[0].startswith("scale(1.5)")


def test_selected_records_of_two_shards_are_what_the_printed_command_deletes(
    browser: Browser, masks: Served, tmp_path: Path
) -> None:
    path, viewer = masks
    page, _ = open_page(browser, viewer.url)
    expect(page.locator(".tile-link")).to_have_count(12)
    page.locator("[data-index='1'] a").focus()
    page.keyboard.press("x")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    page.keyboard.press("End")
    page.keyboard.press("x")
    expect(page.locator(".selection-bar b")).to_have_text("3 selected")
    page.locator(".selection-bar button", has_text="Delete").click()
    page.locator("#curate-out").fill(str(tmp_path / "kept"))
    expect(page.locator("pre[data-kind=command]")).to_contain_text(str(tmp_path / "kept"))
    expect(page.locator("pre[data-kind=csv]")).to_contain_text("11")
    expect(page.locator("pre[data-kind=python]")).to_contain_text("rk.")
    expect(page.locator(".dialog button.primary")).to_have_count(0)  # without --edit nothing is run
    command = shlex.split(page.locator("pre[data-kind=command]").inner_text())
    assert command[0] == "rekord"
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = [row["note"] for row in rk.open(tmp_path / "kept")["train"]]
    assert kept == [f"note {i}" for i in range(12) if i not in (1, 7, 11)]
    assert len(rk.open(path)["train"]) == 12


def test_the_page_writes_a_relabelled_dataset_only_with_edit(
    browser: Browser, masks: Served, cache: Path, tmp_path: Path
) -> None:
    path, _ = masks
    with run_viewer(path, "--edit", cache=cache) as viewer:
        page, _ = open_page(browser, f"{viewer.url}?view=record&record=2")
        page.locator(".record-nav input[type=checkbox]").check()
        page.locator(".selection-bar button", has_text="Relabel").click()
        page.locator("#curate-label").fill("bird")
        page.locator("#curate-out").fill(str(tmp_path / "relabelled"))
        expect(page.locator("pre[data-kind=command]")).to_contain_text("relabel")
        page.locator(".dialog button.primary").click()
        expect(page.locator(".dialog .good")).to_contain_text("relabelled")
        labels = [int(row["label"]) for row in rk.open(tmp_path / "relabelled")["train"]]
        assert labels == [3 if i == 2 else i % 4 for i in range(12)]
        # It never replaces: the same again is refused.
        page.locator(".dialog header button").click()
        page.locator(".selection-bar button", has_text="Relabel").click()
        page.locator("#curate-label").fill("cat")
        page.locator("#curate-out").fill(str(tmp_path / "relabelled"))
        page.locator(".dialog button.primary").click()
        expect(page.locator(".dialog .notice")).to_be_visible()


def test_tagged_records_are_found_again(browser: Browser, masks: Served) -> None:
    _, viewer = masks
    page, _ = open_page(browser, f"{viewer.url}?view=record&record=4")
    page.locator(".record-nav input[type=checkbox]").check()
    page.locator(".selection-bar button", has_text="Tag").click()
    page.keyboard.type("odd one")
    page.keyboard.press("Enter")
    expect(page.locator(".dialog")).to_have_count(0)
    again, _ = open_page(browser, f"{viewer.url}?tag=odd+one")
    expect(again.locator(".tile-caption b")).to_have_text(["4"])


def test_the_mosaic_sorts_by_class_without_a_request_and_opens_a_record(browser: Browser, masks: Served) -> None:
    page, log = open_page(browser, f"{masks[1].url}?view=mosaic")
    canvas = page.locator(".mosaic-canvas")
    expect(page.locator(".mosaic-tools progress")).to_be_hidden()
    before = len(log.paths("api/mosaic"))
    page.locator(".mosaic-tools select").select_option("label")
    canvas.focus()
    page.keyboard.press("Home")
    expect(page.locator(".mosaic-tools .reading")).to_have_text("Record 0, background")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".mosaic-tools .reading")).to_have_text("Record 4, background")
    assert len(log.paths("api/mosaic")) == before
    page.keyboard.press("Enter")
    expect(page.locator(".record-title")).to_contain_text("Record 4")
    page.go_back()
    expect(page.locator(".mosaic-tools select")).to_have_value("label")
    table = page.locator(".mosaic-table")
    table.locator("summary").click()
    expect(table.locator("tbody th")).to_have_text(CLASSES)


def test_two_datasets_are_compared_by_key(browser: Browser, cache: Path, tmp_path: Path) -> None:
    schema = rk.Schema({"name": rk.Text(), "label": rk.Label(CLASSES)})
    names = [f"n{i}" for i in range(8)]
    rk.write(
        [{"name": name, "label": i % 4} for i, name in enumerate(names)],
        tmp_path / "a",
        schema=schema,
        progress=False,
    )
    changed = [{"name": name, "label": 0 if name == "n5" else i % 4} for i, name in enumerate([*names[1:]], 1)]
    rk.write([*changed, {"name": "new", "label": 2}], tmp_path / "b", schema=schema, progress=False)
    with run_viewer(tmp_path / "a", tmp_path / "b", cache=cache) as viewer:
        page, _ = open_page(browser, f"{viewer.url}?view=compare&key=name")
        expect(page.locator(".subtabs a")).to_have_text(["Changed 1", "Only in A 1", "Only in B 1", "All 9"])
        expect(page.locator(".pair-list a bdi")).to_have_text(["n5"])
        expect(page.locator("tr.differs").first).to_contain_text("label")
        page.locator(".subtabs a", has_text="Only in B").click()
        expect(page.locator(".pair-list a bdi")).to_have_text(["new"])
        expect(page.locator(".twin").first).to_contain_text("not there")


def test_sounds_text_and_steps_of_a_record_are_shown(browser: Browser, cache: Path, tmp_path: Path) -> None:
    with run_viewer(write_media(tmp_path), cache=cache) as viewer:
        page, log = open_page(browser, f"{viewer.url}?view=record&record=1")
        expect(page.locator("canvas.waveform")).to_have_attribute("aria-label", re.compile("Waveform, 0.5 seconds"))
        audio = page.locator("audio")
        audio.evaluate("one => new Promise((done) => one.readyState ? done() : (one.onloadedmetadata = done))")
        assert audio.evaluate("one => one.duration") == pytest.approx(0.5, abs=0.01)
        expect(page.locator("pre.text")).to_contain_text("many words")
        steps = page.locator("table.steps tbody tr")
        expect(steps).to_have_count(3)
        expect(steps.nth(1)).to_contain_text("2.5")
        expect(page.locator(".step-image")).to_have_count(3)
        page.locator(".step-image").nth(2).evaluate("element => element.decode()")
        page.locator("summary", has_text="Bytes of the frame").click()
        data = (tmp_path / "media.tfrecord").read_bytes()
        first = page.locator(".hex-line").first
        expect(first.locator(".hex-offset")).to_have_text(str(len(data) // 2))
        expect(first).to_contain_text(" ".join(f"{byte:02x}" for byte in data[len(data) // 2 :][:16]))
        assert log.errors == []
        assert log.console == []


def test_a_tensor_is_a_heat_map_with_its_numbers(browser: Browser, cache: Path, tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    schema = rk.Schema({"matrix": rk.Tensor("float32", (3, 4))})
    rk.write([{"matrix": values}] * 2, tmp_path / "data", schema=schema, progress=False)
    with run_viewer(tmp_path / "data", cache=cache) as viewer:
        page, _ = open_page(browser, f"{viewer.url}?view=record&record=1")
        expect(page.locator("canvas.heatmap")).to_have_attribute("aria-label", "Heat map, from 0 to 11")
        page.locator(".tensor summary").click()
        expect(page.locator(".tensor tbody tr").nth(2).locator("td")).to_have_text(["8", "9", "10", "11"])


def test_an_image_of_too_many_pixels_is_not_decoded(browser: Browser, cache: Path, tmp_path: Path) -> None:
    with run_viewer(write_bomb(tmp_path), cache=cache) as viewer:
        page, log = open_page(browser, viewer.url)
        expect(page.locator("[data-index='1'] .gone")).to_have_text("image too large")
        expect(page.locator("[data-index='0'] img")).to_be_visible()
        assert [url for url in log.paths("api/thumb") if "record=1&" in url] == []
        page.locator("[data-index='1'] a").click()
        expect(page.locator("p.gone")).to_have_text("40000 × 40000: too large")


def test_an_empty_file_has_a_state_of_its_own(browser: Browser, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    with run_viewer(tmp_path / "empty.tfrecord", cache=cache) as viewer:
        page, _ = open_page(browser, viewer.url)
        expect(page.locator(".empty")).to_contain_text("No records")


def test_the_page_says_when_its_server_is_gone(browser: Browser, cache: Path, tmp_path: Path) -> None:
    with run_viewer(write_numbers(tmp_path, 10), cache=cache) as viewer:
        page, _ = open_page(browser, viewer.url)
        expect(page.locator("[data-index='9']")).to_be_visible()
        viewer.process.kill()
        viewer.process.wait()
        page.locator(".tabs a", has_text="Findings").click()
        expect(page.locator(".banner")).to_contain_text("server does not answer")


def test_two_viewers_run_at_once(browser: Browser, masks: Served, damaged: Served) -> None:
    assert masks[1].origin != damaged[1].origin
    first, _ = open_page(browser, masks[1].url)
    second, _ = open_page(browser, damaged[1].url)
    third, _ = open_page(browser, masks[1].url)
    for page, name in ((first, "masks"), (second, "damaged.tfrecord"), (third, "masks")):
        expect(page.locator("h1 bdi")).to_have_text(name)
        expect(page.locator(".state b")).not_to_have_text("0")
