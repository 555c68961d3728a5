"""What the tensors of a tf.data element become: columns of a row, and the features that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Image, Int64, Sparse, Tensor
from rekord.schema.dtypes import FLOATS, INTEGERS, TENSORS
from rekord.schema.refuse import refuse
from rekord.schema.rowforms import flat_row
from rekord.schema.tfds_features import FLAT_VALUES, ROW_LENGTHS

Dims: TypeAlias = "tuple[int | None, ...]"

_MOST_INDICES = 2**63 - 1
_CHANNELS = (1, 3, 4)
_PIXELS = ("uint8", "uint16", *FLOATS, "float64")
_MAPPED = "map the dataset to dicts of tensors: dataset.map(lambda …: {…})"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor of an element, as its spec declares it; `dims` is None where even their number is unknown."""

    name: str
    form: Literal["dense", "ragged", "sparse"]
    dtype: str
    dims: Dims | None
    levels: int = 0  # the ragged dimensions after the first, of a ragged tensor
    looked: bool = False  # at the first rows, for what the spec does not tell

    @property
    def lacks_channels(self) -> bool:
        """Whether these may be images of as many channels as their files have, which TensorFlow never knows."""
        dims = self.dims or ()
        known = self.looked or self.form != "dense" or self.dtype not in _PIXELS or 0 in dims
        return not known and len(dims) == 3 and dims[2] is None

    def seen(self, tensor: Any) -> Leaf:
        """The same, with the dimensions of a tensor, which is the first of them, or with its channels only."""
        sizes = _sizes(self, tensor)
        if self.lacks_channels:
            assert self.dims is not None
            sizes = (*self.dims[:2], sizes[2] if sizes[2] in _CHANNELS else None)
        return replace(self, dims=sizes, looked=True)

    def merged(self, tensor: Any) -> Leaf:
        """The same, with None for each dimension in which this tensor differs from those before."""
        assert self.dims is not None
        sizes = _sizes(self, tensor)
        if len(sizes) != len(self.dims):
            counts = sorted({len(sizes), len(self.dims)})
            raise refuse(
                "S131",
                f"`{self.name}` has values of different numbers of dimensions",
                column=self.name,
                expected="always as many dimensions",
                found=" and ".join([f"{n} dimension" + "s" * (n != 1) for n in counts]),
                do="give each value one rank in the pipeline: tf.ensure_shape(value, [None, 3])",
            )
        both = zip(sizes, self.dims, strict=True)
        return replace(self, dims=tuple([new if new == old else None for new, old in both]))


def _sizes(leaf: Leaf, tensor: Any) -> Dims:
    # How large the space of a sparse tensor is differs from row to row where no spec says it.
    if leaf.form == "sparse":
        return (None,) * int(tensor.indices.shape[1])
    return tuple([None if size is None else int(size) for size in tensor.shape])


