"""The modules of the viewer's page, checked by the TypeScript compiler (only here: the page is not built)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

VIEWER = Path(__file__).parents[3] / "src" / "rekord" / "viewer"
OPTIONS = {
    "checkJs": True,
    "allowJs": True,
    "noEmit": True,
    "strict": True,
    "noImplicitAny": False,
    "types": [],
    "target": "es2022",
    "module": "es2022",
    "moduleResolution": "bundler",
    "lib": ["es2022", "dom", "dom.iterable"],
}


def test_the_modules_of_the_page_have_no_type_errors(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    installed = subprocess.run(
        [npm, "install", "--silent", "--no-audit", "--no-fund", "typescript@5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode:
        pytest.skip(f"TypeScript cannot be installed: {installed.stderr[-200:]}")
    included = [str(VIEWER / "types.d.ts"), *map(str, sorted((VIEWER / "static").glob("*.js")))]
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "files": included}))
    checked = subprocess.run(
        [tmp_path / "node_modules" / ".bin" / "tsc", "-p", tmp_path], capture_output=True, text=True, check=False
    )
    assert checked.stdout == ""
    assert checked.returncode == 0


def test_no_module_writes_markup_or_reads_pixels_back() -> None:
    for file in (VIEWER / "static").glob("*.js"):
        text = file.read_text()
        for name in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "getImageData",
            "eval(",
        ):
            assert name not in text, file.name
