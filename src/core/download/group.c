#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/download/download.h"
#include "core/download/group.h"

/* Buffers whose downloads are open at once: enough that small ones, too, are under way while others are sent. */
#define AHEAD 4

struct item {
    struct gb_content *content; /* a reference; NULL: no write so far */
    enum gb_kind kind;
    uint64_t bytes;
};

struct gb_download_group {
    struct gb_session *session;
    struct gb_core_stream *stream; /* used */
    struct gb_waker waker;
    struct gb_buffer_rec *recs; /* until the start */
    struct item *items;
    size_t count;
    bool started;
    size_t next; /* the first whose download was not opened */
    struct {
        struct gb_download *download;
        uint64_t left; /* to be sent */
    } open[AHEAD];     /* from `first` on, round */
    unsigned first;
    unsigned opened;
    struct gb_transfer_times done; /* of those that ended */
};

size_t gb_download_group_count(const struct gb_download_group *group) {
    return group->count;
}

const struct gb_buffer_rec *gb_download_group_record(const struct gb_download_group *group, size_t i) {
    return &group->recs[i];
}

static void drop_records(struct gb_download_group *b) {
    size_t i;

    for (i = 0; b->recs && i < b->count; i++)
        gb_buffer_rec_done(&b->recs[i]);
    free(b->recs);
    b->recs = NULL;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static int hold_locked(struct gb_download_group *b, const struct gb_name *name, bool lenient, struct gb_error *err) {
    struct item *item = &b->items[b->count];
    struct gb_buffer_rec *rec = &b->recs[b->count];
    struct gb_error why = GB_ERROR_INIT;

    rec->labels = NULL;
    if (gb_buffer_hold_locked(b->session, name, rec, &item->content, &why) < 0) {
        if (lenient && why.code == GB_ERR_BUFFER_NOT_FOUND)
            return 0;
        if (!strstr(why.detail, name->s))
            return gb_error_set(err, why.code, "\"%s\": %.200s", name->s, why.detail);
        *err = why;
        return -1;
    }
    item->kind = rec->kind;
    item->bytes = rec->bytes;
    b->count++;
    return 0;
}

static int hold_all(struct gb_download_group *b, const struct gb_name *names, size_t count, bool lenient,
                    const struct gb_name *stream, struct gb_error *err) {
    size_t i;
    int r;

    pthread_mutex_lock(&b->session->lock);
    r = gb_core_stream_use_locked(b->session, stream, &b->stream, err);
    for (i = 0; i < count && r == 0; i++)
        r = hold_locked(b, &names[i], lenient, err);
    pthread_mutex_unlock(&b->session->lock);
    return r;
}

int gb_download_group_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *names,
                           size_t count, bool lenient, const struct gb_name *stream, struct gb_waker waker,
                           struct gb_download_group **ret, struct gb_error *err) {
    struct gb_session *s;
    struct gb_download_group *b;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use(core, session, err);
    if (!s)
        return -1;
    b = calloc(1, sizeof(*b));
    if (!b) {
        gb_session_unref(s);
        return gb_no_memory(err);
    }
    b->session = s;
    b->waker = waker;
    atomic_fetch_add(&s->transfers, 1);
    b->recs = malloc((count + 1) * sizeof(*b->recs));
    b->items = malloc((count + 1) * sizeof(*b->items));
    if (!b->recs || !b->items) {
        gb_download_group_free(b);
        return gb_no_memory(err);
    }
    if (hold_all(b, names, count, lenient, stream, err) < 0) {
        gb_download_group_free(b);
        return -1;
    }
    *ret = b;
    return 0;
}

int gb_download_group_start(struct gb_download_group *b, const size_t *order, struct gb_error *err) {
    struct item *ordered = malloc((b->count + 1) * sizeof(*ordered));
    size_t i;

    if (!ordered)
        return gb_no_memory(err);
    for (i = 0; i < b->count; i++)
        ordered[i] = b->items[order[i]];
    free(b->items);
    b->items = ordered;
    drop_records(b);
    b->started = true;
    return 0;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

/* 1: one more is open, the last; 0: there is none; -1. */
static int open_next(struct gb_download_group *b, struct gb_error *err) {
    unsigned at = (b->first + b->opened) % AHEAD;
    struct gb_download *d;
    struct item *item;

    while (b->next < b->count && b->items[b->next].bytes == 0)
        gb_content_drop(b->items[b->next++].content, NULL, NULL);
    if (b->next == b->count)
        return 0;
    item = &b->items[b->next];
    d = gb_download_of(b->session, b->stream, item->content, item->kind, item->bytes, b->waker);
    if (!d)
        return gb_no_memory(err);
    b->next++;
    b->open[at].download = d;
    b->open[at].left = item->bytes;
    b->opened++;
    return gb_download_start(d, 0, item->bytes, err) < 0 ? -1 : 1;
}

static struct gb_download *opened(const struct gb_download_group *b, unsigned i) {
    return b->open[(b->first + i) % AHEAD].download;
}

/* Once all copies of one are queued, those of the next follow. */
static void look_ahead(struct gb_download_group *b) {
    unsigned i = 0;

    while (!opened(b, i)->direct && opened(b, i)->queued == opened(b, i)->length) {
        if (++i == AHEAD || (i == b->opened && open_next(b, NULL) <= 0))
            return;
        gb_download_ahead(opened(b, i));
    }
}

int gb_download_group_next(struct gb_download_group *b, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r = 1;

    if (b->started && b->opened == 0)
        r = open_next(b, err);
    if (!b->started || r == 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "no bytes of the buffers are left");
    if (r > 0)
        r = gb_download_next(opened(b, 0), ret_ptr, ret_n, err);
    if (r >= 0)
        look_ahead(b);
    return r;
}

void gb_download_group_sent(struct gb_download_group *b, size_t n) {
    struct gb_transfer_times times;
    struct gb_download *d = opened(b, 0);

    gb_download_sent(d, n);
    b->open[b->first].left -= n;
    if (b->open[b->first].left > 0)
        return;
    gb_download_times(d, &times);
    b->done.copy_ms += times.copy_ms;
    if (times.queue_ms > b->done.queue_ms)
        b->done.queue_ms = times.queue_ms;
    gb_download_free(d, true);
    b->first = (b->first + 1) % AHEAD;
    b->opened--;
}

void gb_download_group_pause(struct gb_download_group *b) {
    unsigned i;

    /* In reverse order, because the download that is sent next must be the last to release its slots. */
    for (i = b->opened; i > 0; i--)
        gb_download_pause(opened(b, i - 1));
}

void gb_download_group_times(const struct gb_download_group *b, struct gb_transfer_times *ret) {
    struct gb_transfer_times times;

    *ret = b->done;
    if (b->opened == 0)
        return;
    gb_download_times(opened(b, 0), &times);
    ret->copy_ms += times.copy_ms;
    if (times.queue_ms > ret->queue_ms)
        ret->queue_ms = times.queue_ms;
}

void gb_download_group_free(struct gb_download_group *b) {
    unsigned i;

    if (!b)
        return;
    for (i = 0; i < b->opened; i++)
        gb_download_free(opened(b, i), false);
    for (; b->next < b->count; b->next++)
        gb_content_drop(b->items[b->next].content, NULL, NULL);
    drop_records(b);
    free(b->items);
    gb_core_stream_unuse(b->stream);
    gb_session_touch(b->session);
    atomic_fetch_sub(&b->session->transfers, 1);
    gb_session_unref(b->session);
    free(b);
}
