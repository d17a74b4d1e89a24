/* Slots of an upload on their way to the device. To be told that a copy is done costs two changes of thread, so the upload asks
 * itself, when it needs a slot. Copies that it may still ask for are loose; watched are those that nobody will ask for: the
 * oldest while the upload waits for a slot, all when it has ended, stands still or is given up, or where slots are scarce. */
#include "base/crc32c.h"
#include "core/upload/upload.h"

/* Its copy is done, or never will be. Without a reference dropped. */
static void landed(struct gb_staged_copy *f, const struct gb_error *error) {
    struct gb_upload *u = gb_upload_of(f->transfer);

    if (!error)
        gb_staged_copy_account(f);
    gb_staged_copy_release(f);
    pthread_mutex_lock(&u->t.lock);
    f->busy = false;
    u->in_flight--;
    u->pending--;
    if (error && u->t.error.code == GB_OK)
        u->t.error = *error;
    pthread_mutex_unlock(&u->t.lock);
}

/* The watch of the last of some. In a stream's order the others are done as well. */
static void copied(void *arg, const struct gb_error *error) {
    struct gb_staged_copy *last = arg;
    struct gb_upload *u = gb_upload_of(last->transfer);
    struct gb_staged_copy *f = last->covers_from;
    struct gb_staged_copy *next;
    unsigned n;

    gb_core_report_error(u->t.core, error);
    for (n = 0; f; f = next, n++) {
        next = f->next; /* from landed() on it may be filled again */
        landed(f, error);
    }
    pthread_mutex_lock(&u->t.lock);
    gb_upload_unlock_advance(u);
    for (; n > 0; n--)
        gb_core_transfer_unref(&u->t);
}

/* Takes the list from first to last out of the caller's hands. */
static int watch(struct gb_upload *u, struct gb_staged_copy *first, struct gb_staged_copy *last, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_staged_copy *next;

    last->covers_from = first;
    if (gb_watch(u->t.core->backend, last->end->event, copied, last, &why) == 0)
        return 0;
    gb_core_transfer_fail(&u->t, &why);
    for (; first; first = next) {
        next = first->next;
        gb_staged_copy_abandon(first);
    }
    if (err && err->code == GB_OK)
        *err = why;
    return -1;
}

static struct gb_staged_copy *take_first(struct gb_upload *u) {
    struct gb_staged_copy *f = u->unwatched;

    u->unwatched = f->next;
    if (!u->unwatched)
        u->unwatched_last = NULL;
    u->unwatched_count--;
    f->next = NULL;
    return f;
}

void gb_upload_watch_first(struct gb_upload *u) {
    bool watched;
    struct gb_staged_copy *f;

    pthread_mutex_lock(&u->t.lock);
    watched = u->in_flight > u->unwatched_count;
    pthread_mutex_unlock(&u->t.lock);
    if (watched || !u->unwatched)
        return;
    f = take_first(u);
    (void)watch(u, f, f, NULL); /* what goes wrong stands in the transfer */
}

int gb_upload_watch_rest(struct gb_upload *u, struct gb_error *err) {
    struct gb_staged_copy *first = u->unwatched;
    struct gb_staged_copy *last = u->unwatched_last;

    u->unwatched = u->unwatched_last = NULL;
    u->unwatched_count = 0;
    return first ? watch(u, first, last, err) : 0;
}

void gb_upload_reap(struct gb_upload *u) {
    struct gb_backend *be = u->t.core->backend;

    while (u->unwatched) {
        struct gb_error why = GB_ERROR_INIT;
        bool done = false;

        if (gb_event_query(be, u->unwatched->end->event, &done, &why) < 0) { /* the slot may still be read from */
            gb_core_transfer_fail(&u->t, &why);
            gb_staged_copy_abandon(take_first(u));
            return;
        }
        if (!done)
            return;
        landed(take_first(u), NULL);
        gb_core_transfer_unref(&u->t); /* never the last: the caller has one */
    }
}

static int copy(struct gb_upload *u, struct gb_staged_copy *f, struct gb_error *err) {
    struct gb_location dst = gb_content_location(u->content, u->at + u->filled - f->bytes);

    if (!u->params.scattered)
        return gb_staged_copy_copy(f, &dst, GB_COPY_TO_DEVICE, gb_core_transfer_part(&u->t), err);
    if (gb_staged_copy_open(f, gb_core_transfer_part(&u->t), err) < 0 || gb_scatter_queue(u, f, err) < 0)
        return -1;
    return gb_staged_copy_close(f, err);
}

static void sum_up(struct gb_upload *u, struct gb_staged_copy *f) {
    u->crc = gb_crc32c(u->crc, (char *)f->slot + f->summed, f->bytes - f->summed);
    f->summed = f->bytes;
}

int gb_upload_send(struct gb_upload *u, struct gb_error *err) {
    struct gb_staged_copy *f = u->filling;
    struct gb_error why = GB_ERROR_INIT;
    bool unwatched = gb_slots_plenty(&u->t.core->slots);

    u->filling = NULL;
    u->touched = true;
    pthread_mutex_lock(&u->t.lock);
    u->in_flight++;
    u->pending++;
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_ref(&u->t);
    if (!unwatched) /* the slot may be another's as soon as it is watched */
        sum_up(u, f);
    if (copy(u, f, &why) < 0) {
        gb_core_transfer_fail(&u->t, &why);
        gb_staged_copy_abandon(f);
        if (err && err->code == GB_OK)
            *err = why;
        return -1;
    }
    f->next = NULL;
    if (u->unwatched)
        u->unwatched_last->next = f;
    else
        u->unwatched = f;
    u->unwatched_last = f;
    u->unwatched_count++;
    if (!unwatched)
        return gb_upload_watch_rest(u, err);
    sum_up(u, f); /* while it is copied */
    return 0;
}

void gb_upload_sum(struct gb_upload *u) {
    if (u->filling_max < u->params.bytes)
        sum_up(u, u->filling);
}
