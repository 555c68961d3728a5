"""Defaults of options from `rekord.toml`, or `[tool.rekord]` in `pyproject.toml`.

The nearest file applies, from the working directory upwards. It may belong to somebody else, so it can only set
options from a list: none of them runs code, chooses where output goes, overwrites anything or leaves rows out.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import Any

from rekord.cli.console import escape_controls, truncate
from rekord.cli.options import list_choices
from rekord.errors import RekordError, closest_match, error
from rekord.location import Location

VARIABLE = "REKORD_CONFIG"
"""The path of the file to use instead of the nearest one; empty for none."""

CONFIG_NAME, PROJECT_NAME = "rekord.toml", "pyproject.toml"

COMMON_KEYS = frozenset(
    {"quiet", "verbose", "workers", "threads", "seed", "shard_size", "shards", "compression", "verify"}
)
"""Options that can be set for all verbs that have them, or for one verb."""

VERB_KEYS: Mapping[str, frozenset[str]] = {
    "write": frozenset(
        {"layout", "split", "split_by", "stratify", "key", "index", "shuffle", "format"}
        | {"resize", "resize_filter", "resize_fit", "crop", "encode", "decode", "normalize", "mean", "std"}
        | {"label", "background", "encoding", "ignore", "optional_masks"}
    ),
    "append": frozenset({"split"}),
    "balance": frozenset({"by", "method", "strategy", "augment", "per_box", "k_neighbors", "format"}),
    "check": frozenset({"max_findings"}),
    "diff": frozenset({"key"}),
    "export": frozenset({"labels"}),
    "index": frozenset({"format"}),
    "query": frozenset({"format", "limit"}),
    "reader": frozenset({"for"}),
    "rewrite": frozenset({"index", "shuffle", "format"}),
    "show": frozenset({"n"}),
    "split": frozenset({"split", "split_by", "stratify", "shuffle", "format"}),
    "train": frozenset(
        {"epochs", "label", "val", "balance", "class_weights", "backend", "image_size", "batch_size"}
        | {"learning_rate", "checkpoint_steps"}
    ),
}
"""Options that can be set in the table of a verb, besides the common ones."""

_EXCLUDING = {"shards": "shard_size", "stratify": "split_by", "split_by": "stratify"}
"""A default gives way to the option on the command line that it would override or contradict."""

_MAX_FILE_BYTES = 1 << 20
_MAX_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class ConfiguredDefault:
    """One default: its key in the file, and the value as an option takes it."""

    key: str  # such as `write.shard-size`
    value: Any
    shown: str

    @property
    def option(self) -> str:
        """The name of the option, without dashes at its beginning."""
        return self.key.rpartition(".")[2].replace("_", "-")


@dataclass(frozen=True, slots=True)
class Config:
    """The defaults of one verb, by the names of its parameters."""

    path: str
    defaults: Mapping[str, ConfiguredDefault]

    def without(self, names: Collection[str]) -> Config:
        """The configuration without the defaults of these parameters."""
        return Config(self.path, {name: each for name, each in self.defaults.items() if name not in names})

    def describe(self) -> str:
        """One line for `-v`."""
        keys = ", ".join(f"{each.key} = {each.shown}" for each in self.defaults.values())
        return f"configuration: {escape_controls(self.path)} sets {keys or 'nothing for this verb'}"

    def attribute(self, failure: RekordError) -> RekordError:
        """An error about an option, with the file and the key if the value comes from there."""
        option = re.match(r"`--?([\w-]+)`", failure.what)
        default = next((each for each in self.defaults.values() if option and each.option == option[1]), None)
        if default is None:
            return failure
        named = copy(failure)
        named.location = failure.location.within(path=self.path)
        named.likely = f"`{default.key} = {default.shown}` in {self.path}"
        return named


def load_config(command: Any, group: Any) -> Config | None:
    """The defaults of a verb from the file that applies; None without a file."""
    found = _find_tables()
    if found is None:
        return None
    path, tables = found
    verbs = group.commands
    common: dict[str, ConfiguredDefault] = {}
    own: dict[str, ConfiguredDefault] = {}
    for name, value in tables.items():
        if isinstance(value, dict) and name in verbs:
            read = _read_table(path, value, verbs[name])
            own |= read if name == command.name else {}
            continue
        key = name.replace("-", "_")
        if key not in COMMON_KEYS:
            raise _unknown_common_key_error(path, name, verbs)
        # Of all verbs that have it: a wrong value is an error, whichever verb runs.
        params = [by_key[key] for verb in verbs.values() if key in (by_key := _params_by_key(verb))]
        default = ConfiguredDefault(name, _convert(path, name, value, params[0]), _show(value))
        if key in _params_by_key(command):
            common[str(_params_by_key(command)[key].name)] = default
    return Config(path, common | own)


def take_negated(command: Any, args: Sequence[str]) -> tuple[list[str], set[str]]:
    """Arguments without `--no-shuffle`, and the flags that it switches off; for all flags that can be configured."""
    flags = {
        f"--no-{key.replace('_', '-')}": str(param.name)
        for key, param in _params_by_key(command).items()
        if getattr(param, "is_flag", False) and key in _settable_keys(command)
    }
    own = {option for param in command.params for option in param.opts}
    end = list(args).index("--") if "--" in args else len(args)
    negated = {word for word in args[:end] if word in flags and word not in own}
    return [word for at, word in enumerate(args) if at >= end or word not in negated], {
        flags[word] for word in negated
    }


def find_given(command: Any, args: Sequence[str]) -> set[str]:
    """The options that the command line has, by the names of their parameters."""
    words = {word.partition("=")[0] for word in args}
    return {str(param.name) for param in command.params if words.intersection(param.opts)}


def undo_contradicted(ctx: Any, config: Config) -> Config:
    """Undo the defaults that contradict an option on the command line, or would override it."""
    given = [name for name in _EXCLUDING if name in config.defaults and _is_given(ctx, _EXCLUDING[name])]
    for param in ctx.command.params:
        if param.name in given:
            ctx.params[param.name] = param.default
    return config.without(given)


def _is_given(ctx: Any, name: str) -> bool:
    return getattr(ctx.get_parameter_source(name), "name", None) == "COMMANDLINE"


_running: ContextVar[Config | None] = ContextVar("rekord_running_config", default=None)


def set_running_config(config: Config | None) -> None:
    """Remember the defaults of the verb that runs, for errors about them."""
    _running.set(config)


def attribute_to_config(failure: RekordError) -> RekordError:
    """An error about an option, with the file and the key if its value comes from a configuration file."""
    running = _running.get()
    return failure if running is None else running.attribute(failure)


# Finding the file.


def _find_tables() -> tuple[str, dict[str, Any]] | None:
    """The path of the file that applies, and its tables."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        if not named:
            return None
        content = _read_file(named)
        if content is None:
            do = f"unset {VARIABLE}, or pass --no-config"
            raise _config_error(named, f"`{VARIABLE}` does not name a file", expected="a TOML file", do=do)
        return named, _parse_file(named, content) or {}
    for folder in _iter_folders():
        for name in (CONFIG_NAME, PROJECT_NAME):
            path = os.path.join(folder, name)
            content = _read_file(path)
            # Most projects around here do not mention rekord: their files need not be parsed, nor be valid.
            if content is None or (name == PROJECT_NAME and b"rekord" not in content):
                continue
            tables = _parse_file(path, content)
            if tables is not None:
                return _shorten(path), tables
    return None


