/* The host backend: devices simulated in host memory, with the order, the pools and the errors of CUDA.
 *
 * Work of a stream runs in order on one of a few worker threads; streams run concurrently. A stream that waits for an
 * event occupies no thread. Private to this folder; everyone else uses backend.h.
 *
 * One lock (struct gb_host.lock) guards streams, events and pools; it is never held across a copy, a fill, a callback,
 * or a system call that gives memory back. Names ending in _locked want it held. */
#ifndef GB_BACKEND_HOST_INTERNAL_H
#define GB_BACKEND_HOST_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/host/arena.h"
#include "base/process.h"

#define GB_HOST_DEVICES_MAX 16
#define GB_HOST_WORKERS_MAX 32 /* with streams held back by stream_call */
#define GB_HOST_DEPS_MAX 16

enum {
    GB_HOST_INVALID_VALUE = 1,
    GB_HOST_NO_MEMORY = 2,
    GB_HOST_INVALID_DEVICE = 101,
    GB_HOST_INVALID_HANDLE = 400,
    GB_HOST_NOT_READY = 600,
    GB_HOST_NOT_SUPPORTED = 801
};

/* --- streams ------------------------------------------------------------------------------------------------------ */

enum gb_host_op_kind {
    GB_HOST_COPY,
    GB_HOST_BOX,
    GB_HOST_FILL,
    GB_HOST_CALL,
    GB_HOST_RECORD,
    GB_HOST_WAIT,
    GB_HOST_PROTECT, /* opens managed memory to the CPU, or closes it */
    GB_HOST_NOTHING  /* takes a place in the order: a free */
};

struct gb_host_op {
    enum gb_host_op_kind kind;
    union {
        struct {
            void *dst;
            const void *src;
            uint64_t bytes;
        } copy;
        struct {
            char *memory;
            char *packed;
            struct gb_box box; /* no planes: done */
            bool pack;
        } box;
        struct {
            void *dst;
            uint64_t count;
            uint64_t pattern;
            unsigned width;
        } fill;
        struct {
            void (*fn)(void *arg);
            void *arg;
        } call;
        struct {
            struct gb_event *event; /* holds a reference */
        } record;
        struct {
            struct gb_stream *stream; /* holds a reference */
            uint64_t seq;
        } wait;
        struct {
            void *base;
            uint64_t bytes;
            bool open;
        } protect;
    } u;
};

enum gb_host_stream_state {
    GB_HOST_IDLE,    /* nothing queued */
    GB_HOST_READY,   /* in the run queue */
    GB_HOST_RUNNING, /* a thread has it */
    GB_HOST_PARKED   /* its first operation waits for another stream */
};

/* "Whatever comes next here runs after operation seq of stream id." */
struct gb_host_dep {
    uint64_t stream_id;
    uint64_t seq;
};

struct gb_host_deps {
    unsigned count;
    struct gb_host_dep dep[GB_HOST_DEPS_MAX];
};

/* Operations are numbered from 1 in the order of queueing: those up to done_seq are done, those up to last_seq
 * queued. */
struct gb_stream {
    struct gb_host *host;
    uint64_t id; /* never reused */
    int device;
    struct gb_stream *prev; /* of the device's streams; the helper of record_device is not among them */
    struct gb_stream *next;
    unsigned refs; /* the owner's, each waiting operation's, each event's that was recorded here */
    enum gb_host_stream_state state;
    uint64_t last_seq;
    uint64_t done_seq;
    uint64_t synced_seq; /* the application has waited for this one */
    struct gb_host_deps deps;
    struct gb_host_op *ring;
    size_t ring_size; /* power of two */
    size_t ring_head;
    size_t ring_count;
    struct gb_stream *run_next;
    struct gb_stream *waiters;   /* streams parked on this one */
    struct gb_stream *wait_next; /* while parked: the next in the other stream's list */
    uint64_t wait_seq;
    unsigned syncing; /* threads in sync or destroy */
    pthread_cond_t progress;
};

/* --- events ------------------------------------------------------------------------------------------------------- */

struct gb_host_watch {
    struct gb_host_watch *next;
    struct gb_stream *stream; /* compared only */
    uint64_t seq;
    gb_watch_fn *fn;
    void *arg;
};

