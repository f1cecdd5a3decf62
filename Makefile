# One verb per check, the same in CI. Nothing but Python 3.11 to 3.13 and make is needed beforehand.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
SETUP := pyproject.toml constraints.txt tools/setup_env.py
.PHONY: help setup demo test mutants lint format types bench size hardware-test soak fuzz tables clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.venv/.demo: $(SETUP)
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.13 is needed and none was found; install one or name it: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) tools/setup_env.py demo
	@touch $@

.venv/.test .venv/.lint .venv/.types .venv/.fuzz: .venv/.%: .venv/.demo
	@$(BIN)/python tools/setup_env.py $*
	@touch $@

setup: .venv/.demo ## make .venv with the product in it

demo: .venv/.demo ## play the whole conversation: real firmware, simulated board, offline agent
	@$(BIN)/vrt demo

test: .venv/.test ## run every test
	@$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

mutants: .venv/.test ## every broken client, server and seeded fault: each is found by its own check (8 minutes)
	@VRT_MUTANTS=all $(BIN)/python -m pytest -q tests/conformance tests/model

lint: .venv/.lint ## ruff, codespell, fresh tables, module sizes, wording of the repository
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/codespell
	@$(BIN)/python tools/gen_tables.py --check
	@$(BIN)/python tools/gen_rules.py --check
	@$(BIN)/python tools/gen_boards.py --check
	@$(BIN)/python tools/check_sizes.py

format: .venv/.lint ## format all Python
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

types: .venv/.types ## mypy strict on the host, pyright with the ESP32 stubs on the firmware
	@$(BIN)/mypy
	@$(BIN)/pyright

bench: .venv/.test ## measure, print a table, write build/bench.json
	@$(BIN)/python tools/bench.py

size: .venv/.demo ## flash of each board, heap of the running client, module by module
	@$(BIN)/python tools/bench_size.py

hardware-test: .venv/.demo ## try a real board, part by part: BOARD=ID PORT=PORT (MINUTES=60 of soak)
	@$(BIN)/python tools/hardware_test.py "$(BOARD)" $(if $(PORT),--port "$(PORT)") $(if $(MINUTES),--minutes $(MINUTES))

soak: .venv/.test ## cut 1,000 connections: nothing may be lost or doubled, no heap may grow (12 minutes)
	@$(BIN)/python tools/soak.py

fuzz: .venv/.test .venv/.fuzz ## a million inputs for the parsers of both sides (20 minutes)
	@$(BIN)/python tools/fuzz.py

tables: .venv/.demo ## regenerate the device's tables from schema/, the page of the rules, the pages of the boards
	@$(BIN)/python tools/gen_tables.py
	@$(BIN)/python tools/gen_rules.py
	@$(BIN)/python tools/gen_boards.py

clean: ## remove everything that was made here
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
