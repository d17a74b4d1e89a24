/* Memory of any kind behind one content: which kind and pool it has, how it is allocated, where it lies, copies and
 * fills there, and frees. */
#ifndef GB_CORE_MEMORY_ALLOC_H
#define GB_CORE_MEMORY_ALLOC_H

#include "core/memory/content.h"

struct gb_location gb_content_location(const struct gb_content *content, uint64_t offset);

/* Returns 0, or -1 with INVALID_ARGUMENT if a kind other than DEVICE names a pool. */
int gb_kind_check_pool(enum gb_kind kind, const struct gb_name *pool, struct gb_error *err);

/* As gb_core_pool_check, for kind DEVICE. Other kinds pass. */
int gb_kind_check_source(enum gb_kind kind, struct gb_core_pool *pool, struct gb_error *err);

/* The kind of a new buffer: the requested one, else the usual one of its device. A mirrored buffer, and a buffer in a
 * named pool, is of kind DEVICE. */
enum gb_kind gb_kind_choose(const struct gb_core *core, const struct gb_buffer_params *params);

/* The pool of a new buffer: the named one, else its device's own, which other kinds have too. The session's lock is
 * held; no reference is taken. POOL_NOT_FOUND, DEVICE_NOT_FOUND. */
struct gb_core_pool *gb_kind_pool_locked(struct gb_session *session, const struct gb_buffer_params *params,
                                         struct gb_error *err);

/* Returns true if the CPU writes into the memory itself, without a slot. */
bool gb_kind_direct_in(const struct gb_core_device *device, enum gb_kind kind);

/* Returns true if the CPU reads the memory itself. False if the memory would have to be attached to the CPU, because
 * others may copy from it meanwhile. */
bool gb_kind_direct_out(const struct gb_core_device *device, enum gb_kind kind);

/* Returns true if the CPU may write only while the memory is attached to it (gb_mem_attach). */
bool gb_kind_attaches(const struct gb_core_device *device, enum gb_kind kind);

/* Queue a copy or a fill with zeros. If bytes is 0, nothing is queued, and *ret_way is NONE. Return 0 or -1. */
int gb_content_move(struct gb_content *dst, uint64_t dst_offset, struct gb_content *src, uint64_t src_offset,
                    uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err);
int gb_content_zero(struct gb_content *dst, uint64_t offset, uint64_t bytes, struct gb_stream *stream,
                    struct gb_error *err);

/* Tries waiting allocations again. Returns true while any wait. On the slow lane. */
bool gb_kind_alloc_retry(void *device);

/* Frees the memory once the work that uses it is done, then calls gb_content_end. The last reference is gone. */
void gb_kind_free_start(struct gb_content *content);

#endif
