/* Memory pools. What can be asked of CUDA is asked, not remembered: a pool's handle holds only what is fixed. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/internal.h"

static int get_u64(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, uint64_t *ret,
                   struct gb_error *err) {
    cuuint64_t value = 0;
    cudaError_t rc = cudaMemPoolGetAttribute(pool->handle, attr, &value);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemPoolGetAttribute", err);
    *ret = value;
    return 0;
}

static int set_u64(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, uint64_t value,
                   struct gb_error *err) {
    cuuint64_t native = value;
    cudaError_t rc = cudaMemPoolSetAttribute(pool->handle, attr, &native);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolSetAttribute", err);
}

/* The reuse policies are ints to CUDA, the sizes 64 bits wide. */
static int get_flag(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, bool *ret,
                    struct gb_error *err) {
    int value = 0;
    cudaError_t rc = cudaMemPoolGetAttribute(pool->handle, attr, &value);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemPoolGetAttribute", err);
    *ret = value != 0;
    return 0;
}

static int set_flag(struct cuda_backend *be, struct gb_pool *pool, enum cudaMemPoolAttr attr, bool value,
                    struct gb_error *err) {
    int native = value ? 1 : 0;
    cudaError_t rc = cudaMemPoolSetAttribute(pool->handle, attr, &native);

    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolSetAttribute", err);
}

static int apply(struct cuda_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                 struct gb_error *err) {
    if (set_u64(be, pool, cudaMemPoolAttrReleaseThreshold, config->release_threshold_bytes, err) < 0 ||
        set_flag(be, pool, cudaMemPoolReuseFollowEventDependencies, config->follow_event_dependencies, err) < 0 ||
        set_flag(be, pool, cudaMemPoolReuseAllowOpportunistic, config->allow_opportunistic, err) < 0 ||
        set_flag(be, pool, cudaMemPoolReuseAllowInternalDependencies, config->allow_internal_dependencies, err) < 0)
        return -1;
    return 0;
}

int gb_cuda_default_pool_init(struct cuda_backend *be, int device, struct gb_error *err) {
    struct cuda_device *dev = &be->devices[device];
    struct gb_pool *pool = &dev->default_pool;
    cudaError_t rc = cudaDeviceGetDefaultMemPool(&pool->handle, device);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaDeviceGetDefaultMemPool", err);
    pool->device = device;
    pool->is_default = true;
    pool->fd = -1;
    pool->max_bytes = dev->rec.total_bytes;
    pool->limit_bytes = dev->rec.total_bytes;
    return set_u64(be, pool, cudaMemPoolAttrReleaseThreshold,
                   gb_pool_default_threshold(dev->rec.integrated, dev->rec.total_bytes), err);
}

static int check_pools(const struct cuda_backend *be, int device, struct gb_error *err) {
    const struct cuda_device *dev = &be->devices[device];

    if (dev->has_pools)
        return 0;
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "device %d: %s", device, dev->rec.cap_missing[GB_CAP_MEMORY_POOLS]);
}

int gb_cuda_pool_default(struct gb_backend *base, int device, struct gb_pool **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);

    if (gb_cuda_enter(be, device, err) < 0 || check_pools(be, device, err) < 0)
        return -1;
    *ret = &be->devices[device].default_pool;
    return 0;
}

