# Everything from a fresh clone: `make test`, `make bench`. Say `make help` for the rest.

PYTHON ?= python3.11
HTML ?= html
# For make bench, bench-full, bench-study and history: another commit (or several, or a range), the name of
# this machine, or FRESH=1 to measure again what there are records of. N for make history. WAIT for these and
# publish: how many seconds to wait for another writer.
COMMIT ?= HEAD
N ?= 5
MACHINE ?=
FRESH ?=
WAIT ?=

.DEFAULT_GOAL := help
.PHONY: help test test-slow lint bench bench-full bench-study history publish smoke preview clean

# asv looks for python3.11 on the path to make its own environment with.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

suite = .venv/bin/python -m trgbench.suite $(if $(WAIT),--wait $(WAIT))
options = $(if $(MACHINE),--machine $(MACHINE)) $(if $(FRESH),--fresh)
last = $(if $(filter HEAD,$(COMMIT)),--last $(N),$(COMMIT))

help:  ## list what make can do
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

test: .venv/installed  ## install into .venv if need be, and run all tests
	.venv/bin/python -m pytest -n 2 --dist worksteal --durations=10

test-slow: .venv/installed  ## run the tests that take minutes: torch.compile on twenty steps as one graph
	.venv/bin/python -m pytest -m slow tests

lint: .venv/installed  ## style, format and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

bench: .venv/installed  ## measure this commit (quick profile), publish to html/, print the headline figures
	$(suite) quick $(COMMIT) $(options)

bench-full: .venv/installed  ## measure everything, into results/
	$(suite) full $(COMMIT) $(options)

bench-study: .venv/installed  ## measure with the study's JAX and PyTorch, into results/ (Python 3.12, 5 GB of wheels)
	$(suite) quick $(COMMIT) --history --environment study $(options)

history: .venv/installed  ## measure the last N=5 commits of main (or COMMIT="A B C..D"), into results/
	$(suite) history $(last) $(options)

publish: .venv/installed  ## make html/ of what is in results/, measuring nothing
	$(suite) publish

smoke: .venv/installed  ## measure a handful of benchmarks and publish them aside, as a test of the suite
	$(suite) smoke --fresh

preview: .venv/installed  ## serve the dashboard on this machine
	.venv/bin/asv preview --html-dir $(HTML)

clean:  ## remove everything that was made, but not the records in results/
	rm -rf .venv .asv html .html.new build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

.venv/installed: pyproject.toml pins.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 is wanted, and '$(PYTHON)' is not it (or is missing):" \
	       "install it, or say where it is: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -c pins.txt -e '.[jax,torch,fast,bench,test,lint,report,browser,cluster]'
	@touch $@
