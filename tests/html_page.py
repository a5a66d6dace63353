"""Read a page of HTML as a browser does, without one."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "path", "circle", "use", "wbr"}


class Page(HTMLParser):
    """A page's elements with their attributes, its text, and the cells of its tables' rows.

    An element that is not closed is an error.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)
        if not {"td", "th"}.isdisjoint(self.open):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))
