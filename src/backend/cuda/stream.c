/* Streams and events of CUDA, the threads that fire watches, and holds. A watch fires exactly once, also if its device
 * dies. cuda.c puts the functions into the vtable and starts the threads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "backend/common.h"
#include "backend/cuda/internal.h"
#include "base/clock.h"
#include "base/thread.h"

/* --- streams and events ------------------------------------------------------------------------------------------- */

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
    /* Non-blocking, so that no hidden order with the legacy default stream exists. */
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

/* The stream leaves the list after its work, so that an event of the device covers the work until then. */
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
    /* With timing, for event_elapsed; without blocking sync, because threads query events and do not wait for them. */
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
    /* A pool learns of finished frees only by a synchronization, which returns at once here. */
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

/* --- watches ------------------------------------------------------------------------------------------------------ */

/* The completer is one thread per device that polls watched events.
 *
 * CUDA's own call-back (cudaLaunchHostFunc) would hold up the stream's later work, may run one after the other with
 * those of other streams, and never comes once the context has failed. So each event is polled at its own pace: quickly
 * while it is young, later at a thirty-second of its age. An event on a stalled stream thus neither delays others nor
 * keeps a core busy. The thread sleeps on a condition while no event is watched. */

#define POLL_MIN_NS 10000ULL
#define POLL_MAX_NS 1000000ULL
#define AGE_PER_POLL 32

static void list_init(struct cuda_watch_list *list) {
    list->head = NULL;
    list->tail = &list->head;
}

static void list_append(struct cuda_watch_list *list, struct cuda_watch *watch) {
    watch->next = NULL;
    *list->tail = watch;
    list->tail = &watch->next;
}

/* Moves all watches of `from` to the end of `to`. */
static void list_move(struct cuda_watch_list *to, struct cuda_watch_list *from) {
    if (!from->head)
        return;
    *to->tail = from->head;
    to->tail = from->tail;
    list_init(from);
}

/* Frees the watch before its function runs, which may watch the event again or destroy it. */
static void fire(struct cuda_watch *watch, const struct gb_error *error) {
    gb_watch_fn *fn = watch->fn;
    void *arg = watch->arg;

    free(watch);
    fn(arg, error);
}

/* Queries the event. Returns false while it is not done, with the time of the next query set; else fires the watch.
 * Once the backend is dead, the query itself fails. */
static bool poll_one(struct cuda_completer *completer, struct cuda_watch *watch, uint64_t now_ns) {
    struct gb_error error = GB_ERROR_INIT;
    bool done = false;
    uint64_t wait_ns;

    if (gb_cuda_event_query(&completer->be->base, watch->event, &done, &error) < 0) {
        fire(watch, &error);
        return true;
    }
    if (done) {
        fire(watch, NULL);
        return true;
    }
    wait_ns = (now_ns - watch->since_ns) / AGE_PER_POLL;
    if (wait_ns < POLL_MIN_NS)
        wait_ns = POLL_MIN_NS;
    if (wait_ns > POLL_MAX_NS)
        wait_ns = POLL_MAX_NS;
    watch->poll_at_ns = now_ns + wait_ns;
    return false;
}

/* Polls the watches that are due, or nearly due so that wake-ups fall together. Returns the time of the next poll, or
 * UINT64_MAX. */
static uint64_t poll_due(struct cuda_completer *completer, struct cuda_watch_list *pending) {
    struct cuda_watch *watch = pending->head;
    uint64_t next_ns = UINT64_MAX;
    uint64_t now_ns = gb_clock_ns();
    struct cuda_watch *following;

    list_init(pending);
    for (; watch; watch = following) {
        following = watch->next;
        if (watch->poll_at_ns <= now_ns + POLL_MIN_NS / 2) {
            if (poll_one(completer, watch, now_ns))
                continue;
        }
        if (watch->poll_at_ns < next_ns)
            next_ns = watch->poll_at_ns;
        list_append(pending, watch);
    }
    return next_ns;
}

/* Fires the watches at the end. All streams are idle by contract, so each event is done; if one is not, it fires
 * too. */
