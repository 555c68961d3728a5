"""The code that `rekord reader --for dali` prints, run by DALI: it reads what the dataset holds, or says why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import layout_datasets as layouts
import numpy as np
import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.feeds.codegen import generate_reader_code


def read(path: str) -> list[dict[str, Any]]:
    """The rows that the generated pipeline gives, sorted by where they are in the file."""
    assert run_command_line(["index", path, "--format", "dali"]) == 0
    scope: dict[str, Any] = {"__name__": "reader"}
    code = generate_reader_code(rk.open(path), path, "dali").replace("random_shuffle=True", "random_shuffle=False")
    exec(compile(code, "reader.py", "exec"), scope)
    pipe = scope["reader"](split="train", batch_size=layouts.ROWS, num_threads=1, device_id=None)
    pipe.build()
    columns = dict(zip(scope["FEATURES"], pipe.run(), strict=True))
    return [{key: np.array(column[i]) for key, column in columns.items()} for i in range(layouts.ROWS)]


def test_images_and_labels(tmp_path: Path) -> None:
    for i, row in enumerate(read(layouts.write_layout("classification", tmp_path))):
        assert list(row) == ["image/encoded", "label"]
        assert row["image/encoded"].tolist() == layouts.image(i).tolist()
        assert int(row["label"]) == i % 2


def test_a_mask_has_one_channel_of_class_ids(tmp_path: Path) -> None:
    for i, row in enumerate(read(layouts.write_layout("segmentation", tmp_path))):
        mask = row["image/segmentation/class/encoded"]
        assert mask.shape == (4 + i, 5, 1)
        assert mask[..., 0].tolist() == layouts.mask(i).tolist()
        assert row["image/encoded"].shape == (4 + i, 5, 3)
        assert row["image/filename"].tobytes() == f"{i}.png".encode()


def test_boxes_are_read_and_lists_of_strings_left_out(tmp_path: Path) -> None:
    path = layouts.write_layout("detection", tmp_path)
    sides = ["xmin", "ymin", "xmax", "ymax"]
    for i, row in enumerate(read(path)):
        boxes = np.stack([row[f"image/object/bbox/{side}"] for side in sides], axis=-1)
        assert boxes.tolist() == layouts.boxes(i)
        assert row["image/object/class/label"].tolist() == [1 + j for j in range(i % 3)]
        assert "image/object/class/text" not in row
    code = generate_reader_code(rk.open(path), path, "dali")
    assert '# Skipped: DALI does not support lists of strings.\n#   "class_text"\n' in code


def test_columns_that_a_record_may_lack_are_left_out(tmp_path: Path) -> None:
    """DALI gives memory that was never written for them, whatever default it is given."""
    path = layouts.write_layout("table", tmp_path)
    for i, row in enumerate(read(path)):
        assert {key: value.tolist() for key, value in row.items()} == {
            "id": i,
            "score": i / 2,
            "vector": [i, 0.5, -i],
            "d": 4 + i,
        }
    code = generate_reader_code(rk.open(path), path, "dali")
    left_out = '# Skipped: DALI does not define the value if a record lacks the key.\n#   "maybe"\n'
    assert left_out in code


def test_text_is_bytes_and_lists_have_their_length(tmp_path: Path) -> None:
    for i, row in enumerate(read(layouts.write_layout("text", tmp_path))):
        assert row["text"].tobytes().decode() == f"näme {i}"
        assert row["tokens"].tolist() == list(range(i))
        assert "words" not in row


def test_tensors_have_their_dtype_and_shape(tmp_path: Path) -> None:
    for i, row in enumerate(read(layouts.write_layout("tensors", tmp_path))):
        assert (row["cube"].dtype, row["cube"].tolist()) == (np.int16, [[1000 * i - 5] * 3] * 2)
        assert (row["rows"].dtype, row["rows"].tolist()) == (np.float32, [[i, i]] * i)
        assert row["flag"].tolist() == [i % 2 == 0, True]
        assert row["pairs"].tolist() == [[i, j] for j in range(i)]
        assert row["inner"].tolist() == [i] * (2 * i)  # flat, as the code says


def test_the_code_runs_as_a_program(tmp_path: Path) -> None:
    path = layouts.write_layout("detection", tmp_path)
    assert run_command_line(["index", path, "--format", "dali"]) == 0
    program = tmp_path / "reader.py"
    program.write_text(generate_reader_code(rk.open(path), path, "dali"), encoding="ascii")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "image/object/bbox/xmin" in done.stdout


@pytest.mark.parametrize(("name", "options"), [("sequences", {}), ("table", {"compression": "gzip"})])
def test_what_dali_cannot_read_at_all_is_refused(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = layouts.write_layout(name, tmp_path, **options)
    with pytest.raises(rk.UsageError) as caught:
        generate_reader_code(rk.open(path), path, "dali")
    assert (caught.value.code, caught.value.location.path) == ("U605", path)
