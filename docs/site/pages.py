"""Put the repository's pages into the docs site, under the paths that they have in the repository.

MkDocs calls the functions ``on_...`` (mkdocs.yml names this file under ``hooks``). A relative link on a page then
leads to the same place in the site and in the repository, and MkDocs checks it. Files of code and settings to which a
page links become pages of the site too. Nothing that is made here is written into the repository.
"""

import functools
import os
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]  # isobench, and the module beside this file

from notebook import execute_page  # noqa: E402
from reference import SECTIONS  # noqa: E402

PAGES = ("*.md", "docs/**/*.md", "experiments/**/*.md", "examples/**/*.md", "benchmarks/*.md")
ASSETS = ("docs/site/*.js", "docs/site/*.css", "experiments/**/*.svg", "docs/figures/*.svg")
NOTEBOOK = "docs/how-to/notebook.md"  # the page whose code is carried out
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what MkDocs found in ``docs/`` by the repository's pages, with the files to which they link."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    pages = find_files(PAGES)
    for path in [*pages, *find_files(ASSETS)]:
        inclusion = InclusionLevel.NOT_IN_NAV if "/results/" in path else InclusionLevel.INCLUDED
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls, inclusion=inclusion))
    for path in find_sources(pages):
        name, text = (f"{path}/index.md", list_folder(path)) if (ROOT / path).is_dir() else (f"{path}.md", show(path))
        made = File.generated(config, name, content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(made)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links to code lead to its page in the site, and fill a page of the reference from the code."""
    path = page.file.src_uri
    if not (ROOT / path).is_file():
        return markdown
    if path in SECTIONS:
        markdown += "\n\n" + SECTIONS[path]()
    markdown = LINK.sub(lambda link: find_place(path, link[1]), markdown)
    return execute_page(markdown, ROOT) if path == NOTEBOOK else markdown


@functools.cache
def find_files(patterns: tuple[str, ...]) -> list[str]:
    """List the repository's files that fit a pattern, by their paths from its root."""
    return sorted({file.relative_to(ROOT).as_posix() for pattern in patterns for file in ROOT.glob(pattern)})


def resolve(page: str, target: str) -> str | None:
    """Return the path from the repository's root to which a link on a page leads; None if nothing is there."""
    path = os.path.normpath(Path(page).parent / target)
    return path if "://" not in target and (ROOT / path).exists() else None


def find_place(page: str, target: str) -> str:
    """Return a link's target in the site: as it is, or the page that shows a file or folder."""
    path = resolve(page, target)
    if path is None or path in (pages := find_files(PAGES)) or path in find_files(ASSETS):
        return target
    if not (ROOT / path).is_dir():
        return f"{target}.md"
    return f"{target.rstrip('/')}/{'README.md' if f'{path}/README.md' in pages else 'index.md'}"


def find_sources(pages: list[str]) -> list[str]:
    """List the files and folders without a page of their own to which pages link, and the files in these folders."""
    shown = {*pages, *find_files(ASSETS)}
    linked = {resolve(page, target) for page in pages for target in LINK.findall((ROOT / page).read_text("utf-8"))}
    linked |= {
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("conf/**/*.yaml")
    }  # the reference links to them
    sources = {path for path in linked if path and path not in shown and f"{path}/README.md" not in shown}
    inside = [file for path in sources for file in (ROOT / path).glob("*") if file.is_file()]
    return sorted(sources | {file.relative_to(ROOT).as_posix() for file in inside} - shown)


def show(path: str) -> str:
    """Make the page of a file of code or settings."""
    language = LANGUAGES.get(Path(path).suffix, "text")
    text = (ROOT / path).read_text("utf-8")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n~~~~~~ {language}\n{text}\n~~~~~~\n"


def list_folder(path: str) -> str:
    """Make the page of a folder, a list of its files."""
    names = sorted(file.name for file in (ROOT / path).iterdir() if file.is_file())
    items = "\n".join(f"- [{name}]({name}{'' if name.endswith('.md') else '.md'})" for name in names)
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}/\n\n{items}\n"
