/*
 * wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions") and
 * setmaxnreg. Each of the four warps computes its 16 rows independently: an instruction is one
 * product per warp, complete for that warp at its own wait.
 */
#include "emu/instructions/wgmma.h"

#include <stdlib.h>
#include <string.h>

#include "emu/formats/layout.h"
#include "emu/formats/numbers.h"
#include "emu/machine/collective.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/memory/clock.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

enum {
    REMEMBERED = 64, /* products of a warpgroup kept for comparison between warps */
    ROWS = 64,
    TILE_STEPS = 4,     /* products of a tile, each of depth 16 */
    STEP_REGISTERS = 4, /* of A, per lane */
    STEP = 32 / 16,     /* in a descriptor, within 128-byte lines */
    TRANSPOSED_STEP = 16 * 128 / 16,
    SMALLEST_REGISTERS = 24,
    LARGEST_REGISTERS = 256
};

/* The part of a product on which all four warps must agree. */
struct form {
    u32 number;
    int columns, accumulate, from_registers;
    u64 a, b;
    site at;
};

struct product {
    struct form form;
    enum emu_element element;
    struct emu_operand a, b;
    float *d[WARP];
    const u32 *a_registers[WARP];
    bool done;
    site at;
};

/* One lane's arguments. */
struct issued {
    float *d;
    const u32 *a_registers; /* NULL: A by descriptor */
    u64 a, b;
    int columns, a_transposed, b_transposed, accumulate, element;
};

/* By the gang's warpgroup and the product's number, modulo REMEMBERED. */
static struct form forms[MAX_WARPS / WARPGROUP_WARPS][REMEMBERED];

static int quarter(const struct warp *warp) {
    return warp->index % WARPGROUP_WARPS;
}

/* ---- operands in shared memory --------------------------------------------------------------- */

static const u8 *operand_memory(const struct warp *warp) {
    return warp->cta->arena;
}

typedef void (*piece_function)(struct cta *cta, u32 offset, u32 bytes,
                               const struct product *product);

static void begin_piece(struct cta *cta, u32 offset, u32 bytes, const struct product *product) {
    emu_shared_read_begin(cta, offset, bytes, product->at);
}

static struct epoch ending; /* of the product that end_piece completes */

static void end_piece(struct cta *cta, u32 offset, u32 bytes, const struct product *product) {
    emu_shared_read_end(cta, offset, bytes, ending, product->at);
}

static void each_piece(const struct warp *warp, const struct emu_operand *operand, int first,
                       int count, const struct product *product, piece_function each) {
    struct emu_piece pieces[EMU_OPERAND_PIECES];
    int number = emu_operand_pieces(operand, first, count, pieces);
    (void)warp;
    for (int i = 0; i < number; i++) {
        struct shared_location location = emu_shared_location(pieces[i].address, pieces[i].bytes,
                                                              16, "wgmma's operand", product->at);
        each(location.cta, location.offset, pieces[i].bytes, product);
    }
}

/* The operands that this warp may read: all of A and B. Its result needs 16 rows of A, but PTX does
 * not promise that it reads no others. */
static void each_operand(const struct warp *warp, const struct product *product,
                         piece_function each) {
    if (!product->form.from_registers)
        each_piece(warp, &product->a, 0, ROWS, product, each);
    each_piece(warp, &product->b, 0, product->form.columns, product, each);
}

static void decode(struct emu_operand *operand, u64 descriptor, int rows, bool transposed,
                   enum emu_element element, const char *name, site at) {
    emu_operand_decode(operand, descriptor, rows, transposed, element == EMU_BF16 ? 2 : 1);
    const char *problem = emu_operand_problem(operand);
    if (problem)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: wgmma's descriptor of %s: %s {1}",
                  emu_thread_name(emu.self), name, problem);
}

/* ---- effect ---------------------------------------------------------------------------------- */

