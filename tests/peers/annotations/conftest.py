"""What the tests of the defect tables share, for a source that needs Datumaro."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SHARED = Path(__file__).parents[2] / "docs" / "conftest.py"
spec = importlib.util.spec_from_file_location("defect_tables", SHARED)
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
sys.modules["defect_tables"] = module
spec.loader.exec_module(module)

place, check_defect, defect_table = module.place, module.check_defect, module.defect_table
