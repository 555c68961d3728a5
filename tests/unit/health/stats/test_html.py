"""The HTML report: whole in itself, well-formed, escaped, and legible in light and dark."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import rekord as rk
from rekord.report.charts import escape_html, render_histogram
from rekord.report.style import STYLE
from rekord.testing import corrupt_payload, example_bytes, frames

HOSTILE = "\"><script>alert('x')</script><img src=https://evil.example/x onerror=alert(1)>\x00\u202e&amp;"


@pytest.fixture
def hostile(put_records, tmp_path):
    """A dataset whose names and values would all like to be markup."""
    for split, shift in (("train", 0), ("val", 5)):
        rows = [
            {HOSTILE: [i], "text": [f"{HOSTILE}{i % 3}".encode()], "label": [i % 2], "x": [i / 7 + shift]}
            for i in range(40)
        ]
        put_records([example_bytes(row) for row in rows], f"{split}.tfrecord")
    schema = rk.Schema({"label": rk.Label(["<b>cat</b>", "</style>"]), "gone": rk.Float32(optional=True)})
    return rk.stats(tmp_path, schema=schema)


def parsed(page):
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def texts(element):
    return " ".join(" ".join(element.itertext()).split())


def test_the_page_is_well_formed_and_has_every_feature(hostile):
    root = parsed(hostile.to_html())
    names = [texts(one) for one in root.iter("h3")]
    assert names == [escaped_text(name) for name in hostile.features if name != "gone"]
    assert table_below(root, "Constant features") == [["gone", "float", "no values", "100%"]]
    anchors = {one.get("href") for one in root.iter("a")}
    ids = {"#" + one.get("id") for one in root.iter() if one.get("id")}
    assert anchors <= ids
    assert len(ids) == len([one for one in root.iter() if one.get("id")]), "an id is given once"


def table_below(root, heading):
    """The rows of the table that follows a heading."""
    (main,) = root.iter("main")
    children = list(main)
    at = next(i for i, one in enumerate(children) if one.tag == "h2" and texts(one) == heading)
    body = next(one for below in children[at:] for one in below.iter("tbody"))
    return [[texts(cell) for cell in row] for row in body]


def escaped_text(name):
    """A name as a reader sees it."""
    return " ".join("".join(one if one.isprintable() else escape_html(one) for one in name).split())


def test_names_and_values_are_text_and_never_markup(hostile):
    page = hostile.to_html()
    root = parsed(page)
    assert {one.tag for one in root.iter()}.isdisjoint({"script", "img", "b>", "iframe", "object", "link"})
    assert all(not name.startswith("on") for one in root.iter() for name in one.attrib)
    assert "<script" not in page
    assert "\x00" not in page
    assert "\u202e" not in page
    assert page.count("</style>") == 1
    assert "<b>cat</b>" in texts(root)


def test_nothing_is_fetched_from_anywhere(hostile):
    root = parsed(hostile.to_html())
    for one in root.iter():
        assert (one.get("src") or "data:image/").startswith("data:image/")
        assert (one.get("href") or "#").startswith("#")
        assert "url(" not in (one.get("style") or "")
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    (policy,) = [one for one in root.iter("meta") if one.get("http-equiv")]
    assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_every_chart_can_be_heard(hostile):
    charts = [one for one in parsed(hostile.to_html()).iter("svg") if one.get("role") == "img"]
    assert charts
    for chart in charts:
        assert chart.get("aria-label")
        assert texts(chart.find("title")) == " ".join(chart.get("aria-label").split())


def test_a_chart_says_its_range_and_where_most_values_are():
    drawn = ElementTree.fromstring(render_histogram([0.0, 1.0, 2.0], [1, 3], "x"))
    assert drawn.get("aria-label") == "x: from 0 to 2; most, 75%, from 1 to 2"
    assert len(list(drawn.iter("rect"))) == 2


def test_damage_is_said_on_top(put_file):
    data = frames([example_bytes({"x": [i]}) for i in range(5)])
    root = parsed(rk.stats(put_file(corrupt_payload(data, 2))).to_html())
    (notice,) = [one for one in root.iter("div") if one.get("role") == "note"]
    assert "F102 payload checksum does not match" in texts(notice)
    assert "record 2" in texts(notice)


def test_a_dataset_without_records_has_a_page(put_file):
    assert "0 records" in texts(parsed(rk.stats(put_file(b"")).to_html()))


def test_splits_stand_side_by_side(hostile):
    root = parsed(hostile.to_html())
    captions = [texts(one) for one in root.iter("figcaption")]
    assert captions.count("train") == captions.count("val") >= 1
    verdicts = [texts(one) for one in root.iter("span") if "pill" in (one.get("class") or "")]
    assert "differs" in verdicts


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ("ink", "page"),
        ("ink", "card"),
        ("soft", "page"),
        ("soft", "card"),
        ("soft", "faint"),
        ("accent", "page"),
        ("accent", "card"),
        ("accent", "wash"),
        ("warn", "card"),
        ("warn", "warn-wash"),
        ("ink", "warn-wash"),
    ],
)
def test_text_stands_out_from_its_ground(theme, ink, paper):
    found = {name: re.findall(rf"--{name}: (#[0-9a-f]{{6}})", STYLE)[theme] for name in (ink, paper)}
    low, high = sorted(luminance(colour) for colour in found.values())
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_every_line_of_the_sheet_is_understood():
    """A property that was broken by a line end is dropped by browsers in silence."""
    without_blocks = re.sub(r"@media[^{]*", "", STYLE)
    declarations = [part.strip() for block in re.findall(r"{([^{}]*)}", without_blocks) for part in block.split(";")]
    broken = [one for one in declarations if one and not re.fullmatch(r"-{0,2}[a-z-]*[a-z]: \S[^:]*", one)]
    assert declarations
    assert broken == []
