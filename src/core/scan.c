/* A scan is a download whose bytes go into checksums, in turns on one of the core's computing lanes. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "core/change.h"
#include "core/download.h"

#define TURN_BYTES (16u << 20) /* then others on the same lane have theirs */

/* Of the task. A wake comes at any time; while it runs, it makes it run once more. */
enum { IDLE, POSTED, RUNNING, WOKEN };

struct scan {
    struct gb_task task;
    struct gb_lane *lane;
    atomic_int state;
    struct gb_core *core;
    struct gb_session *session;
    struct gb_call *call;
    struct gb_download *download;
    bool verify;
    struct gb_hash *hash[GB_DIGEST_ALGS];
    uint64_t left;
    uint32_t crc;
    struct gb_change change;
};

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void release(struct scan *s) {
    unsigned i;

    gb_download_free(s->download, true);
    for (i = 0; i < GB_DIGEST_ALGS; i++)
        gb_hash_free(s->hash[i]);
    gb_session_unref(s->session);
    free(s);
}

static void finish(struct scan *s, const struct gb_error *error) {
    struct gb_core *core = s->core;
    struct gb_call *call = s->call;

    release(s);
    atomic_fetch_sub(&core->scans, 1);
    gb_call_finish(call, error);
    gb_core_leave(core);
}

static struct scan *scan_of(struct gb_change *change) {
    return (struct scan *)((char *)change - offsetof(struct scan, change));
}

/* Only the bytes that were read get their checksum. */
static int decide_locked(struct gb_change *change, struct gb_buffer *b, struct gb_error *err) {
    const struct scan *s = scan_of(change);
    const struct gb_buffer_rec *read = &s->call->buffer;

    if (!b || b->id != read->id || b->rec.generation != read->generation || b->rec.has_crc32c || b->in_place ||
        b->rec.state != GB_BUFFER_READY)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile");
    change->rec = b->rec;
    change->rec.has_crc32c = true;
    change->rec.crc32c = s->crc;
    change->rec.version++;
    return 0;
}

static void apply_locked(struct gb_change *change, struct gb_buffer *b) {
    struct scan *s = scan_of(change);

    /* What a dead device took while the database was busy stays taken. */
    if (b->rec.state == GB_BUFFER_LOST)
        change->rec.state = GB_BUFFER_LOST;
    gb_buffer_set_locked(s->session, b, &change->rec, b->content);
}

/* Whether it went in or not: what was read is true. */
static void filled_in(struct gb_change *change) {
    struct scan *s = scan_of(change);

    gb_core_changed(s->core);
    finish(s, NULL);
}

static void fill_in(struct scan *s) {
    s->change = (struct gb_change){.session = s->session,
                                   .name = s->call->buffer.name,
                                   .decide_locked = decide_locked,
                                   .apply_locked = apply_locked,
                                   .end = filled_in};
    gb_change_start(&s->change);
}

static void complete(struct scan *s) {
    struct gb_call *call = s->call;
    unsigned i;

    call->scan.crc32c = s->crc;
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (s->hash[i])
            gb_hash_get(s->hash[i], &call->scan.digest[i]);
    }
    gb_download_free(s->download, true); /* nobody need wait for the database to write again */
    s->download = NULL;
    if (s->verify && !call->scan.had_crc32c)
        fill_in(s);
    else
        finish(s, NULL);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static int add(struct scan *s, const void *at, size_t n, struct gb_error *err) {
    unsigned i;

    if (s->verify)
        s->crc = gb_crc32c(s->crc, at, n);
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (s->hash[i] && gb_hash_add(s->hash[i], at, n, err) < 0)
            return -1;
    }
    return 0;
}

