/* Templates read from a folder in place of those that are built into the library. */
#ifndef SMELT_RUNTIME_TEMPLATES_H
#define SMELT_RUNTIME_TEMPLATES_H

#include "codegen/template/engine.h"
#include "smelt/status.h"

/*
 * The built-in templates, with every file NAME.cu, NAME.cuh and NAME.h of `path`, path/common and
 * path/ptx in place of the one of that name, or beside them. Checked as the build checks templates.
 * *table is the caller's to free, NULL on failure. Errors: INVALID_ARGUMENT (a folder or file that
 * cannot be read or is not trusted, as a read-only cache layer; a template's mistake, by file and
 * line; a header that host code was compiled with and that differs), OUT_OF_MEMORY.
 */
smelt_status smelt__templates_read(const char *path, struct smelt__template_table **table);
/* *table becomes NULL; it may be NULL. */
void smelt__templates_free(struct smelt__template_table **table);

#endif
