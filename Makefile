# make serve | examples | test | test-all | test-compiled | security | wheel | check | prose | generated | site | sim |
#      sim-bite | crash-histories | compat | cluster | streams | hostile | spark | bench | docker-check | clean
#
# Each target sets up what it needs: a virtual environment in .venv, with the versions of constraints.txt. PYTHON names
# the interpreter; without it the newest of python3.14 ... python3.11 that runs is taken. ARGS goes to the program.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
KIO := .venv-kio
SPARK := .venv-spark
QUIX := .venv-quix
AIRFLOW := .venv-airflow
COMPILED_VENV := .venv-compiled
SITE_VENV := .venv-site

.PHONY: serve examples test test-all test-thorough test-compiled security wheel check prose generated site sim sim-bite
.PHONY: crash-histories compat cluster streams hostile spark bench docker-check clean
.DELETE_ON_ERROR:

serve: $(VENV)/made-serve
	exec $(BIN)/barnabas serve $(ARGS)

# The clients and codecs of the programs in examples/, in the environment of `make serve`.
examples: $(VENV)/made-examples
	@echo "ready: $(BIN)/python examples/first_steps.py"

# What Python alone can show, in minutes. For two cores: unit tests use them up, those of compat_tests wait for their
# brokers much of the time, so they run beside each other. A file stays in one process: its tests share brokers.
test: $(VENV)/made-dev $(KIO)/made
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile -m "not thorough" tests compat_tests
endif

# And the rest: more of the simulator, other languages' clients, Apache Kafka beside us, clusters under faults, Spark.
test-all: test test-thorough

# Continuous integration has less time: it leaves out what is long, and the differential suite in the compiled form.
LEFT_OUT := security
test-thorough: $(VENV)/made-dev $(KIO)/made $(SPARK)/made $(QUIX)/made $(AIRFLOW)/made $(SITE_VENV)/made
	$(BIN)/python -m pytest --numprocesses 2 -m "thorough and not ($(LEFT_OUT))" tests
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder -m "thorough and not ($(LEFT_OUT))" \
		--durations=40 compat_tests

# The whole matrices of security, of which test-thorough runs samples: every API with each combination of ACLs, beside
# Apache Kafka. ARGS="-k whole" chooses among them.
security: $(VENV)/made-dev
	$(BIN)/python -m pytest -m security --durations=10 compat_tests $(ARGS)

# The compiled form, as users get it: a wheel, installed in an environment of its own. Without ARGS the tests of what is
# compiled, and clients of every kind; everything else is the same code in both forms, and `make test` runs it.
COMPILED_UNITS := tests/test_form.py $(addprefix tests/,wire storage config world security replication coordinators quotas client broker)
COMPILED_CLIENTS := $(addprefix compat_tests/,test_hostile.py test_process.py test_roundtrip.py)
COMPILED_DIFFERENTIAL := compat_tests/differential/test_differential.py
test-compiled: $(COMPILED_VENV)/made $(KIO)/made
	$(COMPILED_VENV)/bin/barnabas version | grep -F '(compiled)'
ifdef ARGS
	$(COMPILED_VENV)/bin/python -m pytest $(ARGS)
else
	$(COMPILED_VENV)/bin/python -m pytest --numprocesses 2 -m "not thorough" $(COMPILED_UNITS)
	$(COMPILED_VENV)/bin/python -m pytest --numprocesses 3 --dist loadfile $(COMPILED_CLIENTS) $(COMPILED_DIFFERENTIAL)
endif

# A wheel in dist/: pure Python, for every platform; with COMPILED=1 for this interpreter and platform.
wheel: $(VENV)/made-dev
	$(if $(COMPILED),BARNABAS_COMPILE=1) $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@ls -t dist/barnabas-*.whl | head -1

check: $(VENV)/made-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict -p barnabas
	$(BIN)/python -m pytest -q tests/test_tidy.py

# How dense the sources are on the page, by package.
prose: $(VENV)/made-dev
	$(BIN)/python -m tests.prose

# Writes what is made from the sources: type stubs, tables and pictures in documents.
generated: $(VENV)/made-dev
	$(BIN)/python -m tests.generated
	$(BIN)/python -m tests.played

# The documents as a site, in build/site; begin at index.html. A warning is an error, and so is a link that leads nowhere.
SITE := build/site
site: $(SITE_VENV)/made
	rm -rf $(SITE)
	$(SITE_VENV)/bin/python -m sphinx -E -W --keep-going -q -b html -c docs/site . $(SITE)
	$(SITE_VENV)/bin/python docs/site/links.py $(SITE)

# SEED=17 replays one seed and tells its story; SEEDS=2000 runs so many, appends to a file and goes on where it stopped.
# KIND=directories, levels, crowds, ...: histories about that; KIND=directories+twice: about both.
SEEDS := 100
sim: $(VENV)/made-dev
	$(BIN)/python -m barnabas.testing.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) \
		$(if $(KIND),--kind $(KIND)) $(ARGS)

sim-bite: $(VENV)/made-dev
	$(BIN)/python -m barnabas.testing.simulation --bite $(ARGS)

