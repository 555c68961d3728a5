import json
from itertools import pairwise

import numpy as np
import pytest
from viewer_client import open_viewer

import rekord as rk
from rekord.testing import corrupt_payload, example_bytes, frames
from rekord.viewer.facets import choose_edges


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("facets") / "d"
    chance = np.random.default_rng(7)
    rows = [
        {
            "label": int(chance.integers(4)),
            "width": int(chance.integers(100, 1000)),
            "score": float(chance.normal()),
            "place": ["lab", "field", "sea"][int(chance.integers(3))],
        }
        for _ in range(2000)
    ]
    rows[5]["score"] = float("nan")
    schema = rk.Schema(
        {"label": rk.Label(["a", "b", "c", "d"]), "width": rk.Int64(), "score": rk.Float32(), "place": rk.Text()}
    )
    rk.write(rows, folder, schema=schema, shuffle=False, progress=False)
    return folder


@pytest.fixture(scope="module")
def viewer(dataset):
    with open_viewer(dataset) as client:
        client.wait()
        client.json("facets")
        client.wait()
        yield client


def count(dataset, condition):
    return rk.query(dataset, f"select count(*) from records where {condition}").column(0)[0].as_py()


def facets_of(answer):
    return {one["column"]: one for one in answer["facets"]}


def test_bars_and_histograms_count_every_record(viewer, dataset):
    answer = viewer.json("facets")
    facets = facets_of(answer)
    assert (answer["complete"], answer["records"], answer["of"], answer["selected"]) == (True, 2000, 2000, 2000)
    assert facets["label"]["names"] == ["a", "b", "c", "d"]
    assert facets["label"]["counts"] == [count(dataset, f"label = {i}") for i in range(4)]
    assert facets["place"]["counts"] == [count(dataset, f"place = '{name}'") for name in facets["place"]["names"]]
    edges = facets["width"]["edges"]
    assert facets["width"]["counts"] == [
        count(dataset, f"width >= {low} and width < {high}") for low, high in pairwise(edges)
    ]
    assert (facets["score"]["missing"], sum(facets["score"]["counts"])) == (1, 1999)


def test_facets_come_in_the_order_of_the_page_with_their_ranges_as_text(viewer):
    answer = viewer.json("facets")
    facets = facets_of(answer)
    assert [one["type"] for one in answer["facets"]] == ["class", "text", "number", "number"]
    edges, lows, highs = (facets["width"][name] for name in ("edges", "lows", "highs"))
    assert lows == [f"{edge:,.0f}" for edge in edges]
    assert highs == [f"{edge - 1:,.0f}" for edge in edges]  # a range of integers ends below the edge
    assert facets["score"]["lows"] == facets["score"]["highs"] == [f"{edge:.5g}" for edge in facets["score"]["edges"]]
    assert [one["listed"] for one in answer["facets"]] == [None] * 4


def test_a_column_with_one_value_or_one_per_record_is_only_named(tmp_path):
    rows = [{"height": [4800], "kind": [b"cat"], "file": [b"%d.png" % i], "part": [i % 2]} for i in range(9)]
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes(row) for row in rows]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        viewer.json("facets")
        viewer.wait()
        facets = facets_of(viewer.json("facets"))
        chosen = facets_of(viewer.json("facets", filter='{"file": {"in": ["3.png"]}}'))
    assert {name: one["listed"] for name, one in facets.items()} == {
        "height": {"as": "same", "text": "4,800"},
        "kind": {"as": "same", "text": "cat"},
        "file": {"as": "unique", "text": "9 values"},
        "part": None,
    }
    assert chosen["file"]["listed"] is None  # its filter can be cleared


