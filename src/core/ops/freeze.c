/* A session that is handed to another node: nothing in it changes for a moment. */
#include <string.h>

#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/session/session.h"

static bool is_frozen_locked(const struct gb_session *s) {
    return s->frozen != 0 && gb_clock_ns() < s->frozen_until_ns;
}

static int check_unused_locked(struct gb_session *s, struct gb_error *err) {
    struct gb_buffer *b;
    size_t at = 0;

    while (s->leases > 0 && (b = gb_map_next(&s->buffers, &at)))
        if (b->live && gb_guard_check_unmapped_locked(b, "it is moved when that has ended", err) < 0)
            return -1;
    if (gb_guard_check_session_locked(s, err) < 0)
        return -1; /* by buffers that are gone */
    at = 0;
    while (s->adopted > 0 && (b = gb_map_next(&s->buffers, &at)))
        if (b->live && gb_adopted_check_locked(b, "its session cannot go to another node", err) < 0)
            return -1;
    if (s->multiparts_open == 0)
        return 0;
    return gb_error_set(err, GB_ERR_BUFFER_BUSY,
                        "uploads in parts are open in session \"%s\" (%llu): it is moved when they have ended",
                        gb_session_told(s)->s, (unsigned long long)s->multiparts_open);
}

static int freeze_locked(struct gb_session *s, const char *claim, unsigned ms, uint64_t *ret, struct gb_error *err) {
    if (s->rec.fleet_epoch == 0 || strcmp(s->rec.fleet_claim, claim) != 0)
        return gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "no session \"%s\" is registered by that claim",
                            gb_session_told(s)->s);
    if (gb_session_changeable_locked(s, err) < 0 || check_unused_locked(s, err) < 0)
        return -1;
    s->frozen = gb_clock_ns();
    s->frozen_until_ns = s->frozen + ms * GB_NS_PER_MS;
    *ret = s->frozen;
    return 0;
}

int gb_session_freeze(struct gb_core *core, const struct gb_name *name, const char *claim, unsigned ms,
                      uint64_t *ret_freeze, struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);
    int r;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = freeze_locked(s, claim, ms, ret_freeze, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

/* A change of the session itself has the fifo lock, also the one that asks. */
static bool is_quiet_locked(struct gb_session *s, bool has_turn) {
    struct gb_buffer *b;
    size_t at = 0;

    if (s->changing > 0 || (s->fifo.taken && !has_turn))
        return false;
    while ((b = gb_map_next(&s->buffers, &at)))
        if (b->in_place)
            return false;
    return true;
}

static int check_number_locked(struct gb_session *s, uint64_t freeze, struct gb_error *err) {
    if (gb_session_alive(s, err) < 0)
        return -1;
    if (is_frozen_locked(s) && s->frozen == freeze)
        return 0;
    return gb_error_set(err, GB_ERR_SESSION_MOVING, "the session \"%s\" is not frozen by that number any more",
                        gb_session_told(s)->s);
}

int gb_session_check_frozen_locked(struct gb_session *s, uint64_t freeze, struct gb_error *err) {
    if (check_number_locked(s, freeze, err) < 0)
        return -1;
    if (!is_quiet_locked(s, true))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "changes of session \"%s\" have not ended", gb_session_told(s)->s);
    return check_unused_locked(s, err);
}

int gb_session_frozen(struct gb_core *core, const struct gb_name *name, uint64_t freeze, bool *ret_quiet,
                      struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);
    int r;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = check_number_locked(s, freeze, err);
    *ret_quiet = r == 0 && is_quiet_locked(s, false);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

void gb_session_thaw(struct gb_core *core, const struct gb_name *name, uint64_t freeze) {
    struct gb_session *s = gb_session_find(core, name, NULL);

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->frozen == freeze && s->frozen_until_ns != UINT64_MAX)
        s->frozen = 0;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}
