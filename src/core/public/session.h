/* What core.h shows of sessions, and of what they have: pools, streams and events. */
#ifndef GB_CORE_PUBLIC_SESSION_H
#define GB_CORE_PUBLIC_SESSION_H

#include "backend/backend.h"
#include "base/error.h"
#include "core/public/call.h"
#include "core/public/types.h"
#include "model/model.h"

struct gb_call;
struct gb_core;

/* --- sessions ----------------------------------------------------------------------------------------------------- */

/* Reads (get, list, statistics) do not reset a session's idle timer, so that a polling dashboard keeps no session
 * alive. Every other call that names the session does, and so does every running transfer. */

/* Creates a session. Result: call->session. Errors: SESSION_EXISTS, LIMIT_REACHED. If a session with a fleet_epoch
 * fails, gb_core_set_gone's function is called. */
void gb_session_create(struct gb_core *core, const struct gb_session_params *params, struct gb_session_call *call);
/* [now] Reads a session. *ret holds a reference, which gb_session_rec_done(&ret->rec) drops. Errors:
 * SESSION_NOT_FOUND. */
int gb_session_get(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret, struct gb_error *err);
/* [now] Visits the current pool of each device in turn: the session's, else the device's own; NULL: the device has no
 * pools. Of a session that is gone: the devices' own. visit is called under a lock: it calls nothing of the core. */
void gb_session_current_pools(struct gb_core *core, int64_t session,
                              void (*visit)(void *arg, const struct gb_name *pool), void *arg);
/* Changes a session. A quota may be lowered below the present use; it then stops new allocations. Result:
 * call->session. */
void gb_session_patch(struct gb_core *core, const struct gb_name *name, const struct gb_session_params *params,
                      const struct gb_session_check *check, struct gb_session_call *call);
/* Deletes a session and frees its contents in stream order. Transfers in flight finish undisturbed or end with
 * SESSION_NOT_FOUND. Errors: SESSION_PROTECTED for "default". */
void gb_session_delete(struct gb_core *core, const struct gb_name *name, const struct gb_session_check *check,
                       struct gb_call *call);
/* Sets what is called for each registered session (fleet_epoch > 0) that is gone for good, or was not `made` after all.
 * [any thread, must not block] NULL: nothing. Returns when the former function is not running any more. */
void gb_core_set_gone(struct gb_core *core,
                      void (*gone)(void *arg, const struct gb_name *name, const char *claim, bool made), void *arg);
/* What binds a session to the fleet. */
struct gb_session_bond {
    int64_t epoch;       /* of its record in the fleet's directory; 0: it is not registered */
    int64_t aside_epoch; /* > 0: it was set aside, and was registered at that epoch */
    bool arrives;        /* it is brought from another node, under a name of its own until it is here */
    bool stops_on_partition;
};
/* [now] Returns false if there is no live session of that name. */
bool gb_session_bond(struct gb_core *core, const char *name, struct gb_session_bond *ret);
/* [now] There is no session of that name at another node either: from now on it is not found here. Until then one that
 * went to another node a short while ago is refused with SESSION_MOVING, since what had begun may look it up again. */
void gb_session_forget_left(struct gb_core *core, const struct gb_name *name);
/* Gives the registered session of that name and claim the epoch that the directory has for it. One that is not higher
 * changes nothing. A session that was being given away when the process before this one ended is not frozen any more.
 * Result: call->session. Errors: SESSION_NOT_FOUND, also for another claim. */
void gb_session_raise(struct gb_core *core, const struct gb_name *name, const char *claim, int64_t epoch,
                      struct gb_session_call *call);
/* Sets the registered session of that name and claim aside, because another node has the name: the session becomes a
 * local one with the name "NAME.superseded-EPOCH" ("-2" and so on behind it if that is taken), which clients can read
 * and delete. Its buffers, pools, streams and leases stay. Its multipart uploads, and what clients are changing in it,
 * end with SUPERSEDED. idle_ttl_s: as of a patch. gb_core_set_gone's function is not called for it. Result:
 * call->session, as it is afterwards. Errors: SESSION_NOT_FOUND, also for another claim; those of the database, after
 * which the session is what it was. */
