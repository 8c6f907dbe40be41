"""The package as users get it: sdist, wheel from the sdist, editable install, and a machine without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(1800)  # each install compiles the kernels, on a busy machine for minutes
USE = """
import numpy as np, fedincentive, fedincentive.plugins
print(fedincentive.__file__)
print(fedincentive.trimmed_mean([np.array([v], "f4") for v in (1, 2, 3, 4, 1000)], 1)[0])
"""


def run(*command: object, cwd: Path, ok: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FEDINCENTIVE_CUDA": "0", **environment}  # the CUDA module's own suite builds it
    env.pop("PYTHONPATH", None)
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done


def install(python: Path, *what: object, cwd: Path) -> None:
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", *what, cwd=cwd)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git tracks, so that builds leave nothing in the checkout."""
    copy = tmp_path_factory.mktemp("source") / "fedincentive"
    tracked = run("git", "ls-files", "-z", cwd=CHECKOUT).stdout.split("\0")
    for name in filter(None, tracked):
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name)
    return copy


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a fresh environment that borrows everything but fedincentive from this one."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    executable = tmp_path / "venv" / "bin" / "python"
    borrowed = tmp_path / "dependencies"
    borrowed.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "fedincentive" not in entry.name:
            (borrowed / entry.name).symlink_to(entry)
    purelib = run(executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).stdout
    (Path(purelib.strip()) / "dependencies.pth").write_text(f"{borrowed}\n")
    return executable


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    code = f"from setuptools import build_meta; print(build_meta.build_sdist({str(out)!r}))"
    run(sys.executable, "-c", code, cwd=source)
    return next(out.glob("*.tar.gz"))


def test_sdist_carries_all_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    wanted = run("git", "ls-files", "csrc", "fedincentive", "plugins", cwd=CHECKOUT).stdout.split()
    assert set(wanted) <= names


def test_wheel_from_the_sdist_works_outside_the_checkout(sdist: Path, python: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, sdist, cwd=tmp_path)
    wheel = next(tmp_path.glob("fedincentive-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "fedincentive/py.typed" in names
    assert "fedincentive/plugins/__init__.py" in names
    assert any(name.endswith(".so") for name in names)
    assert not any(name.startswith(("csrc/", "tests/", "plugins/")) for name in names)
    install(python, wheel, cwd=tmp_path)
    where, value = run(python, "-c", USE, cwd=tmp_path).stdout.split()
    assert where.startswith(str(tmp_path)) and value == "3.0"
    assert hook_waits(python, tmp_path)
    assert "fedincentive" in run(tmp_path / "venv/bin/fedincentive", "--version", cwd=tmp_path).stdout


def hook_waits(python: Path, cwd: Path) -> bool:
    """Was fedincentive.pth read at interpreter start?"""
    code = "import sys; print(any(getattr(f, '__module__', '') == 'fedincentive_hook' for f in sys.meta_path))"
    return run(python, "-c", code, cwd=cwd).stdout.strip() == "True"


def test_editable_install_follows_the_sources(source: Path, python: Path, tmp_path: Path) -> None:
    install(python, "--no-build-isolation", "-e", source, cwd=tmp_path)
    where, value = run(python, "-c", USE, cwd=tmp_path).stdout.split()
    assert where.startswith(str(source)) and value == "3.0"
    assert hook_waits(python, tmp_path)
    run(sys.executable, "-m", "pip", "--python", python, "uninstall", "-y", "fedincentive", cwd=tmp_path)
    assert not hook_waits(python, tmp_path)


def test_without_a_compiler_the_error_says_what_to_install(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "copy", ignore=shutil.ignore_patterns("build", "*.so"))
    empty = tmp_path / "bin"
    empty.mkdir()
    code = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    done = run(sys.executable, "-c", code, cwd=copy, ok=False, PATH=str(empty), CXX="")
    assert "apt-get install g++" in done.stderr
    assert "C++17 compiler" in done.stderr