static void fire_rest(struct cuda_completer *completer, struct cuda_watch_list *pending) {
    struct gb_error error = GB_ERROR_INIT;
    struct cuda_watch *watch = pending->head;
    uint64_t now_ns = gb_clock_ns();
    struct cuda_watch *following;

    gb_error_set(&error, GB_ERR_DRAINING, "the device was closed before its work was done");
    list_init(pending);
    for (; watch; watch = following) {
        following = watch->next;
        if (!poll_one(completer, watch, now_ns))
            fire(watch, &error);
    }
}

/* Sleeps until a watch comes, next_ns is reached or the completer is stopped. */
static void wait_locked(struct cuda_completer *completer, uint64_t next_ns) {
    struct timespec at = {.tv_sec = (time_t)(next_ns / GB_NS_PER_S), .tv_nsec = (long)(next_ns % GB_NS_PER_S)};
    int rc = 0;

    completer->sleep_until_ns = next_ns;
    while (!completer->stop && !completer->incoming.head && rc != ETIMEDOUT) {
        if (next_ns == UINT64_MAX)
            pthread_cond_wait(&completer->cond, &completer->lock);
        else
            rc = pthread_cond_timedwait(&completer->cond, &completer->lock, &at);
    }
    completer->sleep_until_ns = 0;
}

static void *completer_main(void *arg) {
    struct cuda_completer *completer = arg;
    struct cuda_watch_list pending;
    uint64_t next_ns = UINT64_MAX;
    char name[16];
    bool stop = false;

    snprintf(name, sizeof(name), "gb-cuda-%d", completer->device % 1000);
    pthread_setname_np(pthread_self(), name);
    /* The kernel's default slack of 50 us is longer than a short copy. */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    list_init(&pending);
    while (!stop) {
        pthread_mutex_lock(&completer->lock);
        wait_locked(completer, next_ns);
        list_move(&pending, &completer->incoming);
        stop = completer->stop;
        pthread_mutex_unlock(&completer->lock);
        next_ns = poll_due(completer, &pending);
    }
    fire_rest(completer, &pending);
    return NULL;
}

int gb_cuda_completer_init(struct cuda_completer *completer, struct cuda_backend *be, int device,
                           struct gb_error *err) {
    pthread_condattr_t attr;
    int rc;

    completer->be = be;
    completer->device = device;
    list_init(&completer->incoming);
    gb_mutex_init(&completer->lock);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&completer->cond, &attr);
    pthread_condattr_destroy(&attr);
    rc = pthread_create(&completer->thread, NULL, completer_main, completer);
    if (rc != 0) {
        pthread_cond_destroy(&completer->cond);
        pthread_mutex_destroy(&completer->lock);
        return gb_error_errno(err, GB_ERR_INTERNAL, "pthread_create", rc);
    }
    completer->started = true;
    return 0;
}

void gb_cuda_completer_done(struct cuda_completer *completer) {
    if (!completer->started)
        return;
    pthread_mutex_lock(&completer->lock);
    completer->stop = true;
    pthread_cond_signal(&completer->cond);
    pthread_mutex_unlock(&completer->lock);
    pthread_join(completer->thread, NULL);
    pthread_cond_destroy(&completer->cond);
    pthread_mutex_destroy(&completer->lock);
    completer->started = false;
}

int gb_cuda_watch(struct gb_backend *base, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct cuda_completer *completer = &be->devices[event->device].completer;
    struct cuda_watch *watch;
    bool stopped;

    if (gb_cuda_enter(be, event->device, err) < 0)
        return -1;
    watch = calloc(1, sizeof(*watch));
    if (!watch)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    watch->event = event;
    watch->fn = fn;
    watch->arg = arg;
    watch->since_ns = gb_clock_ns();
    watch->poll_at_ns = watch->since_ns;
    pthread_mutex_lock(&completer->lock);
    stopped = completer->stop;
    if (!stopped) {
        list_append(&completer->incoming, watch);
        /* A thread that is awake, or about to wake, finds the watch by itself. */
        if (completer->sleep_until_ns > watch->since_ns + POLL_MIN_NS)
            pthread_cond_signal(&completer->cond);
    }
    pthread_mutex_unlock(&completer->lock);
    if (!stopped)
        return 0;
    free(watch);
    return gb_error_set(err, GB_ERR_DRAINING, "the device is being closed");
}

