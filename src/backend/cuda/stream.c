/* Streams and events. */
#include <errno.h>
#include <stdlib.h>

#include "backend/cuda/internal.h"
#include "base/thread.h"

static void list(struct cuda_device *dev, struct gb_stream *stream) {
    pthread_mutex_lock(&dev->streams_lock);
    stream->next = dev->streams;
    if (stream->next)
        stream->next->prev = stream;
    dev->streams = stream;
    pthread_mutex_unlock(&dev->streams_lock);
}

static void unlist(struct cuda_device *dev, struct gb_stream *stream) {
    pthread_mutex_lock(&dev->streams_lock);
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        dev->streams = stream->next;
    if (stream->next)
        stream->next->prev = stream->prev;
    pthread_mutex_unlock(&dev->streams_lock);
}

int gb_cuda_stream_create(struct gb_backend *base, int device, struct gb_stream **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    const char *call = "cudaStreamCreateWithFlags";
    struct gb_stream *stream;
    cudaError_t rc;

    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    stream = calloc(1, sizeof(*stream));
    if (!stream)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    stream->device = device;
    /* Non-blocking: no hidden order with the legacy default stream. */
    rc = cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking);
    if (rc == cudaSuccess) {
        call = "cudaEventCreateWithFlags";
        rc = cudaEventCreateWithFlags(&stream->end, cudaEventDisableTiming);
        if (rc != cudaSuccess)
            (void)cudaStreamDestroy(stream->handle);
    }
    if (rc != cudaSuccess) {
        free(stream);
        return gb_cuda_fail(be, rc, call, err);
    }
    gb_mutex_init(&stream->lock);
    list(&be->devices[device], stream);
    *ret = stream;
    return 0;
}

/* It leaves the list when its work is done, so that an event of the device covers the work until then. */
void gb_cuda_stream_destroy(struct gb_backend *base, struct gb_stream *stream) {
    struct cuda_backend *be = gb_cuda_of(base);
    bool selected;
    cudaError_t rc;

    if (!stream)
        return;
    selected = gb_cuda_select(be, stream->device, NULL) == 0;
    if (selected) {
        rc = cudaStreamSynchronize(stream->handle);
        if (rc != cudaSuccess)
            gb_cuda_fail(be, rc, "cudaStreamSynchronize", NULL);
    }
    unlist(&be->devices[stream->device], stream);
    gb_cuda_host_done(be, stream);
    if (selected) {
        (void)cudaEventDestroy(stream->end);
        rc = cudaStreamDestroy(stream->handle);
        if (rc != cudaSuccess)
            gb_cuda_fail(be, rc, "cudaStreamDestroy", NULL);
    }
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

int gb_cuda_stream_query(struct gb_backend *base, struct gb_stream *stream, bool *ret_done, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    rc = cudaStreamQuery(stream->handle);
    if (rc != cudaSuccess && rc != cudaErrorNotReady)
        return gb_cuda_fail(be, rc, "cudaStreamQuery", err);
    if (rc == cudaErrorNotReady)
        (void)cudaGetLastError(); /* as with events */
    *ret_done = rc == cudaSuccess;
    return 0;
}

int gb_cuda_stream_sync(struct gb_backend *base, struct gb_stream *stream, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    rc = cudaStreamSynchronize(stream->handle);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaStreamSynchronize", err);
}

int gb_cuda_stream_wait(struct gb_backend *base, struct gb_stream *stream, struct gb_event *event,
                        struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    rc = cudaStreamWaitEvent(stream->handle, event->handle, cudaEventWaitDefault);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaStreamWaitEvent", err);
}

int gb_cuda_stream_call(struct gb_backend *base, struct gb_stream *stream, void (*fn)(void *), void *arg,
                        struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    rc = cudaLaunchHostFunc(stream->handle, fn, arg);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaLaunchHostFunc", err);
}

int gb_cuda_event_create(struct gb_backend *base, int device, struct gb_event **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_event *event;
    cudaError_t rc;

    if (gb_cuda_enter(be, device, err) < 0)
        return -1;
    event = calloc(1, sizeof(*event));
    if (!event)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    event->device = device;
    /* With timing, for event_elapsed; without blocking sync, since events are only queried, never waited for. */
    rc = cudaEventCreateWithFlags(&event->handle, cudaEventDefault);
    if (rc != cudaSuccess) {
        free(event);
        return gb_cuda_fail(be, rc, "cudaEventCreateWithFlags", err);
    }
    *ret = event;
    return 0;
}

void gb_cuda_event_destroy(struct gb_backend *base, struct gb_event *event) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (!event)
        return;
    if (gb_cuda_select(be, event->device, NULL) == 0) {
        rc = cudaEventDestroy(event->handle);
        if (rc != cudaSuccess)
            gb_cuda_fail(be, rc, "cudaEventDestroy", NULL);
    }
    free(event);
}

int gb_cuda_event_record(struct gb_backend *base, struct gb_event *event, struct gb_stream *stream,
                         struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    atomic_store(&event->covers_device, false);
    rc = cudaEventRecord(event->handle, stream->handle);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaEventRecord", err);
}

int gb_cuda_event_mark(struct gb_backend *base, struct gb_event *event, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, event->device, err) < 0)
        return -1;
    rc = cudaEventRecord(event->handle, be->devices[event->device].mark_stream);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaEventRecord", err);
}

int gb_cuda_event_query(struct gb_backend *base, struct gb_event *event, bool *ret_done, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, event->device, err) < 0)
        return -1;
    rc = cudaEventQuery(event->handle);
    if (rc != cudaSuccess && rc != cudaErrorNotReady)
        return gb_cuda_fail(be, rc, "cudaEventQuery", err);
    if (rc == cudaErrorNotReady)
        (void)cudaGetLastError(); /* some versions keep even this as the last error */
    /* A pool learns of finished frees by synchronizing alone, and a query does not synchronize: it returns at once
     * here. */
    if (rc == cudaSuccess && atomic_load(&event->covers_device)) {
        rc = cudaEventSynchronize(event->handle);
        if (rc != cudaSuccess)
            return gb_cuda_fail(be, rc, "cudaEventSynchronize", err);
    }
    *ret_done = rc == cudaSuccess;
    return 0;
}

int gb_cuda_event_sync(struct gb_backend *base, struct gb_event *event, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    cudaError_t rc;

    if (gb_cuda_enter(be, event->device, err) < 0)
        return -1;
    rc = cudaEventSynchronize(event->handle);
    return rc == cudaSuccess ? 0 : gb_cuda_fail(be, rc, "cudaEventSynchronize", err);
}

int gb_cuda_event_elapsed(struct gb_backend *base, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                          struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    float ms = 0;
    cudaError_t rc;

    if (gb_cuda_enter(be, end->device, err) < 0)
        return -1;
    rc = cudaEventElapsedTime(&ms, start->handle, end->handle);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaEventElapsedTime", err);
    *ret_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return 0;
}
