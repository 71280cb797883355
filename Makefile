# A thin layer over Meson. Each target first looks for what it needs and names what is missing;
# SETUP=1 installs it (scripts/setup.sh, which also says when it does so unasked).
#
#   make build       the libraries, the command, the emulator, the examples; no tests
#   make install     build, and install: PREFIX=... (default /usr/local), DESTDIR=...
#   make run         the first minutes: build, compile a model's kernels, try them
#   make test        every test but the long ones; the last line counts them
#   make test-torch  the Python package: PyTorch into build/torch-venv (5 GB the first time), its tests
#   make test-full   the whole compile matrix, mutants, sanitizers, clang, CUDA 12, formatting
#   make docs        the documents as a site, build/docs/html/index.html
#   make test-torture  the cache and the parsers: kills, faults, full disks, fuzzing; a table

.PHONY: build install run test test-torch test-full test-torture docs format clean

build:
	@scripts/setup.sh build
	@TARGETS=kit scripts/build.sh

install: build
	@$(if $(PREFIX),meson configure build --prefix="$(abspath $(PREFIX))" && TARGETS=kit scripts/build.sh)
	@meson install -C build --no-rebuild

run: build
	@scripts/run.sh

test:
	@scripts/setup.sh test
	@scripts/test.sh

test-torch:
	@scripts/setup.sh python
	@scripts/test-torch.sh

test-full:
	@scripts/setup.sh full
	@scripts/test-full.sh

test-torture:
	@scripts/setup.sh torture
	@scripts/torture.sh

docs:
	@scripts/setup.sh docs
	@scripts/docs.sh

format:
	@scripts/setup.sh format
	@scripts/format.sh --fix

clean:
	rm -rf build build-python build-asan build-tsan build-clang build-fuzz
