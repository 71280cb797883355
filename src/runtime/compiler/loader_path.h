/* Where the dynamic loader would look for a library, without asking it to load one. */
#pragma once

/* Calls `each` with every path in a list that is separated by the characters of `separators`; NULL:
 * with none. Skips empty and overlong ones. */
void smelt__path_list_each(const char *list, const char *separators,
                           void (*each)(void *user, const char *path), void *user);

/* Calls `each` with the folders of LD_LIBRARY_PATH, the folders in the loader's cache of libraries
 * whose name begins with `prefix`, and the loader's default folders, in this order. 0; -1 with
 * errno: the loader's cache could not be read and its folders are missing. */
int smelt__loader_folders(const char *prefix, void (*each)(void *user, const char *folder),
                          void *user);
