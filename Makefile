# Two commands do everything: `make run` shows Narad at work, `make check` proves it.
# Both first install the Debian packages that are missing. The rest is CMake's (CMakePresets.json).

FILE ?=

.PHONY: run check build stop format lint clean

# Start a node, send every line of a real text file through it, compare, leave the node running.
run:
	.ci/packages.sh product
	cmake --preset release
	cmake --build --preset release
	tests/demo/run.sh $(if $(FILE),"$(FILE)")

# Every build and every test; the last line is the count.
check:
	.ci/packages.sh product test
	.ci/check.sh

# The release build alone, for those who have the packages.
build:
	cmake --preset release
	cmake --build --preset release

# End the node that `make run` left running.
stop:
	tests/demo/run.sh --stop

# Lay out the C sources as tests/tidy/format wants them.
format:
	python3 tests/tidy/format.py --fix

# clang-tidy over the sources of the dev build: slow, so it is no part of `make check`.
lint:
	.ci/packages.sh product test
	cmake --preset dev
	cmake --build --preset dev
	run-clang-tidy-14 -quiet -p build/dev '/(storage|proto|cluster|server|clients|gateway)/[^.]*\.c$$'

clean:
	rm -rf build
