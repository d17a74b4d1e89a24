/* The records of the database become pools, sessions and buffers at the start, and files of bytes find their rows. A
 * record without bytes is LOST. open.c calls this, before the core serves requests. */
#include "core/restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "core/access/keys.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/memory/kept.h"
#include "core/observe/stats.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"

static int load_session(void *arg, const void *session, struct gb_error *err) {
    const struct gb_session_rec *rec = session;
    struct gb_core *core = arg;
    struct gb_session *s = gb_session_new(core, rec, GB_SESSION_LIVE);

    if (!s)
        return gb_no_memory(err);
    if (gb_session_enroll(s, UINT64_MAX, err) < 0) {
        gb_session_unref(s);
        return -1;
    }
    atomic_fetch_add(&core->live_sessions, 1);
    return 0;
}

/* --- stored bytes ------------------------------------------------------------------------------------------------- */

struct rolled_back;

/* What the database says is stored, by the buffer's id. */
struct found {
    struct gb_core *core;
    struct gb_idlist stored; /* struct gb_stored: a reference each, until a buffer takes it */
    struct gb_idlist strays; /* struct gb_disk_name, malloc'd: files that no row names */
    struct rolled_back *rolled;
    bool all_there; /* the folder could not be looked at: what is there is not known */
};

static int load_stored(void *arg, const void *row, struct gb_error *err) {
    const struct gb_stored_rec *rec = row;
    struct found *found = arg;
    struct gb_stored *stored = gb_stored_new(found->core, rec);

    if (!stored || gb_idlist_put(&found->stored, rec->buffer_id, stored) < 0) {
        gb_stored_unref(stored);
        return gb_no_memory(err);
    }
    stored->found = gb_stored_inline(rec);
    return 0;
}

static struct gb_stored *stored_of(const struct gb_idlist *list, int64_t id) {
    int64_t found = 0;
    struct gb_stored *stored = gb_idlist_after(list, id - 1, &found);

    return stored && found == id ? stored : NULL;
}

/* A file that no row names as it is goes to the orphans, from where it can be taken back. */
static int see_file(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err) {
    struct found *found = arg;
    struct gb_stored *stored = stored_of(&found->stored, name->buffer_id);
    struct gb_disk_name *stray;

    if (stored && !gb_stored_inline(&stored->rec) && stored->name.generation == name->generation &&
        stored->name.run == name->run && stored->rec.bytes == bytes) {
        stored->found = true;
        return 0;
    }
    stray = malloc(sizeof(*stray));
    if (!stray || gb_idlist_put(&found->strays, (int64_t)found->strays.count + 1, stray) < 0) {
        free(stray);
        return gb_no_memory(err);
    }
    *stray = *name;
    return 0;
}

static bool lacks_files(const struct found *found) {
    size_t i;

    for (i = 0; i < found->stored.count; i++) {
        const struct gb_stored *stored = found->stored.items[i].value;

        if (!stored->found)
            return true;
    }
    return false;
}

/* An older database that was put back for a while did not know the file. No name is used twice, so that it is the one
 * that the row names. */
static int see_orphan(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err) {
    struct found *found = arg;
    struct gb_stored *stored = stored_of(&found->stored, name->buffer_id);
    struct gb_error why = GB_ERROR_INIT;

    (void)err;
    if (stored && !stored->found && stored->name.generation == name->generation && stored->name.run == name->run &&
        stored->rec.bytes == bytes)
        stored->found = gb_disk_take_back(found->core->config.disk, name, &why) == 0;
    return 0;
}