static void take_effect(struct warp *warp, struct product *product) {
    u8 a[EMU_QUARTER_ROWS][EMU_DEPTH_BYTES], b[EMU_WGMMA_COLUMNS][EMU_DEPTH_BYTES];
    if (product->done)
        return;
    product->done = true;
    if (product->form.from_registers)
        emu_wgmma_a_registers(product->a_registers, product->element, a);
    else
        emu_operand_load(&product->a, EMU_QUARTER_ROWS * quarter(warp), EMU_QUARTER_ROWS,
                         operand_memory(warp), SHARED_BASE, a);
    emu_operand_load(&product->b, 0, product->form.columns, operand_memory(warp), SHARED_BASE, b);
    emu_wgmma_quarter(product->d, product->form.columns, product->element, product->form.accumulate,
                      (const u8(*)[EMU_DEPTH_BYTES])a, (const u8(*)[EMU_DEPTH_BYTES])b);
}

/* In order: later products accumulate onto earlier ones. */
static void complete_until(struct warp *warp, int count) {
    for (int i = 0; i < count; i++)
        take_effect(warp, &warp->products[i]);
}

/* Completes the warp's oldest `count` products, ordered before its threads' next actions. */
static void finish(struct warp *warp, int count) {
    u16 slot = emu_product_slot(warp);
    complete_until(warp, count);
    for (int i = 0; i < count; i++) {
        struct product *product = &warp->products[i];
        ending = (struct epoch){slot, product->form.number + 1};
        each_operand(warp, product, end_piece);
        for (int lane = 0; lane < WARP; lane++)
            emu_registers_release(warp->threads[lane], product->form.number);
    }
    memmove(warp->products, warp->products + count,
            (size_t)(warp->product_count - count) * sizeof *warp->products);
    warp->product_count -= count;
    warp->products_done += (u32)count;
    for (int lane = 0; lane < WARP; lane++)
        emu_clock_learn(warp->threads[lane], slot, warp->products_done);
}

/* ---- issue ----------------------------------------------------------------------------------- */

/* The four warps must issue the same products in the same order. */
static void compare_warps(const struct warp *warp, const struct form *form, site at) {
    struct form *first = &forms[warp->number / WARPGROUP_WARPS][form->number % REMEMBERED];
    if (first->number != form->number || first->at == 0) {
        *first = *form;
        first->at = at;
        return;
    }
    if (first->columns != form->columns || first->accumulate != form->accumulate ||
        first->from_registers != form->from_registers || first->a != form->a || first->b != form->b)
        emu_fatal(EMU_CONVERGENCE, at, first->at,
                  "wgmma number %u of warp %d {1} differs from its warpgroup's other warps' {2}",
                  form->number, warp->index);
}

static struct product *new_product(struct warp *warp, site at) {
    if (warp->product_count == warp->product_capacity) {
        int more = warp->product_capacity ? 2 * warp->product_capacity : 64;
        struct product *larger = realloc(warp->products, (size_t)more * sizeof *larger);
        if (!larger)
            emu_fatal(EMU_ILLEGAL, at, 0, "out of memory");
        warp->products = larger;
        warp->product_capacity = more;
    }
    return &warp->products[warp->product_count];
}

static void take_lanes(struct warp *warp, void **arguments, struct product *product, site at) {
    const struct issued *first = arguments[0];
    for (int lane = 0; lane < WARP; lane++) {
        const struct issued *issued = arguments[lane];
        struct thread *thread = warp->threads[lane];
        if (issued->a != first->a || issued->b != first->b ||
            issued->accumulate != first->accumulate || issued->columns != first->columns ||
            issued->a_transposed != first->a_transposed ||
            issued->b_transposed != first->b_transposed || issued->element != first->element)
            emu_fatal(EMU_CONVERGENCE, at, 0,
                      "%s: its wgmma's form or descriptors differ from lane 0's {1}",
                      emu_thread_name(thread));
        if (!thread->fence_executed)
            emu_report(EMU_REGISTERS, at, 0, "%s: wgmma without any wgmma.fence before it {1}",
                       emu_thread_name(thread));
        u32 number = product->form.number, bytes = (u32)first->columns / 2 * 4;
        emu_registers_check(thread, issued->d, bytes, true, at);
        emu_registers_use(thread, issued->d, bytes, number, true, at);
        product->d[lane] = issued->d;
        product->a_registers[lane] = issued->a_registers;
        if (issued->a_registers) {
            emu_registers_check(thread, issued->a_registers, 16, false, at);
            emu_registers_use(thread, issued->a_registers, 16, number, false, at);
        }
    }
}