@pytest.mark.parametrize(
    "filters",
    [
        {"label": {"in": [1, 3]}},
        {"place": {"in": [0, 2]}},
        {"place": {"in": ["sea"]}},
        {"width": {"range": [200, 500]}},
        {"width": {"in": [250, 251, 252]}},
        {"score": {"range": [-0.3, 0.7]}},
        {"label": {"in": [2]}, "width": {"range": [100, 300]}, "score": {"range": [0, 9]}},
        {"label": {"in": []}},
    ],
)
def test_filters_and_the_condition_that_they_stand_for_select_the_same_records(viewer, dataset, filters):
    text = json.dumps(filters)
    answer = viewer.json("facets", filter=text)
    expected = (
        rk.query(dataset, f"select _record from records where {answer['sql']} order by 1").column(0).to_pylist()
    )
    assert answer["selected"] == len(expected)
    assert [one for _, one in viewer.json("ids", filter=text, most=5000)["records"]] == expected
    page = viewer.json("rows", filter=text, count=10)
    assert (page["total"], [row["record"] for row in page["rows"]]) == (len(expected), expected[:10])


def test_a_facet_shows_the_filters_of_the_others_but_not_its_own(viewer, dataset):
    filters = json.dumps({"label": {"in": [1]}, "place": {"in": ["sea"]}})
    facets = facets_of(viewer.json("facets", filter=filters))
    assert facets["label"]["selected"] == [count(dataset, f"label = {i} and place = 'sea'") for i in range(4)]
    names = facets["place"]["names"]
    assert facets["place"]["selected"] == [count(dataset, f"label = 1 and place = '{name}'") for name in names]
    assert sum(facets["width"]["selected"]) == count(dataset, "label = 1 and place = 'sea'")


def test_brushing_needs_one_request_for_all_ranges(viewer, dataset):
    facets = facets_of(viewer.json("facets"))
    before = viewer.requests
    cube = viewer.json("cube", active="width", filter=json.dumps({"place": {"in": ["sea"]}}))
    assert viewer.requests == before + 1
    edges = facets["width"]["edges"]
    table = np.array(cube["cubes"]["label"]["cumulative"]).reshape(cube["bins"] + 1, -1)
    for first, end in [(0, cube["bins"]), (3, 9), (5, 5), (10, 11)]:
        condition = f"width >= {edges[first]} and width < {edges[end]} and place = 'sea'"
        expected = [count(dataset, f"{condition} and label = {i}") for i in range(4)]
        assert (table[end] - table[first]).tolist() == expected
        assert cube["totals"][end] - cube["totals"][first] == sum(expected)


def test_a_condition_narrows_the_facets_and_the_rows(viewer, dataset):
    condition = "label = 2 and length(place) = 3"
    answer = viewer.json("facets", sql=condition)
    assert answer["selected"] == count(dataset, condition) == viewer.json("rows", sql=condition)["total"]
    assert facets_of(answer)["label"]["selected"] == [0, 0, count(dataset, condition), 0]


@pytest.mark.parametrize(("order", "sql"), [("width", "width, _record"), ("-width", "width desc, _record")])
def test_records_are_ordered_by_a_column(viewer, dataset, order, sql):
    expected = rk.query(dataset, f"select _record from records order by {sql} limit 50").column(0).to_pylist()
    assert [one for _, one in viewer.json("ids", order=order, most=50)["records"]] == expected


def test_values_that_are_missing_are_a_filter_too(viewer):
    page = viewer.json("rows", filter='{"score": {"missing": true}}')
    assert [row["record"] for row in page["rows"]] == [5]


def test_facets_without_an_index_and_with_damage_count_the_good_records(tmp_path):
    data = frames([example_bytes({"label": [i % 3], "x": [i / 4]}) for i in range(300)])
    (tmp_path / "x.tfrecord").write_bytes(corrupt_payload(data, 100))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        viewer.json("facets")
        viewer.wait()
        answer = viewer.json("facets")
        few = viewer.json("rows", filter='{"x": {"range": [0, 1]}}')
    facets = facets_of(answer)
    assert answer["records"] == 300
    assert (sum(facets["x"]["counts"]), facets["x"]["missing"]) == (299, 1)
    assert [row["record"] for row in few["rows"]] == [0, 1, 2, 3]


