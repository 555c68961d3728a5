# Two commands on a fresh machine (Python 3.11+, make, a C++ compiler):
#   make demo    the main job, on generated data
#   make test    every test, C++ and Python
#   make quick   linters, types and the unit tests that need no framework
# Each sets up what it needs in .venv and says what it does.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP_IN := bin/python -m pip --disable-pip-version-check -q
PIP    := $(VENV)/$(PIP_IN)
CPP    := build/cpp
FUZZ   := build/fuzz

CPP_FILES := $(wildcard core/*.h core/*.cc core/*/*.h core/*/*.cc)
NATIVE := CMakeLists.txt pyproject.toml $(wildcard core/*.h core/*.cc core/bind/*.h core/bind/*.cc docs/errors/*.md)

.PHONY: help demo quick test test-cpp test-python test-minimum test-peers stress lint types format docs bench fuzz soak clean

help:
	@sed -n 's/^#   //p' Makefile
	@echo "also: test-minimum, test-peers, stress, lint, format, docs, bench, soak (tens of GB), fuzz (clang, long), clean"

# pip before 25.1 does not know dependency groups, and resolves the test set for minutes.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=25.1"

$(VENV)/.build: $(BIN)/python
	$(PIP) install "scikit-build-core>=0.11" "nanobind>=2.4" "cmake>=3.18" ninja
	@touch $@

$(VENV)/.package: $(VENV)/.build $(NATIVE)
	$(PIP) install --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.build pyproject.toml
	$(PIP) install --group dev
	@touch $@

# Torch alone and first: resolved together with the rest, pip may choose another build of it.
$(VENV)/.test: $(VENV)/.build pyproject.toml
	$(PIP) install "torch==2.13.0"
	$(PIP) install --group test
	@touch $@

demo: $(VENV)/.package
	$(BIN)/rekord demo

# For the minutes between edits: no framework is installed, and what needs one is not collected.
quick: lint $(VENV)/.dev $(VENV)/.package
	$(BIN)/python -m pytest -n 2 -m "not long and not slow and not concurrency" --frameworks=none tests/unit tests/arch

test: lint test-cpp test-python test-minimum

lint: $(VENV)/.dev $(VENV)/.package
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	$(BIN)/codespell
	cp $$($(BIN)/python -c "import rekord._core as core; print(core.__file__.split('_core')[0] + '_core.pyi')") src/rekord/
	$(BIN)/mypy

test-cpp: $(VENV)/.build
	$(BIN)/cmake -S . -B $(CPP) -G Ninja -DREKORD_TESTS=ON -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) > /dev/null
	$(BIN)/cmake --build $(CPP)
	$(CPP)/core_tests
	$(BIN)/ctest --test-dir $(CPP) --output-on-failure --no-tests=error

# The tests start hundreds of processes: each would compile the package again where bytecode may not be kept.
test-python: export PYTHONDONTWRITEBYTECODE :=
test-python: $(VENV)/.test $(VENV)/.package
	$(BIN)/python -m pytest -n 2 -m "not long"

# The package as users install it, for environments of their own.
WHEEL := build/wheel/.ready
$(WHEEL): $(VENV)/.build $(NATIVE) $(shell find src -name '*.py')
	rm -rf build/wheel
	$(PIP) wheel --no-deps --no-build-isolation -w build/wheel .
	@touch $@

# The oldest versions that pyproject.toml allows.
.venv-minimum/.ready: $(VENV)/.build pyproject.toml tests/support/minimum_versions.py
	$(PYTHON) -m venv --clear .venv-minimum
	.venv-minimum/$(PIP_IN) install --upgrade "pip>=25.1"
	$(BIN)/python tests/support/minimum_versions.py > .venv-minimum/pins.txt
	.venv-minimum/$(PIP_IN) install -r .venv-minimum/pins.txt
	@touch $@

test-minimum: .venv-minimum/.ready $(WHEEL)
	.venv-minimum/$(PIP_IN) install --no-deps --force-reinstall build/wheel/*.whl
	.venv-minimum/bin/python -m pytest tests/minimum

# Real loaders and heavy or conflicting packages: tests/peers/GROUP, in an environment with the dependency group
# peers-GROUP. Groups that need torch get it first and alone, as above.
PEERS := annotations browser dali loops objects
TORCH_PEERS := loops
.PRECIOUS: .venv-peers-%/.ready
.venv-peers-%/.ready: pyproject.toml
	$(PYTHON) -m venv --clear .venv-peers-$*
	.venv-peers-$*/$(PIP_IN) install --upgrade "pip>=25.1"
	$(if $(filter $*,$(TORCH_PEERS)),.venv-peers-$*/$(PIP_IN) install "torch==2.13.0")
	.venv-peers-$*/$(PIP_IN) install --group dev --group peers-$*
	@touch $@

test-peers: $(PEERS:%=test-peers-%)

test-peers-browser: .venv-peers-browser/.chromium
.venv-peers-browser/.chromium: .venv-peers-browser/.ready
	$(PYTHON) tests/support/browser.py
	@touch $@

# Azurite, the emulator of Azure storage, runs in the machine's Node.
test-peers-objects: .venv-peers-objects/.azurite
.venv-peers-objects/.azurite: .venv-peers-objects/.ready
	npm install --silent --no-audit --no-fund --prefix .venv-peers-objects azurite@3
	@touch $@

test-peers-%: .venv-peers-%/.ready $(WHEEL)
	.venv-peers-$*/$(PIP_IN) install build/wheel/*.whl
	.venv-peers-$*/$(PIP_IN) install --no-deps --force-reinstall build/wheel/*.whl
	.venv-peers-$*/bin/python -m pytest -n 2 tests/peers/$*

# The tests that concern threads, signals, processes and garbage, many times, with every core kept busy.
STRESS ?= 50
stress: $(VENV)/.test $(VENV)/.package
	$(BIN)/python tests/support/under_load.py $(BIN)/python -m pytest -n 2 -m "concurrency and not long" \
	  --count $(STRESS) --repeat-scope session $(shell grep -rl --include='test_*.py' mark.concurrency tests | grep -v peers)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/clang-format -i $(CPP_FILES)

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(PIP) install --group docs
	@touch $@

# The site, in build/site. A broken link, a wrong anchor or an unknown name is an error.
docs: $(VENV)/.docs
	$(BIN)/zensical build --strict --clean

# All groups, or GROUPS="decode feed_numpy"; then RESULTS.md and the chart from all stored results.
bench: $(VENV)/.test $(VENV)/.package
	$(BIN)/python benchmarks/run.py $(if $(GROUPS),--only $(GROUPS))

# Coverage-guided, needs clang with libFuzzer; FUZZ_SECONDS for each target.
FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.build
	$(BIN)/cmake -S . -B $(FUZZ) -G Ninja -DREKORD_TESTS=ON -DREKORD_LIBFUZZER=ON \
	  -DCMAKE_CXX_COMPILER=$${CXX:-clang++} -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) > /dev/null
	$(BIN)/cmake --build $(FUZZ)
	for target in crc frame wire decode plan image; do \
	  mkdir -p $(FUZZ)/found/$$target && \
	  $(FUZZ)/$${target}_fuzz -max_total_time=$(FUZZ_SECONDS) -timeout=5 -rss_limit_mb=512 \
	    $(FUZZ)/found/$$target core/fuzz/corpus/$$target || exit 1; \
	done

# Tens of GB through the converter; looks at the free disk first.
soak: $(VENV)/.test $(VENV)/.package
	$(BIN)/python -m pytest -m long tests/soak

clean:
	rm -rf build dist
