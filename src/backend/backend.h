/* The device interface. The only vtable of the program: host and cuda implement it, fault decorates either.
 *
 * Every function takes the backend first. Handles (pool, stream, event) belong to the backend that made them and are
 * opaque; the fault decorator passes them through. Unless a contract says otherwise, functions are thread-safe, return
 * 0 or -1 with *err filled, and set the calling thread's device themselves. Only functions marked [any thread, never
 * blocks] may be called from an HTTP loop.
 *
 * Native errors carry domain, number, name and call: {"cuda", 2, "cudaErrorMemoryAllocation",
 * "cudaMallocFromPoolAsync"}. The host backend reports the errors that CUDA would, under the same names and numbers,
 * with domain "host". Out of memory is OUT_OF_MEMORY. An error after which the device is dead is DEVICE_LOST, and
 * gb_backend_dead() is true from then on. Every other error is DEVICE_ERROR. What is UNSUPPORTED carries the error that
 * CUDA's call would give, also if that call was not made; not so what is no matter of CUDA's. */
#ifndef GB_BACKEND_BACKEND_H
#define GB_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/health/health.h"
#include "base/error.h"
#include "model/model.h"
#include "model/view.h"

struct gb_backend;
struct gb_pool;
struct gb_stream;
struct gb_event;
struct gb_hold;

enum gb_copy_direction { GB_COPY_TO_DEVICE, GB_COPY_FROM_DEVICE, GB_COPY_ON_DEVICE };

/* Called exactly once for each accepted watch, on a thread of the backend. It must not block, and may call no functions
 * of the backend but watch, event_query and event_elapsed. error is NULL if the event completed, else the error of the
 * stream's work. */
typedef void gb_watch_fn(void *arg, const struct gb_error *error);

struct gb_backend_ops {
    const char *name; /* "host", "cuda", "fault" */
    void (*close)(struct gb_backend *be);
    int (*device_count)(struct gb_backend *be);
    int (*device_get)(struct gb_backend *be, int device, struct gb_device_rec *ret, struct gb_error *err);
    int (*peer_get)(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err);
    bool (*dead)(struct gb_backend *be, struct gb_error *ret_why);

    int (*pin_alloc)(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err);
    void (*pin_free)(struct gb_backend *be, void *ptr);

    int (*pool_default)(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err);
    int (*pool_create)(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                       struct gb_error *err);
    void (*pool_destroy)(struct gb_backend *be, struct gb_pool *pool);
    int (*pool_config)(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err);
    int (*pool_configure)(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                          struct gb_error *err);
    int (*pool_stat)(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err);
    int (*pool_reset_peak)(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err);
    int (*pool_trim)(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err);
    int (*pool_access_set)(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                           struct gb_error *err);
    int (*pool_access_get)(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                           struct gb_error *err);

    int (*stream_create)(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err);
    void (*stream_destroy)(struct gb_backend *be, struct gb_stream *stream);
    int (*stream_sync)(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err);
    int (*stream_query)(struct gb_backend *be, struct gb_stream *stream, bool *ret_done, struct gb_error *err);
    int (*stream_wait)(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err);
    int (*stream_call)(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                       struct gb_error *err);
    int (*stream_hold)(struct gb_backend *be, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err);
    void (*stream_release)(struct gb_backend *be, struct gb_hold *hold);

