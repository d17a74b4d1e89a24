/* The device interface. The only vtable of the program: host and cuda implement it, fault decorates either.
 *
 * Every function takes the backend first. Handles (pool, stream, event) belong to the backend that made them and are
 * opaque; the fault decorator hands them through. Unless a contract says otherwise functions are thread-safe, return 0
 * or -1 with *err filled, and set the calling thread's device themselves: no caller needs to know of a current device.
 * No function here may be called from an HTTP loop except those marked [any thread, never blocks].
 *
 * Native errors carry domain, number, name and call: {"cuda", 2, "cudaErrorMemoryAllocation",
 * "cudaMallocFromPoolAsync"}. The host backend reports the errors that CUDA would, under the same names and numbers,
 * with domain "host". Out of memory is OUT_OF_MEMORY; an error after which the device is dead is DEVICE_LOST, and
 * gb_backend_dead() then says so for ever; everything else is DEVICE_ERROR. */
#ifndef GB_BACKEND_BACKEND_H
#define GB_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/health/health.h"
#include "base/error.h"
#include "model/model.h"
#include "model/view.h"

/* The vtable behind backend.h, where the contract of every entry stands. Include that instead. */

struct gb_backend;
struct gb_pool;
struct gb_stream;
struct gb_event;
struct gb_hold;

enum gb_copy_direction { GB_COPY_TO_DEVICE, GB_COPY_FROM_DEVICE, GB_COPY_ON_DEVICE };

/* Called exactly once for each accepted watch, on a thread of the backend; must not block and must not call back into
 * the backend except for watch, event_query and event_elapsed. error is NULL when the event completed, else what the
 * stream's work ended with. */
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
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Opens what spec names:
 *   auto                       cuda when a device answers, else host; the reason goes to ret_note
 *   cuda                       every visible GPU
 *   host[:key=value,...]       keys: devices=N (1), bytes=SIZE per device (default: half of the machine's memory),
 *                              peers=yes|no (yes): whether devices reach each other's memory, managed=attach: the CPU
 *                              reaches managed memory only while it is attached to it, as on the older devices;
 *                              legacy=fake: memory of kind ipc has a handle that cannot be opened, for tests;
 *                              ipc=fake: exportable pools and shared events have such handles;
 *                              poolless=DEVICE: that device has no memory pools, as older ones; may be repeated;
 *                              integrated: the default pools keep what those of an integrated GPU keep
 *   host:discrete[,key=value]  as host, but only copies reach the memory (cpu_access is false)
 *   fault:RULE[,RULE...]:SPEC  see backend/fault/fault.h
 * ret_note (at least 256 bytes) gets one sentence for the log and for /v1: what was chosen and why, in particular why
 * auto did not choose cuda. Unknown words: INVALID_ARGUMENT naming the permitted ones. */
#define GB_BACKEND_NOTE_SIZE 256
int gb_backend_open(const char *spec, struct gb_backend **ret, char *ret_note, struct gb_error *err);

/* Whether the specification begins with such a word; nothing is opened. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_backend_check(const char *spec, struct gb_error *err);

/* A handle that the driver does not survive must not reach the daemon: a process of its own opens it first. That is the
 * same program, started again, so every program that imports calls this before all else. -1: this process was not
 * started for that, and continues; else its exit status. */
int gb_backend_probe(int argc, char **argv);

/* For a process that is about to lose the right to start such a process: one that starts them in its place, and ends
 * with it. Nothing where no backend needs one. */
int gb_backend_prober_start(struct gb_error *err);

/* NULL is accepted. All streams must be idle, all handles given back. */
void gb_backend_close(struct gb_backend *be);

static inline const char *gb_backend_name(struct gb_backend *be) {
    return be->ops->name;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static inline int gb_backend_device_count(struct gb_backend *be) {
    return be->ops->device_count(be);
}

/* Properties of device [0, count). free_bytes is asked again each time. */
static inline int gb_backend_device_get(struct gb_backend *be, int device, struct gb_device_rec *ret,
                                        struct gb_error *err) {
    return be->ops->device_get(be, device, ret, err);
}

/* What device may do with peer's memory; a device and itself: can_access. */
static inline int gb_peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret,
                              struct gb_error *err) {
    return be->ops->peer_get(be, device, peer, ret, err);
}

/* [any thread, never blocks] True for ever after an error that killed a device; *ret_why (may be NULL) is that
 * error. */
static inline bool gb_backend_dead(struct gb_backend *be, struct gb_error *ret_why) {
    return be->ops->dead(be, ret_why);
}

/* --- pinned host memory ------------------------------------------------------------------------------------------- */

/* Page-locked memory reachable by copies of every device, page-aligned. Slow (0.4 s per GiB): at start only. */
static inline int gb_pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err) {
    return be->ops->pin_alloc(be, bytes, ret, err);
}

