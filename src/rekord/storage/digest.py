"""Digests of files, with the name of their algorithm: `blake3:…`, or `sha256:…` in older datasets."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FileDigest:
    """A digest of bytes as they arrive: BLAKE3, unless another algorithm is given (docs/decisions/0039)."""

    def __init__(self, algorithm: str = "blake3") -> None:
        if algorithm == "sha256":
            self._hash: Any = hashlib.sha256()
        else:
            from blake3 import blake3  # not needed to read datasets

            self._hash = blake3()

    def update(self, data: Buffer) -> None:
        self._hash.update(data)

    def __str__(self) -> str:
        return f"{self._hash.name}:{self._hash.hexdigest()}"
