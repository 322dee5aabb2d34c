# make quickstart | install | test | test-all | fuzz | test-baseline | lint | docs | bench | bench-accuracy | sanitize | clean      PYTHON=python3.12 chooses the interpreter
#
# Needs Python >= 3.10 with its headers (Debian: python3-dev) and a C++ compiler; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BUILD_REQUIREMENTS := cmake nanobind nanobind-backend ninja scikit-build-core
KERNEL_SOURCES := CMakeLists.txt $(wildcard csrc/*)

export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: quickstart install test test-all fuzz test-baseline lint docs bench bench-accuracy sanitize clean

quickstart: install
	bash examples/quickstart.sh

install: $(VENV)/.installed

# A process a core, but no more than memory is sure to hold. A file stays in one process, where its fixtures are.
# xdist waits for ever for the process that it starts in place of one that died, so it starts none.
PYTEST := -m pytest -n auto --maxprocesses 4 --dist loadfile --max-worker-restart 0

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python $(PYTEST) -m "not slow"

# The long matrices that `make test` leaves out: instruction sets, kernels of devices, real graphs;
# and the documentation, whose tutorials run.
test-all: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python $(PYTEST) -m slow
	$(MAKE) docs

# Damaged files of every kind, odd bytes on the wire, drawn command lines and graphs: FUZZ_S seconds
# for each test, from another seed each time. A failure names its seed, which DISTGNN_FUZZ_SEED=N tries again.
FUZZ_S ?= 600
fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive DISTGNN_FUZZ_S=$(FUZZ_S) \
	  DISTGNN_FUZZ_SEED=$${DISTGNN_FUZZ_SEED:-$$(date +%s)} \
	  $(BIN)/python -m pytest -n auto --maxprocesses 4 --max-worker-restart 0 --timeout 0 -m slow tests/fuzz

# The tests on a processor without AVX: an environment beside .venv whose kernels have no other code.
BASELINE := build/baseline
test-baseline: $(VENV)/.installed-dev
	$(BIN)/python -m venv --without-pip $(BASELINE)
	ls -d $(CURDIR)/$(VENV)/lib/python3*/site-packages > \
	  $$(ls -d $(BASELINE)/lib/python3*/site-packages)/shared.pth
	$(BASELINE)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
	  --no-build-isolation -C build-dir=build/baseline-objects -C cmake.define.DISTGNN_BASELINE=ON -e .
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BASELINE)/bin/python $(PYTEST) -m "not packaging"

# Examples are scripts, read folder by folder. They may leave types out, but they must call our
# functions as these are declared.
EXAMPLES := $(sort $(dir $(wildcard $(CURDIR)/examples/*.py $(CURDIR)/examples/*/*.py)))
TYPING_PATH := $(CURDIR)/build/typing:$(CURDIR)/examples/lab:$(CURDIR)/examples/strategies
MYPY_FILES := --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache
LOOSELY := --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls \
  --allow-any-generics --implicit-reexport --no-warn-return-any --no-warn-unreachable \
  --disable-error-code override --disable-error-code unused-ignore

# mypy does not see that partition/ and datasets/ are parts of distgnn: it reads a folder of links.
lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/english.py
	rm -rf build/typing
	mkdir -p build/typing/distgnn
	ln -s $(filter-out %/__pycache__,$(wildcard $(CURDIR)/distgnn/*)) $(CURDIR)/partition \
	  $(CURDIR)/datasets $$(ls -d $(CURDIR)/$(VENV)/lib/python3*/site-packages/distgnn/_*.pyi) \
	  build/typing/distgnn/
	cd build/typing && $(CURDIR)/$(BIN)/mypy -p distgnn $(MYPY_FILES)
	cd build/typing && for folder in $(EXAMPLES); do \
	  MYPYPATH=$(TYPING_PATH) $(CURDIR)/$(BIN)/mypy $(MYPY_FILES) $(LOOSELY) $$folder*.py || exit; \
	done

# The documentation in build/docs/html: every tutorial runs, a warning is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python docs/stage.py build/docs/source
	$(BIN)/python -m sphinx -W --keep-going -q -c docs build/docs/source build/docs/html

# Kernels and epochs beside the peers that are installed in .venv (pip install dgl==1.1.3, ...). The
# twins are at SCALE of their originals; at 0.25 this takes hours and 20 GiB.
SCALE ?= 0.0625
RESULTS := examples/bench
bench: $(VENV)/.installed
	$(BIN)/distgnn bench kernels --scale $(SCALE) --out $(RESULTS)/kernels.json
	$(BIN)/distgnn bench epoch --exact on --scale $(SCALE) --shapes products --out $(RESULTS)/epoch-sage.json
	$(BIN)/distgnn bench epoch --exact on --scale $(SCALE) --shapes reddit --layers 2 --hidden 16 \
	  --out $(RESULTS)/epoch-narrow.json
	$(BIN)/distgnn bench epoch --exact on --scale $(SCALE) --shapes arxiv --model gat --heads 4 --hidden 64 \
	  --out $(RESULTS)/epoch-gat.json
	$(BIN)/distgnn bench report $(addprefix $(RESULTS)/,epoch-sage.json epoch-narrow.json \
	  epoch-gat.json kernels.json) --out $(RESULTS)/RESULTS.md

# Our accuracy beside published figures: the recipes whose graph is Cora or lies in DISTGNN_DATA, or
# RECIPES="cora-gcn ...". Hours for all of them; runs that have ended are kept.
bench-accuracy: $(VENV)/.installed
	$(BIN)/python examples/accuracy/run.py --write $(RECIPES)

# The kernels under the address and undefined-behaviour sanitizers, without Python.
sanitize:
	mkdir -p build
	$(CXX) -std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	  -ffp-contract=off -fopenmp -DDISTGNN_PER_ISA= -march=native -Icsrc \
	  tests/kernels/all_bits.cpp $(filter-out csrc/bind%,$(wildcard csrc/*.cpp)) -o build/all_bits
	OMP_NUM_THREADS=2 build/all_bits > build/all_bits.txt

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.created:
	$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(0 if sys.version_info >= (3, 10) \
	  else f"distgnn needs Python >= 3.10, {sys.executable} is {v}; run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.build-requirements: constraints.txt | $(VENV)/.created
	$(PIP) install --quiet -c constraints.txt $(BUILD_REQUIREMENTS)
	touch $@

$(VENV)/.installed: pyproject.toml $(KERNEL_SOURCES) $(VENV)/.build-requirements
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[mpi,parquet,progress]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[mpi,parquet,progress,docs]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[mpi,parquet,progress,dev]'
	touch $@