static inline void gb_pin_free(struct gb_backend *be, void *ptr) {
    be->ops->pin_free(be, ptr);
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

/* What a default pool keeps at first. The memory of an integrated GPU is the CPU's too: it keeps an eighth. */
static inline uint64_t gb_pool_default_threshold(bool integrated, uint64_t total_bytes) {
    return integrated ? total_bytes / 8 : GB_UNLIMITED;
}

/* The device's default pool. Borrowed, never destroyed. Its release threshold begins as gb_pool_default_threshold.
 * This and gb_pool_create: UNSUPPORTED with the reason where the device has no memory pools, and no memory of kind
 * DEVICE. */
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

/* Gives unused reserved memory above keep_bytes back to the system. May wait for the device. Of a pool whose
 * pointers were exported nothing goes back until it is destroyed, even if its stat says less afterwards. */
static inline int gb_pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err) {
    return be->ops->pool_trim(be, pool, keep_bytes, err);
}

/* Lets device read and write the pool's memory, or no longer. It covers memory allocated before and after. The pool's
 * own device always may: taking that away is INVALID_ARGUMENT. UNSUPPORTED with the reason where the device cannot. */
static inline int gb_pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device,
                                     enum gb_pool_access access, struct gb_error *err) {
    return be->ops->pool_access_set(be, pool, device, access, err);
}

static inline int gb_pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                                     struct gb_error *err) {
    return be->ops->pool_access_get(be, pool, device, ret, err);
}

/* --- streams and events ------------------------------------------------------------------------------------------- */

/* An order of work of its own: not ordered with any other stream except through events. */
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

/* [any thread, never blocks] Is all work queued before done? -1 when it failed. */
static inline int gb_stream_query(struct gb_backend *be, struct gb_stream *stream, bool *ret_done,
                                  struct gb_error *err) {
    return be->ops->stream_query(be, stream, ret_done, err);
}

/* Later work of the stream starts only after what the event's last record covers; a no-op for one never recorded. */
static inline int gb_stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event,
                                 struct gb_error *err) {
    return be->ops->stream_wait(be, stream, event, err);
}

/* Runs fn(arg) on a backend thread in stream order; later work waits for it. fn must not call the backend. Tests hold
 * streams back with it. */
static inline int gb_stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                                 struct gb_error *err) {
    return be->ops->stream_call(be, stream, fn, arg, err);
}

/* Holds the stream: work queued on it from now on waits until gb_stream_release, which must follow. Blocks no thread
 * that other streams need. *ret is gone with the release. */
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

/* NULL is accepted. A watch on it that has not fired is an error of the caller. */
static inline void gb_event_destroy(struct gb_backend *be, struct gb_event *event) {
    be->ops->event_destroy(be, event);
}

/* Covers all work queued on the stream so far; replaces the event's earlier record. */
static inline int gb_event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream,
                                  struct gb_error *err) {
    return be->ops->event_record(be, event, stream, err);
}

/* Covers all work queued so far on any stream of the device, by anyone; the event is of that device. Waits for
 * nothing. Once a query says that it is complete, a trim gives back what was freed before. */
