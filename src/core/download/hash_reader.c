#include "core/download/hash_reader.h"

#include "base/container.h"
#include "base/hash.h"

#define TURN_BYTES (16u << 20) /* then others on the same lane have theirs */
#define PIECE_BYTES (256u << 10)

/* Of the task. A wake comes at any time; while it runs, it makes it run once more. */
enum { IDLE, POSTED, RUNNING, WOKEN };

/* --- the turns ---------------------------------------------------------------------------------------------------- */

static int add(struct gb_hash_reader *r, const void *at, size_t n, struct gb_error *err) {
    unsigned i;

    if (r->sums)
        r->crc = gb_crc32c(r->crc, at, n);
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (r->hash[i] && gb_hash_add(r->hash[i], at, n, err) < 0)
            return -1;
    }
    return 0;
}

static int may_go_on(struct gb_hash_reader *r, struct gb_error *err) {
    if (atomic_load(&r->core->closing))
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    if (atomic_load(&r->cut))
        return gb_error_set(err, GB_ERR_CANCELLED, "nobody wants the checksums any more");
    return 0;
}

/* 1: go on, in another turn unless nothing is left; 0: wake comes; -1. */
static int read_some(struct gb_hash_reader *r, struct gb_error *err) {
    uint64_t turn = 0;
    const void *at;
    size_t n;
    int got;

    while (r->left > 0 && turn < TURN_BYTES) {
        if (may_go_on(r, err) < 0)
            return -1;
        got = gb_download_next(r->download, &at, &n, err);
        if (got <= 0)
            return got;
        if (n > PIECE_BYTES) /* in the cache for the second reader */
            n = PIECE_BYTES;
        if (add(r, at, n, err) < 0)
            return -1;
        gb_download_sent(r->download, n);
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
    got = read_some(r, &err);
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
