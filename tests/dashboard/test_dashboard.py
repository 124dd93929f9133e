"""What `asv publish` makes: it needs no network, the front page shows the records, and no name is HTML."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv")

import asv
from asv.util import UserError
from asv_runner.util import human_time

from trgbench.suite import names
from trgbench.suite.dashboard import assets, figures, offline
from trgbench.suite.dashboard.figures import Measured

from .conftest import BACKENDS, GROWTH, LISTED, PACKAGES, TRG, VECTOR, Scratch, made_up

ASV_PAGE = (Path(asv.__file__).parent / "www" / "index.html").read_text()


class Page(HTMLParser):
    """The tags of a page with their attributes, its text, and the cells of its tables."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.tables: list[list[list[str]]] = []
        self.items: list[str] = []
        self._into: list[str] | None = None
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th", "li"):
            self._into = self.items if tag == "li" else self.tables[-1][-1]
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "li"):
            self._into = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._into is not None:
            self._into[-1] += data


# ------------------------------------------------------------------------------------ without a network


def test_asv_s_page_loads_only_what_lies_beside_it(published: Scratch) -> None:
    site = published.root / "html"
    loaded = [
        attributes.get("src") or attributes.get("href")
        for tag, attributes in Page(site / "index.html").tags
        if tag in ("script", "link", "img")
    ]
    assert len(loaded) > 20
    assert all(address and (site / address).is_file() for address in loaded), loaded
    assert list(offline.loaded_from_outside(site)) == []
    page = (site / "index.html").read_text()
    assert not re.search("integrity|crossorigin|onerror", page)
    assert page.count('<a href="dashboard.html">Overview</a>') == 1


def test_what_asv_s_page_does_not_know_yet_is_an_error(vendor: Path, tmp_path: Path) -> None:
    assert offline.rewrite(ASV_PAGE, vendor)
    new = '<script src="https://cdn.example.org/three.js/1.0/three.min.js"></script></head>'
    with pytest.raises(
        UserError, match=r"loads https://cdn\.example\.org/three\.js/1\.0/three\.min\.js.*pins"
    ):
        offline.rewrite(ASV_PAGE.replace("</head>", new), vendor)
    with pytest.raises(UserError, match="no single <head>"):
        offline.rewrite(ASV_PAGE.replace("<head>", '<head lang="en">'), vendor)
    few = shutil.copytree(vendor, tmp_path / "few", ignore=shutil.ignore_patterns("md5*"))
    with pytest.raises(UserError, match="blueimp-md5"):
        offline.rewrite(ASV_PAGE, few)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.html", "<script src=https://example.org/a.js></script>", ["https://example.org/a.js"]),
        ("a.html", '<link rel="stylesheet" href="//example.org/a.css">', ["//example.org/a.css"]),
        ("a.html", "<img SRC='HTTP://example.org/a.png'>", ["HTTP://example.org/a.png"]),
        ("a.html", '<iframe src="ftp://example.org/"></iframe>', ["ftp://example.org/"]),
        ("b/a.css", '@import "https://example.org/a.css";', ["https://example.org/a.css"]),
        ("b/a.css", "p { background: url(//example.org/a.png) }", ["//example.org/a.png"]),
        ("a.html", '<a href="https://example.org">text</a><script src="a.js"></script>', []),
        ("a.html", '<img src="data:image/png;base64,//8=">', []),
        ("b/a.css", "@font-face { src: url('../fonts/a.eot?#iefix') }", []),
    ],
)
def test_addresses_outside_are_found(tmp_path: Path, name: str, content: str, found: list[str]) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / name).write_text(content)
    assert list(offline.loaded_from_outside(tmp_path)) == found


def test_a_page_that_still_loads_from_outside_is_not_published(scratch: Scratch, vendor: Path) -> None:
    site = scratch.root / "html"
    site.mkdir()
    (site / "index.html").write_text(ASV_PAGE)
    (site / "extra.css").write_text("@import url(https://example.org/a.css);")
    with pytest.raises(UserError, match=r"outside: https://example\.org/a\.css"):
        offline.mend(site, vendor)


