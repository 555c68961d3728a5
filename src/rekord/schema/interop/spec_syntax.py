"""`tf.io` specs read from the syntax of a Python file; nothing is imported or executed."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rekord.errors import RekordError, closest_match, error
from rekord.location import Location
from rekord.schema.base import flat_values
from rekord.schema.interop import tf_spec
from rekord.schema.interop.tf_spec import FEATURE_CLASSES, PARTITION_KINDS, Dtype, FixedLenSequenceSpec

MAX_ENTRIES = 100_000
MAX_INTEGER = 1 << 63

_MAX_STEPS = 1_000_000  # a few lines can double something fifty times
_MAX_DEPTH = 50  # names that refer to names, and nested expressions
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, slots=True)
class NameBinding:
    """What a statement does to a name: bind a value, set one item, or merge a dict."""

    value: ast.expr | None  # None if the syntax alone does not determine it
    line: int
    conditional: bool = False
    item: ast.expr | None = None
    merges: bool = False
    what: str = ""  # description, if there is no value


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of a module or function, and of its enclosing scopes."""

    path: str
    names: Mapping[str, Sequence[NameBinding]] = field(default_factory=dict)
    outer: Scope | None = None
    steps_left: list[int] = field(default_factory=lambda: [_MAX_STEPS], compare=False)

    def within(self, names: Mapping[str, Sequence[NameBinding]]) -> Scope:
        """A scope inside this one, with the same work limit."""
        return Scope(self.path, names, self, self.steps_left)

    def find(self, name: str) -> tuple[Sequence[NameBinding], Scope] | None:
        """The bindings of a name, and their scope."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name], scope
            scope = scope.outer
        return None


def evaluate_constant(node: ast.expr, scope: Scope, depth: int = 0) -> Any:
    """A number, a str, None, or a tuple of such (a list becomes one)."""
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
    left, right = (evaluate_constant(operand, scope, depth + 1) for operand in (node.left, node.right))
    numbers = type(left) is int and type(right) is int
    joined = isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (str, tuple))
    if joined and len(left) + len(right) <= MAX_ENTRIES:
        return left + right
    # Small numbers only: a hostile file could grow products without limit.
    if (
        numbers
        and abs(left) < MAX_INTEGER
        and abs(right) < MAX_INTEGER
        and not (isinstance(node.op, ast.FloorDiv) and right == 0)
    ):
        return _OPERATORS[type(node.op)](left, right)
    raise not_literal_error(node, scope, "a calculation with operands other than integers")


def resolve_name(node: ast.expr, scope: Scope, depth: int = 0) -> tuple[ast.expr, Scope]:
    """The expression that a name refers to, and its scope."""
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
    """The bindings of a name that the file must bind, and their scope."""
    found = scope.find(node.id)
    if found is None:
        raise not_literal_error(node, scope, f"`{node.id}`, which this file does not bind")
    return found


def require_value(event: NameBinding, node: ast.Name, scope: Scope) -> ast.expr:
    """The value of a binding, which the syntax must determine."""
    if event.value is None:
        raise not_literal_error(event, scope, f"`{node.id}`, {event.what}")
    return event.value


def last_name_part(node: ast.AST) -> str | None:
    """`FixedLenFeature` of `tf.io.FixedLenFeature`, or of a bare name; None for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def describe_node(node: ast.AST) -> str:
    """An expression, as a short excerpt of the source."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return f"`{text}`" if len(text) <= 50 else f"`{text[:49]}…`"


def check_depth(node: ast.AST, scope: Scope, depth: int) -> None:
    """Raise an error for too much nesting or work."""
    scope.steps_left[0] -= 1
    if depth > _MAX_DEPTH or scope.steps_left[0] < 0:
        raise not_literal_error(node, scope, "names or expressions that are nested too deeply, or circular")


def not_literal_error(node: ast.AST | NameBinding, scope: Scope, what: str) -> RekordError:
    """The error for what the syntax alone does not determine."""
    line = node.line if isinstance(node, NameBinding) else getattr(node, "lineno", None)
    return error(
        "S134",
        "tf.io spec cannot be determined without running the file",
        location=Location(path=scope.path, line=line),
        expected="literals: strings, numbers, lists, tf.io features, and names bound to them",
        found=what,
        do="write it as a literal, or use --schema FILE",
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
_EXPECTED_DTYPE = "tf.int64, tf.float32 or tf.string"
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
    """The spec that an expression evaluates to, or None if it is not a dict."""
    check_depth(node, scope, depth)
    if isinstance(node, ast.Name):
        return _parse_named_dict(node, scope, depth)
    pairs: list[tuple[ast.expr | str | None, ast.expr]]
    if isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.Call) and last_name_part(node.func) in ("dict", "OrderedDict"):
        if len(node.args) > 1:
            raise not_literal_error(node, scope, "dict() with several arguments")
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
        raise not_literal_error(event, where, f"`{node.id}`, changed under a condition or in a loop")
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
    # `{name: tf.io.FixedLenFeature([], tf.float32) for name in NAMES}` is as good as a literal.
    loop = node.generators[0]
    simple = len(node.generators) == 1 and not loop.ifs and isinstance(loop.target, ast.Name)
    # In Python 3.15 the key of a comprehension may be `**`, without a value.
    if not simple or not isinstance(node.value, ast.expr):
        raise not_literal_error(node, scope, "a comprehension with several loops or conditions")
    names = evaluate_constant(loop.iter, scope, depth + 1)
    if not isinstance(names, tuple):
        raise not_literal_error(loop.iter, scope, "a loop over something that is not a list")
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
        raise not_literal_error(value if isinstance(key, str) else key, scope, "a key that is not a str")
    spec[name] = parse_feature(value, scope, name, depth + 1)
    if len(spec) > MAX_ENTRIES:
        raise not_literal_error(value, scope, f"a spec of more than {MAX_ENTRIES:,} features")


def _merge_entries(spec: dict[str, tf_spec.SpecFeature], value: ast.expr, scope: Scope, depth: int) -> None:
    other = parse_spec_dict(value, scope, depth + 1)
    if other is None:
        raise not_literal_error(value, scope, "a merge of something that is not a dict")
    spec.update(other)


def parse_feature(node: ast.expr, scope: Scope, name: str, depth: int = 0) -> tf_spec.SpecFeature:
    """The tf.io feature that an expression creates."""
    call, scope = resolve_name(node, scope, depth)
    parsed = _parse_call(call, scope, depth)
    if parsed is None or parsed[0] not in FEATURE_CLASSES:
        found = describe_node(call) if parsed is None else f"a {parsed[0]}"
        raise _spec_error(call, scope, name, "one of the five tf.io feature classes", found)
    kind, given = parsed
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
        raise reader.refused("value_key", "a str")
    return tf_spec.RaggedSpec(
        dtype,
        value_key_of,
        reader.partitions(),
        reader.split_type(),
        reader.flag("validate"),
    )


class _CallArguments:
    """The arguments of one call, by parameter name."""

    def __init__(
        self, kind: str, given: dict[str, ast.expr], call: ast.expr, scope: Scope, name: str, depth: int
    ) -> None:
        self._given, self._call, self._scope, self._name, self._depth = given, call, scope, name, depth
        needed = _REQUIRED | ({"value_key"} if kind == "SparseFeature" else set())
        for parameter in _PARAMETERS[kind]:
            if parameter in needed and parameter not in given:
                raise _spec_error(call, scope, name, f"{kind} with {parameter}=", "a call without it")

    def value(self, parameter: str) -> Any:
        node = self._given.get(parameter)
        return None if node is None else evaluate_constant(node, self._scope, self._depth)

    def default(self, shape: tuple[int, ...], dtype: Dtype) -> Any:
        value = self.value("default_value")
        if value is None:
            return None
        # As in TensorFlow, the number of values must match the shape, not their nesting.
        values = tuple(flat_values(value))
        if len(values) != math.prod(shape):
            raise self.refused("default_value", f"{math.prod(shape):,} values, for its shape")
        if dtype == "string":
            values = tuple(
                each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in values
            )
        if not all(isinstance(each, _VALUE_TYPES[dtype]) for each in values):
            raise self.refused("default_value", f"values of tf.{dtype}")
        return tf_spec.shaped(values, shape)

    def flag(self, parameter: str) -> bool:
        value = self.value(parameter)
        if value not in (None, True, False):
            raise self.refused(parameter, "True or False")
        return bool(value)

    def texts(self, parameter: str) -> tuple[str, ...]:
        value = self.value(parameter)
        several = value if isinstance(value, tuple) else (value,)
        if not several or not all(isinstance(each, str) and each for each in several):
            raise self.refused(parameter, "a record key")
        return several

    def shape(self, parameter: str) -> tuple[int, ...]:
        node, scope = resolve_name(self._given[parameter], self._scope, self._depth)
        if isinstance(node, ast.Call) and last_name_part(node.func) == "TensorShape" and len(node.args) == 1:
            node = node.args[0]
        value = evaluate_constant(node, scope, self._depth)
        sizes = value if isinstance(value, tuple) else (value,)
        if not all(type(size) is int and 0 <= size < MAX_INTEGER for size in sizes):
            raise self.refused(parameter, "known sizes: FixedLenFeature does not support None")
        return sizes

    def dtype(self, parameter: str) -> Dtype:
        found = self._type_name(parameter)
        if found not in _DTYPES:
            raise self.refused(parameter, _EXPECTED_DTYPE)
        return _DTYPES[found]

    def split_type(self) -> Literal["int32", "int64"]:
        found = self._type_name("row_splits_dtype") if "row_splits_dtype" in self._given else "int32"
        if found not in ("int32", "int64"):
            raise self.refused("row_splits_dtype", "tf.int32 or tf.int64")
        return "int64" if found == "int64" else "int32"

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
            raise _spec_error(node, scope, self._name, "a partition of RaggedFeature", describe_node(node))
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
            raise not_literal_error(argument, scope, "arguments unpacked from a list (`*`)")
        if position >= len(parameters):
            raise _spec_error(node, scope, None, f"at most {len(parameters)} arguments for {kind}", "more")
        given[parameters[position]] = argument
    for keyword in node.keywords:
        if keyword.arg is None:
            raise not_literal_error(keyword.value, scope, "arguments unpacked from a dict (`**`)")
        if keyword.arg not in parameters:
            near = closest_match(keyword.arg, parameters)
            expected = f"`{near}`" if near else f"one of {', '.join(parameters)}"
            raise _spec_error(keyword.value, scope, None, expected, f"argument `{keyword.arg}` of {kind}")
        given[keyword.arg] = keyword.value
    return kind, given


def _spec_error(node: ast.AST, scope: Scope, name: str | None, expected: str, found: str) -> RekordError:
    return error(
        "S137",
        f"`{name[:60]}` is not a valid tf.io feature" if name else None,
        location=Location(path=scope.path, line=getattr(node, "lineno", None), feature=name),
        expected=expected,
        found=found,
        do="fix this line of the file",
    )
