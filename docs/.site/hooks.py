"""The site also shows the examples' own pages. Links into the source tree become plain names: the site stands alone."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
SHOWN = ("examples/games/hospitals.yaml",)  # beside the examples' pages that the site's list of pages names


def on_files(files: Files, config) -> Files:
    for path in (*SHOWN, *outside(config["nav"])):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def outside(nav: object) -> list[str]:
    """The pages of the list that are not in docs/."""
    if isinstance(nav, str):
        return [nav] if nav.startswith("examples/") else []
    parts = nav.values() if isinstance(nav, dict) else nav
    return [path for part in parts for path in outside(part)]


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    """A link is held as it is seen from the repository: docs/ is the site's root there."""
    here = page.file.src_uri if page.file.src_uri.startswith("examples/") else f"docs/{page.file.src_uri}"

    def turned(found: re.Match[str]) -> str:
        words, target, anchor = found.group(1), found.group(2), found.group(3) or ""
        if "://" in target or not target:
            return found.group(0)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        place = path.removeprefix("docs/") if path.startswith("docs/") else path
        if files.get_file_from_path(place) is None:
            if not (ROOT / path).exists():
                raise ValueError(f"{here} links to {target}, which is not there.")
            return words if words.startswith("`") else f"{words} (`{path}`)"
        return f"[{words}]({posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", turned, markdown)
