/* The CUDA driver, opened at run time by its file name. Pools of a daemon are imported once and counted by the
 * mappings that use them. A call enters the device's primary context and leaves the caller's as it was. map.c calls
 * it, by the connection of unix_conn.c that owns it. */
#include "client/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "client/error.h"
#include "client/text.h"

#define KEPT_DEVICES 64
#define POSIX_FD 1        /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
#define LOCATION_DEVICE 1 /* CU_MEM_LOCATION_TYPE_DEVICE */
#define ACCESS_READ 1     /* CU_MEM_ACCESS_FLAGS_PROT_READ */
#define ACCESS_BOTH 3     /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
#define IPC_LAZY_PEER 1   /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */

/* --- the part of cuda.h that is used ------------------------------------------------------------------------------ */

struct access {
    int location_type;
    int location_id;
    int flags;
};

struct ipc_handle {
    unsigned char bytes[GBC_HANDLE_BYTES];
};

struct uuid {
    unsigned char bytes[16];
};

/* CUDA_CALL(name, exported symbol, parameters) */
#define CUDA_CALLS                                                                                                     \
    CUDA_CALL(cuInit, "cuInit", (unsigned flags))                                                                      \
    CUDA_CALL(cuGetErrorName, "cuGetErrorName", (int code, const char **ret))                                          \
    CUDA_CALL(cuDeviceGetCount, "cuDeviceGetCount", (int *ret))                                                        \
    CUDA_CALL(cuDeviceGetUuid, "cuDeviceGetUuid_v2", (struct uuid * ret, int device))                                  \
    CUDA_CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **ret, int device))                          \
    CUDA_CALL(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))                                 \
    CUDA_CALL(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (void *context))                                                \
    CUDA_CALL(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (void **ret))                                                     \
    CUDA_CALL(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                                        \
              (uint64_t * ret, void *handle, int type))                                                                \
    CUDA_CALL(cuMemAddressReserve, "cuMemAddressReserve",                                                              \
              (uint64_t * ret, size_t bytes, size_t alignment, uint64_t wish, unsigned long long flags))               \
    CUDA_CALL(cuMemMap, "cuMemMap",                                                                                    \
              (uint64_t at, size_t bytes, size_t offset, uint64_t allocation, unsigned long long flags))               \
    CUDA_CALL(cuMemSetAccess, "cuMemSetAccess",                                                                        \
              (uint64_t at, size_t bytes, const struct access *access, size_t count))                                  \
    CUDA_CALL(cuMemUnmap, "cuMemUnmap", (uint64_t at, size_t bytes))                                                   \
    CUDA_CALL(cuMemAddressFree, "cuMemAddressFree", (uint64_t at, size_t bytes))                                       \
    CUDA_CALL(cuMemRelease, "cuMemRelease", (uint64_t allocation))                                                     \
    CUDA_CALL(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle",                                \
              (void **ret, void *handle, int type, unsigned long long flags))                                          \
    CUDA_CALL(cuMemPoolImportPointer, "cuMemPoolImportPointer", (uint64_t * ret, void *pool, struct ipc_handle *data)) \
    CUDA_CALL(cuMemPoolSetAccess, "cuMemPoolSetAccess", (void *pool, const struct access *access, size_t count))       \
    CUDA_CALL(cuMemPoolDestroy, "cuMemPoolDestroy", (void *pool))                                                      \
    CUDA_CALL(cuMemFree, "cuMemFree_v2", (uint64_t at))                                                                \
    CUDA_CALL(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (uint64_t * ret, struct ipc_handle handle, unsigned flags)) \
    CUDA_CALL(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (uint64_t at))                                               \
    CUDA_CALL(cuIpcOpenEventHandle, "cuIpcOpenEventHandle", (void **ret, struct ipc_handle handle))                    \
    CUDA_CALL(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *room, uint64_t at, size_t bytes))                                \
    CUDA_CALL(cuEventRecord, "cuEventRecord", (void *event, void *stream))                                             \
    CUDA_CALL(cuEventSynchronize, "cuEventSynchronize", (void *event))                                                 \
    CUDA_CALL(cuEventDestroy, "cuEventDestroy_v2", (void *event))                                                      \
    CUDA_CALL(cuStreamWaitEvent, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))

struct gbc_driver {
    void *library;
    int devices;
    struct gbc_pools *pools;    /* that are imported */
    atomic_uint_least64_t kept; /* a bit for each device whose context has one more reference */
#define CUDA_CALL(name, symbol, parameters) int(*name) parameters;
    CUDA_CALLS
#undef CUDA_CALL
};

static int failed(const struct gbc_driver *d, const char *call, int code, struct gpubuf_error *err) {
    const char *name = NULL;

    if (!err || err->code != GPUBUF_OK)
        return -1;
    if (d->cuGetErrorName(code, &name) != 0 || !name)
        name = "an unknown error";
    gbc_error_set(err, GPUBUF_CANNOT_MAP, "%s: %s", call, name);
    gbc_copy(err->native_domain, sizeof(err->native_domain), "cuda");
    gbc_copy(err->native_name, sizeof(err->native_name), name);
    gbc_copy(err->native_call, sizeof(err->native_call), call);
    err->native_code = code;
    return -1;
}

/* Names the call in err. */
static int call_result(const struct gbc_driver *d, const char *call, int code, struct gpubuf_error *err) {
    return code == 0 ? 0 : failed(d, call, code, err);
}

/* Within a function with d and err: 0, or -1 with err. */
#define CALL(name, ...) call_result(d, #name, d->name(__VA_ARGS__), err)

/* --- imported pools ----------------------------------------------------------------------------------------------- */

/* Pools of daemons, imported once by a connection's mappings for each device, and pointers into them likewise: as long
 * as any mapping uses them. The library has no variables, so what is imported belongs to the driver of a connection. */
struct pointer {
    struct pointer *next;
    unsigned char handle[GBC_HANDLE_BYTES];
    uint64_t at;
    unsigned refs;
};

struct gbc_pool {
    struct gbc_pool *next;
    char id[64]; /* "": of one mapping alone */
    int device;
    void *handle;
    unsigned refs;
    struct pointer *pointers;
};

struct gbc_pools {
    pthread_mutex_t lock; /* of the list and all in it */
    struct gbc_pool *first;
};

static struct gbc_pools *pools_new(void) {
    struct gbc_pools *pools = calloc(1, sizeof(*pools));

    if (pools)
        pthread_mutex_init(&pools->lock, NULL);
    return pools;
}

static void pools_free(struct gbc_pools *pools) {
    if (!pools)
        return;
    pthread_mutex_destroy(&pools->lock);
    free(pools);
}

static struct gbc_pool *known(const struct gbc_driver *d, const struct gbc_grant *grant) {
    struct gbc_pool *pool = grant->pool[0] != '\0' ? d->pools->first : NULL;

    while (pool && (pool->device != grant->device || strcmp(pool->id, grant->pool) != 0))
        pool = pool->next;
    return pool;
}

static struct gbc_pool *import(const struct gbc_driver *d, const struct gbc_grant *grant, struct gpubuf_error *err) {
    struct gbc_pool *pool = calloc(1, sizeof(*pool));

    if (!pool) {
        gbc_error_memory(err);
        return NULL;
    }
    if (CALL(cuMemPoolImportFromShareableHandle, &pool->handle, (void *)(intptr_t)grant->fd, POSIX_FD, 0) < 0) {
        free(pool);
        return NULL;
    }
    gbc_copy(pool->id, sizeof(pool->id), grant->pool);
    pool->device = grant->device;
    pool->next = d->pools->first;
    d->pools->first = pool;
    return pool;
}

/* The importer's own right; the pool keeps it while it is imported. */
static int open_to(const struct gbc_driver *d, const struct gbc_pool *pool, const struct gbc_grant *grant,
                   struct gpubuf_error *err) {
    struct access access = {LOCATION_DEVICE, 0, ACCESS_BOTH};
    size_t i;

    for (i = 0; i < grant->access_count; i++) {
        access.location_id = grant->access_devices[i];
        if (CALL(cuMemPoolSetAccess, pool->handle, &access, 1) < 0)
            return -1;
    }
    return 0;
}

static int point(const struct gbc_driver *d, struct gbc_pool *pool, const unsigned char *handle, uint64_t *ret,
                 struct gpubuf_error *err) {
    struct pointer *p = pool->pointers;
    struct ipc_handle data;

    while (p && memcmp(p->handle, handle, sizeof(p->handle)) != 0)
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof(*p));
        if (!p)
            return gbc_error_memory(err);
        memcpy(p->handle, handle, sizeof(p->handle));
        memcpy(data.bytes, handle, sizeof(data.bytes));
        if (CALL(cuMemPoolImportPointer, &p->at, pool->handle, &data) < 0) {
            free(p);
            return -1;
        }
        p->next = pool->pointers;
        pool->pointers = p;
    }
    p->refs++;
    *ret = p->at;
    return 0;
}

