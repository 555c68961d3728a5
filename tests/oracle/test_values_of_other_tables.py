"""What TensorFlow reads of datasets that were written from a spreadsheet, a database and an archive."""

from __future__ import annotations

import sqlite3
import zipfile

import h5py
import numpy as np
import openpyxl
import tensorflow as tf

import rekord as rk


def parsed(out, **features):
    dataset = tf.data.TFRecordDataset(rk.open(out)["train"].paths)
    return [tf.io.parse_single_example(record, features) for record in dataset]


def test_a_sheet_and_a_table_have_the_bytes_of_their_cells(tmp_path):
    book = openpyxl.Workbook()
    for row in (["id", "x", "name"], [1, 0.5, "a"], [-(2**40), 2.25, "ü"]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    database = sqlite3.connect(tmp_path / "a.db")
    database.execute("CREATE TABLE t (id INTEGER, x REAL, name TEXT)")
    database.execute("INSERT INTO t VALUES (1, 0.5, 'a'), (?, 2.25, 'ü')", (-(2**40),))
    database.commit()
    database.close()
    for name in ("a.xlsx", "a.db"):
        rk.write(tmp_path / name, tmp_path / "out", fresh=True, progress=False)
        rows = parsed(
            tmp_path / "out",
            id=tf.io.FixedLenFeature([], tf.int64),
            x=tf.io.FixedLenFeature([], tf.float32),
            name=tf.io.FixedLenFeature([], tf.string),
        )
        assert [(int(row["id"]), float(row["x"]), row["name"].numpy().decode()) for row in rows] == [
            (1, 0.5, "a"),
            (-(2**40), 2.25, "ü"),
        ]
        (tmp_path / "out").rename(tmp_path / f"out-{name}")


def test_datasets_of_an_archive_have_the_bytes_of_their_numbers(tmp_path):
    numbers = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = numbers
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "a.h5", "a.h5")
    rk.write(tmp_path / "a.zip", tmp_path / "out", progress=False)
    rows = parsed(tmp_path / "out", x=tf.io.FixedLenFeature([4], tf.float32))
    np.testing.assert_array_equal(np.stack([row["x"].numpy() for row in rows]), numbers)
