"""Streams, devices, references: without a GPU, in processes whose driver has two (two_gpus.py)."""

import os
import pathlib
import subprocess
import sys

import pytest
import smelt_kernels as smelt

HERE = pathlib.Path(__file__).parent
CASES = ("test_references.py", "two_gpus_cases.py")


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Compiles two_gpus.c, a layer over the emulator, with the C compiler that the emulator needs, too."""
    emulator = pathlib.Path(smelt.__file__).with_name("libsmelt_emu.so")
    made = tmp_path_factory.mktemp("driver") / "libcuda.so"
    compiler = os.environ.get("CC", "cc").split()
    what = ["-shared", "-fPIC", "-Wall", "-Werror", f'-DEMULATOR="{emulator}"', "-o", made, HERE / "two_gpus.c"]
    subprocess.run(
        [*compiler, *what, "-Wl,--no-as-needed", emulator, f"-Wl,-rpath,{emulator.parent}", "-ldl"], check=True
    )
    return made


@pytest.mark.emulated
def test_with_two_gpus(driver):
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=short",
            *(HERE / each for each in CASES),
        ],
        env={**os.environ, "SMELT_CUDA": str(driver), "SMELT_EMU_DEVICES": "2", "SMELT_TEST_TWO_GPUS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
