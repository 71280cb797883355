/* Build-time program: embeds the emulator's device.h and ptx/ files in a C file as string literals.
 * A line with the word WIDTH in it is repeated for each number of columns that wgmma can have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_text(FILE *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n')
            fprintf(out, "\\n\"\n    \"");
        else
            fprintf(out, "%s%c", strchr("\"\\?", text[i]) ? "\\" : "", text[i]);
}

static void put_line(FILE *out, const char *line, int width) {
    static const char WORD[] = "WIDTH";
    char number[16];
    for (const char *at; (at = strstr(line, WORD)); line = at + sizeof WORD - 1) {
        put_text(out, line, (size_t)(at - line));
        put_text(out, number, (size_t)snprintf(number, sizeof number, "%d", width));
    }
    put_text(out, line, strlen(line));
}

static int put_file(FILE *out, const char *path, int number) {
    char *line = NULL;
    size_t capacity = 0;
    FILE *in = fopen(path, "r");
    if (!in) {
        perror(path);
        return -1;
    }
    fprintf(out, "static const char file_%d[] =\n    \"", number);
    while (getline(&line, &capacity, in) > 0)
        for (int width = 8; width <= (strstr(line, "WIDTH") ? 256 : 8); width += 8)
            put_line(out, line, width);
    fprintf(out, "\";\n\n");
    free(line);
    fclose(in);
    return 0;
}

/* The file's name in the emulator: "ptx/mma.h" or "device.h". */
static const char *name_of(const char *path) {
    const char *part = strstr(path, "ptx/");
    const char *slash = strrchr(path, '/');
    return part ? part : slash ? slash + 1 : path;
}

int main(int argc, char **argv) {
    FILE *out = argc > 2 ? fopen(argv[1], "w") : NULL;
    if (!out) {
        fprintf(stderr, "usage: embed_files OUTPUT FILE...\n");
        return 2;
    }
    fprintf(out, "#include \"emu/compiler/compiler.h\"\n\n"
                 "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n\n");
    for (int i = 2; i < argc; i++)
        if (put_file(out, argv[i], i - 2))
            return 1;
    fprintf(out, "const struct emu_file emu_files[] = {\n");
    for (int i = 2; i < argc; i++)
        fprintf(out, "    {\"%s\", file_%d},\n", name_of(argv[i]), i - 2);
    fprintf(out, "};\nconst int emu_file_count = %d;\n", argc - 2);
    return fclose(out) != 0;
}
