/* Bytes on disk into memory: an upload whose payload one thread of the disk brings. Nothing is visible before each
 * block has its checksum. Bytes in host memory are copied by the device instead. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "core/buffer/buffer.h"
#include "core/durable/load.h"
#include "core/durable/stored.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/transfer/upload.h"

/* How long the error of a load is kept for requests that wanted the bytes meanwhile. */
#define TELL_NS GB_NS_PER_S

/* How long a load waits for memory that others are about to free. One of many does not: the others have the memory. */
#define WAIT_MS 10000

/* Read at once into memory that the CPU reaches. */
#define ROOM_BYTES (32u << 20)

/* Bytes that come back within this time had better stayed. */
#define THRASH_NS (60 * GB_NS_PER_S)

/* Read side by side where rooms are slots, one block each: some wait in the queues of other threads, and this one reads
 * one when it would wait. Larger ones are read by several threads each, two at a time. */
#define ROOMS (1 + GB_UPLOAD_AHEAD)

struct room {
    struct gb_block_reader reader;
    size_t n;   /* bytes; 0: no thread reads into it */
    bool given; /* gb_upload_room gave it last */
};

struct job {
    struct gb_task task;
    struct gb_session *session; /* a reference */
    struct gb_name name;
    struct gb_load *load;        /* shared with the buffer */
    struct gb_stored *stored;    /* a reference */
    struct gb_host_block *block; /* has the bytes; a reference. NULL: the disk brings them */
    struct gb_lane *lane;
    atomic_uint refs; /* its own, and a copy's */
    atomic_bool posted;
    bool over;
    struct gb_upload *upload; /* NULL: not begun */
    struct gb_disk_reader *file;
    char *data; /* the bytes, if they come from the database */
    uint64_t read;
    uint32_t crc;             /* of the block that is being read */
    struct room rooms[ROOMS]; /* those that several threads read into, in turns */
    unsigned turn;            /* of the room that is reported next */
    struct gb_error error;    /* the first failure, while other threads read still */
    bool ended;               /* the payload */
};

static void unref(struct job *job) {
    if (atomic_fetch_sub(&job->refs, 1) != 1)
        return;
    gb_host_block_unref(job->block);
    gb_session_unref(job->session);
    free(job->data);
    free(job);
}

static void wake(void *arg) {
    struct job *job = arg;

    if (!atomic_exchange(&job->posted, true))
        gb_lane_post(job->lane, &job->task);
}

/* --- the upload's role -------------------------------------------------------------------------------------------- */

/* The bytes that are being loaded are still those that the buffer has, and they are not in memory. */
static int check_locked(const struct job *job, const struct gb_buffer *b, struct gb_error *err) {
    if (b && b->live && b->stored == job->stored && b->rec.state == GB_BUFFER_STORED)
        return 0;
    return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written or deleted meanwhile");
}

static int plan(struct gb_session *s, void *owner, const struct gb_upload_params *params, struct gb_upload_draft *draft,
                struct gb_error *err) {
    struct job *job = owner;

    (void)s;
    (void)params;
    draft->bytes = draft->payload = job->stored->rec.bytes;
    draft->has_crc32c = true; /* the record's, of these bytes */
    draft->by_device = job->block != NULL;
    return check_locked(job, draft->buffer, err);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);
    struct gb_buffer_rec *rec = &transaction->rec;

    if (check_locked(u->owner, b, err) < 0)
        return -1;
    gb_buffer_copy_locked(b, rec);
    rec->state = GB_BUFFER_READY;
    if (rec->mirrored)
        rec->kind = gb_core_usual_kind(u->t.device);
    rec->device = u->t.device->index;
    rec->pool = u->plan.pool_name;
    rec->head = u->plan.mirrored ? u->plan.head : GB_HEAD_UNINITIALIZED;
    rec->version++;
    return 0;
}

static struct gb_buffer *find_same_locked(struct gb_session *s, const struct gb_buffer *b, uint64_t file);