# Histories of one log directory that crashes: SEED=17 runs one, HISTORIES=15000 so many.
HISTORIES := 1000
crash-histories: $(VENV)/made-dev
	$(BIN)/python -m barnabas.testing.crashes $(if $(SEED),--seed $(SEED),--histories $(HISTORIES)) $(ARGS)

# CLIENT names one of compat_tests/clients; without it they are listed. SECURITY=all runs it over TLS and with every login.
compat: $(VENV)/made-dev
	$(BIN)/python -m compat_tests.clients $(CLIENT) $(if $(SECURITY),--security "$(SECURITY)") $(ARGS)

# Random faults on a live cluster, and fail-over times: ARGS="run --runs 30 --out FILE" or ARGS="failover --out FILE".
cluster: $(VENV)/made-dev
	$(BIN)/python -m compat_tests.cluster $(ARGS)

# Kafka's own test of exactly-once streams while brokers and instances are killed: ARGS="--runs 3 --out FILE".
streams: $(VENV)/made-dev
	$(BIN)/python -m compat_tests.streams $(ARGS)

# What hostile clients cost others: ARGS="table '2^22 headers'" or ARGS="mix --minutes 30".
hostile: $(VENV)/made-dev
	$(BIN)/python -m compat_tests.hostile $(if $(ARGS),$(ARGS),table)

# Spark's Kafka source and sink, side by side with Apache Kafka: ARGS="--record" keeps the result.
spark: $(VENV)/made-dev $(SPARK)/made
	$(BIN)/python -m compat_tests.spark $(ARGS)

bench: $(VENV)/made-dev
	$(BIN)/python -m bench $(ARGS)

# The image and a cluster of it, on any base image with Python and (for ZooKeeper's) Debian's packages: BASE=image.
docker-check: $(VENV)/made-dev
	$(BIN)/python docker/check.py

clean:
	rm -rf $(VENV) $(KIO) $(SPARK) $(QUIX) $(AIRFLOW) $(COMPILED_VENV) $(SITE_VENV) .compat build dist src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so that an interrupted set-up is taken up again, and goes with the environment it is about.

$(VENV)/made:
	@python=$$(sh .ci/find-python "$(PYTHON)") && echo "$$python -m venv $(VENV)" && "$$python" -m venv $(VENV)
	@touch $@

$(VENV)/made-serve: pyproject.toml constraints.txt | $(VENV)/made
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/made-examples: pyproject.toml constraints.txt | $(VENV)/made
	$(PIP) install --constraint constraints.txt --editable '.[examples]'
	@touch $(VENV)/made-serve $@

$(VENV)/made-dev: pyproject.toml constraints.txt | $(VENV)/made
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $(VENV)/made-serve $(VENV)/made-examples $@

# kio, an independent Python copy of Kafka's schemas, is compared with ours from an environment of its own.
$(KIO): $(KIO)/made

$(KIO)/made: constraints.txt | $(VENV)/made
	$(BIN)/python -m venv $(KIO)
	$(KIO)/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt kio
	@touch $@

# PySpark and what else the pipeline needs.
$(SPARK): $(SPARK)/made

$(SPARK)/made: pyproject.toml constraints.txt | $(VENV)/made
	$(BIN)/python -m venv $(SPARK)
	$(SPARK)/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable '.[spark]'
	@touch $@

# Quix Streams, which wants an older confluent-kafka than constraints.txt has.
$(QUIX)/made: pyproject.toml | $(VENV)/made
	$(BIN)/python -m venv $(QUIX)
	$(QUIX)/bin/python -m pip --disable-pip-version-check --quiet install --editable . pytest==$(shell sed -n \
		's/^pytest==//p' constraints.txt) quixstreams==3.28.1 confluent-kafka==2.12.2
	@touch $@

# Airflow: two hundred packages, which uv installs in some seconds.
$(AIRFLOW)/made: pyproject.toml | $(VENV)/made-dev
	$(BIN)/python -m venv $(AIRFLOW)
	$(BIN)/uv pip install --quiet --python $(AIRFLOW)/bin/python --editable . pytest==$(shell sed -n \
		's/^pytest==//p' constraints.txt) apache-airflow==3.3.2 apache-airflow-providers-apache-kafka==2.1.0
	@touch $@

# Sphinx, its theme, and what reads Markdown.
$(SITE_VENV)/made: pyproject.toml constraints.txt | $(VENV)/made
	@test -x $(SITE_VENV)/bin/python || $(BIN)/python -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt --editable '.[site]'
	@touch $@

# Built again when any source of the package has changed.
$(COMPILED_VENV)/made: setup.py pyproject.toml constraints.txt $(shell find -L src/barnabas -name '*.py*' -type f \
	-not -path '*/__pycache__/*') | $(VENV)/made-dev
	@test -x $(COMPILED_VENV)/bin/python || $(BIN)/python -m venv $(COMPILED_VENV)
	rm -rf $(COMPILED_VENV)/wheel
	BARNABAS_COMPILE=1 $(PIP) wheel --no-build-isolation --no-deps --wheel-dir $(COMPILED_VENV)/wheel .
	$(COMPILED_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt \
		"$$(ls $(COMPILED_VENV)/wheel/*.whl)[dev]"
	$(COMPILED_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --force-reinstall \
		$(COMPILED_VENV)/wheel/*.whl
	@touch $@
