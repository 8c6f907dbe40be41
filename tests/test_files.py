"""Files that are replaced whole or left as they were."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from missing import missing

from fedincentive.files import read_bounded, replace


@pytest.fixture(params=["on disk", "in memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """In memory it lies below /dev, where other files are pipes and devices."""
    if request.param == "on disk":
        yield tmp_path
    elif not os.path.isdir("/dev/shm"):
        missing("/dev/shm is missing: mount a tmpfs there.")
    else:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
            yield Path(name)


def test_a_write_that_fails_leaves_the_old_file_alone(folder: Path) -> None:
    (folder / "a").write_text("old")

    def half(file) -> None:
        file.write(b"ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        replace(folder / "a", half)
    assert str(caught.value) == f"[Errno 28] No space left on device: '{folder / 'a'}'"
    assert os.listdir(folder) == ["a"] and (folder / "a").read_text() == "old"
    with pytest.raises(FileNotFoundError) as absent:
        replace(folder / "nowhere" / "a", half)
    assert absent.value.filename == str(folder / "nowhere" / "a")


def test_who_may_read_a_file_stays(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o600)
    replace(tmp_path / "a", lambda file: file.write(b"new"))
    assert (tmp_path / "a").read_text() == "new" and (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/a")
    for text in (b"first", b"second"):
        replace(tmp_path / "link", lambda file, text=text: file.write(text))
        assert (tmp_path / "link").is_symlink() and (tmp_path / "far" / "a").read_bytes() == text
    assert os.listdir(tmp_path / "far") == ["a"]


@pytest.mark.parametrize("redirected", [False, True], ids=["a pipe", "a file"])
def test_what_is_no_file_of_its_own_is_written_to(tmp_path: Path, redirected: bool) -> None:
    program = (
        "from pathlib import Path; from fedincentive.files import replace; "
        "replace(Path('/dev/stdout'), lambda file: file.write(b'said'))"
    )
    with open(tmp_path / "out", "wb") as out:
        to = {"stdout": out} if redirected else {"stdout": subprocess.PIPE}
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, **to)
    assert (done.stdout or (tmp_path / "out").read_bytes()) == b"said"


def test_a_file_without_end_does_not_fill_the_memory(tmp_path):
    (tmp_path / "small").write_bytes(b"abc")
    assert read_bounded(tmp_path / "small", 3) == b"abc"
    with pytest.raises(OSError, match="larger than 2 bytes"):
        read_bounded(tmp_path / "small", 2)
    with pytest.raises(OSError, match="larger than 1000 bytes"):
        read_bounded(Path("/dev/zero"), 1000)