struct gb_event {
    struct gb_host *host;
    int device;
    unsigned refs; /* the owner's, each queued record's */
    bool recorded;
    bool shared;              /* created for other processes */
    struct gb_stream *stream; /* of the last record, holds a reference; NULL: never recorded, or a mark */
    uint64_t seq;             /* of the last record in that stream */
    uint64_t time_ns;         /* when the last record was reached */
    struct gb_host_deps deps; /* what the last record covers on other streams */
    struct gb_host_dep *all;  /* of a record of the device: every stream of it */
    size_t all_count;
    struct gb_host_watch *watches;
};

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct gb_pool {
    struct gb_host *host;
    int device;
    struct gb_pool *next;
    struct gb_pool_config config;
    struct gb_pool_stat stat;
    struct gb_host_arena arena;
    uint32_t open_to;      /* devices that may use its memory, a bit each */
    bool dying;            /* destroyed while frees were still queued */
    int fd;                /* that importers would get; -1: nothing was exported */
    uint64_t unsaid_bytes; /* kept after an export, and not among the reserved ones, as with CUDA */
};

struct gb_host_device {
    uint64_t total_bytes;
    uint64_t reserved_bytes; /* of all pools, of shared and managed memory */
    struct gb_pool *default_pool;
    struct gb_pool *pools; /* all, the default one included */
    struct gb_stream *streams;
    struct gb_stream *gather; /* what record_device waits with */
};

struct gb_host_pin {
    struct gb_host_pin *next;
    struct gb_host_segment *segment;
};

struct gb_host_worker {
    struct gb_host *host;
    pthread_t thread;
    enum { GB_HOST_SLOT_FREE, GB_HOST_SLOT_RUNNING, GB_HOST_SLOT_EXITED } state;
};

struct gb_host {
    struct gb_backend base;
    bool discrete;
    bool peers;
    bool managed_attach;
    bool legacy_fake;  /* memory of kind ipc has a handle that cannot be opened */
    bool ipc_fake;     /* exportable pools and shared events have such handles */
    bool free_waits;   /* memory of CUDA's free calls is freed as CUDA does */
    bool integrated;   /* as an integrated GPU: default pools keep little */
    uint32_t poolless; /* a bit for each device without memory pools */
    int device_count;
    struct gb_host_device devices[GB_HOST_DEVICES_MAX];
    pthread_mutex_t lock;

    unsigned freeing; /* frees that wait for a device */
    pthread_cond_t freed;

    struct gb_host_blocks live;  /* every allocation by address */
    struct gb_host_ranges spans; /* every segment by address */
    bool release_wanted;         /* some pool holds more than its threshold */
    struct gb_host_pin *pins;
    uint64_t pin_bytes;
    uint64_t machine_bytes; /* the limit of own_bytes */
    uint64_t own_bytes;     /* pinned and pageable memory by kind_alloc */
    uint64_t foreign_bytes; /* imported */
    struct gb_memory_budget budget;

    uint64_t next_stream_id;
    struct gb_stream *run_head;
    struct gb_stream *run_tail;
    struct gb_host_watch *fire_head; /* watches of events that were done already */
    struct gb_host_watch *fire_tail;

    pthread_cond_t work;
    struct gb_host_worker workers[GB_HOST_WORKERS_MAX];
    unsigned workers_base; /* kept alive */
    unsigned workers_running;
    unsigned workers_idle;
    unsigned workers_woken; /* idle ones that a signal is under way to */
    unsigned workers_in_call;
    bool stopping;
};

#define GB_HOST_NO_POOLS "the device has no memory pools"

static inline bool gb_host_poolless(const struct gb_host *host, int device) {
    return (host->poolless >> device & 1) != 0;
}

static inline struct gb_host *gb_host_of(struct gb_backend *be) {
    return (struct gb_host *)be;
}

/* Sets err to a CUDA error by number, domain "host". Returns -1. */
int gb_host_error(struct gb_error *err, int number, const char *call, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The bytes that all devices, pinned and pageable memory may still get, because the kernel kills a process that uses
 * more than its machine or control group has. The second reads the kernel's numbers first: call it without the lock. */
uint64_t gb_host_left_locked(const struct gb_host *host);
void gb_host_left_read(struct gb_host *host);

/* Sets err to "out of memory" because of that. Returns -1. */
int gb_host_left_refuse(struct gb_host *host, uint64_t left, uint64_t bytes, const char *call, struct gb_error *err);

/* For malloc and the like: INTERNAL. Returns -1. */
int gb_host_no_memory(struct gb_error *err, const char *call);

/* device.c */
bool gb_host_device_ok(struct gb_host *host, int device, const char *call, struct gb_error *err);
int gb_host_device_count(struct gb_backend *be);
int gb_host_device_get(struct gb_backend *be, int device, struct gb_device_rec *ret, struct gb_error *err);
int gb_host_peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err);
int gb_host_pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                            struct gb_error *err);
int gb_host_pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                            struct gb_error *err);

