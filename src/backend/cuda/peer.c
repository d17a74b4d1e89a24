/* Several devices: which device reaches which memory, and events that cover all streams of a device. */
#include <stdio.h>

#include "backend/cuda/internal.h"

bool gb_cuda_reaches(int device, int peer) {
    int can = 0;

    if (device == peer)
        return true;
    if (cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess)
        (void)cudaGetLastError();
    return can != 0;
}

static int p2p_attribute(enum cudaDeviceP2PAttr attribute, int device, int peer) {
    int value = 0;

    if (cudaDeviceGetP2PAttribute(&value, attribute, device, peer) != cudaSuccess)
        (void)cudaGetLastError();
    return value;
}

static int check_device(const struct cuda_backend *be, int device, struct gb_error *err) {
    if (device >= 0 && device < be->device_count)
        return 0;
    return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "device %d is not one of the %d devices", device,
                        be->device_count);
}

int gb_cuda_peer_get(struct gb_backend *base, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_peer_rec rec = {.device = device, .peer = peer, .native_atomics = true};

    if (check_device(be, peer, err) < 0 || gb_cuda_enter(be, device, err) < 0)
        return -1;
    rec.can_access = gb_cuda_reaches(device, peer);
    if (device != peer) {
        rec.native_atomics = p2p_attribute(cudaDevP2PAttrNativeAtomicSupported, device, peer) != 0;
        rec.rank = p2p_attribute(cudaDevP2PAttrPerformanceRank, device, peer);
    }
    if (!rec.can_access)
        snprintf(rec.why_not, sizeof(rec.why_not), "CUDA finds no way from device %d to the memory of device %d",
                 device, peer);
    *ret = rec;
    return 0;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

int gb_cuda_pool_access_set(struct gb_backend *base, struct gb_pool *pool, int device, enum gb_pool_access access,
                            struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct cudaMemAccessDesc desc = {
        .location = {.type = cudaMemLocationTypeDevice, .id = device},
        .flags = access == GB_POOL_ACCESS_READ_WRITE ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone,
    };
    cudaError_t rc;

    if ((unsigned)access >= GB_POOL_ACCESS_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a pool has no access %d", (int)access);
    if (check_device(be, device, err) < 0 || gb_cuda_enter(be, pool->device, err) < 0)
        return -1;
    if (device == pool->device) {
        if (access == GB_POOL_ACCESS_READ_WRITE)
            return 0;
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a pool is always open to its own device, %d", device);
    }
    if (!gb_cuda_reaches(device, pool->device))
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "CUDA finds no way from device %d to the memory of device %d",
                            device, pool->device);
    rc = cudaMemPoolSetAccess(pool->handle, &desc, 1);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaMemPoolSetAccess", err);
}

int gb_cuda_pool_open_to(struct cuda_backend *be, cudaMemPool_t pool, int device, bool *ret, struct gb_error *err) {
    struct cudaMemLocation location = {.type = cudaMemLocationTypeDevice, .id = device};
    enum cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    cudaError_t rc = cudaMemPoolGetAccess(&flags, pool, &location);

    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemPoolGetAccess", err);
    *ret = flags == cudaMemAccessFlagsProtReadWrite;
    return 0;
}

int gb_cuda_pool_access_get(struct gb_backend *base, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                            struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    bool open = false;

    if (check_device(be, device, err) < 0 || gb_cuda_enter(be, pool->device, err) < 0 ||
        gb_cuda_pool_open_to(be, pool->handle, device, &open, err) < 0)
        return -1;
    *ret = open ? GB_POOL_ACCESS_READ_WRITE : GB_POOL_ACCESS_NONE;
    return 0;
}

/* --- all streams of a device -------------------------------------------------------------------------------------- */

/* The gathering stream waits for each stream's end as it stands; a stream leaves the list only when it is drained. What
 * was gathered earlier is waited for as well: it is part of the past that the event covers. */
int gb_cuda_event_record_device(struct gb_backend *base, struct gb_event *event, int device, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    const char *call = "cudaEventRecord";
    struct gb_stream *stream;
    struct cuda_device *dev;
    cudaError_t rc = cudaSuccess;

    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    dev = &be->devices[device];
    pthread_mutex_lock(&dev->streams_lock);
    for (stream = dev->streams; stream && rc == cudaSuccess; stream = stream->next) {
        rc = cudaEventRecord(stream->end, stream->handle);
        if (rc == cudaSuccess) {
            call = "cudaStreamWaitEvent";
            rc = cudaStreamWaitEvent(dev->gather_stream, stream->end, cudaEventWaitDefault);
        }
        if (rc == cudaSuccess)
            call = "cudaEventRecord";
    }
    atomic_store(&event->covers_device, true);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(event->handle, dev->gather_stream);
    pthread_mutex_unlock(&dev->streams_lock);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, call, err);
}
