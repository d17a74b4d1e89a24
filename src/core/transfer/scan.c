/* Readings of buffers by the core itself, for checksums and digests. A hash reader is a download whose bytes are hashed
 * in turns on a computing lane. A scan is a reading of a buffer as it is now; multipart uploads have readings of their
 * own. */
#include "core/transfer/download.h"
#include "core/transfer/transfer.h"

#include <stdlib.h>

#include "base/container.h"
#include "base/hash.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/public/buffer.h"

/* --- hash reader -------------------------------------------------------------------------------------------------- */

#define TURN_BYTES (16u << 20) /* then other readers of the same lane have their turns */
#define PIECE_BYTES (256u << 10)

/* The state of the task. A wake may come at any time; a wake of a running task makes it run once more. */
enum { IDLE, POSTED, RUNNING, WOKEN };

/* --- the turns ---------------------------------------------------------------------------------------------------- */

static int add(struct gb_hash_reader *r, const void *at, size_t n, bool left_out, struct gb_error *err) {
    unsigned i;

    if (r->sums)
        r->crc = gb_crc32c(r->crc, at, n);
    for (i = 0; i < GB_DIGEST_ALGS && !left_out; i++) {
        if (r->hash[i] && gb_hash_add(r->hash[i], at, n, err) < 0)
            return -1;
    }
    return 0;
}

static int check_continue(struct gb_hash_reader *r, struct gb_error *err) {
    if (atomic_load(&r->core->closing))
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    if (atomic_load(&r->cut))
        return gb_error_set(err, GB_ERR_CANCELLED, "nobody wants the checksums any more");
    return 0;
}

/* Shortens *n to bytes that are treated alike. Returns whether the digests leave them out. */
static bool choose(const struct gb_hash_reader *r, size_t *n) {
    bool left_out = false;
    uint64_t run;

    if (!r->choice.run)
        return false;
    run = r->choice.run(r->choice.arg, r->at, &left_out);
    if (run < *n)
        *n = (size_t)run;
    return left_out;
}

/* Reads bytes for one turn. Returns 1, and another turn follows while bytes are left; 0: wake follows; -1. */
static int read_some(struct gb_hash_reader *r, struct gb_error *err) {
    uint64_t turn = 0;
    const void *at;
    bool left_out;
    size_t n;
    int got;

    while (r->left > 0 && turn < TURN_BYTES) {
        if (check_continue(r, err) < 0)
            return -1;
        got = gb_download_next(r->download, &at, &n, err);
        if (got <= 0)
            return got;
        if (n > PIECE_BYTES) /* few enough that the second hash finds them in the cache */
            n = PIECE_BYTES;
        left_out = choose(r, &n);
        if (add(r, at, n, left_out, err) < 0)
            return -1;
        gb_download_sent(r->download, n);
        r->at += n;
        r->left -= n;
        turn += n;
    }
    return 1;
}

void gb_hash_reader_start(struct gb_hash_reader *r) {
    atomic_store(&r->state, POSTED);
    gb_lane_post(r->lane, &r->task);
}

static void run(struct gb_task *task) {
    struct gb_hash_reader *r = gb_container_of(task, struct gb_hash_reader, task);
    struct gb_error err = GB_ERROR_INIT;
    int expected = RUNNING;
    int got;

    atomic_store(&r->state, RUNNING);
    got = r->begin ? r->begin(r, &err) : 1;
    if (got > 0) {
        r->begin = NULL;
        got = read_some(r, &err);
    }
    if (got < 0)
        r->end(r, &err);
    else if (got > 0 && r->left == 0)
        r->end(r, NULL);
    else if (got > 0 || !atomic_compare_exchange_strong(&r->state, &expected, IDLE))
        gb_hash_reader_start(r);
}

void gb_hash_reader_wake(void *reader) {
    struct gb_hash_reader *r = reader;
    int state = atomic_load(&r->state);

    while (state == IDLE || state == RUNNING) {
        if (!atomic_compare_exchange_weak(&r->state, &state, state == IDLE ? POSTED : WOKEN))
            continue;
        if (state == IDLE)
            gb_lane_post(r->lane, &r->task);
        return;
    }
}

