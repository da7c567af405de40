# `make help` lists what can be done. Everything runs in .venv, made from requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# make lower-bounds: its virtual environment, and the tests that need no extra
OLDEST := .venv-oldest
# make site: its virtual environment
SITE := .venv-site
SHORT := $(addprefix tests/,docs/test_package.py model/test_space.py model/test_filters.py model/test_snapshot.py model/test_columns.py kernels/test_kernel_cache.py match/test_conformance.py)
# make run's size; larger: make run EVENTS=2000000
SUBSCRIPTIONS ?= 10000
EVENTS ?= 200000
# how often make kills kills Spark, make server-kills the server; faults of make link-kills
KILLS ?= 50
SERVER_KILLS ?= 500
LINK_FAULTS ?= 100
# make test-spark-versions: the versions of Spark
SPARKS ?= 4.0 4.1 4.2 4.3
# make gpu-test, gpu-bench: the machine's CUDA, 12 or 13
CUDA ?= 12
# make chaos: how long, and the seed of its faults (a random one if it is empty)
SECONDS ?= 240
SEED ?=

# What Python compiles is kept, whatever the environment says: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run serve test test-quick test-soak bounds check format reference kills spark-matrix test-spark-versions server-kills link-kills simulate-nightly chaos chaos-plants bus-chaos bench-quick bench gpu-test gpu-bench results lock lower-bounds dist site clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

setup: $(STAMP)  ## make .venv with every extra, from requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("rangecast needs Python 3.11 or newer; %s is %d.%d. Try: make PYTHON=python3.11" % (sys.executable, v[0], v[1]))'
	@echo "Setting up $(VENV) (the first time takes a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

run: setup  ## the main job: the market example on Spark, verified; see out/report.html
	@$(BIN)/rangecast demo --subscriptions $(SUBSCRIPTIONS) --events $(EVENTS) -o out

serve: setup  ## a server with something to see: open http://127.0.0.1:8080
	@$(BIN)/rangecast serve --demo --port 8080

# Four processes: those that wait for Spark and for servers leave the cores to the others. Kernels
# are compiled first: most tests need the same ones.
test: setup  ## all tests except the soak tests
	$(BIN)/rangecast precompile
	$(BIN)/python -m pytest -n 4 --dist loadgroup --durations=30

test-quick: setup  ## the tests that need neither Spark nor servers nor other large programs: minutes
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not spark and not process and not soak"

test-soak: setup  ## nightly: the soak tests, and all examples of every property
	KILLS=$(KILLS) $(BIN)/python -m pytest -n 3 --dist loadgroup --durations=30 \
		--hypothesis-profile soak -m "soak or hypothesis"

bounds: setup  ## the conformance of all verbs again, with numba's bounds check on: minutes
	NUMBA_BOUNDSCHECK=1 NUMBA_OPT=1 $(BIN)/python -m pytest -n auto --hypothesis-profile soak -m conformance

check: setup  ## ruff, mypy, import-linter, import cycles, and words that must not come back
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.tools.cycles
	$(BIN)/python -m tests.tools.words

format: setup  ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: setup  ## generate the references of Python, HTTP and the shell into build/reference
	$(BIN)/python -m docs.make_reference build/reference

kills: setup  ## a stream killed KILLS=50 times at random: nothing lost, nothing twice
	KILLS=$(KILLS) $(BIN)/python -m pytest -m soak tests/spark/stream/test_crashes.py

spark-matrix: setup  ## every step, mode, sink and odd batch of a pipeline, compared with the local engine: minutes
	$(BIN)/python -m pytest -m "soak or not soak" tests/spark/test_matrix.py

test-spark-versions: setup  ## every supported Spark in turn, each installed beside the others: the steps, a stream and tables of Iceberg: minutes
	@for version in $(SPARKS); do \
		test -d build/spark/$$version || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--target build/spark/$$version "pyspark==$$version.*" || exit 1; \
		PYTHONPATH=$(CURDIR)/build/spark/$$version $(BIN)/python -m tests.soak.spark_smoke $$version || exit 1; \
		PYTHONPATH=$(CURDIR)/build/spark/$$version $(BIN)/python -m pytest -m soak -k iceberg tests/spark/stream/test_catalog.py || exit 1; \
	done

