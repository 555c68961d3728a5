import os
import re
import time

import numpy as np
import pytest
from PIL import Image as Pillow
from viewer_client import open_viewer

import rekord as rk
from rekord.dataset.predictions import PREDICTIONS_NAME
from rekord.testing import corrupt_payload, example_bytes, frames
from rekord.viewer.server import to_response


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))


def test_a_hundred_findings_reach_a_hundred_records(tmp_path):
    rows = [{"label": [i % 3 if i % 2 else 9], "a": [i]} for i in range(200)]
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.tfrecord").write_bytes(frames([example_bytes(row) for row in rows]))
    data = frames([example_bytes(row) for row in rows])
    for record in range(0, 200, 2):
        data = corrupt_payload(data, record)
    (tmp_path / "d" / "x.tfrecord").write_bytes(data)
    with open_viewer(tmp_path / "d") as viewer:
        viewer.wait()
        status = viewer.wait_for_check()
        answer = viewer.json("findings", count=1000)
        records = {tuple(pair) for one in answer["findings"] for pair in one["records"]}
        first = answer["findings"][0]
        only = viewer.json("rows", finding=first["number"])
        page = viewer.json("rows", first=0, count=4)
    assert status["sides"][0]["splits"][0]["damaged"] == 100
    assert {record for _, record in records} >= set(range(0, 200, 2))
    assert (first["code"], first["severity"], first["split"]) == ("F102", "error", "all")
    assert first["do"].startswith("copy the file again")
    assert status["check"]["text"] == f"{status['check']['errors']} errors, {status['check']['warnings']} warnings."
    assert first["where"].startswith(f"{first['path']}, record {first['record']}, byte {first['offset']:,}")
    assert [row["record"] for row in only["rows"]] == [record for _, record in first["records"]]
    assert [bool(row["findings"]) for row in page["rows"]] == [True, False, True, False]


def test_a_finding_about_many_records_lists_them(tmp_path):
    schema = rk.Schema({"label": rk.Label(3), "a": rk.Int64()})
    rk.write([{"label": i % 3, "a": i} for i in range(300)], tmp_path / "d", schema=schema, progress=False)
    [shard] = (tmp_path / "d").glob("*.tfrecord")
    rows = [example_bytes({"label": [i % 3 if i < 200 else 8], "a": [i]}) for i in range(300)]
    report = rk.check(_write(tmp_path / "x.tfrecord", rows), schema)
    counted = [one for one in report.findings if one.count > 1]
    assert [(one.count, len(one.records)) for one in counted] == [(80, 80)]
    assert counted[0].records[0] == (str(tmp_path / "x.tfrecord"), 220)
    assert counted[0].to_dict()["records"][-1] == [str(tmp_path / "x.tfrecord"), 299]
    assert "records" not in report.findings[0].to_dict()
    assert shard.exists()


def _write(path, payloads):
    path.write_bytes(frames(payloads))
    return path


def test_a_record_in_two_splits_is_a_pair(tmp_path):
    rng = np.random.default_rng(0)
    images = [Pillow.fromarray(rng.integers(0, 255, (24, 24, 3)).astype(np.uint8)) for _ in range(8)]
    schema = rk.Schema({"image": rk.Image(format="png")})
    for name, some in (("train", images[:6]), ("val", [images[6], images[2], images[7]])):
        rows = [{"image": np.asarray(image)} for image in some]
        rk.write(rows, tmp_path / name, schema=schema, shuffle=False, progress=False)
        (tmp_path / "d").mkdir(exist_ok=True)
        [shard] = (tmp_path / name).glob("*.tfrecord")
        shard.rename(tmp_path / "d" / f"{name}.tfrecord")
    with open_viewer(tmp_path / "d") as viewer:
        viewer.wait()
        viewer.wait_for_check()
        pairs = viewer.json("pairs", kind="leak")
        finding = viewer.json("findings")["findings"][0]
        none = viewer.json("pairs", kind="duplicate")
    assert pairs["total"] == 1
    assert pairs["pairs"][0] | {"finding": 0} == {
        "finding": 0, "feature": "image", "kind": "leak", "a": ["train", 2], "b": ["val", 1],
    }  # fmt: skip
    assert (finding["code"], finding["pair"]["a"]) == ("H787", ["train", 2])
    assert none["total"] == 0


def test_the_check_of_large_data_waits_to_be_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.viewer.findings.MAX_CHECKED_BYTES", 10)
    _write(tmp_path / "x.tfrecord", [example_bytes({"a": [i]}) for i in range(20)])
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        assert viewer.wait()["check"]["state"] == "idle"
        assert viewer.post("check", {}).json["state"] in ("running", "done")
        assert viewer.wait_for_check()["check"]["state"] == "done"


def compare(viewer, **parameters):
    while (answer := viewer.json("compare", **parameters))["state"] == "running":
        time.sleep(0.02)
    return answer


