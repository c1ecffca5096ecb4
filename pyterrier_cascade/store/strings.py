"""Lists of strings on disk, without pickles."""

import numpy as np
import pandas as pd


def column(values):
    """Returns a column of a frame: of pandas' own string type, or of objects if a text has lone surrogates."""
    try:
        return pd.Series(values, dtype="str")
    except UnicodeEncodeError:
        return pd.Series(values, dtype=object)


class Strings:
    """A list of strings as one array of bytes, so that it can be saved, mapped from disk and read in part.

    Args:
        blob: the strings in UTF-8, one after the other. *Shape:* (n_bytes,)
        ends: where each string ends in ``blob``. *Shape:* (n_strings,)
    """

    def __init__(self, blob, ends):
        self.blob = blob
        self.ends = ends

    def __len__(self):
        """Returns the number of strings."""
        return len(self.ends)

    @classmethod
    def pack(cls, strings):
        """Returns strings as bytes; lone surrogates, which UTF-8 forbids, are kept too."""
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        ends = np.cumsum([len(part) for part in encoded], dtype="<i8")
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)

    def parts(self, positions):
        """Returns the bytes of the strings at these positions, as a list of memory views."""
        view, starts = memoryview(self.blob), np.where(positions > 0, self.ends[positions - 1], 0)
        return [view[start:end] for start, end in zip(starts.tolist(), self.ends[positions].tolist(), strict=True)]

    def take(self, positions):
        """Returns the strings at these positions as an object array; each string is decoded once."""
        codes, wanted = pd.factorize(np.asarray(positions, dtype=np.int64))
        decoded = [str(part, "utf-8", "surrogatepass") for part in self.parts(wanted)]
        return np.array(decoded, dtype=object)[codes]

    def save(self, folder, name):
        """Writes ``<name>.bytes.npy`` and ``<name>.ends.npy``."""
        np.save(folder / f"{name}.bytes.npy", self.blob, allow_pickle=False)
        np.save(folder / f"{name}.ends.npy", self.ends, allow_pickle=False)

    @classmethod
    def open(cls, folder, name):
        """Returns the strings that ``save`` wrote, memory-mapped."""
        return cls(*(np.load(folder / f"{name}.{part}.npy", mmap_mode="r") for part in ("bytes", "ends")))
