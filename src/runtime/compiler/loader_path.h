/* Where the dynamic loader would look for a library, without asking it to load one. */
#ifndef SMELT_RUNTIME_LOADER_PATH_H
#define SMELT_RUNTIME_LOADER_PATH_H

/* Calls `each` with the folders of LD_LIBRARY_PATH, then with those that the loader's cache gives
 * for libraries whose name begins with `prefix`, then with the loader's default folders. 0; -1 with
 * errno: the loader's cache could not be read, and its folders are missing. */
int smelt__loader_folders(const char *prefix, void (*each)(void *user, const char *folder),
                          void *user);

#endif