void gb_session_set_aside(struct gb_core *core, const struct gb_name *name, const char *claim, uint64_t idle_ttl_s,
                          struct gb_session_call *call);

/* --- from node to node -------------------------------------------------------------------------------------------- */

/* At the node that has a session: clients change nothing in it for a while (SESSION_MOVING), and read on. Changes that
 * had begun end; after that nothing of the session changes. */

/* [now] Freezes the registered session of that name and claim for `ms` milliseconds. *ret_freeze: its number. Errors:
 * SESSION_NOT_FOUND, also for another claim; SESSION_MOVING: it is frozen; MAPPED, ADOPTED, BUFFER_BUSY (uploads in
 * parts are open), while which it cannot be moved. */
int gb_session_freeze(struct gb_core *core, const struct gb_name *name, const char *claim, unsigned ms,
                      uint64_t *ret_freeze, struct gb_error *err);
/* [now] Whether all changes have ended. Errors: SESSION_NOT_FOUND; SESSION_MOVING: that freeze has ended. */
int gb_session_frozen(struct gb_core *core, const struct gb_name *name, uint64_t freeze, bool *ret_quiet,
                      struct gb_error *err);
/* [now] Ends the freeze, unless it has ended or the session is being given away. */
void gb_session_thaw(struct gb_core *core, const struct gb_name *name, uint64_t freeze);
/* The session is about to be given away: the freeze lasts until gb_session_regain or gb_session_set_aside, and the
 * database knows it. If the process ends before, the session is frozen in the next one until gb_session_raise or
 * gb_session_set_aside, since another node may have it. Result: none. Errors: as above; BUFFER_BUSY while changes have
 * not ended; MAPPED, ADOPTED; those of the database, after which the freeze has ended. */
void gb_session_give(struct gb_core *core, const struct gb_name *name, uint64_t freeze, struct gb_session_call *call);
/* It was not given away, and will not be: ends the freeze. Result: none. Errors: SESSION_NOT_FOUND, SESSION_MOVING (it
 * is not being given away); those of the database, after which the session stays frozen. */
void gb_session_regain(struct gb_core *core, const struct gb_name *name, uint64_t freeze, struct gb_session_call *call);

/* At the node that is to have it: gb_session_create with a fleet_claim and without a fleet_epoch makes a session that
 * is to arrive. It is freed when nothing has been done in it for a day. */

/* [now] Keeps the name for the session. Errors: SESSION_NOT_FOUND, SESSION_EXISTS. */
int gb_session_expect(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                      struct gb_error *err);
/* The session has arrived: it has that name from now on, and is registered at params->fleet_epoch. params: name,
 * fleet_claim, which is the session's, fleet_epoch, holders. Result: call->session. Errors: SESSION_NOT_FOUND, also for
 * another claim; SESSION_EXISTS; those of the database, after which it is what it was. */
void gb_session_arrive(struct gb_core *core, const struct gb_name *session, const struct gb_session_params *params,
                       struct gb_session_call *call);

/* --- copies at other nodes ---------------------------------------------------------------------------------------- */

/* Other nodes may have copies of the sealed buffers of a registered session. A name that such a buffer had is given to
 * no other bytes (COPIES_REMAIN) until all of them have dropped it. Editions report what they have: a session's edition
 * rises whenever one of its sealed buffers comes or goes. */

/* Notes which nodes may have copies of buffers of the session of that name and claim, before those learn of any buffer:
 * "NODE:NUMBER,...", borrowed during the call; NULL: none. Without any, all names are free. Result: call->session.
 * Errors: SESSION_NOT_FOUND, also for another claim; those of the database. */
