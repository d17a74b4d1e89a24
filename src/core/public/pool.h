/* Memory pools. Included by core.h.
 *
 * Every session sees the devices' own pools, "default" (device 0) and "default.N", and the pools that it made. A
 * session's pools are persisted; the next start makes them again, empty. */
#ifndef GB_CORE_PUBLIC_POOL_H
#define GB_CORE_PUBLIC_POOL_H

#include "backend/backend.h"
#include "base/error.h"
#include "core/public/call.h"
#include "core/public/types.h"
#include "model/model.h"

struct gb_core;

#define GB_POOLS_MAX 64 /* of one session, unless configured */

struct gb_pool_view {
    struct gb_pool_rec rec; /* id, version and times 0: a device's own pool */
    struct gb_pool_stat stat;
    struct gb_memory_numbers memory; /* since the pool was made or loaded */
    uint64_t reuses;                 /* of its allocations, those from memory that it had */
    uint64_t growths;                /* and those for which it took more of the device */
    uint64_t live_buffers;           /* with their bytes in this pool */
    bool exported;                   /* its memory was: nothing goes back before the pool is deleted */
    uint64_t kept_bytes;             /* exported: the reserved bytes, all of which are kept; else 0 */
    uint64_t first_use_bytes;        /* what the first allocation reserves on the device beyond its size */
    bool lost;                       /* its device is missing, has failed, or refused to make it */
};

struct gb_pool_trim {
    uint64_t before_bytes; /* reserved */
    uint64_t after_bytes;
    bool kept; /* much unused memory could not be released */
};

struct gb_pool_call {
    struct gb_call base;
    bool created; /* the call has created the pool */
    struct gb_pool_view pool;
    struct gb_pool_trim trim;
};

struct gb_pool_params {
    struct gb_name session;
    struct gb_pool_rec rec;     /* its name. make: its device */
    struct gb_pool_given given; /* make: what is not given gets its default; patch: keeps its value */
};

/* A precondition, as struct gb_buffer_check. It is not evaluated for a device's own pool. */
struct gb_pool_check {
    int (*check)(void *arg, const struct gb_pool_rec *rec, struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg);
};

/* Creates a pool. config.max_bytes is a hard limit that the device enforces; 0: the device's memory. Result:
 * call->pool. Errors: POOL_EXISTS; POOL_PROTECTED for the names of devices' own pools; LIMIT_REACHED,
 * DEVICE_NOT_FOUND. */
void gb_pool_make(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_call *call);

/* Changes the release threshold and the reuse policies. check may be NULL. A device's own pool, which all sessions
 * share, keeps the change until the daemon ends; that the caller may shape it is the caller's to know. Result:
 * call->pool. */
void gb_pool_patch(struct gb_core *core, const struct gb_pool_params *params, const struct gb_pool_check *check,
                   struct gb_pool_call *call);

/* Deletes a pool. force: buffers in the pool are lost. Reads that have begun finish undisturbed, and the memory is
 * freed when the last one ends. Result: call->pool, as it was. Errors: MAPPED while other processes map its memory;
 * without force POOL_BUSY while buffers have or get their bytes there; POOL_PROTECTED for a device's own pool. */
void gb_pool_remove(struct gb_core *core, const struct gb_locator *at, bool force, struct gb_pool_call *call);

/* [now] Reads a pool. Its numbers include every acknowledged change. Errors: SESSION_NOT_FOUND, POOL_NOT_FOUND. */
int gb_pool_get(struct gb_core *core, const struct gb_locator *at, struct gb_pool_view *ret, struct gb_error *err);

/* [now] If page->after is 0, all of the devices' own pools come first. Then come at most page->limit pools of the
 * session with id > page->after. Otherwise as gb_session_list. */
int gb_pool_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                 int (*visit)(void *, const struct gb_pool_view *, struct gb_error *), void *arg, struct gb_error *err);

/* [now] Only the devices' own pools. */
unsigned gb_pool_count(struct gb_core *core);
int gb_pool_at(struct gb_core *core, unsigned index, struct gb_pool_view *ret, struct gb_error *err);

/* [now] The pools that sessions made, with the session's name, from the oldest session on. At most limit are visited;
 * *ret_omitted counts the others. Sessions without pools cost nothing. */
int gb_pool_list_owned(struct gb_core *core, unsigned limit,
                       int (*visit)(void *, const struct gb_name *, const struct gb_pool_view *, struct gb_error *),
                       void *arg, uint64_t *ret_omitted, struct gb_error *err);

/* The functions below take every pool that the session sees. Errors: DEVICE_NOT_FOUND for a lost pool. */

/* Gives unused reserved memory beyond keep_bytes back to the system. Once memory of the pool was exported, nothing goes
 * back until the pool is deleted. Result: call->trim, call->pool. */
void gb_pool_trim_to(struct gb_core *core, const struct gb_locator *at, uint64_t keep_bytes, struct gb_pool_call *call);

/* Resets both peaks to the present values. Result: call->pool. */
void gb_pool_peak_reset(struct gb_core *core, const struct gb_locator *at, struct gb_pool_call *call);

/* Grants or revokes another device's access to the pool's memory. The setting is not persisted. Result: call->pool.
 * Errors: UNSUPPORTED without peer access, INVALID_ARGUMENT for the pool's own device, DEVICE_NOT_FOUND. */
void gb_pool_peer_set(struct gb_core *core, const struct gb_locator *at, int device, enum gb_pool_access access,
                      struct gb_pool_call *call);

/* [now] Sets access[i] to the access of device i, for each i < count. */
int gb_pool_peers(struct gb_core *core, const struct gb_locator *at, enum gb_pool_access *access, int count,
                  struct gb_error *err);

#endif
