"""The published pages in Chromium, with the network closed: nothing missing, nothing said on the console."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv")

from trgbench.suite.dashboard.offline import POLICY
from trgbench.suite.journal import Failure, Journal, Verdict

from .conftest import BACKENDS, GROWTH, LISTED, PACKAGES, TRG, VECTOR, Scratch, environment

# One that runs as soon as it is in a page, and some that a reader would have to help.
SCRIPT = (
    '"><img src=x onerror="window.hacked=1;alert(1)"><script>window.hacked=1</script>'
    "<a href=\"javascript:window.hacked=1\">x</a><iframe srcdoc='<script>parent.hacked=1</script>'></iframe>"
)
WIDTHS = (1400, 390)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(site: Path) -> Iterator[str]:
    """Serve a folder on this machine, and give its address."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def address(published: Scratch) -> Iterator[str]:
    with serving(published.root / "html") as served:
        yield served


class Visit:
    """A window without a network. `events`: what the console says, errors, dialogs, requests to outside."""

    def __init__(self, browser: Any, width: int = 1400) -> None:
        self.events: list[str] = []
        self.context = browser.new_context(viewport={"width": width, "height": 900})
        self.context.route(re.compile(r"^(?!file:|data:|http://127\.0\.0\.1:)"), self._refuse)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.events.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.events.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)

    def _refuse(self, route: Any) -> None:
        self.events.append(f"request: {route.request.url}")
        route.abort()

    def _dismiss(self, dialog: Any) -> None:
        self.events.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def goto(self, address: str) -> Any:
        self.page.goto(address)
        self.page.wait_for_load_state("networkidle")
        return self.page

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def check_front(page: Any, width: int) -> None:
    assert page.locator("figure.card svg").count() == 3 + 2 + 10 + 2
    for figure in page.locator("section >> nth=0 >> figure.card svg").all():
        box = figure.bounding_box()
        assert box["width"] >= 250 and box["height"] >= 100
    assert page.locator("#regressions").is_visible()
    page.locator("summary", has_text="The same as a table").first.click()
    assert page.get_by_role("cell", name="traced-staged").first.is_visible()


def check_grid(page: Any, width: int) -> None:
    assert page.locator(".benchmark-container").count() == len(LISTED)
    assert page.locator(".benchmark-container canvas").first.is_visible()


def check_list(page: Any, width: int) -> None:
    assert page.locator("#summarylist-body tbody tr").count() > 100
    assert page.locator("#summarylist-body tbody td.value").first.is_visible()


def check_graph(page: Any, width: int) -> None:
    assert page.locator("#main-graph canvas").first.bounding_box()["width"] > 300
    assert page.locator("#main-graph .legend tr").count() >= len(BACKENDS)
    assert page.locator("#graphdisplay-navigation-params .panel").count() >= 4
    assert page.locator("#range").input_value()


def check_graph_over_n(page: Any, width: int) -> None:
    assert page.locator("#main-graph canvas").first.is_visible()
    assert "n" in page.locator("#graphdisplay-navigation-params .panel").first.inner_text()


def check_regressions(page: Any, width: int) -> None:
    rows = page.locator("#regressions-body tbody tr")
    assert rows.count() == 78
    assert "1.50x" in rows.first.inner_text()


