"""`FILE.py:NAME`: a tf.io spec read from a Python file that is never executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rekord.errors import RekordError, closest_match, error, open_error, preview
from rekord.location import Location
from rekord.schema.interop.spec_syntax import (
    NameBinding,
    Scope,
    describe_node,
    last_name_part,
    parse_spec_dict,
    resolve_name,
)
from rekord.schema.interop.tf_spec import FEATURE_CLASSES, SequenceSpec, Spec

_MAX_FILE_BYTES = 4 << 20
_REFERENCE_PATTERN = re.compile(r"(?P<path>.+):(?P<name>[^:/\\]*)", re.DOTALL)
_PARSERS = ("parse_example", "parse_single_example")
_SEQUENCE_PARSERS = ("parse_sequence_example", "parse_single_sequence_example")
_USAGE_HINT = "--spec FILE.py:NAME"


@dataclass(frozen=True, slots=True)
class _Definition:
    """A function or class, and the functions that enclose it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    around: tuple[_Definition, ...] = ()


def load_spec(text: str) -> Spec | SequenceSpec:
    """The spec at `FILE.py:NAME`.

    NAME is a dict, in the module or inside a function; a pair (context spec, sequence spec), also as
    `CONTEXT,STEPS`; or a function that contains one. Without NAME, the file must have exactly one spec.
    """
    path, name = _split_reference(text)
    if name is not None and name.count(",") > 1:
        raise _argument_error(text, "one name, or two names: context and steps")
    return parse_spec_source(_read_source(path), name, path=path)


def parse_spec_source(source: bytes | str, name: str | None = None, *, path: str) -> Spec | SequenceSpec:
    """The spec bound to a name in Python source; `path` is the file name for messages."""
    module = _parse_module(source, path)
    top = Scope(path, _collect_bindings(module.body))
    functions = {each.node.name: each for each in _iter_definitions(module)}
    if name is None:
        return _find_only_spec(path, top, functions)
    context_name, comma, steps_name = name.partition(",")
    context = _find_named_spec(path, context_name.strip(), top, functions)
    if not comma:
        return context
    steps = _find_named_spec(path, steps_name.strip(), top, functions)
    if isinstance(context, SequenceSpec) or isinstance(steps, SequenceSpec):
        raise _argument_error(name, "the names of two dicts")
    return SequenceSpec(context, steps)


def _split_reference(text: str) -> tuple[str, str | None]:
    match = _REFERENCE_PATTERN.fullmatch(text)
    # The colon of `C:spec.py` precedes a path, not a name.
    if match is None or match["name"].endswith(".py"):
        if not text or text.endswith(":") or text.startswith(":"):
            raise _argument_error(text, "FILE.py, or FILE.py:NAME")
        return text, None
    if not match["name"]:
        raise _argument_error(text, "a name after the colon")
    return match["path"], match["name"]


