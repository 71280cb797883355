/* The parser of specs, expansion and plans. */
#include <string.h>

#include "fuzz.h"
#include "smelt/smelt.h"

/* A message is neither empty nor too long. */
static void require_message(void) {
    size_t length = strlen(smelt_last_error());
    FUZZ_REQUIRE(length > 0 && length < 4096);
}

static int plan_kernel(void *user, const char *kernel) {
    static const char *const archs[] = {"sm_90a", "sm_80"};
    (void)user;
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        smelt_status status = smelt_kernel_plan(NULL, kernel, archs[i], i, &text);
        FUZZ_REQUIRE(status == SMELT_OK || status == SMELT_ERROR_UNSUPPORTED);
        if (status)
            require_message();
        else
            FUZZ_REQUIRE(strlen(text) > 0);
        smelt_free(text);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1), *canonical, *again;
    smelt_family_info info = SMELT_FAMILY_INFO_INIT;
    FUZZ_REQUIRE(text);
    memcpy(text, data, size);
    text[size] = '\0';
    smelt_status status = smelt_spec_canonical(text, &canonical);
    if (status) {
        FUZZ_REQUIRE(status == SMELT_ERROR_INVALID_SPEC);
        require_message();
    } else {
        FUZZ_REQUIRE(smelt_spec_canonical(canonical, &again) == SMELT_OK);
        FUZZ_REQUIRE(strcmp(canonical, again) == 0);
        FUZZ_REQUIRE(strlen(canonical) < 256); /* SMELT__SPEC_TEXT: buffers hold it */
        FUZZ_REQUIRE(smelt_family_get_info(text, &info) == SMELT_OK);
        FUZZ_REQUIRE(smelt_spec_expand(NULL, text, NULL, plan_kernel, NULL) == SMELT_OK);
        smelt_free(again);
        smelt_free(canonical);
    }
    free(text);
    return 0;
}