static void unpoint(const struct gbc_driver *d, struct gbc_pool *pool, uint64_t at) {
    struct pointer **link = &pool->pointers;
    struct pointer *p;

    while (*link && (*link)->at != at)
        link = &(*link)->next;
    p = *link;
    if (!p || --p->refs > 0)
        return;
    *link = p->next;
    d->cuMemFree(p->at);
    free(p);
}

static void unref(const struct gbc_driver *d, struct gbc_pool *pool) {
    struct gbc_pool **link = &d->pools->first;

    if (pool->refs > 0 && --pool->refs > 0)
        return;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    d->cuMemPoolDestroy(pool->handle);
    free(pool);
}

static int pool_enter(const struct gbc_driver *d, const struct gbc_grant *grant, struct gbc_pool **ret,
                      uint64_t *ret_at, struct gpubuf_error *err) {
    struct gbc_pool *pool;
    int r = -1;

    pthread_mutex_lock(&d->pools->lock);
    pool = known(d, grant);
    if (!pool)
        pool = import(d, grant, err);
    if (pool) {
        pool->refs++;
        r = open_to(d, pool, grant, err);
        if (r == 0)
            r = point(d, pool, grant->handle, ret_at, err);
        if (r < 0)
            unref(d, pool);
    }
    pthread_mutex_unlock(&d->pools->lock);
    if (r == 0)
        *ret = pool;
    return r;
}

