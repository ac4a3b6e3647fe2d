# Each command sets up what it needs: start with `make crawl` or `make check`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MIN := .venv-min
TOOLS := .venv-tools
LOWEST := scrapy==2.16.0 ada-url==1.26.0 idna==3.7 msgspec==0.19.0 publicsuffixlist==1.0.2.20260723 \
  rocksdict==0.3.28 snowballstemmer==2.2.0 tldextract==5.1.0 tqdm==4.66.1 typing-extensions==4.13.2 pybloom-live==4.0.0 fsspec==2024.2.0 \
  stopwordsiso==0.6.1 \
  pyarrow==16.0.0 hiredis==3.2.0 redis==5.1.0 numpy==1.26.0 matplotlib==3.8.0 \
  lxml-html-clean==0.4.0 trafilatura==2.0.0 uvloop==0.21.0 warcio==1.7.4 \
  http-message-signatures==3.0.0 hypothesis==6.151.0 prometheus-client==0.20.0 pytest==8.2.0 pytest-timeout==2.3.1 pytest-xdist==3.6.1
# More processes than cores: many tests wait. One that has no tests left takes some of another's.
PROCESSES := 6
SIDE_BY_SIDE = -q --numprocesses=$(PROCESSES) --dist=worksteal --durations=20
# Tests start Python some hundred times, and it need not compile the package each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: crawl cluster focus check lint tests slow test test-long test-min test-web browser plugins cost bench docs dist workflows clean

crawl: $(STAMP)  ## crawl the embedded demo web, about a minute
	rm -rf example_project/crawls/demo
	cd example_project && ../$(BIN)/scrapy crawl broad
	@echo "Run these commands in example_project, with ../$(BIN)/scrapy in place of scrapy."

cluster: $(STAMP)  ## three workers share a crawl of the demo web, and one is killed
	$(BIN)/python example_project/cluster.py

focus: $(STAMP)  ## crawls for a topic beside a breadth-first crawl, about a minute
	$(BIN)/python example_project/focus.py

lint: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The fast tests do not wait, and each process collects all tests, which takes as long as a third of the fast ones.
check: $(STAMP)  ## style, types and the fast tests, side by side: less than a minute on two cores
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint tests WHICH="not slow" PROCESSES=2

test: $(STAMP) browser plugins  ## style, types and the tests, those in a headless Chromium included if there is one: ten minutes on two cores
	$(MAKE) --no-print-directory --jobs=2 lint tests WHICH="not long"

test-long: $(STAMP) browser plugins  ## the same with the long forms of crash tests and random walks
	$(MAKE) --no-print-directory --jobs=2 lint tests WHICH=

tests: $(STAMP) $(VENV)/.compiled  ## the tests with the markers of WHICH="slow and not long", for example
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "$(WHICH)"

slow: $(STAMP)  ## measure all tests but the long ones, and list those that take too much CPU for `make check`
	$(BIN)/python -m pytest -q --numprocesses=2 --dist=worksteal -m "not long" --write-slow

# Without this, each process of the first run compiles all tests. If they cannot be collected, the run says why.
$(VENV)/.compiled: $(STAMP)
	$(BIN)/python -m pytest -q --collect-only > /dev/null 2>&1 || true
	touch $@

# Benchmarks are left out: they compare with what the newest Scrapy has.
test-min: $(MIN)/.installed  ## run the tests with the lowest versions that pyproject.toml allows
	$(MIN)/bin/python -m pytest $(SIDE_BY_SIDE) --ignore=tests/benchmarks

test-web: browser  ## drive the dashboard of a live crawl, and the explainer, with a headless Chromium, if there is one
	$(BIN)/python -m pytest -q tests/web

browser: $(STAMP)  ## what tests need beside Debian's chromium and chromium-driver, if these are there
	! command -v chromedriver > /dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group browser
	! command -v chromedriver > /dev/null || ! command -v npm > /dev/null || test -d $(VENV)/web/node_modules/axe-core || \
	  npm install --silent --no-save --prefix $(VENV)/web axe-core@4 || echo "axe-core cannot be installed: its tests are skipped."

plugins: $(STAMP)  ## plug-ins of others that the tests run with, if they can be installed; else these tests are skipped
	test -e $(VENV)/.plugins -a ! pyproject.toml -nt $(VENV)/.plugins || \
	  { $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group plugins && \
	    touch $(VENV)/.plugins; } || echo "The plug-ins cannot be installed: their tests are skipped."

cost: $(STAMP)  ## instructions of a page, beside the last commit of benchmarks/costs.csv: some minutes, and it needs valgrind
	$(BIN)/python benchmarks since --check

bench: $(STAMP)  ## what the benchmarks need, and the short forms of all: ten minutes on two cores
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group bench
	$(BIN)/python benchmarks short

docs: $(STAMP)  ## build the documentation as a site, docs/_build/html/index.html; a warning is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html

dist: $(TOOLS)/.installed  ## build what is released, and check it as a package index does
	rm -rf dist
	$(TOOLS)/bin/python -m build
	$(TOOLS)/bin/twine check --strict dist/*
	$(TOOLS)/bin/check-wheel-contents dist
	$(TOOLS)/bin/validate-pyproject pyproject.toml

workflows: $(TOOLS)/.installed  ## check the files that only a host of repositories reads
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(TOOLS)/bin/check-jsonschema --builtin-schema vendor.compose-spec example_project/deploy/compose.yaml
	$(TOOLS)/bin/zizmor --offline --no-progress .github

clean:
	rm -rf dist docs/_build $(VENV) $(MIN) $(TOOLS) example_project/crawls

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $$(command -v $(PYTHON) || command -v python3) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'  # older ones know no groups
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	touch $@

# The lowest release of each dependency; a wheel must exist for the Python that runs it.
$(MIN)/.installed: pyproject.toml Makefile
	test -x $(MIN)/bin/python || $$(command -v $(PYTHON) || command -v python3) -m venv $(MIN)
	$(MIN)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(MIN)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev $(LOWEST)
	touch $@

$(TOOLS)/.installed: pyproject.toml
	test -x $(TOOLS)/bin/python || $$(command -v $(PYTHON) || command -v python3) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --group release
	touch $@
