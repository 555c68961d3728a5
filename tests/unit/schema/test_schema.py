"""A schema checks its columns together, behaves like a mapping, and is kept as JSON."""

import errno
import json
import os
import pickle

import pytest

from rekord.errors import DatasetError, SchemaError, UsageError
from rekord.schema import Boxes, Bytes, Float32, Image, Int64, Label, Mask, Schema, Sparse, Tensor, Text


def everything() -> Schema:
    return Schema(
        {
            "image": Image(format="jpeg", key="image/encoded"),
            "mask": Mask(classes=21, ignore=255),
            "label": Label(["cat", "dog"]),
            "tokens": Int64(shape=(None,)),
            "boxes": Float32(shape=(None, 4)),
            "vec": Float32(shape=(128,)),
            "cube": Tensor("uint16", shape=(64, 64, 8)),
            "tfidf": Sparse("float32", size=30_000),
            "flag": Int64(dtype="bool"),
            "score": Float32(range=(0.0, 1.0), default=0.0),
            "caption": Text(optional=True),
            "blob": Bytes(),
        }
    )


@pytest.mark.parametrize(
    ("make", "code", "feature"),
    [
        (lambda: Schema(), "S115", None),
        (lambda: Schema({}, steps={}), "S115", None),
        (lambda: Schema([("a", Int64())]), "S115", None),
        (lambda: Schema(context=[], steps={}), "S115", None),
        (lambda: Schema({"": Int64()}), "S109", None),
        (lambda: Schema({3: Int64()}), "S109", None),
        (lambda: Schema({"a": Int64}), "S111", "a"),
        (lambda: Schema({"a": "int64"}), "S111", "a"),
        (lambda: Schema({"a": None}), "S111", "a"),
        (lambda: Schema({"a": Int64(), "b": Text(key="a")}), "S112", "b"),
        (lambda: Schema({"s": Sparse("int64", 2), "s/values": Int64()}), "S112", "s/values"),
        (lambda: Schema({"a": Boxes(), "b": Boxes()}), "S112", "b"),
        (lambda: Schema({"r": Int64((None, None), partitions=("r",))}), "S112", "r"),
        (lambda: Schema(context={"a": Int64()}, steps={"a": Text()}), "S113", "a"),
        (lambda: Schema({"m": Mask(classes=2)}), "S114", "m"),
        (lambda: Schema({"m": Mask(classes=2), "a": Image(), "b": Image()}), "S114", "m"),
        (lambda: Schema({"m": Mask(classes=2, of="b"), "a": Image()}), "S114", "m"),
        (lambda: Schema({"m": Mask(classes=2, of="b"), "b": Bytes(), "a": Image()}), "S114", "m"),
        (lambda: Schema(context={"a": Image()}, steps={"m": Mask(classes=2)}), "S114", "m"),
        (lambda: Schema(context={}, steps={"a": Int64(default=1)}), "S125", "a"),
        (lambda: everything()["lable"], "S116", "lable"),
        (lambda: everything()[3], "S116", None),
        (lambda: everything()[["unhashable"]], "S116", None),
        (lambda: Schema({}, evidence={"a": object()}), "S110", None),
        (lambda: Schema({}, evidence={"a": float("nan")}), "S110", None),
    ],
)
def test_a_declaration_that_contradicts_itself_names_the_column(make, code, feature):
    with pytest.raises(SchemaError) as caught:
        make()
    error = caught.value
    assert (error.code, error.location.feature) == (code, feature)
    assert all([error.expected, error.found, error.do])


def test_a_name_in_context_and_steps_is_answered_with_a_key():
    with pytest.raises(SchemaError) as caught:
        Schema(context={"a": Int64()}, steps={"a": Text()})
    assert (caught.value.code, caught.value.location.feature) == ("S113", "a")
    assert 'Text(key="a")' in caught.value.do
    fixed = Schema(context={"a": Int64()}, steps={"a_steps": Text(key="a")})
    assert fixed.steps["a_steps"].record_keys("a_steps") == ("a",)


def test_a_missing_column_is_answered_with_the_one_that_was_meant():
    with pytest.raises(SchemaError) as caught:
        everything()["lable"]
    assert (caught.value.code, caught.value.location.feature) == ("S116", "lable")
    assert caught.value.do == "did you mean `label`?"


def test_a_schema_is_a_mapping_in_declared_order():
    schema = everything()
    assert list(schema) == list(everything().features) == list(schema.keys())
    assert list(schema)[:3] == ["image", "mask", "label"]
    assert len(schema) == 12
    assert "label" in schema
    assert "lable" not in schema
    assert [] not in schema
    assert schema["label"] == Label(["cat", "dog"])
    assert schema.get("lable") is None
    assert dict(schema) == dict(schema.items())
    assert not schema.is_sequence
    assert schema.context == schema.features
    assert schema.steps == {}