void gb_hash_reader_cut(struct gb_hash_reader *r) {
    atomic_store(&r->cut, true);
    gb_hash_reader_wake(r);
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static struct gb_lane *lane_for(struct gb_core *core, enum gb_hash_reader_use use) {
    return use == GB_HASH_READER_WRITE ? &core->inspect : gb_core_compute_lane(core);
}

int gb_hash_reader_init(struct gb_hash_reader *r, struct gb_core *core, enum gb_hash_reader_use use, unsigned digests,
                        struct gb_error *err) {
    unsigned i;

    *r = (struct gb_hash_reader){.core = core, .use = use, .lane = lane_for(core, use)};
    r->task.run = run;
    atomic_init(&r->state, POSTED); /* nothing runs before the start */
    if (atomic_fetch_add(&core->scans[use], 1) >= GB_SCANS_MAX)
        return gb_error_set(err, GB_ERR_SATURATED, "%u %s are being read for their digests; try again later",
                            GB_SCANS_MAX, use == GB_HASH_READER_WRITE ? "uploads" : "buffers");
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (digests & 1u << i && !(r->hash[i] = gb_hash_new((enum gb_digest_alg)i, err)))
            return -1;
    }
    return 0;
}

int gb_hash_reader_head(struct gb_hash_reader *r, const void *head, size_t n, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (r->hash[i] && gb_hash_add(r->hash[i], head, n, err) < 0)
            return -1;
    }
    return 0;
}

void gb_hash_reader_done(struct gb_hash_reader *r) {
    unsigned i;

    gb_download_free(r->download, true);
    r->download = NULL;
    for (i = 0; i < GB_DIGEST_ALGS; i++)
        gb_hash_free(r->hash[i]);
    atomic_fetch_sub(&r->core->scans[r->use], 1);
}

/* --- scan --------------------------------------------------------------------------------------------------------- */

struct scan {
    struct gb_hash_reader reader; /* first */
    struct gb_core *core;
    struct gb_session *session;
    struct gb_buffer_check check;
    struct gb_scan_call *call;
    struct gb_transaction transaction;
};

/* --- the end of a scan -------------------------------------------------------------------------------------------- */

static void release(struct scan *s) {
    gb_hash_reader_done(&s->reader);
    if (s->check.free_arg)
        s->check.free_arg(s->check.arg);
    if (s->reader.choice.free_arg)
        s->reader.choice.free_arg(s->reader.choice.arg);
    gb_transaction_done(&s->transaction);
    gb_session_unref(s->session);
    free(s);
}

static void finish(struct scan *s, const struct gb_error *error) {
    struct gb_core *core = s->core;
    struct gb_call *call = &s->call->base;

    release(s);
    gb_call_finish(call, error);
    gb_core_leave(core);
}

static struct scan *scan_of(struct gb_transaction *transaction) {
    return gb_container_of(transaction, struct scan, transaction);
}

/* Refuses the checksum if the buffer no longer has the bytes that were read. Returns 0 or -1. */
static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    const struct scan *s = scan_of(transaction);
    const struct gb_buffer_rec *read = &s->call->buffer;

    if (!b || gb_guard_check_writers_locked(b, NULL) < 0 || b->id != read->id ||
        b->rec.generation != read->generation || b->rec.has_crc32c || b->rec.adopted || b->in_place ||
        b->rec.state != GB_BUFFER_READY)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile");
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->rec.has_crc32c = true;
    transaction->rec.crc32c = s->reader.crc;
    transaction->rec.version++;
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct scan *s = scan_of(transaction);

    /* A state that a dead device set while the database was busy stays. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(s->session, b, &transaction->rec, b->content);
}

/* The scan succeeds even if the checksum was not stored. */
static void filled_in(struct gb_transaction *transaction) {
    struct scan *s = scan_of(transaction);

    gb_core_changed(s->core);
    finish(s, NULL);
}

