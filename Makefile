PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: crawl test lint clean

crawl: $(STAMP)  ## crawl the embedded demo web, about a minute
	rm -rf example_project/crawls/demo
	cd example_project && ../$(BIN)/scrapy crawl broad

test: $(STAMP)  ## lint, type-check and run all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) example_project/crawls

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $$(command -v $(PYTHON) || command -v python3) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@
