"""The feature types: what the values of a column are, and which record keys store them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from rekord.arguments import check_keywords
from rekord.errors import preview
from rekord.schema.base import (
    ABSENT,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    TENSOR_DTYPES,
    Changes,
    Feature,
    Inexpressible,
    InvalidDefault,
    ListKind,
    Shape,
    Storage,
    conform_to_shape,
    dtype_changes,
    dtype_name,
    integer_bounds,
    integer_changes,
    is_name,
    json_depth,
    json_number,
    json_octets,
    map_nested,
    to_python_scalar,
    to_stored_float,
    validate_bytes,
    validate_element,
    validate_float,
    validate_integer,
    validate_name,
    validate_text,
)

__all__ = [
    "Boxes", "Bytes", "Float32", "Image", "Int64", "Label", "Mask", "MultiLabel", "Sparse", "Tensor", "Text",
]  # fmt: skip

_MAX_INDICES = 2**63 - 1
_NOT_RAW = ("uint32",)  # not supported by tf.io.decode_raw, with which TFDS reads raw bytes


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Int64(Feature):
    """Integers, stored as int64 and read as `dtype`; uint64 is stored bit for bit, as in TFDS.

    `range` is the least and the greatest value allowed, None for an open end. `cast=True` accepts floats without a
    fractional part.
    """

    shape: Shape = ()
    _: KW_ONLY
    dtype: Any = "int64"
    range: tuple[int | None, int | None] | None = None
    cast: bool = False
    partitions: tuple[str, ...] = ()

    _kind: ClassVar[ListKind] = "int64"
    value_kind = "int"
    family = "integer"
    reads_text = True

    def _validate_fields(self) -> None:
        self._validate_shape()
        self._validate_dtype(INTEGER_DTYPES)
        bound = lambda v: int(validate_integer(v, self.dtype))  # noqa: E731
        self._set("range", self._validate_range(self.range, integer_bounds(self.dtype), bound))
        self._check_flag("cast", self.cast)

    def _conform_element(self, value: object) -> Any:
        return self._check_limits(validate_integer(value, self.dtype), value)

    def _stored_value(self, value: Any) -> int:
        return _signed(int(value))

    def changes_since(self, before: Feature) -> Changes:
        yield from integer_changes(before, self)

    def tfx_domain(self) -> tuple[str, dict[str, Any]] | None:
        if dtype_name(self.dtype) == "bool":
            return "bool_domain", {}
        low, high = self.limits or integer_bounds(self.dtype)
        # uint64 is stored bit for bit, and its upper half has no domain.
        if (self.range is None and dtype_name(self.dtype) == "int64") or high > _MAX_INDICES:
            return None
        return "int_domain", {"min": low, "max": high}

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        return "tensor", {"dtype": dtype_name(self.dtype)}


def _signed(value: int) -> int:
    """A number as int64 holds it: uint64 is stored bit for bit."""
    return value - (1 << 64) if value >= 1 << 63 else value


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Float32(Feature):
    """Floats, stored as float32 and read as `dtype`.

    Values are rounded to the nearest number of the dtype; `rounding="exact"` rejects values that would change.
    `range` is compared after rounding.
    """

    shape: Shape = ()
    _: KW_ONLY
    dtype: Any = "float32"
    range: tuple[float | None, float | None] | None = None
    rounding: Literal["nearest", "exact"] = "nearest"
    partitions: tuple[str, ...] = ()

    _kind: ClassVar[ListKind] = "float"
    value_kind = "float"
    reads_text = True

    def _validate_fields(self) -> None:
        self._validate_shape()
        self._validate_dtype(FLOAT_DTYPES)
        bound = lambda v: validate_float(v, self.dtype, exact=False)  # noqa: E731
        self._set("range", self._validate_range(self.range, (-math.inf, math.inf), bound))
        self._check_choice("rounding", self.rounding, ("nearest", "exact"), do='rounding="nearest"')

    def _conform_element(self, value: object) -> Any:
        return self._check_limits(validate_float(value, self.dtype, exact=self.rounding == "exact"), value)

    def _stored_value(self, value: Any) -> float:
        return to_stored_float(float(value), self.dtype)

    _json_value = staticmethod(json_number)

    def changes_since(self, before: Feature) -> Changes:
        yield from dtype_changes(before.dtype, self.dtype, None)
        if before.limits != self.range:
            everything = -math.inf, math.inf
            had, allowed = before.limits or everything, self.limits or everything
            # NaN is outside every range: data without a range may contain it.
            inside = allowed[0] <= had[0] and had[1] <= allowed[1]
            fits = self.range is None or (before.limits is not None and inside)
            yield fits, f"range {before.limits} became {self.range}"

    def tfx_domain(self) -> tuple[str, dict[str, Any]] | None:
        if self.limits is None:
            return None
        ends = zip(("min", "max"), self.limits, strict=True)
        return "float_domain", {name: end for name, end in ends if math.isfinite(end)}

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        return "tensor", {"dtype": dtype_name(self.dtype)}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Strings(Feature):
    """Byte strings or texts."""

    shape: Shape = ()
    _: KW_ONLY
    partitions: tuple[str, ...] = ()

    reads_text = True

    def _validate_fields(self) -> None:
        self._validate_shape()

    @property
    def dtype(self) -> None:
        return None


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bytes(_Strings):
    """Byte strings, stored unchanged."""

    value_kind = "bytes"

    def _conform_element(self, value: object) -> bytes:
        return validate_bytes(value)

    _json_value = staticmethod(json_octets)

    def reads(self, stored: Feature) -> bool:
        return stored.kind == "bytes"

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        return "tensor", {"dtype": "string"}


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Payload(Bytes):
    """The whole payload of a record as one byte string; the only column of its schema.

    For records that are not Examples: ExampleListWithContext, tf.Event, messages of other programs. They are read and
    copied, not decoded.
    """

    def _validate_fields(self) -> None:
        Bytes._validate_fields(self)
        for name, value in self.declared().items():
            raise self._refuse(
                "S144",
                f"does not take {name}=",
                expected="Payload(): every record has one payload, a byte string",
                found=f"{name}={preview(value)}",
                do=f"drop {name}=",
            )


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Text(_Strings):
    """Strings, stored as UTF-8."""

    value_kind = "str"
    is_text = True

    def _conform_element(self, value: object) -> str:
        return validate_text(value)

    def _stored_value(self, value: Any) -> bytes:
        return str(value).encode()

    def tfx_domain(self) -> tuple[str, dict[str, Any]] | None:
        return "natural_language_domain", {}

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        # A Text of TFDS cannot be missing.
        return ("tensor", {"dtype": "string"}) if self.optional and not self.variable else ("text", {})


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Label(Feature):
    """A class, stored as its id from 0 to `count` - 1. Rows have the id, or the class name if names are declared.

    `Label(["cat", "dog"])` or `Label(10)`; `shape=(None,)` for lists of classes, stored as their ids. `Label()` is
    for `rk.write`, which learns the classes from the data: their values as text, sorted.
    """

    names: tuple[str, ...] | None = None
    count: int = 0
    shape: Shape = ()

    _kind: ClassVar[ListKind] = "int64"
    _first: ClassVar[tuple[str, ...]] = ("names", "count")
    value_kind = "int"
    family = "integer"
    is_label = True

    def __init__(
        self,
        classes: Sequence[str] | int | None = None,
        /,
        *,
        names: Sequence[str] | None = None,
        count: int | None = None,
        shape: Shape = (),
        key: str | None = None,
        optional: bool = False,
        default: Any = ABSENT,
    ) -> None:
        for name, value in (("key", key), ("optional", optional), ("default", default), ("shape", shape)):
            self._set(name, value)
        _set_classes(self, classes, names, count)
        self.__post_init__()

    def _validate_fields(self) -> None:
        _validate_classes(self)
        self._validate_shape()

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<i8")

    @property
    def limits(self) -> tuple[int, int] | None:
        return (0, self.count - 1) if self.count else None

    @property
    def class_count(self) -> int | None:
        return self.count or None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.names

    @property
    def label_count(self) -> int | None:
        return self.count

    def declared(self) -> dict[str, Any]:
        """The fields that were given, without a count that follows from the names."""
        fields = Feature.declared(self)
        if self.names is not None:
            del fields["count"]
        return fields

    def id_of(self, name: str) -> int | None:
        """The id of a class by its name, None if the name is unknown."""
        return self.names.index(name) if self.names is not None and name in self.names else None

    def _conform_element(self, value: object) -> int:
        if self.has_unknown_classes:
            raise InvalidDefault("classes that are declared: Label([names, ...])", value)
        number = self.id_of(value) if isinstance(value, str) else validate_integer(value, self.dtype)
        if number is None or not 0 <= number < self.count:
            raise InvalidDefault(f"a class name, or an id from 0 to {self.count - 1}", value)
        return number

    def changes_since(self, before: Feature) -> Changes:
        if before.class_count is None or self.has_unknown_classes:
            yield from integer_changes(before, self)
            return
        if before.class_count != self.count:
            yield before.class_count < self.count, f"{before.class_count} classes became {self.count}"
        yield from _class_name_changes(before.class_names, self.names)

    def tfx_domain(self) -> tuple[str, dict[str, Any]] | None:
        if self.has_unknown_classes:
            return "int_domain", {"is_categorical": True}
        return "int_domain", {"min": 0, "max": self.count - 1, "is_categorical": True}

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        _require_values(self)
        if self.has_unknown_classes:
            raise Inexpressible("a Label with classes", "Label()")
        return "classLabel", {"numClasses": str(self.count)}


def _class_name_changes(before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> Changes:
    if before == after:
        return
    if before is None or after is None:
        yield True, "class names were added" if before is None else "class names were removed"
        return
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            yield False, f"class {index} {old!r} became {new!r}"
            return


def _set_classes(feature: Label | MultiLabel, classes: object, names: object, count: object) -> None:
    """Set `names` and `count` from the arguments; the positional one is either of them."""
    if classes is not None:
        if isinstance(to_python_scalar(classes), int):
            count = classes if count is None else count
        elif names is None:
            names = classes
    feature._set("names", names)
    feature._set("count", count)


def _validate_classes(feature: Label | MultiLabel) -> None:
    """Bring `names` and `count` into canonical form; a count of 0 means that the classes are to be learned."""
    names, count = feature.names, feature.count
    if names is None and count is None:
        feature._set("count", 0)
        return
    if names is not None:
        feature._set("names", _validate_class_names(feature, names))
    feature._set("count", _validate_class_count(feature, count))


def _validate_class_names(feature: Label | MultiLabel, names: object) -> tuple[str, ...]:
    if isinstance(names, np.ndarray):
        names = names.tolist()
    if not isinstance(names, (list, tuple)):
        raise _class_names_error(feature, "a list of class names, or the number of classes", preview(names))
    for name in names:
        if not is_name(name):
            raise _class_names_error(feature, "names of at least one character, as str", preview(name))
    if len(set(names)) < len(names):
        duplicate = next(name for i, name in enumerate(names) if name in names[:i])
        raise _class_names_error(feature, "unique names", f"duplicate {preview(duplicate)}")
    return tuple([str(name) for name in names])


def _validate_class_count(feature: Label | MultiLabel, count: object) -> int:
    known = None if feature.names is None else len(feature.names)
    count = known if count is None else to_python_scalar(count)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MAX_INDICES:
        raise _class_names_error(feature, "at least one class", "none" if count in (None, 0) else preview(count))
    if known is not None and known != count:
        raise _class_names_error(feature, f"{count} names, one per class", f"{known} names")
    return count


def _class_names_error(feature: Label | MultiLabel, expected: str, found: str) -> Exception:
    name = type(feature).__name__
    return feature._refuse(
        "S108",
        "has invalid classes",
        expected=expected,
        found=found,
        do=f'{name}(["cat", "dog"]), or {name}(10) for classes without names',
    )


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class MultiLabel(Int64):
    """Any number of classes per record, stored multi-hot: `count` integers, 1 for each class of the record, else 0.

    Rows have a list of class names, or the vector itself. `MultiLabel()` is for `rk.write`, which learns the classes
    from the data. `Label(…, shape=(None,))` stores the ids of the classes instead.
    """

    names: tuple[str, ...] | None = None
    count: int = 0

    _first: ClassVar[tuple[str, ...]] = ("names", "count")
    reads_text = False
    is_label = True
    is_multi_hot = True

    def __init__(
        self,
        classes: Sequence[str] | int | None = None,
        /,
        *,
        names: Sequence[str] | None = None,
        count: int | None = None,
        key: str | None = None,
        optional: bool = False,
        default: Any = ABSENT,
    ) -> None:
        fields = {"key": key, "optional": optional, "default": default, "dtype": "int64", "range": (0, 1)}
        for name, value in {**fields, "cast": False, "partitions": (), "shape": ()}.items():
            self._set(name, value)
        _set_classes(self, classes, names, count)
        self.__post_init__()

    def _validate_fields(self) -> None:
        _validate_classes(self)
        if self.count:
            self._set("shape", (self.count,))
        Int64._validate_fields(self)

    @property
    def label_count(self) -> int | None:
        return self.count

    @property
    def label_names(self) -> tuple[str, ...] | None:
        return self.names

    def declared(self) -> dict[str, Any]:
        """The fields that were given, without what follows from the classes."""
        follows = ("shape", "range", "count") if self.names is not None else ("shape", "range")
        return {name: value for name, value in Feature.declared(self).items() if name not in follows}

    def changes_since(self, before: Feature) -> Changes:
        yield from integer_changes(before, self)
        if isinstance(before, MultiLabel):
            yield from _class_name_changes(before.names, self.names)


def _require_values(feature: Feature) -> None:
    if feature.optional:
        raise Inexpressible("a required column: this TFDS feature cannot be missing", f"{feature!r}"[:60])


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(Feature):
    """An array of any fixed-width dtype, stored as its raw little-endian bytes in one byte string.

    Any sizes of `shape` may be None. One of them follows from the number of bytes; with more, a second key,
    `<key>/shape`, has the shape of each array.
    """

    dtype: Any
    shape: Shape = ()

    _first: ClassVar[tuple[str, ...]] = ("dtype",)
    storage: ClassVar[Storage] = "blob"

    def _validate_fields(self) -> None:
        self._validate_dtype(TENSOR_DTYPES)
        self._validate_shape()

    def _validate_partitions(self, value: object, shape: Shape) -> tuple[str, ...]:
        return ()  # a stored shape restores any number of unknown sizes

    @property
    def stores_shape(self) -> bool:
        """Whether a second key has the shape of each array."""
        return self.shape.count(None) > 1

    def record_keys(self, column: str) -> tuple[str, ...]:
        """The key of the bytes, then that of the shape if it is stored."""
        stem = self.key or column
        return (stem, f"{stem}/shape") if self.stores_shape else (stem,)

    def record_kinds(self) -> tuple[ListKind, ...]:
        return ("bytes", "int64") if self.stores_shape else ("bytes",)

    def default_value(self) -> Any:
        """The default as an array."""
        return np.array(self.default, self.dtype) if self.stores_shape else Feature.default_value(self)

    def _conform_element(self, value: object) -> Any:
        return validate_element(value, self.dtype)

    def stored_default(self) -> list[tuple[Any, ...]]:
        array = np.array(self.default, self.dtype)
        stored: list[tuple[Any, ...]] = [(array.astype(self.dtype.newbyteorder("<")).tobytes(),)]
        return [*stored, array.shape] if self.stores_shape else stored

    @classmethod
    def default_from_json(cls, value: Any, members: Mapping[str, Any]) -> Any:
        convert = _parse_complex if members["dtype"] in ("complex64", "complex128") else json_number
        return map_nested(value, json_depth(members), convert)

    def changes_since(self, before: Feature) -> Changes:
        if before.dtype != self.dtype:
            yield False, f"raw bytes of dtype {dtype_name(before.dtype)} are read as {dtype_name(self.dtype)}"

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        _require_values(self)
        dtype = dtype_name(self.dtype)
        if dtype in _NOT_RAW:
            raise Inexpressible("a dtype that tf.io.decode_raw supports", dtype)
        return "tensor", {"dtype": dtype, "encoding": "bytes"}


def _parse_complex(value: Any) -> Any:
    parts = [json_number(part) for part in value] if isinstance(value, list) else []
    if len(parts) == 2 and all(isinstance(part, (int, float)) for part in parts):
        try:
            return complex(*parts)
        except OverflowError:
            return value
    return value


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sparse(Feature):
    """A vector of `size` elements, most of them zero, stored under two keys: `<k>/indices` and `<k>/values`.

    `index_key` and `value_key` override the keys, for data from other writers. A default is a pair (indices, values)
    with ascending indices.
    """

    dtype: Any
    size: int
    _: KW_ONLY
    index_key: str | None = None
    value_key: str | None = None

    _first: ClassVar[tuple[str, ...]] = ("dtype",)
    storage: ClassVar[Storage] = "parallel"

    def _validate_fields(self) -> None:
        self._validate_dtype((*INTEGER_DTYPES, *FLOAT_DTYPES))
        self._set("size", self._validate_integer_field("size", self.size, 1, _MAX_INDICES))
        for name in ("index_key", "value_key"):
            if getattr(self, name) is not None:
                validate_name(getattr(self, name), f"the {name} of a Sparse feature")

    @property
    def kind(self) -> ListKind:
        return "float" if dtype_name(self.dtype) in FLOAT_DTYPES else "int64"

    @property
    def shape(self) -> Shape:
        return (self.size,)

    @property
    def sparse_size(self) -> int:
        return self.size

    def record_keys(self, column: str) -> tuple[str, ...]:
        """The key of the indices, then that of the values."""
        stem = self.key or column
        return self.index_key or f"{stem}/indices", self.value_key or f"{stem}/values"

    def record_kinds(self) -> tuple[ListKind, ...]:
        return "int64", self.kind

    def default_value(self) -> Any:
        """The default as two arrays: indices and values."""
        indices, values = self.default
        return np.array(indices, np.int64), np.array(values, self.dtype)

    def _conform_default(self, value: object) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise InvalidDefault("a pair (indices, values)", value)
        index_type = np.dtype("<i8")
        indices = conform_to_shape(value[0], (None,), False, lambda one: validate_integer(one, index_type))
        values = conform_to_shape(value[1], (None,), False, lambda one: validate_element(one, self.dtype))
        ascending = all(a < b for a, b in pairwise(indices))
        if len(indices) != len(values) or not ascending or not all(0 <= i < self.size for i in indices):
            raise InvalidDefault(f"ascending indices from 0 to {self.size - 1}, and one value per index", value)
        return indices, values

    def stored_default(self) -> list[tuple[Any, ...]]:
        indices, values = self.default
        if self.kind == "float":
            return [tuple(indices), tuple([to_stored_float(float(value), self.dtype) for value in values])]
        return [tuple(indices), tuple([_signed(int(value)) for value in values])]

    @classmethod
    def default_from_json(cls, value: Any, members: Mapping[str, Any]) -> Any:
        return map_nested(value, 2, json_number)

    def shape_changes_since(self, before: Feature) -> Changes:
        (old,) = before.shape
        if old != self.size:
            yield (old or 0) < self.size, f"size {old} became {self.size}"

    def changes_since(self, before: Feature) -> Changes:
        yield from dtype_changes(before.dtype, self.dtype, None)

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        raise Inexpressible("a dense column, or two columns of indices and values", type(self).__name__)


BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")
_MAX_CLASSES = 2**16  # the values of a 16-bit PNG
_FORMATS = ("jpeg", "png", "gif", "bmp", "webp", "avif", "heic")
_LOSSY_FORMATS = ("jpeg", "webp")
_BITS = (8, 16)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _EncodedFeature(Feature):
    """An encoded image, stored as one byte string."""

    storage: ClassVar[Storage] = "blob"
    is_image = True

    @property
    def shape(self) -> Shape:
        return ()

    @property
    def dtype(self) -> None:
        return None

    def _conform_default(self, value: object) -> Any:
        encoded = validate_bytes(value)
        if not encoded:
            raise InvalidDefault("the bytes of an encoded image", value)
        return encoded

    _json_value = staticmethod(json_octets)

    def tfx_domain(self) -> tuple[str, dict[str, Any]] | None:
        return "image_domain", {}


@check_keywords
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Image(_EncodedFeature):
    """An encoded image. `quality` is required to write arrays as JPEG.

    `bits` are those of its decoded samples: 8 or 16, None for those of the images themselves.
    """

    format: str | None = None
    quality: int | None = None
    channels: int | None = None
    bits: int | None = None

    def _validate_fields(self) -> None:
        if self.format is not None:
            name = self.format.lower() if isinstance(self.format, str) else self.format
            self._set("format", "jpeg" if name == "jpg" else name)
            self._check_choice("format", self.format, _FORMATS, do='format="jpeg", or format=None for any')
        if self.quality is not None:
            self._set("quality", self._validate_integer_field("quality", self.quality, 1, 100))
            if self.format not in _LOSSY_FORMATS:
                raise self._refuse(
                    "S110",
                    "has a quality, but no lossy format",
                    expected="quality= only with " + " or ".join([f'format="{name}"' for name in _LOSSY_FORMATS]),
                    found=f"format={self.format!r}, quality={self.quality}",
                    do='format="jpeg", or drop quality=',
                )
        if self.channels is not None:
            self._set("channels", self._validate_integer_field("channels", self.channels, 1, 4))
        if self.bits not in (None, *_BITS):
            expected = "8 or 16, or None for the bits of the images"
            raise self._field_error("bits", self.bits, expected, do="bits=16, for images of 16 bits per sample")

    def changes_since(self, before: Feature) -> Changes:
        for name in ("format", "channels", "bits"):
            old, new = getattr(before, name), getattr(self, name)
            if old != new:
                yield new is None, f"{name} {old!r} became {new!r}"

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        _require_values(self)
        if self.format in ("gif", "webp", "avif", "heic"):
            raise Inexpressible("JPEG, PNG or BMP, which TFDS decodes", f"format {self.format}")
        encoding = {"encodingFormat": self.format} if self.format in ("jpeg", "png") else {}
        dtype = "uint16" if self.bits == 16 else "uint8"
        return "image", {"shape": (None, None, self.channels or 3), "dtype": dtype, **encoding}


@check_keywords
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Mask(_EncodedFeature):
    """A single-channel PNG of class ids from 0 to `classes` - 1, and `ignore` for pixels without a class.

    It belongs to the Image column `of`, by default the only Image of the schema.
    """

    classes: int
    ignore: int | None = None
    of: str | None = None

    def _validate_fields(self) -> None:
        self._set("classes", self._validate_integer_field("classes", self.classes, 1, _MAX_CLASSES))
        if self.ignore is not None:
            self._set("ignore", self._validate_integer_field("ignore", self.ignore, 0, _MAX_CLASSES - 1))
        if self.of is not None:
            validate_name(self.of, "the Image column `of` a Mask")

    def changes_since(self, before: Feature) -> Changes:
        assert isinstance(before, Mask)
        if before.classes != self.classes:
            yield before.classes < self.classes, f"{before.classes} classes became {self.classes}"
        if before.ignore != self.ignore:
            # A new ignore value is harmless only if it was not a class; an old one must still be ignored.
            new = before.ignore is None and self.ignore is not None and self.ignore >= before.classes
            yield new, f"ignore {before.ignore} became {self.ignore}"
        elif before.ignore is not None and before.classes <= before.ignore < self.classes:
            yield True, f"{before.ignore} is still ignored, but is now also a class"

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        _require_values(self)
        dtype = "uint8" if self.classes <= 256 else "uint16"
        image = {"shape": (None, None, 1), "dtype": dtype, "encodingFormat": "png"}
        return "mask", {**image, "useColormap": True, "label": {"numClasses": str(self.classes)}}


@check_keywords
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Boxes(Feature):
    """Boxes as an (n, 4) array of xmin, ymin, xmax, ymax, stored under four keys as in TFOD.

    `key` is the common prefix of the four keys, "image/object/bbox" if None.
    """

    _kind: ClassVar[ListKind] = "float"
    storage: ClassVar[Storage] = "parallel"

    @property
    def shape(self) -> Shape:
        return (None, 4)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4")

    def record_keys(self, column: str) -> tuple[str, ...]:
        """The keys of xmin, ymin, xmax, ymax, in the order of the value's columns."""
        stem = self.key or "image/object/bbox"
        return tuple([f"{stem}/{side}" for side in BOX_SIDES])

    def record_kinds(self) -> tuple[ListKind, ...]:
        return "float", "float", "float", "float"

    def _conform_element(self, value: object) -> float:
        return validate_float(value, self.dtype, exact=False)

    def stored_default(self) -> list[tuple[Any, ...]]:
        sides = list(zip(*self.default, strict=True)) or [()] * 4
        return [tuple([float(value) for value in side]) for side in sides]

    @classmethod
    def default_from_json(cls, value: Any, members: Mapping[str, Any]) -> Any:
        return map_nested(value, 2, json_number)

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        return "tensor", {"dtype": "float32"}
