"""The page about balancing names all that there is."""

from __future__ import annotations

import re
from pathlib import Path

from rekord.cli.main import run_command_line
from rekord.transforms.augment import AUGMENTATIONS
from rekord.verbs.options import METHODS
from rekord.verbs.resampling import STRATEGY_NAMES

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference" / "balancing.md").read_text(encoding="utf-8")


def test_the_reference_names_every_method_strategy_augmentation_and_option(capsys):
    for word in (*METHODS, *STRATEGY_NAMES, *AUGMENTATIONS):
        assert re.search(rf"[`\"]{word}[`\"]", PAGE), word
    assert run_command_line(["balance", "--help"]) == 0
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    said = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    shared = {"--shard-size", "--shards", "--compression", "--format", "--workers", "--fresh"}
    assert options - {"--help", "--quiet", "--verbose", "--no-config", "--stats"} == said | shared
