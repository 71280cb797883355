/* tensors SPEC...: the library's descriptions, a line for each tensor of each pass. tables.py compares
 * documents with them. */
#include <stdio.h>
#include <stdlib.h>

#include "smelt/smelt.h"

static void need(smelt_status status) {
    if (status == SMELT_OK)
        return;
    fprintf(stderr, "tensors: %s\n", smelt_last_error());
    exit(1);
}

/* The args struct, name, shape, element, role, optional, one_of, key. */
static void print_tensor(const char *args_type, const smelt_tensor_info *info) {
    static const char *const roles[] = {"input", "output", "accumulated"};
    printf("%s %s ", args_type, info->name);
    for (int i = 0; i < info->dimensions; i++)
        printf("%s%s", i ? "," : "", info->shape[i]);
    printf(" %s %s %d %d %s\n", info->element, roles[info->role], info->optional, info->one_of,
           *info->key ? info->key : "-");
}

static void print_pass(const char *spec, enum smelt_pass pass) {
    smelt_pass_info info = SMELT_PASS_INFO_INIT;
    unsigned passes;
    need(smelt_operator_describe(spec, pass, &passes, NULL));
    if (!(passes & pass))
        return;
    need(smelt_operator_describe(spec, pass, &passes, &info));
    for (int i = 0; i < info.tensors; i++) {
        smelt_tensor_info tensor = SMELT_TENSOR_INFO_INIT;
        need(smelt_operator_get_tensor(spec, pass, i, &tensor));
        print_tensor(info.args_type, &tensor);
    }
}

int main(int count, char **specs) {
    for (int i = 1; i < count; i++) {
        print_pass(specs[i], SMELT_PASS_FORWARD);
        print_pass(specs[i], SMELT_PASS_BACKWARD);
    }
    return 0;
}
