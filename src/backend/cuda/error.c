/* CUDA's errors and the death of the backend, and which device a thread works on. */
#include "backend/cuda/internal.h"
#include "backend/native.h"

/* The device that cudaSetDevice last got on this thread: saves the call on nearly every entry. The runtime keeps
 * the same state per thread, and nothing else of the program sets it. */
static _Thread_local int current_device = -1;

static void mark_dead(struct cuda_backend *be, const struct gb_error *why) {
    pthread_mutex_lock(&be->dead_lock);
    if (!atomic_load(&be->dead)) {
        be->why = *why;
        atomic_store(&be->dead, true);
    }
    pthread_mutex_unlock(&be->dead_lock);
}

int gb_cuda_fail(struct cuda_backend *be, cudaError_t rc, const char *call, struct gb_error *err) {
    struct gb_error what = GB_ERROR_INIT;

    /* CUDA keeps the last error of a thread until it is read: clear it, so that no later call reports it. */
    (void)cudaGetLastError();
    gb_error_native_told(&what, "cuda", (int)rc, cudaGetErrorName(rc), call, cudaGetErrorString(rc));
    gb_error_set(&what, gb_native_code((int)rc), "%s failed: %s", call, cudaGetErrorString(rc));
    if (what.code == GB_ERR_DEVICE_LOST)
        mark_dead(be, &what);
    gb_error_native_told(err, what.native_domain, what.native_code, what.native_name, what.call, what.native_text);
    return gb_error_set(err, what.code, "%s", what.detail);
}

bool gb_cuda_dead(struct gb_backend *base, struct gb_error *ret_why) {
    struct cuda_backend *be = gb_cuda_of(base);

    if (!atomic_load(&be->dead))
        return false;
    if (ret_why)
        *ret_why = be->why;
    return true;
}

int gb_cuda_select(struct cuda_backend *be, int device, struct gb_error *err) {
    cudaError_t rc;

    if (device == current_device)
        return 0;
    if (device < 0 || device >= be->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "device %d is not one of the %d devices", device,
                            be->device_count);
    rc = cudaSetDevice(device);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaSetDevice", err);
    current_device = device;
    return 0;
}

int gb_cuda_enter(struct cuda_backend *be, int device, struct gb_error *err) {
    if (atomic_load(&be->dead))
        return gb_error_move(err, &be->why);
    return gb_cuda_select(be, device, err);
}
