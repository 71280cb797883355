/* The parser of manifests: it refuses an input with exactly one message, which has the line. */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "fuzz.h"
#include "tool.h"

static const char path[] = "manifest.json";
static int refusals;

/* ---- in place of the command's output.c ---------------------------------------- */

int tool_fail(const struct tool_options *options, int exit_status, const char *format, ...) {
    static char message[16384];
    va_list arguments;
    const char *line = message + sizeof path;
    (void)options;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    refusals++;
    FUZZ_REQUIRE(exit_status == TOOL_USAGE);
    FUZZ_REQUIRE(!strncmp(message, path, sizeof path - 1));
    if (strstr(message, ": longer than"))
        return exit_status;
    /* manifest.json:LINE: why */
    FUZZ_REQUIRE(line[-1] == ':' && isdigit((unsigned char)*line));
    FUZZ_REQUIRE(atoi(line) >= 1);
    line += strspn(line, "0123456789");
    FUZZ_REQUIRE(line[0] == ':' && line[1] == ' ' && line[2]);
    return exit_status;
}

void tool_say(const struct tool_options *options, const char *format, ...) {
    (void)options, (void)format;
}

int tool_fail_status(const struct tool_options *options, smelt_status status) {
    (void)status;
    return tool_fail(options, TOOL_FAILED, "%s", smelt_last_error());
}

/* ---- the target ------------------------------------------------------------------------------ */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tool_options options = {0};
    struct tool_list specs = {0}, archs = {0};
    char *text = malloc(size + 1), *canonical;
    FUZZ_REQUIRE(text);
    memcpy(text, data, size);
    text[size] = '\0';
    refusals = 0;
    int status = tool_manifest_parse(&specs, &archs, &options, path, text, size);
    FUZZ_REQUIRE(refusals == (status != TOOL_OK));
    for (size_t i = 0; i < specs.count; i++) {
        FUZZ_REQUIRE(smelt_spec_canonical(specs.items[i], &canonical) == SMELT_OK);
        FUZZ_REQUIRE(!strcmp(canonical, specs.items[i]));
        smelt_free(canonical);
    }
    tool_list_free(&specs);
    tool_list_free(&archs);
    free(text);
    return 0;
}