/* A link that was loaded at the same time came first: its memory is taken, and that of this load given back. */
static void join_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_upload *u,
                        struct gb_buffer *with) {
    gb_buffer_set_locked(u->t.session, b, &transaction->rec, gb_content_ref(with->content)); /* it had none */
    gb_buffer_share_locked(b, with);
    u->replaced = u->content;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);
    uint64_t file = atomic_load(&((struct job *)u->owner)->stored->file);
    struct gb_buffer *with = file != 0 && !u->plan.mirrored ? find_same_locked(u->t.session, b, file) : NULL;
    struct gb_notice notice;

    if (b->since_ns > 0 && gb_clock_ns() - b->since_ns < THRASH_NS)
        atomic_fetch_add(&u->t.core->loads->reloaded, 1);
    if (u->plan.mirrored) {
        gb_buffer_set_locked(u->t.session, b, &transaction->rec, NULL);
        u->replaced = gb_buffer_set_side_locked(b, u->plan.side, u->content);
    } else if (with) {
        join_locked(transaction, b, u, with);
    } else {
        u->replaced = gb_buffer_set_locked(u->t.session, b, &transaction->rec, u->content);
    }
    u->content = NULL;
    gb_buffer_cool_locked(u->t.session, b);
    notice = gb_notice_of_buffer(u->t.session, &transaction->rec, GB_NOTICE_BUFFER_LOADED);
    gb_notice_post(u->t.core, &notice);
}

static void commit(struct gb_upload *u, const struct gb_error *error) {
    if (!gb_upload_ready(u, error, gb_upload_commit_end))
        return;
    u->transaction.unrecorded = true;
    u->transaction.validate_locked = validate_locked;
    u->transaction.publish_locked = publish_locked;
    gb_transaction_start(&u->transaction);
}

static void complete(struct gb_upload *u) {
    gb_upload_hand_back(u, commit);
}

static const struct gb_upload_role load_role = {.plan = plan,
                                                .complete = complete,
                                                .gone = gb_upload_dispose,
                                                .upkeep = true,
                                                .summed = true,
                                                .many_slots = true,
                                                .room_bytes = ROOM_BYTES};

/* --- the same, from host memory ----------------------------------------------------------------------------------- */

static void copied(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;

    gb_core_report_error(u->t.core, error);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, error);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

static int queue(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    const struct gb_host_block *block = ((struct job *)u->owner)->block;
    const struct gb_location from = {GB_KIND_PINNED, block->device, block->ptr};
    const struct gb_location to = gb_content_location(u->content, 0);
    struct gb_staged_copy *f = &u->pipe.copies[0];
    enum gb_copy_way way;

    u->touched = true;
    if (gb_mem_move(u->t.core->backend, &to, &from, block->bytes, stream, &way, err) < 0 ||
        gb_staged_copy_close(f, err) < 0)
        return -1;
    return gb_upload_watch(u, f->end, copied, u, err);
}

/* The copy may have outlived the job's own end. */
static void gone(struct gb_upload *u) {
    struct job *job = u->owner;

    gb_staged_copy_release(&u->pipe.copies[0]);
    gb_upload_dispose(u);
    unref(job);
}

static const struct gb_upload_role copy_role = {
    .plan = plan, .queue = queue, .complete = complete, .gone = gone, .upkeep = true};

static void begin_copy(struct job *job) {
    struct gb_upload *u = job->upload;

    atomic_fetch_add(&job->refs, 1);
    job->ended = true;
    (void)gb_upload_step(u, GB_UPLOAD_ALLOCATING);
    (void)gb_upload_step(u, GB_UPLOAD_ENDED);
    gb_upload_run(u, NULL);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The file is gone, and with it the bytes. A file that is put back heals its buffer at the next start. */
static void lose_locked(struct job *job, struct gb_buffer *b) {
    if (b->stored != job->stored || b->rec.state != GB_BUFFER_STORED)
        return;
    gb_buffer_drop_stored_locked(job->session, b);
    b->rec.stored_generation = 0;
    gb_buffer_lose_locked(job->session, b); /* it has no contents to be dropped */
}

/* The failure says nothing of the bytes that the buffer has. */
static bool is_replaced(struct job *job, const struct gb_error *error) {
    struct gb_session *s = job->session;
    const struct gb_buffer *b;
    bool replaced;

    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &job->name, NULL);
    replaced = !b || b->stored != job->stored || b->rec.state != GB_BUFFER_STORED ||
               (gb_stored_inline(&job->stored->rec) && gb_damage_is(error) &&
                gb_buffer_may_have_left_locked(s, &job->name, job->stored));
    pthread_mutex_unlock(&s->lock);
    return replaced;
}

