/* CUDA text to C text: see compiler.h. Works line by line; the text comes from the generator, so
 * its form is known. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/compiler/compiler.h"

struct text {
    char *data;
    size_t length, capacity;
    int failed;
};

static void append(struct text *text, const char *data, size_t length) {
    if (text->length + length + 1 > text->capacity) {
        size_t more = 2 * (text->length + length) + 4096;
        char *larger = text->failed ? NULL : realloc(text->data, more);
        if (!larger) {
            text->failed = 1;
            return;
        }
        text->data = larger;
        text->capacity = more;
    }
    memcpy(text->data + text->length, data, length);
    text->length += length;
    text->data[text->length] = '\0';
}

__attribute__((format(printf, 2, 3))) static void print(struct text *text, const char *format,
                                                        ...) {
    char line[1024];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    append(text, line,
           length < 0                     ? 0
           : (size_t)length < sizeof line ? (size_t)length
                                          : sizeof line - 1);
}

static const char *find_file(const char *name) {
    for (int i = 0; i < emu_file_count; i++)
        if (strcmp(emu_files[i].name, name) == 0)
            return emu_files[i].text;
    return NULL;
}

/* Reads the file that a `#line` names; 0 for other lines. */
static int read_line_marker(const char *line, char file[256]) {
    int number;
    return sscanf(line, "#line %d \"%255[^\"]\"", &number, file) == 2;
}

struct translation {
    struct text out;
    char dropped[256]; /* the part being dropped; "": none */
    char used[64][64]; /* parts inserted so far */
    int used_count;
    char regions[32][96]; /* "NAME, offset, bytes" of the banner's map */
    int region_count;
    int in_map;
    int in_type; /* inside a struct's members */
    char *log;
    size_t log_size;
};

/* Inserts the emulator's version of a part, once. */
static int put_part(struct translation *translation, const char *file) {
    char name[300];
    const char *base = strrchr(file, '/') + 1;
    for (int i = 0; i < translation->used_count; i++)
        if (strcmp(translation->used[i], base) == 0)
            return 0;
    snprintf(name, sizeof name, "ptx/%.*s.h", (int)strcspn(base, "."), base);
    const char *text = find_file(name);
    if (!text || translation->used_count == 64) {
        snprintf(translation->log, translation->log_size,
                 "the emulator has no %s for the part %s: write it (src/emu/ptx)", name, file);
        return -1;
    }
    snprintf(translation->used[translation->used_count++], 64, "%.63s", base);
    print(&translation->out, "#line 1 \"emu/%s\"\n", name);
    append(&translation->out, text, strlen(text));
    return 0;
}

/* Lines of the banner such as " *   QUERY_OFFSET   0    73728  query tile; ...". */
static void read_map_line(struct translation *translation, const char *line) {
    char name[64];
    int offset, bytes;
    if (strncmp(line, " * shared memory (offset, bytes)", 32) == 0)
        translation->in_map = 1;
    else if (strncmp(line, " * launch", 9) == 0)
        translation->in_map = 0;
    else if (translation->in_map && translation->region_count < 32 &&
             sscanf(line, " *   %63[A-Z0-9_] %d %d ", name, &offset, &bytes) == 3) {
        char *suffix = strstr(name, "_OFFSET");
        if (!suffix)
            return;
        *suffix = '\0';
        snprintf(translation->regions[translation->region_count++], 96, "%s %d %d", name, offset,
                 bytes);
    }
}

static int is_arena_declaration(const char *line, size_t length) {
    return length > 18 && strncmp(line, "extern __shared__ ", 18) == 0;
}

static int is_unroll(const char *line) {
    line += strspn(line, " \t");
    return strncmp(line, "#pragma unroll", 14) == 0;
}

/* ---- locals without a value -------------------------------------------------------------------
 */

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t");
}

static size_t name_length(const char *at) {
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    return length;
}

/* The text after `word` if that is the next word, else NULL. */
static const char *skip_word(const char *at, const char *word) {
    const size_t length = strlen(word);
    return name_length(at) == length && strncmp(at, word, length) == 0 ? skip_blanks(at + length)
                                                                       : NULL;
}

/* The text after a local's type, at its name or asterisk; NULL: no known type. */
static const char *skip_type(const char *at) {
    static const char *const types[] = {"int",   "u8",    "u16",   "u32",    "u64",
                                        "i64",   "char",  "float", "float2", "float4",
                                        "uint2", "uint4", "int2",  "int4"};
    const char *rest = skip_word(at, "const");
    at = rest ? rest : at;
    rest = skip_word(at, "struct");
    if (rest)
        return name_length(rest) > 0 ? skip_blanks(rest + name_length(rest)) : NULL;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        rest = skip_word(at, types[i]);
        if (rest)
            return rest;
    }
    return NULL;
}

/* The text after one declarator without an initialiser; its name is *name. NULL: something else. */
static const char *skip_declarator(const char *at, const char **name, size_t *length) {
    while (*at == '*')
        at = skip_blanks(at + 1);
    *name = at;
    *length = name_length(at);
    at = skip_blanks(at + *length);
    while (*length > 0 && *at == '[') {
        at = strchr(at, ']');
        if (!at)
            return NULL;
        at = skip_blanks(at + 1);
    }
    return *length > 0 && (*at == ',' || *at == ';') ? at : NULL;
}

/* Appends EMU_UNWRITTEN for each local that a declaration leaves uninitialised (device.h), on the
 * same line, to keep line numbers. */
