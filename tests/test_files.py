"""Files that are replaced whole or left as they were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedincentive.files import replace


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def half(file) -> None:
        file.write(b"ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        replace(tmp_path / "a", half)
    assert caught.value.filename == str(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"
    with pytest.raises(FileNotFoundError) as missing:
        replace(tmp_path / "nowhere" / "a", half)
    assert missing.value.filename == str(tmp_path / "nowhere" / "a")


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
