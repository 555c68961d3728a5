"""Shell completion for bash, zsh and fish: verbs, options, values, columns and splits; the shell completes paths.

The script of a shell runs `_REKORD_COMPLETE=SHELL rekord WORD…` with the words up to the cursor, of which the last
may be incomplete, and reads one proposal per line; a tab separates a description. Without proposals the shell
completes paths. Names come from files that may be hostile: only those that no shell can misread are proposed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekord.cli import console
from rekord.cli.options import find_awaiting, list_choices, split_words
from rekord.codes import CODES
from rekord.errors import error
from rekord.location import Location

VARIABLE = "_REKORD_COMPLETE"
INSTALL, SHOW = "--install-completion", "--show-completion"

_BASH = """\
_rekord_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(_REKORD_COMPLETE=bash "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _rekord_completion rekord
"""
_ZSH = """\
#compdef rekord
_rekord() {
    local line
    local -a lines values texts
    lines=("${(@f)$(_REKORD_COMPLETE=zsh "${(Q)words[1]}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        values+=("${line%%$'\\t'*}")
        texts+=("${line/$'\\t'/  -- }")
    done
    if (( ${#values} )); then
        compadd -l -d texts -a values
    else
        _files
    fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _rekord rekord
"""
_FISH = """\
function __rekord_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc) "$current"
    set -l found (env _REKORD_COMPLETE=fish $words 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c rekord -f -a '(__rekord_complete)'
"""
SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_SAFE = re.compile(r"[\w./@%+-]{1,200}", re.ASCII)
_MAX_PROPOSALS = 500
_MAX_MANIFEST_BYTES = 8 << 20
_MAX_HEAD_BYTES = 1 << 20
_COLUMN_OPTIONS = frozenset(
    {"--by", "--bucketize", "--cast", "--column", "--columns", "--drop", "--fill", "--hash", "--index", "--keep"}
    | {"--key", "--label", "--one-hot", "--per-box", "--rename", "--set", "--split-by", "--standardize", "--stratify"}
    | {"--tfidf", "--tokenize", "--vocabulary"}
)
_SPLIT_OPTIONS = frozenset({"--only", "--split", "--splits", "--val"})


@dataclass(frozen=True, slots=True)
class Proposal:
    """One word to complete to."""

    value: str
    help: str = ""


# The scripts.


def take_shell(args: list[str]) -> tuple[list[str], str | None]:
    """Arguments without the shell after `--install-completion` or `--show-completion`, and that shell."""
    for at, word in enumerate(args):
        option, _, value = word.partition("=")
        if option not in (INSTALL, SHOW):
            continue
        if value:
            return [*args[:at], option, *args[at + 1 :]], value
        if at + 1 < len(args) and not args[at + 1].startswith("-"):
            return [*args[: at + 1], *args[at + 2 :]], args[at + 1]
    return args, None


def print_script(shell: str | None) -> None:
    """Print the script of a shell, to be saved or sourced."""
    name = _resolve_shell(shell, SHOW)
    if console.is_json():
        console.print_json({"shell": name, "script": SCRIPTS[name]})
    else:
        console.print_line(SCRIPTS[name].rstrip("\n"))


def install_script(shell: str | None) -> None:
    """Save the script where the shell finds it."""
    name = _resolve_shell(shell, INSTALL)
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    configuration = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    startup = None
    if name == "fish":
        script = os.path.join(configuration, "fish", "completions", "rekord.fish")
    else:
        script = os.path.join(data, "rekord", f"completion.{name}")
        folder = home if name == "bash" else os.environ.get("ZDOTDIR") or home
        startup = os.path.join(folder, f".{name}rc")
    changed = script
    try:
        os.makedirs(os.path.dirname(script), exist_ok=True)
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPTS[name])
        if startup is not None:
            changed = startup
            _add_line(startup, f"source {shlex.quote(script)}")
    except OSError as failure:
        raise error(
            "X504",
            "completion cannot be installed",
            location=Location(path=changed),
            found=failure.strerror or str(failure),
            do=f"rekord {SHOW} {name} > FILE, and source FILE when the shell starts",
        ) from None
    if console.is_json():
        console.print_json({"shell": name, "script": script, "startup_file": startup})
        return
    also = "" if startup is None else f", sourced by {console.escape_controls(startup)}"
    console.print_line(f"installed completion for {name}: {console.escape_controls(script)}{also}")
    console.print_next("next: start a new shell")


def _add_line(path: str, line: str) -> None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    if line not in text.splitlines():
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n")


def _resolve_shell(shell: str | None, option: str) -> str:
    found = shell or _detect_shell() or ""
    if found in SCRIPTS:
        return found
    raise error(
        "U605",
        f"`{option}` cannot be {console.escape_controls(repr(found))}" if found else "cannot determine your shell",
        expected="bash, zsh or fish",
        found=console.truncate(console.escape_controls(found)) or "no shell that is known",
        do=f"rekord {option} bash",
    )


def _detect_shell() -> str | None:
    """The shell that runs this command, or the login shell."""
    with suppress(Exception):
        import shellingham  # a dependency of typer

        return str(shellingham.detect_shell()[0])
    return os.path.basename(os.environ.get("SHELL", "")) or None


# The proposals.


def is_completing() -> bool:
    """Whether a shell asks for proposals."""
    return os.environ.get(VARIABLE) in SCRIPTS


def print_completions(group: Any, words: Sequence[str]) -> int:
    """Print the proposals for the last word. Any failure means that there are none."""
    described = os.environ.get(VARIABLE) != "bash"
    with suppress(Exception):
        lines = [
            f"{each.value}\t{each.help}" if described and each.help else each.value
            for each in list_proposals(group, words)
        ]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    return 0


def list_proposals(group: Any, words: Sequence[str]) -> list[Proposal]:
    """The proposals for the last of these words, which follow `rekord`."""
    *before, incomplete = _join_assignments(words) or [""]
    verb_at = next((at for at, word in enumerate(before) if not word.startswith("-")), None)
    if verb_at is None:
        if before[-1:] and before[-1] in (INSTALL, SHOW):
            return _matching(incomplete, (Proposal(shell) for shell in SCRIPTS))
        if incomplete.startswith("-"):
            return _matching(incomplete, _iter_options(group.params, before))
        return _matching(incomplete, _iter_verbs(group))
    command = group.commands.get(before[verb_at])
    if command is None:
        return []
    return _list_verb_proposals(group, command, before[verb_at + 1 :], incomplete)


def _join_assignments(words: Sequence[str]) -> list[str]:
    """`--split=tr` as `--split`, `tr`; bash passes it as three words."""
    joined: list[str] = []
    for word in words:
        if word == "=" and joined and joined[-1].startswith("--"):
            joined.append("")
        elif joined and joined[-1] == "" and len(joined) > 1 and joined[-2].startswith("--"):
            joined[-1] = word
        elif word.startswith("--") and "=" in word:
            joined += word.split("=", 1)
        else:
            joined.append(word)
    return joined


def _list_verb_proposals(group: Any, command: Any, before: Sequence[str], incomplete: str) -> list[Proposal]:
    positionals, _ = split_words(command, before)
    awaiting = find_awaiting(command, before)
    if awaiting is not None:
        return _list_values(awaiting, positionals, incomplete)
    if incomplete.startswith("-"):
        return _matching(incomplete, _iter_options(command.params, before))
    if command.name == "help" and not positionals:
        return _matching(incomplete, _iter_verbs(group))
    if command.name == "explain" and not positionals:
        codes = (Proposal(code, title) for code, title in CODES.items())
        return _matching(incomplete.upper(), codes) if incomplete else []
    return []


def _iter_verbs(group: Any) -> Iterator[Proposal]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield Proposal(name, f"{(command.help or '').split('.')[0]}.")


def _iter_options(params: Iterable[Any], before: Sequence[str]) -> Iterator[Proposal]:
    """Long options, without those that were given and cannot be repeated."""
    for param in params:
        repeats = getattr(param, "multiple", False) or getattr(param, "count", False)
        if getattr(param, "hidden", False) or (not repeats and any(option in before for option in param.opts)):
            continue
        for option in param.opts:
            if option.startswith("-"):
                yield Proposal(option, " ".join(str(getattr(param, "help", None) or "").split()))
    yield Proposal("--help", "Show this help.")


def _list_values(param: Any, positionals: Sequence[str], incomplete: str) -> list[Proposal]:
    """Values of an option: known ones, columns or splits; of a list, the part after the last comma."""
    metavar = str(param.metavar or "")
    choices: Iterable[str] = list_choices(param)
    suffix = ""
    if not choices and positionals:
        if _COLUMN_OPTIONS.intersection(param.opts):
            suffix = "=" if re.match(r"(KEY|OLD)=", metavar) else ""
            choices = list_columns(positionals[0])
        elif _SPLIT_OPTIONS.intersection(param.opts) and "=" not in metavar:
            choices = list_splits(positionals[0])
    head, comma, tail = incomplete.rpartition(",") if "," in metavar else ("", "", incomplete)
    taken = head.split(",")
    found = (Proposal(f"{head}{comma}{each}{suffix}") for each in choices if not comma or each not in taken)
    return _matching(f"{head}{comma}{tail}", found)


def _matching(incomplete: str, proposals: Iterable[Proposal]) -> list[Proposal]:
    found = {each.value: each for each in proposals if each.value.startswith(incomplete)}
    return list(found.values())[:_MAX_PROPOSALS]


# Names in datasets and raw data.


def list_columns(path: str) -> list[str]:
    """Columns of a dataset or table, where the beginning of one small file has them."""
    readers: Mapping[str, Callable[[bytes], Iterable[str]]] = {
        ".csv": _read_csv_header,
        ".tsv": _read_csv_header,
        ".jsonl": _read_json_keys,
        ".ndjson": _read_json_keys,
    }
    manifest = _read_manifest(path)
    if manifest is not None:
        schema = manifest.get("schema", {})
        tables = [schema.get(part) for part in ("features", "context", "steps")]
        return _keep_safe(name for table in tables if isinstance(table, dict) for name in table)
    reader = readers.get(os.path.splitext(path)[1].lower(), _read_example_keys)
    file = _find_record_file(path)
    return [] if file is None else _keep_safe(reader(_read_head(file)))


def list_splits(path: str) -> list[str]:
    """Splits of a dataset with a manifest."""
    manifest = _read_manifest(path) or {}
    return _keep_safe(manifest.get("splits", {}))


def _keep_safe(names: Iterable[Any]) -> list[str]:
    safe = [name for name in names if isinstance(name, str) and _SAFE.fullmatch(name) and not name.startswith("-")]
    return safe[:_MAX_PROPOSALS]


def _read_manifest(path: str) -> dict[str, Any] | None:
    content = _read_head(os.path.join(path, "rekord.json"), _MAX_MANIFEST_BYTES)
    document = json.loads(content) if content else None
    return document if isinstance(document, dict) else None


def _find_record_file(path: str) -> str | None:
    if not os.path.isdir(path):
        return path
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if ".tfrecord" in entry.name)
    return os.path.join(path, names[0]) if names else None


def _read_head(path: str, limit: int = _MAX_HEAD_BYTES) -> bytes:
    """The first bytes of a regular local file; none without one."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(limit)
    except (OSError, ValueError):
        return b""


def _read_csv_header(head: bytes) -> Iterable[str]:
    import csv

    line = head.partition(b"\n")[0].decode("utf-8-sig", "replace")
    delimiter = max("\t;,", key=line.count)
    return next(csv.reader([line], delimiter=delimiter), [])


def _read_json_keys(head: bytes) -> Iterable[str]:
    row = json.loads(head.partition(b"\n")[0])
    return row if isinstance(row, dict) else []


def _read_example_keys(head: bytes) -> Iterable[str]:
    """The keys of the first record of an uncompressed file, which the first bytes hold."""
    from rekord import _core

    size = int.from_bytes(head[:8], "little")
    if len(head) < 12 or size > len(head) - 12:
        return []
    example = _core.decode_example(head[12 : 12 + size])
    return [] if isinstance(example, _core.Problem) else example