static int look_at_disk(struct found *found, struct gb_error *err) {
    struct gb_disk *disk = found->core->config.disk;
    struct gb_error why = GB_ERROR_INIT;
    size_t i;

    if (!disk || gb_disk_scan(disk, see_file, found, &why) < 0) {
        found->all_there = true;
        return why.code == GB_ERR_INTERNAL ? gb_error_move(err, &why) : 0;
    }
    for (i = 0; i < found->strays.count; i++) {
        const struct gb_disk_name *name = found->strays.items[i].value;

        if (name->generation == 0) { /* of an upload that broke off */
            gb_disk_remove(disk, name);
            continue;
        }
        gb_disk_set_aside(disk, name, false);
        found->core->found.orphans++;
    }
    if (lacks_files(found) && gb_disk_scan_orphans(disk, see_orphan, found, &why) < 0)
        found->all_there = true;
    return 0;
}

static void found_done(struct found *found) {
    size_t i;

    for (i = 0; i < found->stored.count; i++)
        gb_stored_unref(found->stored.items[i].value);
    for (i = 0; i < found->strays.count; i++)
        free(found->strays.items[i].value);
    gb_idlist_done(&found->stored);
    gb_idlist_done(&found->strays);
}

/* --- rolling back ------------------------------------------------------------------------------------------------- */

/* Records that have the bytes of an earlier generation again. */
struct rolled_back {
    struct gb_core *core;
    struct gb_store_edit *edits;
    size_t count;
    size_t room;
};

static void rolled_back_free(struct rolled_back *rolled) {
    size_t i;

    for (i = 0; i < rolled->count; i++) {
        struct gb_buffer_rec *rec = (struct gb_buffer_rec *)(uintptr_t)rolled->edits[i].rec;

        gb_buffer_rec_done(rec);
        free(rec);
        gb_stored_unref(gb_container_of(rolled->edits[i].stored, struct gb_stored, rec));
    }
    free(rolled->edits);
    free(rolled);
}

static void rolled_back_written(void *arg, const struct gb_error *error) {
    struct rolled_back *rolled = arg;
    struct gb_core *core = rolled->core;

    (void)error; /* the next start would roll back again */
    rolled_back_free(rolled);
    gb_core_leave(core);
}

static int rolled_back_add(struct rolled_back *rolled, const struct gb_buffer_rec *rec, struct gb_stored *stored) {
    struct gb_buffer_rec *copy = calloc(1, sizeof(*copy));

    if (copy && rolled->count == rolled->room) {
        size_t room = rolled->room > 0 ? 2 * rolled->room : 16;
        struct gb_store_edit *edits = realloc(rolled->edits, room * sizeof(*edits));

        if (edits) {
            rolled->edits = edits;
            rolled->room = room;
        }
    }
    if (!copy || rolled->count == rolled->room) {
        free(copy);
        return -1;
    }
    gb_buffer_rec_set(copy, rec);
    rolled->edits[rolled->count++] =
        (struct gb_store_edit){.rec = copy, .durable = true, .stored = &gb_stored_ref(stored)->rec, .renumbers = true};
    return 0;
}

/* A record whose latest bytes were not stored yet has the bytes of before, under a generation of their own: no entity
 * tag ever names other bytes than it did. The record goes back to the database, so that it happens once. */
static int roll_back(struct gb_session *s, struct found *found, struct gb_stored *stored, struct gb_buffer_rec *rec,
                     struct gb_error *err) {
    struct gb_notice notice = gb_notice_of_buffer(s, rec, GB_NOTICE_BUFFER_ROLLED_BACK);

    snprintf(notice.detail, sizeof(notice.detail), "generation %lld was not stored: the bytes are those of %lld",
             (long long)rec->generation, (long long)stored->rec.generation);
    rec->generation++;
    rec->version++;
    rec->run = s->core->run;
    rec->bytes = stored->rec.bytes;
    rec->dtype = stored->rec.dtype;
    rec->shape = stored->rec.shape;
    rec->has_crc32c = true;
    rec->crc32c = stored->rec.crc32c;
    rec->state = GB_BUFFER_READY;
    stored->rec.generation = rec->generation;
    stored->rec.run = rec->run;
    notice.generation = rec->generation;
    notice.bytes = rec->bytes;
    gb_notice_post(s->core, &notice);
    s->core->found.rolled_back++;
    return rolled_back_add(found->rolled, rec, stored) < 0 ? gb_no_memory(err) : 0;
}

