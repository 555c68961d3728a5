"""TFRecord datasets from raw data to training: write, check, explain, repair and read them."""

from rekord.codec.decode import SequenceExample, decode
from rekord.errors import (
    CompressionError,
    DataError,
    DatasetError,
    DecodeError,
    EncodeError,
    FormatError,
    FrameError,
    RekordError,
    SchemaError,
    UsageError,
    WireError,
)
from rekord.health.check import check
from rekord.health.finding import Finding, Report
from rekord.location import Location
from rekord.dataset.read import records

__version__ = "0.1.0"

__all__ = [
    "CompressionError",
    "DataError",
    "DatasetError",
    "DecodeError",
    "EncodeError",
    "Finding",
    "FormatError",
    "FrameError",
    "Location",
    "RekordError",
    "Report",
    "SchemaError",
    "SequenceExample",
    "UsageError",
    "WireError",
    "check",
    "decode",
    "records",
]
