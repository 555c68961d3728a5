"""What one file shows of a trouble with its bytes, and the few looks at a file that tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from rekord.health.ailments.case import FileFacts
from rekord.health.finding import Finding
from rekord.records.compression import read_head
from rekord.storage.files import LOCAL

NOT_EVEN = " (Is this even a TFRecord file?)"
"""What TensorFlow adds where the very first record cannot be read."""


@dataclass(slots=True, kw_only=True)
class Sign:
    """What one file shows."""

    code: str
    facts: FileFacts
    findings: tuple[str, ...] = ()  # the codes that it explains
    evidence: list[str] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    likely: str | None = None
    do: str
    tensorflow_error: str | None = None
    all_records: bool = False  # every record of the file is affected, not those of the findings


def only(facts: FileFacts, code: str) -> Finding:
    group = facts.of(code)
    assert group is not None
    return group.first[0]


def size_bytes(path: str) -> int:
    return LOCAL.stat(path).size_bytes


def head_of(path: str) -> bytes:
    with LOCAL.open_read(path) as file:
        return read_head(file)
