/*
 * What all public operators have in common, written once: from the public spec struct to a checked
 * spec and back, from a spec to loaded kernels, and their figures.
 */
#ifndef SMELT_OPS_OPERATOR_H
#define SMELT_OPS_OPERATOR_H

#include "codegen/family.h"
#include "runtime/abi.h"
#include "runtime/kernel.h"
#include "smelt/kernels.h"

/* An operator's kernels; the head of each public operator's own struct. Immutable once made. */
struct smelt__operator {
    smelt_context *context;
    unsigned passes;
    int count;
    const struct smelt__kernel *kernels[SMELT__MAX_KERNELS]; /* pass after pass, in launch order;
                                                                the context's */
    unsigned char pass[SMELT__MAX_KERNELS];
};

/* Of a public spec struct; each operator asserts that its own is no larger. */
enum { SMELT__MOST_SPEC_BYTES = 1024 };

/* How a public spec struct says a family's keys. */
struct smelt__spec_table {
    const struct smelt__family *family;
    const struct smelt__struct *about; /* the struct, for messages and its size */
    const char *object;                /* what create's first argument is called: "attn" */
    size_t object_bytes;               /* of what it makes, which begins with smelt__operator */
    const struct smelt__spec_field {
        const char *key;
        size_t field; /* an int's offset */
    } * fields;
    int count;
    size_t knobs;          /* offset of a const char * */
    size_t passes;         /* offset of an unsigned; 0: there is none */
    size_t reserved;       /* offset of an int that is to be 0; 0: there is none */
    const char *list;      /* the family's list key, NULL: none */
    size_t list_field;     /* offset of an int[SMELT__MAX_LIST], ended by 0 */
    const char *list_auto; /* what its first number, -1, is called: by rule */
};

/* A caller's struct, of whatever version, as a checked spec. INVALID_ARGUMENT, INVALID_SPEC. */
smelt_status smelt__operator_read_spec(const struct smelt__spec_table *table, const void *given,
                                       struct smelt__spec *spec);

/* The public calls ..._spec_print and ..._spec_parse. */
smelt_status smelt__operator_print_spec(const struct smelt__spec_table *table, const void *given,
                                        char **text);
smelt_status smelt__operator_parse_spec(const struct smelt__spec_table *table, const char *text,
                                        void *given, char **knobs);

/* The public call ..._supported: whether each kernel has a plan. */
smelt_status smelt__operator_supported(const struct smelt__spec_table *table,
                                       const smelt_context *context, const void *given,
                                       const char **why);

/*
 * The public call ..._create, but for what an operator keeps besides its kernels: plans, compiles
 * and loads all that the spec needs. `object`: the caller's smelt_STEM **; receives the object,
 * zeroed behind its head, to be freed by free, or NULL on failure. *spec (or NULL): the spec,
 * checked.
 */
smelt_status smelt__operator_create(const struct smelt__spec_table *table, void *object,
                                    smelt_context *context, const void *given,
                                    struct smelt__spec *spec);

/* The public call ..._destroy. `object`: the caller's smelt_STEM **, or NULL; becomes NULL. The
 * kernels are the context's. */
void smelt__operator_destroy(void *object);

/* The kernels of a pass: the first one's number, and how many there are in *count. */
int smelt__operator_pass(const struct smelt__operator *made, unsigned pass, int *count);

/* OK, or INVALID_ARGUMENT for a call of a pass the operator was not made for. */
smelt_status smelt__operator_need_pass(const struct smelt__operator *made, unsigned pass);

/* The public call ..._get_kernel_info. */
smelt_status smelt__operator_get_kernel_info(const struct smelt__operator *made, unsigned pass,
                                             int index, smelt_kernel_info *info);

/* Whether a grid for `items` can be had of each kernel of a pass that has items. */
smelt_status smelt__operator_check_grid(const struct smelt__operator *made, unsigned pass,
                                        int64_t items);

/* Blocks that a launch has at most so that `free_multiprocessors` stay free for other streams, one
 * at least being used; 0 leaves it to the kernel's most_blocks. The kernel must go through all of
 * its items whatever its grid. */
int64_t smelt__blocks_beside(const struct smelt__kernel *kernel, int64_t free_multiprocessors);

/* Blocks for `items` of a kernel, at most `most`. */
uint32_t smelt__blocks_for(const struct smelt__kernel *kernel, int64_t items, int64_t most);

#endif
