#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* POSIX permits dlsym to return a function; ISO C has no such cast, hence the copy. */
static int find(struct driver *driver, const char *name, void *function, char *message,
                size_t size) {
    void *symbol = dlsym(driver->library, name);
    if (!symbol) {
        snprintf(message, size, "libcuda.so.1 has no %s", name);
        return -1;
    }
    memcpy(function, &symbol, sizeof symbol);
    return 0;
}

int driver_open(struct driver *driver, char *message, size_t size) {
    memset(driver, 0, sizeof *driver);
    driver->library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver->library) {
        snprintf(message, size, "%s", dlerror());
        return -1;
    }
    struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"cuCtxGetCurrent", &driver->ctx_get_current},
        {"cuCtxSetCurrent", &driver->ctx_set_current},
        {"cuStreamGetCtx", &driver->stream_get_ctx},
        {"cuStreamBeginCapture_v2", &driver->stream_begin_capture},
        {"cuStreamEndCapture", &driver->stream_end_capture},
        {"cuGraphInstantiateWithFlags", &driver->graph_instantiate},
        {"cuGraphLaunch", &driver->graph_launch},
        {"cuGraphExecDestroy", &driver->graph_exec_destroy},
        {"cuGraphDestroy", &driver->graph_destroy},
        {"cuMemcpyDtoDAsync_v2", &driver->copy_async},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (find(driver, wanted[i].name, wanted[i].function, message, size) != 0) {
            driver_close(driver);
            return -1;
        }
    return 0;
}

void driver_close(struct driver *driver) {
    if (driver->library)
        dlclose(driver->library);
    driver->library = NULL;
}
