/* Making a checkpoint. The buffers' contents are held as of one moment, then a job on the disk's threads links or
 * writes their files and the manifest. Writers continue meanwhile. Handlers of checkpoints call this. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/checkpoint/checkpoint.h"
#include "core/durable/stored.h"

/* What a checkpoint is to keep: the bytes of all its buffers, held as of one moment. */

/* Where the bytes are. */
enum gb_checkpoint_way {
    GB_CHECKPOINT_LINK,   /* in a file that was synced */
    GB_CHECKPOINT_INLINE, /* in the database alone */
    GB_CHECKPOINT_COPY,   /* in a file that cannot be linked */
    GB_CHECKPOINT_MEMORY
};

struct gb_checkpoint_item {
    enum gb_checkpoint_way way;
    struct gb_buffer_rec rec;   /* holds a reference to the labels */
    struct gb_content *content; /* MEMORY: a reference; NULL for a mirrored buffer that was never written */
    struct gb_stored *stored;   /* else: a reference */
    struct gb_persist persist;  /* MEMORY: the creation's */
    struct gb_checkpoint_item *next;
    void *owner;
};

struct checkpoint_hold {
    struct gb_checkpoint_item *items;
    size_t count;
    int64_t as_of_us;
};

/* --- hold --------------------------------------------------------------------------------------------------------- */

static void checkpoint_release(struct gb_checkpoint_item *item) {
    gb_content_drop(item->content, NULL, NULL);
    gb_stored_unref(item->stored);
    item->content = NULL;
    item->stored = NULL;
}

/* Releases all items. A zeroed hold is accepted. */
static void checkpoint_hold_done(struct checkpoint_hold *hold) {
    size_t i;

    for (i = 0; i < hold->count; i++) {
        checkpoint_release(&hold->items[i]);
        gb_buffer_rec_done(&hold->items[i].rec);
    }
    free(hold->items);
    *hold = (struct checkpoint_hold){.count = 0};
}

/* Buffers that are made while the room for the items is made. */
#define SPARE 64

/* --- one buffer --------------------------------------------------------------------------------------------------- */

static bool is_quiet(const struct gb_buffer *b) {
    return !b->rec.mapped_for_writing && !b->rec.tainted && !b->rec.adopted;
}

/* The disk has the bytes, as safe as those of a checkpoint are. */
static bool has_file(const struct gb_buffer *b) {
    const struct gb_stored *stored = b->stored;

    return b->rec.state == GB_BUFFER_READY && gb_buffer_on_disk(b) && !stored->spilled &&
           !gb_stored_inline(&stored->rec) && is_quiet(b);
}

static enum gb_checkpoint_way way_of(const struct gb_stored *stored) {
    if (stored->spilled)
        return GB_CHECKPOINT_COPY;
    return gb_stored_inline(&stored->rec) ? GB_CHECKPOINT_INLINE : GB_CHECKPOINT_LINK;
}

static int check_writers_locked(const struct gb_buffer *b, struct gb_error *err) {
    if (gb_guard_check_writers_locked(b, err) < 0)
        return -1;
    return gb_adopted_check_locked(b, "its bytes are no part of a checkpoint; copy them, or ask for unstable ones",
                                   err);
}