/* Handles that cannot be opened. */
void gb_host_fake_handle(const void *of, unsigned char ret[GB_EXPORT_HANDLE_BYTES]);
int gb_host_fake_pool(struct gb_host *host, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                      struct gb_export *ret, struct gb_error *err);

/* stream.c */

/* Locks for a call that queues work or allocates, which waits for a free that waits for a device, as in CUDA. */
void gb_host_lock(struct gb_host *host);

/* Waits for all work that the device's streams have now; device -1: those of all devices. */
void gb_host_drain_locked(struct gb_host *host, int device);

int gb_host_workers_start(struct gb_host *host, struct gb_error *err);
void gb_host_workers_stop(struct gb_host *host);

int gb_host_submit_locked(struct gb_stream *stream, const struct gb_host_op *op, const char *call,
                          struct gb_error *err);                        /* may drop the lock meanwhile */
struct gb_stream *gb_host_stream_new(struct gb_host *host, int device); /* in no list; NULL without memory */
void gb_host_stream_unref_locked(struct gb_stream *stream);
bool gb_host_deps_has(const struct gb_host_deps *deps, uint64_t stream_id, uint64_t seq);
int gb_host_stream_follow_locked(struct gb_stream *stream, struct gb_stream *other, uint64_t seq, const char *call,
                                 struct gb_error *err);
int gb_host_stream_create(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err);
void gb_host_stream_destroy(struct gb_backend *be, struct gb_stream *stream);
int gb_host_stream_sync(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err);
int gb_host_stream_query(struct gb_backend *be, struct gb_stream *stream, bool *ret_done, struct gb_error *err);
int gb_host_stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err);
int gb_host_stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                        struct gb_error *err);

int gb_host_stream_hold(struct gb_backend *be, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err);
void gb_host_stream_release(struct gb_backend *be, struct gb_hold *hold);

int gb_host_event_create(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
void gb_host_event_destroy(struct gb_backend *be, struct gb_event *event);
int gb_host_event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream, struct gb_error *err);
int gb_host_event_record_device(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err);
int gb_host_event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
int gb_host_event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err);
int gb_host_event_sync(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
int gb_host_event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                          struct gb_error *err);
int gb_host_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);

/* memory.c */
struct gb_pool *gb_host_pool_new_locked(struct gb_host *host, int device, const struct gb_pool_config *config);
void gb_host_pools_free(struct gb_host *host);
struct gb_host_segment *gb_host_release_locked(struct gb_host *host); /* pass the result to gb_host_segment_unmap */
void gb_host_forget_stream_locked(struct gb_host *host, struct gb_stream *stream);
int gb_host_pool_default(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err);
int gb_host_pool_create(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                        struct gb_error *err);
void gb_host_pool_destroy(struct gb_backend *be, struct gb_pool *pool);
int gb_host_pool_config(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err);
int gb_host_pool_configure(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                           struct gb_error *err);
int gb_host_pool_stat(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err);
int gb_host_pool_reset_peak(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err);
int gb_host_pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err);

int gb_host_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                  struct gb_error *err);
int gb_host_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err);

void gb_host_work(
    struct gb_host_op *op); /* a slice of a copy, box or fill, unlocked; what is left goes back into *op */
bool gb_host_worked(const struct gb_host_op *op); /* nothing is left of it */
int gb_host_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                 struct gb_stream *stream, struct gb_error *err);
int gb_host_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                 struct gb_stream *stream, struct gb_error *err);
int gb_host_move(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                 struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err);
int gb_host_box(struct gb_backend *be, const struct gb_location *place, void *pinned, const struct gb_box *box,
                enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err);
int gb_host_location_fill(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern, unsigned width,
                          uint64_t count, struct gb_stream *stream, struct gb_error *err);

/* share.c */
void gb_host_kinds_free(struct gb_host *host); /* what is still allocated when the backend closes */
int gb_host_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                       struct gb_error *err);
bool gb_host_kind_keeps(struct gb_backend *be, enum gb_kind kind);
int gb_host_kind_take(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, int fd, void **ret,
                      struct gb_error *err);
int gb_host_kind_free(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err);
int gb_host_prefetch(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                     struct gb_stream *stream, struct gb_error *err);
int gb_host_attach(struct gb_backend *be, const struct gb_location *place, bool to_cpu, struct gb_stream *stream,
                   struct gb_error *err);
int gb_host_attributes(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                       struct gb_mem_attr *ret, struct gb_error *err);

int gb_host_export(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                   enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err);
int gb_host_event_create_shared(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
int gb_host_event_export(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                         struct gb_error *err);

int gb_host_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret, struct gb_error *err);
int gb_host_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err);

#endif
