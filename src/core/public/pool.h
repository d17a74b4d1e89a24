/* Pools: what users can do with them. Comes with core.h.
 *
 * Every session sees the devices' own pools, "default" (device 0) and "default.N", and has those that it made. Those
 * are persisted and made again at the next start, empty. */
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
    int64_t id; /* 0: a device's own pool */
    struct gb_name name;
    int device;
    struct gb_pool_config config;
    struct gb_pool_stat stat;
    struct gb_memory_numbers memory; /* since it was made or loaded */
    uint64_t live_buffers;           /* that have their bytes here */
    uint64_t first_use_bytes;        /* what its first allocation takes from the device, beyond the bytes asked for */
    int64_t version;                 /* 0: a device's own pool */
    int64_t created_at_us;
    int64_t updated_at_us;
    bool lost; /* its device is missing, refused to make it, or is dead */
};

struct gb_pool_trim {
    uint64_t before_bytes; /* reserved */
    uint64_t after_bytes;
    bool kept; /* much that is not in use could not go */
};

struct gb_pool_call {
    struct gb_call base;
    bool created; /* the call made the pool */
    struct gb_pool_view pool;
    struct gb_pool_trim trim;
};

struct gb_pool_params {
    struct gb_name session;
    struct gb_name name;
    int device; /* make only */
    /* make: all of it, but what has no has_ is the default then: keep everything, policies on. */
    struct gb_pool_config config;
    bool has_threshold, has_follow, has_opportunistic, has_internal;
};

/* A precondition, as struct gb_buffer_check. Not asked of a device's own pool. */
struct gb_pool_check {
    int (*check)(void *arg, const struct gb_pool_rec *rec, struct gb_error *err);
    void *arg;
    void (*free_arg)(void *arg);
};

/* config.max_bytes (0: the device) is the device's own hard limit. POOL_EXISTS, POOL_PROTECTED for the names of
 * devices' own pools, LIMIT_REACHED, DEVICE_NOT_FOUND. Result: call->pool. */
void gb_pool_make(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_call *call);

/* Changes what a device lets change: threshold and policies. POOL_PROTECTED for a device's own pool, which all share.
 * check may be NULL. Result: call->pool. */
void gb_pool_patch(struct gb_core *core, const struct gb_pool_params *params, const struct gb_pool_check *check,
                   struct gb_pool_call *call);

/* MAPPED while other processes map memory of it. POOL_BUSY while buffers have or get their bytes there; with force
 * those buffers are lost. Readers finish undisturbed, and the memory goes when the last is through. POOL_PROTECTED for
 * a device's own pool. Result: call->pool, as it was. */
void gb_pool_remove(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool, bool force,
                    struct gb_pool_call *call);

/* [now] SESSION_NOT_FOUND, POOL_NOT_FOUND. Numbers include every acknowledged change. */
int gb_pool_get(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool,
                struct gb_pool_view *ret, struct gb_error *err);

/* [now] The devices' own pools first, all of them, when after_id is 0; then at most limit of the session's with
 * id > after_id. Otherwise as gb_session_list. */
int gb_pool_list(struct gb_core *core, const struct gb_name *session, int64_t after_id, unsigned limit,
                 int (*visit)(void *, const struct gb_pool_view *, struct gb_error *), void *arg, bool *ret_more,
                 struct gb_error *err);

/* [now] The devices' own pools alone. */
unsigned gb_pool_count(struct gb_core *core);
int gb_pool_at(struct gb_core *core, unsigned index, struct gb_pool_view *ret, struct gb_error *err);

/* [now] Those that sessions made, with the session's name: of the oldest session first. At most limit; the others are
 * counted. Costs nothing for sessions without. */
int gb_pool_list_owned(struct gb_core *core, unsigned limit,
                       int (*visit)(void *, const struct gb_name *, const struct gb_pool_view *, struct gb_error *),
                       void *arg, uint64_t *ret_omitted, struct gb_error *err);

/* The following are for every pool that the session sees. DEVICE_NOT_FOUND where it is lost. */

/* Gives unused reserved memory beyond keep_bytes back to the system; what was exported of an exportable
 * pool goes back only with the pool. Result: call->trim, call->pool. */
void gb_pool_trim_to(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool,
                     uint64_t keep_bytes, struct gb_pool_call *call);

/* Both peaks become the present values. Result: call->pool. */
void gb_pool_peak_reset(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool,
                        struct gb_pool_call *call);

/* Lets another device read and write the pool's memory, or no longer. Not persisted. UNSUPPORTED without peer access,
 * INVALID_ARGUMENT for the pool's own device, DEVICE_NOT_FOUND. Result: call->pool. */
void gb_pool_peer_set(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool, int device,
                      enum gb_pool_access access, struct gb_pool_call *call);

/* [now] access[i] for device i < count. */
int gb_pool_peers(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool,
                  enum gb_pool_access *access, int count, struct gb_error *err);

#endif
