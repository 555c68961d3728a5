"""Errors say what, where and what to do, and say the same on the other side of a process border."""

from __future__ import annotations

import errno
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import rekord as rk
from rekord.codes import CODES, page
from rekord.errors import add_location, error

CLASSES = [
    rk.RekordError,
    rk.SchemaError,
    rk.DataError,
    rk.EncodeError,
    rk.DecodeError,
    rk.FormatError,
    rk.FrameError,
    rk.WireError,
    rk.CompressionError,
    rk.DatasetError,
    rk.UsageError,
]
FAMILIES = {
    "S": rk.SchemaError,
    "F": rk.FrameError,
    "W": rk.WireError,
    "C": rk.CompressionError,
    "E": rk.EncodeError,
    "D": rk.DecodeError,
    "X": rk.DatasetError,
    "U": rk.UsageError,
}
WHERE = rk.Location(
    path="train-00007-of-00013.tfrecord",
    record=48_211,
    offset=913_402_880,
    feature="label",
    payload_offset=12,
    compressed_offset=5_000,
    row=3,
)


def full(kind: type[rk.RekordError]) -> rk.RekordError:
    return kind("F102", "the first line", location=WHERE, expected="this", found="that", likely="so", do="do it")


def test_the_classes_form_the_documented_tree() -> None:
    parents = {kind.__name__: kind.__base__.__name__ for kind in CLASSES if kind.__base__ is not None}
    assert parents == {
        "RekordError": "Exception",
        "SchemaError": "RekordError",
        "DataError": "RekordError",
        "EncodeError": "DataError",
        "DecodeError": "DataError",
        "FormatError": "RekordError",
        "FrameError": "FormatError",
        "WireError": "FormatError",
        "CompressionError": "FormatError",
        "DatasetError": "RekordError",
        "UsageError": "RekordError",
    }


def test_a_usage_error_is_also_a_value_error() -> None:
    with pytest.raises(ValueError) as caught:
        raise error("U605", found="-1")
    assert isinstance(caught.value, rk.UsageError)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), ValueError)


@pytest.mark.parametrize("name", ["none", "none/train-00000-of-00001.tfrecord"])
def test_a_missing_path_is_also_a_file_not_found_error(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(FileNotFoundError) as caught:
        rk.open(path)
    failure = caught.value
    assert isinstance(failure, rk.DatasetError)
    assert (failure.code, failure.location.path) == ("X501", path)
    assert (failure.errno, failure.filename) == (errno.ENOENT, path)
    assert failure.message.startswith("DatasetError X501: ")
    assert failure.to_dict()["error"] == "DatasetError"


def test_a_missing_path_survives_pickling_with_what_a_layer_added_later() -> None:
    with pytest.raises(FileNotFoundError) as caught, add_location(path="data/train.tfrecord"):
        raise error("X501", found="nothing")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is type(caught.value)
    assert (copy.filename, copy.errno, str(copy)) == (
        "data/train.tfrecord",
        errno.ENOENT,
        str(caught.value),
    )


@pytest.mark.parametrize("code", [code for code in CODES if code[0] != "H"])
def test_every_code_has_its_class_its_line_and_its_number(code: str) -> None:
    failure = error(code)
    assert isinstance(failure, FAMILIES[code[0]])
    assert failure.message.startswith(f"{FAMILIES[code[0]].__name__} {code}: ")
    assert str(failure) == f"{code}: {CODES[code]}"
    assert code[1:].isdigit()
    assert len(code) == 4


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_page_that_begins_with_it(code: str) -> None:
    text = page(code)
    assert text is not None
    assert code in text.split("\n")[0]


def test_codes_stay_in_their_families_and_lines_stand_alone() -> None:
    hundreds = {"S": "1", "F": "1", "W": "2", "C": "2", "E": "3", "D": "4", "X": "5", "U": "6", "H": "78"}
    for code, line in CODES.items():
        assert code[1] in hundreds[code[0]]
        assert line
        assert not line.endswith(".")
        assert "\n" not in line
    assert page("Z999") is None


def test_the_text_has_one_labelled_line_a_field() -> None:
    failure = rk.FrameError(
        "F102",
        location=rk.Location(path="train-00007-of-00013.tfrecord", record=48_211, offset=913_402_880),
        expected="masked crc32c 0x9ae0daaf (stored)",
        found="masked crc32c 0x1f2b9c40 (computed)",
        likely="bytes changed after writing: the next frame, at 913,421,100, is intact",
        do="rekord salvage data/ data-repaired/",
    )
    assert failure.message == (
        "FrameError F102: payload checksum does not match\n"
        "  where     train-00007-of-00013.tfrecord, record 48,211, byte 913,402,880\n"
        "  expected  masked crc32c 0x9ae0daaf (stored)\n"
        "  found     masked crc32c 0x1f2b9c40 (computed)\n"
        "  likely    bytes changed after writing: the next frame, at 913,421,100, is intact\n"
        "  do        rekord salvage data/ data-repaired/"
    )
    assert failure.message == f"FrameError {failure}"


def test_what_is_not_known_is_not_said() -> None:
    assert str(rk.UsageError("U605", "no")) == "U605: no"
    assert str(rk.UsageError("U605", "no", do="yes")) == "U605: no\n  do        yes"


def test_a_place_is_said_from_the_outside_in() -> None:
    assert str(WHERE) == (
        "train-00007-of-00013.tfrecord, row 3, record 48,211, byte 913,402,880, payload byte 12, "
        "compressed byte 5,000, feature `label`"
    )
    assert str(rk.Location()) == ""
    assert str(rk.Location(record=0, offset=0)) == "record 0, byte 0"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_is_the_same_after_pickling(kind: type[rk.RekordError]) -> None:
    failure = full(kind)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(failure, protocol))
        assert type(back) is kind
        assert back.to_dict() == failure.to_dict()
        assert str(back) == str(failure)
        assert back.location == WHERE


