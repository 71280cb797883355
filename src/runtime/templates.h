/* Templates from a folder, which replace the library's built-in ones. */
#pragma once

#include "codegen/template/engine.h"
#include "smelt/status.h"

/*
 * The built-in templates and the files NAME.cu, NAME.cuh and NAME.h of `path`, path/common and
 * path/ptx. A file replaces the built-in template of the same name or is added. All are checked as
 * in the build. The caller frees *table, which is NULL on failure. Errors: INVALID_ARGUMENT (a
 * folder or file that cannot be read or is not trusted by the rules for a read-only cache layer; a
 * template's fault, with file and line; a changed header that host code was compiled with),
 * OUT_OF_MEMORY.
 */
smelt_status smelt__templates_read(const char *path, struct smelt__template_table **table);
/* Sets *table to NULL, which it may be. */
void smelt__templates_free(struct smelt__template_table **table);