    int (*event_create)(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
    void (*event_destroy)(struct gb_backend *be, struct gb_event *event);
    int (*event_record)(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream, struct gb_error *err);
    int (*event_record_device)(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err);
    int (*event_mark)(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
    int (*event_query)(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err);
    int (*event_sync)(struct gb_backend *be, struct gb_event *event, struct gb_error *err);
    int (*event_elapsed)(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                         struct gb_error *err);
    int (*watch)(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);

    int (*alloc)(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                 struct gb_error *err);
    int (*free)(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err);
    int (*copy)(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                struct gb_stream *stream, struct gb_error *err);
    int (*fill)(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                struct gb_stream *stream, struct gb_error *err);

    int (*kind_alloc)(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                      struct gb_error *err);
    bool (*kind_keeps)(struct gb_backend *be, enum gb_kind kind);
    int (*kind_take)(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, int fd, void **ret,
                     struct gb_error *err);
    int (*kind_free)(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_error *err);
    int (*move)(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err);
    int (*box)(struct gb_backend *be, const struct gb_location *place, void *pinned, const struct gb_box *box,
               enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err);
    int (*place_fill)(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern, unsigned width,
                      uint64_t count, struct gb_stream *stream, struct gb_error *err);
    int (*prefetch)(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                    struct gb_stream *stream, struct gb_error *err);
    int (*attach)(struct gb_backend *be, const struct gb_location *place, bool to_cpu, struct gb_stream *stream,
                  struct gb_error *err);
    int (*attributes)(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                      struct gb_mem_attr *ret, struct gb_error *err);

    int (*export)(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                  enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err);
    int (*event_create_shared)(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err);
    int (*event_export)(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                        struct gb_error *err);

    /* The group "import": both, or neither. */
    int (*import)(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret, struct gb_error *err);
    int (*import_end)(struct gb_backend *be, const struct gb_location *place, struct gb_error *err);
};

/* The first member of every implementation. */
struct gb_backend {
    const struct gb_backend_ops *ops;
    const char *domain; /* of native errors: "cuda", "host" */
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Opens what spec names:
 *   auto                       cuda if a device answers, else host; the reason goes to ret_note
 *   cuda                       every visible GPU
 *   host[:key=value,...]       keys: devices=N (1), bytes=SIZE per device (default: half of gb_memory_there),
 *                              peers=yes|no (yes): whether devices reach each other's memory, managed=attach: the CPU
 *                              reaches managed memory only while it is attached to it, as on the older devices;
 *                              legacy=fake: memory of kind ipc has a handle that cannot be opened, for tests;
 *                              ipc=fake: exportable pools and shared events have such handles;
 *                              free=waits: memory of kinds ipc, managed and pinned is freed as CUDA does: its free
 *                              waits for the device's work, and calls of others wait for the free;
 *                              poolless=DEVICE: that device has no memory pools, as older ones; may be repeated;
 *                              integrated: the default pools keep what those of an integrated GPU keep
 *   host:discrete[,key=value]  as host, but only copies reach the memory (cpu_access is false)
 *   fault:RULE[,RULE...]:SPEC  see backend/fault/fault.h
 * ret_note (at least 256 bytes) gets one sentence for the log and for /v1: what was chosen and why, in particular why
 * auto did not choose cuda. Returns 0 or -1. Errors: INVALID_ARGUMENT for unknown words, naming the permitted ones. */
#define GB_BACKEND_NOTE_SIZE 256
int gb_backend_open(const char *spec, struct gb_backend **ret, char *ret_note, struct gb_error *err);

/* Checks that the specification begins with such a word; nothing is opened. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_backend_check(const char *spec, struct gb_error *err);

/* A handle that the driver does not survive must not reach the daemon, so a process of its own opens it first. That is
 * the same program, started again; so every program that imports calls this before all else. Returns -1 if this process
 * was not started for that, and continues; else its exit status. */
int gb_backend_probe(int argc, char **argv);

/* Starts a process that starts such processes for this one, before this one loses the right to. It ends with this one.
 * Does nothing if no backend needs it. Returns 0 or -1. */
int gb_backend_prober_start(struct gb_error *err);

/* NULL is accepted. All streams must be idle, and all handles given back. */
void gb_backend_close(struct gb_backend *be);

static inline const char *gb_backend_name(struct gb_backend *be) {
    return be->ops->name;
}

/* Refuses memory of a kind that a device lacks, without asking it: UNSUPPORTED, with the error that CUDA's call would
 * give. [any thread, never blocks] Returns -1. */
int gb_backend_lacks_kind(const struct gb_backend *be, enum gb_kind kind, struct gb_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* --- devices ------------------------------------------------------------------------------------------------------ */

static inline int gb_backend_device_count(struct gb_backend *be) {
    return be->ops->device_count(be);
}

/* Properties of device [0, count). free_bytes is read again each time. If the device shares the CPU's memory, it is at
 * most what the kernel has available and what the process's control groups have left. */
static inline int gb_backend_device_get(struct gb_backend *be, int device, struct gb_device_rec *ret,
                                        struct gb_error *err) {
    return be->ops->device_get(be, device, ret, err);
}

/* Reads what device may do with peer's memory. A device and itself: can_access. */
static inline int gb_peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret,
                              struct gb_error *err) {
    return be->ops->peer_get(be, device, peer, ret, err);
}

/* [any thread, never blocks] True from the error on that killed a device; *ret_why (may be NULL) is that error. */
static inline bool gb_backend_dead(struct gb_backend *be, struct gb_error *ret_why) {
    return be->ops->dead(be, ret_why);
}

/* --- pinned host memory ------------------------------------------------------------------------------------------- */

/* Page-locked memory reachable by copies of every device, page-aligned. Slow (0.4 s per GiB), so only at the start. */
static inline int gb_pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err) {
    return be->ops->pin_alloc(be, bytes, ret, err);
}

static inline void gb_pin_free(struct gb_backend *be, void *ptr) {
    be->ops->pin_free(be, ptr);
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

/* The first release threshold of a default pool. An integrated GPU shares its memory with the CPU, so it keeps an
 * eighth. */
static inline uint64_t gb_pool_default_threshold(bool integrated, uint64_t total_bytes) {
    return integrated ? total_bytes / 8 : GB_UNLIMITED;
}

/* The device's default pool. Borrowed, never destroyed. Its release threshold begins as gb_pool_default_threshold.
 * Errors of this and of gb_pool_create: UNSUPPORTED with the reason if the device has no memory pools, and so no memory
 * of kind DEVICE. */
static inline int gb_pool_default(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err) {
    return be->ops->pool_default(be, device, ret, err);
}

/* An allocation past max_bytes fails with OUT_OF_MEMORY and cudaErrorMemoryAllocation. */
static inline int gb_pool_create(struct gb_backend *be, int device, const struct gb_pool_config *config,
                                 struct gb_pool **ret, struct gb_error *err) {
    return be->ops->pool_create(be, device, config, ret, err);
}

/* Every allocation must have been freed. NULL is accepted. */
static inline void gb_pool_destroy(struct gb_backend *be, struct gb_pool *pool) {
    be->ops->pool_destroy(be, pool);
}

static inline int gb_pool_config(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret,
                                 struct gb_error *err) {
    return be->ops->pool_config(be, pool, ret, err);
}

/* Changes threshold and reuse policies; max_bytes and exportable are fixed at creation and must be the same, else
 * INVALID_ARGUMENT. */
static inline int gb_pool_configure(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                                    struct gb_error *err) {
    return be->ops->pool_configure(be, pool, config, err);
}

/* Cheap (well under a microsecond), but takes a lock of the backend. */
static inline int gb_pool_stat(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret,
                               struct gb_error *err) {
    return be->ops->pool_stat(be, pool, ret, err);
}

/* Both peaks become the current values. */
static inline int gb_pool_reset_peak(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err) {
    return be->ops->pool_reset_peak(be, pool, err);
}

/* Gives unused reserved memory above keep_bytes back to the system. May wait for the device. A pool whose pointers were
 * exported gives nothing back before it is destroyed, even if its stat reports fewer bytes afterwards. */
static inline int gb_pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err) {
    return be->ops->pool_trim(be, pool, keep_bytes, err);
}

/* Permits or forbids device to read and write the pool's memory, allocated before and after. Errors: INVALID_ARGUMENT
 * if the pool's own device is forbidden; UNSUPPORTED with the reason if the device cannot. */
static inline int gb_pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device,
                                     enum gb_pool_access access, struct gb_error *err) {
    return be->ops->pool_access_set(be, pool, device, access, err);
}

static inline int gb_pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                                     struct gb_error *err) {
    return be->ops->pool_access_get(be, pool, device, ret, err);
}

