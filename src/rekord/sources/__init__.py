"""Raw data as rows: image folders, annotations, tables, texts, records, and the datasets of other libraries.

A constructor takes the name of its module here: `rekord.sources.coco` is the function, not the module.
"""

from rekord.sources.arff import arff
from rekord.sources.arrays import columns, npy, npz, pandas
from rekord.sources.avro import avro
from rekord.sources.boxes_csv import boxes_csv
from rekord.sources.coco import coco
from rekord.sources.csv import csv
from rekord.sources.duckdb import duckdb
from rekord.sources.excel import excel
from rekord.sources.frameworks import huggingface, torch_dataset
from rekord.sources.hdf5 import hdf5
from rekord.sources.image_csv import image_csv
from rekord.sources.image_folder import image_folder, images
from rekord.sources.jsonl import jsonl
from rekord.sources.label_files import kitti, yolo
from rekord.sources.lines import text
from rekord.sources.records import records
from rekord.sources.rows import rows
from rekord.sources.segmentation import cityscapes, segmentation
from rekord.sources.sqlite import sqlite
from rekord.sources.table_files import arrow, parquet, polars
from rekord.sources.text_files import text_files
from rekord.sources.tf_data import tf_data
from rekord.sources.voc import voc, voc_segmentation
from rekord.sources.webdataset import webdataset

__all__ = [
    "arff", "arrow", "avro", "boxes_csv", "cityscapes", "coco", "columns", "csv", "duckdb", "excel", "hdf5",
    "huggingface", "image_csv", "image_folder", "images", "jsonl", "kitti", "npy", "npz", "pandas", "parquet",
    "polars", "records", "rows", "segmentation", "sqlite", "text", "text_files", "tf_data", "torch_dataset", "voc",
    "voc_segmentation", "webdataset", "yolo",
]  # fmt: skip
