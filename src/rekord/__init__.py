"""TFRecord datasets from raw data to training: write, check, explain, repair and read them.

A name is imported when it is first used: `import rekord` loads next to nothing, so that the `rekord` command can be
interrupted from its start. Type checkers read the imports; at run time `_MODULES` says the same.
"""

from rekord.version import VERSION as _VERSION

# Type checkers take a variable of this name for True; importing it from `typing` takes longer than this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rekord import layouts, sources, transforms
    from rekord.codec.columns import Optional, Ragged, SparseColumn, Strings
    from rekord.codec.decode import SequenceExample, decode
    from rekord.codec.encode import encode
    from rekord.dataset.combine import concat, mix
    from rekord.dataset.dataset import Dataset, open
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
    from rekord.health.check.run import check
    from rekord.health.diff.run import diff
    from rekord.health.doctor.run import doctor
    from rekord.health.finding import Finding, Report
    from rekord.health.salvage import salvage
    from rekord.health.stats.run import stats
    from rekord.location import Location
    from rekord.schema import (
        Audio,
        Boxes,
        Bytes,
        Float32,
        Image,
        Int64,
        Label,
        Mask,
        MultiLabel,
        Payload,
        Schema,
        Sparse,
        Tensor,
        Text,
        Timestamp,
        Video,
    )
    from rekord.schema.schema import compat
    from rekord.training.predict import Prediction, TrainedModel, load_model
    from rekord.training.run import train
    from rekord.verbs.adopt import adopt
    from rekord.verbs.balance import balance
    from rekord.verbs.edit.append import append
    from rekord.verbs.edit.change import delete, relabel
    from rekord.verbs.export.export import export
    from rekord.verbs.infer import infer
    from rekord.verbs.query import query
    from rekord.verbs.rewrite import rewrite
    from rekord.verbs.split import folds, split
    from rekord.verbs.sync import sync
    from rekord.verbs.trace import trace
    from rekord.verbs.write import write
    from rekord.viewer.run import Viewer, view

__version__ = _VERSION

__all__ = [
    "Audio",
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
    "MultiLabel",
    "Optional",
    "Payload",
    "Prediction",
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
    "Timestamp",
    "TrainedModel",
    "UsageError",
    "Video",
    "Viewer",
    "WireError",
    "Writer",
    "adopt",
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
    "load_model",
    "mix",
    "open",
    "query",
    "records",
    "relabel",
    "rewrite",
    "salvage",
    "sources",
    "split",
    "stats",
    "sync",
    "trace",
    "train",
    "transforms",
    "view",
    "write",
]

# The names that each module defines.
_MODULES = {
    "rekord.codec.columns": "Optional Ragged SparseColumn Strings",
    "rekord.codec.decode": "SequenceExample decode",
    "rekord.codec.encode": "encode",
    "rekord.dataset.combine": "concat mix",
    "rekord.dataset.dataset": "Dataset open",
    "rekord.dataset.read": "records",
    "rekord.dataset.split": "Split",
    "rekord.dataset.writer": "Writer",
    "rekord.errors": "CompressionError DataError DatasetError DecodeError EncodeError FormatError FrameError "
    "RekordError SchemaError UsageError WireError",
    "rekord.health.check.run": "check",
    "rekord.health.diff.run": "diff",
    "rekord.health.doctor.run": "doctor",
    "rekord.health.finding": "Finding Report",
    "rekord.health.salvage": "salvage",
    "rekord.health.stats.run": "stats",
    "rekord.location": "Location",
    "rekord.schema": "Audio Boxes Bytes Float32 Image Int64 Label Mask MultiLabel Payload Schema Sparse Tensor Text "
    "Timestamp Video",
    "rekord.schema.schema": "compat",
    "rekord.training.predict": "Prediction TrainedModel load_model",
    "rekord.training.run": "train",
    "rekord.verbs.adopt": "adopt",
    "rekord.verbs.balance": "balance",
    "rekord.verbs.edit.append": "append",
    "rekord.verbs.sync": "sync",
    "rekord.verbs.trace": "trace",
    "rekord.verbs.edit.change": "delete relabel",
    "rekord.verbs.export.export": "export",
    "rekord.verbs.infer": "infer",
    "rekord.verbs.query": "query",
    "rekord.verbs.rewrite": "rewrite",
    "rekord.verbs.split": "folds split",
    "rekord.verbs.write": "write",
    "rekord.viewer.run": "Viewer view",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # a module with `__getattr__` has every name, for a type checker

    def __getattr__(name):
        from importlib import import_module

        if name in ("layouts", "sources", "transforms"):
            return import_module(f"rekord.{name}")
        if name in _MODULE_OF:
            globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


del TYPE_CHECKING