def test_text_that_is_stored_as_bytes_has_bars_and_an_order(tmp_path):
    names = [b"cat", b"dog", b"cat", b"bird", b"cat"]
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes({"kind": [name]}) for name in names]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        viewer.json("facets")
        viewer.wait()
        answer = viewer.json("facets")
        facet = facets_of(answer)["kind"]
        assert dict(zip(facet["names"], facet["counts"], strict=True)) == {"cat": 3, "dog": 1, "bird": 1}
        chosen = viewer.json("rows", filter=json.dumps({"kind": {"in": ["cat"]}}))
        assert [row["record"] for row in chosen["rows"]] == [0, 2, 4]
        sql = viewer.json("facets", filter=json.dumps({"kind": {"in": ["cat"]}}))["sql"]
        assert [row["record"] for row in viewer.json("rows", sql=sql)["rows"]] == [0, 2, 4]
        assert [row["record"] for row in viewer.json("rows", order="kind")["rows"]] == [3, 0, 2, 4, 1]


def test_records_without_facets_are_counted(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes({"values": [1, 2, i]}) for i in range(3)]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        viewer.json("facets")
        viewer.wait()
        answer = viewer.json("facets")
    assert (answer["records"], answer["selected"], answer["facets"]) == (3, 3, [])


def test_a_query_returns_rows_and_the_records_that_they_are(viewer, dataset):
    sql = "select _split, _record, width from records where label = 3 order by width limit 5"
    answer = viewer.post("sql", {"query": sql}).json
    expected = rk.query(dataset, sql).to_pylist()
    assert answer["rows"] == [list(row.values()) for row in expected]
    assert answer["records"] == [[row["_split"], row["_record"]] for row in expected]
    cut = viewer.post("sql", {"query": "select width from records", "limit": 7}).json
    assert (len(cut["rows"]), cut["more"]) == (7, True)


@pytest.mark.parametrize(
    "sql",
    [
        "drop table records",
        "select * from read_csv('/etc/passwd')",
        "copy records to '/tmp/x'",
        "attach 'x.db'",
        "select 1; select 2",
        "install httpfs",
        "set threads = 4",
        "nonsense",
        "",
    ],
)
def test_queries_only_read_the_records(viewer, sql):
    answer = viewer.post("sql", {"query": sql})
    assert answer.status == 400
    assert answer.json["error"]["code"] in ("U680", "U682")


def test_a_slow_query_is_stopped(dataset, monkeypatch):
    monkeypatch.setattr("rekord.viewer.queries.QueryRunner.__init__.__defaults__", (0.2,))
    slow = "select count(*) from range(100000000000) a, range(1000000) b where a.range * b.range % 7 = 3"
    with open_viewer(dataset) as viewer:
        viewer.wait()
        answer = viewer.post("sql", {"query": slow})
        assert (answer.status, answer.what) == (504, "query was over its time limit")
        assert viewer.post("sql", {"query": "select 1 as one"}).json["rows"] == [[1]]
        assert viewer.post("cancel", {"id": "none"}).json == {"cancelled": False}


@pytest.mark.parametrize(
    ("low", "high", "integer"),
    [
        (0, 0, True),
        (3, 3, False),
        (0, 63, True),
        (0, 64, True),
        (-7, 1000, True),
        (0.1, 0.9, False),
        (-1e-9, 1e-9, False),
        (1e30, 3e30, False),
        (-5, 2**40, True),
    ],
)
def test_edges_are_few_ascending_and_cover_all_values(low, high, integer):
    edges = choose_edges(float(low), float(high), is_integer=integer)
    assert 2 <= len(edges) <= 100
    assert edges == sorted(set(edges))
    assert edges[0] <= low
    assert edges[-1] >= high