def test_a_sequence_keeps_context_and_steps_apart():
    schema = Schema(context={"id": Text()}, steps={"frame": Tensor("uint8", (1024,)), "t": Float32()})
    assert schema.is_sequence
    assert list(schema) == ["id", "frame", "t"]
    assert list(schema.context) == ["id"]
    assert list(schema.steps) == ["frame", "t"]
    assert schema["t"] == Float32()
    assert Schema(context={}, steps={}) != Schema({})


def test_equal_schemas_are_equal_in_any_order_and_whatever_the_evidence():
    a = Schema({"x": Int64(), "y": Text()})
    b = Schema({"y": Text(), "x": Int64()}, evidence={"records": 3})
    assert a == b
    assert hash(a) == hash(b)
    assert a != Schema({"x": Int64()})
    assert a != {"x": Int64(), "y": Text()}
    assert b.with_evidence(None).evidence is None


def test_a_schema_cannot_be_changed():
    schema = everything()
    with pytest.raises(AttributeError):
        schema.steps = {}
    with pytest.raises(TypeError):
        schema.features["new"] = Int64()
    columns = {"a": Int64()}
    kept = Schema(columns)
    columns["b"] = Int64()
    assert list(kept) == ["a"]


def test_a_schema_is_shown_as_it_is_declared():
    assert repr(Schema({})) == "Schema({})"
    assert repr(Schema({"a": Int64()})) == "Schema({\n    'a': Int64(),\n})"
    assert repr(Schema(context={}, steps={"a": Int64()})) == "Schema(context={}, steps={\n    'a': Int64(),\n})"


def test_a_schema_survives_pickling_with_all_it_carries():
    schema = Schema({"a": Int64()}, evidence={"records": 3}, pbtxt="# kept")
    copy = pickle.loads(pickle.dumps(schema))
    assert (copy, copy.evidence, copy.pbtxt) == (schema, {"records": 3}, "# kept")
    sequence = Schema(context={}, steps={"a": Int64()})
    assert pickle.loads(pickle.dumps(sequence)) == sequence


def test_the_json_is_stable_and_has_a_line_for_each_column():
    schema = Schema({"label": Label(["cat", "dog"]), "größe": Float32((None,), range=(0, None))})
    assert schema.to_json() == (
        "{\n"
        '  "rekord_schema": 1,\n'
        '  "features": {\n'
        '    "label": {"type": "Label", "names": ["cat", "dog"]},\n'
        '    "größe": {"type": "Float32", "shape": [null], "range": [0.0, "inf"]}\n'
        "  }\n"
        "}\n"
    )


def test_what_was_saved_is_loaded(tmp_path):
    schema = everything()
    schema.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == schema
    assert list(Schema.load(str(tmp_path / "schema.json"))) == list(schema)
    assert [path.name for path in tmp_path.iterdir()] == ["schema.json"]


def test_evidence_is_written_and_ignored_on_load():
    schema = Schema({"a": Int64()}, evidence={"a": {"records": 3}})
    document = json.loads(schema.to_json())
    assert document["evidence"] == {"a": {"records": 3}}
    loaded = Schema.from_json(schema.to_json())
    assert loaded == schema
    assert loaded.evidence is None
    assert "evidence" not in schema.to_dict(evidence=False)


def one(members: str) -> str:
    return '{"rekord_schema": 1, "features": {"a": ' + members + "}}"