/* Those that wanted the bytes learn of it from the buffer. */
static void tell_locked(struct job *job, const struct gb_error *error) {
    struct gb_load *load = job->load;
    struct gb_buffer *b = gb_map_get(&job->session->buffers, job->name.s);

    if (b && b->load == load && error) {
        load->failed = true;
        load->failed_ns = gb_clock_ns();
        load->error = *error;
        if (error->code == GB_ERR_CONTENT_LOST)
            lose_locked(job, b);
    } else if (b && b->load == load) {
        b->load = NULL;
        gb_load_unref_locked(load);
    }
    gb_load_unref_locked(load);
}

static void count(struct job *job, const struct gb_error *error) {
    struct gb_loads *loads = job->session->core->loads;

    if (error) {
        atomic_fetch_add(&loads->failed, 1);
        gb_damage_report(job->session, &job->name, job->stored, error, true);
    } else {
        atomic_fetch_add(&loads->loaded, 1);
        atomic_fetch_add(&loads->loaded_from_host, job->block != NULL);
        atomic_fetch_add(&loads->loaded_bytes, job->stored->rec.bytes);
    }
}

/* Requests that waited for bytes that were replaced try again. */
static void finish(struct job *job, const struct gb_error *error) {
    struct gb_core *core = job->session->core;
    int i;

    for (i = 0; i < ROOMS; i++)
        gb_block_reader_close(&job->rooms[i].reader);
    gb_disk_read_close(job->file);
    gb_upload_free(job->upload);
    if (error && is_replaced(job, error))
        error = NULL;
    else
        count(job, error);
    pthread_mutex_lock(&job->session->lock);
    tell_locked(job, error);
    pthread_mutex_unlock(&job->session->lock);
    gb_stored_unref(job->stored);
    job->over = true;
    gb_core_changed(core);
    gb_core_enter(core); /* the job's session may be its last object */
    if (!atomic_load(&job->posted))
        unref(job);
    gb_loads_ended(core);
    gb_core_leave(core);
}

/* --- bytes that another buffer has in memory ---------------------------------------------------------------------- */

/* A link and its source have one file, and so have two links of one source: the first that is loaded has its memory. */
static bool has_same_bytes(const struct gb_buffer *b, const struct gb_buffer *other, uint64_t file) {
    const struct gb_stored *stored = other->stored;
    const struct gb_content *c = other->content;

    return other != b && other->live && c && stored && other->rec.state == GB_BUFFER_READY &&
           stored->rec.generation == other->rec.generation && atomic_load(&stored->file) == file &&
           stored->rec.bytes == b->rec.bytes && !other->in_place && c->pin_writers == 0 && !c->tainted &&
           other->rec.pool == b->rec.pool && other->rec.kind == b->rec.kind && other->rec.device == b->rec.device;
}

static struct gb_buffer *find_same_locked(struct gb_session *s, const struct gb_buffer *b, uint64_t file) {
    struct gb_buffer *other;
    size_t at = 0;

    while ((other = gb_map_next(&s->buffers, &at))) {
        if (has_same_bytes(b, other, file))
            return other;
    }
    return NULL;
}

/* Links the buffer to the memory of one that has the same file. Returns false if no buffer has it, or a change of this
 * one is under way: then the bytes are read. */
