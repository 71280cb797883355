/* Build-time program: embeds the emulator's device.h and ptx/ files in a C file as byte lists,
 * since string literals above 4095 characters are not portable. */
#include <stdio.h>
#include <string.h>

static int put_file(FILE *out, const char *path, int number) {
    FILE *in = fopen(path, "r");
    int c, column = 0;
    if (!in) {
        perror(path);
        return -1;
    }
    fprintf(out, "static const char file_%d[] = {", number);
    while ((c = getc(in)) != EOF)
        fprintf(out, "%s%d,", column++ % 24 ? "" : "\n    ", c);
    fprintf(out, "0};\n\n");
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
    fprintf(out, "#include \"emu/compiler/compiler.h\"\n\n");
    for (int i = 2; i < argc; i++)
        if (put_file(out, argv[i], i - 2))
            return 1;
    fprintf(out, "const struct emu_file emu_files[] = {\n");
    for (int i = 2; i < argc; i++)
        fprintf(out, "    {\"%s\", file_%d},\n", name_of(argv[i]), i - 2);
    fprintf(out, "};\nconst int emu_file_count = %d;\n", argc - 2);
    return fclose(out) != 0;
}
