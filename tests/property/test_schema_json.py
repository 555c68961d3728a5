"""Laws of schemas: every form that a schema is kept in gives the same schema back."""

import json
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import names, schemas

from rekord.errors import SchemaError
from rekord.schema import Schema, compat
from rekord.schema.interop.textproto import format_message, parse_textproto

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
TYPES = st.sampled_from(
    ["Boxes", "Bytes", "Float32", "Image", "Int64", "Label", "Mask", "Sparse", "Tensor", "Text", "Feature"]
)
MEMBERS = st.sampled_from(
    ["shape", "dtype", "range", "cast", "rounding", "partitions", "names", "count", "size", "key", "optional"]
)
OTHERS = st.sampled_from(
    ["default", "format", "quality", "channels", "classes", "ignore", "of", "index_key", "value_key"]
)


def refusal(read, text):
    """The schema error that a text is answered with, or None where it is a schema."""
    try:
        read(text)
    except SchemaError as error:
        return error
    return None


@given(schemas())
@settings(deadline=None)
def test_json_gives_the_same_schema_and_the_same_text(schema):
    text = schema.to_json()
    again = Schema.from_json(text)
    assert again == schema
    assert hash(again) == hash(schema)
    assert list(again) == list(schema)
    assert again.to_json() == text
    assert Schema.from_dict(json.loads(text)) == schema


@given(schemas())
@settings(deadline=None)
def test_pickle_gives_the_same_schema(schema):
    assert pickle.loads(pickle.dumps(schema)) == schema


@given(schemas())
@settings(deadline=None)
def test_pbtxt_gives_the_same_schema(schema):
    text = schema.to_pbtxt()
    again = Schema.from_pbtxt(text)
    assert again == schema
    assert list(again) == list(schema)
    assert format_message(parse_textproto(text)) == text


@given(schemas(), schemas())
@settings(deadline=None)
def test_compatibility_is_same_exactly_for_equal_schemas(a, b):
    assert compat(a, a).verdict == "same"
    assert (compat(a, b).verdict == "same") == (a == b)
    assert (compat(a, b).changes == ()) == (a == b)


@given(names(), TYPES, st.dictionaries(st.one_of(MEMBERS, OTHERS), JSON, max_size=4))
@settings(deadline=None)
def test_json_of_any_members_is_a_schema_or_a_schema_error(column, kind, members):
    text = json.dumps({"rekord_schema": 1, "features": {column: {"type": kind, **members}}})
    error = refusal(Schema.from_json, text)
    if error is None:
        assert Schema.from_json(Schema.from_json(text).to_json()) == Schema.from_json(text)
    else:
        assert error.code.startswith("S1")
        assert all([error.expected, error.found, error.do])


@given(st.one_of(st.text(), st.binary(), JSON.map(json.dumps)))
@settings(deadline=None)
def test_text_of_any_kind_is_a_schema_or_a_schema_error(text):
    for read in (Schema.from_json, Schema.from_pbtxt):
        error = refusal(read, text)
        assert error is None or error.code.startswith("S1")


@given(schemas(), st.data())
@settings(deadline=None)
def test_a_damaged_text_is_a_schema_or_a_schema_error(schema, data):
    for text, read in ((schema.to_json(), Schema.from_json), (schema.to_pbtxt(), Schema.from_pbtxt)):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        put = data.draw(st.text(max_size=2))
        error = refusal(read, text[:at] + put + text[at + cut :])
        assert error is None or error.code.startswith("S1")