static inline int gb_event_record_device(struct gb_backend *be, struct gb_event *event, int device,
                                         struct gb_error *err) {
    return be->ops->event_record_device(be, event, device, err);
}

/* Marks this moment on the device's time line, behind no work: elapsed(mark, start of a copy) is how long the copy
 * waited behind earlier work. */
static inline int gb_event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    return be->ops->event_mark(be, event, err);
}

/* [any thread, never blocks] -1 when the covered work failed. An event never recorded is done. */
static inline int gb_event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err) {
    return be->ops->event_query(be, event, ret_done, err);
}

/* Waits for the event; returns at once if it is complete. The pools of its device then know that the frees it covers
 * are finished, which a query does not tell them. Any stream gets that memory, whatever the pool's policies, and a trim
 * gives it back. -1 when the covered work failed. */
static inline int gb_event_sync(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    return be->ops->event_sync(be, event, err);
}

/* Nanoseconds on the device between two completed events of one device (resolution about 1 us); 0 when end came first.
 * [any thread, never blocks] */
static inline int gb_event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end,
                                   uint64_t *ret_ns, struct gb_error *err) {
    return be->ops->event_elapsed(be, start, end, ret_ns, err);
}

/* Calls fn once the event's present record has completed or failed; also when it already has. The event may not be
 * recorded again or destroyed before fn has been entered. [any thread, never blocks] */
static inline int gb_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg,
                           struct gb_error *err) {
    return be->ops->watch(be, event, fn, arg, err);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Stream-ordered: the memory may be used by work queued on the stream after this, by others after an event. Contents
 * are undefined. bytes > 0. Alignment at least 256. With cpu_access the CPU may use it once an event recorded on the
 * stream after the call has completed. */
static inline int gb_mem_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes,
                               void **ret, struct gb_error *err) {
    return be->ops->alloc(be, pool, stream, bytes, ret, err);
}

/* Stream-ordered: the memory lives until the stream's earlier work is done. */
static inline int gb_mem_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err) {
    return be->ops->free(be, ptr, stream, err);
}

/* Queues a copy; the source of a copy to the device and the destination of one from it are pinned memory of this
 * backend (or any host memory on the host backend) and must stay valid until the copy is done. Zero bytes is a
 * no-op. */
static inline int gb_mem_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes,
                              enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err) {
    return be->ops->copy(be, dst, src, bytes, direction, stream, err);
}

/* Queues a fill of count elements of width 1, 2 or 4 bytes with the low bytes of pattern; dst aligned to width.
 * Another width: INVALID_ARGUMENT. */
static inline int gb_mem_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                              struct gb_stream *stream, struct gb_error *err) {
    return be->ops->fill(be, dst, pattern, width, count, stream, err);
}

/* --- memory of any kind ------------------------------------------------------------------------------------------- */

/* Memory of a kind that is not from a pool (kind DEVICE: INVALID_ARGUMENT), for this device; contents undefined,
 * alignment at least 256. Blocks (pinning takes 0.4 s a GiB; the device may be waited for). A kind that the device
 * lacks: UNSUPPORTED with its reason. Managed memory begins in the device's hands. */
static inline int gb_mem_kind_alloc(struct gb_backend *be, int device, enum gb_kind kind, uint64_t bytes, void **ret,
                                    struct gb_error *err) {
    return be->ops->kind_alloc(be, device, kind, bytes, ret, err);
}

/* Frees what gb_mem_kind_alloc gave, with the bytes asked for then. Nothing queued may use it. Blocks: CUDA may wait
 * for all work of the device, also that of others. */
static inline int gb_mem_kind_free(struct gb_backend *be, const struct gb_location *place, uint64_t bytes,
                                   struct gb_error *err) {
    return be->ops->kind_free(be, place, bytes, err);
}

