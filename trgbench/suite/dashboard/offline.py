"""asv's page, rewritten so that all it loads lies beside it, and so that it runs no script but these."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

from asv.util import UserError

FRONT = "dashboard.html"
# Names of benchmarks, machines and tags reach asv's page as HTML. With this a script among them does not run
# (nothing inline does), and nothing from elsewhere is loaded, whatever the page is made to hold.
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'"
)
HEAD = f"""
    <meta http-equiv="Content-Security-Policy" content="{POLICY}">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <script src="dashboard.js"></script>"""
STYLE = '    <link rel="stylesheet" href="dashboard.css">\n'
TABS = '<li id="nav-li-"'  # where asv's first tab begins
TAB = f'<li id="nav-li-dashboard"><a href="{FRONT}">Overview</a></li>\n        '
OURS = ("dashboard.js", "dashboard.css")

TAG = re.compile(r"<(script|link)\b[^>]*>", re.IGNORECASE)
ADDRESS = re.compile(r'\b(src|href)="([^"]*)"')
GUARDS = re.compile(r'\s+(integrity|crossorigin|referrerpolicy|onerror)="[^"]*"')
OUTSIDE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_SHEET = re.compile(r"(?:url\(|@import\s(?!\s*url))\s*[\"']?([^\"')\s;]+)")
LOADED_BY = {"script": "src", "link": "href", "img": "src", "iframe": "src", "object": "data", "embed": "src"}


def mend(site: Path, vendor: Path) -> None:
    """Rewrite asv's page in `site`, copy what it loads beside it, and see that nothing comes from elsewhere.

    Raises:
        UserError: if a script or a style sheet of asv's page has no counterpart in `vendor`, or one remains
            that is not beside the page.
    """
    page = site / "index.html"
    page.write_text(rewrite(page.read_text(encoding="utf-8"), vendor), encoding="utf-8")
    shutil.copytree(vendor, site / "vendor", dirs_exist_ok=True)
    for name in OURS:
        (site / name).write_text(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))
    if outside := sorted(set(loaded_from_outside(site))):
        raise UserError(f"asv's page would still load from outside: {', '.join(outside)}; {_remedy()}")


def rewrite(page: str, vendor: Path) -> str:
    """Return asv's index.html with local addresses, our tab and our policy, and no inline script."""
    local = {plain_name(file.name): file.name for file in sorted(vendor.iterdir())}

    def mended(tag: re.Match[str]) -> str:
        return ADDRESS.sub(relocated, GUARDS.sub("", tag[0]))

    def relocated(attribute: re.Match[str]) -> str:
        name, address = attribute.groups()
        if not OUTSIDE.match(address):
            return attribute[0]
        known = local.get(plain_name(address.rpartition("/")[2]))
        if known is None:
            raise UserError(
                f"asv's page loads {address}, not in {vendor}/ (remove that to fetch it anew); {_remedy()}"
            )
        return f'{name}="vendor/{known}"'

    page = re.sub(r"<script[^>]*>(?!\s*</script>).*?</script>", "", page, flags=re.DOTALL)
    page = TAG.sub(mended, page)
    for anchor, text in (("<head>", f"<head>{HEAD}"), ("</head>", f"{STYLE}</head>"), (TABS, TAB + TABS)):
        if page.count(anchor) != 1:
            raise UserError(f"asv's page has no single {anchor} any more; {_remedy()}")
        page = page.replace(anchor, text)
    return page


def plain_name(file: str) -> str:
    """Return the name of a script or a style sheet without its version.

    >>> plain_name("jquery.flot-0.8.3.time.min.js"), plain_name("jquery.flot.time.min.js")
    ('jquery.flot.time.js', 'jquery.flot.time.js')
    """
    return re.sub(r"[-@]\d+(\.\d+)*|\.min\b", "", file)


def loaded_from_outside(site: Path) -> Iterator[str]:
    """Yield each address outside `site` that a page or a style sheet in it would load by itself."""
    for page in sorted(site.glob("*.html")):
        for tag, attributes in _Tags(page.read_text(encoding="utf-8")).found:
            address = attributes.get(LOADED_BY.get(tag, ""))
            if address and OUTSIDE.match(address):
                yield address
    for sheet in sorted(site.rglob("*.css")):
        for address in IN_SHEET.findall(sheet.read_text(encoding="utf-8")):
            if OUTSIDE.match(address):
                yield address


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def _remedy() -> str:
    from asv import __version__

    return f"this is asv {__version__}: use the one in pins.txt, or teach trgbench/suite/dashboard/offline.py"
