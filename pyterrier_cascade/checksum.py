"""What a file holds, as one number."""

import hashlib
from pathlib import Path


def sha256(path: str | Path) -> str:
    """Returns the sha256 of a file, whatever its size."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
