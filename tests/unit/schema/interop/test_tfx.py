"""What the fields of a schema.pbtxt mean as columns, and which of them are refused."""

import pytest

from rekord.errors import SchemaError
from rekord.schema import Boxes, Bytes, Float32, Image, Int64, Label, Schema, Sparse, Tensor, Text

REQUIRED = "presence { min_fraction: 1.0 }"


def read(fields: str) -> object:
    return Schema.from_pbtxt(f'feature {{ name: "a" {fields} }}')["a"]


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        (f"type: INT {REQUIRED} shape {{}} int_domain {{ min: 0 max: 120 }}", Int64(range=(0, 120))),
        (f"type: FLOAT {REQUIRED} shape {{ dim {{ size: 2 }} dim {{ size: 3 }} }}", Float32((2, 3))),
        (f"type: FLOAT {REQUIRED} shape {{ dim {{ size: -1 }} dim {{ size: 3 }} }}", Float32((None, 3))),
        ("type: BYTES", Bytes((None,), optional=True)),
        (f"type: BYTES {REQUIRED}", Bytes((None,))),
        (f"type: 1 {REQUIRED}", Bytes((None,))),
        (f"type: INT value_count {{ min: 1 max: 1 }} {REQUIRED}", Int64()),
        ("type: INT value_count { min: 1 max: 1 } presence { min_count: 1 }", Int64(optional=True)),
        ("type: INT value_count { min: 3 max: 3 }", Int64((3,), optional=True)),
        ("type: INT value_count { min: 0 max: 2 }", Int64((None,), optional=True)),
        ("type: INT value_count { min: 0 max: 0 }", Int64((None,), optional=True)),
        (f"type: INT {REQUIRED} bool_domain {{}} shape {{}}", Int64(dtype="bool")),
        (f"type: INT {REQUIRED} int_domain {{ min: 3 }} shape {{}}", Int64(range=(3, None))),
        (f"type: INT {REQUIRED} int_domain {{ is_categorical: true }} shape {{}}", Int64()),
        (f"{REQUIRED} int_domain {{ max: 3 }} shape {{}}", Int64(range=(None, 3))),
        (f"type: FLOAT {REQUIRED} float_domain {{ min: 0 max: inf }} shape {{}}", Float32(range=(0, None))),
        (f"type: FLOAT {REQUIRED} float_domain {{ min: -1e300 }} shape {{}}", Float32()),
        (f"type: BYTES {REQUIRED} image_domain {{}} shape {{}}", Image()),
        (f"type: BYTES {REQUIRED} natural_language_domain {{}} shape {{}}", Text()),
        (f"type: BYTES {REQUIRED} string_domain {{ value: 'x' }} shape {{}}", Bytes()),
        (f"type: BYTES {REQUIRED} int_domain {{ min: 1 }} shape {{}}", Bytes()),
    ],
)
def test_the_fields_of_a_feature_are_a_column(fields, feature):
    assert read(fields) == feature


@pytest.mark.parametrize(
    ("text", "code", "feature"),
    [
        ("feature {", "S122", None),
        ("feature { type: INT }", "S109", None),
        ('feature { name: "a" }', "S123", "a"),
        ('feature { name: "a" type: STRUCT }', "S123", "a"),
        ('feature { name: "a" type: INT value_counts { value_count { min: 1 } } }', "S123", "a"),
        ('feature { name: "a" type: INT } feature { name: "a" type: INT }', "S123", "a"),
        ('feature { name: "a" type: INT int_domain { min: 3 max: 1 } }', "S105", "a"),
        ('feature { name: "a" type: INT shape { dim {} dim {} } }', "S102", "a"),
        ('feature { name: "\\377" type: INT }', "S109", None),
        ('sparse_feature { name: "s" value_feature { name: "v" } }', "S123", "s"),
        ('sparse_feature { name: "s" index_feature { name: "i" } value_feature { name: "v" } }', "S123", "s"),
        (
            'feature { name: "v" type: FLOAT } '
            'sparse_feature { name: "s" index_feature { name: "i" } value_feature { name: "v" } }',
            "S123",
            "s",
        ),
        ('feature { name: "a" type: INT annotation { tag: "rekord:{" } }', "S117", "a"),
        ('feature { name: "a" type: INT annotation { tag: "rekord:{}" } }', "S109", "a"),
    ],
)
def test_a_text_that_no_schema_can_express_names_the_feature(text, code, feature):
    with pytest.raises(SchemaError) as caught:
        Schema.from_pbtxt(text)
    error = caught.value
    assert (error.code, error.location.feature) == (code, feature)
    assert all([error.expected, error.found, error.do])


def test_a_text_must_be_a_text():
    with pytest.raises(SchemaError) as caught:
        Schema.from_pbtxt(b"feature {}")
    assert (caught.value.code, caught.value.location.feature) == ("S122", None)


def test_features_that_the_data_need_not_have_are_left_out():
    text = "".join(
        [
            'feature { name: "kept" type: INT lifecycle_stage: PRODUCTION }',
            'feature { name: "b" type: INT deprecated: true }',
            'feature { name: "c" type: INT lifecycle_stage: PLANNED }',
            'feature { name: "d" type: INT lifecycle_stage: 6 }',
        ]
    )
    assert list(Schema.from_pbtxt(text)) == ["kept"]