static bool borrow(struct job *job) {
    struct gb_session *s = job->session;
    uint64_t file = job->block || !gb_stored_has_file(job->stored) ? 0 : gb_stored_look_file(job->stored);
    struct gb_buffer *other = NULL;
    struct gb_buffer_rec rec;
    struct gb_notice notice;
    struct gb_buffer *b;

    if (file == 0)
        return false;
    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &job->name, NULL);
    if (b && !b->fifo.taken && !b->rec.mirrored && check_locked(job, b, NULL) == 0)
        other = find_same_locked(s, b, file);
    if (other) {
        gb_buffer_look_locked(b, &rec);
        rec.state = GB_BUFFER_READY;
        rec.version++;
        gb_buffer_set_locked(s, b, &rec, gb_content_ref(other->content)); /* it had none */
        gb_buffer_share_locked(b, other);
        gb_buffer_note_behind_locked(s, b);
        notice = gb_notice_of_buffer(s, &rec, GB_NOTICE_BUFFER_LOADED);
        gb_notice_post(s->core, &notice);
    }
    pthread_mutex_unlock(&s->lock);
    return other != NULL;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

static int open_bytes(struct job *job, struct gb_error *err) {
    const struct gb_stored *stored = job->stored;

    if (!gb_stored_inline(&stored->rec))
        return gb_disk_read_open(job->session->core->config.disk, &stored->name, stored->rec.bytes, &job->file, err);
    job->data = malloc((size_t)stored->rec.bytes + 1);
    if (!job->data)
        return gb_no_memory(err);
    return gb_store_read_stored(job->session->core->store, &stored->rec, job->data, err);
}

/* A device or pool that is not there any more: the first device's own pool. */
static struct gb_upload *make_upload(struct job *job, struct gb_upload_params *p, struct gb_error *err) {
    struct gb_core *core = job->session->core;
    struct gb_error why = GB_ERROR_INIT;
    const struct gb_upload_role *role = job->block ? &copy_role : &load_role;
    struct gb_upload *u = gb_upload_make(core, p, role, job, &why);

    if (!u && why.code == GB_ERR_DEVICE_NOT_FOUND) {
        why = GB_ERROR_INIT;
        p->buffer.has_device = true;
        u = gb_upload_make(core, p, role, job, &why);
    }
    if (!u)
        gb_error_move(err, &why);
    return u;
}

static int begin(struct job *job, struct gb_error *err) {
    struct gb_upload_params p = {.session = job->session, .fresh = true, .asked_before = true, .waker = {wake, job}};
    struct gb_buffer *b;

    gb_disks_point(job->session->core, GB_DISK_OP_load);
    if (!job->block && open_bytes(job, err) < 0)
        return -1;
    p.buffer.name = job->name;
    p.buffer.bytes = p.bytes = job->stored->rec.bytes;
    pthread_mutex_lock(&job->session->lock);
    b = gb_buffer_find_locked(job->session, &job->name, NULL);
    p.to_device_side = job->block || (b && b->rec.mirrored);
    p.wait_ms = b && b->sweep > 0 ? 0 : WAIT_MS;
    pthread_mutex_unlock(&job->session->lock);
    job->upload = make_upload(job, &p, err);
    if (!job->upload)
        return -1;
    gb_core_transfer_silence(&job->upload->t);
    if (job->block)
        begin_copy(job);
    else
        gb_upload_start(job->upload, NULL);
    return 0;
}

static int fetch(struct job *job, void *room, size_t n, struct gb_error *err) {
    if (!job->data)
        return gb_disk_read(job->file, room, n, job->read, err);
    memcpy(room, job->data + job->read, n);
    return 0;
}

/* The n bytes that follow those read before: each block that ends in them has its checksum. */
static int check_bytes(struct job *job, const char *bytes, size_t n, struct gb_error *err) {
    uint64_t left_in_block;
    size_t part;

    while (n > 0) {
        left_in_block = GB_STORED_BLOCK_BYTES - job->read % GB_STORED_BLOCK_BYTES;
        part = n < left_in_block ? n : (size_t)left_in_block;
        job->crc = gb_crc32c(job->crc, bytes, part);
        job->read += part;
        bytes += part;
        n -= part;
        if (job->read % GB_STORED_BLOCK_BYTES != 0 && job->read < job->stored->rec.bytes)
            continue;
        if (gb_stored_check_block(job->stored, (size_t)((job->read - 1) / GB_STORED_BLOCK_BYTES), job->crc, err) < 0)
            return -1;
        job->crc = 0;
    }
    return 0;
}

