/* The multipart uploads of a session: found by id, listed, counted, forgotten when nothing has come for a while. */
#include "core/multipart/multipart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/multipart/internal.h"

/* --- one ---------------------------------------------------------------------------------------------------------- */

struct gb_multipart *gb_multipart_ref(struct gb_multipart *multipart) {
    atomic_fetch_add(&multipart->refs, 1);
    return multipart;
}

void gb_multipart_unref(struct gb_multipart *multipart) {
    if (!multipart || atomic_fetch_sub(&multipart->refs, 1) != 1)
        return;
    if (multipart->free_app)
        multipart->free_app(multipart->app);
    gb_ranges_done(&multipart->ranges);
    free(multipart->header);
    pthread_mutex_destroy(&multipart->lock);
    gb_session_unref(multipart->session);
    free(multipart);
}

static int enroll_locked(struct gb_session *s, struct gb_multipart *multipart, struct gb_place *place,
                         struct gb_error *err) {
    uint64_t max = s->core->config.multiparts_max ? s->core->config.multiparts_max : GB_MULTIPARTS_MAX;

    if (gb_session_changeable_locked(s, err) < 0)
        return -1;
    if (s->multiparts_open >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "session \"%s\" has %llu open uploads, the permitted number (--max-uploads)",
                            gb_session_told(s)->s, (unsigned long long)s->multiparts_open);
    if (gb_idlist_put(&s->multiparts, multipart->number, multipart) < 0)
        return gb_no_memory(err);
    s->multiparts_open++;
    multipart->counted = true;
    multipart->listed = true;
    if (place) {
        multipart->place = *place;
        place->end = NULL;
    }
    gb_multipart_ref(multipart);
    return 0;
}

int gb_multipart_new(struct gb_core *core, const struct gb_upload_params *params, bool appends,
                     struct gb_multipart **ret, struct gb_error *err) {
    struct gb_session *s = gb_session_use_held(core, params->session, &params->buffer.session, err);
    struct gb_multipart *multipart = s ? calloc(1, sizeof(*multipart)) : NULL;
    int r;

    if (!multipart) {
        gb_session_unref(s);
        return gb_no_memory(err); /* unless it was something else */
    }
    atomic_init(&multipart->refs, 1);
    multipart->core = core;
    multipart->session = s;
    multipart->number = atomic_fetch_add(&core->last_multipart, 1) + 1;
    multipart->buffer = params->buffer.name;
    multipart->appends = appends;
    multipart->created_at_us = gb_wall_us();
    multipart->touched_ns = gb_clock_ns();
    gb_mutex_init(&multipart->lock);
    pthread_mutex_lock(&s->lock);
    r = enroll_locked(s, multipart, params->place, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0) {
        gb_multipart_unref(multipart);
        return -1;
    }
    *ret = multipart;
    return 0;
}

/* It is no longer one of those that are open. */
static void uncount_locked(struct gb_multipart *multipart) {
    multipart->session->multiparts_open -= multipart->counted;
    multipart->counted = false;
    if (multipart->place.end)
        multipart->place.end(multipart->place.arg);
    multipart->place.end = NULL;
}

void gb_multipart_withdraw(struct gb_multipart *multipart) {
    struct gb_session *s = multipart->session;
    bool listed;

    pthread_mutex_lock(&s->lock);
    listed = multipart->listed;
    if (listed)
        gb_idlist_take(&s->multiparts, multipart->number);
    uncount_locked(multipart);
    multipart->listed = false;
    pthread_mutex_unlock(&s->lock);
    if (listed)
        gb_multipart_unref(multipart);
}

/* --- what they hold ----------------------------------------------------------------------------------------------- */

int gb_multipart_hold(struct gb_multipart *multipart, uint64_t bytes, struct gb_error *err) {
    struct gb_core *core = multipart->core;
    uint64_t max = core->config.multipart_bytes_max ? core->config.multipart_bytes_max : GB_UNLIMITED;
    uint64_t held = atomic_fetch_add(&core->multipart_bytes, bytes);

    if (held > max || bytes > max - held) {
        atomic_fetch_sub(&core->multipart_bytes, bytes);
        gb_error_numbers(err, max, held, bytes);
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "open uploads may hold %llu bytes in all (--max-upload-bytes) and hold %llu: %llu more do "
                            "not fit",
                            (unsigned long long)max, (unsigned long long)held, (unsigned long long)bytes);
    }
    pthread_mutex_lock(&multipart->session->lock);
    multipart->session->multipart_bytes += bytes;
    multipart->held_bytes = bytes;
    pthread_mutex_unlock(&multipart->session->lock);
    return 0;
}

