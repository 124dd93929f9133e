"""A sweep's rows, and the files they are in: CSV and Parquet, replaced as a whole: always readable."""

from __future__ import annotations

import csv
import importlib.util
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trgbench.console import replacing
from trgbench.errors import InputError, check_choice


class Row(NamedTuple):
    """A point (β, χ) and what came out; the fields are the columns. `None` stands for what is not known.

    Attributes:
        lnz: lnZ/N; `u` is −d(lnZ/N)/dβ and `specific_heat` β² d²(lnZ/N)/dβ², all per site.
        lnz_error: the value less Onsager's; so are the other two.
        min_cut_gap: as of `trgbench trg`: below 1e-12 a cut parts a tie, and u is a matter of rounding.
        seconds: what the point took its worker, without preparing.
        order: 2 if the specific heat was computed, else 1.
        error: why the point failed, or `None`.
    """

    beta: float
    chi: int
    lnz: float | None
    u: float | None
    specific_heat: float | None
    lnz_exact: float | None
    u_exact: float | None
    specific_heat_exact: float | None
    lnz_error: float | None
    u_error: float | None
    specific_heat_error: float | None
    min_cut_gap: float | None
    seconds: float | None
    worker: str | None
    error: str | None
    steps: int
    backend: str
    mode: str
    svd: str
    order: int
    versions: str


INTEGERS = ("chi", "steps", "order")
TEXTS = ("worker", "error", "backend", "mode", "svd", "versions")
BLOCK = 10_000  # rows held in memory at a time


def kind_of(path: Path) -> str:
    """Return `csv` or `parquet`, by the path's ending, if this process can write it.

    Raises:
        InputError: if it is another, or the library for Parquet is missing.
    """
    kind = check_choice("format of the output file", path.suffix.lower().removeprefix("."), FORMATS)
    if kind == "parquet":
        need("pyarrow", "writing Parquet", "write .csv, or install it with: pip install 'trgbench[cluster]'")
    return kind


def need(package: str, what: str, remedy: str) -> None:
    """Return if `package` is installed; raise `InputError` otherwise."""
    if importlib.util.find_spec(package) is None:
        raise InputError(f"{what} needs the package {package}, which is not installed; {remedy}")


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace the file by these rows."""
    with replacing(path) as temporary:
        FORMATS[kind_of(path)][0](temporary, rows)


def read(path: Path) -> Iterator[Row]:
    """Yield the rows of a file that `write` wrote.

    Raises:
        InputError: if it is no such file.
    """
    try:
        yield from FORMATS[kind_of(path)][1](path)
    except (TypeError, ValueError, KeyError, csv.Error) as error:  # pyarrow's errors are ValueErrors
        raise InputError(f"{path} was not written by a sweep ({error}); give another --out") from error


def blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows in lists of at most `BLOCK`."""
    remaining = iter(rows)
    while block := list(itertools.islice(remaining, BLOCK)):
        yield block


def _write_csv(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows(rows)  # a float as its shortest repr, which reads back as the same float


def _read_csv(path: Path) -> Iterator[Row]:
    def value(name: str, text: str) -> Any:
        if text == "":
            return None
        return text if name in TEXTS else int(text) if name in INTEGERS else float(text)

    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        if tuple(reader.fieldnames or ()) != Row._fields:
            raise ValueError("it has other columns")
        for record in reader:
            yield Row(**{name: value(name, text) for name, text in record.items()})


def _write_parquet(path: Path, rows: Iterable[Row]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    def kind(name: str) -> Any:
        return pa.string() if name in TEXTS else pa.int64() if name in INTEGERS else pa.float64()

    schema = pa.schema([(name, kind(name)) for name in Row._fields])
    with parquet.ParquetWriter(path, schema) as writer:
        for block in blocks(rows):
            columns = zip(*block, strict=True)
            arrays = [pa.array(column, kind(name)) for name, column in zip(Row._fields, columns, strict=True)]
            writer.write_table(pa.table(arrays, schema=schema))


def _read_parquet(path: Path) -> Iterator[Row]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for block in file.iter_batches(BLOCK):
            yield from (Row(**record) for record in block.to_pylist())


FORMATS = {"csv": (_write_csv, _read_csv), "parquet": (_write_parquet, _read_parquet)}