def test_two_datasets_are_compared_by_key(tmp_path):
    rows = [{"id": f"r{i}", "x": i} for i in range(30)]
    rk.write(rows, tmp_path / "a", shuffle=False, progress=False)
    changed = [{**row, "x": -1} if row["id"] in ("r4", "r9") else row for row in rows if row["id"] != "r2"]
    rk.write([*changed, {"id": "new", "x": 5}][::-1], tmp_path / "b", shuffle=False, progress=False)
    diff = rk.diff(tmp_path / "a", tmp_path / "b", key="id")
    with open_viewer(tmp_path / "a", tmp_path / "b") as viewer:
        viewer.wait()
        answer = compare(viewer, key="id", only="all")
        few = compare(viewer, key="id")
        other = viewer.json("record", side=1, split="train", record=0)
        wrong = compare(viewer, key="nothing")
    assert answer["counts"] == {"changed": 2, "left": 1, "right": 1, "same": 27}
    assert (answer["counts"]["changed"], diff.records.changed) == (2, 2)
    by_key = {one["key"]: one for one in answer["pairs"]}
    assert (by_key["r4"]["status"], by_key["r4"]["a"], by_key["r4"]["features"]) == ("changed", ["train", 4], ["x"])
    assert by_key["r4"]["b"] == ["train", 26]
    assert (by_key["r2"]["status"], by_key["r2"]["b"]) == ("left", None)
    assert (by_key["new"]["status"], by_key["new"]["a"]) == ("right", None)
    assert sorted(one["key"] for one in few["pairs"]) == ["new", "r2", "r4", "r9"]
    assert answer["keys"][0] == "id"
    assert other["features"][0]["value"]["text"] == "new"
    assert (wrong["state"], wrong["error"]["code"]) == ("failed", "U606")


def write_predictions(path, rows):
    import pyarrow as pa

    splits, records, truth, predicted, confidence = zip(*rows, strict=True)
    table = pa.table(
        {
            "split": pa.array(splits, pa.string()),
            "record": pa.array(records, pa.int64()),
            "truth": pa.array(truth, pa.string()),
            "prediction": pa.array(predicted, pa.string()),
            "confidence": pa.array(confidence, pa.float64()),
        }
    )
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def test_a_cell_of_the_confusion_matrix_opens_its_records(tmp_path):
    rk.write([{"label": i % 2} for i in range(20)], tmp_path / "d", split={"val": 1.0}, shuffle=False, progress=False)
    rows = [("val", i, "ab"[i % 2], "a" if i in (3, 7) else "ab"[i % 2], 1 - i / 100) for i in range(20)]
    write_predictions(tmp_path / PREDICTIONS_NAME, rows)
    with open_viewer(tmp_path / "d", predictions=tmp_path / PREDICTIONS_NAME) as viewer:
        viewer.wait()
        assert viewer.json("session")["predictions"] is True
        answer = viewer.json("predictions")
        cell = viewer.json("predictions/cell", truth=1, prediction=0)
        page = viewer.json("rows", cell="1,0")
        beyond = viewer.get("predictions/cell", truth=9, prediction=0)
    assert (answer["classes"], answer["matrix"], answer["records"]) == (["a", "b"], [[10, 0], [2, 8]], 20)
    assert [one["record"] for one in cell["records"]] == [3, 7]
    assert [row["record"] for row in page["rows"]] == [3, 7]
    assert beyond.status == 404


def test_a_damaged_file_of_predictions_is_an_error_of_its_view(tmp_path):
    _write(tmp_path / "x.tfrecord", [example_bytes({"a": [1]})])
    (tmp_path / "p.arrow").write_bytes(b"ARROW1 broken")
    with open_viewer(tmp_path / "x.tfrecord", predictions=tmp_path / "p.arrow") as viewer:
        answer = viewer.get("predictions")
        assert (answer.status, answer.json["error"]["code"]) == (422, "X574")
        assert viewer.json("rows")["total"] == 1


def test_selected_records_are_tagged_and_the_printed_commands_name_them(tmp_path):
    rk.write([{"label": i % 2} for i in range(20)], tmp_path / "d", split={"train": 0.8, "val": 0.2}, progress=False)
    chosen = [["train", 3], ["train", 7], ["val", 1]]
    with open_viewer(tmp_path / "d", edit=True) as viewer:
        viewer.wait()
        assert viewer.post("tags", {"tag": "blurry", "records": chosen}).json["tags"] == {"blurry": 3}
        assert viewer.json("tags") == {"selected": 3, "tags": {"blurry": 3}}
        page = viewer.json("rows", split="train", tag="blurry")
        assert [row["record"] for row in page["rows"]] == [3, 7]
        body = {"action": "delete", "records": chosen, "out": str(tmp_path / "fewer")}
        plan = viewer.post("curate", body).json
        assert "rekord delete" in plan["command"]
        assert "train,3" in plan["csv"]
        done = viewer.post("run", body).json
        assert (done["state"], done["out"]) == ("done", str(tmp_path / "fewer"))
        again = viewer.post("run", body)
        assert (again.status, again.json["error"]["code"]) == (400, "U618")
        unknown = viewer.post("tags", {"tag": "x", "records": [["train", 99]]})
        assert (unknown.status, unknown.json["error"]["code"]) == (400, "U605")
    left = {name: len(split) for name, split in rk.open(tmp_path / "fewer").splits.items()}
    before = {name: len(split) for name, split in rk.open(tmp_path / "d").splits.items()}
    assert left == {"train": before["train"] - 2, "val": before["val"] - 1}


