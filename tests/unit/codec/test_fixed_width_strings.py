"""NumPy byte strings of one width: zeros at their end are padding, those inside are not."""

from __future__ import annotations

import numpy as np
import pytest

import rekord as rk
from rekord.codec.encode_columns import encode_columns

VALUES = [b"", b"a", b"a\0b", b"\0a", b"12345678"]


@pytest.mark.parametrize("feature", [rk.Bytes(), rk.Text()])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_fixed_width_strings_are_written_as_a_list_of_them(feature, step):
    schema = rk.Schema({"x": feature})
    array = np.array(VALUES, "S8")[::step]
    assert encode_columns({"x": array}, schema) == encode_columns({"x": VALUES[::step]}, schema)


def test_fixed_width_text_that_is_not_utf8_names_its_row():
    with pytest.raises(rk.EncodeError) as caught:
        encode_columns({"x": np.array([b"a", b"\xff"])}, rk.Schema({"x": rk.Text()}))
    assert (caught.value.code, caught.value.location.row, caught.value.location.feature) == ("E318", 1, "x")