def _read_source(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise open_error(path, failure, expected="a Python file with a tf.io spec") from None
    except ValueError:  # a NUL in the path
        raise _argument_error(path, "a path to a Python file") from None


def _parse_module(source: bytes | str, path: str) -> ast.Module:
    if len(source) > _MAX_FILE_BYTES:
        raise _syntax_error(path, None, f"a file of more than {_MAX_FILE_BYTES >> 20} MiB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an invalid escape in the file
            return ast.parse(source)
    except SyntaxError as failure:
        raise _syntax_error(path, failure.lineno, failure.msg) from None
    except (ValueError, RecursionError, MemoryError):
        raise _syntax_error(path, None, "source that Python cannot parse") from None


def _iter_definitions(node: ast.AST, around: tuple[_Definition, ...] = ()) -> Iterator[_Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            block = _Definition(child, around)
            yield block
            # Names of a class are not visible in its methods.
            yield from _iter_definitions(child, around if isinstance(child, ast.ClassDef) else (*around, block))
        elif isinstance(child, ast.stmt):
            yield from _iter_definitions(child, around)


def _collect_bindings(body: Sequence[ast.stmt]) -> dict[str, list[NameBinding]]:
    names: dict[str, list[NameBinding]] = {}
    for name, event in _iter_bindings(body, conditional=False):
        names.setdefault(name, []).append(event)
    return names


def _definition_scope(block: _Definition, top: Scope) -> Scope:
    outer = _definition_scope(block.around[-1], top) if block.around else top
    names = _collect_bindings(block.node.body)
    if isinstance(block.node, ast.ClassDef):
        return outer.within(names)
    every = block.node.args
    given = [*every.posonlyargs, *every.args, *every.kwonlyargs, *filter(None, (every.vararg, every.kwarg))]
    parameters = {each.arg: [NameBinding(None, each.lineno, what="a function parameter")] for each in given}
    return outer.within({**parameters, **names})


def _iter_bindings(body: Sequence[ast.stmt], *, conditional: bool) -> Iterator[tuple[str, NameBinding]]:
    """The bindings of statements, in order; without those inside functions and classes."""
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is None:
                continue
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, NameBinding(node.value, node.lineno, conditional)
                elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                    yield target.value.id, NameBinding(node.value, node.lineno, conditional, item=target.slice)
                elif isinstance(target, (ast.Tuple, ast.List)):
                    yield from _unpack_target(target, node.value, conditional)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if isinstance(node.op, ast.BitOr):
                yield node.target.id, NameBinding(node.value, node.lineno, conditional, merges=True)
            else:
                yield node.target.id, NameBinding(None, node.lineno, conditional, what="changed in place")
        elif isinstance(node, ast.Expr):
            yield from _iter_updates(node, conditional)
        elif isinstance(node, ast.Delete):
            for gone in node.targets:
                root = gone.value if isinstance(gone, ast.Subscript) else gone
                if isinstance(root, ast.Name):
                    yield root.id, NameBinding(None, node.lineno, conditional, what="partly deleted")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                # An alias is read as the name that it refers to.
                bound, real = alias.asname, alias.name.split(".")[-1]
                if bound is not None and isinstance(node, ast.ImportFrom) and bound != real:
                    meant = ast.copy_location(ast.Attribute(ast.Name(""), real), node)
                    yield bound, NameBinding(meant, node.lineno, conditional)
                else:
                    yield bound or alias.name, NameBinding(None, node.lineno, conditional, what="an import")
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            yield from _iter_bindings(node.body, conditional=conditional)
        elif isinstance(node, (ast.If, ast.For, ast.AsyncFor, ast.While)):
            if isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(node.target, ast.Name):
                yield node.target.id, NameBinding(None, node.lineno, True, what="a loop variable")
            yield from _iter_bindings([*node.body, *node.orelse], conditional=True)
        elif isinstance(node, ast.Try):
            handled = [each for handler in node.handlers for each in handler.body]
            yield from _iter_bindings([*node.body, *handled, *node.orelse, *node.finalbody], conditional=True)


def _unpack_target(
    target: ast.Tuple | ast.List, value: ast.expr, conditional: bool
) -> Iterator[tuple[str, NameBinding]]:
    values: Sequence[ast.expr | None] = [None] * len(target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        values = value.elts
    for part, one in zip(target.elts, values, strict=True):
        if isinstance(part, ast.Name):
            yield part.id, NameBinding(one, part.lineno, conditional, what="unpacked from another value")


def _iter_updates(node: ast.Expr, conditional: bool) -> Iterator[tuple[str, NameBinding]]:
    call = node.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return
    owner, method = call.func.value, call.func.attr
    if not isinstance(owner, ast.Name):
        return
    if method == "update":
        merged = ast.copy_location(ast.Call(ast.Name("dict"), call.args, call.keywords), call)
        yield owner.id, NameBinding(merged, node.lineno, conditional, merges=True)
    elif method in ("pop", "popitem", "clear", "setdefault"):
        yield owner.id, NameBinding(None, node.lineno, conditional, what=f"changed by .{method}()")


def _find_named_spec(path: str, name: str, top: Scope, functions: dict[str, _Definition]) -> Spec | SequenceSpec:
    if name in top.names:
        return _resolve_spec(ast.Name(name), top, name)
    if name in functions:
        found = _find_specs(functions[name], top)
        if len(found) == 1:
            return found[0][1]
        raise _spec_error(
            path,
            functions[name].node.lineno,
            f"{preview(name)} has {'no spec' if not found else 'several specs'}",
            "a function with exactly one tf.io spec",
            ", ".join([each for each, _ in found][:4]) or "no dict of tf.io features",
            f"--spec {path}:{found[0][0]}" if found else _USAGE_HINT,
        )
    inside = [each for each in functions.values() if name in _definition_scope(each, top).names]
    if len(inside) == 1:
        return _resolve_spec(ast.Name(name), _definition_scope(inside[0], top), name)
    if inside:
        raise _spec_error(
            path,
            inside[1].node.lineno,
            f"{preview(name)} is bound in several functions",
            "a name that only one function binds, or the name of a function",
            ", ".join([each.node.name for each in inside][:4])[:60],
            f"--spec {path}:{inside[0].node.name}",
        )
    known = _find_candidates(top, functions)
    near = closest_match(name, [*top.names, *functions, *known])
    some = ", ".join([f"`{each}`" for each in known[:4]])
    raise error(
        "S135",
        f"file has no name {preview(name)}",
        location=Location(path=path),
        expected=f"one of {some}" if some else "a dict of tf.io features",
        found="no such name",
        likely=f"`{near}`" if near else None,
        do=f"--spec {path}:{near or (known[0] if known else 'NAME')}",
    )


def _resolve_spec(node: ast.expr, scope: Scope, name: str) -> Spec | SequenceSpec:
    spec = parse_spec_dict(node, scope)
    if spec is not None:
        return spec
    value, where = resolve_name(node, scope)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == 2:
        context, steps = (
            {} if isinstance(part, ast.Constant) and part.value is None else parse_spec_dict(part, where)
            for part in value.elts
        )
        if context is not None and steps is not None:
            return SequenceSpec(context, steps)
    raise error(
        "S136",
        f"{preview(name)} is not a dict of tf.io features",
        location=Location(path=scope.path, line=getattr(value, "lineno", None)),
        expected='{"label": tf.io.FixedLenFeature([], tf.int64), …}',
        found=describe_node(value),
        do="name the dict itself, or use --schema FILE",
    )


def _find_only_spec(path: str, top: Scope, functions: dict[str, _Definition]) -> Spec | SequenceSpec:
    known = _find_candidates(top, functions)
    if len(known) == 1:
        return _find_named_spec(path, known[0], top, functions)
    if not known:
        found = [spec for each in functions.values() for _, spec in _find_specs(each, top)]
        if len(found) == 1:
            return found[0]
    raise error(
        "S135",
        "file has several specs, and none is named" if known else "file has no tf.io spec",
        location=Location(path=path),
        expected="exactly one dict of tf.io features, or a name",
        found=", ".join([f"`{each}`" for each in known[:4]])[:60] or "no dict of tf.io features",
        do=f"--spec {path}:{known[0]}" if known else _USAGE_HINT,
    )


def _find_candidates(top: Scope, functions: dict[str, _Definition]) -> list[str]:
    """The names that are probably bound to specs, in the order of the file."""
    scopes = [top, *(_definition_scope(each, top) for each in functions.values())]
    found = {name: None for scope in scopes for name, events in scope.names.items() if _is_spec_like(events)}
    return list(found)


def _is_spec_like(events: Sequence[NameBinding]) -> bool:
    return any(
        event.value is not None
        and (_has_features(event.value) if event.item is None else _is_feature_call(event.value))
        for event in events
    )


def _has_features(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return any(_is_feature_call(each) for each in node.values)
    if isinstance(node, ast.DictComp):
        return isinstance(node.value, ast.expr) and _is_feature_call(node.value)
    if isinstance(node, ast.Call) and last_name_part(node.func) in ("dict", "OrderedDict"):
        return any(_is_feature_call(each.value) for each in node.keywords) or any(map(_has_features, node.args))
    if isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) == 2:
        return any(map(_has_features, node.elts))
    return False


def _is_feature_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name_part(node.func) in FEATURE_CLASSES


def _find_specs(function: _Definition, top: Scope) -> list[tuple[str, Spec | SequenceSpec]]:
    """(name, spec) of each spec in a function: those that it parses with, else those that it binds."""
    scope = _definition_scope(function, top)
    found: dict[str, Spec | SequenceSpec] = {}
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call):
            spec = _parse_call_spec(node, scope)
            if spec is not None:
                found.setdefault(*spec)
    if not found:
        for name, events in scope.names.items():
            if _is_spec_like(events):
                found[name] = _resolve_spec(ast.Name(name), scope, name)
    if not found:
        for node in ast.walk(function.node):
            if isinstance(node, ast.Return) and node.value is not None and _has_features(node.value):
                found[f"line {node.lineno}"] = _resolve_spec(node.value, scope, function.node.name)
    return list(found.items())


def _parse_call_spec(call: ast.Call, scope: Scope) -> tuple[str, Spec | SequenceSpec] | None:
    parser = last_name_part(call.func)
    keywords = {each.arg: each.value for each in call.keywords}
    if parser in _PARSERS:
        node = call.args[1] if len(call.args) > 1 else keywords.get("features")
        return None if node is None else (_format_label(node), _resolve_spec(node, scope, _format_label(node)))
    if parser in _SEQUENCE_PARSERS:
        given = dict(zip(("", "context_features", "sequence_features"), call.args, strict=False))
        parts = [
            given.get(each) or keywords.get(each) or ast.Constant(None)
            for each in ("context_features", "sequence_features")
        ]
        pair = ast.copy_location(ast.Tuple(parts), call)
        return _format_label(call), _resolve_spec(pair, scope, _format_label(call))
    return None


def _format_label(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else f"line {node.lineno}"


def _syntax_error(path: str, line: int | None, found: str) -> RekordError:
    return error(
        "S133",
        "tf.io spec file is not valid Python",
        location=Location(path=path, line=line),
        expected="a Python file with a tf.io spec",
        found=found if len(found) <= 60 else found[:59] + "…",
        do="fix the file, or use --schema FILE",
    )


def _spec_error(path: str, line: int, what: str, expected: str, found: str, do: str) -> RekordError:
    where = Location(path=path, line=line)
    return error("S135", what, location=where, expected=expected, found=found, do=do)


def _argument_error(text: str, expected: str) -> RekordError:
    return error(
        "U622",
        f"{preview(text)} is not a valid spec reference",
        expected=expected,
        found=preview(text),
        do=_USAGE_HINT,
    )
