"""A site's data as records, one sequence of bytes for each: what `fedincentive attest` commits to."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from ..errors import ProvenanceError
from ..files import reason

KINDS = "a folder of files, or a file .npy, .npz, .csv or .jsonl"


def read_records(path: Path, *, header: bool = False) -> list[bytes]:
    """One record for each file of a folder (by name), row of an array, or line of a text; ProvenanceError otherwise.

    In an .npz a record is that row of all its arrays, by name; a `header` is the first line of a .csv and no record.
    """
    try:
        if path.is_dir():
            found = [file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()]
        elif path.suffix == ".npy":
            found = _rows(path, {"": np.load(path, allow_pickle=False)})
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                found = _rows(path, {name: arrays[name] for name in sorted(arrays.files)})
        elif path.suffix in (".csv", ".jsonl"):
            found = path.read_bytes().splitlines()[1 if header else 0 :]
        else:
            raise ProvenanceError(f"{path} is not {KINDS}.")
    except ProvenanceError:
        raise
    except OSError as error:
        raise ProvenanceError(f"{path} cannot be read: {reason(error)}.") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ProvenanceError(f"{path} is not {KINDS}: {error}") from error
    if not found:
        raise ProvenanceError(f"{path} has no records.")
    return found


def _rows(path: Path, arrays: dict[str, np.ndarray]) -> list[bytes]:
    lengths = {len(array) if array.ndim else -1 for array in arrays.values()}
    if len(lengths) != 1 or lengths == {-1}:
        raise ProvenanceError(f"The arrays in {path} do not have one row for each record: {sorted(lengths)} rows.")
    if lengths == {0}:
        return []
    columns = [np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8) for array in arrays.values()]
    rows = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    blob, width = rows.tobytes(), rows.shape[1]
    return [blob[at : at + width] for at in range(0, len(blob), width)] if width else [b""] * len(rows)