void gb_session_hold(struct gb_core *core, const struct gb_name *name, const char *claim, struct gb_text *holders,
                     struct gb_session_call *call);
/* [now] The edition of a session; 0: no session has that name. */
uint64_t gb_session_edition(struct gb_core *core, const struct gb_name *name);
/* [now] All holders have what belongs to that edition and nothing else: names that were given up by then are free. */
void gb_session_release_names(struct gb_core *core, const struct gb_name *name, uint64_t edition);
/* Sets what is called when an edition has risen. [any thread, with locks held: it must not block and call nothing of
 * the core] NULL: nothing. Returns when the former function is not running any more. */
void gb_core_set_copied(struct gb_core *core, void (*copied)(void *arg), bool (*shortage)(void *arg, uint64_t bytes),
                        void *arg);
/* [now] From now on this node keeps copies of other nodes' buffers, in sessions that are to arrive. Shortage is called,
 * as copied is, when a device lacks `bytes` bytes for other work; it returns true if copies will be dropped. */
void gb_core_keep_copies(struct gb_core *core);

/* [now] Resets the idle timer. *ret as for gb_session_get. */
int gb_session_heartbeat(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret,
                         struct gb_error *err);
/* Ends when the devices have done what was queued before, and all changes that they made are durable or have failed:
 * sessions, pools and streams that were being made are there then, or will not be. */
void gb_core_flush(struct gb_core *core, struct gb_call *call);

/* [now] Visits at most page->limit sessions with id > page->after, in the order of their ids. The visitor is called
 * without locks; if it does not return 0, the walk ends, and the list returns that. Sets only page->more, and only if
 * no visitor ended the walk. */
int gb_session_list(struct gb_core *core, struct gb_page *page,
                    int (*visit)(void *, const struct gb_session_view *, struct gb_error *), void *arg,
                    struct gb_error *err);

/* A request that makes several calls looks its session up once and holds it. If the session ends meanwhile, each
 * function that takes the held session fails with SESSION_NOT_FOUND. */

/* [now] Looks a live session up and resets its idle timer. Returns it with a reference; NULL with SESSION_NOT_FOUND. */
struct gb_session *gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err);
/* Drops a reference; NULL is accepted. The session's lock is not held. */
void gb_session_unref(struct gb_session *session);

/* --- memory pools ------------------------------------------------------------------------------------------------- */

/* Every session sees the devices' own pools, "default" (device 0) and "default.N", and the pools that it made. A
 * session's pools are persisted; the next start makes them again, empty. */

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

/* --- streams, events and synchronization -------------------------------------------------------------------------- */

/* A stream orders work under a name inside a session. It has a part on each device, made when it is first needed there.
 * Work queued on a stream runs in order on each device; events order work across devices and streams. The stream
 * "default" always exists. Streams and events are not persisted. */

#define GB_STREAMS_MAX 64 /* of one session, besides "default" and unless configured; draining streams count */
#define GB_EVENTS_MAX 256

struct gb_stream_view {
    int64_t id; /* 0: "default" */
    struct gb_name name;
    int64_t created_at_us;
    bool busy;        /* work is queued on it */
    unsigned devices; /* number of devices with a part of it */
};

struct gb_stream_call {
    struct gb_call base;
    struct gb_stream_view stream;
};

/* Creates a stream. Result: call->stream. Errors: STREAM_EXISTS, LIMIT_REACHED. */
void gb_stream_make(struct gb_core *core, const struct gb_locator *at, struct gb_stream_call *call);

/* Deletes a stream. The call ends when the name is gone, which is at once. The stream's parts are destroyed when the
 * queued work has finished. Errors: STREAM_PROTECTED for "default", STREAM_NOT_FOUND. */
void gb_stream_remove(struct gb_core *core, const struct gb_locator *at, struct gb_call *call);

