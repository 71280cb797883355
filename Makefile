# A thin layer over Meson. Each target first installs what it misses (scripts/setup.sh).
#
#   make run         the first minute: build, compile a model's kernels, try them
#   make test        every test but the long ones; the last line counts them
#   make test-torch  the Python package: PyTorch into build/torch-venv (5 GB the first time), its tests
#   make test-full   the whole compile matrix, mutants, sanitizers, clang, CUDA 12, formatting
#   make test-torture  the cache and the parsers: kills, faults, full disks, fuzzing; a table

.PHONY: build run test test-torch test-full test-torture format clean

build:
	@scripts/setup.sh build
	@scripts/build.sh

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

format:
	@scripts/setup.sh format
	@scripts/format.sh --fix

clean:
	rm -rf build build-asan build-tsan build-clang build-fuzz
