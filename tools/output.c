/* Messages, tables and the progress bar of the `smelt` command. */
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tool.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* The bar and log lines share standard error, and log lines come from any thread. */
static pthread_mutex_t terminal = PTHREAD_MUTEX_INITIALIZER;
static int bar_drawn;

static void erase_bar(void) {
    if (bar_drawn)
        fputs("\r\033[K", stderr);
    bar_drawn = 0;
}

static void say(const struct tool_options *options, const char *message) {
    pthread_mutex_lock(&terminal);
    erase_bar();
    if (options->verb)
        fprintf(stderr, "smelt %s: %s\n", options->verb->name, message);
    else
        fprintf(stderr, "smelt: %s\n", message);
    pthread_mutex_unlock(&terminal);
}

static char *format_text(const char *format, va_list arguments) {
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        tool_die_of_memory();
    return text;
}

void tool_say(const struct tool_options *options, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *message = format_text(format, arguments);
    va_end(arguments);
    say(options, message);
    free(message);
}

int tool_fail(const struct tool_options *options, int exit_status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *message = format_text(format, arguments);
    va_end(arguments);
    say(options, message);
    if (options->json)
        tool_print_json(tool_pack("{s:s, s:i}", "error", message, "exit_status", exit_status));
    free(message);
    return exit_status;
}

int tool_exit_of(smelt_status status) {
    switch (status) {
    case SMELT_OK:
        return TOOL_OK;
    case SMELT_ERROR_INVALID_ARGUMENT:
    case SMELT_ERROR_INVALID_SPEC:
    case SMELT_ERROR_UNSUPPORTED:
        return TOOL_USAGE;
    case SMELT_ERROR_NO_DRIVER:
    case SMELT_ERROR_NO_DEVICE:
    case SMELT_ERROR_NO_COMPILER:
        return TOOL_MISSING;
    default:
        return TOOL_FAILED;
    }
}

int tool_exit_join(int status, int part) {
    return part == TOOL_OK ? status : status == TOOL_OK || status == part ? part : TOOL_FAILED;
}

int tool_fail_status(const struct tool_options *options, smelt_status status) {
    const char *message = smelt_last_error();
    return tool_fail(options, tool_exit_of(status), "%s",
                     *message ? message : smelt_status_name(status));
}

void tool_log(void *user, smelt_log_level level, const char *message) {
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    (void)user;
    pthread_mutex_lock(&terminal);
    erase_bar();
    fprintf(stderr, "smelt: %s: %s\n", names[level], message);
    pthread_mutex_unlock(&terminal);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int colours(void) {
    return isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
}

static void add_cell(struct tool_table *table, enum tool_style style, char *text) {
    if (table->count == table->capacity) {
        table->capacity = table->capacity ? 2 * table->capacity : 64;
        table->cells = tool_allocate(table->cells, table->capacity, sizeof *table->cells);
    }
    table->cells[table->count++] = (struct tool_cell){text, style};
}

void tool_table_begin(struct tool_table *table, const char *alignment, const char *const *headers) {
    *table = (struct tool_table){.alignment = alignment, .columns = strlen(alignment)};
    for (size_t i = 0; i < table->columns; i++)
        add_cell(table, TOOL_PLAIN, tool_copy(headers[i]));
}

void tool_table_add(struct tool_table *table, enum tool_style style, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_cell(table, style, format_text(format, arguments));
    va_end(arguments);
}

void tool_table_add_cells(struct tool_table *table, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *const text = format_text(format, arguments), *rest = text;
    va_end(arguments);
    for (char *cell; (cell = strsep(&rest, "\t")) != NULL;)
        add_cell(table, TOOL_PLAIN, tool_copy(cell));
    free(text);
}

static void print_cell(const struct tool_table *table, size_t number, const size_t *widths,
                       int coloured) {
    static const char *const starts[] = {"", "\033[32m", "\033[31m"};
    const struct tool_cell *cell = &table->cells[number];
    size_t column = number % table->columns;
    size_t padding = widths[column] - strlen(cell->text);
    const char *start = number < table->columns ? "\033[1m" : starts[cell->style];
    int right = table->alignment[column] == 'r';
    /* The last column of a line is not padded: no blanks at the ends of lines. */
    int trailing = right || column + 1 == table->columns ? 0 : (int)padding;
    int coloured_cell = coloured && *start && *cell->text;
    printf("  %*s%s%s%s%*s", right ? (int)padding : 0, "", coloured_cell ? start : "", cell->text,
           coloured_cell ? "\033[0m" : "", trailing, "");
    if (column + 1 == table->columns)
        putchar('\n');
}

void tool_table_end(struct tool_table *table) {
    int coloured = colours();
    size_t *widths = tool_allocate(NULL, table->columns, sizeof *widths);
    memset(widths, 0, table->columns * sizeof *widths);
    for (size_t i = 0; i < table->count; i++) {
        size_t length = strlen(table->cells[i].text);
        if (length > widths[i % table->columns])
            widths[i % table->columns] = length;
    }
    for (size_t i = 0; i < table->count; i++) {
        print_cell(table, i, widths, coloured);
        free(table->cells[i].text);
    }
    free(widths);
    free(table->cells);
    *table = (struct tool_table){0};
}

struct tool_size_text tool_size(uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    struct tool_size_text size;
    if (bytes < 1024) {
        snprintf(size.text, sizeof size.text, "%u B", (unsigned)bytes);
        return size;
    }
    double value = (double)bytes / 1024.0;
    int unit = 0;
    for (; value >= 1023.95 && unit < 3; unit++)
        value /= 1024.0;
    snprintf(size.text, sizeof size.text, "%.1f %s", value, units[unit]);
    return size;
}

/* ---- the progress bar ------------------------------------------------------------------------ */

static int bar_wanted(void) {
    const char *terminal_name = getenv("TERM");
    return isatty(STDERR_FILENO) && !getenv("NO_COLOR") &&
           !(terminal_name && !strcmp(terminal_name, "dumb"));
}

static int terminal_columns(void) {
    struct winsize window;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) || window.ws_col < 20)
        return 80;
    return window.ws_col;
}

void tool_progress_draw(size_t done, size_t total, const char *label) {
    enum { CELLS = 24 };
    char bar[CELLS + 1];
    if (!bar_wanted() || !total)
        return;
    size_t filled = done * CELLS / total;
    memset(bar, '#', filled);
    memset(bar + filled, '.', CELLS - filled);
    bar[CELLS] = '\0';
    /* "[bar] 123/456 " and a column in reserve, so that the line never wraps. */
    int columns = terminal_columns() - CELLS - 18;
    pthread_mutex_lock(&terminal);
    fprintf(stderr, "\r[%s] %3zu/%zu %.*s\033[K", bar, done, total, columns > 0 ? columns : 0,
            label);
    fflush(stderr);
    bar_drawn = 1;
    pthread_mutex_unlock(&terminal);
}

void tool_progress_clear(void) {
    pthread_mutex_lock(&terminal);
    erase_bar();
    pthread_mutex_unlock(&terminal);
}
