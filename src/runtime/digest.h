/* Digests of templates. Also compiled into tools/embed.c, which writes those of the embedded templates. */
#pragma once

#include "codegen/template/engine.h"

/* The digest of template number `index` of a checked table: of its name and text, and of those of all
 * parts it uses, directly or not. 0, or -1 with a message when memory runs out. */
int smelt__template_digest(const struct smelt__template *templates, int count, int index,
                           unsigned char digest[SMELT__TEMPLATE_DIGEST],
                           struct smelt__message *message);
