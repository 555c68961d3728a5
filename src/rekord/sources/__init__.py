"""Raw data as rows: image folders, annotations, tables, texts, records, and the datasets of other libraries."""

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
