"""What every feature type shares: key, presence, dtype, shape, range and default."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from rekord.arguments import is_utf8_encodable
from rekord.errors import RekordError, preview, schema_error

INTEGER_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOAT_DTYPES = ("float16", "float32", "bfloat16")
TENSOR_DTYPES = (*INTEGER_DTYPES, *FLOAT_DTYPES, "float64", "complex64", "complex128")

_SHORT_DTYPE_NAMES = {np.dtype(name).str[1:]: name for name in TENSOR_DTYPES if name != "bfloat16"}
_BFLOAT16_MAX = 3.3895313892515355e38
_FLOAT_MAXIMA = {
    "float16": 65504.0,
    "bfloat16": _BFLOAT16_MAX,
    "float32": float(np.finfo(np.float32).max),
    "float64": float(np.finfo(np.float64).max),
}


def dtype_name(dtype: Any) -> str:
    """The canonical name of the dtype of a feature."""
    return dtype if isinstance(dtype, str) else str(dtype.name)


def _canonical_dtype_name(value: object) -> str | None:
    # Strings are looked up, never handed to NumPy: it warns about some and builds structures from others.
    if isinstance(value, str):
        bare = value[1:] if value[:1] in ("<", "|", "=") else value
        return bare if bare in TENSOR_DTYPES else _SHORT_DTYPE_NAMES.get(bare)
    if isinstance(value, type):
        try:
            value = np.dtype(value)
        except Exception:  # NumPy may raise anything for an arbitrary class
            return None
    if isinstance(value, np.dtype):
        return None if value.byteorder == ">" else str(value.name)
    name = getattr(value, "name", None)  # tf.int64 and the like
    return name if isinstance(name, str) else None


def integer_bounds(dtype: Any) -> tuple[int, int]:
    """The least and the greatest integer of a dtype; 0 and 1 for bool."""
    if dtype_name(dtype) == "bool":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def float_maximum(dtype: Any) -> float:
    """The greatest finite number of a real float dtype."""
    return _FLOAT_MAXIMA[dtype_name(dtype)]


def round_to_dtype(value: float, dtype: Any) -> float:
    """`value` in a float dtype, with the fewest digits that identify it there: 0.1 stays 0.1.

    A finite value that is too large for the dtype becomes infinite; rejecting that is up to the caller.
    """
    name = dtype_name(dtype)
    if value != value or value in (float("inf"), float("-inf")):
        return value
    with np.errstate(over="ignore"):
        if name == "bfloat16":
            return float(str(round_to_bfloat16(np.array([value], np.float32))[0]))
        return float(str(np.dtype(name).type(value)))


def round_to_bfloat16(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """float32 values rounded to the upper half of their bits, ties to even; needs no ml_dtypes."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    up = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    up &= np.uint32(0xFFFF0000)
    # A NaN whose bits all lie in the lower half must not become infinite, nor an infinity more.
    kept = np.where(np.isnan(numbers), (bits & np.uint32(0xFFFF0000)) | np.uint32(0x00400000), bits)
    return np.where(np.isfinite(numbers), up, kept).astype(np.uint32).view(np.float32)


Shape: TypeAlias = "tuple[int | None, ...]"

_MAX_DIMENSIONS = 32  # NumPy's limit before 2.0
_MAX_ELEMENTS = 2**63 - 1


_MAX_EXACT_FLOAT32_INT = 2**24


class Absent(enum.Enum):
    """The type of `ABSENT`, the default of a feature without one."""

    ABSENT = enum.auto()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent.ABSENT


class InvalidDefault(Exception):
    """Why a value is not valid for a feature, which turns this into its own error."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(expected)
        self.expected = expected
        self.found = preview(found)


class Inexpressible(Exception):
    """What a feature declares and another format cannot express."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self.found = found


