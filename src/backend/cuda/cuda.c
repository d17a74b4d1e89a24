/* Opening and closing the CUDA backend, and its vtable. backend.c opens it; the other files of this folder have the
 * functions of the vtable. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/internal.h"
#include "base/thread.h"

/* Opens mark_stream and gather_stream. Streams share the device's queues, and these two must not wait for other
 * streams, nor other streams for them. Streams of another priority have queues of their own. Returns 0 or -1. */
static int open_own_streams(struct cuda_backend *be, struct cuda_device *dev, struct gb_error *err) {
    int least = 0;
    int greatest = 0;
    cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaDeviceGetStreamPriorityRange", err);
    rc = cudaStreamCreateWithPriority(&dev->mark_stream, cudaStreamNonBlocking, greatest);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithPriority(&dev->gather_stream, cudaStreamNonBlocking,
                                          least - 1 > greatest ? least - 1 : least);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaStreamCreateWithPriority", err);
}

static int device_open(struct cuda_backend *be, int device, struct gb_error *err) {
    struct cuda_device *dev = &be->devices[device];
    struct cudaDeviceProp prop;
    cudaError_t rc;

    gb_mutex_init(&dev->streams_lock);
    memset(&prop, 0, sizeof(prop));
    rc = cudaGetDeviceProperties(&prop, device);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaGetDeviceProperties", err);
    gb_cuda_describe(&prop, device, &dev->rec);
    dev->has_pools = prop.memoryPoolsSupported != 0;
    dev->exports_fd = (prop.memoryPoolSupportedHandleTypes & cudaMemHandleTypePosixFileDescriptor) != 0;
    dev->locks_pages = prop.hostRegisterSupported != 0;
    /* A thread in cudaStreamSynchronize sleeps. By default it would keep a core busy that moves bytes. */
    rc = cudaInitDevice(device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);
    if (rc == cudaErrorSetOnActiveProcess) { /* opened before in this process, then with the same flags */
        (void)cudaGetLastError();
        rc = cudaSuccess;
    }
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaInitDevice", err);
    if (gb_cuda_select(be, device, err) < 0 || open_own_streams(be, dev, err) < 0 ||
        (dev->has_pools && gb_cuda_default_pool_init(be, device, err) < 0))
        return -1;
    return gb_cuda_completer_init(&dev->completer, be, device, err);
}

static void device_close(struct cuda_backend *be, int device) {
    struct cuda_device *dev = &be->devices[device];

    gb_cuda_completer_done(&dev->completer);
    if (!dev->mark_stream || gb_cuda_select(be, device, NULL) < 0)
        return;
    (void)cudaStreamDestroy(dev->mark_stream);
    if (dev->gather_stream)
        (void)cudaStreamDestroy(dev->gather_stream);
    /* The default pool outlives the backend, so its unused memory goes back to the device. */
    if (dev->default_pool.handle)
        (void)cudaMemPoolTrimTo(dev->default_pool.handle, 0);
    (void)cudaGetLastError();
}

static void cuda_close(struct gb_backend *base) {
    struct cuda_backend *be = gb_cuda_of(base);
    int i;

    if (!be)
        return;
    for (i = 0; be->devices && i < be->device_count; i++)
        device_close(be, i);
    gb_cuda_bounces_free(be);
    gb_cuda_holds_done(be);
    gb_cuda_imports_free(be);
    gb_cuda_files_free(be);
    free(be->devices);
    pthread_mutex_destroy(&be->bounces_lock);
    pthread_mutex_destroy(&be->imports_lock);
    pthread_mutex_destroy(&be->files_lock);
    pthread_mutex_destroy(&be->dead_lock);
    free(be);
}

static int cuda_device_count(struct gb_backend *base) {
    return gb_cuda_of(base)->device_count;
}

static int cuda_device_get(struct gb_backend *base, int device, struct gb_device_rec *ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    uint64_t free_bytes;

    if (gb_cuda_enter(be, device, err) < 0 || gb_cuda_free_bytes(be, device, &free_bytes, err) < 0)
        return -1;
    *ret = be->devices[device].rec;
    ret->free_bytes = free_bytes;
    return 0;
}

