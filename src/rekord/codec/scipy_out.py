"""Sparse columns as SciPy has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rekord.errors import error

if TYPE_CHECKING:
    from rekord.codec.columns import SparseColumn


def sparse_to_scipy(sparse: SparseColumn) -> Any:
    """A CSR array, one row a record."""
    try:
        from scipy.sparse import csr_array
    except ImportError as failure:
        raise error(
            "U602",
            "to_scipy needs scipy, which is not installed",
            expected="the package scipy",
            found=str(failure)[:60],
            do="pip install 'rekord[balance]'",
        ) from failure
    offsets = sparse.values.offsets
    inside = slice(int(offsets[0]), int(offsets[-1]))
    values, indices = np.asarray(sparse.values.values)[inside], np.asarray(sparse.indices.values)[inside]
    return csr_array((values, indices, offsets - offsets[0]), shape=(len(sparse), sparse.size))