int gb_cuda_pool_create(struct gb_backend *base, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                        struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct cudaMemPoolProps props;
    struct cuda_device *dev;
    struct gb_pool *pool;
    cudaError_t rc;

    if (gb_cuda_enter(be, device, err) < 0 || check_pools(be, device, err) < 0)
        return -1;
    dev = &be->devices[device];
    if (config->exportable && !dev->exports_fd)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "device %d cannot share pool memory by file descriptor", device);
    pool = calloc(1, sizeof(*pool));
    if (!pool)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    pool->device = device;
    pool->fd = -1;
    pool->exportable = config->exportable;
    pool->max_bytes = config->max_bytes;
    pool->limit_bytes = dev->rec.total_bytes;
    memset(&props, 0, sizeof(props));
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = config->exportable ? cudaMemHandleTypePosixFileDescriptor : cudaMemHandleTypeNone;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device;
    /* 0 is CUDA's word for no maximum of its own; one beyond the device would say the same. */
    if (config->max_bytes > 0 && config->max_bytes < dev->rec.total_bytes) {
        props.maxSize = config->max_bytes;
        pool->limit_bytes = config->max_bytes;
    }
    rc = cudaMemPoolCreate(&pool->handle, &props);
    if (rc != cudaSuccess) {
        free(pool);
        return gb_cuda_fail(be, rc, "cudaMemPoolCreate", err);
    }
    if (apply(be, pool, config, err) < 0) {
        gb_cuda_pool_destroy(base, pool);
        return -1;
    }
    *ret = pool;
    return 0;
}

void gb_cuda_pool_destroy(struct gb_backend *base, struct gb_pool *pool) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (!pool || pool->is_default)
        return;
    if (gb_cuda_select(be, pool->device, NULL) == 0) {
        rc = cudaMemPoolDestroy(pool->handle);
        if (rc != cudaSuccess)
            gb_cuda_fail(be, rc, "cudaMemPoolDestroy", NULL);
    }
    if (pool->fd >= 0)
        close(pool->fd);
    free(pool);
}

int gb_cuda_pool_config(struct gb_backend *base, struct gb_pool *pool, struct gb_pool_config *ret,
                        struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_pool_config config = {.max_bytes = pool->max_bytes, .exportable = pool->exportable};

    if (gb_cuda_enter(be, pool->device, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrReleaseThreshold, &config.release_threshold_bytes, err) < 0 ||
        get_flag(be, pool, cudaMemPoolReuseFollowEventDependencies, &config.follow_event_dependencies, err) < 0 ||
        get_flag(be, pool, cudaMemPoolReuseAllowOpportunistic, &config.allow_opportunistic, err) < 0 ||
        get_flag(be, pool, cudaMemPoolReuseAllowInternalDependencies, &config.allow_internal_dependencies, err) < 0)
        return -1;
    *ret = config;
    return 0;
}

int gb_cuda_pool_configure(struct gb_backend *base, struct gb_pool *pool, const struct gb_pool_config *config,
                           struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);

    if (config->max_bytes != pool->max_bytes)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a pool's max_bytes is fixed at creation: it is %" PRIu64 ", not %" PRIu64, pool->max_bytes,
                            config->max_bytes);
    if (config->exportable != pool->exportable)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "whether a pool is exportable is fixed at creation: it is%s",
                            pool->exportable ? "" : " not");
    if (gb_cuda_enter(be, pool->device, err) < 0)
        return -1;
    return apply(be, pool, config, err);
}

int gb_cuda_pool_stat(struct gb_backend *base, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_pool_stat stat = {0};

    if (gb_cuda_enter(be, pool->device, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrUsedMemCurrent, &stat.used_bytes, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrUsedMemHigh, &stat.used_peak_bytes, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrReservedMemCurrent, &stat.reserved_bytes, err) < 0 ||
        get_u64(be, pool, cudaMemPoolAttrReservedMemHigh, &stat.reserved_peak_bytes, err) < 0)
        return -1;
    *ret = stat;
    return 0;
}

int gb_cuda_pool_reset_peak(struct gb_backend *base, struct gb_pool *pool, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);

    /* Zero is the only value that CUDA takes; the peak then reads the current value. */
    if (gb_cuda_enter(be, pool->device, err) < 0 || set_u64(be, pool, cudaMemPoolAttrUsedMemHigh, 0, err) < 0)
        return -1;
    return set_u64(be, pool, cudaMemPoolAttrReservedMemHigh, 0, err);
}

int gb_cuda_pool_trim(struct gb_backend *base, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, pool->device, err) < 0)
        return -1;
    rc = cudaMemPoolTrimTo(pool->handle, keep_bytes);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolTrimTo", err);
}