/* The room whose turn comes after that number of others. */
static struct room *room_after(struct job *job, unsigned others) {
    return &job->rooms[(job->turn + others) % ROOMS];
}

static void prepare(struct job *job, struct room *room, size_t n) {
    if (!room->reader.core)
        gb_block_reader_init(&room->reader, job->session->core, job->stored, job->file, job->lane, wake, job);
    room->n = n;
}

/* Has the rooms behind the present one, which has n bytes, read as well, up to `count` of them: by other threads, or by
 * several and this one. A failure is found in the room's turn. */
static void share_ahead(struct job *job, size_t n, unsigned count, bool others) {
    uint64_t at = job->read + n;
    void *ptr;
    unsigned i;

    for (i = 1; i <= count; i++, at += n) {
        struct room *room = room_after(job, i);

        if (room->n > 0) {
            n = room->n;
            continue;
        }
        if (!gb_upload_room_ahead(job->upload, i, &ptr, &n) || !gb_block_reader_may(job->stored, at, n))
            return;
        prepare(job, room, n);
        if (others)
            gb_block_reader_post(&room->reader, ptr, n, at);
        else
            gb_block_reader_begin(&room->reader, ptr, n, at);
    }
}

/* Returns 1 if the present room has its bytes, *ret_n of them; 0: wake follows; -1. */
static int bring(struct job *job, size_t *ret_n, struct gb_error *err) {
    struct room *room = &job->rooms[job->turn];
    bool small;
    void *ptr;
    int r;

    if (!room->given) {
        r = gb_upload_room(job->upload, &ptr, ret_n, err);
        if (r <= 0)
            return r;
        room->given = true;
    }
    if (room->n > 0)
        *ret_n = room->n;
    else if (!gb_block_reader_may(job->stored, job->read, *ret_n))
        return fetch(job, ptr, *ret_n, err) < 0 || check_bytes(job, ptr, *ret_n, err) < 0 ? -1 : 1;
    small = *ret_n <= GB_STORED_BLOCK_BYTES;
    if (small)
        share_ahead(job, *ret_n, GB_UPLOAD_AHEAD - 1, true);
    if (room->n == 0) {
        prepare(job, room, *ret_n);
        gb_block_reader_begin(&room->reader, ptr, *ret_n, job->read);
    }
    r = gb_block_reader_result(&room->reader, err);
    if (r != 0)
        return r;
    share_ahead(job, *ret_n, small ? GB_UPLOAD_AHEAD : 1, false);
    return gb_block_reader_result(&room->reader, err);
}

/* Reports the bytes of the present room. */
static int take(struct job *job, size_t n, struct gb_error *err) {
    struct room *room = &job->rooms[job->turn];

    job->read += room->n;
    room->n = 0;
    room->given = false;
    job->turn = (job->turn + 1) % ROOMS;
    return gb_upload_fill(job->upload, n, err);
}

/* 0: some thread reads still, and wake comes; -1 with the first failure. */
static int break_off(struct job *job, struct gb_error *err) {
    int i;

    if (job->error.code == GB_OK)
        job->error = *err;
    *err = GB_ERROR_INIT;
    for (i = 0; i < ROOMS; i++) {
        if (job->rooms[i].n > 0 && gb_block_reader_result(&job->rooms[i].reader, NULL) == 0)
            return 0;
    }
    return gb_error_move(err, &job->error);
}

/* 1: the payload is complete; 0: wake comes; -1, and no thread reads. */
static int move(struct job *job, struct gb_error *err) {
    if (job->error.code != GB_OK)
        return break_off(job, err);
    while (job->read < job->stored->rec.bytes) {
        size_t n;
        int r = bring(job, &n, err);

        if (r == 0)
            return 0;
        if (r < 0 || take(job, n, err) < 0)
            return break_off(job, err);
    }
    return 1;
}