static void pool_leave(const struct gbc_driver *d, struct gbc_pool *pool, uint64_t at) {
    pthread_mutex_lock(&d->pools->lock);
    unpoint(d, pool, at);
    unref(d, pool);
    pthread_mutex_unlock(&d->pools->lock);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static int find_all(struct gbc_driver *d, struct gpubuf_error *err) {
#define CUDA_CALL(name, symbol, parameters)                                                                            \
    *(void **)(&d->name) = dlsym(d->library, symbol);                                                                  \
    if (!d->name)                                                                                                      \
        return gbc_error_set(err, GPUBUF_CANNOT_MAP, "libcuda.so.1 has no %s: the driver is too old", symbol);
    CUDA_CALLS
#undef CUDA_CALL
    return 0;
}

struct gbc_driver *gbc_driver_open(struct gpubuf_error *err) {
    struct gbc_driver *d = calloc(1, sizeof(*d));

    if (!d) {
        gbc_error_memory(err);
        return NULL;
    }
    d->pools = pools_new();
    d->library = d->pools ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!d->pools)
        gbc_error_memory(err);
    else if (!d->library)
        gbc_error_set(err, GPUBUF_CANNOT_MAP, "no CUDA driver in this process: %s", dlerror());
    else if (find_all(d, err) == 0 && CALL(cuInit, 0) == 0 && CALL(cuDeviceGetCount, &d->devices) == 0) {
        if (d->devices > 0)
            return d;
        gbc_error_set(err, GPUBUF_CANNOT_MAP, "the CUDA driver sees no device in this process");
    }
    gbc_driver_free(d);
    return NULL;
}