/* --- streams and events ------------------------------------------------------------------------------------------- */

/* A stream is an order of work. Only events order it with other streams. */
static inline int gb_stream_create(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err) {
    return be->ops->stream_create(be, device, ret, err);
}

/* Waits for the stream's work, then frees it. NULL is accepted. */
static inline void gb_stream_destroy(struct gb_backend *be, struct gb_stream *stream) {
    be->ops->stream_destroy(be, stream);
}

/* Blocks the calling thread until all work queued before is done. */
static inline int gb_stream_sync(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err) {
    return be->ops->stream_sync(be, stream, err);
}

/* [any thread, never blocks] *ret_done: all work queued before is done. Returns 0; -1 if the work failed. */
static inline int gb_stream_query(struct gb_backend *be, struct gb_stream *stream, bool *ret_done,
                                  struct gb_error *err) {
    return be->ops->stream_query(be, stream, ret_done, err);
}

/* Later work of the stream starts only after the work that the event's last record covers. A no-op if the event was
 * never recorded. */
static inline int gb_stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event,
                                 struct gb_error *err) {
    return be->ops->stream_wait(be, stream, event, err);
}

/* Runs fn(arg) on a backend thread in stream order; later work waits for it. fn must not call the backend. Tests hold
 * up streams with it. */
