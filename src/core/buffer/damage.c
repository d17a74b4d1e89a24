#include "core/buffer/damage.h"

#include <stdio.h>

#include "core/session/notices.h"

bool gb_damage_is(const struct gb_error *error) {
    return error->code == GB_ERR_CONTENT_DAMAGED || error->code == GB_ERR_CONTENT_LOST;
}

void gb_damage_tell(struct gb_session *session, const struct gb_name *buffer, struct gb_stored *stored,
                    const struct gb_error *error, bool often) {
    struct gb_notice notice = gb_notice_of(session, GB_NOTICE_BUFFER_DAMAGED);

    if (!gb_damage_is(error))
        return;
    gb_stored_note_damage(stored);
    notice.buffer = *buffer;
    notice.generation = stored->rec.generation;
    snprintf(notice.detail, sizeof(notice.detail), "%.120s", error->detail);
    if (often)
        gb_notice_post_limited(session->core, &notice);
    else
        gb_notice_post(session->core, &notice);
}