@pytest.mark.parametrize(
    ("text", "code", "feature"),
    [
        ("", "S117", None),
        ("[", "S117", None),
        ("[]", "S117", None),
        ("null", "S117", None),
        ("{}", "S117", None),
        ("[" * 100_000, "S117", None),
        (b"\xff\xfe", "S117", None),
        (None, "S117", None),
        (7, "S117", None),
        ('{"rekord_schema": ' + "9" * 5000 + "}", "S117", None),
        ('{"rekord_schema": 2, "features": {}}', "S119", None),
        ('{"rekord_schema": true, "features": {}}', "S119", None),
        ('{"rekord_schema": 1.0, "features": {}}', "S119", None),
        ('{"rekord_schema": "1", "features": {}}', "S119", None),
        ('{"rekord_schema": 1}', "S117", None),
        ('{"rekord_schema": 1, "context": {}}', "S117", None),
        ('{"rekord_schema": 1, "features": {}, "steps": {}, "context": {}}', "S117", None),
        ('{"rekord_schema": 1, "features": []}', "S117", None),
        ('{"rekord_schema": 1, "features": {}, "feature": {}}', "S118", None),
        ('{"rekord_schema": 1, "features": {"a": {"type": "Text"}, "a": {"type": "Text"}}}', "S117", None),
        ('{"rekord_schema": 1, "features": {"": {"type": "Text"}}}', "S109", None),
        (one("null"), "S117", "a"),
        (one('"Int64"'), "S117", "a"),
        (one("{}"), "S117", "a"),
        (one('{"type": "int64"}'), "S117", "a"),
        (one('{"type": []}'), "S117", "a"),
        (one('{"type": "Feature"}'), "S117", "a"),
        (one('{"type": "Tensor"}'), "S117", "a"),
        (one('{"type": "Mask"}'), "S117", "a"),
        (one('{"type": "Int64", "shap": []}'), "S118", "a"),
        (one('{"type": "Int64", "shape": [-1]}'), "S101", "a"),
        (one('{"type": "Int64", "shape": null}'), "S101", "a"),
        (one('{"type": "Int64", "dtype": {"a": 1}}'), "S104", "a"),
        (one('{"type": "Int64", "range": [1e400, 2]}'), "S105", "a"),
        (one('{"type": "Float32", "range": ["nan", 2]}'), "S105", "a"),
        (one('{"type": "Float32", "range": [NaN, 2]}'), "S117", None),
        (one('{"type": "Float32", "default": "0.5"}'), "S106", "a"),
        (one('{"type": "Int64", "default": ' + "9" * 400 + "}"), "S106", "a"),
        (one('{"type": "Bytes", "default": "plain"}'), "S106", "a"),
        (one('{"type": "Bytes", "default": {"base64": "!"}}'), "S106", "a"),
        (one('{"type": "Tensor", "dtype": "complex64", "default": [1]}'), "S106", "a"),
        (one('{"type": "Tensor", "dtype": "complex64", "default": [' + "9" * 400 + ", 1]}"), "S106", "a"),
        (one('{"type": "Tensor", "dtype": ["complex64"], "default": 1}'), "S104", "a"),
        (one('{"type": "Text", "default": "\\ud800"}'), "S106", "a"),
        (one('{"type": "Text", "key": "\\ud800"}'), "S109", "a"),
        (one('{"type": "Label", "names": ["a", "a"]}'), "S108", "a"),
        (one('{"type": "Label", "names": 5}'), "S108", "a"),
        (one('{"type": "Label", "count": 0}'), "S108", "a"),
        (one('{"type": "Mask", "classes": 2}'), "S114", "a"),
        (one('{"type": "Text", "optional": 1}'), "S110", "a"),
    ],
)
def test_hostile_json_is_a_schema_error_with_its_place(text, code, feature):
    with pytest.raises(SchemaError) as caught:
        Schema.from_json(text)
    error = caught.value
    assert (error.code, error.location.feature) == (code, feature)
    assert all([error.expected, error.found, error.do])


def test_an_error_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(one('{"type": "Int64", "shape": [-1]}'))
    with pytest.raises(SchemaError) as caught:
        Schema.load(path)
    location = caught.value.location
    assert (caught.value.code, location.path, location.feature) == ("S101", str(path), "a")


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(DatasetError) as caught:
        Schema.load(tmp_path / "none.json")
    assert (caught.value.code, caught.value.location.path) == ("X501", str(tmp_path / "none.json"))


def test_a_folder_is_no_schema(tmp_path):
    with pytest.raises(DatasetError) as caught:
        Schema.load(tmp_path)
    assert (caught.value.code, caught.value.location.path) == ("X503", str(tmp_path))


def test_a_place_that_cannot_be_written_is_said_so(tmp_path):
    place = tmp_path / "none" / "schema.json"
    with pytest.raises(DatasetError) as caught:
        everything().save(place)
    assert (caught.value.code, caught.value.location.path) == ("X504", str(place))


def test_a_saved_schema_replaces_what_a_link_leads_to_and_the_link_stays(tmp_path):
    kept, link = tmp_path / "kept.json", tmp_path / "schema.json"
    kept.write_text("{}")
    link.symlink_to(kept)
    everything().save(link)
    assert link.is_symlink()
    assert Schema.load(kept) == everything()


def test_a_schema_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    place = tmp_path / "schema.json"
    Schema({"a": Int64()}).save(place)
    before = place.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DatasetError) as caught:
        everything().save(place)
    assert (caught.value.code, caught.value.location.path) == ("X504", str(place))
    assert place.read_bytes() == before
    assert os.listdir(tmp_path) == ["schema.json"]


def test_a_path_must_be_a_path():
    with pytest.raises(UsageError) as caught:
        everything().save(3)
    assert (caught.value.code, caught.value.location.path) == ("U605", None)