def conform_to_shape(value: object, shape: Shape, ragged: bool, scalar: Callable[[object], Any]) -> Any:
    """`value` as nested tuples of the given shape, each element converted by `scalar`."""
    lengths: dict[int, int] = {}

    def walk(part: object, axis: int) -> Any:
        if isinstance(part, np.ndarray):
            part = part.tolist()
        if axis == len(shape):
            if isinstance(part, (list, tuple)):
                raise InvalidDefault(f"a value of shape {shape}", value)
            return scalar(part)
        if not isinstance(part, (list, tuple)):
            raise InvalidDefault(f"a value of shape {shape}", value)
        size = shape[axis]
        if size is None and not ragged:
            size = lengths.setdefault(axis, len(part))
        if size is not None and len(part) != size:
            raise InvalidDefault(f"a value of shape {shape}", value)
        return tuple([walk(inner, axis + 1) for inner in part])

    return walk(value, 0)


def validate_integer(value: object, dtype: Any) -> int | bool:
    """An integer that fits a dtype."""
    value = to_python_scalar(value)
    low, high = integer_bounds(dtype)
    if not isinstance(value, int):
        raise InvalidDefault(f"an integer for {dtype_name(dtype)}", value)
    if not low <= value <= high:
        raise InvalidDefault(f"an integer from {low} to {high}, for {dtype_name(dtype)}", value)
    return bool(value) if dtype_name(dtype) == "bool" else int(value)


def validate_float(value: object, dtype: Any, *, exact: bool) -> float:
    """A number rounded to a float dtype; with `exact`, one that needs no rounding."""
    value = to_python_scalar(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidDefault(f"a number for {dtype_name(dtype)}", value)
    given = value
    try:
        value = float(value)
    except OverflowError:
        raise InvalidDefault(f"a number that fits {dtype_name(dtype)}", given) from None
    number = round_to_dtype(value, dtype)
    if abs(value) != float("inf") and abs(number) == float("inf"):
        raise InvalidDefault(f"a number up to ±{float_maximum(dtype)!r}, for {dtype_name(dtype)}", given)
    survives = given == to_stored_float(value, dtype) or given != given
    if not survives and exact:
        raise InvalidDefault(f'a number that {dtype_name(dtype)} represents exactly (rounding="exact")', given)
    if not survives and isinstance(given, int) and abs(given) > _MAX_EXACT_FLOAT32_INT:
        raise InvalidDefault(f"an integer that {dtype_name(dtype)} represents exactly", given)
    return number


def to_stored_float(value: float, dtype: Any) -> float:
    """The number that is stored, with all digits."""
    name = dtype_name(dtype)
    return float(np.dtype("float32" if name == "bfloat16" else name).type(round_to_dtype(value, dtype)))


def validate_element(value: object, dtype: Any) -> Any:
    """One element of a tensor, in its dtype."""
    name = dtype_name(dtype)
    if name.startswith(("bool", "int", "uint")):
        return validate_integer(value, dtype)
    if not name.startswith("complex"):
        return validate_float(value, dtype, exact=False)
    value = to_python_scalar(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, complex)):
        raise InvalidDefault(f"a number for {name}", value)
    part = np.dtype("float32" if name == "complex64" else "float64")
    return complex(validate_float(value.real, part, exact=False), validate_float(value.imag, part, exact=False))


def validate_bytes(value: object) -> bytes:
    """A byte string."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise InvalidDefault('bytes, such as b"..."; use Text for a str', value)


def validate_text(value: object) -> str:
    """A str that UTF-8 can encode."""
    if not isinstance(value, str):
        raise InvalidDefault("a str; use Bytes for bytes", value)
    if not is_utf8_encodable(value):
        raise InvalidDefault("a str without lone surrogates, which UTF-8 cannot encode", value)
    return str(value)


def to_python_scalar(value: object) -> object:
    """A NumPy scalar as a Python number."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating, np.complexfloating)):
        return value.item()
    return float(value) if value.dtype.name == "bfloat16" else value


ListKind: TypeAlias = Literal["int64", "float", "bytes"]
Storage: TypeAlias = Literal["list", "blob", "parallel"]
Changes: TypeAlias = "Iterator[tuple[bool, str]]"
"""Whether stored data can still be read, and what changed."""

FEATURE_TYPES: dict[str, type[Feature]] = {}
"""Every feature type by its name in JSON documents; subclasses of Feature register themselves."""

