/* See turns.h. */
#include "turns.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "codegen/family.h"
#include "codegen/template/engine.h"

const char *const arch_names[ARCHS] = {"sm_80",   "sm_86",   "sm_89",   "sm_90",  "sm_90a",
                                       "sm_100a", "sm_103a", "sm_120a", "sm_121a"};
/* Equal numbers: one generation of the assembler. */
static const int generations[ARCHS] = {0, 1, 1, 2, 3, 4, 4, 5, 5};

int spec_is_for(const char *spec, const char *arch) {
    static const char *const knobs[] = {"block_keys=", "part_tiles=", "warpgroups=", "racecheck=",
                                        "pv_overlap=", "_registers=", "variant=sm90"};
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
        if (strstr(spec, knobs[i]))
            return strcmp(arch, "sm_90a") == 0;
    return !strstr(spec, "dtype=fp8") ||
           (strcmp(arch, "sm_80") != 0 && strcmp(arch, "sm_86") != 0 && strcmp(arch, "sm_87") != 0);
}

/* FNV-1a, from `hash` on. */
static uint64_t digest(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3U;
    return hash;
}

/* A hash of the emitted text after its banner, which names the architecture; 0: there is no
 * plan. */
static uint64_t text_number(const char *text, const char *arch_name) {
    struct smelt__message message = {0};
    struct smelt__spec spec;
    struct smelt__plan plan;
    struct smelt__text source = {0};
    uint64_t number = 0;
    const struct smelt__arch *arch = smelt__arch_find(arch_name, &message);
    if (arch && smelt__spec_parse(text, &spec, &message) == 0 &&
        smelt__plan_make(&spec, arch, &plan, &message) == 0 &&
        smelt__source_emit(&plan, NULL, &source, &message) == 0 && !source.failed) {
        const char *behind = strstr(source.data, "*/");
        number = behind ? digest(0xcbf29ce484222325U, behind) : 0;
    }
    smelt__text_free(&source);
    return number;
}

/* Selects one of the architectures in `among` for the kernel. */
static int draw(const char *spec, unsigned among) {
    uint64_t hash = digest(0xcbf29ce484222325U, spec);
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9U;
    int skip = (int)((hash >> 32) % (unsigned)__builtin_popcount(among));
    while (skip-- > 0)
        among &= among - 1;
    return __builtin_ctz(among);
}

unsigned kernel_archs(const char *spec, int preset, unsigned supported) {
    uint64_t numbers[ARCHS];
    unsigned left = 0, chosen = 0;
    for (int a = 0; a < ARCHS; a++)
        left |= (supported >> a & 1 && spec_is_for(spec, arch_names[a]) ? 1u : 0u) << a;
    if (preset)
        return left;
    for (int a = 0; a < ARCHS; a++)
        numbers[a] = left >> a & 1 ? text_number(spec, arch_names[a]) : 0;
    for (int a = 0; a < ARCHS; a++) {
        unsigned equal = 1u << a;
        if (!(left >> a & 1))
            continue;
        for (int b = a + 1; b < ARCHS && numbers[a]; b++)
            equal |=
                (left >> b & 1 && generations[b] == generations[a] && numbers[b] == numbers[a] ? 1u
                                                                                               : 0u)
                << b;
        left &= ~equal;
        chosen |= 1u << draw(spec, equal);
    }
    return chosen;
}
