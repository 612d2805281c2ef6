# Each target does its own set-up in .venv; `make` alone lists the targets.
# Needs Python 3.11 or newer, a C++ compiler and any GNU make since 3.81 (the one macOS has). The tests need clang and chromium too.

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# What `make demo` works on by itself, and `make replay` with a model's recorded answers: no key and no GPU in either.
EXAMPLE ?= examples/softmax_scale
ITERATIONS ?= 4

# The interpreter to build the environment from; empty means the first good one of PYTHONS.
PYTHON ?=
PYTHONS := python3 python3.13 python3.12 python3.11

# What `make test` installs. With EXTRAS=dev,sycl the tests of SYCL run too (0.4 GB to download, on x86-64 only).
EXTRAS ?= dev

# More arguments for pytest: make test PYTEST_ARGS="tests/store"
PYTEST_ARGS ?=
# Processes that run tests; most tests wait for processes of their own.
JOBS ?= 3

.PHONY: help demo replay test test-ci test-all coverage device-test device-bench check exploits fuzz clean bytecode
.DELETE_ON_ERROR:

help:
	@echo 'make demo      forge a kernel for $(EXAMPLE) with the built-in generator'
	@echo 'make replay    the same with the recorded answers of a model'
	@echo 'make test      run make check and the quick tests: 94 of 100, in a third of the time'
	@echo 'make test-ci   the same with the slow tests: runs, suites, compilers and servers as a user has them; .ci/run calls it'
	@echo 'make test-all  the same with the tests marked volume: many more random examples, kills and lies of each kind'
	@echo 'make coverage  which lines of src the tests run, in all their processes (COVERED=tests/store for some of them)'
	@echo 'make device-test  the tests that need a GPU, by an interpreter whose torch sees it (PYTHON=... names one)'
	@echo 'make device-bench  what an evaluation on that GPU costs, stage by stage, into benchmarks/ and docs/benchmarks.md'
	@echo 'make check     lint, format, types and import contracts'
	@echo 'make exploits  every known cheat, honest oddity and seeded bug against the evaluator'
	@echo 'make fuzz      attacks that are put together at random, for SECONDS=... (LANES=0,1:2,3 for side by side)'
	@echo 'make clean     remove the environment and all caches; runs are kept'
	@echo 'PYTHON=...     the interpreter to use, when the first one found is not the one you want'

demo: bytecode
	$(BIN)/kforge forge $(EXAMPLE)/problem.py -p cpu -m builtin -n $(ITERATIONS)

replay: bytecode
	$(BIN)/kforge forge $(EXAMPLE)/problem.py -p cpu -m replay:$(EXAMPLE)/exchange -n $(ITERATIONS)

# What pytest makes of the assertions in a test is kept, also where the environment says that no bytecode is.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

# $(call checked,the tests): mypy keeps one core busy, so the checks run beside the tests and speak after them.
define checked
$(info $(1))@$(MAKE) --no-print-directory check >$(VENV)/check.log 2>&1 & check=$$!; \
$(1); tested=$$?; \
wait $$check || { cat $(VENV)/check.log >&2; echo 'make check failed' >&2; exit 1; }; \
exit $$tested
endef

test: $(VENV)/.ready-dev bytecode
	$(call checked,$(PYTEST) --quick $(PYTEST_ARGS))

test-ci: $(VENV)/.ready-dev bytecode
	$(call checked,$(PYTEST) $(PYTEST_ARGS))

test-all: $(VENV)/.ready-dev bytecode
	$(call checked,$(PYTEST) --volume $(PYTEST_ARGS))

# The tests whose lines are counted: make coverage COVERED=tests/store
COVERED ?= tests

# What is not counted is said in the file that counts.
coverage: $(VENV)/.ready-dev bytecode
	@rm -rf .coverage && mkdir .coverage
	-PYTHONPATH=$(CURDIR)/tests/coverage_of_processes $(PYTEST) $(COVERED) $(PYTEST_ARGS)
	@# and the files that no test imports
	@$(BIN)/coverage run --parallel-mode --data-file=.coverage/data --source=src/kforge -m kforge --help >/dev/null
	@$(BIN)/coverage combine --quiet --data-file=.coverage/data .coverage
	$(BIN)/coverage report --data-file=.coverage/data --sort=cover

