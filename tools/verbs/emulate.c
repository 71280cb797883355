/* smelt emulate: runs a program on the emulator. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "../tool.h"

int tool_run_emulate(const struct tool_options *options) {
    const int64_t count = options->arguments.count;
    if (!count)
        return tool_fail(options, TOOL_USAGE, "name a program: smelt emulate -- ./program");
    const int status = tool_open_emulator(options); /* sets SMELT_CUDA and SMELT_NVRTC */
    if (status != TOOL_OK)
        return status;
    char **program = tool_allocate(NULL, (size_t)count + 1, sizeof *program);
    for (int64_t i = 0; i < count; i++)
        program[i] = tool_copy(options->arguments.items[i]);
    program[count] = NULL;
    execvp(program[0], program);
    return tool_fail(options, TOOL_FAILED, "%s cannot be run: %s", program[0], strerror(errno));
}
