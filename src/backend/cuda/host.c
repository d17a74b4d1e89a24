/* What the CPU does in a stream's order: copies and fills of host memory, and its half of the copies of pageable
 * memory, which go through a page-locked bounce buffer. CUDA's own copies of pageable memory make the caller wait for
 * the stream.
 *
 * A piece of work is described once and done in steps, one host function each, so that another stream's functions get
 * their turn between them. The descriptions hang on the stream and are freed when all their steps have run, at the
 * next piece or with the stream: a failed context runs no further function, so no function may be the one to free. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/internal.h"

#define STEP_BYTES (64ULL << 20)
#define STEPS_MAX 32 /* a stream's queue has some thousand entries, and a call that finds it full waits */

static const uint64_t bounce_bytes[CUDA_BOUNCE_SIZES] = {1ULL << 20, 16ULL << 20};
#define LARGE_FROM_BYTES (32ULL << 20)

/* The addresses move on with each step, but for the side that is the bounce buffer. */
struct cuda_host_work {
    struct cuda_host_work *next;
    enum { COPY, COPY_TO_BOUNCE, COPY_FROM_BOUNCE, FILL } kind;
    char *dst;
    const char *src;
    uint64_t pattern;
    unsigned width;
    uint64_t left_bytes;
    uint64_t step_bytes;
    atomic_bool running;
    atomic_uint steps; /* still to run */
};

/* --- on CUDA's thread --------------------------------------------------------------------------------------------- */

/* Pieces begin and end on whole elements. */
static void fill(char *dst, uint64_t pattern, unsigned width, uint64_t bytes) {
    uint64_t done = width < bytes ? width : bytes;

    memcpy(dst, &pattern, done);
    while (done < bytes) {
        uint64_t n = done < bytes - done ? done : bytes - done;

        n = n < 65536 ? n : 65536; /* from what is still in the cache */
        memcpy(dst + done, dst, n);
        done += n;
    }
}

static void run_step(void *arg) {
    struct cuda_host_work *work = arg;
    uint64_t n;

    atomic_store(&work->running, true);
    n = work->left_bytes < work->step_bytes ? work->left_bytes : work->step_bytes;
    if (work->kind == FILL)
        fill(work->dst, work->pattern, work->width, n);
    else
        memmove(work->dst, work->src, n);
    if (work->kind != COPY_TO_BOUNCE)
        work->dst += n;
    if (work->kind == COPY || work->kind == COPY_TO_BOUNCE)
        work->src += n;
    work->left_bytes -= n;
    atomic_store(&work->running, false);
    atomic_fetch_sub(&work->steps, 1); /* the last touch */
}

/* --- queueing ----------------------------------------------------------------------------------------------------- */

static void reap_locked(struct gb_stream *stream) {
    struct cuda_host_work **at = &stream->work;

    while (*at) {
        struct cuda_host_work *work = *at;

        if (atomic_load(&work->steps) > 0) {
            at = &work->next;
            continue;
        }
        *at = work->next;
        free(work);
    }
}

static unsigned steps_of(uint64_t bytes, uint64_t step_bytes) {
    return (unsigned)((bytes + step_bytes - 1) / step_bytes);
}

/* Describes a piece of work of which no step is queued yet. */
static struct cuda_host_work *add_locked(struct gb_stream *stream, const struct cuda_host_work *what,
                                         struct gb_error *err) {
    struct cuda_host_work *work = malloc(sizeof(*work));

    reap_locked(stream);
    if (!work) {
        gb_error_errno(err, GB_ERR_INTERNAL, "malloc", ENOMEM);
        return NULL;
    }
    *work = *what;
    atomic_init(&work->running, false);
    atomic_init(&work->steps, steps_of(work->left_bytes, work->step_bytes));
    work->next = stream->work;
    stream->work = work;
    return work;
}

/* Those that are queued still run, and are waited for before the work is freed. */
static int give_up(struct cuda_backend *be, struct cuda_host_work *work, unsigned unqueued, cudaError_t rc,
                   const char *call, struct gb_error *err) {
    atomic_fetch_sub(&work->steps, unqueued);
    return gb_cuda_fail(be, rc, call, err);
}

static int queue_all_locked(struct cuda_backend *be, struct gb_stream *stream, const struct cuda_host_work *what,
                            struct gb_error *err) {
    unsigned steps = steps_of(what->left_bytes, what->step_bytes);
    struct cuda_host_work *work = add_locked(stream, what, err);
    unsigned i;

    if (!work)
        return -1;
    for (i = 0; i < steps; i++) {
        cudaError_t rc = cudaLaunchHostFunc(stream->handle, run_step, work);

        if (rc != cudaSuccess)
            return give_up(be, work, steps - i, rc, "cudaLaunchHostFunc", err);
    }
    return 0;
}

/* A multiple of every width. */
static uint64_t step_for(uint64_t bytes) {
    uint64_t step = bytes / STEPS_MAX / 8 * 8 + 8;

    return step < STEP_BYTES ? STEP_BYTES : step;
}

int gb_cuda_host_copy_locked(struct cuda_backend *be, struct gb_stream *stream, void *dst, const void *src,
                             uint64_t bytes, struct gb_error *err) {
    const struct cuda_host_work work = {
        .kind = COPY, .dst = dst, .src = src, .left_bytes = bytes, .step_bytes = step_for(bytes)};

    return queue_all_locked(be, stream, &work, err);
}

