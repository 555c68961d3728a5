"""Schemas: the declared types of a dataset."""

from rekord.schema.base import ABSENT, Feature, of_type
from rekord.schema.features import (
    Boxes,
    Bytes,
    Float32,
    Image,
    Int64,
    Label,
    Mask,
    MultiLabel,
    Payload,
    Sparse,
    Tensor,
    Text,
)
from rekord.schema.media import Audio, Video
from rekord.schema.schema import Change, Compatibility, RecordKind, Schema, compat
from rekord.schema.timestamp import Timestamp

__all__ = [
    "ABSENT", "Audio", "Boxes", "Bytes", "Change", "Compatibility", "Feature", "Float32", "Image",
    "Int64", "Label", "Mask", "MultiLabel", "Payload", "RecordKind", "Schema", "Sparse", "Tensor", "Text",
    "Timestamp", "Video", "compat", "of_type",
]  # fmt: skip