void gbc_driver_free(struct gbc_driver *driver) {
    int device;

    if (!driver)
        return;
    for (device = 0; device < KEPT_DEVICES; device++)
        if (atomic_load(&driver->kept) >> device & 1)
            driver->cuDevicePrimaryCtxRelease(device);
    if (driver->library)
        dlclose(driver->library);
    pools_free(driver->pools);
    free(driver);
}

int gbc_driver_find(const struct gbc_driver *d, const char *uuid, int *ret, struct gpubuf_error *err) {
    bool named = strncasecmp(uuid, "GPU-", 4) == 0 || strncasecmp(uuid, "MIG-", 4) == 0;
    int device;

    for (device = 0; device < d->devices; device++) {
        struct uuid u;
        char text[GB_UUID_SIZE];

        if (CALL(cuDeviceGetUuid, &u, device) < 0)
            return -1;
        gb_uuid_text(u.bytes, text);
        if (named && strcasecmp(text, uuid + 4) == 0) {
            *ret = device;
            return 0;
        }
    }
    return gbc_error_set(err, GPUBUF_CANNOT_MAP,
                         "the buffer is on device %s, which this process does not see (CUDA_VISIBLE_DEVICES?)", uuid);
}

/* --- mapping ------------------------------------------------------------------------------------------------------ */

/* Makes the device's primary context current; the caller pops it. */
static int enter(const struct gbc_driver *d, struct gbc_device_map *map, struct gpubuf_error *err) {
    void *context;

    if (CALL(cuDevicePrimaryCtxRetain, &context, map->device) < 0)
        return -1;
    if (map->retained)
        d->cuDevicePrimaryCtxRelease(map->device);
    map->retained = true;
    return CALL(cuCtxPushCurrent, context);
}

static void leave(const struct gbc_driver *d) {
    void *context;

    d->cuCtxPopCurrent(&context);
}

static int map_vmm(const struct gbc_driver *d, const struct gbc_grant *grant, struct gbc_device_map *map,
                   struct gpubuf_error *err) {
    struct access access = {LOCATION_DEVICE, grant->device, grant->write ? ACCESS_BOTH : ACCESS_READ};
    uint64_t at;
    size_t i;

    if (CALL(cuMemImportFromShareableHandle, &map->allocation, (void *)(intptr_t)grant->fd, POSIX_FD) < 0)
        return -1;
    if (CALL(cuMemAddressReserve, &at, grant->map_bytes, 0, 0, 0) < 0)
        return -1;
    if (CALL(cuMemMap, at, grant->map_bytes, 0, map->allocation, 0) < 0) {
        d->cuMemAddressFree(at, grant->map_bytes);
        return -1;
    }
    map->base = at;
    for (i = 0; i < grant->access_count; i++) {
        access.location_id = grant->access_devices[i];
        if (CALL(cuMemSetAccess, at, grant->map_bytes, &access, 1) < 0)
            return -1;
    }
    access.location_id = grant->device;
    return CALL(cuMemSetAccess, at, grant->map_bytes, &access, 1);
}

static int map_legacy(const struct gbc_driver *d, const struct gbc_grant *grant, struct gbc_device_map *map,
                      struct gpubuf_error *err) {
    struct ipc_handle handle;

    if (grant->access_count > 0)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "memory of kind ipc is opened to other devices by the program itself "
                             "(cuCtxEnablePeerAccess): map without access_devices");
    memcpy(handle.bytes, grant->handle, sizeof(handle.bytes));
    return CALL(cuIpcOpenMemHandle, &map->base, handle, IPC_LAZY_PEER);
}

static int open_event(const struct gbc_driver *d, const unsigned char *bytes, void **ret, struct gpubuf_error *err) {
    struct ipc_handle handle;

    memcpy(handle.bytes, bytes, sizeof(handle.bytes));
    return CALL(cuIpcOpenEventHandle, ret, handle);
}

