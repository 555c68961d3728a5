"""What transforms of pictures cost on the disk: pixels that are stored raw, and pictures that grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rekord.engines.job import Job
from rekord.engines.shaped import Shaped
from rekord.schema import Feature, Image, Mask, Schema, Tensor
from rekord.transforms.chain import Chain
from rekord.transforms.pictures import Decode, Normalize
from rekord.verbs.figures import byte_size
from rekord.verbs.sample import Sample, sample_of

WORTH_SAYING = 1.5  # times as large


class Larger(NamedTuple):
    """A column that takes more space than it has to, and the line that says so."""

    column: str
    line: str


def larger(job: Job, sample: Sample, rows: int | None) -> Iterator[Larger]:
    """The columns of pictures that transforms make larger than the encoded pictures are."""
    layout = job.layout
    if not isinstance(layout, Shaped) or not sample.payloads or job.schema.is_sequence:
        return
    columns = layout.layout.schema.context
    before = [name for name, one in columns.items() if isinstance(one, Image)]
    pictures = [name for name, one in columns.items() if isinstance(one, (Image, Mask))]
    raw = [name for name in pictures if isinstance(job.schema.context.get(name), Tensor)]
    if raw:
        yield from _decoded(job, layout, sample, raw, rows)
    kept = [name for name in before if isinstance(job.schema.context.get(name), Image)]
    if len(before) == len(kept) == 1 and sample.pictures and sample.rows:
        stored = _each(sample, kept[0], job.schema.context[kept[0]])
        given = sample.picture_bytes / sample.rows
        if stored / given >= WORTH_SAYING:
            kind = sample.pictures.most_common(1)[0][0]
            yield Larger(
                kept[0],
                f"`{kept[0]}`: {_total(given, rows)} of {kind} become {_total(stored, rows)} "
                f"({stored / given:.1f} × as much); store the pictures as they are, and transform them when "
                "reading: split.transform(…)",
            )


def _decoded(job: Job, layout: Shaped, sample: Sample, raw: list[str], rows: int | None) -> Iterator[Larger]:
    """Raw pixels beside the same pictures without the step that decodes them."""
    steps = layout.chain.steps
    last = next((step for step in steps if isinstance(step, (Decode, Normalize))), None)
    if last is None:
        return  # somebody's own transform: what there would be without it nobody knows
    encoded = Chain(tuple([step for step in steps if not isinstance(step, (Decode, Normalize))]))
    other = replace(job, layout=Shaped(layout.layout, encoded), index=())
    compared = sample_of(other, rows)
    if not compared.payloads:
        return
    for name in raw:
        feature = job.schema.context[name]
        stored = _each(sample, name, feature)
        packed = _each(compared, name, other.schema.context[name])
        if not packed or stored / packed < WORTH_SAYING:
            continue
        kind = _kind(compared, other.schema, name)
        yield Larger(
            name,
            f"`{name}`: raw {feature.dtype} pixels take {_total(stored, rows)}, the same as {kind} "
            f"{_total(packed, rows)} ({stored / packed:.1f} × as much); store those, and leave "
            f"`{last.name}` to reading: split.transform(…)",
        )


def _each(sample: Sample, name: str, feature: Feature) -> float:
    """The bytes of a column in a record."""
    return sample.key_bytes[feature.key or name] / max(1, len(sample.payloads))


def _kind(sample: Sample, schema: Schema, name: str) -> str:
    """The format of the encoded pictures, as most of them have it."""
    from rekord.codec.decode import decode
    from rekord.codec.looking import shown_format
    from rekord.codec.pictures import format_of

    formats = [format_of(decode(payload, schema)[name] or b"") for payload in sample.payloads[:4]]
    most = Counter([one for one in formats if one is not None]).most_common(1)
    return shown_format(most[0][0]) if most else "pictures"


def _total(each: float, rows: int | None) -> str:
    """The bytes of all rows, or of one where nobody knows how many there are."""
    return f"{byte_size(round(each))} a record" if rows is None else f"about {byte_size(round(each * rows))}"
