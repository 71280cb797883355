/* Where the dynamic loader would look for a library, without asking it to load one. */
#ifndef SMELT_RUNTIME_LOADER_PATH_H
#define SMELT_RUNTIME_LOADER_PATH_H

/* Calls `each` with the folders of LD_LIBRARY_PATH, then with those that the loader's cache gives
 * for libraries whose name begins with `prefix`, then with the loader's default folders. */
void smelt__loader_folders(const char *prefix, void (*each)(void *user, const char *folder),
                           void *user);

#endif