static int hold_locked(struct gb_session *s, const struct gb_checkpoint_params *params, const struct gb_name *name,
                       struct gb_checkpoint_item *ret, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_find_locked(s, name, err);

    *ret = (struct gb_checkpoint_item){.way = GB_CHECKPOINT_MEMORY};
    if (!b || (!params->unstable && check_writers_locked(b, err) < 0))
        return -1;
    if (b->rec.state != GB_BUFFER_STORED && !has_file(b))
        return gb_buffer_hold_locked(s, name, &ret->rec, &ret->content, err);
    if (atomic_load(&b->stored->damaged))
        return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the stored bytes are damaged: upload the buffer again");
    ret->way = way_of(b->stored);
    ret->stored = gb_stored_ref(b->stored);
    gb_buffer_copy_locked(b, &ret->rec);
    return 0;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

struct holding {
    struct gb_session *session;
    const struct gb_checkpoint_params *params;
    struct gb_checkpoint_call *call;
    struct checkpoint_hold hold;
};

/* A buffer that a process writes as it likes is left out unasked: it has no bytes of one moment. */
static int add_locked(struct holding *h, const struct gb_name *name, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (hold_locked(h->session, h->params, name, &h->hold.items[h->hold.count], &why) == 0) {
        h->hold.count++;
        return 0;
    }
    if (h->params->lenient || why.code == GB_ERR_MAPPED) {
        gb_checkpoint_skip(h->call->listed, &h->call->listed_count, &h->call->skipped, name, why.code);
        return 0;
    }
    if (strstr(why.detail, name->s))
        return gb_error_move(err, &why);
    return gb_error_set(err, why.code, "\"%s\": %.200s", name->s, why.detail);
}

static int add_names_locked(struct holding *h, struct gb_error *err) {
    size_t i;

    for (i = 0; i < h->params->names.count; i++) {
        if (add_locked(h, &h->params->names.names[i], err) < 0)
            return -1;
    }
    return 0;
}

static int add_all_locked(struct holding *h, struct gb_error *err) {
    const char *prefix = h->params->prefix.s;
    struct gb_buffer *b;
    struct gb_name name;
    int64_t id = 0;

    while ((b = gb_idlist_after(&h->session->buffers_by_id, id, &id))) {
        if (!b->live || b->deleting || strncmp(b->name, prefix, strlen(prefix)) != 0)
            continue;
        strcpy(name.s, b->name);
        if (add_locked(h, &name, err) < 0)
            return -1;
    }
    return 0;
}

static size_t count_of(const struct holding *h) {
    size_t count;

    if (h->params->names.given)
        return h->params->names.count;
    pthread_mutex_lock(&h->session->lock);
    count = (size_t)h->session->live_buffers;
    pthread_mutex_unlock(&h->session->lock);
    return count;
}

/* 1: there are more buffers than there is room. */
static int hold_all(struct holding *h, size_t room, struct gb_error *err) {
    struct gb_session *s = h->session;
    int r;

    pthread_mutex_lock(&s->lock);
    r = gb_session_alive(s, err);
    if (r == 0 && !h->params->names.given && s->live_buffers > room)
        r = 1;
    h->hold.as_of_us = gb_wall_us() / 1000 * 1000; /* as in the manifest */
    if (r == 0)
        r = h->params->names.given ? add_names_locked(h, err) : add_all_locked(h, err);
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* Holds all buffers under one hold of the session's lock. Those that are left out are noted in the call. */
static int checkpoint_hold(struct gb_session *session, const struct gb_checkpoint_params *params,
                           struct gb_checkpoint_call *call, struct checkpoint_hold *ret, struct gb_error *err) {
    struct holding h = {.session = session, .params = params, .call = call};
    size_t room;
    int r;

    call->listed_count = 0;
    call->skipped = 0;
    do {
        free(h.hold.items);
        room = count_of(&h) + SPARE;
        h.hold.items = malloc(room * sizeof(*h.hold.items));
        r = h.hold.items ? hold_all(&h, room, err) : gb_no_memory(err);
    } while (r > 0);
    if (r < 0) {
        checkpoint_hold_done(&h.hold);
        return -1;
    }
    *ret = h.hold;
    return 0;
}

/* Returns true if the buffer of the item still has the same stored bytes. */
static bool checkpoint_still(struct gb_session *session, const struct gb_checkpoint_item *item) {
    bool left;

    pthread_mutex_lock(&session->lock);
    left = gb_buffer_may_have_left_locked(session, &item->rec.name, item->stored);
    pthread_mutex_unlock(&session->lock);
    return !left;
}

/* Releases the bytes; the record stays. */
/* --- create ------------------------------------------------------------------------------------------------------- */

/* Making a checkpoint: a job on one thread of the disk, in steps. Bytes that lie in memory are read by other jobs
 * (core->persist), a few at a time. */

/* Buffers that are read from memory at a time. */
#define AT_ONCE 4
/* Steps between which others have their turn: links, and blocks of a file that is copied. */
#define STEPS 64
/* Small bytes lie in the database until the buffer is written. Then the checkpoint takes another moment. */
#define MOMENTS 16

enum stage { BEGIN, SMALL, LINKS, COPIES, MEMORY, MARK, COMMIT };

/* A file of stored bytes that is written again. */
struct copying {
    struct gb_disk_reader *from;
    struct gb_disk_writer *to;
    struct gb_disk_name name;
    unsigned char *block; /* aligned */
    uint32_t *blocks;
    uint64_t done;
};

struct job {
    struct gb_task task;
    struct gb_core *core;
    struct gb_session *session; /* a reference */
    struct gb_checkpoint_params params;
    struct gb_name *names; /* its own */
    struct gb_checkpoint_call *call;
    struct gb_lane *lane;
    enum stage stage;
    unsigned moments;
    struct checkpoint_hold hold;
    struct gb_disk_folder *folder;
    struct gb_manifest manifest;
    size_t next; /* item of the stage */
    struct copying copying;
    size_t reading; /* items whose bytes are being read */
    struct gb_error error;
    bool intended;        /* the key is about to be marked, or is */
    pthread_mutex_t lock; /* for the three below */
    bool posted;
    struct gb_error refused;         /* the mark's */
    struct gb_checkpoint_item *read; /* items whose bytes have been read */
};

/* --- entries ------------------------------------------------------------------------------------------------------ */

static int begin_entry(struct job *job, const struct gb_checkpoint_item *item, const struct gb_stored_rec *stored,
                       struct gb_error *err) {
    struct gb_manifest_entry *entry = &job->manifest.entries[job->manifest.count];
    const struct gb_buffer_rec *rec = &item->rec;
    size_t blocks = gb_stored_block_count(stored->bytes);

    *entry = (struct gb_manifest_entry){.buffer = rec->name,
                                        .id = rec->id,
                                        .generation = rec->generation,
                                        .run = rec->run,
                                        .dtype = rec->dtype,
                                        .shape = rec->shape,
                                        .bytes = rec->bytes,
                                        .crc32c = stored->crc32c,
                                        .kind = rec->kind,
                                        .durability = rec->durability,
                                        .mirrored = rec->mirrored,
                                        .sealed = rec->sealed};
    entry->blocks = malloc((blocks + 1) * sizeof(*entry->blocks));
    if (!entry->blocks)
        return gb_no_memory(err);
    if (blocks > 0)
        memcpy(entry->blocks, stored->blocks, blocks * sizeof(*entry->blocks));
    gb_text_set(&entry->labels, rec->labels);
    return 0;
}

static struct gb_manifest_entry *entry_of(struct job *job) {
    return &job->manifest.entries[job->manifest.count];
}

static void drop_entry(struct job *job) {
    struct gb_manifest_entry *entry = entry_of(job);

    gb_text_unref(entry->labels);
    free(entry->blocks);
    *entry = (struct gb_manifest_entry){.blocks = NULL};
}

static void keep_entry(struct job *job, bool linked) {
    uint64_t bytes = entry_of(job)->bytes;

    *(linked ? &job->call->linked_bytes : &job->call->written_bytes) += bytes;
    job->manifest.bytes += bytes;
    job->manifest.count++;
}

/* As gb_disk_folder_link, with the entry made before it. */
static int link_file(struct job *job, const struct gb_checkpoint_item *item, const struct gb_stored_rec *stored,
                     const struct gb_disk_name *name, bool linked, struct gb_error *err) {
    int r = begin_entry(job, item, stored, err);

    if (r == 0)
        r = gb_disk_folder_link(job->folder, job->manifest.count, name, entry_of(job), err);
    if (r > 0)
        keep_entry(job, linked);
    else
        drop_entry(job);
    return r;
}

static int write_file(struct job *job, const struct gb_checkpoint_item *item, const struct gb_stored_rec *stored,
                      const void *data, struct gb_error *err) {
    const struct gb_disk_meta meta = {gb_session_client_name(job->session)->s, &item->rec};

    if (begin_entry(job, item, stored, err) == 0 &&
        gb_disk_folder_write(job->folder, job->manifest.count, &meta, data, entry_of(job), err) == 0) {
        keep_entry(job, false);
        return 0;
    }
    drop_entry(job);
    return -1;
}

static int no_links(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UNSUPPORTED,
                        "the file system of the data folder makes no links, which checkpoints are made of");
}

/* --- the moment --------------------------------------------------------------------------------------------------- */

static int take_moment(struct job *job, struct gb_error *err) {
    checkpoint_hold_done(&job->hold);
    gb_disk_folder_discard(job->folder);
    gb_manifest_done(&job->manifest);
    job->folder = NULL;
    job->call->linked_bytes = job->call->written_bytes = 0;
    if (gb_disk_folder_make(job->core->config.disk, &job->params.name, &job->folder, err) < 0 ||
        checkpoint_hold(job->session, &job->params, job->call, &job->hold, err) < 0)
        return -1;
    job->manifest.entries = calloc(job->hold.count + 1, sizeof(*job->manifest.entries));
    if (!job->manifest.entries)
        return gb_no_memory(err);
    job->manifest.name = job->params.name;
    job->manifest.session = *gb_session_client_name(job->session);
    job->manifest.as_of_us = job->hold.as_of_us;
    return 1;
}

/* A buffer that cannot be read after all. Returns 0 if it is left out. */
static int leave_out(struct job *job, struct gb_checkpoint_item *item, const struct gb_error *why,
                     struct gb_error *err) {
    if (!job->params.lenient || (why->code != GB_ERR_CONTENT_DAMAGED && why->code != GB_ERR_CONTENT_LOST)) {
        gb_error_set(err, why->code, "\"%s\": %.250s", item->rec.name.s, why->detail);
        gb_error_native(err, why->native_domain, why->native_code, why->native_name, why->call);
        return -1;
    }
    gb_checkpoint_skip(job->call->listed, &job->call->listed_count, &job->call->skipped, &item->rec.name, why->code);
    checkpoint_release(item);
    return 0;
}

/* --- small bytes of the database ---------------------------------------------------------------------------------- */

static int read_small(struct job *job, const struct gb_checkpoint_item *item, struct gb_error *err) {
    struct gb_stored *stored = item->stored;
    char *data = malloc((size_t)stored->rec.bytes + 1);
    int r;

    if (!data)
        return gb_no_memory(err);
    r = gb_store_read_stored(job->core->store, &stored->rec, data, err);
    if (r == 0 && stored->rec.bytes > 0)
        r = gb_stored_check_block(stored, 0, gb_crc32c(0, data, (size_t)stored->rec.bytes), err);
    if (r == 0)
        r = write_file(job, item, &stored->rec, data, err);
    free(data);
    return r;
}

/* 1: one step is done; 0: another moment is needed; -1. */
static int step_small(struct job *job, struct gb_checkpoint_item *item, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (item->way != GB_CHECKPOINT_INLINE)
        return 1;
    if (read_small(job, item, &why) == 0) {
        checkpoint_release(item);
        return 1;
    }
    if (why.code == GB_ERR_CONTENT_DAMAGED && job->moments < MOMENTS && !checkpoint_still(job->session, item))
        return 0;
    return leave_out(job, item, &why, err) < 0 ? -1 : 1;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static int step_link(struct job *job, struct gb_checkpoint_item *item, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    if (item->way != GB_CHECKPOINT_LINK)
        return 1;
    r = link_file(job, item, &item->stored->rec, &item->stored->name, true, &why);
    if (r < 0)
        return leave_out(job, item, &why, err) < 0 ? -1 : 1;
    if (r > 0)
        checkpoint_release(item);
    else
        item->way = GB_CHECKPOINT_COPY;
    return 1;
}

static void copying_done(struct copying *c) {
    gb_disk_read_close(c->from);
    gb_disk_discard(c->to);
    free(c->block);
    free(c->blocks);
    *c = (struct copying){.from = NULL};
}

static int begin_copy(struct job *job, const struct gb_checkpoint_item *item, struct gb_error *err) {
    struct gb_disk *disk = job->core->config.disk;
    struct copying *c = &job->copying;

    c->name = (struct gb_disk_name){item->rec.id, item->rec.generation, atomic_fetch_add(&job->core->file_tags, 1)};
    c->blocks = calloc(gb_stored_block_count(item->rec.bytes) + 1, sizeof(*c->blocks));
    if (!c->blocks || posix_memalign((void **)&c->block, GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES) != 0) {
        c->block = NULL;
        return gb_no_memory(err);
    }
    if (!item->stored->in_host && gb_disk_read_open(disk, &item->stored->name, item->rec.bytes, &c->from, err) < 0)
        return -1;
    return gb_disk_create(disk, &c->name, item->rec.bytes, &c->to, err);
}

static int copy_block(struct copying *c, const struct gb_checkpoint_item *item, struct gb_error *err) {
    uint64_t left = item->rec.bytes - c->done;
    size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;
    size_t index = (size_t)(c->done / GB_STORED_BLOCK_BYTES);

    if (item->stored->in_host)
        memcpy(c->block, (const char *)item->stored->block->ptr + c->done, n);
    else if (gb_disk_read(c->from, c->block, n, c->done, err) < 0 ||
             gb_stored_check_block(item->stored, index, gb_crc32c(0, c->block, n), err) < 0)
        return -1;
    if (gb_disk_write(c->to, c->block, n, err) < 0)
        return -1;
    c->done += n;
    return 0;
}

/* The file gets its last name by a link, as any other; what it was written as goes. */
static int end_copy(struct job *job, const struct gb_checkpoint_item *item, struct gb_error *err) {
    const struct gb_disk_meta meta = {gb_session_client_name(job->session)->s, &item->rec};
    struct gb_stored_rec rec = item->stored->rec; /* host memory has no checksums */
    struct copying *c = &job->copying;
    int r;

    if (gb_disk_complete(c->to, &meta, &rec.crc32c, c->blocks, err) < 0)
        return -1;
    c->to = NULL;
    rec.blocks = c->blocks;
    r = link_file(job, item, &rec, &c->name, false, err);
    gb_disk_remove(job->core->config.disk, &c->name);
    return r == 0 ? no_links(err) : r;
}

/* 1: the file is there; 2: some of it. */
static int copy_some(struct job *job, const struct gb_checkpoint_item *item, struct gb_error *err) {
    int i;

    if (!job->copying.to && begin_copy(job, item, err) < 0)
        return -1;
    for (i = 0; i < STEPS && job->copying.done < item->rec.bytes; i++) {
        if (copy_block(&job->copying, item, err) < 0)
            return -1;
    }
    return job->copying.done < item->rec.bytes ? 2 : end_copy(job, item, err);
}

static int step_copy(struct job *job, struct gb_checkpoint_item *item, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    if (item->way != GB_CHECKPOINT_COPY)
        return 1;
    r = copy_some(job, item, &why);
    if (r == 2)
        return r;
    copying_done(&job->copying);
    if (r < 0)
        return leave_out(job, item, &why, err) < 0 ? -1 : 1;
    checkpoint_release(item);
    return 1;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void run(struct gb_task *task);

static void post_locked(struct job *job) {
    if (job->posted)
        return;
    job->posted = true;
    gb_lane_post(job->lane, &job->task);
}

/* The job may be over as soon as the lock is given back. */
static void persisted(struct gb_persist *persist) {
    struct gb_checkpoint_item *item = gb_container_of(persist, struct gb_checkpoint_item, persist);
    struct job *job = item->owner;

    pthread_mutex_lock(&job->lock);
    item->next = job->read;
    job->read = item;
    post_locked(job);
    pthread_mutex_unlock(&job->lock);
}

/* Starts to read the next buffers. Returns false if none is left. */
static bool read_more(struct job *job) {
    while (job->next < job->hold.count && job->reading < AT_ONCE) {
        struct gb_checkpoint_item *item = &job->hold.items[job->next++];

        if (item->way != GB_CHECKPOINT_MEMORY)
            continue;
        item->owner = job;
        item->persist = (struct gb_persist){
            .session = job->session, .content = item->content, .rec = &item->rec, .done = persisted};
        item->content = NULL;
        job->reading++;
        job->core->persist(job->core, &item->persist);
    }
    return job->reading > 0;
}

static int take_read(struct job *job, struct gb_checkpoint_item *item, struct gb_error *err) {
    struct gb_persist *p = &item->persist;
    int r;

    if (p->error.code != GB_OK)
        return gb_error_move(err, &p->error);
    if (p->data)
        return write_file(job, item, &p->stored->rec, p->data, err);
    r = link_file(job, item, &p->stored->rec, &p->stored->name, false, err);
    return r == 0 ? no_links(err) : r;
}

/* What has been read until this run. In one step with the end of the wait: what comes later posts the job again and
 * still counts in `reading`, so that no job that is queued ends. */
static struct gb_checkpoint_item *begin_run(struct job *job) {
    struct gb_checkpoint_item *read;

    pthread_mutex_lock(&job->lock);
    job->posted = false;
    read = job->read;
    job->read = NULL;
    pthread_mutex_unlock(&job->lock);
    return read;
}

/* After an error the rest is only awaited. */
static void take_all_read(struct job *job, struct gb_checkpoint_item *item) {
    while (item) {
        struct gb_checkpoint_item *next = item->next;

        if (job->error.code == GB_OK)
            take_read(job, item, &job->error);
        gb_persist_done(&item->persist, false, false);
        job->reading--;
        item = next;
    }
}

/* --- the key ------------------------------------------------------------------------------------------------------ */

static void marked(void *arg, const struct gb_error *error) {
    struct job *job = arg;

    pthread_mutex_lock(&job->lock);
    if (error)
        job->refused = *error;
    post_locked(job);
    pthread_mutex_unlock(&job->lock);
}

/* 1: done; 3: a wake comes; -1. */
static int mark(struct job *job, struct gb_error *err) {
    if (job->intended) {
        pthread_mutex_lock(&job->lock);
        *err = job->refused;
        pthread_mutex_unlock(&job->lock);
        return err->code == GB_OK ? 1 : -1;
    }
    job->intended = true;
    return gb_checkpoints_intend(job->core, gb_call_mark(&job->call->base), true, &job->params.name,
                                 job->manifest.as_of_us, marked, job)
               ? 3
               : 1;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static int commit(struct job *job, struct gb_error *err) {
    struct gb_disk *disk = job->core->config.disk;

    gb_disks_point(job->core, GB_DISK_OP_before_commit);
    if (gb_disk_folder_commit(job->folder, &job->manifest, err) < 0)
        return -1;
    job->folder = NULL;
    gb_disks_point(job->core, GB_DISK_OP_after_commit);
    if (gb_checkpoints_complete(job->core, &job->manifest, &job->params.name, &job->call->view, err) < 0) {
        gb_disk_checkpoint_remove(disk, &job->params.name, NULL);
        return -1;
    }
    gb_checkpoints_tell(job->core, GB_NOTICE_CHECKPOINT_CREATED, &job->call->view, NULL);
    return 1;
}

static void finish(struct job *job) {
    struct gb_core *core = job->core;
    struct gb_checkpoint_call *call = job->call;
    struct gb_error error = job->error;

    copying_done(&job->copying);
    checkpoint_hold_done(&job->hold);
    gb_disk_folder_discard(job->folder);
    gb_manifest_done(&job->manifest);
    if (error.code != GB_OK)
        gb_checkpoints_drop(core, &job->params.name);
    gb_session_touch(job->session);
    atomic_fetch_sub(&job->session->transfers, 1);
    gb_session_unref(job->session);
    pthread_mutex_destroy(&job->lock);
    free(job->names);
    free(job);
    gb_call_finish(&call->base, &error);
    gb_core_leave(core);
}

/* The stages that go through the items. */
static int step_item(struct job *job, struct gb_error *err) {
    struct gb_checkpoint_item *item = &job->hold.items[job->next];

    if (job->stage == SMALL)
        return step_small(job, item, err);
    return job->stage == LINKS ? step_link(job, item, err) : step_copy(job, item, err);
}

/* Returns 1 if the stage is done; 2 if it continues; 0: another moment is needed; -1. */
static int run_items(struct job *job, struct gb_error *err) {
    int i;

    for (i = 0; i < STEPS && job->next < job->hold.count; i++) {
        int r = step_item(job, err);

        if (r != 1)
            return r;
        job->next++;
    }
    return job->next < job->hold.count ? 2 : 1;
}

/* As run_items; 3: a wake comes. */
static int run_stage(struct job *job, struct gb_error *err) {
    switch (job->stage) {
    case BEGIN:
        job->moments++;
        return take_moment(job, err);
    case SMALL:
    case LINKS:
    case COPIES:
        return run_items(job, err);
    case MEMORY:
        return read_more(job) ? 3 : 1;
    case MARK:
        return mark(job, err);
    default:
        return commit(job, err);
    }
}

/* Runs the job until it waits, or others have their turn. Returns false if it has ended. */
static bool advance(struct job *job) {
    for (;;) {
        int r = job->error.code != GB_OK ? -1 : run_stage(job, &job->error);

        if (r < 0)
            return job->reading > 0;
        if (r >= 2) {
            pthread_mutex_lock(&job->lock);
            if (r == 2)
                post_locked(job);
            pthread_mutex_unlock(&job->lock);
            return true;
        }
        job->next = 0;
        if (r == 0)
            job->stage = BEGIN;
        else if (job->stage++ == COMMIT)
            return false;
    }
}

static void run(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);

    take_all_read(job, begin_run(job));
    if (!advance(job))
        finish(job);
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

static struct job *job_new(struct gb_session *session, const struct gb_checkpoint_params *params,
                           struct gb_checkpoint_call *call) {
    struct job *job = calloc(1, sizeof(*job));
    size_t size = params->names.count * sizeof(*job->names);

    if (!job)
        return NULL;
    job->names = malloc(size + 1);
    if (!job->names) {
        free(job);
        return NULL;
    }
    if (size > 0)
        memcpy(job->names, params->names.names, size);
    job->core = session->core;
    job->session = session;
    job->call = call;
    job->params = *params;
    job->params.names.names = job->names;
    job->task.run = run;
    gb_mutex_init(&job->lock);
    return job;
}

void gb_checkpoint_create(struct gb_core *core, const struct gb_checkpoint_params *params,
                          struct gb_checkpoint_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_core_alive(core, &err) < 0 ? NULL : gb_session_use(core, &params->session, &err);
    struct job *job = NULL;

    if (s && gb_checkpoints_reserve(core, &params->name, &params->session, &err) == 0) {
        job = job_new(s, params, call);
        if (!job) {
            gb_no_memory(&err);
            gb_checkpoints_drop(core, &params->name);
        }
    }
    if (!job) {
        gb_session_unref(s);
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_core_enter(core);
    atomic_fetch_add(&s->transfers, 1);
    job->lane = gb_disks_lane(core);
    pthread_mutex_lock(&job->lock);
    post_locked(job);
    pthread_mutex_unlock(&job->lock);
}
