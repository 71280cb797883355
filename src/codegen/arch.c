/* See arch.h. */
#include "codegen/arch.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "codegen/spec/names.h"

enum { KB = 1024, REGISTERS = 64 * KB, RESERVED = 1 * KB };

/* Name, capability, KB of shared memory per block and per multiprocessor, resident threads per
 * multiprocessor. Ascending by capability; an `a` name directly after its plain one. */
#define ENTRY(name, major, minor, block, multiprocessor, threads, wgmma)                           \
    {                                                                                              \
        name, major, minor, (block)*KB, (multiprocessor)*KB, RESERVED, REGISTERS, threads, wgmma,  \
            (major) >= 9                                                                           \
    }
#define ARCH(name, major, minor, block, multiprocessor, threads)                                   \
    ENTRY(name, major, minor, block, multiprocessor, threads, 0)
#define ARCH_WGMMA(name, major, minor, block, multiprocessor, threads)                             \
    ENTRY(name, major, minor, block, multiprocessor, threads, 1)

static const struct smelt__arch archs[] = {
    ARCH("sm_80", 8, 0, 163, 164, 2048),   ARCH("sm_86", 8, 6, 99, 100, 1536),
    ARCH("sm_87", 8, 7, 163, 164, 1536),   ARCH("sm_89", 8, 9, 99, 100, 1536),
    ARCH("sm_90", 9, 0, 227, 228, 2048),   ARCH_WGMMA("sm_90a", 9, 0, 227, 228, 2048),
    ARCH("sm_100", 10, 0, 227, 228, 2048), ARCH("sm_100a", 10, 0, 227, 228, 2048),
    ARCH("sm_103", 10, 3, 227, 228, 2048), ARCH("sm_103a", 10, 3, 227, 228, 2048),
    ARCH("sm_110", 11, 0, 227, 228, 1536), ARCH("sm_110a", 11, 0, 227, 228, 1536),
    ARCH("sm_120", 12, 0, 99, 100, 1536),  ARCH("sm_120a", 12, 0, 99, 100, 1536),
    ARCH("sm_121", 12, 1, 99, 100, 1536),  ARCH("sm_121a", 12, 1, 99, 100, 1536),
};
enum { ARCH_COUNT = sizeof archs / sizeof archs[0] };

const struct smelt__arch *smelt__arch_at(int index) {
    return index >= 0 && index < ARCH_COUNT ? &archs[index] : NULL;
}

/* GPUs by the names that people use, and the architecture that smelt__arch_for_capability chooses for
 * them. */
static const struct smelt__gpu gpus[] = {
    {"a30", "sm_80"},     {"a100", "sm_80"},     {"a800", "sm_80"},      {"a10", "sm_86"},
    {"a40", "sm_86"},     {"rtxa6000", "sm_86"}, {"rtx3090", "sm_86"},   {"orin", "sm_87"},
    {"l4", "sm_89"},      {"l40", "sm_89"},      {"l40s", "sm_89"},      {"rtx4090", "sm_89"},
    {"h20", "sm_90a"},    {"h100", "sm_90a"},    {"h200", "sm_90a"},     {"h800", "sm_90a"},
    {"gh200", "sm_90a"},  {"b200", "sm_100a"},   {"gb200", "sm_100a"},   {"b300", "sm_103a"},
    {"gb300", "sm_103a"}, {"thor", "sm_110a"},   {"rtx5090", "sm_120a"}, {"rtxpro6000", "sm_120a"},
    {"gb10", "sm_121a"},
};
enum { GPU_COUNT = sizeof gpus / sizeof gpus[0] };

const struct smelt__gpu *smelt__gpu_at(int index) {
    return index >= 0 && index < GPU_COUNT ? &gpus[index] : NULL;
}

static const struct smelt__arch *find(const char *name) {
    for (int i = 0; i < ARCH_COUNT; i++)
        if (strcmp(archs[i].name, name) == 0)
            return &archs[i];
    return NULL;
}

static int is_specific(const struct smelt__arch *arch) {
    return arch->name[strlen(arch->name) - 1] == 'a';
}

/* Lists the architectures and GPUs. Suggests the nearest name, but none for a misspelt
 * architecture: names that differ in a digit are different GPUs. */
static void refuse(struct smelt__message *message, const char *name) {
    const char *names[ARCH_COUNT + GPU_COUNT + 1] = {0};
    char list[512] = "known: ";
    size_t used = strlen(list);
    int count = 0;
    for (int i = 0; i < ARCH_COUNT; i++) {
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", archs[i].name);
        if (i + 1 == ARCH_COUNT || !is_specific(&archs[i + 1]))
            names[count++] = archs[i].name;
    }
    used += (size_t)snprintf(list + used, sizeof list - used, "; by GPU: ");
    for (int i = 0; i < GPU_COUNT; i++) {
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", gpus[i].name);
        names[count++] = gpus[i].name;
    }
    const char *nearest = strncmp(name, "sm_", 3) ? smelt__nearest_name(name, names) : NULL;
    smelt__message_set(message, "no architecture or GPU '%.40s'%s%s%s; %s", name,
                       nearest ? ", did you mean " : "", nearest ? nearest : "", nearest ? "?" : "",
                       list);
}

const struct smelt__arch *smelt__arch_find(const char *name, struct smelt__message *message) {
    const struct smelt__arch *arch = find(name);
    for (int i = 0; i < GPU_COUNT && !arch; i++)
        if (strcasecmp(gpus[i].name, name) == 0)
            arch = find(gpus[i].arch);
    if (!arch)
        refuse(message, name);
    return arch;
}

const struct smelt__arch *smelt__arch_for_capability(int major, int minor,
                                                     struct smelt__message *message) {
    const struct smelt__arch *best = NULL;
    for (int i = 0; i < ARCH_COUNT; i++) {
        const struct smelt__arch *arch = &archs[i];
        if (arch->capability_major != major || arch->capability_minor > minor)
            continue;
        /* An `a` kernel runs on exactly its own capability. */
        if (is_specific(arch) && arch->capability_minor != minor)
            continue;
        best = arch;
    }
    if (!best && major < 8)
        smelt__message_set(message,
                           "compute capability %d.%d is too old: smelt needs 8.0 (A100) or newer",
                           major, minor);
    else if (!best)
        smelt__message_set(message,
                           "compute capability %d.%d is not known to this version of smelt, which "
                           "supports major versions 8 to %d",
                           major, minor, archs[ARCH_COUNT - 1].capability_major);
    return best;
}
