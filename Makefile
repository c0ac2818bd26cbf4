# Everything runs in .venv, made from requirements.lock on first use.
RECIPE ?= demo
SEED ?=
RUN ?= runs/$(basename $(notdir $(RECIPE)))
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export OMP_WAIT_POLICY ?= passive
export GOMP_SPINCOUNT ?= 1000

.PHONY: help demo test check crash compile data imports base docs lock images arena arena-smoke vllm mlflow bench clean
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/.ready: requirements.lock pyproject.toml scripts/setup.sh
	@echo "setting up .venv (once; a minute or two)"
	@sh scripts/setup.sh
	@touch $@

demo: $(BIN)/.ready ## run the whole chain on this machine (RECIPE=demo SEED=0)
	@posttrain run --recipe $(RECIPE) $(if $(SEED),--seed $(SEED)) --out $(RUN)

test: $(BIN)/.ready ## run the tests
	@OMP_NUM_THREADS=1 python -m pytest -q -n 2 --dist loadfile

check: $(BIN)/.ready ## ruff, mypy --strict, the taste test
	@ruff check . && ruff format --check . && mypy && python -m pytest -q tests/test_taste.py

crash: $(BIN)/.ready ## kill stages at some 300 points and run them again (seven minutes)
	@OMP_NUM_THREADS=1 python -m tests.crash.matrix --every 3

compile: $(BIN)/.ready ## write the Kubeflow and Argo graphs into pipelines/compiled
	@python -m pipelines.compile

data: $(BIN)/.ready ## make the versioned data sets (dvc repro) and their cards
	@dvc repro
	@posttrain card data/rm_5k7 data/one_shot data/sft data/rl_prompts data/eval

imports: $(BIN)/.ready ## fill data/imports: public files by URL and md5, or from POSTTRAIN_DATA
	@python scripts/imports.py

base: $(BIN)/.ready ## pretrain the embedded base model again (a quarter of an hour)
	@python -m posttrain.base.pretrain --out src/posttrain/base/tiny --seed 0

docs: $(BIN)/.ready ## write the generated pages of docs/
	@posttrain plugins > docs/plugins.md

lock: $(BIN)/.ready ## write the locks of the images, with hashes, from requirements.lock
	@sh scripts/lock.sh

images: ## build the images (IMAGE_TARGETS="eval train rollout mlflow")
	@sh scripts/images.sh

arena: $(BIN)/.ready ## compare the methods of rl under one budget (an hour on two cores)
	@posttrain arena pipelines/arenas/methods.yaml --out runs/arena

arena-smoke: $(BIN)/.ready ## run each method of rl for a few steps (ten minutes at most)
	@posttrain arena pipelines/arenas/smoke.yaml --out runs/arena-smoke

vllm: $(BIN)/.ready ## set up .venv-vllm with vLLM beside .venv, and test the engine there
	@sh scripts/setup_vllm.sh
	@OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest -q tests/engines

mlflow: $(BIN)/.ready ## open the MLflow pages on the local runs
	@mlflow server --backend-store-uri sqlite:///runs/mlflow.db --host 127.0.0.1 --port 5000

bench: $(BIN)/.ready ## run the benchmarks
	@for file in benchmarks/*.py; do python $$file; done

clean: ## remove runs and caches, keep .venv
	@rm -rf runs .pytest_cache .mypy_cache .ruff_cache
