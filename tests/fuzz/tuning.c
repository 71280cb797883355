/* The parser of lines of the tuning file: a parsed line can be printed and parsed again. */
#include <string.h>

#include "fuzz.h"
#include "runtime/tuning/file.h"

static void require_printed_again(const struct smelt__tuning_line *line) {
    struct smelt__text text = {0};
    struct smelt__tuning_line again;
    struct smelt__message message;
    smelt__tuning_line_print(line, &text);
    FUZZ_REQUIRE(!text.failed && text.length > 0 && text.data[text.length - 1] == '\n');
    FUZZ_REQUIRE(smelt__tuning_line_parse(text.data, text.length - 1, &again, &message) == 1);
    FUZZ_REQUIRE(!strcmp(again.spec, line->spec));
    FUZZ_REQUIRE(!strcmp(again.device, line->device));
    FUZZ_REQUIRE(!strcmp(again.knobs, line->knobs));
    FUZZ_REQUIRE(again.microseconds > 0);
    smelt__text_free(&text);
}

/* Inputs are single lines, because lines do not affect each other. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *newline = memchr(text, '\n', size);
    size_t length = newline ? (size_t)(newline - text) : size;
    struct smelt__tuning_line line;
    struct smelt__message message = {0};
    int result = smelt__tuning_line_parse(text, length, &line, &message);
    FUZZ_REQUIRE(result >= -1 && result <= 1);
    if (result < 0)
        FUZZ_REQUIRE(message.text[0] != '\0');
    if (result == 1)
        require_printed_again(&line);
    return 0;
}