/* Queues a copy between any two places, on a stream of the device, or of either device, whose memory takes part
 * (another: INVALID_ARGUMENT; between host memories any). Never waits for the stream; pageable memory goes by way of a
 * bounce buffer of the stream, host to host by the CPU, both in stream order. The bytes must stay valid until the copy
 * is done; ranges that overlap are undefined. *ret_way says which way it goes: between devices PEER where the source's
 * pool lets the destination's device in (gb_pool_access_set), else STAGED. CUDA queues some thousand operations on a
 * stream; a call that finds the queue full waits. A copy of pageable memory takes at most 64 of them, or two for every
 * 16 MiB where that is more. */
static inline int gb_mem_move(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src,
                              uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way,
                              struct gb_error *err) {
    return be->ops->move(be, dst, src, bytes, stream, ret_way, err);
}

/* Queues a strided copy between memory of a device (gb_kind_of_device) at place, on a stream of that device, and pinned
 * memory of this backend (any host memory on the host backend): FROM_DEVICE packs the box, TO_DEVICE unpacks it. Other
 * kinds, ON_DEVICE, and a box that gb_box_check refuses: INVALID_ARGUMENT. Both sides must stay valid until it is done.
 * An empty box is a no-op. One operation of the stream, or one for each row where the rows lie further apart than the
 * device's copies can step. */
static inline int gb_mem_box(struct gb_backend *be, const struct gb_location *place, void *pinned,
                             const struct gb_box *box, enum gb_copy_direction direction, struct gb_stream *stream,
                             struct gb_error *err) {
    return be->ops->box(be, place, pinned, box, direction, stream, err);
}

/* Queues a fill of count elements of width 1, 2, 4 or 8 bytes with the low bytes of pattern, in memory of any kind; ptr
 * aligned to width. Device memory on a stream of its device. Else, and for another width: INVALID_ARGUMENT. */
static inline int gb_location_fill(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern,
                                   unsigned width, uint64_t count, struct gb_stream *stream, struct gb_error *err) {
    return be->ops->place_fill(be, dst, pattern, width, count, stream, err);
}

/* Queues moving the pages of managed memory to where they are used next. A hint: a no-op for other kinds, and where the
 * device cannot. */
static inline int gb_mem_prefetch(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, bool to_cpu,
                                  struct gb_stream *stream, struct gb_error *err) {
    return be->ops->prefetch(be, place, bytes, to_cpu, stream, err);
}

/* Hands managed memory to the CPU, or back to the device, in stream order: the CPU may touch it once an event recorded
 * on the stream after the call has completed; work that uses it on a device is queued after it was handed back. place
 * is where the allocation begins. A no-op but for managed memory of a device with managed_attach. */
static inline int gb_mem_attach(struct gb_backend *be, const struct gb_location *place, bool to_cpu,
                                struct gb_stream *stream, struct gb_error *err) {
    return be->ops->attach(be, place, to_cpu, stream, err);
}

/* What the native layer says of the memory at place. pool (may be NULL) is whom this_pool asks about. Never of memory
 * whose free is queued: that may be another's by now. */
static inline int gb_mem_attributes(struct gb_backend *be, const struct gb_location *place, struct gb_pool *pool,
                                    struct gb_mem_attr *ret, struct gb_error *err) {
    return be->ops->attributes(be, place, pool, ret, err);
}

/* --- memory and events in other processes ------------------------------------------------------------------------- */

/* Makes bytes of memory at place, where an allocation begins, ready for another process in one way; see model/model.h.
 * pool is where memory of kind DEVICE is from, else NULL. Waits for no work of the device; takes no longer than a call
 * of the driver. The memory must not be freed, nor used again for other bytes, while an importer has it.
 *
 *   VMM     kind SHARED. The importer decides for itself whether it maps for reading or for writing.
 *   POOL    kind DEVICE, of a pool created exportable, up to GB_EXPORT_POOL_MAX_BYTES: importers die above that. The
 *           importer reads and writes; one that keeps its mapping too long sees what the pool puts there next.
 *   LEGACY  kind IPC. The importer reads and writes.
 *   MEMFD   kinds SHARED (host), PINNED, PAGEABLE. The descriptor's size is fixed for ever, and it opens the memory for
 *           writing only if writable. Those of another user cannot make it writable by opening it again. An importer
 *           may
 *           keep its mapping longer than the memory lives: what it sees is never used again for anything else.
 *
 * UNSUPPORTED with the reason where this memory cannot go that way, and where other devices could. On success *ret is
 * the caller's, for gb_export_done. */
