# make demo | test | build are the ways in; each sets up what is missing first. `make help` lists all.
.DEFAULT_GOAL := help
SHELL := /bin/bash
JOBS ?= $(shell nproc)
TEST_JOBS ?= 2
# Which tests: MT_TESTS is passed to ctest as it stands, e.g. make test MT_TESTS="-R Mesh".
MT_TESTS ?=

.PHONY: help setup build tests-built check test test-gpu demo asan tsan fuzz format clean distclean

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup:  ## Install what is missing (Debian packages; plugin, weights, tokenizer into .deps)
	@scripts/setup.sh

build: setup  ## The release program, build/maxtext
	@cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
	@cmake --build build -j $(JOBS) --target maxtext

tests-built: build
	@cmake --build build -j $(JOBS) --target tests

check: setup  ## Rooms, arrows and style, without building
	@python3 scripts/check_rooms.py
	@scripts/check_style.sh

test: check tests-built  ## Everything .ci/run runs; ends with ctest's summary
	@scripts/gpu_note.sh
	@ctest --test-dir build --output-on-failure -j $(TEST_JOBS) --no-tests=error -LE gpu $(MT_TESTS)

test-gpu: tests-built  ## The tests that need an NVIDIA GPU (label gpu)
	@scripts/gpu_note.sh --required
	@ctest --test-dir build --output-on-failure -j 1 --no-tests=error -L gpu $(MT_TESTS)

demo: build  ## Fine-tune real Gemma 3 270M on real text over four devices
	@scripts/demo.sh

asan: setup  ## Unit tests under AddressSanitizer and UBSan
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan -j $(TEST_JOBS) $(MT_TESTS)

tsan: setup  ## Unit tests under ThreadSanitizer
	@cmake --preset tsan >/dev/null
	@cmake --build --preset tsan -j $(JOBS)
	@ctest --preset tsan -j $(TEST_JOBS) $(MT_TESTS)

fuzz:  ## Each parser's fuzz target for FUZZ_SECONDS (60); needs clang
	@MT_WITH_CLANG=1 scripts/setup.sh
	@scripts/fuzz.sh

format:  ## clang-format every source in place
	@scripts/check_style.sh --fix

clean:  ## Remove what was built; .deps stays
	rm -rf build build-*/ out

distclean: clean  ## Remove .deps too
	rm -rf .deps
