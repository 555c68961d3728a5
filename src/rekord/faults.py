"""Faults of the core as errors: the one place where a fault becomes a code and a message."""

from __future__ import annotations

from rekord._core import Fault, Problem
from rekord.errors import RekordError, error
from rekord.location import Location

_CODES = {
    Fault.LENGTH_CRC: "F101",
    Fault.PAYLOAD_CRC: "F102",
    Fault.CUT_HEADER: "F103",
    Fault.CUT_RECORD: "F104",
    Fault.IMPOSSIBLE_LENGTH: "F105",
    Fault.VARINT: "W201",
    Fault.LENGTH: "W202",
    Fault.TAG: "W203",
    Fault.GROUP: "W204",
    Fault.KEY_UTF8: "W205",
    Fault.PACKED_FLOATS: "W206",
    Fault.DEPTH: "W207",
}

_NOT_AN_EXAMPLE_HINT = "rekord show PATH --record N      (the payload may not be a tf.train.Example)"
_COPY_AGAIN_HINT = "copy the file again from its origin; the other records can still be read"


def is_wire_fault(fault: Fault) -> bool:
    """Whether a fault lies in the payload's wire format, regardless of the schema."""
    return _CODES.get(fault, "").startswith("W")


def frame_error(problem: Problem, *, record: int, offset: int, end_is_known: bool = True) -> RekordError:
    """The error for a frame that cannot be read; `offset` is that of its first byte.

    Without `end_is_known`, as in a compressed file, the number of remaining bytes is an estimate.
    """
    expected, found = _describe_frame_fault(problem, end_is_known)
    return error(
        _CODES[problem.fault],
        location=Location(record=record, offset=offset),
        expected=expected,
        found=found,
        do=_COPY_AGAIN_HINT,
    )


def wire_error(problem: Problem) -> RekordError:
    """The error for a payload that is not valid protobuf."""
    expected, found = _describe_wire_fault(problem)
    return error(
        _CODES[problem.fault],
        location=Location(payload_offset=problem.at),
        expected=expected,
        found=found,
        do=_NOT_AN_EXAMPLE_HINT,
    )


def _describe_frame_fault(problem: Problem, end_is_known: bool) -> tuple[str, str]:
    expected, found = problem.expected, problem.found
    if problem.fault in (Fault.LENGTH_CRC, Fault.PAYLOAD_CRC):
        return f"masked crc32c 0x{expected:08x} (stored)", f"masked crc32c 0x{found:08x} (computed)"
    if problem.fault == Fault.CUT_HEADER:
        return f"{expected} bytes of header", f"{_format_bytes(found)}, then the end of the file"
    if problem.fault == Fault.CUT_RECORD:
        left = _format_bytes(found) if end_is_known else f"at most {_format_bytes(found)}"
        return f"a record of {_format_bytes(expected)}, framing included", f"{left} before the end of the file"
    return (
        f"at most {_format_bytes(expected)}, the rest of the file",
        f"a length of {_format_bytes(found)}",
    )


def _describe_wire_fault(problem: Problem) -> tuple[str, str]:
    expected, found = problem.expected, problem.found
    match problem.fault:
        case Fault.VARINT:
            return "a varint that ends within its message", "no final byte"
        case Fault.LENGTH:
            return f"at most {_format_bytes(expected)}", f"a length of {_format_bytes(found)}"
        case Fault.TAG:
            return "a field number ≥ 1 and a wire type from 0 to 5", f"tag 0x{found:x}"
        case Fault.GROUP:
            closing = f"tag 0x{expected:x}" if expected else "no end-group tag: no group is open"
            return closing, f"tag 0x{found:x}" if found else "the end of the message"
        case Fault.KEY_UTF8:
            return "a UTF-8 name", "invalid UTF-8"
        case Fault.PACKED_FLOATS:
            return "a multiple of 4 bytes", _format_bytes(found)
        case _:
            return f"at most {found} levels", "more"


def _format_bytes(count: int) -> str:
    return f"{count:,} byte" if count == 1 else f"{count:,} bytes"