def test_every_class_crosses_a_process_border(tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(pickle.dumps([full(kind) for kind in CLASSES]))
    program = (
        "import pickle, sys\n"
        "errors = pickle.load(open(sys.argv[1], 'rb'))\n"
        "caught = []\n"
        "for each in errors:\n"
        "    try:\n"
        "        raise each\n"
        "    except Exception as failure:\n"
        "        caught.append(failure)\n"
        "pickle.dump(caught, open(sys.argv[2], 'wb'))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(there), str(back)], check=True)
    returned = pickle.loads(back.read_bytes())
    assert [type(each) for each in returned] == CLASSES
    assert [each.to_dict() for each in returned] == [full(kind).to_dict() for kind in CLASSES]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_is_json(kind: type[rk.RekordError]) -> None:
    said = json.loads(json.dumps(full(kind).to_dict()))
    assert said == {
        "error": kind.__name__,
        "code": "F102",
        "what": "the first line",
        "location": {
            "path": "train-00007-of-00013.tfrecord",
            "record": 48_211,
            "offset": 913_402_880,
            "feature": "label",
            "payload_offset": 12,
            "compressed_offset": 5_000,
            "row": 3,
        },
        "expected": "this",
        "found": "that",
        "likely": "so",
        "do": "do it",
    }


def test_an_outer_layer_adds_only_what_is_missing() -> None:
    with (
        pytest.raises(rk.WireError) as caught,
        add_location(path="outer", record=9, offset=900, feature="f"),
        add_location(path="inner", record=1),
    ):
        raise rk.WireError("W201", location=rk.Location(payload_offset=5, record=0))
    assert caught.value.location == rk.Location(path="inner", record=0, offset=900, payload_offset=5, feature="f")


def test_a_place_that_is_zero_is_known() -> None:
    with pytest.raises(rk.FrameError) as caught, add_location(record=7, offset=70):
        raise rk.FrameError("F101", location=rk.Location(record=0, offset=0))
    assert (caught.value.location.record, caught.value.location.offset) == (0, 0)


def test_other_errors_pass_through_untouched() -> None:
    with pytest.raises(KeyError), add_location(path="x"):
        raise KeyError("not ours")


def test_a_place_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        WHERE.record = 5  # type: ignore[misc]
    assert WHERE.within(path="other") is WHERE
