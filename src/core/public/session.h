/* Sessions. Included by core.h. */
#ifndef GB_CORE_PUBLIC_SESSION_H
#define GB_CORE_PUBLIC_SESSION_H

#include "core/public/types.h"

struct gb_call;
struct gb_core;

/* Reads (get, list, statistics) do not reset a session's idle timer, so that a polling dashboard keeps no session
 * alive. Every other call that names the session does, and so does every running transfer. */

/* Creates a session. Result: call->session. Errors: SESSION_EXISTS, LIMIT_REACHED. One with a fleet_epoch that fails is
 * told to gb_core_set_gone's function. */
void gb_session_create(struct gb_core *core, const struct gb_session_params *params, struct gb_session_call *call);
/* [now] Reads a session. *ret holds a reference, which gb_session_rec_done(&ret->rec) drops. Errors:
 * SESSION_NOT_FOUND. */
int gb_session_get(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret, struct gb_error *err);
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
 * end with SUPERSEDED. idle_ttl_s: as of a patch. It is not told to gb_core_set_gone's function. Result: call->session,
 * as it is afterwards. Errors: SESSION_NOT_FOUND, also for another claim; those of the database, after which the
 * session is what it was. */
void gb_session_set_aside(struct gb_core *core, const struct gb_name *name, const char *claim, uint64_t idle_ttl_s,
                          struct gb_session_call *call);

/* --- from node to node -------------------------------------------------------------------------------------------- */

/* At the node that has a session: clients change nothing in it for a while (SESSION_MOVING), and read on. Changes that
 * had begun end; after that nothing of the session changes. */

/* [now] Freezes the registered session of that name and claim for so long. *ret_freeze: its number. Errors:
 * SESSION_NOT_FOUND, also for another claim; SESSION_MOVING: it is frozen; MAPPED, ADOPTED, BUFFER_BUSY (uploads in
 * parts are open), while which it cannot be moved. */
int gb_session_freeze(struct gb_core *core, const struct gb_name *name, const char *claim, unsigned ms,
                      uint64_t *ret_freeze, struct gb_error *err);
/* [now] Whether all changes have ended. Errors: SESSION_NOT_FOUND; SESSION_MOVING: that freeze is over. */
int gb_session_frozen(struct gb_core *core, const struct gb_name *name, uint64_t freeze, bool *ret_quiet,
                      struct gb_error *err);
/* [now] Ends the freeze, unless it is over or the session is being given away. */
void gb_session_thaw(struct gb_core *core, const struct gb_name *name, uint64_t freeze);
/* The session is about to be given away: the freeze lasts until gb_session_regain or gb_session_set_aside, and the
 * database knows it. If the process ends before, the session is frozen in the next one until gb_session_raise or
 * gb_session_set_aside, since another node may have it. Result: none. Errors: as above; BUFFER_BUSY while changes have
 * not ended; MAPPED, ADOPTED; those of the database, after which the freeze is over. */
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
 * fleet_claim, which is the session's, fleet_epoch, holders. Result: call->session. Errors:
 * SESSION_NOT_FOUND, also for another claim; SESSION_EXISTS; those of the database, after which it is what it was. */
void gb_session_arrive(struct gb_core *core, const struct gb_name *session, const struct gb_session_params *params,
                       struct gb_session_call *call);

/* --- copies at other nodes ---------------------------------------------------------------------------------------- */

/* Other nodes may have copies of the sealed buffers of a registered session. A name that such a buffer had is given to
 * no other bytes (COPIES_REMAIN) until all of them have dropped it. What they have is told by editions: a session's
 * edition rises whenever one of its sealed buffers comes or goes. */

/* Notes which nodes may have copies of buffers of the session of that name and claim, before those learn of any buffer:
 * "NODE:NUMBER,...", borrowed during the call; NULL: none. Without any, all names are free. Result: call->session.
 * Errors: SESSION_NOT_FOUND, also for another claim; those of the database. */
void gb_session_hold(struct gb_core *core, const struct gb_name *name, const char *claim, struct gb_text *holders,
                     struct gb_session_call *call);
/* [now] The edition of a session; 0: there is none of that name. */
uint64_t gb_session_edition(struct gb_core *core, const struct gb_name *name);
/* [now] All holders have what belongs to that edition and nothing else: names that were given up by then are free. */
void gb_session_release_names(struct gb_core *core, const struct gb_name *name, uint64_t edition);
/* Sets what is called when an edition has risen. [any thread, with locks held: it must not block and call nothing of
 * the core] NULL: nothing. Returns when the former function is not running any more. */
void gb_core_set_copied(struct gb_core *core, void (*copied)(void *arg), bool (*shortage)(void *arg, uint64_t bytes),
                        void *arg);
/* [now] From now on this node keeps copies of other nodes' buffers, in sessions that are to arrive. Shortage is called
 * when a device lacks so many bytes for anything else, as copied is; it returns whether copies will give way. */
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

#endif
