# Each target sets up what it needs; a second run is quick. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
JOBS   ?= 2

.PHONY: help demo test fast exhaustive explore test-gpu lint bench site clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(STAMPS)/venv:
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# torch is asked for by its exact version first, so that no other package can pull in a newer one.
$(STAMPS)/demo: $(STAMPS)/venv pyproject.toml
	$(PY) -m pip install -q torch==2.13.0
	$(PY) -m pip install -q -e ".[interp,torch]"
	@touch $@

$(STAMPS)/test: $(STAMPS)/venv pyproject.toml
	$(PY) -m pip install -q torch==2.13.0
	$(PY) -m pip install -q -e ".[torch,test]"
	@touch $@ $(STAMPS)/demo

demo: $(STAMPS)/demo ## set up and run the main job: a small language model, eager and compiled
	$(VENV)/bin/treadle demo

test: $(STAMPS)/test lint ## set up and pass all tests (CI runs exactly this)
	$(PY) -m pytest -n $(JOBS) --dist worksteal

fast: $(STAMPS)/test ## the core's tests of single parts, without torch: about a minute
	$(PY) -m pytest -n $(JOBS) -m "not slow and not torch" \
	  tests/unit tests/golden tests/house tests/errors tests/fuzz

exhaustive: $(STAMPS)/test ## all operators of torch's database, five times the random programs: an hour or more
	$(PY) -m pytest -n $(JOBS) -m exhaustive
	HYPOTHESIS_PROFILE=thorough $(PY) -m pytest -n $(JOBS) --dist worksteal tests/property

explore: $(STAMPS)/test ## random programs, functions and files with fresh seeds, which are printed (SEED=N repeats)
	@seed=$${SEED:-$$(date +%s)}; echo "seed $$seed"; \
	HYPOTHESIS_PROFILE=explore $(PY) -m pytest -n $(JOBS) tests/property --hypothesis-seed=$$seed && \
	$(PY) tests/fuzz/command_fuzzer.py --cases 3000 --seed $$seed && \
	$(PY) tests/fuzz/scheduled_fuzzer.py --cases 60000 --seed $$seed && \
	$(PY) tests/fuzz/scheduled_fuzzer.py --cases 10000 --threads 2 --seed $$seed && \
	$(PY) tests/differential/torch_fuzzer.py --cases 200 --seed $$seed && \
	$(PY) tests/differential/torch_fuzzer.py --cases 100 --threads 2 --seed $$seed

test-gpu: ## on a machine with a GPU, torch and Triton: operators, random functions, every kind of kernel (PY=python to use its own)
	PYTHONPATH=src $(PY) tests/gpu/nccl_one_rank.py
	PYTHONPATH=src $(PY) tests/gpu/tuning.py
	PYTHONPATH=src $(PY) tests/gpu/random_numbers.py
	PYTHONPATH=src $(PY) tests/gpu/on_device.py --json build/gpu_tests.json

lint: $(STAMPS)/test ## format check, lint and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(STAMPS)/test ## run the benches and rewrite bench/results
	$(PY) bench/index_algebra.py --save
	$(PY) bench/graph_scale.py --save
	$(PY) bench/memory_planner.py --save
	$(PY) bench/ordering.py --save
	$(PY) bench/gpu_instructions.py --save
	$(PY) bench/scheduler_scale.py --save --sizes 1000,10000,100000 --peer 2000
	$(PY) bench/model_schedules.py --save
	$(PY) bench/models.py --save
	$(PY) bench/torch_workloads.py --save --peer
	$(PY) bench/zoo_speed.py --save --backends treadle,inductor

site: $(STAMPS)/venv ## build the documents as a site into build/site
	$(PY) -m pip install -q "mkdocs>=1.6,<2"
	$(PY) -m mkdocs build -q

clean: ## remove everything that is not in git
	git clean -fdXq
