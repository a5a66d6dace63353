"""Count equal rows among any number of them."""

import hashlib

import numpy as np

MOST_HASHES = 10_000_000  # of rows, 8 bytes each, that are kept


class RowHashes:
    """Count equal rows by 64-bit hashes; of more than ``MOST_HASHES`` rows, only those with the smallest hashes."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.share = 1.0  # of all possible hashes, that are kept

    def add(self, rows: np.ndarray) -> None:
        """Hash rows [n, d]."""
        width = rows.shape[1] * rows.itemsize
        raw = memoryview((rows + 0).tobytes())  # + 0 makes -0.0 equal to 0.0
        digests = (hashlib.blake2b(raw[i : i + width], digest_size=8).digest() for i in range(0, len(raw), width))
        self.parts.append(self._keep(np.frombuffer(b"".join(digests), np.uint64)))
        while sum(map(len, self.parts)) > MOST_HASHES:
            self.share /= 2
            self.parts = [self._keep(np.concatenate(self.parts))]

    def _keep(self, hashes: np.ndarray) -> np.ndarray:
        return hashes if self.share == 1 else hashes[hashes < np.uint64(self.share * 2**64)]

    def count_duplicates(self) -> tuple[int, float]:
        """Return how many rows equal an earlier one, and the share of rows from which this is estimated."""
        hashes = np.sort(np.concatenate(self.parts))
        return round(int((hashes[1:] == hashes[:-1]).sum()) / self.share), self.share
