"""Raw data as rows: image folders, annotations, tables, texts, records, and the datasets of other libraries."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rekord.sources.arrays import columns, pandas
    from rekord.sources.arrow import arrow, polars
    from rekord.sources.boxes_csv import boxes_csv
    from rekord.sources.coco import coco
    from rekord.sources.delimited import csv
    from rekord.sources.frameworks import tf_data, torch_dataset
    from rekord.sources.huggingface import huggingface
    from rekord.sources.image_csv import image_csv
    from rekord.sources.images import image_folder
    from rekord.sources.jsonl import jsonl
    from rekord.sources.numpy_files import npy, npz
    from rekord.sources.parquet import parquet
    from rekord.sources.records import records
    from rekord.sources.rows import rows
    from rekord.sources.segmentation import cityscapes, segmentation
    from rekord.sources.text import text
    from rekord.sources.voc import voc
    from rekord.sources.voc_segmentation import voc_segmentation
    from rekord.sources.webdataset import webdataset
    from rekord.sources.yolo import yolo

__all__ = [
    "arrow",
    "boxes_csv",
    "cityscapes",
    "coco",
    "columns",
    "csv",
    "huggingface",
    "image_csv",
    "image_folder",
    "jsonl",
    "npy",
    "npz",
    "pandas",
    "parquet",
    "polars",
    "records",
    "rows",
    "segmentation",
    "text",
    "tf_data",
    "torch_dataset",
    "voc",
    "voc_segmentation",
    "webdataset",
    "yolo",
]

_ELSEWHERE = {
    "cityscapes": "segmentation",
    "columns": "arrays",
    "csv": "delimited",
    "image_folder": "images",
    "npy": "numpy_files",
    "npz": "numpy_files",
    "pandas": "arrays",
    "polars": "arrow",
    "tf_data": "frameworks",
    "torch_dataset": "frameworks",
}
"""The modules of those that are not called as their module is."""


class _Sources(ModuleType):
    """Loads a source when it is asked for: a conversion, and each of its workers, needs one of them.

    Importing `rekord.sources.coco` would put that module in the place of the function of the same name, which is the
    one that people mean; so it is not put there.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, name)}"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [*__all__, *super().__dir__()]


sys.modules[__name__].__class__ = _Sources
