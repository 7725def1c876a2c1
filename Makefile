# `make run` opens the dashboard of this machine; `make test` runs every test; both set up what they need in .venv and touch
# nothing else of your Python.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
TARGET ?= local
LAB ?= yes

.DEFAULT_GOAL := help
.PHONY: help run lab sglang test faults provoke stuck eta chaos lint docs format lock wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/.client  ## set up, then open the dashboard (TARGET=root@host; else this machine with its lab, LAB=no without)
ifeq ($(TARGET)/$(LAB),local/yes)
	@$(BIN)/eagletui lab up || { test $$? = 1 && echo "without the lab: opening the dashboard"; }
endif
	@$(BIN)/eagletui connect $(TARGET)

lab: $(VENV)/.client  ## build the tiny real engine of this machine, once (3 minutes, 5 GB)
	@$(BIN)/eagletui lab up

test: $(VENV)/.dev  ## set up, then run the whole test suite with its real engine (ARGS=... goes to pytest: -m "not engine")
	@tools/system-packages sshd ssh-agent gcc tmux fish tcsh csh zsh
	@$(BIN)/pytest $(ARGS)

faults: $(VENV)/.dev  ## provoke every fault of docs/faults.md and tell what held (as root; ROW=26 or ROW=3,4: only those; ARGS goes to pytest)
	@tools/system-packages sshd ssh-agent gcc tmux fish tcsh csh zsh nft ip unshare nsenter mkfs.ext4 systemd-nspawn debootstrap podman runc \
		fuse-overlayfs
	@$(BIN)/pytest -q --faults --rows="$(ROW)" --faults-json=build/faults.json $(ARGS)

sglang: $(VENV)/.dev  ## build the real SGLang for the tests, once (2 minutes, 2.6 GB; in EAGLETUI_SGLANG_LAB, else ~/.cache/eagletui/tests)
	@PYTHON="$(abspath $(BIN)/python)" tests/lab/sglang/build.sh "$${EAGLETUI_SGLANG_LAB:-$$HOME/.cache/eagletui/tests/sglang}"

provoke: $(VENV)/.dev  ## make the real engines fail in every way of docs/provoked.md (CASE="sglang vllm/shard-cut": only those; LOOK=yes: preflight alone)
	@$(BIN)/python -m tests.lab.provoke $(if $(LOOK),--look) $(ARGS) $(CASE)

stuck: $(VENV)/.dev  ## stop a real server while it is asked: told, and recovered (CASE=vllm or sglang: only that)
	@$(BIN)/python -m tests.lab.provoke --stuck $(ARGS) $(CASE)

eta: $(VENV)/.dev  ## load one profile six times and compare what was estimated with what came (PROFILE=lab-eagle3 LOADS=6)
	@$(BIN)/python -m tests.lab.eta $(ARGS) $(or $(PROFILE),lab-eagle3) $(or $(LOADS),6)

chaos: $(VENV)/.dev  ## random faults from a seed, checked after each (MINUTES=10, SEED=n repeats a run; ARGS=--verbose)
	@tools/system-packages sshd
	@$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),10) $(ARGS)

lint: $(VENV)/.dev  ## style, types, import contracts, generated documents
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/docs.py --check

docs: $(VENV)/.dev  ## write the generated tables in docs/ again
	@$(BIN)/python tools/docs.py

format: $(VENV)/.dev  ## put the code into the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock:  ## resolve the dependencies anew and write the two lock files
	@tools/make-venv $(VENV)
	@$(BIN)/python tools/lock.py

wheel: $(VENV)/.dev  ## build dist/*.whl
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean:  ## remove what this Makefile made: the environment, caches and builds
	@rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.client: requirements.lock pyproject.toml tools/make-venv
	@tools/make-venv $(VENV) requirements.lock
	@touch $@

$(VENV)/.dev: requirements.lock requirements-dev.lock pyproject.toml tools/make-venv
	@tools/make-venv $(VENV) requirements.lock requirements-dev.lock
	@touch $@ $(VENV)/.client