def test_without_a_network_and_the_scripts_publish_says_what_to_do_and_keeps_the_old_site(
    scratch: Scratch, suite: dict[str, Any]
) -> None:
    shutil.rmtree(scratch.root / ".asv")
    scratch.commit("begin")
    scratch.list_benchmarks([suite[GROWTH]])
    scratch.record([suite[GROWTH]], 0)
    (scratch.root / "html").mkdir()
    (scratch.root / "html" / "index.html").write_text("the old site")
    done = scratch.publish(
        "from pathlib import Path\n"
        "from asv.config import Config\n"
        "from asv.plugin_manager import plugin_manager\n"
        "from trgbench.suite import site\n"
        "conf = Config.load()\n"
        "for plugin in conf.plugins: plugin_manager.import_plugin(plugin)\n"
        "site.publish(conf, Path('html'))"
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "pip could not download asv==0.5.1" in last
    assert "publish once with a package index within pip's reach" in last
    assert [path.name for path in (scratch.root / "html").iterdir()] == ["index.html"]
    assert not (scratch.root / ".asv" / "www-vendor").exists()


def test_a_package_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index"
    index.mkdir()
    content = b"window.hacked = 1"
    with tarfile.open(index / "asv-0.5.1.tar.gz", "w:gz") as package:
        member = tarfile.TarInfo("asv-0.5.1/asv/www/vendor/jquery-3.3.1.min.js")
        member.size = len(content)
        package.addfile(member, io.BytesIO(content))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    with pytest.raises(UserError, match="HASHES"):
        assets.ready(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


# ------------------------------------------------------------------------------------ the front page


@pytest.fixture(scope="module")
def front(published: Scratch) -> Page:
    return Page(published.root / "html" / "dashboard.html")


def test_the_front_page_is_one_file_without_a_script(front: Page) -> None:
    assert not {"script", "iframe", "object", "embed", "form", "img"} & {tag for tag, _ in front.tags}
    for name in ("src", "xlink:href", "action", "data", "srcset"):
        found = {attributes[name] or "" for _, attributes in front.tags if name in attributes}
        assert all(re.match("#|data:", address) for address in found), found
    links = {attributes["href"] or "" for _, attributes in front.tags if "href" in attributes}
    assert all(re.match(r"#|data:|index\.html#|study\.html$", link) for link in links), links
    ids = [attributes["id"] for _, attributes in front.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {link[1:] for link in links if link.startswith("#")}
    assert targets <= set(ids)


def test_the_times_are_those_of_the_newest_records(front: Page) -> None:
    [head, *rows] = next(table for table in front.tables if table[0][:2] == ["problem", "mode"])
    assert head[2:] == list(BACKENDS)
    seen = set()
    for problem, mode, *cells in rows:
        benchmark, parameter = {"vector, n = 1000": (VECTOR, {"n": "1000"})}.get(
            problem, (TRG, {"chi": "16"})
        )
        for backend, cell in zip(BACKENDS, cells, strict=True):
            value = made_up(benchmark, {"backend": backend, "mode": mode, **parameter}, 4)
            skipped = value is not None and value != value
            assert cell == ("failed" if value is None else "" if skipped else human_time(value))
            seen.add((problem, mode, backend))
    assert len(seen) == 3 * (2 + 5)
    assert "✗ 6 failed" in front.text  # JAX's forward mode, at three χ on one thread and on two
    assert "jax forward ✗ failed" in front.items


def test_the_ratios_have_their_intervals_and_history(front: Page, published: Scratch) -> None:
    for backend in BACKENDS:
        value = made_up(GROWTH, {"backend": backend}, 4)
        assert value
        [item] = {item for item in front.items if re.match(rf"{backend} {value:.3g} \(", item)}
        low, high = map(float, re.findall(r"[\d.]+(?=[…)])", item)[-2:])
        assert low < value < high
    page = (published.root / "html" / "dashboard.html").read_text()
    marks = re.findall(r'id="(ratios-\d-[\w-]+?-\d+)-mark-\d"', page)
    # eager / traced and the two others for three problems, growth by backend; then growth again elsewhere
    assert len(set(marks)) == 9 + 1 + 1
    assert len(marks) == 3 * len(set(marks))


def test_the_front_page_says_where_and_when(front: Page, published: Scratch) -> None:
    heads = [attributes["id"] for tag, attributes in front.tags if tag == "section"]
    assert heads == ["setting-1", "setting-2"]
    newest, third = published.commits[4][:8], published.commits[2][:8]
    first = front.text.index(f"here with jax 0.10.2, commit {newest} of 2026-01-05, measured 2026-01-05")
    second = front.text.index(f"here with jax 0.12.0.1, commit {third} of 2026-01-03, measured 2026-01-03")
    assert first < second
    for text in ("A CPU, 2 CPUs, 8 GiB", "Change number 4", "numpy 2.4.6", "The study on this machine"):
        assert text in front.text
    assert (published.root / "html" / "study.html").read_text().endswith("the study's report")


def test_regressions_are_summed_up_by_benchmark_and_commit(front: Page, published: Scratch) -> None:
    [_, row] = next(table for table in front.tables if table[0][0] == "commit" and table[0][-1] == "after")
    assert row[0] == f"{published.commits[3][:8]} Change number 3"
    assert row[1].startswith(TRG)
    # 5 modes, 2 widths, 3 χ on 3 backends; without PyTorch's traced and JAX's forward mode
    assert row[2:4] == [str(5 * 2 * 3 * 3 - 2 * 2 * 3), "1.50×"]


def test_the_gate_s_verdicts_and_the_reasons_of_failures_are_told(front: Page, published: Scratch) -> None:
    [_, *rows] = next(table for table in front.tables if table[0][:2] == ["commit", "verdict"])
    base = published.commits[2][:8]
    assert rows == [
        [f"{published.commits[4][:8]} Change number 4", "✓ good", base, ""],
        [f"{published.commits[3][:8]} Change number 3", "✗ slower", base, f"{TRG} x 1.5"],
    ]
    assert f"the gate on {published.commits[4][:8]}: good" in front.text
    assert f"{TRG}('jax', 'forward'): ValueError: no such mode" in front.items


def test_what_the_newest_commit_lacks_comes_from_an_older_one(
    scratch: Scratch, suite: dict[str, Any]
) -> None:
    scratch.list_benchmarks(suite.values())
    scratch.commit("all of it")
    scratch.commit("one of it")
    scratch.record(suite.values(), 0)
    scratch.record([suite[GROWTH]], 1)
    assert scratch.publish().returncode == 0
    front = Page(scratch.root / "html" / "dashboard.html")
    older, newest = (commit[:8] for commit in scratch.commits)
    assert front.text.count(f"of commit {older}; the newest has no record of it") == 2 + 2 + 9
    assert f"here, commit {newest}" in front.text
    assert "trgbench study --html .asv/study.html" in front.text


def test_without_records_the_front_page_says_how_to_get_some(scratch: Scratch, suite: dict[str, Any]) -> None:
    scratch.commit("begin")
    scratch.list_benchmarks(suite.values())
    done = scratch.publish()
    assert done.returncode == 0, done.stderr
    assert "Not measured yet: make bench" in Page(scratch.root / "html" / "dashboard.html").text


def test_a_history_is_drawn_point_by_point() -> None:
    commits = [f"commit{i}" for i in range(20)]
    value = Measured(2.0, 1.5, 2.5)
    drawn = figures.history(
        "a", "t", commits, {"jax": [None, value, value, *[None] * 17], "new": [None] * 20}
    )
    assert drawn
    [line] = re.findall(r'<g id="a-mark-\d">(.*?)</g>\s*</g>', drawn, flags=re.DOTALL)
    assert line.count("<use") == 2
    assert "commit19" in drawn
    assert len(re.findall(r">commit\d+<", drawn)) == 5
    assert figures.history("a", "t", commits, {"jax": [None] * 20}) is None


# ------------------------------------------------------------------------------------ hostile names

HOSTILE = '"><img src=x onerror=alert(1)>'
Change = Callable[[dict[str, Any], dict[str, str]], None]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda benchmark, _: benchmark.update(pretty_name=HOSTILE), "benchmarks.json"),
        (lambda benchmark, _: benchmark.update(unit=HOSTILE), "benchmarks.json"),
        (lambda benchmark, _: benchmark["param_names"].append(HOSTILE), "benchmarks.json"),
        (lambda _, packages: packages.update(jax=HOSTILE), "the records of"),
        (lambda _, packages: packages.update({HOSTILE: "1"}), "the records of"),
    ],
)
def test_a_name_that_is_html_is_not_published(
    scratch: Scratch, suite: dict[str, Any], change: Change, where: str
) -> None:
    benchmark = {**suite[GROWTH], "param_names": [*suite[GROWTH]["param_names"]]}
    packages = dict(PACKAGES)
    scratch.commit("begin")
    scratch.record([benchmark], 0, packages=packages)
    change(benchmark, packages)
    if len(benchmark["param_names"]) > 1:
        benchmark["params"] = [*benchmark["params"], ["1"]]
    scratch.list_benchmarks([benchmark])
    scratch.record([suite[GROWTH]], 0, packages=packages)
    done = scratch.publish()
    assert done.returncode == 1
    assert where in done.stdout + done.stderr
    assert "which asv's pages would take for HTML" in done.stdout + done.stderr