static void put_unwritten(struct translation *translation, const char *line) {
    const char *const first = isspace((unsigned char)*line) ? skip_type(skip_blanks(line)) : NULL;
    const char *name;
    size_t length;
    int all = first != NULL;
    for (const char *at = first; all && *at != ';'; at = skip_blanks(at + (*at == ','))) {
        at = skip_declarator(at, &name, &length);
        all = at != NULL;
        if (!all)
            break;
    }
    for (const char *at = first; all && *at != ';'; at = skip_blanks(at + (*at == ','))) {
        at = skip_declarator(at, &name, &length);
        print(&translation->out, " EMU_UNWRITTEN(%.*s);", (int)length, name);
    }
}

/* Length of a line without comments and trailing blanks. */
static size_t code_length(const char *line, size_t length) {
    for (size_t i = 0; i + 1 < length; i++)
        if (line[i] == '/' && (line[i + 1] == '*' || line[i + 1] == '/'))
            length = i;
    while (length > 0 && isspace((unsigned char)line[length - 1]))
        length--;
    return length;
}

/* Tracks whether lines are a type's members. A line that begins a function may also begin with a
 * struct type, but has a parenthesis before the brace. */
static void follow_types(struct translation *translation, const char *line, size_t length) {
    const char *at = skip_blanks(line);
    size_t code = code_length(line, length);
    if (translation->in_type) {
        translation->in_type = *at != '}';
    } else if ((skip_word(at, "struct") || skip_word(at, "union") || skip_word(at, "typedef")) &&
               code > 0 && line[code - 1] == '{') {
        code = code_length(line, code - 1);
        translation->in_type = code > 0 && line[code - 1] != ')';
    }
}

/* Copies a line and marks its uninitialised locals. */
static void put_line(struct translation *translation, const char *line, size_t length) {
    const char *const end = memchr(line, ';', length);
    const size_t statement = end ? (size_t)(end - line) + 1 : length;
    append(&translation->out, line, statement);
    if (end && !translation->in_type)
        put_unwritten(translation, line);
    append(&translation->out, line + statement, length - statement);
    follow_types(translation, line, length);
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static int translate_line(struct translation *translation, const char *line, size_t length) {
    char file[256];
    read_map_line(translation, line);
    if (read_line_marker(line, file)) {
        translation->dropped[0] = '\0';
        if (strncmp(file, "templates/ptx/", 14) == 0) {
            snprintf(translation->dropped, sizeof translation->dropped, "%s", file);
            return put_part(translation, file);
        }
    }
    if (translation->dropped[0])
        return 0;
    if (is_arena_declaration(line, length) || is_unroll(line))
        append(&translation->out, "\n", 1);
    else
        put_line(translation, line, length);
    return 0;
}

/* The text in the parentheses after the first `word`, which ends in the opening one. */
static const char *find_list(const char *source, const char *word, size_t *length) {
    const char *at = strstr(source, word);
    if (!at)
        return NULL;
    at += strlen(word);
    int depth = 1;
    const char *end = at;
    while (*end && depth > 0) {
        depth += (*end == '(') - (*end == ')');
        end++;
    }
    *length = (size_t)(end - at) - 1;
    return depth == 0 ? at : NULL;
}

/* Exports the values of __cluster_dims__ for the driver. */
static void put_cluster(struct translation *translation, const char *source) {
    size_t length = 0;
    const char *at = find_list(source, "__cluster_dims__(", &length);
    if (at)
        print(&translation->out,
              "\n#line 1 \"emu/cluster\"\nconst unsigned emu_cluster_dims[3] = "
              "{%.*s};\n",
              (int)length, at);
}

/* Defines the entry function, which calls the kernel with the parameters that cuLaunchKernel passes
 * by pointer. */
static int put_entry(struct translation *translation, const char *source) {
    size_t length = 0;
    const char *at = find_list(source, "KERNEL_NAME(", &length);
    if (!at) {
        snprintf(translation->log, translation->log_size, "no kernel KERNEL_NAME(...) in the text");
        return -1;
    }
    print(&translation->out,
          "\n#line 1 \"emu/entry\"\n__attribute__((no_sanitize(\"thread\", \"undefined\")))\n"
          "void emu_entry(void **p) {\n    KERNEL_NAME(");
    const char *end = at + length;
    for (int i = 0; at < end; i++) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        if (!stop)
            stop = end;
        const char *name = stop; /* drop the last word, the parameter's name */
        while (name > at && isspace((unsigned char)name[-1]))
            name--;
        while (name > at && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
            name--;
        if (name > at)
            print(&translation->out, "%s*(%.*s*)p[%d]", i ? ", " : "", (int)(name - at), at, i);
        at = stop + (stop < end);
    }
    print(&translation->out, ");\n}\n");
    print(&translation->out, "const char emu_map[] = \"");
    for (int i = 0; i < translation->region_count; i++)
        print(&translation->out, "%s;", translation->regions[i]);
    print(&translation->out, "\";\n#define EMU_TEXT(x) #x\n#define EMU_NAME(x) EMU_TEXT(x)\n"
                             "const char emu_name[] = EMU_NAME(KERNEL_NAME);\n");
    return 0;
}

char *emu_translate(const char *source, char *log, size_t log_size) {
    struct translation translation = {.log = log, .log_size = log_size};
    const char *prologue = find_file("device.h");
    int failed = 0;
    print(&translation.out, "#line 1 \"emu/device.h\"\n");
    append(&translation.out, prologue, strlen(prologue));
    print(&translation.out, "#line 1 \"kernel.cu\"\n");
    for (const char *line = source; *line && !failed;) {
        size_t length = strcspn(line, "\n");
        length += line[length] == '\n';
        failed = translate_line(&translation, line, length);
        line += length;
    }
    if (!failed)
        put_cluster(&translation, source);
    if (!failed)
        failed = put_entry(&translation, source);
    if (translation.out.failed) {
        snprintf(log, log_size, "out of memory");
        failed = 1;
    }
    if (failed) {
        free(translation.out.data);
        return NULL;
    }
    return translation.out.data;
}