server-kills: setup  ## kill -9 a server while clients write and read: nothing acknowledged is lost
	$(BIN)/python -m tests.soak.server_kills --kills $(SERVER_KILLS)

link-kills: setup  ## five linked servers, cut, delayed and killed: nothing settled is lost
	$(BIN)/python -m tests.soak.link_kills --faults $(LINK_FAULTS)

chaos: setup  ## faults of all kinds against a model of the server's promises: SECONDS=14400 SEED=7
	$(BIN)/python -m tests.soak.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(CHAOS)

chaos-plants: setup  ## plant bugs in the server, and see that make chaos finds each: a quarter of an hour
	$(BIN)/python -m tests.soak.chaos --plants --seconds 120 $(if $(SEED),--seed $(SEED))

bus-chaos: setup  ## Kafka and NATS restarted, killed, held, cut: each match once, gaps reported: minutes
	$(BIN)/python -m tests.soak.bus_chaos $(if $(SEED),--seed $(SEED))

simulate-nightly: setup  ## 10,000 seeds of a network that breaks, 1,000 of the servers' links, and all planted mistakes: hours
	$(BIN)/rangecast route simulate --seeds 10000
	$(BIN)/python -m tests.soak.link_world --seeds 1000
	$(BIN)/python -m tests.support.broken_brokers
	$(BIN)/python -m tests.soak.link_world --broken

bench-quick: setup  ## every benchmark at a tiny size and every picture of the docs, to see that they run: minutes
	$(BIN)/python -m pytest tests/tools/bench_quick.py

$(VENV)/.gpu$(CUDA): $(STAMP) gpu.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock -c gpu.lock cupy-cuda$(CUDA)x
	@touch $@

gpu-test: $(VENV)/.gpu$(CUDA)  ## on a machine with an NVIDIA GPU: the tests of the emulator, on the GPU
	$(BIN)/python -c 'from rangecast.device.devices import open_device; open_device("cuda")'
	RANGECAST_TEST_GPU=1 $(BIN)/python -m pytest tests/device

gpu-bench: $(VENV)/.gpu$(CUDA)  ## on a machine with an NVIDIA GPU: compared with all pairs, then timed
	$(BIN)/python -m benchmarks.gpu

bench: setup  ## all benchmarks, with ratios to what one would use instead
	$(BIN)/python -m benchmarks

results: setup  ## the papers' tables and figures again, at their sizes: hours
	$(BIN)/python -m experiments run all -o docs/reference

lock: setup $(SITE)/.ready  ## write requirements.lock, gpu.lock and docs/site.lock again, with the newest versions
	$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager -e '.[connect,delta,java,report,server,bench,dev]'
	$(BIN)/python -m pip freeze --exclude-editable --exclude pip > requirements.lock
	for cuda in 12 13; do $(BIN)/python -m pip install --quiet --dry-run --report - "cupy-cuda$${cuda}x" | \
		$(BIN)/python -c 'import json, sys; [print("{name}=={version}".format_map(each["metadata"])) for each in json.load(sys.stdin)["install"]]'; \
		done | sort -u > gpu.lock
	$(SITE)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager mkdocs mkdocs-material
	$(SITE)/bin/python -m pip freeze --exclude pip > docs/site.lock

lower-bounds:  ## a short part of the suite with the oldest dependencies that pyproject.toml allows
	rm -rf $(OLDEST)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		$$($(PYTHON) tests/tools/lower_bounds.py) $$(grep -E '^(pytest|hypothesis)==' requirements.lock)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(OLDEST)/bin/python -m pytest $(SHORT)

dist: setup  ## build the wheel and the sdist, and try them in an empty environment of each of PYTHONS
	$(BIN)/python tests/tools/wheel_check.py $(PYTHONS)

site: reference $(SITE)/.ready  ## the pages as a site, build/site: nothing in it is loaded from elsewhere
	$(SITE)/bin/python docs/make_site.py

$(SITE)/.ready: docs/site.lock
	@test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check -r docs/site.lock
	@touch $@

clean:  ## remove .venv and everything generated
	rm -rf $(VENV) $(OLDEST) $(SITE) out build dist .hypothesis .mypy_cache .ruff_cache .import_linter_cache