_COMMON_FIELDS = ("key", "optional", "default")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Feature:
    """What all feature types share. `key` is the key in the record; the column name if None.

    A value may be absent if the feature is `optional` or has a `default`, which is kept as plain Python values
    (nested tuples for a shape). Two features are equal if they declare the same.
    """

    key: str | None = None
    optional: bool = False
    default: Any = ABSENT

    _kind: ClassVar[ListKind] = "bytes"
    _first: ClassVar[tuple[str, ...]] = ()  # fields that repr shows without names

    storage: ClassVar[Storage] = "list"
    """list: one element per value under one key. blob: one byte string. parallel: lists under several keys."""

    value_kind: ClassVar[Literal["int", "float", "bytes", "str"] | None] = None
    """The Python type whose values the encoder stores without conversion."""

    is_text: ClassVar[bool] = False
    """Whether byte strings are UTF-8 and are decoded to str."""

    reads_text: ClassVar[bool] = False
    """Whether a text field, as in CSV, can be parsed as a value."""

    is_image: ClassVar[bool] = False
    """Whether values are encoded images, which `decode=True` decodes to pixels."""

    is_media: ClassVar[bool] = False
    """Whether values are audio or video, which `decode=True` decodes to samples or frames."""

    is_label: ClassVar[bool] = False
    """Whether values name classes, which can be learned from data."""

    is_multi_hot: ClassVar[bool] = False
    """Whether a value has a 1 for each class of the record, and a 0 for each other class."""

    family: ClassVar[str] = ""
    """Types of one family store the same kind of value and can read each other's data."""

    def __init_subclass__(cls, **options: Any) -> None:
        # With slots, a dataclass is created twice; the second class replaces the first.
        known = FEATURE_TYPES.get(cls.__name__)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{cls.__module__}: feature type {cls.__name__} already exists in {known.__module__}")
        if not cls.__name__.startswith("_"):
            FEATURE_TYPES[cls.__name__] = cls

    if TYPE_CHECKING:
        # Fields or properties of every subclass; real ones here would become defaults of its fields.
        @property
        def shape(self) -> Shape: ...
        @property
        def dtype(self) -> Any: ...

    @property
    def kind(self) -> ListKind:
        """The kind of list that holds the values in the record."""
        return self._kind

    @property
    def has_default(self) -> bool:
        return not isinstance(self.default, Absent)

    @property
    def required(self) -> bool:
        """Whether a record without this feature is an error."""
        return not self.optional and not self.has_default

    @property
    def variable(self) -> bool:
        """Whether the number of values varies from record to record."""
        return None in self.shape

    @property
    def stored_shape(self) -> Shape:
        """The shape of the record's list: a blob is always one value."""
        return () if self.storage == "blob" else self.shape

    @property
    def stored_dtype(self) -> Any:
        """The dtype of the stored numbers; that of the values unless they are converted."""
        return self.dtype

    @property
    def limits(self) -> tuple[Any, Any] | None:
        """The least and the greatest number that may be stored; None if only the dtype limits them."""
        return getattr(self, "range", None)

    @property
    def class_count(self) -> int | None:
        """The number of classes, if values are class ids."""
        return None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names, if values are ids of named classes."""
        return None

    @property
    def has_unknown_classes(self) -> bool:
        """Whether the classes are still to be learned from data."""
        return self.is_label and not self.label_count

    @property
    def label_count(self) -> int | None:
        """The number of classes that a record may have one or several of; None if values are not labels."""
        return self.class_count

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The names of these classes by id, if they have names."""
        return self.class_names

    @property
    def time_zone(self) -> str | None:
        """The time zone for tables, if values are points in time."""
        return None

    @property
    def number_text(self) -> Callable[[int], str] | None:
        """Formats a stored integer that represents something else, such as a point in time."""
        return None

    @property
    def sparse_size(self) -> int | None:
        """The length of a vector that is stored as indices and values."""
        return None

    def is_missing(self, value: object) -> bool:
        """Whether a value of a row counts as missing."""
        return value is None

    def record_keys(self, column: str) -> tuple[str, ...]:
        """The record keys of this feature, the key of the values first if there is one."""
        return (self.key or column, *self._partition_keys())

    def record_kinds(self) -> tuple[ListKind, ...]:
        """The list kind of each of `record_keys`, in the same order."""
        lengths: list[ListKind] = ["int64" for _ in self._partition_keys()]
        return (self.kind, *lengths)

    def default_value(self) -> Any:
        """The default as a row has it: an array or scalar of the dtype, else bytes, str, nested tuples."""
        dtype = self.dtype
        if not isinstance(dtype, np.dtype) or self._partition_keys():
            return self.default
        if self.shape == ():
            return dtype.type(self.default)
        return restore_shape(np.array(self.default, dtype), self.shape)

    def stored_default(self) -> list[tuple[Any, ...]]:
        """The default as one list per record key."""
        lengths: list[tuple[Any, ...]] = []
        level = self.default
        for _ in self._partition_keys():
            lengths.append(tuple([len(part) for part in level]))
            level = tuple([value for part in level for value in part])
        return [tuple([self._stored_value(value) for value in flat_values(level)]), *lengths]

    @classmethod
    def default_from_json(cls, value: Any, members: Mapping[str, Any]) -> Any:
        """The JSON value of `default` as a constructor argument; `members` are those of the whole feature."""
        return map_nested(value, json_depth(members), cls._json_value)

    @classmethod
    def range_from_json(cls, value: Any) -> Any:
        """The JSON value of `range` as a constructor argument."""
        return [cls._json_value(bound) for bound in value] if isinstance(value, list) else value

    def reads(self, stored: Feature) -> bool:
        """Whether this type can read every stored value of another one, judged by the types alone."""
        return type(stored) is type(self) or (bool(self.family) and self.family == stored.family)

    def changes_since(self, before: Feature) -> Changes:
        """What differs from a feature that this type can read, other than key, presence and shape."""
        yield from ()

    def shape_changes_since(self, before: Feature) -> Changes:
        """How the shape differs from that of a feature that this type can read."""
        # A blob of any shape is one byte string to any other type.
        yield from shape_changes(before.shape if before.storage == self.storage else before.stored_shape, self.shape)

    def tfx_domain(self) -> tuple[str, dict[str, Any]] | None:
        """The domain in TFX's schema.pbtxt: its field and members."""
        return None

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        """The kind of the TFDS feature and its members; raises Inexpressible if there is none."""
        raise Inexpressible("a type that TFDS supports", f"{self!r}"[:60])

    def declared(self) -> dict[str, Any]:
        """The fields that differ from their defaults, in order of declaration."""
        own = [field for field in dataclasses.fields(self) if field.name not in _COMMON_FIELDS]
        shared = [field for field in dataclasses.fields(self) if field.name in _COMMON_FIELDS]
        values = {field.name: (getattr(self, field.name), field.default) for field in own + shared}
        return {name: value for name, (value, usual) in values.items() if not _is_same_value(value, usual)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feature) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        parts = []
        for name, value in self.declared().items():
            parts.append(_format_argument(value) if name in self._first else f"{name}={_format_argument(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _identity(self) -> tuple[Any, ...]:
        values = [_identity_key(getattr(self, field.name)) for field in dataclasses.fields(self)]
        return (type(self).__name__, *values)

    def _partition_keys(self) -> tuple[str, ...]:
        return getattr(self, "partitions", ())

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        # The key first, as errors name it; the default last, as it has to match everything else.
        if self.key is not None:
            validate_name(self.key, f"the record key of a feature ({type(self).__name__})")
        self._validate_fields()
        self._check_flag("optional", self.optional)
        if self.optional and self.has_default:
            raise self._refuse(
                "S107",
                "is both optional and has a default",
                expected="optional=True to keep missing values, or default= to fill them",
                found=f"optional=True, default={preview(self.default)}",
                do="drop optional=True, or drop default=",
            )
        if self.optional and 0 in self.stored_shape:
            raise self._refuse(
                "S124",
                "is optional and always empty",
                expected="a shape that can hold a value: an empty list would mean absent",
                found=f"shape={self.shape}",
                do="drop optional=True, or declare the shape of the values",
            )
        if self.has_default:
            try:
                self._set("default", self._conform_default(self.default))
            except InvalidDefault as misfit:
                raise self._refuse(
                    "S106",
                    "has a default that does not match it",
                    expected=misfit.expected,
                    found=misfit.found,
                    do="give a default that is a valid value of the column",
                ) from None

    def _validate_fields(self) -> None:
        """Check the fields of the type itself, and bring them into canonical form."""

    def _validate_shape(self) -> None:
        """Check `shape`, a tuple of sizes with None where a size varies, and `partitions` where the type has them."""
        value = self.shape
        if not isinstance(value, (tuple, list)) or len(value) > _MAX_DIMENSIONS:
            raise self._refuse(
                "S101",
                "has an invalid shape",
                expected=f"a tuple of at most {_MAX_DIMENSIONS} sizes, each an integer or None",
                found=preview(value),
                do="shape=() for a scalar, shape=(3,) for three values, shape=(None,) for a varying number",
            )
        shape = tuple(None if size is None else self._validate_dimension(size, value) for size in value)
        self._set("shape", shape)
        known = math.prod(size for size in shape if size is not None)
        if known > _MAX_ELEMENTS:
            raise self._refuse(
                "S101",
                "has more elements than a record can hold",
                expected="fewer than 2^63 elements",
                found=preview(shape),
                do="reduce the sizes",
            )
        if known == 0 and None in shape:
            raise self._refuse(
                "S101",
                "has a shape whose unknown size cannot be restored",
                expected="no 0 next to None: without stored values, any size would match",
                found=preview(shape),
                do="replace None with the size, or drop the dimension of size 0",
            )
        partitions = self._validate_partitions(self._partition_keys(), shape)
        if hasattr(self, "partitions"):
            self._set("partitions", partitions)

    def _validate_dimension(self, size: object, shape: object) -> int:
        try:
            number = -1 if isinstance(size, bool) else operator.index(size)  # type: ignore[arg-type]
        except TypeError:
            number = -1
        if number < 0:
            raise self._refuse(
                "S101",
                f"has a shape with size {preview(size)}",
                expected="an integer ≥ 0, or None for a size that varies",
                found=preview(shape),
                do="None, not -1, for a size that varies" if size == -1 else "give each size as an integer or None",
            )
        return number

    def _validate_partitions(self, value: object, shape: Shape) -> tuple[str, ...]:
        """The keys of row lengths, one for each unknown dimension except the outermost."""
        if not isinstance(value, (tuple, list)) or not all(is_name(key) for key in value):
            raise self._refuse(
                "S103",
                "has partitions that are not record keys",
                expected="a tuple of record keys, each a str",
                found=preview(value),
                do='partitions=("tokens/row_lengths",)',
            )
        partitions = tuple(value)
        unknown = shape.count(None)
        if unknown > 1 and not partitions:
            raise self._refuse(
                "S102",
                "has more than one unknown dimension",
                expected="at most one None: a flat list of values cannot restore more",
                found=f"shape={shape}",
                do=f"fix all sizes except one, or name {unknown - 1} record key(s) of row lengths with partitions=",
            )
        if len(set(partitions)) < len(partitions):
            raise self._refuse(
                "S103",
                "has duplicate partitions",
                expected="a record key for each level of row lengths",
                found=preview(partitions),
                do="give each level its own key",
            )
        if partitions and (unknown != len(partitions) + 1 or shape[:unknown] != (None,) * unknown):
            raise self._refuse(
                "S103",
                "has partitions that do not match its shape",
                expected=f"{len(partitions) + 1} leading None for {len(partitions)} partition(s), then sizes",
                found=f"shape={shape}",
                do=f"shape={(None,) * (len(partitions) + 1)}, or another number of partitions",
            )
        return partitions

    def _validate_dtype(self, allowed: tuple[str, ...]) -> None:
        """Check `dtype`. bfloat16 is a NumPy dtype only with ml_dtypes installed; without it, the name is kept."""
        name = _canonical_dtype_name(self.dtype)
        if name not in allowed:
            is_tensor_dtype = name in TENSOR_DTYPES and allowed != TENSOR_DTYPES
            raise self._refuse(
                "S104",
                f"does not support dtype {preview(self.dtype)}",
                expected="one of " + ", ".join(allowed),
                found=preview(self.dtype),
                do=f'Tensor("{name}", shape=...) keeps every bit' if is_tensor_dtype else "use one of these dtypes",
            )
        if name != "bfloat16":
            self._set("dtype", np.dtype(name).newbyteorder("<"))
            return
        try:
            self._set("dtype", np.dtype(import_module("ml_dtypes").bfloat16))
        except ImportError:
            self._set("dtype", name)

    def _validate_range(
        self, value: object, limits: tuple[Any, Any], bound: Callable[[object], Any]
    ) -> tuple[Any, Any] | None:
        """`value` as (least, greatest), an open end filled from `limits`; `bound` converts and checks a number."""
        if value is None:
            return None
        if not isinstance(value, (tuple, list)) or len(value) != 2 or (value[0] is None and value[1] is None):
            raise self._range_error(value, "(least, greatest), at most one of them None")
        try:
            low = limits[0] if value[0] is None else bound(value[0])
            high = limits[1] if value[1] is None else bound(value[1])
        except InvalidDefault as misfit:
            raise self._range_error(value, misfit.expected) from None
        if low != low or high != high:
            raise self._range_error(value, "numbers, not NaN")
        if low > high:
            raise self._range_error(value, "the least value first")
        return low, high

    def _range_error(self, value: object, expected: str) -> RekordError:
        return self._refuse(
            "S105",
            "has an invalid range",
            expected=expected,
            found=preview(value),
            do="range=(0, 10) for both ends, range=(0, None) for one",
        )

    def _check_choice(self, name: str, value: object, choices: tuple[str, ...], *, do: str) -> None:
        if not isinstance(value, str) or value not in choices:
            expected = "one of " + ", ".join([f'"{choice}"' for choice in choices])
            raise self._field_error(name, value, expected, do)

    def _conform_default(self, value: object) -> Any:
        """A default in its canonical form; raises InvalidDefault."""
        return conform_to_shape(value, self.shape, bool(self._partition_keys()), self._conform_element)

    def _conform_element(self, value: object) -> Any:
        """One element of a default in its canonical form; raises InvalidDefault."""
        raise NotImplementedError

    def _stored_value(self, value: Any) -> Any:
        """One value of a default, as the record's list holds it."""
        return value

    @staticmethod
    def _json_value(value: Any) -> Any:
        """One value of a default or a range, from JSON."""
        return value

    def _check_flag(self, name: str, value: object) -> None:
        if not isinstance(value, bool):
            raise self._field_error(name, value, f"{name}=True or {name}=False", f"{name}=True")

    def _validate_integer_field(self, name: str, value: object, low: int, high: int) -> int:
        value = to_python_scalar(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._field_error(name, value, f"an integer from {low} to {high}", f"{name}={low}")
        return value

    def _check_limits(self, number: Any, value: object) -> Any:
        """A number of a default, which must be in the declared range."""
        if (limits := self.limits) is not None and not limits[0] <= number <= limits[1]:
            raise InvalidDefault(f"a number from {limits[0]} to {limits[1]}", value)
        return number

    def _field_error(self, name: str, value: object, expected: str, do: str) -> RekordError:
        what, found = f"has {name}={preview(value)}", preview(value)
        return self._refuse("S110", what, expected=expected, found=found, do=do)

    def _refuse(self, code: str, what: str, *, expected: str, found: str, do: str) -> RekordError:
        name = type(self).__name__
        column = self.key if isinstance(self.key, str) else None
        who = f"{name} `{column}`" if column else name
        return schema_error(code, f"{who} {what}", column=column, expected=expected, found=found, do=do)


FeatureT = TypeVar("FeatureT", bound=Feature)


def restore_shape(values: npt.NDArray[Any], shape: Shape) -> npt.NDArray[Any]:
    """An array in a shape with at most one unknown size, which follows from the number of values."""
    known = math.prod(size for size in shape if size is not None)
    missing = values.size // known if known else 0
    return values.reshape([missing if size is None else size for size in shape])


def of_type(columns: Mapping[str, Feature], kind: type[FeatureT]) -> dict[str, FeatureT]:
    """The columns of one feature type, in their order."""
    return {name: feature for name, feature in columns.items() if isinstance(feature, kind)}


def flat_values(value: Any) -> Iterator[Any]:
    """The leaves of nested tuples and lists, in order."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from flat_values(part)
    else:
        yield value


def map_nested(value: Any, depth: int, convert: Callable[[Any], Any]) -> Any:
    """Nested lists with each element at `depth` converted."""
    if depth == 0 or not isinstance(value, list):
        return convert(value)
    return [map_nested(part, depth - 1, convert) for part in value]


def json_depth(members: Mapping[str, Any]) -> int:
    """The number of dimensions that the JSON of a feature declares."""
    shape = members.get("shape", ())
    return len(shape) if isinstance(shape, list) else 0


def json_number(value: Any) -> Any:
    """A number from JSON, where strings stand for NaN and infinities."""
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


_NON_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def json_octets(value: Any) -> Any:
    """Bytes from JSON: an object whose only member is "base64"."""
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            return value
    return value


def shape_changes(a: Shape, b: Shape) -> Changes:
    """What changes for values of shape `a` that are read with shape `b`."""
    if a == b:
        return
    if {a, b} <= {(), (1,)} or (a == () and b == (None,)):
        yield True, f"one value, of shape {a}, is read with shape {b}"
        return
    fits = len(a) == len(b) and all(new is None or new == old for old, new in zip(a, b, strict=True))
    yield fits, f"shape {a} became {b}"


def dtype_changes(a: Any, b: Any, held: tuple[int, int] | None) -> Changes:
    """Whether values of one dtype, from `held[0]` to `held[1]` if known, fit another."""
    old, new = dtype_name(a), dtype_name(b)
    if old == new:
        return
    if old in FLOAT_DTYPES or new in FLOAT_DTYPES:
        fits = old in FLOAT_DTYPES and new == "float32"
    else:
        low, high = held or integer_bounds(a)
        least, most = integer_bounds(b)
        if "uint64" in (old, new):
            # uint64 is stored bit for bit: its upper half looks like negative numbers to any other dtype.
            most = min(most, 2**63 - 1)
        fits = least <= low and high <= most
    yield fits, f"dtype {old} became {new}"


def integer_changes(before: Feature, after: Feature) -> Changes:
    """Whether the integers of one feature fit another."""
    held = before.limits or integer_bounds(before.stored_dtype)
    yield from dtype_changes(before.stored_dtype, after.stored_dtype, held)
    low, high = after.limits or integer_bounds(after.stored_dtype)
    if held != (low, high) and before.limits != after.limits:
        what = f"range {held[0]} to {held[1]} became {low} to {high}"
        yield low <= held[0] and held[1] <= high, what


def is_name(value: object) -> TypeGuard[str]:
    """Whether a value can be the name of a column or class, or a record key."""
    return isinstance(value, str) and bool(value) and is_utf8_encodable(value)


def validate_name(name: object, what: str) -> str:
    """A column name or a record key: a str that a record can hold."""
    if not is_name(name):
        raise schema_error(
            "S109",
            f"{what} has no valid name",
            expected="a str of at least one character that UTF-8 can encode",
            found=preview(name),
            do="give it a name",
        )
    return name


def _is_same_value(value: Any, usual: Any) -> bool:
    if isinstance(usual, str) and not isinstance(value, str):
        return hasattr(value, "name") and dtype_name(value) == usual
    return type(value) is type(usual) and _identity_key(value) == _identity_key(usual)


def _identity_key(value: Any) -> Any:
    """A key that compares like stored bytes: NaN equals NaN, 0.0 does not equal -0.0."""
    if isinstance(value, tuple):
        return tuple([_identity_key(part) for part in value])
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, complex):
        return "complex", value.real.hex(), value.imag.hex()
    return dtype_name(value) if isinstance(value, np.dtype) else value


def _format_argument(value: Any) -> str:
    if isinstance(value, np.dtype):
        return repr(dtype_name(value))
    if isinstance(value, float) and not np.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, tuple):
        inner = ", ".join([_format_argument(part) for part in value])
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
