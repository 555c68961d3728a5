"""TFRecord datasets from raw data to training: write, check, explain, repair and read them."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from rekord.codec.columns import Optional, Ragged, SparseColumn, Strings
from rekord.codec.decode import SequenceExample, decode
from rekord.codec.encode import encode
from rekord.dataset.dataset import Dataset, open
from rekord.dataset.infer import infer
from rekord.dataset.read import records
from rekord.dataset.split import Split
from rekord.dataset.writer import Writer
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
from rekord.health.finding import Finding, Report
from rekord.location import Location
from rekord.schema import (
    Boxes,
    Bytes,
    Float32,
    Image,
    Int64,
    Label,
    Mask,
    Schema,
    Sparse,
    Tensor,
    Text,
    compat,
)
from rekord.verbs.write import write
from rekord.version import VERSION as _VERSION

if _TYPE_CHECKING:
    from rekord.dataset.concat import concat
    from rekord.dataset.mix import mix
    from rekord.health.check import check
    from rekord.health.diff import diff
    from rekord.health.doctor import doctor
    from rekord.health.salvage import salvage
    from rekord.health.stats.run import stats
    from rekord.training.run import train
    from rekord.verbs.append import append
    from rekord.verbs.balance import balance
    from rekord.verbs.delete import delete
    from rekord.verbs.export import export
    from rekord.verbs.folds import folds
    from rekord.verbs.query import query
    from rekord.verbs.relabel import relabel
    from rekord.verbs.resplit import resplit
    from rekord.verbs.rewrite import rewrite

__version__ = _VERSION

__all__ = [
    "Boxes",
    "Bytes",
    "CompressionError",
    "DataError",
    "Dataset",
    "DatasetError",
    "DecodeError",
    "EncodeError",
    "Finding",
    "Float32",
    "FormatError",
    "FrameError",
    "Image",
    "Int64",
    "Label",
    "Location",
    "Mask",
    "Optional",
    "Ragged",
    "RekordError",
    "Report",
    "Schema",
    "SchemaError",
    "SequenceExample",
    "Sparse",
    "SparseColumn",
    "Split",
    "Strings",
    "Tensor",
    "Text",
    "UsageError",
    "WireError",
    "Writer",
    "append",
    "balance",
    "check",
    "compat",
    "concat",
    "decode",
    "delete",
    "diff",
    "doctor",
    "encode",
    "export",
    "folds",
    "infer",
    "layouts",
    "mix",
    "open",
    "query",
    "records",
    "relabel",
    "resplit",
    "rewrite",
    "salvage",
    "sources",
    "stats",
    "train",
    "transforms",
    "write",
]

_VERBS = {
    "append": "rekord.verbs.append",
    "balance": "rekord.verbs.balance",
    "check": "rekord.health.check",
    "concat": "rekord.dataset.concat",
    "delete": "rekord.verbs.delete",
    "diff": "rekord.health.diff",
    "doctor": "rekord.health.doctor",
    "export": "rekord.verbs.export",
    "folds": "rekord.verbs.folds",
    "mix": "rekord.dataset.mix",
    "query": "rekord.verbs.query",
    "relabel": "rekord.verbs.relabel",
    "resplit": "rekord.verbs.resplit",
    "rewrite": "rekord.verbs.rewrite",
    "salvage": "rekord.health.salvage",
    "stats": "rekord.health.stats.run",
    "train": "rekord.training.run",
}


def __getattr__(name: str) -> object:
    # Loaded when they are asked for: most programs that import rekord read.
    if name in ("layouts", "sources", "transforms"):
        return _import_module(f"rekord.{name}")
    if name in _VERBS:
        globals()[name] = getattr(_import_module(_VERBS[name]), name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