def test_a_domain_may_be_named_and_declared_for_the_whole_schema():
    text = """
      feature { name: "age" type: INT domain: "ages" presence { min_fraction: 1 } shape {} }
      feature { name: "city" type: BYTES domain: "cities" presence { min_fraction: 1 } shape {} }
      int_domain { name: "ages" min: 0 max: 150 }
      string_domain { name: "cities" value: "Rome" }
    """
    assert Schema.from_pbtxt(text) == Schema({"age": Int64(range=(0, 150)), "city": Bytes()})


def test_a_ragged_schema_reads_absent_lists_as_empty():
    text = 'feature { name: "a" type: INT } represent_variable_length_as_ragged: true'
    assert Schema.from_pbtxt(text) == Schema({"a": Int64((None,), default=())})


def test_sparse_features_take_their_index_and_value():
    text = """
      feature { name: "i" type: INT int_domain { min: 0 max: 9 } }
      feature { name: "v" type: FLOAT }
      feature { name: "other" type: INT }
      sparse_feature { name: "s" index_feature { name: "i" } value_feature { name: "v" } }
    """
    sparse = Sparse("float32", 10, index_key="i", value_key="v", default=((), ()))
    assert Schema.from_pbtxt(text) == Schema({"s": sparse, "other": Int64((None,), optional=True)})


def test_tensor_representations_add_defaults_partitions_and_sparse_tensors():
    text = """
      feature { name: "d" type: FLOAT }
      feature { name: "r" type: INT int_domain { min: 0 max: 5 } }
      feature { name: "r/lengths" type: INT }
      feature { name: "si" type: INT }
      feature { name: "sv" type: INT }
      tensor_representation_group {
        key: ""
        value {
          tensor_representation { key: "d" value { dense_tensor {
            column_name: "d" shape { dim { size: 2 } } default_value { float_value: 0.5 } } } }
          tensor_representation { key: "r" value { ragged_tensor {
            feature_path { step: "r" }
            partition { row_length: "r/lengths" } partition { uniform_row_length: 2 } } } }
          tensor_representation { key: "s" value { sparse_tensor {
            dense_shape { dim { size: 7 } } index_column_names: "si" value_column_name: "sv" } } }
        }
      }
    """
    assert Schema.from_pbtxt(text) == Schema(
        {
            "d": Float32((2,), default=[0.5, 0.5]),
            "r": Int64((None, None, 2), partitions=("r/lengths",), range=(0, 5), optional=True),
            "s": Sparse("int64", 7, index_key="si", value_key="sv", default=((), ())),
        }
    )


def test_a_sequence_is_the_struct_of_that_name():
    text = """
      feature { name: "id" type: BYTES presence { min_fraction: 1 } shape {} }
      feature { name: "##SEQUENCE##" type: STRUCT struct_domain {
        feature { name: "frame" type: BYTES presence { min_fraction: 1 } shape {} }
      } }
    """
    assert Schema.from_pbtxt(text) == Schema(context={"id": Bytes()}, steps={"frame": Bytes()})


def test_the_text_that_a_schema_came_from_is_given_back_as_it_was():
    text = '# by hand\nfeature { name: "a" type: INT future_field { x: 1 } }\n'
    schema = Schema.from_pbtxt(text)
    assert schema.to_pbtxt() == text
    assert schema.pbtxt == text
    assert schema == Schema({"a": Int64((None,), optional=True)})


def test_a_schema_of_ours_is_written_with_what_tfx_knows():
    schema = Schema({"age": Int64(range=(0, 120)), "word": Text(optional=True)})
    assert schema.to_pbtxt() == (
        'feature {\n  name: "age"\n  type: INT\n  presence {\n    min_fraction: 1.0\n    min_count: 1\n  }\n'
        "  shape {}\n  int_domain {\n    min: 0\n    max: 120\n  }\n}\n"
        'feature {\n  name: "word"\n  type: BYTES\n  value_count {\n    min: 1\n    max: 1\n  }\n'
        "  natural_language_domain {}\n}\n"
    )


@pytest.mark.parametrize(
    "feature",
    [
        Label(["a", "ö"]),
        Tensor("uint8", (2,)),
        Boxes(),
        Sparse("float32", 3),
        Int64(default=3),
        Int64(key="k"),
    ],
)
def test_what_tfx_does_not_know_rides_in_an_annotation(feature):
    schema = Schema({"c": feature})
    text = schema.to_pbtxt()
    assert "rekord:{" in text
    assert Schema.from_pbtxt(text) == schema


def test_an_annotation_that_its_feature_contradicts_is_refused():
    text = Schema({"c": Label(3)}).to_pbtxt().replace("max: 2", "max: 5")
    with pytest.raises(SchemaError) as caught:
        Schema.from_pbtxt(text)
    assert (caught.value.code, caught.value.location.feature) == ("S123", "c")


def test_an_annotation_that_lost_one_of_its_keys_is_refused():
    text = Schema({"c": Boxes(key="b")}).to_pbtxt().replace('"b/ymax"', '"b/other"')
    with pytest.raises(SchemaError) as caught:
        Schema.from_pbtxt(text)
    assert (caught.value.code, caught.value.location.feature) == ("S123", "b/ymax")