#define GB_EXPORT_POOL_MAX_BYTES (4064ull << 20)
static inline int gb_mem_export(struct gb_backend *be, const struct gb_location *place, uint64_t bytes,
                                struct gb_pool *pool, enum gb_export_way way, bool writable, struct gb_export *ret,
                                struct gb_error *err) {
    return be->ops->export(be, place, bytes, pool, way, writable, ret, err);
}

/* An event that other processes may wait for; as any other here, but that gb_event_elapsed fails of it. While another
 * process may still use it (it can record it, too) it must be neither recorded again nor destroyed: one for each
 * export, until that ends. UNSUPPORTED with the reason if a device lacks it. */
static inline int gb_event_create_shared(struct gb_backend *be, int device, struct gb_event **ret,
                                         struct gb_error *err) {
    return be->ops->event_create_shared(be, device, ret, err);
}

/* The handle by which another process opens an event of gb_event_create_shared (another event: INVALID_ARGUMENT): a
 * cudaIpcEventHandle_t. */
static inline int gb_event_export(struct gb_backend *be, struct gb_event *event,
                                  unsigned char ret[GB_EXPORT_HANDLE_BYTES], struct gb_error *err) {
    return be->ops->event_export(be, event, ret, err);
}

/* --- memory of other processes ------------------------------------------------------------------------------------ */

/* Makes another process's memory usable here. Its owner may write it at any time. If the owner ends, the imported
 * memory stays valid. Blocks (page-locking takes 0.04 s a GiB; the device may be waited for). fd is not needed any more
 * afterwards, and is not closed. *ret is a place as any other, of bytes bytes, until gb_mem_import_end.
 *
 *   VMM     the descriptor of a cuMemCreate allocation of that device: kind SHARED.
 *   POOL    the descriptor of an exportable pool of that device, and the cudaMemPoolPtrExportData of one of its
 *           allocations: kind IPC. offset counts from that pointer; up to GB_EXPORT_POOL_MAX_BYTES. Another process
 *           opens it first (gb_backend_probe), which takes as long as a context takes to be made.
 *   LEGACY  a cudaIpcMemHandle_t of that device, not of this process: kind IPC. offset counts from where the handle's
 *           allocation begins.
 *   MEMFD   a memfd, open for reading and writing, sealed against shrinking (F_SEAL_SHRINK), whose bytes are there:
 *           kind
 *           PINNED where the device locks its pages, else PAGEABLE.
 *
 * UNSUPPORTED where no memory is had in that way; CANNOT_ADOPT where this is not such memory, with what would be: no
 * client-supplied handle makes the backend dead, and no call waits for the client. INVALID_ARGUMENT: no bytes, or no
 * such device. */
static inline int gb_mem_import(struct gb_backend *be, const struct gb_import *what, struct gb_location *ret,
                                struct gb_error *err) {
    if (!be->ops->import)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the backend %s takes no memory of other processes",
                            be->ops->name);
    return be->ops->import(be, what, ret, err);
}

/* Gives back what gb_mem_import gave; the owner's memory stays as it is. Nothing queued may use it. Blocks as
 * gb_mem_kind_free. */
static inline int gb_mem_import_end(struct gb_backend *be, const struct gb_location *place, struct gb_error *err) {
    if (!be->ops->import_end)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the backend %s takes no memory of other processes",
                            be->ops->name);
    return be->ops->import_end(be, place, err);
}

#endif