static void fill_in(struct scan *s) {
    s->transaction = (struct gb_transaction){.session = s->session,
                                             .name = s->call->buffer.name,
                                             .upkeep = true,
                                             .validate_locked = validate_locked,
                                             .publish_locked = publish_locked,
                                             .end = filled_in};
    gb_transaction_start(&s->transaction);
}

static void read_end(struct gb_hash_reader *reader, const struct gb_error *error) {
    struct scan *s = (struct scan *)reader;
    struct gb_scan_call *call = s->call;
    unsigned i;

    if (error) {
        finish(s, error);
        return;
    }
    call->crc32c = reader->crc;
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (reader->hash[i])
            gb_hash_get(reader->hash[i], &call->digest[i]);
    }
    gb_download_free(reader->download, true); /* so that writers need not wait for the database */
    reader->download = NULL;
    if (reader->sums && !call->had_crc32c)
        fill_in(s);
    else
        finish(s, NULL);
}

/* --- the beginning of a scan -------------------------------------------------------------------------------------- */

static void result_done(struct gb_call *call) {
    gb_buffer_rec_done(&gb_container_of(call, struct gb_scan_call, base)->buffer);
}

static int begin(struct gb_hash_reader *r, struct gb_error *err) {
    struct scan *s = (struct scan *)r;
    const struct gb_buffer_rec *rec;
    int got = gb_download_turn(r->download, err);

    if (got <= 0)
        return got;
    rec = gb_download_record(r->download);
    gb_buffer_rec_set(&s->call->buffer, rec);
    s->call->base.free_result = result_done;
    s->call->had_crc32c = rec->has_crc32c;
    r->left = rec->bytes;
    if (s->check.check && s->check.check(s->check.arg, rec, err) < 0)
        return -1;
    return gb_download_start(r->download, 0, rec->bytes, err) < 0 ? -1 : 1;
}

static int open_bytes(struct scan *s, const struct gb_scan_params *p, struct gb_error *err) {
    struct gb_hash_reader *r = &s->reader;

    if (gb_core_alive(s->core, err) < 0)
        return -1;
    s->session = gb_session_use(s->core, &p->session, err);
    if (!s->session || gb_download_open_after(s->session, &p->name, &p->stream,
                                              (struct gb_waker){gb_hash_reader_wake, r}, &r->download, err) < 0)
        return -1;
    r->download->silent = true;
    r->begin = begin;
    return 0;
}

static struct scan *make(struct gb_core *core, const struct gb_scan_params *p, struct gb_scan_call *call,
                         struct gb_error *err) {
    struct scan *s = calloc(1, sizeof(*s));
    int r;

    if (!s) {
        if (p->check.free_arg)
            p->check.free_arg(p->check.arg);
        if (p->choice.free_arg)
            p->choice.free_arg(p->choice.arg);
        gb_no_memory(err);
        return NULL;
    }
    s->core = core;
    s->call = call;
    s->check = p->check;
    r = gb_hash_reader_init(&s->reader, core, GB_HASH_READER_LOOK, p->digests, err);
    s->reader.choice = p->choice;
    s->reader.sums = p->verify;
    s->reader.end = read_end;
    if (r == 0 && gb_hash_reader_head(&s->reader, p->head, p->head_n, err) == 0 && open_bytes(s, p, err) == 0)
        return s;
    release(s);
    return NULL;
}

void gb_buffer_scan(struct gb_core *core, const struct gb_scan_params *params, struct gb_scan_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct scan *s = make(core, params, call, &err);
    int got = s ? begin(&s->reader, &err) : -1;

    if (got < 0) {
        if (s)
            release(s);
        gb_call_finish(&call->base, &err);
        return;
    }
    if (got > 0)
        s->reader.begin = NULL;
    gb_core_enter(core);
    gb_hash_reader_start(&s->reader);
}