static void execute_wgmma(struct warp *warp, u32 mask, void **arguments, site at) {
    const struct issued *first = arguments[0];
    struct product *product = new_product(warp, at);
    (void)mask;
    memset(product, 0, sizeof *product);
    product->at = at;
    product->element = (enum emu_element)first->element;
    product->form = (struct form){warp->products_issued,
                                  first->columns,
                                  first->accumulate,
                                  first->a_registers != NULL,
                                  first->a,
                                  first->b,
                                  at};
    compare_warps(warp, &product->form, at);
    take_lanes(warp, arguments, product, at);
    if (!product->form.from_registers)
        decode(&product->a, first->a, ROWS, first->a_transposed != 0, product->element, "A", at);
    decode(&product->b, first->b, first->columns, first->b_transposed != 0, product->element, "B",
           at);
    each_operand(warp, product, begin_piece);
    warp->product_count++;
    warp->products_issued++;
    if (emu_takes_effect_now())
        complete_until(warp, warp->product_count);
}

static void check_warpgroup(const char *name, site at) {
    const struct warp *warp = emu.self->warp;
    int first = warp->index / WARPGROUP_WARPS * WARPGROUP_WARPS;
    if ((first + WARPGROUP_WARPS) * WARP > emu.cta_threads)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: %s outside a whole warpgroup {1}",
                  emu_thread_name(emu.self), name);
}

static void issue(struct issued *issued, site at) {
    check_warpgroup("wgmma", at);
    if (issued->columns < 8 || issued->columns > EMU_WGMMA_COLUMNS || issued->columns % 8 != 0 ||
        (issued->element != EMU_BF16 && (issued->a_transposed || issued->b_transposed)))
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: a wgmma of %d columns%s {1}", emu_thread_name(emu.self),
                  issued->columns,
                  issued->element != EMU_BF16 ? ", transposed although not of 16-bit elements"
                                              : "");
    emu_collective_whole("wgmma", execute_wgmma, issued, at);
}

