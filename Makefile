# doi-proxy needs python3 (3.11 or later), pip, make and git. Everything else is installed in .tools/ and .venv/.
#
#   make run     set up, then serve on http://127.0.0.1:8000
#   make demo    set up, then play an outage of doi.org in this terminal
#   make test    set up, then run the tests of the program
#   make quick   set up, then run those of them that start no process: no servers, no browsers
#   make near    set up, then run those of them that enter what changed since the last commit (SINCE=main)
#   make nightly set up, then run what is too dear for every change; the record is build/nightly/COMMIT.json
#   make check   set up, then lint, type check, import rule, dead code, dependencies, tests of the repository
#   make lint    set up, then lint and check the format: the fast part of make check
#   make bench   set up, then run the benchmarks
#   make attacks set up, then attack a proxy of this checkout on this machine (ARGS="--front nginx silent")
#   make fuzz    set up, then search for failures at random: inputs of parsers, requests, examples (FUZZ_SECONDS=60)
#   make audit   install its tools, then compare the locked versions with advisories, and list the licences of all packages
#   make removable  remove each feature from a copy, with those that need it, and see the rest start, answer and pass
#   make simulate  set up, then play histories of seeds in virtual time (SEED=1 SEEDS=20 STEPS=200, or new ones for MINUTES=10)
#   make mutants set up, then change one operator, constant or branch at a time and run the tests that enter it (MUTANTS=60 SEED=1)
#   make clients install the clients and generators that tests/clients and tests/features/openapi/clients drive (make test does it too)
#   make pythons set up, then run the tests of the program with every Python from 3.11 to 3.13 that is installed
#   make cov     set up, then run all tests and report the lines that no test runs
#   make docs    set up, then write the generated pages and build docs/ as a site in build/docs
#   make dist    set up, then build the wheel and the source archive in dist/
#   make deb     set up, then build the Debian package in dist/ (DEB_PYTHON=/usr/bin/python3 will run it)
#   make release VERSION=1.0.0  build all artefacts twice in dist/, compare, sum and sign them (docs/releases.md)
#   make lock    rebuild requirements/*.lock (LOCK_FLAGS=--upgrade takes newer versions)
#   make setup   set up only
#   make clean   remove the files that set-up and checks created (not var/)

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
# Many tests wait for a process.
TEST_FLAGS ?= --forks 4 -rs
# With ARGS, the tests that it selects. Otherwise those of the program, without those of the repository and of the night.
SELECTED = $(if $(ARGS),$(ARGS),-m 'not repository and not kit and not nightly')
LOCK_FLAGS ?=
DEB_PYTHON ?= /usr/bin/python3
DEB_FOLDER ?= dist
FUZZ_SECONDS ?= 60
MUTANTS ?= 60
SEED ?= 1
SEEDS ?= 20
STEPS ?= 200
MINUTES ?= 0

# uv trusts the system's certificates and uses the installed Python. It never downloads one.
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never

# Tests start many processes. Without bytecode files, each would compile all that it imports: 1 s for a proxy.
unexport PYTHONDONTWRITEBYTECODE

UV := .tools/bin/uv
BIN := .venv/bin

# uv does not read pip's configuration, so pass on the index that is set there.
PIP_INDEX = $(PYTHON) -m pip config get global.index-url 2>/dev/null
USE_PIP_INDEX = index="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(PIP_INDEX))}}"; \
	if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$$index"; fi

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command 'make lock' $(LOCK_FLAGS)

# A check that passes prints one line with its seconds. One that fails prints its output, and make stops.
define step
@printf '%-14s' '$(1)'; began=$$(date +%s%N); status=0; output=$$($(2) 2>&1) || status=$$?; \
	printf '%-6s' "$$([ $$status -eq 0 ] && echo ok || echo FAILED)"; \
	awk "BEGIN { printf \"%5.1f s\\n\", ($$(date +%s%N) - $$began) / 1e9 }"; \
	[ $$status -eq 0 ] || { printf '%s\n' "$$output"; exit 1; }
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run demo test quick near nightly clients pythons check lint bench attacks fuzz audit removable simulate mutants cov docs dist deb release lock clean

