/* Sessions. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_SESSION_H
#define GB_CORE_PUBLIC_SESSION_H

#include "core/public/types.h"

struct gb_call;
struct gb_core;

/* Looking at a session (get, list, statistics) is no sign of life: a dashboard that polls keeps nothing alive.
 * Everything else that names it is, and so is a transfer while it runs. */

/* SESSION_EXISTS, LIMIT_REACHED. Result: call->session. */
void gb_session_create(struct gb_core *core, const struct gb_session_params *params, struct gb_session_call *call);
/* [now] SESSION_NOT_FOUND. *ret holds a reference: gb_session_rec_done(&ret->rec); so does that of a heartbeat. */
int gb_session_get(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret, struct gb_error *err);
/* Lowering a quota below what is used is permitted: it stops new allocations. */
void gb_session_patch(struct gb_core *core, const struct gb_name *name, const struct gb_session_params *params,
                      const struct gb_session_check *check, struct gb_session_call *call);
/* Frees everything in it in stream order; transfers in flight end undisturbed or with SESSION_NOT_FOUND.
 * SESSION_PROTECTED for "default". */
void gb_session_delete(struct gb_core *core, const struct gb_name *name, const struct gb_session_check *check,
                       struct gb_call *call);
/* [now] A sign of life and nothing else. */
int gb_session_heartbeat(struct gb_core *core, const struct gb_name *name, struct gb_session_view *ret,
                         struct gb_error *err);
/* [now] Sessions with id > after_id, by id, at most limit. A visitor that returns -1 ends the walk. It is called
 * without locks held. *ret_more: there are more. */
int gb_session_list(struct gb_core *core, int64_t after_id, unsigned limit,
                    int (*visit)(void *, const struct gb_session_view *, struct gb_error *), void *arg, bool *ret_more,
                    struct gb_error *err);

/* A request that makes several calls finds its session once and holds it. The session may end meanwhile; each function
 * that takes a held one then says SESSION_NOT_FOUND. */

/* [now] A live session with a reference; resets the idle timer. NULL with SESSION_NOT_FOUND. */
struct gb_session *gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err);
/* Drops a reference; NULL is accepted. Without the session's lock. */
void gb_session_unref(struct gb_session *session);

#endif
