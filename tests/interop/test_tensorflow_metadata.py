"""The real tensorflow_metadata package reads our schema.pbtxt, and we read its."""

import pytest
from hypothesis import given, settings
from record_strategies import schemas

from rekord.schema import Boxes, Bytes, Float32, Image, Int64, Label, Mask, Schema, Sparse, Tensor, Text
from rekord.schema.interop.textproto import format_message, parse_textproto


@pytest.fixture(scope="module")
def real():
    """Turns a text into the real message."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    schema_pb2 = pytest.importorskip("tensorflow_metadata.proto.v0.schema_pb2")
    return lambda text: text_format.Parse(text, schema_pb2.Schema())


@pytest.fixture(scope="module")
def reprinted():
    """Prints a real message as protobuf does."""
    return pytest.importorskip("google.protobuf.text_format").MessageToString


STATISTICS = """
# Comments of all kinds stay.
feature {
  name: "carrier"
  value_count { min: 1 max: 1 }
  type: BYTES
  domain: "carriers"
  presence { min_count: 1 }
  skew_comparator { infinity_norm { threshold: 0.01 } }
  drift_comparator { jensen_shannon_divergence { threshold: 1e-3 } }
}
feature {
  name: "delay"  # in minutes
  value_count: { min: 1, max: 1 }
  type: FLOAT
  presence < min_fraction: 1.0; min_count: 1 >
  float_domain { min: -60.0 disallow_nan: true }
  unique_constraints { min: 3 }
  in_environment: ["TRAINING", "SERVING"]
}
feature { name: "stops" type: INT presence { min_count: 0 } annotation { comment: "it's \\"odd\\"\\n" } }
string_domain { name: "carriers" value: "KL" value: "A\\303\\251ro" value: 'L' 'H' }
default_environment: "TRAINING"
dataset_constraints { min_examples_count: 0x10 }
"""

DENSE = """
feature {
  name: "width"
  type: FLOAT
  presence { min_fraction: 1.0 min_count: 1 }
  shape { dim { size: 1 name: "unit" } }
}
feature {
  name: "kind"
  type: INT
  presence { min_fraction: 1.0 min_count: 1 }
  shape {}
  int_domain { name: "kinds" min: 0 max: 2 is_categorical: true }
}
"""

SEQUENCE = """
# generate_legacy_feature_spec: false
tensor_representation_group {
  key: ""
  value {
    tensor_representation {
      key: "list"
      value { ragged_tensor { feature_path { step: "##SEQUENCE##" step: "words" } } }
    }
    tensor_representation { key: "id" value { varlen_sparse_tensor { column_name: "id" } } }
  }
}
feature { name: "id" type: INT value_count { min: 1 max: 1 } }
feature {
  name: "##SEQUENCE##"
  type: STRUCT
  struct_domain { feature { name: "words" type: BYTES value_count { min: 0 max: 2 } } }
}
"""


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        (
            STATISTICS,
            Schema(
                {
                    "carrier": Bytes(optional=True),
                    "delay": Float32(range=(-60.0, None)),
                    "stops": Int64((None,), optional=True),
                }
            ),
        ),
        (DENSE, Schema({"width": Float32((1,)), "kind": Int64(range=(0, 2))})),
        (
            SEQUENCE,
            Schema(context={"id": Int64(optional=True)}, steps={"words": Bytes((None,), optional=True)}),
        ),
    ],
)
def test_a_schema_of_tfx_is_read_and_goes_back_to_the_same_message(real, reprinted, text, schema):
    read = Schema.from_pbtxt(text)
    assert read == schema
    assert real(read.to_pbtxt()) == real(text)
    # Also through our own printer, and from the text as protobuf itself would write it.
    assert real(format_message(parse_textproto(text))) == real(text)
    assert Schema.from_pbtxt(reprinted(real(text))) == schema
    assert Schema.from_pbtxt(reprinted(real(text), as_one_line=True)) == schema


def test_every_type_of_ours_is_a_real_schema_and_comes_back(real, reprinted):
    schema = Schema(
        {
            "image": Image(format="jpeg", key="image/encoded"),
            "mask": Mask(classes=21, ignore=255),
            "label": Label(["cat", "dög"]),
            "tokens": Int64((None,)),
            "rows": Int64((None, None), partitions=("rows/lengths",)),
            "boxes": Boxes(optional=True),
            "cube": Tensor("uint16", (64, 64, 8)),
            "tfidf": Sparse("float32", size=30_000),
            "flag": Int64(dtype="bool"),
            "score": Float32(range=(0.0, 1.0), default=0.0),
            "caption": Text(optional=True),
            "blob": Bytes(),
        }
    )
    message = real(schema.to_pbtxt())
    assert Schema.from_pbtxt(reprinted(message)) == schema
    features = {feature.name: feature for feature in message.feature}
    assert set(features) == {key for name, one in schema.items() for key in one.record_keys(name)}
    assert features["label"].int_domain.max == 1
    assert features["image/encoded"].HasField("image_domain")
    assert features["blob"].HasField("shape")
    assert features["blob"].presence.min_fraction == 1.0
    assert not features["caption"].HasField("presence")
    assert features["score"].float_domain.max == 1.0
    (sparse,) = message.sparse_feature
    assert sparse.name == "tfidf"
    assert sparse.index_feature[0].name == "tfidf/indices"
    assert sparse.dense_shape.dim[0].size == 30_000


@given(schema=schemas())
@settings(deadline=None, max_examples=50)
def test_any_schema_of_ours_survives_the_real_package(real, reprinted, schema):
    message = real(schema.to_pbtxt())
    assert Schema.from_pbtxt(reprinted(message)) == schema
