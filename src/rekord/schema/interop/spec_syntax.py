"""The features of a tf.io spec, read from the syntax of a Python file: nothing is imported and nothing runs."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekord.errors import RekordError, closest_match, error
from rekord.location import Location
from rekord.schema.interop import tf_spec
from rekord.schema.interop.tf_spec import FEATURE_CLASSES, PARTITION_KINDS, Dtype, FixedLenSequenceSpec

MAX_ENTRIES = 100_000
MAX_INTEGER = 1 << 63

_MAX_STEPS = 1_000_000  # a few lines can double something fifty times
_MAX_DEPTH = 50  # names that lead to names, and expressions in expressions
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, slots=True)
class NameBinding:
    """What a statement does to a name: binds it to a value, puts one item into it, or merges a dict into it."""

    value: ast.expr | None  # None where the syntax alone does not say it
    line: int
    conditional: bool = False
    item: ast.expr | None = None
    merges: bool = False
    what: str = ""  # what it is, where there is no value


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of a module or of a function, and of what stands around it."""

    path: str
    names: Mapping[str, Sequence[NameBinding]] = field(default_factory=dict)
    outer: Scope | None = None
    steps_left: list[int] = field(default_factory=lambda: [_MAX_STEPS], compare=False)

    def within(self, names: Mapping[str, Sequence[NameBinding]]) -> Scope:
        """A scope inside this one, which shares the work that may be done."""
        return Scope(self.path, names, self, self.steps_left)

    def find(self, name: str) -> tuple[Sequence[NameBinding], Scope] | None:
        """What happens to a name, and where."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name], scope
            scope = scope.outer
        return None


def evaluate_constant(node: ast.expr, scope: Scope, depth: int = 0) -> Any:
    """A number, a text, None, or a tuple of such (a list becomes one)."""
    check_depth(node, scope, depth)
    node, scope = resolve_name(node, scope, depth)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple([evaluate_constant(each, scope, depth + 1) for each in node.elts])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = evaluate_constant(node.operand, scope, depth + 1)
        if isinstance(value, (int, float)):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _evaluate_operator(node, scope, depth)
    if isinstance(node, ast.Call) and last_name_part(node.func) in ("list", "tuple") and len(node.args) == 1:
        value = evaluate_constant(node.args[0], scope, depth + 1)
        if isinstance(value, tuple):
            return value
    raise not_literal_error(node, scope, describe_node(node))


def _evaluate_operator(node: ast.BinOp, scope: Scope, depth: int) -> Any:
    left, right = (
        evaluate_constant(node.left, scope, depth + 1),
        evaluate_constant(node.right, scope, depth + 1),
    )
    numbers = type(left) is int and type(right) is int
    joined = isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (str, tuple))
    if joined and len(left) + len(right) <= MAX_ENTRIES:
        return left + right
    # Small numbers only: what a hostile file could make of powers and products has no end.
    if (
        numbers
        and abs(left) < MAX_INTEGER
        and abs(right) < MAX_INTEGER
        and not (isinstance(node.op, ast.FloorDiv) and right == 0)
    ):
        return _OPERATORS[type(node.op)](left, right)
    raise not_literal_error(node, scope, "a calculation with something else than whole numbers")


def resolve_name(node: ast.expr, scope: Scope, depth: int = 0) -> tuple[ast.expr, Scope]:
    """The expression that a name stands for, and the scope in which it is to be read."""
    seen = 0
    while isinstance(node, ast.Name):
        found = scope.find(node.id)
        if found is None:
            return node, scope
        events, where = found
        if all(event.what == "an import" for event in events):
            return node, scope
        if len(events) != 1:
            raise not_literal_error(events[1], where, f"`{node.id}`, bound more than once")
        node, scope = require_value(events[0], node, where), where
        seen += 1
        check_depth(node, scope, depth + seen)
    return node, scope


def find_bindings(node: ast.Name, scope: Scope) -> tuple[Sequence[NameBinding], Scope]:
    """What happens to a name that must be bound somewhere in the file, and where."""
    found = scope.find(node.id)
    if found is None:
        raise not_literal_error(node, scope, f"`{node.id}`, which this file does not bind")
    return found


def require_value(event: NameBinding, node: ast.Name, scope: Scope) -> ast.expr:
    """The value of an event, which the syntax must say."""
    if event.value is None:
        raise not_literal_error(event, scope, f"`{node.id}`, {event.what}")
    return event.value


def last_name_part(node: ast.AST) -> str | None:
    """`FixedLenFeature` of `tf.io.FixedLenFeature`, or of a bare name; None for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def describe_node(node: ast.AST) -> str:
    """What an expression is, in a few words of the file's own text."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return f"`{text}`" if len(text) <= 50 else f"`{text[:49]}…`"


def check_depth(node: ast.AST, scope: Scope, depth: int) -> None:
    """Refuse what has no end."""
    scope.steps_left[0] -= 1
    if depth > _MAX_DEPTH or scope.steps_left[0] < 0:
        raise not_literal_error(node, scope, "names or expressions that lead too deep, or in a circle")


def not_literal_error(node: ast.AST | NameBinding, scope: Scope, what: str) -> RekordError:
    """The error for what the syntax alone does not say."""
    line = node.line if isinstance(node, NameBinding) else getattr(node, "lineno", None)
    return error(
        "S134",
        "a tf.io spec is read from the syntax alone, and this part of it only running would tell",
        location=Location(path=scope.path, line=line),
        expected="literals: texts, numbers, lists, tf.io features, and names that are bound to such",
        found=what,
        do="write it as a literal, or give --schema FILE",
    )


_DTYPES: dict[str, Dtype] = {
    "int64": "int64",
    "float32": "float32",
    "float": "float32",
    "string": "string",
    "str_": "string",
    "bytes_": "string",
}
_VALUE_TYPES: dict[Dtype, type | tuple[type, ...]] = {"int64": int, "float32": (int, float), "string": bytes}
_EXPECTED_DTYPE = "tf.int64, tf.float32 or tf.string: records hold no other"
# The parameters of the five classes and of the partitions, as TensorFlow names and orders them.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "FixedLenFeature": ("shape", "dtype", "default_value"),
    "VarLenFeature": ("dtype",),
    "FixedLenSequenceFeature": ("shape", "dtype", "allow_missing", "default_value"),
    "SparseFeature": ("index_key", "value_key", "dtype", "size", "already_sorted"),
    "RaggedFeature": ("dtype", "value_key", "partitions", "row_splits_dtype", "validate"),
    **{kind: ("length" if kind == "UniformRowLength" else "key",) for kind in PARTITION_KINDS},
}
_REQUIRED = {"shape", "dtype", "index_key", "size", "key", "length"}


def parse_spec_dict(node: ast.expr, scope: Scope, depth: int = 0) -> dict[str, tf_spec.SpecFeature] | None:
    """The spec that an expression stands for, or None where it is no dict at all."""
    check_depth(node, scope, depth)
    if isinstance(node, ast.Name):
        return _parse_named_dict(node, scope, depth)
    pairs: list[tuple[ast.expr | str | None, ast.expr]]
    if isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.Call) and last_name_part(node.func) in ("dict", "OrderedDict"):
        if len(node.args) > 1:
            raise not_literal_error(node, scope, "a dict of several arguments")
        pairs = [(None, each) for each in node.args]
        pairs += [(each.arg, each.value) for each in node.keywords]
    elif isinstance(node, ast.DictComp):
        return _parse_comprehension(node, scope, depth)
    else:
        return None
    spec: dict[str, tf_spec.SpecFeature] = {}
    for key, value in pairs:
        if key is None:
            _merge_entries(spec, value, scope, depth)
        else:
            _add_entry(spec, key, value, scope, depth)
    return spec


def _parse_named_dict(node: ast.Name, scope: Scope, depth: int) -> dict[str, tf_spec.SpecFeature] | None:
    events, where = find_bindings(node, scope)
    if any(event.conditional for event in events) and len(events) > 1:
        event = next(event for event in events if event.conditional)
        raise not_literal_error(event, where, f"`{node.id}` changed under a condition or in a loop")
    begin = max((i for i, event in enumerate(events) if not event.merges and event.item is None), default=0)
    first = events[begin]
    spec = parse_spec_dict(require_value(first, node, where), where, depth + 1)
    if spec is None:
        return None
    for event in events[begin + 1 :]:
        value = require_value(event, node, where)
        if event.item is not None:
            _add_entry(spec, event.item, value, where, depth)
        else:
            _merge_entries(spec, value, where, depth)
    return spec


def _parse_comprehension(node: ast.DictComp, scope: Scope, depth: int) -> dict[str, tf_spec.SpecFeature]:
    # `{name: tf.io.FixedLenFeature([], tf.float32) for name in NAMES}`, which says as much as a literal does.
    loop = node.generators[0]
    simple = len(node.generators) == 1 and not loop.ifs and isinstance(loop.target, ast.Name)
    # Python 3.15 lets the key of a comprehension be a `**` one, which has no value.
    if not simple or not isinstance(node.value, ast.expr):
        raise not_literal_error(node, scope, "a comprehension of several loops or with conditions")
    names = evaluate_constant(loop.iter, scope, depth + 1)
    if not isinstance(names, tuple):
        raise not_literal_error(loop.iter, scope, "a loop over something that is no list")
    spec: dict[str, tf_spec.SpecFeature] = {}
    for name in names:
        bound = NameBinding(ast.copy_location(ast.Constant(name), loop.iter), loop.iter.lineno)
        inner = scope.within({loop.target.id: [bound]})  # type: ignore[attr-defined]
        _add_entry(spec, node.key, node.value, inner, depth)
    return spec


def _add_entry(
    spec: dict[str, tf_spec.SpecFeature], key: ast.expr | str, value: ast.expr, scope: Scope, depth: int
) -> None:
    name = key if isinstance(key, str) else evaluate_constant(key, scope, depth + 1)
    if not isinstance(name, str) or not name:
        raise not_literal_error(value if isinstance(key, str) else key, scope, "a key that is no text")
    spec[name] = parse_feature(value, scope, name, depth + 1)
    if len(spec) > MAX_ENTRIES:
        raise not_literal_error(value, scope, f"a spec of more than {MAX_ENTRIES:,} features")


def _merge_entries(spec: dict[str, tf_spec.SpecFeature], value: ast.expr, scope: Scope, depth: int) -> None:
    other = parse_spec_dict(value, scope, depth + 1)
    if other is None:
        raise not_literal_error(value, scope, "something that is no dict, merged into one")
    spec.update(other)


def parse_feature(node: ast.expr, scope: Scope, name: str, depth: int = 0) -> tf_spec.SpecFeature:
    """The tf.io feature that an expression makes."""
    call, scope = resolve_name(node, scope, depth)
    made = _parse_call(call, scope, depth)
    if made is None:
        what = describe_node(call)
        raise _spec_error(call, scope, name, "one of the five feature classes of tf.io", what)
    kind, given = made
    if kind not in FEATURE_CLASSES:
        raise _spec_error(call, scope, name, "one of the five feature classes of tf.io", f"a {kind}")
    reader = _CallArguments(kind, given, call, scope, name, depth + 1)
    dtype = reader.dtype("dtype")
    match kind:
        case "FixedLenFeature":
            shape = reader.shape("shape")
            return tf_spec.FixedLenSpec(shape, dtype, reader.default(shape, dtype))
        case "VarLenFeature":
            return tf_spec.VarLenSpec(dtype)
        case "FixedLenSequenceFeature":
            padding = reader.default((), dtype)
            return FixedLenSequenceSpec(reader.shape("shape"), dtype, reader.flag("allow_missing"), padding)
        case "SparseFeature":
            value_key = reader.texts("value_key")[0]
            size = reader.shape("size")
            return tf_spec.SparseSpec(
                reader.texts("index_key"), value_key, dtype, size, reader.flag("already_sorted")
            )
    value_key_of = reader.value("value_key")
    if value_key_of is not None and not isinstance(value_key_of, str):
        raise reader.refused("value_key", "a text")
    return tf_spec.RaggedSpec(
        dtype,
        value_key_of,
        reader.partitions(),
        "int64" if reader.split_type() == "int64" else "int32",
        reader.flag("validate"),
    )


class _CallArguments:
    """The arguments of one call, by the names of the parameters."""

    def __init__(
        self, kind: str, given: dict[str, ast.expr], call: ast.expr, scope: Scope, name: str, depth: int
    ) -> None:
        self._given, self._call, self._scope, self._name, self._depth = given, call, scope, name, depth
        needed = _REQUIRED | ({"value_key"} if kind == "SparseFeature" else set())
        for parameter in _PARAMETERS[kind]:
            if parameter in needed and parameter not in given:
                raise _spec_error(call, scope, name, f"{kind} with its {parameter}", "a call without it")

    def value(self, parameter: str) -> Any:
        node = self._given.get(parameter)
        return None if node is None else evaluate_constant(node, self._scope, self._depth)

    def default(self, shape: tuple[int, ...], dtype: Dtype) -> Any:
        value = self.value("default_value")
        if value is None:
            return None
        # As TensorFlow does: the values are counted, and brought into the shape.
        values = _flatten(value)
        if len(values) != math.prod(shape):
            raise self.refused("default_value", f"{math.prod(shape):,} values, as the shape says")
        if dtype == "string":
            values = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in values]
        if not all(isinstance(each, _VALUE_TYPES[dtype]) for each in values):
            raise self.refused("default_value", f"values of tf.{dtype}")
        return _reshape(values, shape)

    def flag(self, parameter: str) -> bool:
        value = self.value(parameter)
        if value not in (None, True, False):
            raise self.refused(parameter, "True or False")
        return bool(value)

    def texts(self, parameter: str) -> tuple[str, ...]:
        value = self.value(parameter)
        several = value if isinstance(value, tuple) else (value,)
        if not several or not all(isinstance(each, str) and each for each in several):
            raise self.refused(parameter, "the name of a key")
        return several

    def shape(self, parameter: str) -> tuple[int, ...]:
        node, scope = resolve_name(self._given[parameter], self._scope, self._depth)
        if isinstance(node, ast.Call) and last_name_part(node.func) == "TensorShape" and len(node.args) == 1:
            node = node.args[0]
        value = evaluate_constant(node, scope, self._depth)
        sizes = value if isinstance(value, tuple) else (value,)
        if not all(type(size) is int and 0 <= size < MAX_INTEGER for size in sizes):
            raise self.refused(parameter, "sizes that are known: FixedLenFeature takes no None")
        return sizes

    def dtype(self, parameter: str) -> Dtype:
        found = self._type_name(parameter)
        if found not in _DTYPES:
            raise self.refused(parameter, _EXPECTED_DTYPE)
        return _DTYPES[found]

    def split_type(self) -> str:
        if "row_splits_dtype" not in self._given:
            return "int32"
        found = self._type_name("row_splits_dtype")
        if found not in ("int32", "int64"):
            raise self.refused("row_splits_dtype", "tf.int32 or tf.int64")
        return found

    def _type_name(self, parameter: str) -> str:
        node, _ = resolve_name(self._given[parameter], self._scope, self._depth)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        return last_name_part(node) or ""

    def partitions(self) -> tuple[tf_spec.Partition, ...]:
        if "partitions" not in self._given:
            return ()
        node, scope = resolve_name(self._given["partitions"], self._scope, self._depth)
        if not isinstance(node, (ast.List, ast.Tuple)):
            raise self.refused("partitions", "a list of partitions")
        return tuple([self._partition(each, scope) for each in node.elts])

    def _partition(self, node: ast.expr, scope: Scope) -> tf_spec.Partition:
        node, scope = resolve_name(node, scope, self._depth)
        made = _parse_call(node, scope, self._depth)
        if made is None or made[0] not in PARTITION_KINDS:
            raise _spec_error(node, scope, self._name, "one of RaggedFeature's partitions", describe_node(node))
        kind, given = made
        inner = _CallArguments(kind, given, node, scope, self._name, self._depth + 1)
        if kind == "UniformRowLength":
            return tf_spec.Partition("UniformRowLength", length=inner.shape("length")[0])
        return tf_spec.Partition(kind, key=inner.texts("key")[0])  # type: ignore[arg-type]

    def refused(self, parameter: str, expected: str) -> RekordError:
        node = self._given[parameter]
        found = f"{parameter}={describe_node(node)}"
        return _spec_error(node, self._scope, self._name, expected, found)


def _parse_call(node: ast.expr, scope: Scope, depth: int) -> tuple[str, dict[str, ast.expr]] | None:
    """(class, arguments by name) of a call of one of tf.io's classes."""
    if not isinstance(node, ast.Call):
        return None
    func, _ = resolve_name(node.func, scope, depth)
    kind = last_name_part(func)
    if kind not in _PARAMETERS:
        return None
    parameters = _PARAMETERS[kind]
    given: dict[str, ast.expr] = {}
    for position, argument in enumerate(node.args):
        if isinstance(argument, ast.Starred):
            raise not_literal_error(argument, scope, "arguments from a list (`*`)")
        if position >= len(parameters):
            raise _spec_error(node, scope, None, f"at most {len(parameters)} arguments of {kind}", "more")
        given[parameters[position]] = argument
    for keyword in node.keywords:
        if keyword.arg is None:
            raise not_literal_error(keyword.value, scope, "arguments from a dict (`**`)")
        if keyword.arg not in parameters:
            near = closest_match(keyword.arg, parameters)
            expected = f"`{near}`, perhaps" if near else f"one of {', '.join(parameters)}"
            raise _spec_error(keyword.value, scope, None, expected, f"an argument `{keyword.arg}` of {kind}")
        given[keyword.arg] = keyword.value
    return kind, given


def _flatten(value: Any) -> list[Any]:
    return [inner for part in value for inner in _flatten(part)] if isinstance(value, tuple) else [value]


def _reshape(values: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    return tuple([_reshape(values[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])])


def _spec_error(node: ast.AST, scope: Scope, name: str | None, expected: str, found: str) -> RekordError:
    return error(
        "S137",
        f"`{name[:60]}` is not a feature that TensorFlow takes" if name else None,
        location=Location(path=scope.path, line=getattr(node, "lineno", None), feature=name),
        expected=expected,
        found=found,
        do="correct this line of the file",
    )
