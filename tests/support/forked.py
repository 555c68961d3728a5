"""Python processes that need not import a framework: forks of one that has, and has done nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_SERVER = """
import json, os, sys, warnings

def forked(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of any fork beside the threads of a library
        pid = os.fork()
    if pid:
        return pid
    for path, number in ((request["out"], 1), (request["err"], 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    return None

exec(sys.argv[1])
for line in sys.stdin:
    pids = []
    for request in json.loads(line):
        pids.append(forked(request))
        if pids[-1] is None:
            break
    if pids[-1] is None:
        break
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
else:
    sys.exit()
import __main__
exec(compile(request["script"], "<script>", "exec"), __main__.__dict__)
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended, and what it printed."""

    code: int
    out: str
    err: str


class Forked:
    """Runs scripts, each in a process of its own in which `imports` are done; rekord is not among them."""

    def __init__(self, imports: str, *options: str) -> None:
        command = [sys.executable, *options, "-c", _SERVER, imports]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, script: str, *runs: Sequence[str], environment: Mapping[str, str] | None = None) -> list[Ended]:
        """Run a script once for each of these arguments, all at the same time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            files = [(Path(folder, f"{i}.out"), Path(folder, f"{i}.err")) for i in range(len(runs))]
            requests = [
                {"script": script, "arguments": list(arguments), "environment": dict(environment or {})}
                | {"out": str(out), "err": str(err)}
                for arguments, (out, err) in zip(runs, files, strict=True)
            ]
            self._process.stdin.write(json.dumps(requests) + "\n")
            self._process.stdin.flush()
            codes = json.loads(self._process.stdout.readline())
            said = [(out.read_text(), err.read_text()) for out, err in files]
        return [Ended(code, out, err) for code, (out, err) in zip(codes, said, strict=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._process.communicate()