help:
	@sed -n 's/^#   //p' Makefile

setup: .venv/.locked
	@:

.tools/.locked: requirements/uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "doi-proxy needs Python 3.11 or later; set PYTHON=")'
	@rm -rf .tools
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes --target .tools -r requirements/uv.lock
	@touch $@

.venv/.locked: requirements/dev.lock pyproject.toml .tools/.locked
	$(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" .venv
	@$(USE_PIP_INDEX); set -x; $(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# Ctrl-C also reaches the program, which then exits with status 130. make must not report that as an error.
run: setup
	@trap : INT; $(BIN)/doi-proxy serve --host $(HOST) --port $(PORT) --seed config/seed.ndjson || [ $$? -eq 130 ]

demo: setup
	@$(BIN)/doi-proxy demo

# The clients of doi.org that tests/clients drives, in an environment of their own.
build/clients/.locked: requirements/clients.lock .tools/.locked
	@$(UV) venv --quiet --clear --python "$$(command -v $(PYTHON))" build/clients
	@$(USE_PIP_INDEX); $(UV) pip sync --quiet --python build/clients/bin/python --require-hashes requirements/clients.lock
	@touch $@

# The generator of the Python client that tests/features/openapi/clients drives.
build/openapi/.locked: requirements/openapi.lock .tools/.locked
	@$(UV) venv --quiet --clear --python "$$(command -v $(PYTHON))" build/openapi
	@$(USE_PIP_INDEX); $(UV) pip sync --quiet --python build/openapi/bin/python --require-hashes requirements/openapi.lock
	@touch $@

# Helm's engine, for the test of the chart: 250 MB.
build/helm/.locked: requirements/helm.lock .tools/.locked
	@$(UV) venv --quiet --clear --python "$$(command -v $(PYTHON))" build/helm
	@$(USE_PIP_INDEX); $(UV) pip sync --quiet --python build/helm/bin/python --require-hashes requirements/helm.lock
	@touch $@

# What `make audit` runs.
build/audit/.locked: requirements/audit.lock .tools/.locked
	@$(UV) venv --quiet --clear --python "$$(command -v $(PYTHON))" build/audit
	@$(USE_PIP_INDEX); $(UV) pip sync --quiet --python build/audit/bin/python --require-hashes requirements/audit.lock
	@touch $@

# npm writes the stamp at the end of an installation, with the time of that end.
NPM_INSTALL = npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --prefix

tests/%/node_modules/.package-lock.json: tests/%/package-lock.json
	@$(NPM_INSTALL) tests/$* && touch $@

clients: build/clients/.locked build/openapi/.locked
clients: tests/clients/node_modules/.package-lock.json tests/features/openapi/clients/node_modules/.package-lock.json

test: setup
	@$(BIN)/python -m pytest $(TEST_FLAGS) $(SELECTED)

quick: setup
	@$(BIN)/python -m tools.near --then-others $(ARGS)

near: setup
	@$(BIN)/python -m tools.near $(if $(SINCE),--since $(SINCE)) $(ARGS)

nightly: setup
	@$(BIN)/python -m tools.nightly $(ARGS)

# The other installed versions of Python. Each gets its own environment.
pythons: setup
	@for version in 3.11 3.12 3.13; do \
		python=$$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python /usr/local/bin/python$$version /usr/bin/python$$version 2>/dev/null | head -n 1); \
		[ -n "$$python" ] || { echo "Python $$version is not installed: skipped"; continue; }; \
		environment=".venv-$$version"; \
		$(UV) venv --quiet --clear --python "$$python" "$$environment" && \
		{ $(USE_PIP_INDEX); $(UV) pip sync --quiet --python "$$environment/bin/python" --require-hashes requirements/dev.lock; } && \
		$(UV) pip install --quiet --python "$$environment/bin/python" --no-deps --no-build-isolation --editable . && \
		"$$environment/bin/python" --version && "$$environment/bin/python" -m pytest -q $(TEST_FLAGS) $(SELECTED) || exit 1; \
	done

cov: setup
	@$(BIN)/coverage erase; status=0; $(BIN)/coverage run -m pytest -q $(TEST_FLAGS) $(ARGS) || status=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report && $(BIN)/coverage html --quiet && exit $$status

docs: setup
	@$(BIN)/python docs/generate.py
	@rm -rf build/docs
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs -b dirhtml . build/docs
	@echo '<!doctype html><meta http-equiv="refresh" content="0; url=docs/"><a href="docs/">doi-proxy</a>' > build/docs/index.html
	@echo 'The site is in build/docs; to view it: $(PYTHON) -m http.server --directory build/docs --bind 127.0.0.1'

dist: setup
	@rm -rf dist
	@$(UV) build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	@ls dist

deb: setup
	@$(USE_PIP_INDEX); packaging/debian/build.sh $(UV) $(DEB_PYTHON) $(BIN)/python $(DEB_FOLDER)

release: setup
	@[ -n '$(VERSION)' ] || { echo 'make release VERSION=1.0.0: which version?' >&2; exit 2; }
	@$(USE_PIP_INDEX); $(BIN)/python -m tools.release '$(VERSION)' --nightly '$(NIGHTLY)' --maintainer '$(MAINTAINER)' \
		--homepage '$(HOMEPAGE)' --minisign-key '$(MINISIGN_KEY)' --deb-python '$(DEB_PYTHON)' \
		--image-base '$(IMAGE_BASE)'

lint: setup
	$(call step,lint,$(BIN)/ruff check --quiet --output-format concise .)
	$(call step,format,$(BIN)/ruff format --check --quiet .)

check: lint
	$(call step,types,$(BIN)/mypy)
	$(call step,import rule,$(BIN)/python -m pytest -q tests/test_architecture.py)
	@$(BIN)/python -m tools.sizes
	$(call step,dead code,$(BIN)/vulture)
	$(call step,dependencies,$(BIN)/deptry app)
	$(call step,repository,$(BIN)/python -m pytest -q --forks 2 -rs -m 'repository and not nightly' --ignore=tests/test_architecture.py)
	@echo 'All checks passed.'

bench: setup
	@$(BIN)/python -m bench $(ARGS)

attacks: setup
	@$(BIN)/python -m bench.attacks $(ARGS)

fuzz: setup
	@$(BIN)/python -m tools.fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

audit: setup build/audit/.locked
	@$(BIN)/python -m tools.audit

removable: setup
	@$(BIN)/python -m tools.removable $(ARGS)

simulate: setup
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation --seed $(SEED) --seeds $(SEEDS) --steps $(STEPS) --minutes $(MINUTES)

mutants: setup
	@$(BIN)/python -m tools.mutation --mutants $(MUTANTS) --seed $(SEED) $(ARGS)

lock: .tools/.locked
	@$(USE_PIP_INDEX); set -e; \
	echo 'uv>=0.13' | $(COMPILE) --output-file requirements/uv.lock -; \
	$(COMPILE) --all-extras --output-file requirements/runtime.lock pyproject.toml; \
	$(COMPILE) --group pyproject.toml:build --output-file requirements/build.lock; \
	$(COMPILE) --overrides tests/clients/overrides.txt --output-file requirements/clients.lock \
		tests/clients/requirements.in; \
	$(COMPILE) --output-file requirements/openapi.lock tests/features/openapi/clients/requirements.in; \
	$(COMPILE) --output-file requirements/helm.lock tests/helm/requirements.in; \
	$(COMPILE) --output-file requirements/audit.lock tools/audit/requirements.in; \
	$(COMPILE) --group dev --all-extras --constraints requirements/runtime.lock --constraints requirements/build.lock --output-file requirements/dev.lock pyproject.toml

clean:
	rm -rf .venv .venv-3.* .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
