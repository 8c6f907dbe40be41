"""The examples in the docstrings run, and what is meant to stand alone does."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import pytest

from fedincentive.provenance import rfc8032


@pytest.mark.parametrize("name", ["keys", "merkle"])
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"fedincentive.provenance.{name}"))
    assert found.attempted and not found.failed


def test_the_plain_verifier_imports_only_hashes() -> None:
    tree = ast.parse(Path(rfc8032.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [getattr(node, "module", None) for node in imports] == ["__future__", "hashlib"]