/* --- holds -------------------------------------------------------------------------------------------------------- */

/* The device waits for a word of page-locked memory, which blocks no thread. If the driver has no such wait, a host
 * function waits at a gate. A word is used again with a larger number, which also ends waits for smaller numbers that
 * their streams have not reached yet. */

struct gb_hold {
    struct cuda_hold_word *word; /* NULL: the gate */
    struct gb_gate *gate;
};

/* Takes a free word. Returns NULL if all are taken, or the page could not be allocated. */
static struct cuda_hold_word *take_word(struct cuda_backend *be) {
    struct cuda_hold_words *words = &be->holds;
    struct cuda_hold_word *word = NULL;
    void *page = NULL;
    unsigned i;

    pthread_mutex_lock(&words->lock);
    if (!words->page && cudaHostAlloc(&page, CUDA_HOLD_WORDS * sizeof(*words->page),
                                      cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess) {
        words->page = page;
        for (i = 0; i < CUDA_HOLD_WORDS; i++) {
            atomic_init(&words->page[i], 0);
            words->word[i].at = &words->page[i];
        }
    }
    for (i = 0; words->page && i < CUDA_HOLD_WORDS && !word; i++) {
        if (!words->word[i].taken)
            word = &words->word[i];
    }
    if (word) {
        word->taken = true;
        word->number++;
    }
    pthread_mutex_unlock(&words->lock);
    (void)cudaGetLastError();
    return word;
}

static void give_word(struct cuda_backend *be, struct cuda_hold_word *word) {
    atomic_store(word->at, word->number);
    pthread_mutex_lock(&be->holds.lock);
    word->taken = false;
    pthread_mutex_unlock(&be->holds.lock);
}

/* Queues the wait. Returns false if this device or driver cannot. */
static bool wait_for_word(struct cuda_backend *be, struct gb_stream *stream, struct cuda_hold_word **ret) {
    struct cuda_hold_word *word;
    void *at = NULL;

    if (!be->driver.stream_wait_value || !(word = take_word(be)))
        return false;
    if (cudaHostGetDevicePointer(&at, (void *)word->at, 0) == cudaSuccess &&
        be->driver.stream_wait_value(stream->handle, (CUdeviceptr)(uintptr_t)at, word->number,
                                     CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS) {
        *ret = word;
        return true;
    }
    (void)cudaGetLastError();
    give_word(be, word);
    return false;
}

static int stand_at_gate(struct cuda_backend *be, struct gb_stream *stream, struct gb_hold *hold,
                         struct gb_error *err) {
    hold->gate = gb_gate_new();
    if (!hold->gate)
        return gb_error_errno(err, GB_ERR_INTERNAL, "malloc", ENOMEM);
    if (gb_cuda_stream_call(&be->base, stream, gb_gate_pass, hold->gate, err) == 0)
        return 0;
    gb_gate_free(hold->gate);
    return -1;
}

int gb_cuda_stream_hold(struct gb_backend *base, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_hold *hold;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    hold = calloc(1, sizeof(*hold));
    if (!hold)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    if (!wait_for_word(be, stream, &hold->word) && stand_at_gate(be, stream, hold, err) < 0) {
        free(hold);
        return -1;
    }
    *ret = hold;
    return 0;
}

/* A gate whose function died with its device is not freed, because the function may still use it. */
void gb_cuda_stream_release(struct gb_backend *base, struct gb_hold *hold) {
    if (hold->word)
        give_word(gb_cuda_of(base), hold->word);
    else
        gb_gate_open(hold->gate);
    free(hold);
}

/* Called after all streams were destroyed. */
void gb_cuda_holds_done(struct cuda_backend *be) {
    if (be->holds.page)
        gb_cuda_pin_free(&be->base, (void *)be->holds.page);
    pthread_mutex_destroy(&be->holds.lock);
}
