"""The hook that joins FedML: active in an unmodified program, free of cost elsewhere, never in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fedincentive_hook

CHOICE = "fedml.runner.FedMLRunner._init_simulation_runner"
WAITING = "any(getattr(f, '__module__', '') == 'fedincentive_hook' for f in sys.meta_path)"


def show(python: Any, expression: str, before: str = "", **env: str) -> Any:
    """An expression's value in a fresh interpreter."""
    code = f"import json, sys\n{before}\nsys.stderr.write('value ' + json.dumps({expression}) + chr(10))"
    lines = python("-c", code, **env).stderr.splitlines()
    return json.loads(next(line for line in reversed(lines) if line.startswith("value ")).removeprefix("value "))


def test_the_hook_waits_in_every_interpreter_and_loads_nothing(python: Any) -> None:
    assert show(python, WAITING) is True
    loaded = show(python, "sorted(sys.modules)")
    assert "fedincentive_hook" in loaded
    assert not [name for name in loaded if name.split(".")[0] in ("fedml", "fedincentive", "numpy", "torch")]


def test_the_environment_turns_it_off(python: Any) -> None:
    for value in ("0", "off", "False", " no "):
        assert show(python, WAITING, FEDINCENTIVE_FEDML=value) is False


def test_the_hook_imports_nothing_of_its_own() -> None:
    """os and sys are loaded before any .pth file is read; reading 2 kB is all an interpreter start pays."""
    source = Path(fedincentive_hook.__file__).read_text()
    imported = [line.strip() for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert imported == ["import os", "import sys"]


def test_importing_fedml_activates_the_plugin_once(python: Any) -> None:
    before = "import fedml, fedincentive.plugins.fedml as plugin; plugin.activate()"
    found = f"[hasattr({CHOICE}, '_fedincentive'), hasattr({CHOICE}.__wrapped__, '_fedincentive'), {WAITING}]"
    assert show(python, found, before) == [True, False, False]


def test_off_means_off_until_the_explicit_import(python: Any) -> None:
    before = f"import fedml; off = not hasattr({CHOICE}, '_fedincentive'); import fedincentive.plugins.fedml"
    assert show(python, f"[off, hasattr({CHOICE}, '_fedincentive')]", before, FEDINCENTIVE_FEDML="0") == [True, True]


def test_the_explicit_import_may_come_first(python: Any) -> None:
    before = "import fedincentive.plugins.fedml; early = 'fedml' in sys.modules; import fedml"
    assert show(python, f"[early, hasattr({CHOICE}, '_fedincentive')]", before, FEDINCENTIVE_FEDML="0") == [False, True]


def test_an_error_of_the_plugin_never_breaks_the_program(python: Any, tmp_path: Path) -> None:
    """A fedincentive that cannot be imported costs FedML's user one line, not the program."""
    (tmp_path / "broken" / "fedincentive").mkdir(parents=True)
    (tmp_path / "broken" / "fedincentive" / "__init__.py").write_text("raise RuntimeError('half installed')")
    code = "import sys; sys.path.insert(0, 'broken'); import fedml; from fedml import FedMLRunner; assert FedMLRunner"
    done = python("-c", code)
    assert "fedincentive: the FedML plugin is not active (RuntimeError: half installed)." in done.stderr


def test_doctor_tells_without_importing_fedml(python: Any) -> None:
    before = "from fedincentive.plugins.fedml import status\nfound = status()"
    assert show(python, "[found.fedml, found.active, found.problems]", before) == ["0.9.6", True, []]
    assert show(python, "'fedml' in sys.modules", before) is False
    active, problems = show(python, "[found.active, found.problems]", before, FEDINCENTIVE_FEDML="0")
    assert active is False and "FEDINCENTIVE_FEDML turns the hook off" in problems[0]


def test_doctor_imports_fedml_for_real(python: Any, tmp_path: Path) -> None:
    """A torchvision of another torch is FedML's most common trouble, and no metadata tells of it."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')"
    )
    before = "from fedincentive.plugins.fedml import status\nfound = status(try_out=True)"
    (problem,) = show(python, "found.problems", before)
    assert problem.startswith("FedML cannot be imported: RuntimeError: operator torchvision::nms does not exist")
