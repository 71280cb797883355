"""`python -m smelt_kernels` is the command `smelt`."""

import os
import sys


def main() -> None:
    from ._runtime import command_environment, package_file

    command = package_file("bin", "smelt")
    if not os.path.isfile(command):
        sys.exit("smelt: this package was built without the command (meson's option `tools`)")
    os.execve(command, ["smelt", *sys.argv[1:]], command_environment())


if __name__ == "__main__":
    main()