void gb_multipart_release(struct gb_multipart *multipart) {
    struct gb_session *s = multipart->session;
    uint64_t bytes;

    pthread_mutex_lock(&s->lock);
    bytes = multipart->held_bytes;
    s->multipart_bytes -= bytes;
    multipart->held_bytes = 0;
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_sub(&multipart->core->multipart_bytes, bytes);
}

/* Completed ones that are listed; the first of them in *ret with a reference. */
static size_t count_done_locked(struct gb_session *s, struct gb_multipart **ret) {
    struct gb_multipart *multipart;
    int64_t at = 0;
    size_t count = 0;

    *ret = NULL;
    while ((multipart = gb_idlist_after(&s->multiparts, at, &at))) {
        bool done;

        pthread_mutex_lock(&multipart->lock);
        done = multipart->state == GB_MULTIPART_DONE;
        pthread_mutex_unlock(&multipart->lock);
        count += done;
        if (done && !*ret)
            *ret = gb_multipart_ref(multipart);
    }
    return count;
}

void gb_multipart_remember(struct gb_multipart *multipart) {
    struct gb_session *s = multipart->session;
    struct gb_multipart *oldest = NULL;
    size_t count;

    gb_multipart_release(multipart);
    pthread_mutex_lock(&s->lock);
    uncount_locked(multipart);
    count = count_done_locked(s, &oldest);
    pthread_mutex_unlock(&s->lock);
    if (count > GB_MULTIPARTS_DONE_MAX)
        gb_multipart_withdraw(oldest);
    gb_multipart_unref(oldest);
}

/* --- finding ------------------------------------------------------------------------------------------------------ */

static void write_id(const struct gb_multipart *multipart, char out[GB_MULTIPART_ID_SIZE]) {
    snprintf(out, GB_MULTIPART_ID_SIZE, "%08" PRIx32 "-%" PRId64, multipart->core->run, multipart->number);
}

int gb_multipart_not_found(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UPLOAD_NOT_FOUND,
                        "there is no such upload here; they end when they are deleted, when nothing has come for a "
                        "while, with their session and with the daemon");
}

struct gb_multipart *gb_multipart_find(struct gb_core *core, const struct gb_name *session, const char *id, bool use,
                                       struct gb_error *err) {
    struct gb_session *s = use ? gb_session_use(core, session, err) : gb_session_find(core, session, err);
    struct gb_multipart *multipart = NULL;
    char text[GB_MULTIPART_ID_SIZE];
    const char *dash = strchr(id, '-');
    int64_t at;

    if (!s)
        return NULL;
    at = dash ? strtoll(dash + 1, NULL, 10) : 0;
    pthread_mutex_lock(&s->lock);
    if (at > 0)
        multipart = gb_idlist_after(&s->multiparts, at - 1, NULL);
    if (multipart) {
        write_id(multipart, text);
        multipart = strcmp(text, id) == 0 ? gb_multipart_ref(multipart) : NULL;
    }
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    if (!multipart)
        gb_multipart_not_found(err);
    return multipart;
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

static uint64_t ttl_s(const struct gb_core *core) {
    return core->config.multipart_ttl_s ? core->config.multipart_ttl_s : GB_MULTIPART_TTL_S;
}

uint64_t gb_multipart_offset_locked(const struct gb_multipart *multipart) {
    uint64_t got;

    if (multipart->state == GB_MULTIPART_HEADER)
        return multipart->header_used;
    got = multipart->skip +
          (multipart->state == GB_MULTIPART_DONE ? multipart->bytes : gb_ranges_prefix(&multipart->ranges));
    return got > multipart->header_used ? got : multipart->header_used;
}

static bool busy_locked(const struct gb_multipart *multipart) {
    return multipart->running > 0 || multipart->append_locked || multipart->state == GB_MULTIPART_HASHING ||
           multipart->state == GB_MULTIPART_COMPLETING;
}

void gb_multipart_view_locked(struct gb_multipart *multipart, struct gb_multipart_view *ret) {
    uint64_t now_ns = gb_clock_ns();
    bool busy = busy_locked(multipart);
    uint64_t idle_ns = busy ? 0 : now_ns - multipart->touched_ns;

    *ret = (struct gb_multipart_view){.number = multipart->number,
                                      .buffer = multipart->buffer,
                                      .appends = multipart->appends,
                                      .has_bytes = multipart->state != GB_MULTIPART_HEADER,
                                      .bytes = multipart->bytes,
                                      .received_bytes = multipart->ranges.bytes,
                                      .parts = multipart->ranges.count,
                                      .running = multipart->running,
                                      .completed = multipart->state == GB_MULTIPART_DONE,
                                      .offset = gb_multipart_offset_locked(multipart),
                                      .has_length = multipart->has_length,
                                      .length = multipart->length,
                                      .created_at_us = multipart->created_at_us};
    write_id(multipart, ret->id);
    ret->expires_at_us = gb_wall_us() + (int64_t)ttl_s(multipart->core) * 1000000 - (int64_t)(idle_ns / 1000);
    if (ret->completed)
        return;
    ret->gap_count = gb_ranges_missing(&multipart->ranges, multipart->bytes, ret->gaps, GB_MULTIPART_GAPS_MAX);
    ret->gaps_given = ret->gap_count < GB_MULTIPART_GAPS_MAX ? ret->gap_count : GB_MULTIPART_GAPS_MAX;
}

int gb_multipart_check_locked(struct gb_multipart *multipart, struct gb_error *err) {
    switch (multipart->state) {
    case GB_MULTIPART_OPEN:
        if (multipart->sealed)
            return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                                "everything arrived and it was tried to complete it: try that again, or delete it");
        return 0;
    case GB_MULTIPART_HEADER:
    case GB_MULTIPART_OPENING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "its memory is still being got; try again");
    case GB_MULTIPART_HASHING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "its digest is being computed, before it is completed");
    case GB_MULTIPART_COMPLETING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "it is just being completed");
    case GB_MULTIPART_DONE:
        return gb_error_set(err, GB_ERR_UPLOAD_COMPLETED, "the upload is completed and takes nothing more");
    case GB_MULTIPART_ENDED:
        break;
    }
    return gb_multipart_not_found(err);
}