PAGES = {
    "dashboard.html": check_front,
    "index.html#/": check_grid,
    "index.html#summarylist": check_list,
    f"index.html#{TRG}?p-threads=1": check_graph,
    f"index.html#{VECTOR}?p-threads=1&x-axis=n&y-axis-scale=log": check_graph_over_n,
    "index.html#regressions": check_regressions,
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_without_a_network(browser: Any, address: str, name: str, width: int) -> None:
    with Visit(browser, width) as visit:
        page = visit.goto(address + name)
        PAGES[name](page, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.events == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["dashboard.html", "index.html"])
def test_the_front_page_opens_from_a_file(browser: Any, published: Scratch, name: str, width: int) -> None:
    with Visit(browser, width) as visit:
        page = visit.goto((published.root / "html" / name).as_uri())
        page.wait_for_url("**/dashboard.html")
        check_front(page, width)
        assert visit.events == []


def test_from_a_file_the_way_to_asv_s_pages_ends_with_the_reason(browser: Any, published: Scratch) -> None:
    with Visit(browser) as visit:
        page = visit.goto((published.root / "html" / "dashboard.html").as_uri())
        assert not page.get_by_text("make preview serves them").is_visible()
        page.get_by_role("link", name="Grid").click()
        page.wait_for_url("**/dashboard.html#needs-server")
        assert page.get_by_text("make preview serves them").is_visible()
        assert visit.events == []


def test_the_tab_leads_to_the_front_page_and_back(browser: Any, address: str) -> None:
    with Visit(browser) as visit:
        page = visit.goto(address)
        assert page.url == f"{address}dashboard.html"  # who just comes lands there
        page.get_by_role("link", name="Grid").click()
        page.locator(".benchmark-container").first.wait_for()
        page.get_by_role("link", name="Overview").click()
        page.wait_for_url("**/dashboard.html")
        page.locator("figure.card h4 a").first.click()
        page.locator("#main-graph canvas").first.wait_for()
        page.go_back()
        page.wait_for_url("**/dashboard.html")
        page.get_by_role("link", name="The study on this machine").click()
        page.wait_for_url("**/study.html")
        assert visit.events == []


def test_every_link_of_the_front_page_to_a_graph_shows_one(browser: Any, address: str) -> None:
    with Visit(browser) as visit:
        page = visit.goto(f"{address}dashboard.html")
        links = page.locator("a[href^='index.html#']")
        found = {link.get_attribute("href") for link in links.all()}
        graphs = [link for link in found if "?" in link]
        assert len(graphs) > 15
        for link in sorted(graphs)[:: len(graphs) // 12]:
            page = visit.goto(address + link)
            assert page.locator("#main-graph canvas").first.is_visible(), link
            assert page.locator("#graphdisplay-navigation-params .active").count() >= 1
        assert visit.events == []


def test_a_click_on_a_commit_leads_to_its_line(browser: Any, address: str, published: Scratch) -> None:
    changed = published.commits[3][:8]
    with Visit(browser) as visit:
        page = visit.goto(f"{address}index.html#summarylist")
        page.locator("td.change-date a", has_text=changed).first.click()
        page.wait_for_url(f"**/dashboard.html#commit-{changed}")
        assert page.locator(f"#commit-{changed}").is_visible()
        page = visit.goto(f"{address}index.html#{GROWTH}")
        with page.expect_popup() as popup:
            page.evaluate(
                "const rev = Math.min(...Object.keys($.asv.main_json.revision_to_hash));"
                "$('#main-graph').trigger('plotclick', [{}, {datapoint: [rev, 1]}])"
            )
        popup.value.wait_for_url(f"**/dashboard.html#commit-{published.commits[0][:8]}")
        assert visit.events == []


# ------------------------------------------------------------------------------------ hostile names


def poisoned(site: Path, target: Path, policy: bool) -> Path:
    """Copy a site and put a script into every name that asv's pages show, as if nobody had looked at them."""
    shutil.copytree(site, target)
    index = json.loads((target / "index.json").read_text())
    for benchmark in index["benchmarks"].values():
        benchmark |= {"code": SCRIPT, "pretty_name": SCRIPT, "unit": SCRIPT}
        benchmark["param_names"] = [f"{name}{SCRIPT}" for name in benchmark["param_names"]]
    index["benchmarks"][f"{SCRIPT}.{SCRIPT}"] = index["benchmarks"][GROWTH] | {"name": f"{SCRIPT}.{SCRIPT}"}
    index["machines"]["here"] = dict.fromkeys(index["machines"]["here"], SCRIPT) | {SCRIPT: SCRIPT}
    index["tags"] = {SCRIPT: next(map(int, index["revision_to_hash"]))}
    index["project"] = SCRIPT
    (target / "index.json").write_text(json.dumps(index))
    if not policy:
        page = (target / "index.html").read_text()
        assert POLICY in page
        (target / "index.html").write_text(page.replace(POLICY, ""))
    return target


def tour(visit: Visit, address: str) -> bool:
    """Look at asv's pages, and at what the mouse brings up; return whether a script of a name ran."""
    hacked = False
    for place in ("index.html#/", "index.html#summarylist", f"index.html#{GROWTH}", "index.html#regressions"):
        page = visit.goto(address + place)
        page.evaluate("$('.benchmark-text, .benchmark-plot, .btn, .panel li').trigger('mouseenter')")
        page.evaluate("$('a[href^=\"javascript:\"]').each((_, link) => link.click())")
        page.wait_for_timeout(300)
        hacked = hacked or page.evaluate("window.hacked === 1")
    return hacked or any(event.startswith("dialog") for event in visit.events)


@pytest.mark.parametrize("policy", [True, False])
def test_a_script_in_a_name_runs_only_without_the_policy(
    browser: Any, published: Scratch, tmp_path: Path, policy: bool
) -> None:
    site = poisoned(published.root / "html", tmp_path / "site", policy)
    with serving(site) as address, Visit(browser) as visit:
        assert tour(visit, address) is not policy
        assert not [event for event in visit.events if event.startswith("request")]


def test_a_commit_a_tag_or_a_reason_that_is_a_script_stays_text(
    browser: Any, scratch: Scratch, suite: dict[str, Any]
) -> None:
    scratch.list_benchmarks([suite[GROWTH]])
    scratch.commit(f"</td></table>{SCRIPT}{{{{ 7 * 7 }}}}\u2028\x0c\tend")
    scratch.git("tag", "<img/src=x/onerror=window.hacked=1>")
    scratch.record([suite[GROWTH]], 0, value=lambda *known: None if known[1]["backend"] == "jax" else 1.0)
    journal = Journal(scratch.root / "results" / "here")
    journal.judged(scratch.commits[0], environment(PACKAGES), Verdict("slower", SCRIPT, (SCRIPT,)))
    journal.failed(scratch.commits[0], environment(PACKAGES), GROWTH, [Failure(GROWTH, SCRIPT, SCRIPT)])
    done = scratch.publish()
    assert done.returncode == 0, done.stdout + done.stderr
    with serving(scratch.root / "html") as address, Visit(browser) as visit:
        assert not tour(visit, address)
        visit.events.clear()
        page = visit.goto(f"{address}dashboard.html")
        # The subject three times, the verdict's reason, the failure's parameters and its reason.
        assert page.inner_text("body").count(SCRIPT) == 6
        assert re.search(r"\{\{ 7 \* 7 \}\}\s+end", page.inner_text("body"))
        assert page.locator("img, script, iframe").count() == 0
        assert visit.events == []