static inline int gb_stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                                 struct gb_error *err) {
    return be->ops->stream_call(be, stream, fn, arg, err);
}

/* Holds the stream: work queued on it from now on waits until gb_stream_release, which must follow and frees *ret.
 * Blocks no thread that other streams need. */
static inline int gb_stream_hold(struct gb_backend *be, struct gb_stream *stream, struct gb_hold **ret,
                                 struct gb_error *err) {
    return be->ops->stream_hold(be, stream, ret, err);
}

/* Ends the hold, also before the stream has reached it. [any thread, never blocks] */
static inline void gb_stream_release(struct gb_backend *be, struct gb_hold *hold) {
    be->ops->stream_release(be, hold);
}

static inline int gb_event_create(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    return be->ops->event_create(be, device, ret, err);
}

/* NULL is accepted. Every watch on the event must have fired. */
static inline void gb_event_destroy(struct gb_backend *be, struct gb_event *event) {
    be->ops->event_destroy(be, event);
}

/* Covers all work queued on the stream so far; replaces the event's earlier record. */
static inline int gb_event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream,
                                  struct gb_error *err) {
    return be->ops->event_record(be, event, stream, err);
}

/* Covers all work queued so far on all streams of the device; the event is of that device. Does not wait. Once a query
 * finds it complete, a trim gives back the memory that was freed before. */
static inline int gb_event_record_device(struct gb_backend *be, struct gb_event *event, int device,
                                         struct gb_error *err) {
    return be->ops->event_record_device(be, event, device, err);
}

/* Marks this moment on the device's time line, not behind any work: elapsed(mark, start of a copy) is how long the copy
 * waited behind earlier work. */
static inline int gb_event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    return be->ops->event_mark(be, event, err);
}

/* [any thread, never blocks] *ret_done: the covered work is done, or the event was never recorded. Returns 0; -1 if the
 * covered work failed. */
static inline int gb_event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err) {
    return be->ops->event_query(be, event, ret_done, err);
}

/* Waits for the event; returns at once if it is complete. The pools of its device then know that the covered frees are
 * finished, which they do not learn from a query. Any stream gets that memory, whatever the pool's policies, and a trim
 * gives it back. Returns 0; -1 if the covered work failed. */