def _iter_folders() -> Iterator[str]:
    try:
        folder = os.getcwd()
    except OSError:  # the working directory was deleted
        return
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _shorten(path: str) -> str:
    """A path below the working directory as it is typed there."""
    return os.path.basename(path) if os.path.dirname(path) == os.getcwd() else path


def _read_file(path: str) -> bytes | None:
    """The content of a regular file; None if there is none."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as failure:
        if os.path.basename(path) == PROJECT_NAME:
            return None
        found = getattr(failure, "strerror", None) or str(failure)
        raise _config_error(path, "configuration file cannot be read", found=found, do="--no-config") from None
    if len(content) > _MAX_FILE_BYTES:
        raise _config_error(path, "configuration file is too large", expected="at most 1 MiB", do="--no-config")
    return content


def _parse_file(path: str, content: bytes) -> dict[str, Any] | None:
    """The tables of a file; None for a project without any."""
    import tomllib

    is_project = os.path.basename(path) == PROJECT_NAME
    try:
        document = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as failure:
        if is_project and b"tool.rekord" not in content:
            return None
        found = " ".join(str(failure).split()) or type(failure).__name__
        raise _config_error(
            path, "configuration file is not valid TOML", found=truncate(found, 100), do="--no-config"
        ) from None
    tables: dict[str, Any] = document
    for name in ("tool", "rekord") if is_project else ():
        inner = tables.get(name)
        if inner is None:
            return None
        if not isinstance(inner, dict):
            raise _config_error(path, f"`{name}` is not a table", key=name, do="[tool.rekord]")
        tables = inner
    return tables


# Reading the values.


def _params_by_key(command: Any) -> dict[str, Any]:
    """The options of a verb by their names in a configuration file."""
    return {
        max(param.opts, key=len).lstrip("-").replace("-", "_"): param
        for param in command.params
        if param.param_type_name == "option"
    }


def _settable_keys(command: Any) -> frozenset[str]:
    return (COMMON_KEYS | VERB_KEYS.get(str(command.name), frozenset())) & _params_by_key(command).keys()


def _read_table(path: str, table: Mapping[str, Any], command: Any) -> dict[str, ConfiguredDefault]:
    """The defaults in the table of a verb, by parameter. An invalid key is an error, whichever verb runs."""
    params, settable = _params_by_key(command), _settable_keys(command)
    defaults: dict[str, ConfiguredDefault] = {}
    for name, value in table.items():
        key, named = name.replace("-", "_"), f"{command.name}.{name}"
        if key in settable:
            param = params[key]
            defaults[str(param.name)] = ConfiguredDefault(named, _convert(path, named, value, param), _show(value))
        elif key in params:
            raise _config_error(
                path,
                f"`{escape_controls(named)}` cannot be set in a configuration file",
                key=named,
                expected="an option that runs no code, leaves no rows out and chooses no output",
                do=f"rekord {command.name} … --{key.replace('_', '-')}",
            )
        else:
            raise _unknown_key_error(path, named, name, [key.replace("_", "-") for key in sorted(settable)])
    return defaults


def _unknown_common_key_error(path: str, name: str, verbs: Mapping[str, Any]) -> RekordError:
    options = [key.replace("_", "-") for key in sorted(COMMON_KEYS)]
    owners = [f"[{verb}]" for verb, keys in VERB_KEYS.items() if name.replace("-", "_") in keys]
    if owners:
        do = f"move it to {' or '.join(owners)}"
        return _unknown_key_error(path, name, name, options, likely="an option of some verbs only", do=do)
    return _unknown_key_error(path, name, name, options, tables=[verb for verb in verbs if verb in VERB_KEYS])


def _unknown_key_error(
    path: str,
    named: str,
    name: str,
    options: Sequence[str],
    *,
    tables: Sequence[str] = (),
    likely: str | None = None,
    do: str = "rename or remove the key, or pass --no-config",
) -> RekordError:
    near = closest_match(name.replace("_", "-"), [*options, *tables])
    listed = ", ".join(options)
    return _config_error(
        path,
        f"unknown key `{escape_controls(truncate(named))}`",
        key=named,
        expected=f"one of {listed}, or a table of a verb" if tables else f"one of {listed}",
        likely=likely or (f"a typo of `{near}`" if near else None),
        do=do,
    )


def _convert(path: str, named: str, value: Any, param: Any) -> Any:
    """A TOML value as the option takes it."""
    metavar = str(param.metavar or "")
    if getattr(param, "count", False) or str(param.name) == "verbose":
        if isinstance(value, (bool, int)) and 0 <= value <= 2:
            return int(value)
        raise _value_error(path, named, value, "true, false, 1 or 2")
    if param.is_flag:
        if isinstance(value, bool):
            return value
        raise _value_error(path, named, value, "true or false")
    if isinstance(value, Mapping) and "=" in metavar and all(_is_plain(each) for each in value.values()):
        text = ",".join(f"{key}={each}" for key, each in value.items())
        return [text] if param.multiple else text
    values = value if isinstance(value, list) else [value]
    if not values or not all(_is_plain(each) for each in values):
        raise _value_error(path, named, value, f"a text or a number, as after --{named.rpartition('.')[2]}")
    texts = [str(each) for each in values]
    choices = list_choices(param)
    for text in texts:
        for part in text.split(",") if choices and "," in metavar else [text]:
            if choices and part not in choices:
                near = closest_match(part, choices)
                raise _value_error(path, named, value, f"one of {', '.join(choices)}", near=near)
    if param.multiple:
        return texts
    if len(texts) == 1:
        return texts[0]
    separator = "x" if "x" in metavar else "," if "," in metavar else None
    if separator is None:
        raise _value_error(path, named, value, "one value")
    return separator.join(texts)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _value_error(path: str, named: str, value: Any, expected: str, *, near: str | None = None) -> RekordError:
    key = named.rpartition(".")[2]
    return _config_error(
        path,
        f"`{escape_controls(truncate(named))}` cannot be {_show(value)}",
        key=named,
        expected=expected,
        found=_show(value),
        likely=f'a typo of "{near}"' if near else None,
        do=f'{key} = "{near}"' if near else "correct the value, or pass --no-config",
    )


def _show(value: Any) -> str:
    """A value as TOML has it, nearly."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        shown = f"{{{', '.join(f'{key} = {_show(each)}' for key, each in value.items())}}}"
    elif isinstance(value, list):
        shown = f"[{', '.join(map(_show, value))}]"
    else:
        shown = f'"{value}"' if isinstance(value, str) else str(value)
    return truncate(escape_controls(shown), _MAX_SHOWN_CHARACTERS)


def _config_error(path: str, what: str, *, key: str | None = None, **fields: Any) -> RekordError:
    fields.setdefault("found", None if key is None else f"key `{escape_controls(truncate(key))}`")
    return error("U692", what, location=Location(path=path), **fields)