int gb_cuda_host_fill_locked(struct cuda_backend *be, struct gb_stream *stream, void *dst, uint64_t pattern,
                             unsigned width, uint64_t count, struct gb_error *err) {
    const struct cuda_host_work work = {.kind = FILL,
                                        .dst = dst,
                                        .pattern = pattern,
                                        .width = width,
                                        .left_bytes = count * width,
                                        .step_bytes = step_for(count * width)};

    return queue_all_locked(be, stream, &work, err);
}

/* --- the bounce buffer -------------------------------------------------------------------------------------------- */

static struct cuda_bounce *bounce_new(struct cuda_backend *be, uint64_t bytes, struct gb_error *err) {
    struct cuda_bounce *bounce = calloc(1, sizeof(*bounce));
    void *ptr = NULL;
    cudaError_t rc;

    if (!bounce) {
        gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
        return NULL;
    }
    rc = cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable);
    if (rc != cudaSuccess) {
        free(bounce);
        gb_cuda_fail(be, rc, "cudaHostAlloc", err);
        return NULL;
    }
    bounce->ptr = ptr;
    return bounce;
}

/* The stream keeps it: its operations are in order, so each finds it free. */
static char *bounce_of_locked(struct cuda_backend *be, struct gb_stream *stream, enum cuda_bounce_size size,
                              struct gb_error *err) {
    if (!stream->bounce[size]) {
        pthread_mutex_lock(&be->bounces_lock);
        stream->bounce[size] = be->bounces[size];
        if (stream->bounce[size])
            be->bounces[size] = stream->bounce[size]->next;
        pthread_mutex_unlock(&be->bounces_lock);
    }
    if (!stream->bounce[size])
        stream->bounce[size] = bounce_new(be, bounce_bytes[size], err);
    return stream->bounce[size] ? stream->bounce[size]->ptr : NULL;
}

int gb_cuda_bounce_locked(struct cuda_backend *be, struct gb_stream *stream, void *dst, const void *src, uint64_t bytes,
                          bool to_device, struct gb_error *err) {
    enum cuda_bounce_size size = bytes > LARGE_FROM_BYTES ? CUDA_BOUNCE_LARGE : CUDA_BOUNCE_SMALL;
    uint64_t step_bytes = bounce_bytes[size];
    unsigned steps = steps_of(bytes, step_bytes);
    char *bounce = bounce_of_locked(be, stream, size, err);
    const struct cuda_host_work what = {.kind = to_device ? COPY_TO_BOUNCE : COPY_FROM_BOUNCE,
                                        .dst = to_device ? bounce : dst,
                                        .src = to_device ? src : bounce,
                                        .left_bytes = bytes,
                                        .step_bytes = step_bytes};
    struct cuda_host_work *work = bounce ? add_locked(stream, &what, err) : NULL;
    unsigned i;

    if (!work)
        return -1;
    for (i = 0; i < steps; i++) {
        uint64_t at = i * step_bytes;
        uint64_t n = bytes - at < step_bytes ? bytes - at : step_bytes;
        cudaError_t rc = cudaSuccess;

        if (!to_device)
            rc = cudaMemcpyAsync(bounce, (const char *)src + at, n, cudaMemcpyDeviceToHost, stream->handle);
        if (rc != cudaSuccess)
            return give_up(be, work, steps - i, rc, "cudaMemcpyAsync", err);
        rc = cudaLaunchHostFunc(stream->handle, run_step, work);
        if (rc != cudaSuccess)
            return give_up(be, work, steps - i, rc, "cudaLaunchHostFunc", err);
        if (to_device)
            rc = cudaMemcpyAsync((char *)dst + at, bounce, n, cudaMemcpyHostToDevice, stream->handle);
        if (rc != cudaSuccess)
            return give_up(be, work, steps - i - 1, rc, "cudaMemcpyAsync", err);
    }
    return 0;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Nothing is queued any more. A dead device may have interrupted a function. */
void gb_cuda_host_done(struct cuda_backend *be, struct gb_stream *stream) {
    int size;

    while (stream->work) {
        struct cuda_host_work *work = stream->work;

        while (atomic_load(&work->running))
            sched_yield();
        stream->work = work->next;
        free(work);
    }
    pthread_mutex_lock(&be->bounces_lock);
    for (size = 0; size < CUDA_BOUNCE_SIZES; size++) {
        if (!stream->bounce[size])
            continue;
        stream->bounce[size]->next = be->bounces[size];
        be->bounces[size] = stream->bounce[size];
        stream->bounce[size] = NULL;
    }
    pthread_mutex_unlock(&be->bounces_lock);
}

/* Not sooner: cudaFreeHost may wait for all work of the device. */
void gb_cuda_bounces_free(struct cuda_backend *be) {
    int size;

    for (size = 0; size < CUDA_BOUNCE_SIZES; size++) {
        while (be->bounces[size]) {
            struct cuda_bounce *bounce = be->bounces[size];

            be->bounces[size] = bounce->next;
            gb_cuda_pin_free(&be->base, bounce->ptr);
            free(bounce);
        }
    }
}