def test_a_machine_whose_description_is_html_is_not_published(
    scratch: Scratch, suite: dict[str, Any]
) -> None:
    scratch.commit("begin")
    scratch.list_benchmarks([suite[GROWTH]])
    scratch.record([suite[GROWTH]], 0)
    machine = scratch.root / "results" / "here" / "machine.json"
    machine.write_text(machine.read_text().replace("A CPU", "A <b>CPU</b>"))
    done = scratch.publish()
    assert done.returncode == 1
    assert "machine.json" in done.stdout + done.stderr


def test_the_code_of_a_benchmark_is_escaped(published: Scratch, suite: dict[str, Any]) -> None:
    index = (published.root / "html" / "index.json").read_text()
    assert any(
        "<" in suite[name]["code"] or "&" in suite[name]["code"] or '"' in suite[name]["code"]
        for name in LISTED
    )
    assert not set("<>") & set(index)


@pytest.mark.parametrize(
    "text", [HOSTILE, "a&b", "`", "a\nb", "\x00", "\u202egnp", "\ud800", 201 * "x", "é" * 101]
)
def test_unclean_texts_are_found_wherever_they_stand(text: str) -> None:
    for content in (text, [text], {text: 1}, {"a": [{"b": text}]}):
        assert names.unclean(content)
    deep: Any = text
    for _ in range(100_000):
        deep = [deep]
    assert names.unclean(deep)


@pytest.mark.parametrize(
    "text", ["trg(16, 20)", "eager / traced", "'χ = 16'", "AMD EPYC (R) @ 2.5 GHz", "", 200 * "x"]
)
def test_clean_texts_pass(text: str) -> None:
    assert names.unclean({text: [text, None, 1.5, True]}) is None
