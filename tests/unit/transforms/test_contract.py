"""Transforms stand between a layout and the encoder, and the schema that is stored is theirs."""

from dataclasses import dataclass

import pytest

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.transforms import Bound, chain


@dataclass(frozen=True)
class Doubled:
    column: str
    name: str = "doubled"

    def options(self):
        return {"column": self.column}

    def bind(self, before):
        columns = dict(before.context)
        columns[f"{self.column}_twice"] = rk.Int64()
        return Bound(rk.Schema(columns), self._row)

    def _row(self, row):
        return {**row, f"{self.column}_twice": row[self.column] * 2}


def test_transformed_rows_are_stored_under_the_schema_that_transforms_make(tmp_path):
    rows = [{"a": 1}, {"a": 2}, {"a": 3}]
    schema = rk.Schema({"a": rk.Int64()})
    dataset = rk.write(rows, tmp_path / "out", schema=schema, transforms=[Doubled("a")], progress=False)
    assert list(dataset.schema) == ["a", "a_twice"]
    assert [row["a_twice"] for row in dataset["train"]] == [2, 4, 6]


def test_transforms_stand_in_the_manifest_in_their_order(tmp_path):
    rk.write(
        [{"a": 1}],
        tmp_path / "out",
        schema=rk.Schema({"a": rk.Int64()}),
        transforms=chain(Doubled("a"), Doubled("a_twice")),
        progress=False,
    )
    told = read_manifest(str(tmp_path / "out")).options["layout"]["transforms"]
    assert told == [{"name": "doubled", "column": "a"}, {"name": "doubled", "column": "a_twice"}]


def test_what_is_no_transform_is_refused_before_a_row_is_read(tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        rk.write([{"a": 1}], tmp_path / "out", transforms=[len], progress=False)
    assert caught.value.code == "U605"
    assert not (tmp_path / "out").exists()
