/* Shared by the files of the CUDA backend only. */
#ifndef GB_BACKEND_CUDA_INTERNAL_H
#define GB_BACKEND_CUDA_INTERNAL_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"

struct cuda_backend;

struct gb_pool {
    cudaMemPool_t handle;
    int device;
    bool is_default;
    bool exportable;
    uint64_t max_bytes;   /* as asked for; the device's total for the default pool */
    uint64_t limit_bytes; /* max_bytes, or the device's total where that is 0 */
};

struct gb_stream {
    cudaStream_t handle;
    int device;
};

struct gb_event {
    cudaEvent_t handle;
    int device;
};

struct cuda_watch {
    struct cuda_watch *next;
    struct gb_event *event;
    gb_watch_fn *fn;
    void *arg;
    uint64_t since_ns;
    uint64_t poll_at_ns;
};

struct cuda_watch_list {
    struct cuda_watch *head;
    struct cuda_watch **tail;
};

/* One thread per device that polls the watched events; see cuda_completer.c. */
struct cuda_completer {
    struct cuda_backend *be;
    int device;
    bool started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;             /* on CLOCK_MONOTONIC */
    struct cuda_watch_list incoming; /* under lock */
    uint64_t sleep_until_ns;         /* under lock; 0: awake, UINT64_MAX: until a watch comes */
    bool stop;                       /* under lock */
};

struct cuda_device {
    struct gb_device_rec rec; /* all but free_bytes */
    bool exports_fd;
    struct gb_pool default_pool;
    cudaStream_t mark_stream; /* never gets work: its events stand at the moment they are recorded */
    struct cuda_completer completer;
};

struct cuda_backend {
    struct gb_backend base;
    int device_count;
    struct cuda_device *devices;
    atomic_bool dead; /* set after why is complete, never cleared */
    pthread_mutex_t dead_lock;
    struct gb_error why; /* immutable once dead */
    PFN_cuMemsetD16Async_v3020 fill16;
    PFN_cuMemsetD32Async_v3020 fill32;
};

static inline struct cuda_backend *gb_cuda_of(struct gb_backend *be) {
    return (struct cuda_backend *)be;
}

/* --- cuda_error.c ------------------------------------------------------------------------------------------------- */

/* Records what `call` answered: native error, code and detail (unless *err has one already), clears CUDA's last error,
 * and marks the backend dead where rc says that the device is. err may be NULL. Returns -1. */
int gb_cuda_fail(struct cuda_backend *be, cudaError_t rc, const char *call, struct gb_error *err);

bool gb_cuda_dead(struct gb_backend *be, struct gb_error *ret_why);

/* Makes the device current for this thread. -1 when it does not exist or CUDA refuses. */
int gb_cuda_select(struct cuda_backend *be, int device, struct gb_error *err);

/* The same, and -1 with the reason when the backend is dead. Every entry that can fail begins with it. */
int gb_cuda_enter(struct cuda_backend *be, int device, struct gb_error *err);

/* --- cuda_completer.c --------------------------------------------------------------------------------------------- */

int gb_cuda_completer_init(struct cuda_completer *completer, struct cuda_backend *be, int device, struct gb_error *err);

/* Fires what is left, joins the thread. A zeroed or half-built completer is accepted. */
void gb_cuda_completer_done(struct cuda_completer *completer);

int gb_cuda_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);

/* --- cuda_pool.c -------------------------------------------------------------------------------------------------- */

/* Fills the device's default pool and sets its release threshold to GB_UNLIMITED. */
int gb_cuda_default_pool_init(struct cuda_backend *be, int device, struct gb_error *err);

int gb_cuda_pool_default(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err);
int gb_cuda_pool_create(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                        struct gb_error *err);
void gb_cuda_pool_destroy(struct gb_backend *be, struct gb_pool *pool);
int gb_cuda_pool_config(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err);
int gb_cuda_pool_configure(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                           struct gb_error *err);
int gb_cuda_pool_stat(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err);
int gb_cuda_pool_reset_peak(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err);
int gb_cuda_pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err);

/* --- cuda_stream.c ------------------------------------------------------------------------------------------------ */

int gb_cuda_stream_create(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err);
void gb_cuda_stream_destroy(struct gb_backend *be, struct gb_stream *stream);
int gb_cuda_stream_sync(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err);
int gb_cuda_stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err);
int gb_cuda_stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                        struct gb_error *err);
int gb_cuda_event_create(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
void gb_cuda_event_destroy(struct gb_backend *be, struct gb_event *event);
int gb_cuda_event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream, struct gb_error *err);
int gb_cuda_event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
int gb_cuda_event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err);
int gb_cuda_event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                          struct gb_error *err);

/* --- cuda_mem.c --------------------------------------------------------------------------------------------------- */

/* Finds the driver's typed fills, which the runtime lacks. */
int gb_cuda_fill_init(struct cuda_backend *be, struct gb_error *err);

int gb_cuda_pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err);
void gb_cuda_pin_free(struct gb_backend *be, void *ptr);
int gb_cuda_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                  struct gb_error *err);
int gb_cuda_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err);
int gb_cuda_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                 struct gb_stream *stream, struct gb_error *err);
int gb_cuda_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                 struct gb_stream *stream, struct gb_error *err);

#endif
