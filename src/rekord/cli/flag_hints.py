"""Advice for Python as advice for the command line: `shard_size="1GB"` becomes `--shard-size 1GB`.

The library writes `do` for Python. A verb prints it with its own flags, which follow from its declared options.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple

from rekord.errors import RekordError

_UNKNOWN = object()
"""A value that is not spelled out, or that only Python can express."""

_MENTION = re.compile(r"(?<![\w.,=\[{\"'-])([a-z]\w*)=(?!=)")
_CALL = re.compile(r"\brk\.([a-z][\w.]*)\(")
_TRANSFORM = re.compile(r"(?:\btransforms=)?\brk\.transforms\.([a-z]\w*)\((\d*)\)")
_COMMAND = re.compile(r"\brekord [a-z]+\b.*?(?=, (?:or|and) |`|$)")
_AFTER_FLAG = re.compile(r"(?:^|[\s(])--?[\w-]+ [^\s(]*$")
_LEAVE_OUT = re.compile(r"\bleave (`?)([a-z]\w*)(?:=|\1) out\b|\b(?:drop|leave out) ([a-z]\w*)=(?=[\s,;]|$)")
_BARE = re.compile(r"(?<![\w.])([a-z]\w*)=(?=[\s,;]|$)")
_SUBJECT = re.compile(r"^`([a-z]\w*)`(?= (?:cannot be|does not apply|is required|needs|selects) )")
_SPLIT = re.compile(r"dataset\[\"(\w+)\"\]")
_MEANT = re.compile(r"did you mean [`'\"]([^`'\"]+)[`'\"]\?")
_OUTPUT = re.compile(r"out=\"([^\"]+)\"")
_INPUTS = ("IN", "PATH", "SOURCE")
_RAW_DATA = (".csv", ".tsv", ".jsonl")
_PLACEHOLDERS = ("in", "out", "path", "source", "sql")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class _RunningVerb(NamedTuple):
    group: Any  # all verbs
    command: Any
    input: str | None = None  # the path that the verb reads, once it is parsed
    values: Mapping[str, Any] = MappingProxyType({})  # all parsed arguments


_running: ContextVar[_RunningVerb | None] = ContextVar("rekord_running_verb", default=None)


def set_running_verb(group: Any, command: Any, values: Mapping[str, Any] | None = None) -> None:
    """Remember which verb runs, with its parsed arguments, for everything that is printed from now on."""
    if command is None:
        _running.set(None)
        return
    first = next((param for param in command.params if param.param_type_name == "argument"), None)
    is_path = first is not None and str(first.metavar).strip("[].") in _INPUTS
    given = values.get(str(first.name)) if values and first is not None and is_path else None
    if isinstance(given, (list, tuple)) and len(given) == 1:
        (given,) = given
    _running.set(_RunningVerb(group, command, given if isinstance(given, str) else None, values or {}))


def translate_error(failure: RekordError) -> RekordError:
    """A copy of an error with advice for the command line; the error itself if no verb is running."""
    running = _running.get()
    if running is None:
        return failure
    translated = copy(failure)
    translated.location = failure.location
    if failure.code == "U605":  # about an argument, which was given as an option
        flags = _flags_of(running.command)
        translated.what = _SUBJECT.sub(
            lambda match: f"`{_long_name(flags[match[1]])}`" if match[1] in flags else match[0], failure.what
        )
        translated.expected = failure.expected and _BARE.sub(
            lambda match: _long_name(flags[match[1]]) if match[1] in flags else match[0], failure.expected
        )
        if failure.do is not None:
            translated.do = _LEAVE_OUT.sub(lambda match: _leave_out(match, flags), failure.do)
    translated.do = _correct_option(translated.do, failure, running)
    if failure.code == "X506" and failure.do is not None:
        translated.do = _SPLIT.sub(lambda match: _name_split(match, failure, running), failure.do)
    translated.do = translate_hint(translated.do)
    return translated


def _correct_option(do: str | None, failure: RekordError, running: _RunningVerb) -> str | None:
    """``did you mean `label`?`` as the option that named something unknown, with the name that is proposed."""
    meant = _MEANT.fullmatch(do or "")
    wrong = failure.location.feature or str(failure.found).strip("'\"`")
    if meant is None:
        return do
    for param in running.command.params:
        given = running.values.get(str(param.name))
        for value in given if isinstance(given, (list, tuple)) else [given]:
            if param.param_type_name == "option" and isinstance(value, str) and wrong in re.split("[,=]", value):
                corrected = re.sub(rf"(?<![^,=]){re.escape(wrong)}(?![^,=])", lambda _: meant[1], value)
                return f"{_long_name(param)} {shlex.quote(corrected)}"
    return do


def format_running_command(**changes: str) -> str:
    """The command line that is running, with other values of some parameters."""
    running = _running.get()
    assert running is not None
    words = ["rekord", str(running.command.name)]
    for param in running.command.params:
        value = changes.get(str(param.name), running.values.get(str(param.name)))
        if value is None or value is False or value == param.default:
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        for each in values:
            words += [] if param.param_type_name == "argument" else [_long_name(param)]
            words += [] if each is True else [str(each)]
    return shlex.join(words)


def _name_split(match: re.Match[str], failure: RekordError, running: _RunningVerb) -> str:
    """`dataset["train"]` as the option that named an unknown split, with the split that is proposed."""
    for param in running.command.params:
        given = running.values.get(str(param.name))
        if param.param_type_name != "option" or not isinstance(given, str):
            continue
        if any(repr(name) == failure.found for name in given.split(",")):
            option = _long_name(param)
            own = option.lstrip("-")  # `--val val`, rather than any other split
            return f"{option} {own if repr(own) in str(failure.expected) else match[1]}"
    return match[0]


def translate_document(document: Any) -> Any:
    """A JSON document of findings or diagnoses, with every `do` as the command line takes it."""
    if isinstance(document, Mapping):
        return {
            name: translate_hint(value) if name == "do" and isinstance(value, str) else translate_document(value)
            for name, value in document.items()
        }
    if isinstance(document, (list, tuple)):
        return [translate_document(each) for each in document]
    return document


def translate_hint(text: str | None) -> str | None:
    """A `do` as the running verb takes it; parameters without a flag stay as Python has them."""
    running = _running.get()
    if running is None or text is None:
        return text
    output = _OUTPUT.fullmatch(text)
    if output is not None and running.command.name == "export" and running.input is not None:
        return f"rekord export {shlex.quote(running.input)} {shlex.quote(output[1])}"
    text = _fill_paths(text, running)
    flags = _flags_of(running.command)
    parts: list[str] = []
    end = 0
    for command in _COMMAND.finditer(text):  # a command already
        parts += [
            _translate_part(text[end : command.start()], flags, running.group),
            _fill_paths(command[0], running),
        ]
        end = command.end()
    return "".join([*parts, _translate_part(text[end:], flags, running.group)])


def _fill_paths(text: str, running: _RunningVerb) -> str:
    """`rekord rewrite IN OUT` with the path that the running verb reads, and a new one next to it."""
    placeholder = "SOURCE" if running.command.name == "write" else "IN|PATH"
    if running.input is not None and running.input.lower().endswith(_RAW_DATA):  # given to a verb that reads records
        placeholder = "IN|PATH|SOURCE"
    match = re.search(rf"\brekord (\w+) (?:{placeholder})\b", text)
    if match is None or running.input is None:
        return text
    stem, extension = os.path.splitext(running.input.rstrip("/"))
    out = f"{stem}-repaired{extension}" if match[1] == "salvage" else f"{stem}-new"
    return re.sub(
        rf"\b(?:{placeholder}|(OUT))\b", lambda found: shlex.quote(out if found[1] else str(running.input)), text
    )


def _translate_part(text: str, flags: Mapping[str, Any], group: Any) -> str:
    text = _TRANSFORM.sub(lambda match: _translate_transform(match, flags), text)
    return _translate_mentions(_translate_calls(text, flags, group), flags)


def _translate_transform(match: re.Match[str], flags: Mapping[str, Any]) -> str:
    """`transforms=rk.transforms.resample(16000)` as `--resample 16000`, and `rk.transforms.mono()` as `--mono`."""
    param = flags.get(match[1])
    if param is None or param.param_type_name != "option" or param.is_flag == bool(match[2]):
        return match[0]
    return f"{_long_name(param)} {match[2]}".rstrip()


def _translate_calls(text: str, flags: Mapping[str, Any], group: Any) -> str:
    """`rk.split(path, out, folds=5)` as `rekord split IN OUT --folds 5`, and `rk.open(path, kind=…)` as the flags."""
    made, end = "", 0
    for match in _CALL.finditer(text):
        if match.start() < end:
            continue
        after = _find_end(text, match.end() - 1)
        shown = None if text[after : after + 1] == "." else _translate_call(text[match.start() : after], flags, group)
        if shown is not None:
            made, end = made + text[end : match.start()] + shown, after
    return made + text[end:]


def _translate_call(code: str, flags: Mapping[str, Any], group: Any) -> str | None:
    try:
        call = ast.parse(code.replace(", …", "").replace("…", "..."), mode="eval").body
    except SyntaxError:
        return None
    assert isinstance(call, ast.Call)
    verb = group.commands.get(code[3 : code.index("(")])
    if verb is None:
        words, known = [], flags
    else:
        arguments = [param for param in verb.params if param.param_type_name == "argument"]
        words, known = ["rekord", str(verb.name)], _flags_of(verb)
        for param, given in zip(arguments, call.args, strict=False):
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                words.append(shlex.quote(given.value))
            elif isinstance(given, ast.Name) and given.id.lower() in _PLACEHOLDERS:
                words.append(str(param.metavar).strip("[]"))
            else:
                return None  # an object of Python
    for keyword in call.keywords:
        if keyword.arg is None:
            return None  # `**options`
        value = _literal(ast.unparse(keyword.value))
        shown = _format_flag(known, keyword.arg, value) if keyword.arg in known else None
        if shown is None or (verb is not None and value is _UNKNOWN and "..." not in ast.unparse(keyword.value)):
            return None
        words.append(shown)
    return " ".join(words) or None


def _translate_mentions(text: str, flags: Mapping[str, Any]) -> str:
    made, end = "", 0
    for match in _MENTION.finditer(text):
        start, name = match.start(), match[1]
        if start < end:
            continue
        if _AFTER_FLAG.search(text[:start]) or _is_inside_call(text, start) or text[:start].endswith("declare "):
            continue
        after = _find_value_end(text, match.end())
        shown = _format_flag(flags, name, _literal(text[match.end() : after]))
        if shown is None:
            continue
        option = shown.partition(" ")[0]
        if text[:start].endswith("(") and text[after : after + 1] == ")" and option in text[end:start]:
            made, end = made + text[end : start - 1].rstrip(), after + 1  # `--fresh (fresh=True)`
            continue
        spelled = re.compile(rf" \(({option}\b[^()]*)\)").match(text, after)
        if spelled is not None:  # `columns=[…] (--columns a,b)`
            shown, after = spelled[1], spelled.end()
        made, end = made + text[end:start] + shown, after
    return made + text[end:]


def _leave_out(match: re.Match[str], flags: Mapping[str, Any]) -> str:
    name = match[2] or match[3]
    return f"leave {_long_name(flags[name])} out" if name in flags else match[0]


def _flags_of(command: Any) -> dict[str, Any]:
    """The options and arguments of a verb by the names that they have in Python."""
    found: dict[str, Any] = {}
    for param in command.params:
        names = [option[2:].replace("-", "_") for option in param.opts if option.startswith("--")]
        found |= dict.fromkeys([*names, param.name.rstrip("_")], param)
    if "images" in found:  # the folder that a list of images is relative to
        found.setdefault("root", found["images"])
    return found


def _long_name(param: Any) -> str:
    if param.param_type_name == "argument":
        return str(param.metavar).strip("[]")
    return str(max(param.opts, key=len))


def _format_flag(flags: Mapping[str, Any], name: str, value: object) -> str | None:
    """A flag with its value, or with the placeholder from its help; None if the option cannot mean this."""
    if value is False and f"no_{name}" in flags:
        return _long_name(flags[f"no_{name}"])
    param = flags.get(name)
    if param is not None and value is False and param.secondary_opts:  # `--header/--no-header`
        return str(param.secondary_opts[0])
    if param is None or value is None or value is False:
        return None
    option = _long_name(param)
    if param.param_type_name == "argument":
        return option
    if param.is_flag:
        return option if value is True or value is _UNKNOWN else None
    metavar = str(param.metavar or name.upper())
    if param.multiple and isinstance(value, dict):
        value = [f"{key}={each}" for key, each in value.items()]
    if param.multiple and isinstance(value, list):  # the option is repeated
        return " ".join(f"{option} {shlex.quote(str(each))}" for each in value) or None
    text = _format_value(value, metavar)
    if re.fullmatch(r"[a-z|-]+", metavar) and text is not None and text not in metavar.split("|"):
        return None  # another parameter of this name, such as the `format` of an image
    return f"{option} {metavar if text is None else text}"


def _format_value(value: object, metavar: str) -> str | None:
    """A value as it is typed; None where an option of this form cannot hold it."""
    if isinstance(value, str):
        return shlex.quote(value) if value and "…" not in value else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, dict):
        if value and all(isinstance(key, tuple) and len(set(key)) == 1 for key in value):  # grey levels
            return ",".join(f"{key[0]}={each}" for key, each in value.items())
        named = all(isinstance(key, str) and isinstance(each, (str, int, float)) for key, each in value.items())
        pairs = ",".join(f"{key}={each}" for key, each in value.items())
        return shlex.quote(pairs) if value and named and "=" in metavar else None
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, (str, int, float)) for each in value):
        separator = "x" if "x" in metavar else "," if "," in metavar else None
        return None if separator is None else shlex.quote(separator.join(map(str, value)))
    return None


def _literal(code: str) -> object:
    try:
        return ast.literal_eval(code)
    except (ValueError, SyntaxError):
        return _parse_features(code)


def _parse_features(code: str) -> object:
    """`{"zip": rk.Text()}` as {"zip": "text"}."""
    try:
        value = ast.parse(code, mode="eval").body
    except SyntaxError:
        return _UNKNOWN
    if not isinstance(value, ast.Dict):
        return _UNKNOWN
    found = {}
    for key, one in zip(value.keys, value.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)):
            return _UNKNOWN
        arguments = ast.unparse(one).partition("(")[2]
        found[key.value] = one.func.attr.lower() + ("" if arguments == ")" else f"({arguments}")
    return found


def _find_value_end(text: str, start: int) -> int:
    """The end of the Python expression that begins here; `start` if there is none, as in `give key=, or …`."""
    if text.startswith("lambda", start):
        return (text.find(", or ", start) + len(text) + 1) % (len(text) + 1)
    if text[start : start + 1] in _CLOSING:
        return _find_end(text, start)
    if text[start : start + 1] in ("'", '"'):
        return (text.find(text[start], start + 1) + 1) or len(text)
    word = re.compile(r"[\w.…+-]*[\w…]|").match(text, start)
    end = start if word is None else word.end()
    return _find_end(text, end) if text[end : end + 1] == "(" and end > start else end


def _find_end(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    waiting: list[str] = []
    quote = ""
    for at in range(start, len(text)):
        letter = text[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _CLOSING:
            waiting.append(_CLOSING[letter])
        elif waiting and letter == waiting[-1]:
            waiting.pop()
            if not waiting:
                return at + 1
    return len(text)


def _is_inside_call(text: str, at: int) -> bool:
    depth = 0
    for before in range(at - 1, -1, -1):
        if text[before] == ")":
            depth += 1
        elif text[before] == "(":
            if depth == 0:
                return before > 0 and (text[before - 1].isalnum() or text[before - 1] == "_")
            depth -= 1
    return False