static const struct gb_backend_ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .device_count = cuda_device_count,
    .device_get = cuda_device_get,
    .dead = gb_cuda_dead,
    .pin_alloc = gb_cuda_pin_alloc,
    .pin_free = gb_cuda_pin_free,
    .pool_default = gb_cuda_pool_default,
    .pool_create = gb_cuda_pool_create,
    .pool_destroy = gb_cuda_pool_destroy,
    .pool_config = gb_cuda_pool_config,
    .pool_configure = gb_cuda_pool_configure,
    .pool_stat = gb_cuda_pool_stat,
    .pool_reset_peak = gb_cuda_pool_reset_peak,
    .pool_trim = gb_cuda_pool_trim,
    .stream_create = gb_cuda_stream_create,
    .stream_destroy = gb_cuda_stream_destroy,
    .stream_sync = gb_cuda_stream_sync,
    .stream_query = gb_cuda_stream_query,
    .stream_wait = gb_cuda_stream_wait,
    .stream_call = gb_cuda_stream_call,
    .stream_hold = gb_cuda_stream_hold,
    .stream_release = gb_cuda_stream_release,
    .event_create = gb_cuda_event_create,
    .event_destroy = gb_cuda_event_destroy,
    .event_record = gb_cuda_event_record,
    .event_mark = gb_cuda_event_mark,
    .event_query = gb_cuda_event_query,
    .event_sync = gb_cuda_event_sync,
    .event_elapsed = gb_cuda_event_elapsed,
    .watch = gb_cuda_watch,
    .alloc = gb_cuda_alloc,
    .free = gb_cuda_free,
    .copy = gb_cuda_copy,
    .fill = gb_cuda_fill,
    .peer_get = gb_cuda_peer_get,
    .pool_access_set = gb_cuda_pool_access_set,
    .pool_access_get = gb_cuda_pool_access_get,
    .event_record_device = gb_cuda_event_record_device,
    .kind_alloc = gb_cuda_kind_alloc,
    .kind_keeps = gb_cuda_kind_keeps,
    .kind_take = gb_cuda_kind_take,
    .kind_free = gb_cuda_kind_free,
    .move = gb_cuda_move,
    .box = gb_cuda_box,
    .place_fill = gb_cuda_location_fill,
    .prefetch = gb_cuda_prefetch,
    .attach = gb_cuda_attach,
    .attributes = gb_cuda_attributes,
    .export = gb_cuda_export,
    .event_create_shared = gb_cuda_event_create_shared,
    .event_export = gb_cuda_event_export,
    .import = gb_cuda_import,
    .import_end = gb_cuda_import_end,
};

/* Sets the detail: why no device answers. The caller adds the native error. */
static void explain_no_device(cudaError_t rc, struct gb_error *err) {
    int driver = 0;

    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    if (rc == cudaErrorInsufficientDriver && driver == 0)
        gb_error_set(err, GB_ERR_UNSUPPORTED, "no NVIDIA driver is installed");
    else if (rc == cudaErrorInsufficientDriver)
        gb_error_set(err, GB_ERR_UNSUPPORTED,
                     "the NVIDIA driver is too old: it speaks CUDA %d.%d, this program needs %d.%d", driver / 1000,
                     driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    else if (rc == cudaErrorNoDevice)
        gb_error_set(err, GB_ERR_UNSUPPORTED,
                     "the NVIDIA driver shows no device (is it hidden by CUDA_VISIBLE_DEVICES or a container?)");
    else
        gb_error_set(err, GB_ERR_UNSUPPORTED, "no device answers: %s", cudaGetErrorString(rc));
}

static int count_devices(struct cuda_backend *be, int *ret_count, struct gb_error *err) {
    int count = 0;
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc == cudaSuccess && count < 1)
        rc = cudaErrorNoDevice;
    if (rc != cudaSuccess) {
        explain_no_device(rc, err);
        return gb_cuda_fail(be, rc, "cudaGetDeviceCount", err);
    }
    *ret_count = count;
    return 0;
}

static int open_all(struct cuda_backend *be, struct gb_error *err) {
    int count = 0;
    int i;

    if (count_devices(be, &count, err) < 0)
        return -1;
    be->devices = calloc((size_t)count, sizeof(*be->devices));
    if (!be->devices)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    be->device_count = count;
    for (i = 0; i < count; i++) {
        if (device_open(be, i, err) < 0)
            return -1;
    }
    if (gb_cuda_driver_init(be, err) < 0)
        return -1;
    for (i = 0; i < count; i++) {
        if (gb_cuda_describe_reach(be, i, err) < 0)
            return -1;
    }
    gb_cuda_describe_releases(be);
    be->machine_bytes = gb_memory_there("");
    if (be->machine_bytes == 0)
        be->machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    gb_memory_budget_init(&be->budget, "");
    return 0;
}

static void note_opened(const struct cuda_backend *be, char *ret_note) {
    const struct gb_device_rec *first = &be->devices[0].rec;

    snprintf(ret_note, GB_BACKEND_NOTE_SIZE, "cuda: %d device%s (%.80s%s), driver%s%s for CUDA %s, runtime %s",
             be->device_count, be->device_count == 1 ? "" : "s", first->name, be->device_count == 1 ? "" : " first",
             first->driver[0] != '\0' ? " " : "", first->driver, first->cuda_driver, first->cuda_runtime);
}

int gb_cuda_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct cuda_backend *be;

    if (args && args[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "backend cuda takes no arguments, not \"%.64s\"", args);
    be = calloc(1, sizeof(*be));
    if (!be)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    be->base = (struct gb_backend){.ops = &cuda_ops, .domain = "cuda"};
    gb_mutex_init(&be->dead_lock);
    gb_mutex_init(&be->bounces_lock);
    gb_mutex_init(&be->holds.lock);
    gb_mutex_init(&be->files_lock);
    gb_mutex_init(&be->imports_lock);
    atomic_init(&be->dead, false);
    /* Streams beyond this number share queues, where a held stream holds up others. So CUDA's maximum is set, before
     * its first call reads it. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (open_all(be, &why) < 0) {
        cuda_close(&be->base);
        if (ret_note)
            snprintf(ret_note, GB_BACKEND_NOTE_SIZE, "cuda: %.240s", why.detail);
        return gb_error_move(err, &why);
    }
    if (ret_note)
        note_opened(be, ret_note);
    *ret = &be->base;
    return 0;
}
