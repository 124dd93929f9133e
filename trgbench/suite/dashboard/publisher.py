"""The plugin: what `asv publish` does besides, last of all."""

from __future__ import annotations

import html
import itertools
import os
from pathlib import Path
from typing import Any

from asv.graph import Graph
from asv.machine import iter_machine_files
from asv.publishing import OutputPublisher
from asv.util import UserError, load_json, write_json

from trgbench.errors import Unavailable
from trgbench.suite.dashboard import assets, offline
from trgbench.suite.names import unclean, unclean_benchmarks


class Dashboard(OutputPublisher):  # type: ignore[misc]  # asv has no types
    """Makes asv's page independent of the network, and adds the front page."""

    name = "dashboard"
    button_label = "Overview"
    description = "The newest figures, the ratios and their history, and the regressions"
    order = 9  # after asv's own, whose regressions it shows

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: dict[str, int]) -> None:
        from trgbench.study import report

        try:
            report.check_available()
        except Unavailable as reason:
            raise UserError(str(reason)) from reason
        from trgbench.suite.dashboard import front

        refuse_unclean(conf.results_dir, benchmarks, graphs)
        prepare(conf.html_dir, benchmarks, graphs, max(revisions.values(), default=0))
        site = Path(conf.html_dir)
        offline.mend(site, assets.ready())
        front.write(site, conf, benchmarks, revisions)


def prepare(site: str, benchmarks: Any, graphs: Any, newest: int) -> None:
    """Spare asv's page what it does not expect, before asv writes the list of benchmarks for it.

    It shows the code of a benchmark as HTML. It loads a graph of everything that is listed, in every
    environment there is; so what has no record is not listed, and what has none in one environment gets a
    graph there, without a value.
    """
    measured = {graph.benchmark_name for _, graph in graphs}
    for name in set(benchmarks) - measured:
        del benchmarks[name]
    for known in benchmarks.values():
        known["code"] = html.escape(known.get("code", ""))
    folders = {os.path.dirname(path): graph.params for path, graph in graphs}
    for parameters, name in itertools.product(folders.values(), measured):
        path = os.path.join(site, Graph.get_file_path(parameters, name) + ".json")
        if not os.path.exists(path):
            write_json(path, [[newest, None]])


def refuse_unclean(results: str, benchmarks: Any, graphs: Any) -> None:
    """Return if no name that the pages show holds markup.

    Raises:
        UserError: saying which file to look at. `trgbench.suite` sets such files aside before it publishes.
    """
    machines = [(path, load_json(path)) for path in iter_machine_files(results)]
    shown = [*((path, unclean(content)) for path, content in machines)]
    shown.append((os.path.join(results, "benchmarks.json"), unclean_benchmarks(dict(benchmarks))))
    shown += [(f"the records of {path}", unclean(graph.params)) for path, graph in graphs]
    for where, what in shown:
        if what:
            raise UserError(
                f"{where}: {what}, which asv's pages would take for HTML; remove or mend that file"
            )
