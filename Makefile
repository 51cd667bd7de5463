# Every target sets up what it needs. Recipes that run for long are one exec'ed command, so that TERM reaches it.
# ARGS is handed on: make test ARGS="-k fence", make demo ARGS=--json

VENV_PYTHON := .venv/bin/python
WITH_SERVERS := $(VENV_PYTHON) -m config.embedded --

.PHONY: setup check test fuzz test-system crash demo drill soak simulate up lock clean

setup:
	@exec sh .ci/python .ci/setup.py

check: setup
	@exec $(WITH_SERVERS) sh .ci/check

test: setup
	@exec $(WITH_SERVERS) $(VENV_PYTHON) -m pytest -m "not system and not crash" $(ARGS)

fuzz: setup
	@FUZZ_REQUESTS=5000 exec $(WITH_SERVERS) $(VENV_PYTHON) -m pytest tests/api/test_schema_fuzz.py $(ARGS)

test-system: setup
	@exec $(WITH_SERVERS) $(VENV_PYTHON) -m pytest -m system $(ARGS)

crash: setup
	@exec $(VENV_PYTHON) manage.py crash $(ARGS)

demo: setup
	@exec $(VENV_PYTHON) manage.py demo $(ARGS)

drill: setup
	@exec $(VENV_PYTHON) manage.py drill $(or $(ARGS),all)

soak: setup
	@exec $(VENV_PYTHON) manage.py soak $(ARGS)

simulate: setup
	@exec $(VENV_PYTHON) manage.py simulate $(ARGS)

gate: setup
	@exec $(VENV_PYTHON) manage.py gate $(ARGS)

up: setup
	@exec $(VENV_PYTHON) manage.py up $(ARGS)

# Needs uv on the PATH. The second lock takes the first as a constraint: what runs is what is tested.
COMPILE := uv pip compile --universal --python-version 3.12 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" --quiet pyproject.toml
lock:
	$(COMPILE) --upgrade --output-file requirements.lock
	$(COMPILE) --upgrade --all-extras --constraint requirements.lock --output-file requirements-dev.lock
	python3 .ci/check_locks.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis static_root
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