/* 1: go on, in another turn unless nothing is left; 0: wake comes; -1. */
static int read_some(struct scan *s, struct gb_error *err) {
    uint64_t turn = 0;
    const void *at;
    size_t n;
    int r;

    while (s->left > 0 && turn < TURN_BYTES) {
        if (atomic_load(&s->core->closing))
            return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
        r = gb_download_next(s->download, &at, &n, err);
        if (r <= 0)
            return r;
        if (n > GB_PIECE_BYTES) /* in the cache for the second reader */
            n = GB_PIECE_BYTES;
        if (add(s, at, n, err) < 0)
            return -1;
        gb_download_sent(s->download, n);
        s->left -= n;
        turn += n;
    }
    return 1;
}

static void post(struct scan *s) {
    atomic_store(&s->state, POSTED);
    gb_lane_post(s->lane, &s->task);
}

static void run(struct gb_task *task) {
    struct scan *s = (struct scan *)((char *)task - offsetof(struct scan, task));
    struct gb_error err = GB_ERROR_INIT;
    int expected = RUNNING;
    int r;

    atomic_store(&s->state, RUNNING);
    r = read_some(s, &err);
    if (r < 0)
        finish(s, &err);
    else if (r > 0 && s->left == 0)
        complete(s);
    else if (r > 0 || !atomic_compare_exchange_strong(&s->state, &expected, IDLE))
        post(s);
}

static void wake(void *arg) {
    struct scan *s = arg;
    int state = atomic_load(&s->state);

    while (state == IDLE || state == RUNNING) {
        if (!atomic_compare_exchange_weak(&s->state, &state, state == IDLE ? POSTED : WOKEN))
            continue;
        if (state == IDLE)
            gb_lane_post(s->lane, &s->task);
        return;
    }
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static int open_hashes(struct scan *s, const struct gb_scan_params *p, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (!(p->digests & 1u << i))
            continue;
        s->hash[i] = gb_hash_new((enum gb_digest_alg)i, err);
        if (!s->hash[i] || gb_hash_add(s->hash[i], p->head, p->head_n, err) < 0)
            return -1;
    }
    return 0;
}

static int open_bytes(struct scan *s, const struct gb_scan_params *p, struct gb_error *err) {
    const struct gb_buffer_rec *rec;

    if (gb_core_alive(s->core, err) < 0)
        return -1;
    s->session = gb_session_use(s->core, &p->session, err);
    if (!s->session || gb_download_open(s->core, &p->session, &p->name, &p->stream, wake, s, &s->download, err) < 0)
        return -1;
    s->download->silent = true;
    rec = gb_download_record(s->download);
    s->call->buffer = *rec;
    s->call->scan.had_crc32c = rec->has_crc32c;
    s->left = rec->bytes;
    if (p->check.check && p->check.check(p->check.arg, rec, err) < 0)
        return -1;
    return gb_download_start(s->download, 0, rec->bytes, err);
}

static struct scan *make(struct gb_core *core, const struct gb_scan_params *p, struct gb_call *call,
                         struct gb_error *err) {
    struct scan *s = calloc(1, sizeof(*s));
    unsigned number;

    if (!s) {
        gb_no_memory(err);
        return NULL;
    }
    number = atomic_fetch_add(&core->scan_number, 1);
    s->lane = &core->compute[number % GB_COMPUTE_LANES];
    s->task.run = run;
    s->core = core;
    s->call = call;
    s->verify = p->verify;
    if (open_hashes(s, p, err) == 0 && open_bytes(s, p, err) == 0)
        return s;
    release(s);
    return NULL;
}

void gb_buffer_scan(struct gb_core *core, const struct gb_scan_params *params, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct scan *s = NULL;

    if (atomic_fetch_add(&core->scans, 1) >= GB_SCANS_MAX)
        gb_error_set(&err, GB_ERR_SATURATED, "%u buffers are being read for their digests; try again later",
                     GB_SCANS_MAX);
    else
        s = make(core, params, call, &err);
    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
    if (s) {
        gb_core_enter(core);
        post(s);
        return;
    }
    atomic_fetch_sub(&core->scans, 1);
    gb_call_finish(call, &err);
}
