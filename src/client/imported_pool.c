/* Pools of daemons, imported once by a connection's mappings for each device, and pointers into them likewise: as long
 * as any mapping uses them. The library has no variables, so what is imported belongs to the driver of a connection. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/driver_calls.h"
#include "client/error.h"
#include "client/text.h"

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

struct gbc_pools *gbc_pools_new(void) {
    struct gbc_pools *pools = calloc(1, sizeof(*pools));

    if (pools)
        pthread_mutex_init(&pools->lock, NULL);
    return pools;
}

void gbc_pools_free(struct gbc_pools *pools) {
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

int gbc_pool_enter(const struct gbc_driver *d, const struct gbc_grant *grant, struct gbc_pool **ret, uint64_t *ret_at,
                   struct gpubuf_error *err) {
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

void gbc_pool_leave(const struct gbc_driver *d, struct gbc_pool *pool, uint64_t at) {
    pthread_mutex_lock(&d->pools->lock);
    unpoint(d, pool, at);
    unref(d, pool);
    pthread_mutex_unlock(&d->pools->lock);
}