/* The disk has the buffer's bytes: *ret is true. */
static int restore_stored(struct gb_session *s, struct found *found, struct gb_buffer *b, struct gb_buffer_rec *rec,
                          bool *ret, struct gb_error *err) {
    struct gb_stored *stored = stored_of(&found->stored, rec->id);

    *ret = stored && rec->durability != GB_DURABILITY_NONE && (found->all_there || stored->found);
    s->core->found.missing += stored && !*ret && rec->durability != GB_DURABILITY_NONE;
    if (!*ret)
        return 0;
    if (rec->generation != stored->rec.generation && roll_back(s, found, stored, rec, err) < 0)
        return -1;
    b->stored = gb_stored_ref(stored);
    s->used_stored_bytes += stored->rec.bytes;
    rec->stored_generation = stored->rec.generation;
    rec->run = stored->rec.run;
    rec->state = GB_BUFFER_STORED;
    rec->head = GB_HEAD_UNINITIALIZED;
    return 0;
}

/* --- kept memory -------------------------------------------------------------------------------------------------- */

/* The keeper has had the buffer's bytes: they are where they were. Those that were being overwritten are of no
 * generation. NULL: it had not. */
static struct gb_content *restore_kept(struct gb_session *s, struct gb_buffer_rec *rec) {
    struct gb_buffer_rec found = *rec;
    bool partial = false;
    struct gb_content *c =
        rec->state == GB_BUFFER_READY || rec->state == GB_BUFFER_PARTIAL ? gb_kept_find(s, &found, &partial) : NULL;

    if (!c)
        return NULL;
    if (rec->state == GB_BUFFER_READY && partial) {
        found.state = GB_BUFFER_PARTIAL;
        found.head = GB_HEAD_UNINITIALIZED;
        found.generation++;
        found.version++;
        found.run = s->core->run;
        found.has_crc32c = false;
        found.crc32c = 0;
    }
    *rec = found;
    return c;
}

/* The disk may have bytes of the buffer as well: the same, or earlier ones, which those in memory replace soon. */
static void restore_beside(struct gb_session *s, const struct found *found, struct gb_buffer *b,
                           struct gb_buffer_rec *rec) {
    struct gb_stored *stored = rec->durability != GB_DURABILITY_NONE ? stored_of(&found->stored, rec->id) : NULL;

    if (!stored || !(found->all_there || stored->found))
        return;
    b->stored = gb_stored_ref(stored);
    s->used_stored_bytes += stored->rec.bytes;
    rec->stored_generation = stored->rec.generation;
}

/* --- records ------------------------------------------------------------------------------------------------------ */

static int add_buffer(struct gb_session *s, struct found *found, const struct gb_buffer_rec *rec,
                      struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_new(s, &rec->name);
    struct gb_buffer_rec lost = *rec;
    struct gb_content *content;
    struct gb_buffer *first; /* has the same memory */
    bool stored = false;

    lost.run = lost.record_run = s->core->run;
    if (!b || gb_buffer_pool_text_locked(s, b, &rec->pool, &b->rec.pool) < 0 ||
        gb_buffer_stream_text_locked(s, b, &rec->stream, &b->rec.stream) < 0 ||
        gb_map_put(&s->buffers, b->name, b) < 0) {
        gb_buffer_free(b);
        return gb_no_memory(err);
    }
    b->id = rec->id;
    if (gb_idlist_put(&s->buffers_by_id, b->id, b) < 0)
        return gb_no_memory(err); /* the place in the map goes with the session */
    /* Not written back: the next start would come to the same result, and the next change writes it. So a file that is
     * put back heals its buffer. */
    content = restore_kept(s, &lost);
    if (content)
        restore_beside(s, found, b, &lost);
    else if (restore_stored(s, found, b, &lost, &stored, err) < 0)
        return -1;
    if (!content && !stored && lost.state != GB_BUFFER_LOST && !(lost.mirrored && lost.head == GB_HEAD_UNINITIALIZED)) {
        lost.head = GB_HEAD_UNINITIALIZED;
        lost.state = GB_BUFFER_LOST;
        lost.version++;
    }
    s->counted_buffers++;
    atomic_fetch_add(&s->core->counted_buffers, 1);
    first = content ? content->of : NULL;
    gb_buffer_set_locked(s, b, &lost, content);
    if (first)
        gb_buffer_share_locked(b, first);
    if (content)
        gb_buffer_note_behind_locked(s, b);
    if (rec->pool.s[0] != '\0' && !gb_core_pool_find_locked(s, &rec->pool, NULL))
        gb_buffer_leave_pool_locked(s, b);
    return 0;
}