def flat_element(element: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """The tensors of an element, or their specs, by the names of columns.

    Names of nested dicts and named tuples join with `/`; the parts of a tuple that is inside are numbered.
    """
    if not isinstance(element, (Mapping, tuple, list)):
        element = (element,)
    is_tuple = not isinstance(element, Mapping) and (names is not None or not hasattr(element, "_fields"))
    row = tuple([_numbered(part) for part in element]) if is_tuple else _numbered(element)
    try:
        return flat_row(row, 0, names)
    except RekordError as failure:
        counts = (failure.found or "").endswith(" values")
        raise no_rows(
            None, failure.expected or "", failure.found or "", (failure.do or "") if counts else _MAPPED
        ) from None


def _numbered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _numbered(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", [str(i) for i in range(len(value))])
        return {name: _numbered(part) for name, part in zip(names, value, strict=True)}
    return value


def leaf_of(name: str, spec: Any) -> Leaf:
    """What a spec declares; refuses what is no tensor, and tensors of types that no record holds."""
    kind = type(spec).__name__
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape") or kind == "TensorArraySpec":
        do = _MAPPED
        if kind == "OptionalSpec":
            do = "take the values out: dataset.map(lambda x: x.get_value())"
        elif kind == "NoneTensorSpec":
            do = "leave the None out of the elements: dataset.map(lambda x, _: x)"
        raise no_rows(name, "tensors, in a dict or a tuple", f"{spec!r}"[:60], do)
    dtype = str(spec.dtype.name)
    if dtype not in TENSORS and dtype != "string":
        raise no_rows(
            name,
            "numbers, bools or strings",
            f"a tensor of {dtype}"[:60],
            "convert it in the pipeline: tf.cast(value, tf.int32), or tf.io.serialize_tensor(value)",
        )
    dims = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    if kind == "SparseTensorSpec":
        return Leaf(name, "sparse", dtype, dims)
    levels = int(getattr(spec, "ragged_rank", 0))
    return Leaf(name, "ragged" if levels else "dense", dtype, dims, levels)


def features_of(leaf: Leaf) -> dict[str, Feature] | None:
    """The columns of a tensor, most often one; None where its dimensions must be looked at first."""
    if leaf.dims is None or leaf.lacks_channels:
        return None
    if leaf.form == "sparse":
        return _sparse(leaf)
    if leaf.dims.count(None) > 1 or leaf.levels:
        return {leaf.name: _ragged(leaf)}
    if 0 in leaf.dims and None in leaf.dims:
        return None  # with no values stored, any size would fit
    return {leaf.name: _one(leaf.dtype, leaf.dims)}


def values_of(leaf: Leaf, tensor: Any) -> dict[str, Any]:
    """The values of `features_of`, from the tensor of one element."""
    if leaf.form == "ragged":
        return {leaf.name: tensor.to_list()}
    if leaf.form == "dense":
        value = tensor.numpy()
        return {leaf.name: value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value}
    indices, values = tensor.indices.numpy(), tensor.values.numpy()
    size = _sparse_size(leaf)
    if size is not None:
        assert leaf.dims is not None
        flat = indices @ np.array([prod(leaf.dims[i + 1 :]) for i in range(len(leaf.dims))], np.int64)  # type: ignore[arg-type]
        return {leaf.name: (flat, values)}
    places = (f"{leaf.name}/indices", f"{leaf.name}/values", f"{leaf.name}/dense_shape")
    return dict(zip(places, (indices, values, tensor.dense_shape.numpy()), strict=True))


def _one(dtype: str, dims: Dims) -> Feature:
    if dtype == "string":
        return Bytes(dims)
    if dtype in INTEGERS and not (dims and dtype in ("uint8", "uint16")):
        return Int64(dims, dtype=dtype)
    return Float32(dims, dtype=dtype) if dtype in FLOATS else Tensor(dtype, dims)


def _is_picture(leaf: Leaf) -> bool:
    """Whether these are decoded images of any size: PNG keeps every pixel, and its own size."""
    dims = leaf.dims or ()
    return leaf.form == "dense" and leaf.dtype == "uint8" and len(dims) == 3 and dims[2] in _CHANNELS


def _ragged(leaf: Leaf) -> Feature:
    name, dtype, dims = leaf.name, leaf.dtype, leaf.dims or ()
    if _is_picture(leaf):
        return Image(format="png", channels=dims[2])
    varying = [at for at, size in enumerate(dims) if size is None]
    levels = max(leaf.levels, *varying)
    shape = (None,) * (levels + 1) + dims[levels + 1 :]
    key = f"{name}/{FLAT_VALUES}"
    lengths = tuple([f"{name}/{ROW_LENGTHS}{level}" for level in range(levels)])
    if dtype == "string":
        return Bytes(shape, key=key, partitions=lengths)
    if dtype in INTEGERS:
        return Int64(shape, dtype=dtype, key=key, partitions=lengths)
    if dtype in FLOATS:
        return Float32(shape, dtype=dtype, key=key, partitions=lengths)
    cast = "" if dtype.startswith("complex") else ", or tf.cast(value, tf.float32)"
    raise no_rows(
        name,
        f"at most one size that varies, for {dtype}",
        f"shape {dims}"[:60],
        f"pad the values to one size in the pipeline{cast}",
    )


def _sparse_size(leaf: Leaf) -> int | None:
    """How many values a sparse tensor can hold, where one `Sparse` can say it all: the dimensions are flattened."""
    if not leaf.dims or None in leaf.dims or leaf.dtype not in (*INTEGERS, *FLOATS):
        return None
    size = prod(leaf.dims)  # type: ignore[arg-type]
    return size if 1 <= size <= _MOST_INDICES else None


def _sparse(leaf: Leaf) -> dict[str, Feature]:
    size = _sparse_size(leaf)
    if size is not None:
        return {leaf.name: Sparse(leaf.dtype, size)}
    rank = len(leaf.dims or ())
    return {
        f"{leaf.name}/indices": Int64((None, rank)),
        f"{leaf.name}/values": _one(leaf.dtype, (None,)),
        f"{leaf.name}/dense_shape": Int64((rank,)),
    }


def no_rows(column: str | None, expected: str, found: str, do: str = _MAPPED) -> RekordError:
    """The error for elements that cannot become rows."""
    return error("X539", location=Location(feature=column), expected=expected, found=found, do=do)