static int map_way(const struct gbc_driver *d, const struct gbc_grant *grant, struct gbc_device_map *map,
                   struct gpubuf_error *err) {
    if ((grant->has_event && open_event(d, grant->event, &map->event, err) < 0) ||
        (grant->has_finished && open_event(d, grant->finished, &map->finished, err) < 0))
        return -1;
    if (grant->way == GPUBUF_WAY_VMM)
        return map_vmm(d, grant, map, err);
    return grant->way == GPUBUF_WAY_POOL ? pool_enter(d, grant, &map->pool, &map->base, err)
                                         : map_legacy(d, grant, map, err);
}

/* A context takes a tenth of a second and more to make. One more reference keeps it from the first mapping on, so that
 * a process that has none of its own does not make it again for each. */
static int keep_context(struct gbc_driver *d, int device, struct gpubuf_error *err) {
    uint64_t bit = device < KEPT_DEVICES ? UINT64_C(1) << device : 0;
    void *context;

    if (bit == 0 || (atomic_fetch_or(&d->kept, bit) & bit) != 0)
        return 0;
    if (CALL(cuDevicePrimaryCtxRetain, &context, device) == 0)
        return 0;
    atomic_fetch_and(&d->kept, ~bit);
    return -1;
}

int gbc_driver_map(struct gbc_driver *d, const struct gbc_grant *grant, struct gbc_device_map *ret,
                   struct gpubuf_error *err) {
    int r;

    *ret = (struct gbc_device_map){.way = grant->way, .device = grant->device, .bytes = grant->map_bytes};
    if (enter(d, ret, err) < 0) {
        if (ret->retained)
            d->cuDevicePrimaryCtxRelease(ret->device);
        ret->retained = false;
        return -1;
    }
    r = map_way(d, grant, ret, err);
    if (r == 0)
        r = keep_context(d, grant->device, err);
    leave(d);
    if (r < 0)
        gbc_driver_unmap(d, ret);
    return r;
}

void gbc_driver_unmap(const struct gbc_driver *d, struct gbc_device_map *map) {
    if (!map->retained || enter(d, map, NULL) < 0)
        return;
    if (map->finishes)
        d->cuEventSynchronize(map->finished);
    if (map->event)
        d->cuEventDestroy(map->event);
    if (map->finished)
        d->cuEventDestroy(map->finished);
    if (map->way == GPUBUF_WAY_VMM) {
        if (map->base != 0) {
            d->cuMemUnmap(map->base, map->bytes);
            d->cuMemAddressFree(map->base, map->bytes);
        }
        if (map->allocation != 0)
            d->cuMemRelease(map->allocation);
    } else if (map->base != 0 && map->way == GPUBUF_WAY_LEGACY) {
        d->cuIpcCloseMemHandle(map->base);
    } else if (map->pool) {
        pool_leave(d, map->pool, map->base);
    }
    leave(d);
    d->cuDevicePrimaryCtxRelease(map->device);
    map->retained = false;
}

int gbc_driver_wait(const struct gbc_driver *d, const struct gbc_device_map *map, void *stream,
                    struct gpubuf_error *err) {
    struct gbc_device_map entered = *map;
    int r;

    if (!map->event)
        return 0;
    if (enter(d, &entered, err) < 0)
        return -1;
    r = CALL(cuStreamWaitEvent, stream, map->event, 0);
    leave(d);
    return r;
}

int gbc_driver_read(const struct gbc_driver *d, const struct gbc_device_map *map, uint64_t at, void *room, size_t bytes,
                    struct gpubuf_error *err) {
    struct gbc_device_map entered = *map;
    int r = 0;

    if (enter(d, &entered, err) < 0)
        return -1;
    if (map->event)
        r = CALL(cuEventSynchronize, map->event);
    if (r == 0)
        r = CALL(cuMemcpyDtoH, room, map->base + at, bytes);
    leave(d);
    return r;
}

int gbc_driver_finish(const struct gbc_driver *d, struct gbc_device_map *map, void *stream, struct gpubuf_error *err) {
    struct gbc_device_map entered = *map;
    int r;

    if (!map->finished)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the mapping has no event for its end: map with finished_event");
    if (enter(d, &entered, err) < 0)
        return -1;
    r = CALL(cuEventRecord, map->finished, stream);
    leave(d);
    if (r == 0)
        map->finishes = true;
    return r;
}
