"""Small JSON files with a checksum of themselves, replaced in one step, which their owner alone may read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from .compiled import compiled
from .errors import RunError
from .files import reason, replace

SEAL = "sha256"  # of all else in the file


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the file, which its owner alone may read: a state holds the audit seed."""
    write_text(path, written(values))  # once: a state of many agents is large


def written(value: Any) -> str:
    """The bytes of `json.dumps(value, sort_keys=True)`."""
    if (write := compiled("canonical")) is not None and (text := write(value, spaced=True)) is not None:
        return str(text)
    return json.dumps(value, sort_keys=True)


def write_text(path: Path, plain: str) -> None:
    """The same for what is written as JSON already, its keys in order."""
    content = plain.encode()
    seal = f'{{"{SEAL}": "{sha256(content).hexdigest()}"{", " if plain != "{}" else ""}'
    try:
        replace(path, lambda file: file.writelines((seal.encode(), memoryview(content)[1:])), private=True)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {reason(error)}. Remove the cause and resume.") from error


def read_json(path: Path) -> Any:
    """The values that were written, or None where no file is."""
    try:
        values = json.loads(path.read_bytes())
        sealed = values.pop(SEAL, None)
        if sealed != sha256(written(values).encode()).hexdigest():
            raise ValueError("its checksum is wrong" if sealed else "it has no checksum: cut, or of another version")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({error}): restore it from a backup or start a new run.") from error
    return values
