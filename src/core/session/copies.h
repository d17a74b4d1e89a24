/* Names of sealed buffers of which other nodes may have copies. Such a name is given to no other bytes until those
 * nodes have dropped what it named: a copy is then never served under a name that means something else. */
#ifndef GB_CORE_SESSION_COPIES_H
#define GB_CORE_SESSION_COPIES_H

#include "core/session/session.h"

/* COPIES_REMAIN: a buffer of that name cannot be made yet. The session's lock is held. */
int gb_copies_check_name_locked(struct gb_session *session, const char *name, struct gb_error *err);
/* The buffer of that name came, changed or is gone. The session's lock is held. */
void gb_copies_note_locked(struct gb_session *session, const char *name, bool was_sealed, bool is_sealed);
/* The holders have changed, or were told by the database. The session's lock is held. */
void gb_copies_set_locked(struct gb_session *session, bool withhold_all);
void gb_copies_done(struct gb_session *session);

#endif
