"""What a person sees of a report: its text, and whether it fits the panel."""

import re
from html.parser import HTMLParser

PANEL = 430
_PIXELS = re.compile(r"width: ?([0-9.]+)px")
_ENDS_A_LINE = {"p", "h1", "h2", "td", "th", "text", "summary", "title"}


class Page(HTMLParser):
    """A page, read. It refuses what a sandboxed panel cannot show, and tags that do not match."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.html = html
        self.lines = []
        self.rows = []
        self.widths = []
        self.viewboxes = []
        self.tags = []
        self._open = []
        self._text = ""
        self.feed(html)
        self.close()
        assert self._open == [], "all is closed"

    @property
    def title(self):
        return self.lines[0]

    @property
    def facts(self):
        return {row[0]: row[1] for row in self.rows if len(row) == 2}

    @property
    def text(self):
        return "\n".join(self.lines)

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        said = dict(attributes)
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("href", "src") for name in said)
        self.widths += [float(n) for n in _PIXELS.findall(said.get("style") or "")]
        if tag == "svg":
            assert said["width"] == "100%"
            self.viewboxes.append([float(n) for n in said["viewbox"].split()])
        elif "width" in said:
            self.widths.append(float(said["width"]))
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag in _ENDS_A_LINE:
            text = " ".join(self._text.split())
            self._text = ""
            if tag in ("td", "th"):
                self.rows[-1].append(text)
            if text:
                self.lines.append(text)

    def handle_data(self, data):
        if self._open and self._open[-1] == "style":
            assert "url(" not in data
            assert "@import" not in data
            assert "overflow-wrap:anywhere" in data
            self.widths += [float(n) for n in _PIXELS.findall(data)]
            return
        self._text += data

    def fits(self):
        """Nothing asks for more than the panel has: long words break, pictures shrink."""
        assert max(self.widths, default=0) <= PANEL
        assert all(box[2] <= PANEL for box in self.viewboxes)
        assert not {"script", "img", "link", "iframe", "object"} & set(self.tags)
        return True