/* [now] Reads a stream; the name "" stands for "default". */
int gb_stream_get(struct gb_core *core, const struct gb_locator *at, struct gb_stream_view *ret, struct gb_error *err);

/* [now] If page->after is 0, "default" comes first. Then come at most page->limit streams with id > page->after.
 * Otherwise as gb_session_list. */
int gb_stream_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                   int (*visit)(void *, const struct gb_stream_view *, struct gb_error *), void *arg,
                   struct gb_error *err);

/* Wait for all work queued so far: on the stream, on every stream of the session, or on the device by any session. The
 * calls have no time limit and block no thread. A caller that gives up earlier ignores the call's end. For an event:
 * gb_event_sync_call. */
void gb_stream_sync_call(struct gb_core *core, const struct gb_locator *at, struct gb_call *call);
void gb_session_sync_call(struct gb_core *core, const struct gb_name *session, struct gb_call *call);
void gb_device_sync_call(struct gb_core *core, int device, struct gb_call *call);

#define GB_HOLD_MS_MAX 10000
#define GB_HOLDS_MAX 8 /* at a time, of all sessions */

struct gb_hold_call {
    struct gb_call base;
    struct gb_name stream;
    int device;
    uint64_t ms;
    int64_t until_us;
};

/* Holds the stream's part on the device for 1 to GB_HOLD_MS_MAX milliseconds from now: work queued on it meanwhile
 * waits. The call ends when the hold is queued. Result: the fields of the call. Errors: INVALID_ARGUMENT,
 * DEVICE_NOT_FOUND, STREAM_NOT_FOUND, STREAM_HELD, SATURATED, DRAINING. */
void gb_stream_hold_call(struct gb_core *core, const struct gb_locator *at, int device, uint64_t ms,
                         struct gb_hold_call *call);

/* [now] Ends all holds, and permits no further ones: the daemon stops. */
void gb_holds_release(struct gb_core *core);

struct gb_event_view {
    int64_t id;
    struct gb_name name;
    int64_t created_at_us;
    bool recorded;
    bool done;             /* the work that the last record covers is done; true if there is no record */
    struct gb_name stream; /* of the last record */
    uint64_t records;
};

struct gb_event_call {
    struct gb_call base;
    bool created; /* the call has created the event */
    struct gb_event_view event;
};

/* Creates an event. Result: call->event. Errors: EVENT_EXISTS, LIMIT_REACHED. */
void gb_event_make(struct gb_core *core, const struct gb_locator *at, struct gb_event_call *call);

/* Deletes an event. Work that waits for its last record still waits. Errors: EVENT_NOT_FOUND. */
void gb_event_remove(struct gb_core *core, const struct gb_locator *at, struct gb_call *call);

/* [now] Read an event, or list events as gb_session_list does. */
int gb_event_get(struct gb_core *core, const struct gb_locator *at, struct gb_event_view *ret, struct gb_error *err);
int gb_event_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                  int (*visit)(void *, const struct gb_event_view *, struct gb_error *), void *arg,
                  struct gb_error *err);

/* Records the event: it covers the work queued on the stream so far, on every device. Result: call->event. */
void gb_event_record_call(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                          struct gb_event_call *call);

/* Makes work queued on the stream from now on wait, on every device, for the work that the event's last record covers.
 * An event that was never recorded has no effect. The call ends when the wait is queued, not when it has ended. Result:
 * call->event. */
void gb_event_wait_call(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                        struct gb_event_call *call);

/* Waits, as gb_stream_sync_call, for the work that the event's last record covers on any device. An event that was
 * never recorded delays nothing. Result: call->event, as of that record. Errors: EVENT_NOT_FOUND, and what the work
 * failed with. */
void gb_event_sync_call(struct gb_core *core, const struct gb_locator *at, struct gb_event_call *call);

/* [now] Has gb_core_sequence rise when the work that the event's last record covers is done, for those who poll. */
void gb_event_announce(struct gb_core *core, const struct gb_locator *at);

#endif