static inline int gb_event_sync(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    return be->ops->event_sync(be, event, err);
}

/* Nanoseconds on the device between two completed events of one device (resolution about 1 us); 0 if end came first.
 * [any thread, never blocks] */
static inline int gb_event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end,
                                   uint64_t *ret_ns, struct gb_error *err) {
    return be->ops->event_elapsed(be, start, end, ret_ns, err);
}

/* Calls fn once the event's present record has completed or failed, also if it already has. The event may not be
 * recorded again or destroyed before fn has been entered. [any thread, never blocks] */
static inline int gb_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg,
                           struct gb_error *err) {
    return be->ops->watch(be, event, fn, arg, err);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Stream-ordered: work queued on the stream after this may use the memory, other streams after an event. Contents are
 * undefined. bytes > 0. Alignment at least 256. With cpu_access the CPU may use it once an event recorded on the stream
 * after the call has completed. */
static inline int gb_mem_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes,
                               void **ret, struct gb_error *err) {
    return be->ops->alloc(be, pool, stream, bytes, ret, err);
}

/* Stream-ordered: the memory lives until the stream's earlier work is done. */
static inline int gb_mem_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err) {
    return be->ops->free(be, ptr, stream, err);
}

/* Queues a copy. Its host side is pinned memory of this backend (any host memory on the host backend), and must stay
 * valid until the copy is done. Zero bytes is a no-op. */
static inline int gb_mem_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes,
                              enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err) {
    return be->ops->copy(be, dst, src, bytes, direction, stream, err);
}

/* Queues a fill of count elements of width 1, 2 or 4 bytes with the low bytes of pattern; dst aligned to width. Another
 * width: INVALID_ARGUMENT. */
static inline int gb_mem_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                              struct gb_stream *stream, struct gb_error *err) {
    return be->ops->fill(be, dst, pattern, width, count, stream, err);
}

/* --- memory of any kind ------------------------------------------------------------------------------------------- */

/* Allocates memory of a kind that is not from a pool, for this device; contents undefined, alignment at least 256.
 * Blocks: pinning takes 0.4 s a GiB, and the call may wait for the device. Managed memory is attached to the device at
 * first. Errors: OUT_OF_MEMORY also if the machine or a control group has too little left, where the kernel would kill
 * the process; INVALID_ARGUMENT for kind DEVICE; UNSUPPORTED with the reason for a kind that the device lacks. */
static inline int gb_mem_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                                    struct gb_error *err) {
    return be->ops->kind_alloc(be, device, kind, bytes, ret, err);
}

/* Whether memory of the kind has a descriptor by which another process of this backend, or a later one, takes it with
 * gb_mem_kind_take: that of gb_mem_export by VMM or, without that, MEMFD, for writing. [any thread, never blocks] */
static inline bool gb_mem_kind_keeps(struct gb_backend *be, enum gb_kind kind) {
    return be->ops->kind_keeps(be, kind);
}

/* Memory that exists, with its bytes, instead of fresh memory: fd is its descriptor, which is not closed and not needed
 * afterwards. Otherwise as gb_mem_kind_alloc; gb_mem_kind_free frees this process's part of it. Errors: UNSUPPORTED for
 * a kind that is not kept; CANNOT_ADOPT if fd is no such memory of the device, or has fewer bytes. */
static inline int gb_mem_kind_take(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, int fd,
                                   void **ret, struct gb_error *err) {
    return be->ops->kind_take(be, device, kind, bytes, fd, ret, err);
}

/* Frees memory of gb_mem_kind_alloc, of the same number of bytes. No queued work may use it. Blocks: for kinds IPC and
 * MANAGED CUDA waits for all work of the device, also that of other streams, for kind PINNED of all devices, and other
 * calls may wait for that. On a device whose streams are all idle a free waits for nothing (gb_event_record_device). */
static inline int gb_mem_kind_free(struct gb_backend *be, const struct gb_location *place, uint64_t bytes,
                                   struct gb_error *err) {
    return be->ops->kind_free(be, place, bytes, err);
}

