/* Making the rows of a file from its header. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/recover.h"

/* --- waiting for the database ------------------------------------------------------------------------------------- */

struct wait {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    struct gb_error error;
};

static void ended(void *arg, const struct gb_error *error) {
    struct wait *w = arg;

    pthread_mutex_lock(&w->lock);
    w->done = true;
    if (error != NULL)
        w->error = *error;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static int wait_for(struct wait *w, struct gb_error *err) {
    pthread_mutex_lock(&w->lock);
    while (!w->done)
        pthread_cond_wait(&w->cond, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return w->error.code == GB_OK ? 0 : gb_error_move(err, &w->error);
}

#define WAIT_INIT                                                                                                      \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER }

/* --- the session -------------------------------------------------------------------------------------------------- */

static int64_t session_of(const struct gb_recover *r, const char *name) {
    size_t i;

    for (i = 0; i < r->known.session_count; i++) {
        if (strcmp(r->known.sessions[i].name.s, name) == 0)
            return r->known.sessions[i].id;
    }
    return 0;
}

/* It has no labels and never expires: the headers know neither. Returns its id, or -1. */
static int64_t make_session(struct gb_recover *r, const struct gb_name *name, struct gb_error *err) {
    struct wait w = WAIT_INIT;
    struct gb_session_rec rec = {
        .id = r->last_session_id + 1, .name = *name, .quota = r->quota, .version = 1, .created_at_us = gb_wall_us()};

    rec.updated_at_us = rec.created_at_us;
    gb_store_put_session(r->store, &rec, NULL, ended, &w);
    if (wait_for(&w, err) < 0 || gb_known_add_session(&r->known, &rec, err) < 0)
        return -1;
    return ++r->last_session_id;
}

/* --- the buffer --------------------------------------------------------------------------------------------------- */

static int put_rows(struct gb_recover *r, const struct gb_stray *stray, int64_t session, struct gb_error *err) {
    const struct gb_disk_header *h = &stray->header;
    struct wait w = WAIT_INIT;
    struct gb_buffer_rec rec = {.id = stray->name.buffer_id,
                                .session_id = session,
                                .bytes = h->bytes,
                                .shape = h->shape,
                                .dtype = h->dtype,
                                .kind = h->kind,
                                .state = GB_BUFFER_READY,
                                .head = GB_HEAD_UNINITIALIZED,
                                .durability = GB_DURABILITY_SYNC,
                                .run = r->run,
                                .crc32c = h->crc32c,
                                .has_crc32c = true,
                                .generation = gb_disk_name_generation(&stray->name),
                                .version = 1,
                                .created_at_us = gb_wall_us(),
                                .sealed = h->sealed,
                                .name = stray->buffer,
                                .pool = {"default"},
                                .stream = {"default"}};
    const struct gb_stored_rec stored = {.buffer_id = rec.id,
                                         .generation = rec.generation,
                                         .run = r->run,
                                         .file_generation = stray->name.generation,
                                         .file_tag = stray->name.run,
                                         .bytes = h->bytes,
                                         .dtype = h->dtype,
                                         .shape = h->shape,
                                         .crc32c = h->crc32c,
                                         .blocks = stray->blocks};
    const struct gb_store_edit edit = {.rec = &rec, .durable = true, .stored = &stored};
    int result;

    rec.updated_at_us = rec.created_at_us;
    if (gb_labels_make(h->labels, &rec.labels, err) < 0)
        return -1;
    gb_store_edit_buffers(r->store, &edit, 1, NULL, ended, &w);
    result = wait_for(&w, err);
    gb_buffer_rec_done(&rec);
    return result;
}

/* The file is where a row can name it before the row does. */
static int adopt(struct gb_recover *r, struct gb_stray *stray, struct gb_error *err) {
    int64_t session = session_of(r, stray->session.s);

    if (session == 0)
        session = make_session(r, &stray->session, err);
    if (session < 0)
        return -1;
    if (stray->place == GB_DISK_IN_ORPHANS && gb_disk_take_back(r->disk, &stray->name, err) < 0)
        return -1;
    stray->place = GB_DISK_IN_DATA;
    return put_rows(r, stray, session, err);
}

void gb_recover_adopt(struct gb_recover *recover, struct gb_stray *stray) {
    stray->verdict = adopt(recover, stray, &stray->why) == 0 ? GB_RECOVERED : GB_REFUSED;
}
