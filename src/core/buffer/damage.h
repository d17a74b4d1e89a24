/* Telling of stored bytes that are damaged. */
#ifndef GB_CORE_BUFFER_DAMAGE_H
#define GB_CORE_BUFFER_DAMAGE_H

#include "core/session/session.h"
#include "core/stored/stored.h"

/* Whether the error says that the stored bytes are not what they should be: anything else may be over by the next
 * try. */
bool gb_damage_is(const struct gb_error *error);

/* Notes it if it is, and posts a notice. often: a client may ask for the same bytes again and again. [any thread, never
 * blocks] */
void gb_damage_tell(struct gb_session *session, const struct gb_name *buffer, struct gb_stored *stored,
                    const struct gb_error *error, bool often);

#endif
