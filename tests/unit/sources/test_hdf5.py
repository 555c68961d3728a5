"""HDF5 files as rows: datasets as columns, and files that point outside or claim more than they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import rekord as rk
from rekord.sources.detect import identify_source


def save(path: Path, **datasets: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name.replace("__", "/")] = values
    return path


def read(source: Any) -> dict[str, Any]:
    chunks = [chunk for part in source.parts() for chunk in source.read(part)]
    return {
        name: np.concatenate([chunk.values[name] for chunk in chunks])
        if isinstance(chunks[0].values[name], np.ndarray)
        else [value for chunk in chunks for value in chunk.values[name]]
        for name in chunks[0].values
    }


def refused(source: Any, path: Path, code: str) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        source.facts()
    assert (caught.value.code, caught.value.location.path) == (code, str(path))
    return caught.value


def test_datasets_are_columns_with_the_values_of_h5py(tmp_path):
    images = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
    path = save(
        tmp_path / "a.h5",
        image=images,
        label=np.arange(5, dtype=">i4"),
        x=np.linspace(0, 1, 5, dtype=np.float32),
        name=["a", "b", "ü", "d", "e"],
        wild=np.array([True, False, True, True, False]),
    )
    source = rk.sources.hdf5(path)
    columns = read(source)
    assert identify_source(path).kind == "hdf5"
    np.testing.assert_array_equal(columns["image"], images)
    assert columns["label"].tolist() == [0, 1, 2, 3, 4]
    assert columns["name"] == ["a", "b", "ü", "d", "e"]
    assert dict(source.facts().schema) == {
        "image": rk.Tensor("uint8", shape=(4, 3)),
        "label": rk.Int64(dtype="int32"),
        "name": rk.Text(),
        "wild": rk.Int64(dtype="bool"),
        "x": rk.Float32(),
    }
    rk.write(path, tmp_path / "out", progress=False)
    stored = list(rk.open(tmp_path / "out")["train"])
    assert [row["name"] for row in stored] == columns["name"]
    np.testing.assert_array_equal(np.stack([row["image"] for row in stored]), images)


def test_fixed_strings_enums_lists_and_fields_are_columns(tmp_path):
    kinds = h5py.enum_dtype({"rose": 0, "oxeye": 7})
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("fixed", data=np.array([b"ab", b"c"], "S2"))
        file.create_dataset("kind", data=np.array([7, 0]), dtype=kinds)
        lists = file.create_dataset("list", (2,), dtype=h5py.vlen_dtype(np.int16))
        lists[0], lists[1] = [1, 2, 3], [4]
        file.create_dataset("row", data=np.array([(1, 2.5), (3, 4.5)], [("a", "i8"), ("b", "f8")]))
    source = rk.sources.hdf5(tmp_path / "a.h5")
    columns = read(source)
    assert (columns["fixed"], columns["kind"]) == (["ab", "c"], ["oxeye", "rose"])
    assert [one.tolist() for one in columns["list"]] == [[1, 2, 3], [4]]
    assert (columns["row/a"].tolist(), columns["row/b"].tolist()) == ([1, 3], [2.5, 4.5])
    assert source.facts().schema["list"] == rk.Int64(shape=(None,), dtype="int16")


def test_groups_of_different_lengths_are_refused_with_a_command_for_each(tmp_path):
    path = save(tmp_path / "a.h5", train__x=[1, 2, 3], train__y=[1, 2, 3], test__x=[4], test__y=[5])
    failure = refused(rk.sources.hdf5(path), path, "X542")
    assert [command for _, command in failure.readings] == [
        f"rekord write {path} OUT --group test",
        f"rekord write {path} OUT --group train",
    ]
    assert read(rk.sources.hdf5(path, group="train"))["x"].tolist() == [1, 2, 3]
    assert read(rk.sources.hdf5(path, group="/train/x"))["x"].tolist() == [1, 2, 3]


def test_datasets_of_different_lengths_are_refused(tmp_path):
    path = save(tmp_path / "a.h5", x=[1, 2], y=[1, 2, 3])
    failure = refused(rk.sources.hdf5(path), path, "X523")
    assert (failure.location.feature, failure.do) == ("y", "select datasets of the same length: columns=['x']")
    assert read(rk.sources.hdf5(path, columns=["y"]))["y"].tolist() == [1, 2, 3]


def test_single_values_and_links_inside_are_reported_as_not_used(tmp_path):
    path = save(tmp_path / "a.h5", x=[1, 2], version=3)
    with h5py.File(path, "a") as file:
        file["again"] = h5py.SoftLink("/x")
    assert [one.name for one in rk.sources.hdf5(path).facts().unused] == ["again", "version"]


def test_parts_end_where_they_should_and_give_every_row_once(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(10_000), chunks=(300,), compression="gzip")
    source = rk.sources.hdf5(tmp_path / "a.h5")
    parts = source.parts(8_000)
    rows = [value for part in parts for chunk in source.read(part) for value in chunk.values["x"].tolist()]
    assert (len(parts), rows) == (9, list(range(10_000)))


def test_several_files_must_have_the_same_datasets(tmp_path):
    save(tmp_path / "a.h5", x=[1, 2])
    path = save(tmp_path / "b.h5", x=[[1, 2]])
    assert refused(rk.sources.hdf5(tmp_path), path, "X523").location.feature == "x"


# Files that must not be believed.


def test_links_to_other_files_are_refused(tmp_path):
    secret = save(tmp_path / "secret.h5", x=[1, 2])
    path = save(tmp_path / "a.h5", y=[1, 2])
    with h5py.File(path, "a") as file:
        file["x"] = h5py.ExternalLink(str(secret), "/x")
    refused(rk.sources.hdf5(path), path, "X543")
    refused(rk.sources.hdf5(path, group="x"), path, "X543")


def test_data_in_other_files_is_refused(tmp_path):
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2,), "i8", external=[(str(tmp_path / "secret.bin"), 0, 16)])
    refused(rk.sources.hdf5(path), path, "X543")
    secret = save(tmp_path / "secret.h5", x=[1, 2])
    layout = h5py.VirtualLayout((2,), "i8")
    layout[:] = h5py.VirtualSource(str(secret), "x", (2,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)
    refused(rk.sources.hdf5(path), path, "X543")


@pytest.mark.parametrize("way", ["external link", "soft link", "external storage", "virtual dataset"])
def test_a_virtual_dataset_does_not_lead_to_other_files(tmp_path, way):
    secret = save(tmp_path / "secret.h5", x=[1, 2])
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    path = tmp_path / "a.h5"
    outside = h5py.VirtualLayout((2,), "i8")
    outside[:] = h5py.VirtualSource(str(secret), "x", (2,))
    inside = h5py.VirtualLayout((2,), "i8")
    inside[:] = h5py.VirtualSource(".", "hidden/x", (2,))
    with h5py.File(path, "w") as file:
        hidden = file.create_group("hidden")
        if way == "external link":
            hidden["x"] = h5py.ExternalLink(str(secret), "/x")
        elif way == "soft link":
            file["other"] = h5py.ExternalLink(str(secret), "/x")
            hidden["x"] = h5py.SoftLink("/other")
        elif way == "external storage":
            hidden.create_dataset("x", (2,), "i8", external=[(str(tmp_path / "secret.bin"), 0, 16)])
        else:
            hidden.create_virtual_dataset("x", outside)
        file.create_group("data").create_virtual_dataset("x", inside)
    with h5py.File(path) as file:
        assert file["data/x"].shape == (2,)
    refused(rk.sources.hdf5(path, group="data"), path, "X543")


def test_a_virtual_dataset_of_the_same_file_is_read(tmp_path):
    path = save(tmp_path / "a.h5", hidden__x=[1, 2])
    layout = h5py.VirtualLayout((2,), "i8")
    layout[:] = h5py.VirtualSource(".", "hidden/x", (2,))
    with h5py.File(path, "a") as file:
        file.create_group("data").create_virtual_dataset("y", layout)
    assert read(rk.sources.hdf5(path, group="data"))["y"].tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 40, 0)])
@pytest.mark.parametrize("is_virtual", [True, False])
def test_rows_that_nothing_is_stored_for_are_refused(tmp_path, shape, is_virtual):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        if is_virtual:
            file.create_virtual_dataset("x", h5py.VirtualLayout(shape, "i8"))
        else:
            file.create_dataset("x", shape, "i8", chunks=None if 0 in shape else (1 << 10,))
    refused(rk.sources.hdf5(path), path, "X524")


def test_a_frame_of_pandas_names_the_command_that_reads_it(tmp_path):
    path = save(tmp_path / "a.h5", df__axis0=[1, 2], df__block0_values=[3, 4])
    with h5py.File(path, "a") as file:
        file["df"].attrs["pandas_type"] = np.bytes_(b"frame")
    for group in (None, "df"):
        failure = refused(rk.sources.hdf5(path, group=group), path, "X525")
        assert failure.do == f"rk.write(pandas.read_hdf({str(path)!r}, 'df'), out)"


def test_a_dataset_that_claims_more_than_it_stores_is_refused(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 40,), "i8", chunks=(1 << 10,), compression="gzip")
    assert "declares" in str(refused(rk.sources.hdf5(path), path, "X524").found)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 26,), "i8", chunks=(1 << 26,), compression="gzip")[:2] = 1
    refused(rk.sources.hdf5(path), path, "X524")


def test_unsupported_types_name_their_column(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = [1, 2]
        file.create_dataset("r", data=[file["x"].ref, file["x"].ref], dtype=h5py.ref_dtype)
    assert refused(rk.sources.hdf5(path), path, "X525").location.feature == "r"


def test_groups_that_contain_themselves_end(tmp_path):
    path = save(tmp_path / "a.h5", g__x=[1, 2])
    with h5py.File(path, "a") as file:
        file["g/again"] = file["g"]
    assert read(rk.sources.hdf5(path))["g/x"].tolist() == [1, 2]


@pytest.mark.parametrize(("size", "code"), [(0, "X520"), (100, "X524"), (1500, "X524")])
def test_damaged_and_empty_files_are_refused(tmp_path, size, code):
    path = save(tmp_path / "a.h5", x=np.arange(1000))
    path.write_bytes(path.read_bytes()[:size])
    refused(rk.sources.hdf5(path), path, code)