/* A descriptor's increment per 16 of depth, with a 128-byte swizzle. */
static u64 tile_step(int transposed) {
    return transposed ? TRANSPOSED_STEP : STEP;
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_wgmma(float *d, int columns, const unsigned *a_registers, unsigned long long a,
                          unsigned long long b, int a_transposed, int b_transposed, int accumulate,
                          int element) {
    struct issued issued = {
        d, a_registers, a, b, columns, a_transposed, b_transposed, accumulate != 0, element};
    issue(&issued, EMU_SITE);
}

EMU_EXPORT void emu_wgmma_tile(float *d, int columns, const unsigned *a_registers,
                               unsigned long long a, unsigned long long b, int a_transposed,
                               int b_transposed, int accumulate) {
    for (unsigned k = 0; k < TILE_STEPS; k++) {
        struct issued issued = {d,
                                a_registers ? a_registers + k * STEP_REGISTERS : NULL,
                                a_registers ? 0 : a + k * tile_step(a_transposed),
                                b + k * tile_step(b_transposed),
                                columns,
                                a_transposed,
                                b_transposed,
                                k > 0 || accumulate,
                                EMU_BF16};
        issue(&issued, EMU_SITE);
    }
}

static void execute_fence(struct warp *warp, u32 mask, void **arguments, site at) {
    (void)mask;
    (void)arguments;
    (void)at;
    for (int lane = 0; lane < WARP; lane++) {
        warp->threads[lane]->fences = ++emu.fences;
        warp->threads[lane]->fence_executed = true;
    }
}

EMU_EXPORT void emu_wgmma_fence(void) {
    site at = EMU_SITE;
    check_warpgroup("wgmma.fence", at);
    emu_collective_whole("wgmma.fence", execute_fence, NULL, at);
}

static void execute_commit(struct warp *warp, u32 mask, void **arguments, site at) {
    (void)mask;
    (void)arguments;
    if (warp->product_group_count == warp->product_group_capacity) {
        int more = warp->product_group_capacity ? 2 * warp->product_group_capacity : 16;
        u32 *larger = realloc(warp->product_groups, (size_t)more * sizeof *larger);
        if (!larger)
            emu_fatal(EMU_ILLEGAL, at, 0, "out of memory");
        warp->product_groups = larger;
        warp->product_group_capacity = more;
    }
    warp->product_groups[warp->product_group_count++] = warp->products_issued;
}

EMU_EXPORT void emu_wgmma_commit(void) {
    emu_collective_whole("wgmma.commit_group", execute_commit, NULL, EMU_SITE);
}

static void execute_wait(struct warp *warp, u32 mask, void **arguments, site at) {
    int done = warp->product_group_count - *(const int *)arguments[0];
    (void)mask;
    (void)at;
    if (done <= 0)
        return;
    finish(warp, (int)(warp->product_groups[done - 1] - warp->products_done));
    memmove(warp->product_groups, warp->product_groups + done,
            (size_t)(warp->product_group_count - done) * sizeof *warp->product_groups);
    warp->product_group_count -= done;
}

EMU_EXPORT void emu_wgmma_wait(int pending) {
    emu_collective_whole("wgmma.wait_group", execute_wait, &pending, EMU_SITE);
}

/* ---- leaving --------------------------------------------------------------------------------- */

void emu_products_leave(struct thread *thread) {
    const struct warp *warp = thread->warp;
    if (thread->lane != 0)
        return;
    if (warp->product_count > 0)
        emu_report(EMU_LEFTOVER, warp->products[warp->product_count - 1].at, 0,
                   "%s exits with wgmmas under way, the last issued {1}", emu_thread_name(thread));
}

/* Called at the gang's end. */
void emu_products_free(struct warp *warp) {
    free(warp->products);
    free(warp->product_groups);
}

void emu_products_begin(void) {
    memset(forms, 0, sizeof forms);
}

/* All warps of a warpgroup must issue equally many products and set equal register counts. */
void emu_products_compare(void) {
    for (int i = 0; i < emu.warp_count; i++) {
        const struct warp *warp = &emu.warps[i], *first = warp - quarter(warp);
        if (warp->products_issued != first->products_issued)
            emu_report(EMU_CONVERGENCE, 0, 0,
                       "warp %d issued %u wgmmas, its warpgroup's first warp %u", warp->index,
                       warp->products_issued, first->products_issued);
        if (warp->registers != first->registers)
            emu_report(EMU_CONVERGENCE, 0, 0,
                       "warp %d set %d registers by setmaxnreg, its warpgroup's first warp %d "
                       "(0: none)",
                       warp->index, warp->registers, first->registers);
    }
}

/* ---- setmaxnreg ------------------------------------------------------------------------------ */

/* Registers per thread at launch: what __launch_bounds__(threads, 1) leaves. */
static int launch_registers(void) {
    int registers = 65536 / emu.cta_threads / 8 * 8;
    return registers > LARGEST_REGISTERS - 8 ? LARGEST_REGISTERS - 8 : registers;
}

struct resize {
    int registers, increase;
};

/* The block's registers at launch. */
static int pool(void) {
    return launch_registers() * emu.cta_threads;
}

static void execute_resize(struct warp *warp, u32 mask, void **arguments, site at) {
    const struct resize *resize = arguments[0];
    int now = warp->registers ? warp->registers : launch_registers();
    (void)mask;
    if (resize->increase ? resize->registers < now : resize->registers > now)
        emu_fatal(EMU_ILLEGAL, at, 0, "warp %d: setmaxnreg.%s to %d from %d registers {1}",
                  warp->index, resize->increase ? "inc" : "dec", resize->registers, now);
    if (warp->cta->registers_taken == 0)
        warp->cta->registers_taken = pool();
    warp->cta->registers_taken += (resize->registers - now) * WARP;
    warp->registers = resize->registers;
}

EMU_EXPORT void emu_registers(int registers, int increase) {
    site at = EMU_SITE;
    struct thread *self = emu.self;
    struct resize resize = {registers, increase};
    check_warpgroup("setmaxnreg", at);
    if (registers < SMALLEST_REGISTERS || registers > LARGEST_REGISTERS || registers % 8 != 0)
        emu_fatal(EMU_ILLEGAL, at, 0,
                  "%s: setmaxnreg of %d; multiples of 8 from 24 to 256 are legal {1}",
                  emu_thread_name(self), registers);
    emu_collective_whole("setmaxnreg", execute_resize, &resize, at);
    /* An increase waits until the block's registers suffice. */
    while (increase && self->cta->registers_taken > pool())
        emu_poll("setmaxnreg.inc", at);
}