/* Queues a copy between any two places, on a stream of a device whose memory takes part, or on any stream if both are
 * host memory. Never waits for the stream: pageable memory goes through a bounce buffer of the stream, and the CPU
 * copies between host memories, both in stream order. The bytes must stay valid until the copy is done, and must not
 * overlap. *ret_way is the way of the copy: between devices PEER if the source's pool is open to the destination's
 * device (gb_pool_access_set), else STAGED. CUDA queues some thousand operations on a stream; a call that finds the
 * queue full waits. A copy of pageable memory takes at most 64 operations, or two for every 16 MiB if that is more.
 * Errors: INVALID_ARGUMENT for another stream. */
static inline int gb_mem_move(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src,
                              uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way,
                              struct gb_error *err) {
    return be->ops->move(be, dst, src, bytes, stream, ret_way, err);
}

/* Queues a strided copy between memory of a device (gb_kind_of_device) at place, on a stream of that device, and pinned
 * memory of this backend (any host memory on the host backend). FROM_DEVICE packs the box, TO_DEVICE unpacks it. Both
 * sides must stay valid until it is done. An empty box is a no-op. It is one operation of the stream, or one for each
 * row if the rows lie further apart than the device's copies can step. Errors: INVALID_ARGUMENT for other kinds,
 * ON_DEVICE, and a box that gb_box_check refuses. */
static inline int gb_mem_box(struct gb_backend *be, const struct gb_location *place, void *pinned,
                             const struct gb_box *box, enum gb_copy_direction direction, struct gb_stream *stream,
                             struct gb_error *err) {
    return be->ops->box(be, place, pinned, box, direction, stream, err);
}

/* Queues a fill of count elements of width 1, 2, 4 or 8 bytes with the low bytes of pattern, in memory of any kind; ptr
 * aligned to width. Device memory takes a stream of its device. Errors: INVALID_ARGUMENT for another stream or
 * width. */
static inline int gb_location_fill(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern,
                                   unsigned width, uint64_t count, struct gb_stream *stream, struct gb_error *err) {
    return be->ops->place_fill(be, dst, pattern, width, count, stream, err);
}

/* Queues moving the pages of managed memory to the CPU or to the device. A hint: a no-op for other kinds, and if the
 * device cannot. */
static inline int gb_mem_prefetch(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                                  struct gb_stream *stream, struct gb_error *err) {
    return be->ops->prefetch(be, place, bytes, to_cpu, stream, err);
}

/* Attaches managed memory to the CPU, or back to the device, in stream order. The CPU may touch it once an event
 * recorded on the stream after the call has completed. Work that uses it on a device is queued after it was attached
 * back. place is where the allocation begins. A no-op, except for managed memory of a device with managed_attach. */
static inline int gb_mem_attach(struct gb_backend *be, const struct gb_location *place, bool to_cpu,
                                struct gb_stream *stream, struct gb_error *err) {
    return be->ops->attach(be, place, to_cpu, stream, err);
}

/* Reads what the native layer knows of the memory at place. ret->this_pool compares with pool, which may be NULL. Not
 * for memory whose free is queued, because it may have been allocated again. */
static inline int gb_mem_attributes(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                                    struct gb_mem_attr *ret, struct gb_error *err) {
    return be->ops->attributes(be, place, pool, ret, err);
}

/* --- memory and events in other processes ------------------------------------------------------------------------- */

