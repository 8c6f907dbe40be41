"""Dependencies point down only: the imports of every module are read and held to the layers."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import fedincentive

PACKAGE = Path(fedincentive.__file__).parent

# A module may import from its own layer's row (only itself) and from the rows below it.
LAYERS = [
    {"cli", "experiments", "plugins"},
    {"plots", "reports"},
    {"league"},
    {"engine", "hosting"},
    {"center", "agent", "audit"},
    {"manifest", "identity"},
    {"mechanisms", "aggregation", "ledger", "adversary"},
    {"game"},
    {"payments"},
    {"run", "terms"},
    {"provenance", "contribution"},
    {"entry", "messages", "settings", "draws", "sealed"},
    {"registry"},
    {"errors", "files", "checks", "compiled", "plain"},
]
# Same-row imports that are meant; each is used, or the test below fails.
MEANT = {
    ("mechanisms", "aggregation"),
    ("cli", "experiments"),
    ("cli", "plugins"),
    ("checks", "errors"),
}
HOSTS = {"fedml", "flwr", "nvflare"}


def level(part: str) -> int:
    return next((i for i, row in enumerate(LAYERS) if part in row), -1)


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.name != "__init__.py")


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imported(path: Path) -> list[tuple[str, str]]:
    """(absolute module, top-level name inside fedincentive or '') of every import statement in a file."""
    package = ("fedincentive", *path.relative_to(PACKAGE).parts[:-1])
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            stem = ".".join(filter(None, [base, node.module]))
            names = [f"{stem}.{alias.name}" for alias in node.names] if stem == "fedincentive" else [stem]
        else:
            continue
        for name in names:
            bits = name.split(".")
            found.append((name, bits[1] if bits[0] == "fedincentive" and len(bits) > 1 else ""))
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    here = level(part)
    assert here >= 0, f"{path} belongs to no layer; add {part!r} to LAYERS."
    for name, target in imported(path):
        if not target or target == part or target.startswith("__") or level(target) < 0:
            continue
        assert level(target) > here or (part, target) in MEANT, f"{part} imports {name}, which is not below it."


def test_every_exception_is_needed() -> None:
    used = {(part_of(path), target) for path in modules() for _, target in imported(path)}
    assert used >= MEANT, f"No module needs {sorted(MEANT - used)} any more: remove the exception."


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_adapters_import_a_host_or_torch(path: Path) -> None:
    if part_of(path) in {"plugins", "experiments"}:
        return
    tops = {name.split(".")[0] for name, _ in imported(path)}
    assert not tops & (HOSTS | {"torch"}), f"{path.name} imports {tops & (HOSTS | {'torch'})}."


def test_importing_the_package_is_light(tmp_path: Path) -> None:
    heavy = "{'torch', 'scipy', 'matplotlib', 'sklearn', 'fedml', 'flwr', 'nvflare', 'psycopg', 'pandas'}"
    code = f"import sys, fedincentive; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_public_name_is_there() -> None:
    for name in fedincentive.__all__:
        assert getattr(fedincentive, name) is not None
        assert name in dir(fedincentive)
    with pytest.raises(AttributeError, match="trimmed_mean"):
        _ = fedincentive.trimed_mean


@pytest.mark.parametrize("name", fedincentive.__all__)
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    thing = getattr(fedincentive, name)
    home = thing if inspect.ismodule(thing) else importlib.import_module(thing.__module__)
    found = doctest.DocTestFinder(recurse=False).find(thing, name, module=home)
    assert sum(len(test.examples) for test in found) > 0, f"{name} has no example in its docstring."
    for test in found:
        assert doctest.DocTestRunner().run(test).failed == 0


def test_help_and_dir_show_what_is_ours() -> None:
    page = pydoc.render_doc(fedincentive)
    for name in ("play", "trimmed_mean", "certify", "payments", "docs/extending.md"):
        assert name in page
    assert set(dir(fedincentive)) == {*fedincentive.__all__, "__version__"}
    assert doctest.testmod(fedincentive).failed == 0


def test_no_two_classes_have_one_name() -> None:
    names: dict[str, Path] = {}
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                assert node.name not in names, f"{node.name} is in {names[node.name]} and in {path}."
                names[node.name] = path