# Where a GPU is, somebody has installed the torch that fits its driver, and often not in an environment of ours: this
# installs nothing and takes the first interpreter that has one. Whatever torch does not see is skipped with the reason.
DEVICE_TESTS ?= tests/inline/cuda tests/platforms tests/evaluation
DEVICE_NEEDS := jinja2 pydantic typer rich sqlalchemy numpy
SEES_GPU := import torch; raise SystemExit(not torch.cuda.is_available())
LACKS := import sys, importlib.util as i; print(*(name for name in sys.argv[1:] if i.find_spec(name) is None))

# $(call with_gpu,packages that it needs,arguments of the interpreter)
define with_gpu
@for python in $(or $(PYTHON),$(BIN)/python $(PYTHONS)); do \
    "$$python" -c '$(SEES_GPU)' 2>/dev/null || continue; \
    lacks=$$("$$python" -c '$(LACKS)' $(1)); \
    if [ -n "$$lacks" ]; then echo "$$python sees a GPU, but lacks $$lacks: $$python -m pip install them" >&2; exit 1; fi; \
    echo "with $$python, $$("$$python" --version)"; \
    PYTHONPATH="$(CURDIR)/src$${PYTHONPATH:+:$$PYTHONPATH}" exec "$$python" $(2); \
done; \
echo 'no torch that sees a GPU in: $(or $(PYTHON),$(BIN)/python $(PYTHONS)); say make $@ PYTHON=/path/to/python' >&2; \
exit 1
endef

device-test:
	$(call with_gpu,pytest pytest_timeout hypothesis $(DEVICE_NEEDS),-m pytest -m device $(DEVICE_TESTS) $(PYTEST_ARGS))

# More arguments for the benchmark: make device-bench BENCH_ARGS="--only cuda,faults"
BENCH_ARGS ?=

device-bench:
	$(call with_gpu,$(DEVICE_NEEDS),benchmarks/device.py $(BENCH_ARGS))

check: $(VENV)/.checked

# Folders are among them because a file that was removed leaves only its folder changed.
CHECKED := pyproject.toml $(shell find benchmarks examples src tests -name __pycache__ -prune -o \( -name '*.py' -o -type d \) -print)

# A check that passed is not repeated until one of its files has changed.
$(VENV)/.checked: $(VENV)/.ready-dev $(CHECKED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@touch $@

# More arguments for the corpus: make exploits EXPLOITS_ARGS="--only harness/"
EXPLOITS_ARGS ?=

exploits: $(VENV)/.ready-dev
	$(BIN)/python tests/exploits/run.py $(EXPLOITS_ARGS)

# Where make fuzz works, and for how long; more arguments: make fuzz FUZZ_ARGS="--seed 1 --cause clock"
SECONDS ?= 600
LANES ?=
FUZZ_ARGS ?=

fuzz: $(VENV)/.ready-dev
	$(BIN)/python tests/exploits/fuzz.py --seconds $(SECONDS) --lanes '$(LANES)' $(FUZZ_ARGS)

# What judges writes nothing beside its sources, so it would translate them again in every process: half a second each.
bytecode: $(VENV)/.ready-core
	@$(BIN)/python -m compileall -q src

clean:
	rm -rf $(VENV) build dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests examples -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.ready-dev: $(VENV)/.ready-core
	@echo 'installing the tools for make test ...'
	@$(PIP_INSTALL) --editable '.[$(EXTRAS)]'
	@# the tests need its client; the rest of its dependencies are not, and do not go with ours (docs/dependencies.md)
	@$(PIP_INSTALL) --no-deps openenv==0.10.0
	@touch $@

# torch goes first and alone: pinned before anything else can ask pip for another, much larger build of it.
$(VENV)/.ready-core: pyproject.toml constraints.txt | $(BIN)/pip
	@echo 'installing torch and kforge into $(VENV), which takes minutes the first time ...'
	@$(PIP_INSTALL) torch
	@$(PIP_INSTALL) --editable .
	@touch $@

# venv writes pip last, so a set-up that was cut short starts again from nothing. A candidate is run, not only looked
# up, because version managers put names on PATH that refuse to run.
$(BIN)/pip:
	@bare=; \
	for python in $(or $(PYTHON),$(PYTHONS)); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { bare="$$python"; continue; }; \
	    echo "creating $(VENV) with $$("$$python" --version) ..."; \
	    exec "$$python" -m venv --clear $(VENV); \
	done; \
	if [ -n "$$bare" ]; then \
	    echo "$$bare has no venv module: install it (on Debian and Ubuntu: apt install python3-venv)" >&2; \
	else \
	    echo 'no Python 3.11 or newer among: $(or $(PYTHON),$(PYTHONS)); install one, or say make PYTHON=/path/to/python' >&2; \
	fi; \
	exit 1