static int load_buffer(void *arg, const void *buffer, struct gb_error *err) {
    const struct gb_buffer_rec *rec = buffer;
    struct found *found = arg;
    struct gb_core *core = found->core;
    struct gb_session *s = gb_session_after(core, rec->session_id - 1);
    int r;

    if (!s || s->id != rec->session_id) {
        gb_session_unref(s);
        return gb_error_set(err, GB_ERR_INTERNAL, "the database has buffer %lld in session %lld, which it has not",
                            (long long)rec->id, (long long)rec->session_id);
    }
    pthread_mutex_lock(&s->lock);
    r = add_buffer(s, found, rec, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return r;
}

/* Makes the pool again, empty. A pool that the device does not make is lost: its record stays. */
static int load_pool(void *arg, const void *pool, struct gb_error *err) {
    const struct gb_pool_rec *rec = pool;
    struct gb_core *core = arg;
    bool present = rec->device >= 0 && rec->device < core->device_count;
    struct gb_session *s = gb_session_after(core, rec->session_id - 1);
    struct gb_core_pool *p;
    int r;

    if (!s || s->id != rec->session_id) {
        gb_session_unref(s);
        return gb_error_set(err, GB_ERR_INTERNAL, "the database has pool %lld in session %lld, which it has not",
                            (long long)rec->id, (long long)rec->session_id);
    }
    p = gb_core_pool_new(core, present ? &core->devices[rec->device] : NULL, rec);
    if (!p) {
        gb_session_unref(s);
        return gb_no_memory(err);
    }
    if (present) /* the lane has nothing to do yet, so this is as good as on it */
        gb_core_pool_create(p, &p->why);
    atomic_store(&p->state, GB_POOL_LIVE);
    pthread_mutex_lock(&s->lock);
    r = gb_core_pool_enroll_locked(s, p, err);
    pthread_mutex_unlock(&s->lock);
    if (r == 0 && !p->pool)
        gb_notice_post_pool(s, p, GB_NOTICE_POOL_LOST);
    if (r < 0)
        gb_core_pool_unref(p);
    gb_session_unref(s);
    return r;
}

/* --- the session that always exists ------------------------------------------------------------------------------- */

struct wait {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
};

static void wait_done(void *arg) {
    struct wait *w = arg;

    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static void create_default(struct gb_core *core, struct gb_session_call *call) {
    struct gb_session_params params = {.name = {"default"}, .has_idle_ttl_s = true};

    gb_session_create(core, &params, call);
}

bool gb_core_has_default(struct gb_core *core) {
    struct gb_name name = {"default"};
    struct gb_session *s = gb_session_find(core, &name, NULL);

    gb_session_unref(s);
    return s != NULL;
}

/* If the disk has no room for it the housekeeper makes it later: other sessions can be read meanwhile. */
static int make_default(struct gb_core *core, struct gb_error *err) {
    struct wait w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct gb_session_call *call;
    int r = 0;

    if (gb_core_has_default(core))
        return 0;
    call = gb_call_new(sizeof(*call), wait_done, &w);
    if (!call)
        return gb_no_memory(err);
    create_default(core, call);
    pthread_mutex_lock(&w.lock);
    while (!w.done)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    if (call->base.error.code == GB_ERR_STORAGE_FULL) {
        core->lacks_default = true;
    } else if (call->base.error.code != GB_OK) {
        gb_error_move(err, &call->base.error);
        r = -1;
    }
    gb_call_unref(&call->base);
    return r;
}

void gb_core_make_default(struct gb_core *core) {
    struct gb_session_call *call = gb_call_new(sizeof(*call), NULL, NULL);

    if (!call) /* another time */
        return;
    create_default(core, call);
    gb_call_unref(&call->base);
}

/* One for each session, however many there are. */
static void note_lost(struct gb_core *core) {
    struct gb_session *s;
    int64_t id = 0;

    while ((s = gb_session_after(core, id))) {
        id = s->id;
        gb_notice_post_lost(s, s->lost_buffers, "the bytes died with the daemon before this one");
        gb_session_unref(s);
    }
}

static void write_rolled_back(struct rolled_back *rolled) {
    if (rolled->count == 0) {
        rolled_back_free(rolled);
        return;
    }
    gb_core_enter(rolled->core);
    gb_store_edit_buffers(rolled->core->store, rolled->edits, rolled->count, NULL, rolled_back_written, rolled);
}

/* rolled gets the records that are to be written, once nothing is read any more. */
static int load_buffers(struct gb_core *core, struct rolled_back *rolled, struct gb_error *err) {
    struct found found = {.core = core, .rolled = rolled};
    int r = gb_store_load(core->store, GB_STORE_STORED, load_stored, &found, err);

    if (r == 0)
        r = look_at_disk(&found, err);
    if (r == 0 && found.stored.count > 0 && core->config.disk)
        r = gb_disks_start(core, err);
    if (r == 0)
        r = gb_store_load(core->store, GB_STORE_BUFFERS, load_buffer, &found, err);
    found_done(&found);
    return r;
}

static int load_records(struct gb_core *core, struct gb_error *err) {
    struct rolled_back *rolled = calloc(1, sizeof(*rolled));

    if (!rolled)
        return gb_no_memory(err);
    rolled->core = core;
    if (gb_store_load(core->store, GB_STORE_SESSIONS, load_session, core, err) < 0 ||
        gb_store_load(core->store, GB_STORE_POOLS, load_pool, core, err) < 0 || load_buffers(core, rolled, err) < 0 ||
        gb_keys_load(core, err) < 0) {
        rolled_back_free(rolled);
        return -1;
    }
    gb_kept_settle(core->kept);
    core->found.lost = atomic_load(&core->lost_buffers);
    note_lost(core);
    write_rolled_back(rolled);
    return 0;
}

void gb_core_found(struct gb_core *core, struct gb_core_found *ret) {
    *ret = core->found;
}

int gb_core_restore(struct gb_core *core, struct gb_error *err) {
    struct gb_counters counters;
    struct gb_store_ids last;

    if (gb_store_last_ids(core->store, &last, err) < 0 || gb_store_load_counters(core->store, &counters, err) < 0)
        return -1;
    atomic_store(&core->last_session_id, last.session);
    atomic_store(&core->last_buffer_id, last.buffer);
    atomic_store(&core->last_pool_id, last.pool);
    gb_counters_explain(&counters);
    gb_live_counters_set(&core->live_counters, &counters);
    core->sampler->counted = counters;
    if (gb_store_load_counted(core->store, &core->sampler->counted, err) < 0)
        return -1;
    if (load_records(core, err) < 0)
        return -1;
    gb_store_flush(core->store, NULL, NULL); /* nothing is read at start any more */
    return make_default(core, err);
}