/* 1: the bytes are in memory; 0: wake comes; -1. */
static int step(struct job *job, struct gb_error *err) {
    struct gb_buffer_rec rec = {.labels = NULL};
    struct gb_transfer_times times;
    bool created;
    int r;

    if (!job->upload && borrow(job))
        return 1;
    if (!job->upload && begin(job, err) < 0)
        return -1;
    if (!job->ended) {
        r = move(job, err);
        if (r <= 0)
            return r;
        job->ended = true;
        gb_stored_note_whole(job->stored);
        if (gb_upload_end(job->upload, err) < 0)
            return -1;
    }
    r = gb_upload_result(job->upload, &rec, &created, &times, err);
    gb_buffer_rec_done(&rec);
    return r;
}

static void run(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);
    struct gb_error err = GB_ERROR_INIT;
    int r;

    atomic_store(&job->posted, false);
    if (job->over) {
        unref(job);
        return;
    }
    r = step(job, &err);
    if (r == 0)
        return;
    finish(job, r < 0 ? &err : NULL);
}

/* --- wanting ------------------------------------------------------------------------------------------------------ */

static int start_locked(struct gb_session *session, struct gb_buffer *b, struct gb_error *err) {
    struct job *job = calloc(1, sizeof(*job));
    struct gb_load *load = calloc(1, sizeof(*load));

    if (!job || !load || gb_disks_start(session->core, err) < 0) {
        free(job);
        free(load);
        return gb_no_memory(err);
    }
    load->refs = 2;
    job->session = gb_session_ref(session);
    strcpy(job->name.s, b->name);
    job->load = b->load = load;
    job->stored = gb_stored_ref(b->stored);
    job->block = gb_host_block_ref(b->stored->block);
    atomic_init(&job->refs, 1);
    job->lane = gb_disks_lane(session->core);
    job->task.run = run;
    wake(job);
    return 0;
}

/* Returns true if the error is kept for a request that waited for the load. */
static bool tell_failure(struct gb_buffer *b, struct gb_error *err) {
    struct gb_load *load = b->load;
    bool fresh = load->waiting > 0 && gb_clock_ns() - load->failed_ns < TELL_NS;

    if (fresh)
        gb_error_move(err, &load->error);
    if (fresh && --load->waiting > 0)
        return true;
    b->load = NULL;
    gb_load_unref_locked(load);
    return fresh;
}

int gb_durable_want(struct gb_session *session, struct gb_buffer *b, struct gb_error *err) {
    if (b->load && b->load->failed && tell_failure(b, err))
        return -1;
    if (!b->load && start_locked(session, b, err) < 0)
        return -1;
    b->load->waiting += err != NULL;
    return gb_error_set(err, GB_ERR_NOT_LOADED, "the bytes of \"%s\" are not in memory and are being loaded; try again",
                        b->name);
}

uint64_t gb_sweep_number(struct gb_core *core) {
    return atomic_fetch_add(&core->loads->sweeps, 1) + 1;
}

void gb_sweep_leave_locked(struct gb_buffer *b) {
    b->sweep = 0;
    if (!b->load || !b->load->failed)
        return;
    gb_load_unref_locked(b->load);
    b->load = NULL;
}

int gb_buffer_load_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret,
                      struct gb_error *err) {
    struct gb_content *content = NULL;
    int r;

    ret->labels = NULL;
    if (gb_core_alive(session->core, err) < 0)
        return -1;
    gb_session_touch(session);
    pthread_mutex_lock(&session->lock);
    r = gb_session_alive(session, err) < 0 ? -1 : gb_buffer_hold_locked(session, name, ret, &content, err);
    pthread_mutex_unlock(&session->lock);
    gb_content_drop(content, NULL, NULL);
    return r;
}

int gb_buffer_load(struct gb_core *core, const struct gb_locator *at, struct gb_buffer_rec *ret, struct gb_error *err) {
    struct gb_session *s = gb_core_alive(core, err) < 0 ? NULL : gb_session_use(core, &at->session, err);
    int r = s ? gb_buffer_load_in(s, &at->name, ret, err) : -1;

    gb_session_unref(s);
    return r;
}