def test_the_page_asks_how_far_a_long_edit_is(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.viewer.server._EDIT_SECONDS", 0.0)
    rk.write([{"a": i} for i in range(50)], tmp_path / "d", progress=False)
    out = str(tmp_path / "out")
    with open_viewer(tmp_path / "d", edit=True) as viewer:
        viewer.wait()
        assert viewer.json("run") == {"state": "idle"}
        asked = {"action": "delete", "records": [["train", 3]], "out": out}
        status = viewer.post("run", asked).json
        while status["state"] == "running":
            assert set(status) >= {"share", "progress"}
            status = viewer.json("run")
        assert (status["state"], status["records"], status["out"], status["error"]) == ("done", 1, out, None)
        status = viewer.post("run", asked)
        while status.status == 200 and status.json["state"] == "running":
            status = viewer.get("run")
        assert status.json["error"]["code"] == "U618"
    assert len(rk.open(out)["train"]) == 49


def test_an_edit_of_files_that_are_not_the_whole_folder_is_refused(tmp_path):
    rk.write([{"label": i % 2} for i in range(20)], tmp_path / "d", shards=2, progress=False)
    second = sorted((tmp_path / "d").glob("*.tfrecord"))[1]
    with open_viewer([second]) as viewer:
        viewer.wait_for_check()
        split = viewer.json("session")["sides"][0]["splits"][0]["name"]
        plan = viewer.post("curate", {"action": "delete", "records": [[split, 0]]}).json
        assert (plan["command"], plan["error"]["code"]) == (None, "X570")


def test_an_edit_after_the_files_were_replaced_is_refused(tmp_path):
    rk.write([{"label": i % 2} for i in range(20)], tmp_path / "d", progress=False)
    body = {"action": "delete", "records": [["train", 0]]}
    with open_viewer(tmp_path / "d") as viewer:
        viewer.wait()
        assert viewer.post("curate", body).json["error"] is None
        rk.delete(tmp_path / "d", replace=True, records=[("train", 0)], progress=False)
        assert viewer.post("curate", body).json["error"]["code"] == "X570"


def test_only_the_files_that_are_shown_are_checked(tmp_path):
    _write(tmp_path / "good.tfrecord", [example_bytes({"a": [1]})])
    (tmp_path / "other.tfrecord").write_bytes(corrupt_payload(frames([example_bytes({"a": [1]})]), 0))
    with open_viewer([tmp_path / "good.tfrecord"]) as viewer:
        assert viewer.wait_for_check()["check"]["errors"] == 0


def test_tags_of_files_that_are_no_dataset_end_when_the_files_change(tmp_path):
    path = tmp_path / "d"
    rk.write([{"a": i} for i in range(9)], path, progress=False)
    for manifest in path.glob("*.json"):
        manifest.write_text("{broken")
    shard = next(path.glob("*.tfrecord"))
    for changed, tags in ((False, {}), (False, {"odd": 1}), (True, {})):
        if changed:
            os.utime(shard, ns=(1, 1))
        with open_viewer(path) as viewer:
            viewer.wait()
            assert viewer.json("session")["sides"][0]["error"] is not None
            assert viewer.json("tags")["tags"] == tags
            split = viewer.json("session")["sides"][0]["splits"][0]["name"]
            viewer.post("tags", {"tag": "odd", "records": [[split, 1]]})
            refused = viewer.post("curate", {"action": "delete", "records": [[split, 1]]})
            assert refused.status >= 400 or refused.json["error"] is not None


def test_an_unknown_finding_is_not_found(tmp_path):
    _write(tmp_path / "x.tfrecord", [example_bytes({"a": [1]})])
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        assert viewer.get("rows", finding=99).status in (404, 503)  # while the check runs, it may still be found
        viewer.wait_for_check()
        assert viewer.get("rows", finding=99).status == 404


def test_an_unexpected_failure_is_logged_with_its_type_and_place(caplog):
    with pytest.raises(ZeroDivisionError) as caught:
        raise ZeroDivisionError("by nothing")
    assert to_response(caught.value).status_code == 500
    assert re.fullmatch(
        r"request failed: ZeroDivisionError in test_findings_api\.py:\d+: by nothing", caplog.messages[0]
    )
