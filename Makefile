# SPDX-License-Identifier: MPL-2.0
# For people. Meson does the work (tools/build says which builds there are); every target that needs
# packages first runs tools/deps, which installs what is missing or says how to.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help deps build quick check soak bench demo format clean

help: ## this text
	@echo "Holdfast: disks become one protected pool, served over iSCSI."
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

deps: ## install every Debian package that building, testing and the demo need
	@tools/deps build test demo

build: ## the program: build/holdfast
	@tools/deps build
	@tools/build --no-tests release

quick: ## build, unit tests, source checks, 50 simulated worlds: under a minute
	@tools/deps build test
	@tools/check-run --tier quick

check: ## all that CI runs: at most 15 minutes on two cores
	@tools/deps build test demo
	@tools/check-run

soak: ## the long runs (hours); appends what came out to docs/SOAK.md
	@tools/deps build test demo
	@tools/soak

bench: ## the figures of docs/PERFORMANCE.md
	@tools/deps build
	@tools/build --no-tests release
	@tools/bench

demo: ## a RAID 6 pool of six files, a LUN, served on 127.0.0.1 (DEMO=once, LISTEN=ADDR)
	@tools/deps build demo
	@tools/build --no-tests release
	@DEMO='$(DEMO)' LISTEN='$(LISTEN)' tools/demo

format: ## lay out all C files with clang-format
	@tools/deps test
	@tools/check-style --fix

clean: ## remove every build folder (pools and ./demo stay)
	@rm -rf build build-*