/* Exports bytes of memory at place, where an allocation begins, to another process in one way; see model/model.h.
 * pool is the pool of memory of kind DEVICE, else NULL. Does not wait for work of the device; takes no longer than a
 * call of the driver. The memory must not be freed, nor used again for other bytes, while an importer has it.
 *
 *   VMM     kind SHARED. The importer chooses whether it maps for reading or for writing.
 *   POOL    kind DEVICE, of a pool created exportable, up to GB_EXPORT_POOL_MAX_BYTES: importers die above that. The
 *           importer reads and writes. If it keeps its mapping too long, it sees later allocations of the pool.
 *   LEGACY  kind IPC. The importer reads and writes.
 *   MEMFD   kinds SHARED (host), PINNED, PAGEABLE. The descriptor's size is fixed, and it opens the memory for writing
 *           only if writable. Processes of another user cannot make it writable by opening it again. An importer may
 *           keep its mapping longer than the memory lives; its pages are not used again.
 *
 * Returns 0, and the caller ends *ret with gb_export_done; or -1. Errors: UNSUPPORTED with the reason if this memory
 * cannot go that way. */
#define GB_EXPORT_POOL_MAX_BYTES (4064ull << 20)
static inline int gb_mem_export(struct gb_backend *be, const struct gb_location *place, uint64_t bytes,
                                struct gb_pool *pool, enum gb_export_way way, bool writable, struct gb_export *ret,
                                struct gb_error *err) {
    return be->ops->export(be, place, bytes, pool, way, writable, ret, err);
}

/* Makes an event that other processes may wait for. gb_event_elapsed fails for it. While another process may still use
 * it (it can record it, too), it must be neither recorded again nor destroyed; so each export has its own until its
 * end. Errors: UNSUPPORTED with the reason if a device lacks it. */
static inline int gb_event_create_shared(struct gb_backend *be, int device, struct gb_event **ret,
                                         struct gb_error *err) {
    return be->ops->event_create_shared(be, device, ret, err);
}

/* Gives the handle, a cudaIpcEventHandle_t, by which another process opens an event of gb_event_create_shared. Errors:
 * INVALID_ARGUMENT for another event. */
static inline int gb_event_export(struct gb_backend *be, struct gb_event *event,
                                  unsigned char ret[GB_EXPORT_HANDLE_BYTES], struct gb_error *err) {
    return be->ops->event_export(be, event, ret, err);
}

/* --- memory of other processes ------------------------------------------------------------------------------------ */

/* Makes another process's memory usable here. Its owner may write it at any time. If the owner ends, the imported
 * memory stays valid. Blocks: page-locking takes 0.04 s a GiB, and the call may wait for the device. fd is not closed,
 * and not needed afterwards. *ret is a place of that many bytes until gb_mem_import_end.
 *
 *   VMM     the descriptor of a cuMemCreate allocation of that device: kind SHARED.
 *   POOL    the descriptor of an exportable pool of that device, and the cudaMemPoolPtrExportData of one of its
 *           allocations: kind IPC. offset counts from that pointer; up to GB_EXPORT_POOL_MAX_BYTES. Another process
 *           opens it first (gb_backend_probe), which takes as long as making a context.
 *   LEGACY  a cudaIpcMemHandle_t of that device, not of this process: kind IPC. offset counts from where the handle's
 *           allocation begins.
 *   MEMFD   a memfd, open for reading and writing, sealed against shrinking (F_SEAL_SHRINK), that has all the bytes:
 *           kind PINNED if the device locks its pages, else PAGEABLE.
 *
 * No client-supplied handle makes the backend dead, and no call waits for the client. Returns 0 or -1. Errors:
 * UNSUPPORTED if the device imports no memory in that way; CANNOT_ADOPT if this is not such memory, with what would be
 * right; INVALID_ARGUMENT for no bytes, or no such device. */
static inline int gb_mem_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret,
                                struct gb_error *err) {
    if (!be->ops->import)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the backend %s takes no memory of other processes",
                            be->ops->name);
    return be->ops->import(be, what, ret, err);
}

/* Ends an import; the owner's memory stays as it is. No queued work may use it. Blocks as gb_mem_kind_free. */
static inline int gb_mem_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err) {
    if (!be->ops->import_end)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the backend %s takes no memory of other processes",
                            be->ops->name);
    return be->ops->import_end(be, place, err);
}

#endif