static void look(struct gb_multipart *multipart, struct gb_multipart_view *ret) {
    pthread_mutex_lock(&multipart->lock);
    gb_multipart_view_locked(multipart, ret);
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_unref(multipart);
}

int gb_multipart_get(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_multipart_view *ret,
                     struct gb_error *err) {
    struct gb_multipart *multipart = gb_multipart_find(core, session, id, false, err);

    if (!multipart)
        return -1;
    look(multipart, ret);
    return 0;
}

static struct gb_multipart *after(struct gb_session *s, int64_t number) {
    struct gb_multipart *multipart;

    pthread_mutex_lock(&s->lock);
    multipart = gb_idlist_after(&s->multiparts, number, NULL);
    if (multipart)
        gb_multipart_ref(multipart);
    pthread_mutex_unlock(&s->lock);
    return multipart;
}

int gb_multipart_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                      int (*visit)(void *, const struct gb_multipart_view *, struct gb_error *), void *arg,
                      struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, session, err);
    struct gb_multipart_view view = {.number = page->after};
    struct gb_multipart *multipart = NULL;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    for (n = 0; n < page->limit && r == 0 && (multipart = after(s, view.number)); n++) {
        look(multipart, &view);
        r = visit(arg, &view, err);
    }
    if (r == 0) {
        multipart = after(s, view.number);
        page->more = multipart != NULL;
        gb_multipart_unref(multipart);
    }
    gb_session_unref(s);
    return r;
}

/* --- those that are idle or orphaned ------------------------------------------------------------------------------ */

static bool idle(struct gb_multipart *multipart) {
    uint64_t idle_ns;
    bool busy;

    pthread_mutex_lock(&multipart->lock);
    busy = busy_locked(multipart) || multipart->state == GB_MULTIPART_OPENING;
    idle_ns = gb_clock_ns() - multipart->touched_ns;
    pthread_mutex_unlock(&multipart->lock);
    return !busy && idle_ns / GB_NS_PER_S >= ttl_s(multipart->core);
}

void gb_multiparts_expire(struct gb_session *s) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_multipart *multipart;
    int64_t at = 0;

    gb_multipart_not_found(&why);
    while ((multipart = after(s, at))) {
        at = multipart->number;
        if (idle(multipart)) {
            gb_multipart_end(multipart, &why);
            gb_multipart_withdraw(multipart); /* a completed one is forgotten */
        }
        gb_multipart_unref(multipart);
    }
}

void gb_multiparts_end(struct gb_session *s, const struct gb_error *why) {
    struct gb_multipart *multipart;

    while ((multipart = after(s, 0))) {
        gb_multipart_end(multipart, why);
        gb_multipart_withdraw(multipart);
        gb_multipart_unref(multipart);
    }
}
