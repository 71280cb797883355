/* See report.h. */
#include "emu/machine/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/machine/lines.h"
#include "emu/machine/schedule.h"

enum {
    MAX_REPORTS = 4, /* per launch: later ones are mostly consequences of the first */
    TEXT = 4096
};

struct collected {
    enum emu_kind kind;
    site first, second;
    char *text;
};

static struct collected *collected;
static size_t count, capacity, launch_begin;

static const char *const kind_names[EMU_KINDS] = {
    [EMU_RACE] = "race",
    [EMU_UNWAITED] = "unwaited",
    [EMU_OVERWRITTEN] = "overwritten",
    [EMU_PROXY] = "proxy",
    [EMU_REGISTERS] = "registers",
    [EMU_UNINITIALIZED] = "uninitialized",
    [EMU_BOUNDS] = "bounds",
    [EMU_FORBIDDEN] = "forbidden",
    [EMU_ALIGNMENT] = "alignment",
    [EMU_CONVERGENCE] = "convergence",
    [EMU_BARRIER] = "barrier",
    [EMU_DEADLOCK] = "deadlock",
    [EMU_LEFTOVER] = "leftover",
    [EMU_ARITHMETIC] = "arithmetic",
    [EMU_ILLEGAL] = "illegal",
    [EMU_CRASH] = "crash",
    [EMU_TIME] = "time",
    [EMU_STALE] = "stale",
};

const char *emu_kind_name(enum emu_kind kind) {
    return kind < EMU_KINDS ? kind_names[kind] : "?";
}

const char *emu_thread_name(const struct thread *thread) {
    static char buffers[4][96];
    static int next;
    char *text = buffers[next++ % 4];
    const struct cta *cta = thread->cta;
    char rest[32] = ""; /* of the block's coordinates */
    if (emu.grid[2] > 1)
        snprintf(rest, sizeof rest, ",%u,%u", cta->y, cta->z);
    else if (emu.grid[1] > 1)
        snprintf(rest, sizeof rest, ",%u", cta->y);
    snprintf(text, sizeof buffers[0], "block %u%s warp %d lane %d", cta->x, rest,
             thread->warp->index, thread->lane);
    return text;
}

static bool known(enum emu_kind kind, site first, site second) {
    for (size_t i = launch_begin; i < count; i++)
        if (collected[i].kind == kind && collected[i].first == first &&
            collected[i].second == second)
            return true;
    return false;
}

static void add(enum emu_kind kind, site first, site second, const char *format, va_list list) {
    char text[TEXT];
    if (known(kind, first, second))
        return;
    if (count == capacity) {
        size_t more = capacity ? 2 * capacity : 16;
        struct collected *larger = realloc(collected, more * sizeof *collected);
        if (!larger)
            return;
        collected = larger;
        capacity = more;
    }
    vsnprintf(text, sizeof text, format, list);
    collected[count++] = (struct collected){kind, first, second, strdup(text)};
    emu.statistics.reports++;
}

void emu_report(enum emu_kind kind, site first, site second, const char *format, ...) {
    va_list list;
    va_start(list, format);
    add(kind, first, second, format, list);
    va_end(list);
    if (emu.self && count - launch_begin >= MAX_REPORTS)
        emu_end();
}

void emu_fatal(enum emu_kind kind, site first, site second, const char *format, ...) {
    va_list list;
    va_start(list, format);
    add(kind, first, second, format, list);
    va_end(list);
    emu_end();
}

void emu_reports_begin(void) {
    launch_begin = count;
}

/* ---- resolving ------------------------------------------------------------------------------- */

static void append(char *out, size_t *used, const char *text, size_t length) {
    if (*used + length >= 2 * TEXT)
        length = 2 * TEXT - 1 - *used;
    memcpy(out + *used, text, length);
    *used += length;
    out[*used] = '\0';
}

/* Replaces {1}, {2} and {@N} by "(file:line, function)". */
static char *resolve(const struct collected *report, const struct lines *lines) {
    char *out = malloc(2 * TEXT);
    size_t used = 0;
    if (!out)
        return NULL;
    out[0] = '\0';
    for (const char *at = report->text; *at;) {
        unsigned long address = 0;
        const char *end = NULL;
        if (strncmp(at, "{1}", 3) == 0 || strncmp(at, "{2}", 3) == 0) {
            address = at[1] == '1' ? report->first : report->second;
            end = at + 3;
        } else if (strncmp(at, "{@", 2) == 0) {
            char *stop;
            address = strtoul(at + 2, &stop, 10);
            end = *stop == '}' ? stop + 1 : NULL;
        }
        if (end) {
            const char *line = lines_find(lines, (site)address);
            append(out, &used, line, strlen(line));
            at = end;
        } else {
            append(out, &used, at++, 1);
        }
    }
    return out;
}

static size_t list_sites(site *sites, size_t max) {
    size_t listed = 0;
    for (size_t i = launch_begin; i < count && listed + 16 < max; i++) {
        if (collected[i].first)
            sites[listed++] = collected[i].first;
        if (collected[i].second)
            sites[listed++] = collected[i].second;
        for (const char *at = strstr(collected[i].text, "{@"); at && listed < max;
             at = strstr(at + 1, "{@"))
            sites[listed++] = (site)strtoul(at + 2, NULL, 10);
    }
    return listed;
}

size_t emu_reports_end(void) {
    site sites[128];
    if (count > launch_begin) {
        struct lines *lines = lines_resolve(emu.kernel, sites, list_sites(sites, 128));
        for (size_t i = launch_begin; i < count; i++) {
            char *text = resolve(&collected[i], lines);
            if (text) {
                free(collected[i].text);
                collected[i].text = text;
            }
        }
        lines_free(lines);
    }
    return count - launch_begin;
}

/* ---- for the control interface --------------------------------------------------------------- */

const char *emu_first_report(void) {
    return count > launch_begin ? collected[launch_begin].text : "no report";
}

size_t emu_report_count(void) {
    return count;
}

struct emu_report emu_report_at(size_t index) {
    struct emu_report none = {EMU_KINDS, ""};
    if (index >= count)
        return none;
    return (struct emu_report){collected[index].kind, collected[index].text};
}

void emu_reports_clear(void) {
    for (size_t i = 0; i < count; i++)
        free(collected[i].text);
    count = launch_begin = 0;
}
