/* The steps of a copy from a URL or a file: the first bytes are read, the image is planned, memory is taken, the parts
 * are read, the whole is committed. A source whose parts cannot be read by themselves comes in one piece, and begins
 * again if it breaks. Raw bytes whose number shows at their end go to an upload that grows; everything else goes to a
 * multipart upload. */
#include "source/source.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/text.h"
#include "core/runtime/call.h"
#include "source/way.h"

#define OPEN_FAILURES_MAX 3
#define FAILURES_MAX 7             /* in a row, of one part */
#define SILENCE_COUNTS 3           /* as so many of them: it has taken long already */
#define PROGRESS_BYTES (64u << 10) /* a failure behind so many bytes is the first again */

struct gb_source {
    struct gb_fetch fetch; /* first */
    struct gb_image_ask is;
    unsigned connections;
    struct gb_digest_set asked; /* by the client */
    struct gb_buffer_params to; /* labels: a reference */
    unsigned wait_ms;
    char *if_match;
    struct gb_way *way;

    /* The fetch's thread; parts read what was set before they began: */
    struct gb_way_conn *conn; /* which opened the source */
    struct gb_image image;
    char *head; /* the first bytes of the file */
    size_t head_n;
    size_t head_room;
    struct gb_digest_set digests; /* what the file must have */
    bool in_order;                /* one part reads all, and hashes it */
    struct gb_hash *hash[GB_DIGEST_ALGS];
};

struct part {
    struct gb_fetch_part part; /* first */
    struct gb_source *s;
    struct gb_way_conn *conn;
    bool own;   /* the connection is this part's */
    bool ended; /* of an open image: all has come */
};

static enum gb_pull_outcome no_memory(struct gb_error *err) {
    gb_error_set(err, GB_ERR_SATURATED, "no memory for the copy; try again later");
    return GB_PULL_FAILED;
}

/* A range has broken off. Waits, if there is patience left to ask for its rest; bytes that came give it back. */
static bool again(struct gb_fetch *fetch, const struct gb_way_conn *conn, struct gb_pull_patience *patience,
                  bool moved) {
    if (moved)
        patience->failures = 0;
    patience->failures += conn->silent ? SILENCE_COUNTS - 1 : 0;
    return gb_fetch_again(fetch, patience, conn->retry_after_s);
}

/* --- the first bytes ---------------------------------------------------------------------------------------------- */

/* A source without tags has none the next time either. */
static enum gb_pull_outcome check_tag(const struct gb_source *s, struct gb_error *err) {
    const struct gb_way *way = s->way;

    if (strcmp(s->if_match, way->tag) == 0)
        return GB_PULL_OK;
    if (way->tag[0] != '\0') {
        gb_error_set(err, GB_ERR_SOURCE_CHANGED, "%s has the entity tag %s, and %s was asked for", way->name, way->tag,
                     s->if_match);
    } else {
        gb_error_set(err, GB_ERR_SOURCE_CHANGED,
                     "%s has no strong entity tag, so that it cannot be told whether it is %s; a digest says which "
                     "bytes are meant",
                     way->name, s->if_match);
        err->hopeless = true;
    }
    return GB_PULL_FAILED;
}

static enum gb_pull_outcome open_way(struct gb_source *s, struct gb_error *err) {
    struct gb_pull_patience patience = {.most = OPEN_FAILURES_MAX};
    struct gb_error why;
    enum gb_pull_outcome outcome;

    do {
        why = GB_ERROR_INIT;
        s->way->kind->conn_free(s->conn);
        s->conn = s->way->kind->conn_new(s->way);
        if (!s->conn)
            return no_memory(err);
        outcome = s->way->kind->open(s->way, s->conn, &why);
    } while (outcome == GB_PULL_BROKEN && !s->conn->silent &&
             gb_fetch_again(&s->fetch, &patience, s->conn->retry_after_s));
    if (outcome == GB_PULL_OK && s->if_match)
        outcome = check_tag(s, &why);
    if (outcome == GB_PULL_BROKEN)
        outcome = gb_fetch_ends(&s->fetch) ? GB_PULL_STOPPED : GB_PULL_FAILED;
    if (outcome != GB_PULL_OK)
        gb_error_move(err, &why);
    return outcome;
}

/* Counts bytes that have come, and waits if the rate demands it. */
static enum gb_pull_outcome count(struct gb_source *s, size_t n) {
    int wait_ms = gb_fetch_owe(&s->fetch, n);

    s->fetch.numbers.received_bytes += n;
    return wait_ms == 0 || gb_fetch_poll(&s->fetch, -1, 0, wait_ms) == 0 ? GB_PULL_OK : GB_PULL_STOPPED;
}

static enum gb_pull_outcome more_head(struct gb_source *s, size_t need, size_t *ret, struct gb_error *err) {
    const struct gb_way_kind *kind = s->way->kind;
    enum gb_pull_outcome outcome = GB_PULL_OK;

    if (!kind->has(s->conn, s->head_n))
        outcome = kind->wait(s->conn, s->head_n, need, err);
    if (outcome == GB_PULL_OK)
        outcome = kind->read(s->conn, s->head_n, s->head + s->head_n, need - s->head_n, ret, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    s->head_n += *ret;
    return count(s, *ret);
}

/* Reads up to `need` bytes, or all. A source that breaks here begins again, or where it broke if it has ranges. */
static enum gb_pull_outcome read_head(struct gb_source *s, size_t need, struct gb_error *err) {
    struct gb_pull_patience patience = {.most = OPEN_FAILURES_MAX};
    enum gb_pull_outcome outcome = GB_PULL_OK;
    size_t got = 1;
    char *bigger;

    if (s->way->length < need)
        need = (size_t)s->way->length;
    if (need > s->head_room || !s->head) {
        bigger = realloc(s->head, need + 1);
        if (!bigger)
            return no_memory(err);
        s->head = bigger;
        s->head_room = need;
    }
    while (s->head_n < need && got > 0) {
        outcome = more_head(s, need, &got, err);
        if (outcome == GB_PULL_OK)
            continue;
        if (outcome != GB_PULL_BROKEN || !s->way->ranged)
            return outcome;
        if (!again(&s->fetch, s->conn, &patience, false)) /* few bytes give no patience back */
            return gb_fetch_ends(&s->fetch) ? GB_PULL_STOPPED : GB_PULL_FAILED;
        *err = GB_ERROR_INIT;
        s->fetch.numbers.resumed++;
    }
    return GB_PULL_OK;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Digests of a file whose bytes do not lie in memory in its order, or whose end is not known, are computed as it
 * comes. */
static enum gb_pull_outcome plan_hashes(struct gb_source *s, struct gb_error *err) {
    unsigned i;

    s->digests = s->asked;
    if (s->asked.given == 0 && s->way->contradicts) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED,
                     "%s tells two different digests of its bytes; 'digest' in the request replaces both",
                     s->way->name);
        return GB_PULL_FAILED;
    }
    if (s->asked.given == 0 && s->way->told.given != 0) { /* one is enough, and each takes its time */
        s->digests = s->way->told;
        s->digests.given &= s->digests.given & 1u << GB_DIGEST_SHA256 ? 1u << GB_DIGEST_SHA256 : ~0u;
    }
    s->in_order = !s->way->ranged || (s->image.scattered && s->digests.given != 0);
    for (i = 0; i < GB_DIGEST_ALGS && s->in_order; i++) {
        if (!(s->digests.given & 1u << i))
            continue;
        s->hash[i] = gb_hash_new((enum gb_digest_alg)i, err);
        if (!s->hash[i] || gb_hash_add(s->hash[i], s->head, s->head_n, err) < 0)
            return GB_PULL_FAILED;
    }
    return GB_PULL_OK;
}

static enum gb_pull_outcome plan(struct gb_source *s, struct gb_error *err) {
    uint64_t first = s->way->first > GB_IMAGE_LOOK ? s->way->first : GB_IMAGE_LOOK;
    enum gb_image_format format;
    enum gb_pull_outcome outcome;
    size_t need;

    outcome = read_head(s, (size_t)first, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (gb_image_look(&s->is, s->head, s->head_n, s->way->named, &format, &need, err) < 0)
        return GB_PULL_FAILED;
    if (need > s->head_n)
        outcome = read_head(s, need, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (gb_image_plan(&s->is, format, s->head, need, s->head_n < need ? (uint64_t)s->head_n : s->way->length, &s->image,
                      err) < 0)
        return GB_PULL_FAILED;
    return plan_hashes(s, err);
}

/* --- steps of a part ---------------------------------------------------------------------------------------------- */

static int hash_in_order(struct gb_source *s, const void *bytes, size_t n, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS && s->in_order; i++)
        if (s->hash[i] && gb_hash_add(s->hash[i], bytes, n, err) < 0)
            return -1;
    return 0;
}

/* Bytes of the head, which have been counted and hashed, or with head NULL zeros. */
static enum gb_pull_outcome fill_known(struct part *p, const char *head, uint64_t run) {
    enum gb_pull_outcome outcome;
    void *room;
    size_t n;

    outcome = gb_fetch_part_room(&p->part, &room, &n);
    if (outcome != GB_PULL_OK)
        return outcome;
    n = n < run ? n : (size_t)run;
    if (head) {
        memcpy(room, head, n);
        atomic_fetch_add(&p->part.fetch->call->moved_bytes, n);
    } else {
        memset(room, 0, n);
    }
    return gb_fetch_part_fill(&p->part, n, false);
}

/* The source has ended. */
static enum gb_pull_outcome end_of(struct part *p, uint64_t at) {
    p->ended = p->s->image.open;
    if (p->ended)
        return GB_PULL_OK;
    gb_image_too_short(&p->s->image, at, &p->part.error);
    return GB_PULL_FAILED;
}

static enum gb_pull_outcome fill_read(struct part *p, uint64_t at, uint64_t run) {
    const struct gb_way_kind *kind = p->s->way->kind;
    struct gb_fetch_part *part = &p->part;
    enum gb_pull_outcome outcome;
    uint64_t until = GB_UNLIMITED;
    size_t got = 0;
    void *room;
    bool gap = false;
    size_t n;

    if (!kind->has(p->conn, at)) {
        gb_upload_pause(part->upload, false); /* others may need the slot meanwhile */
        if (!p->s->image.open)
            gb_image_run(&p->s->image, part->at + part->bytes - 1, &gap, &until);
        outcome = kind->wait(p->conn, at, until == GB_UNLIMITED ? until : until + !gap, &part->error);
        if (outcome != GB_PULL_OK)
            return outcome;
    }
    outcome = gb_fetch_part_room(part, &room, &n);
    if (outcome != GB_PULL_OK)
        return outcome;
    outcome = kind->read(p->conn, at, room, n < run ? n : (size_t)run, &got, &part->error);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (got == 0)
        return end_of(p, at);
    if (hash_in_order(p->s, room, got, &part->error) < 0)
        return GB_PULL_FAILED;
    return gb_fetch_part_fill(part, got, true);
}

static enum gb_pull_outcome step(struct part *p) {
    const struct gb_source *s = p->s;
    uint64_t left = p->part.bytes - p->part.got;
    uint64_t file;
    uint64_t run;
    bool gap;

    run = gb_image_run(&s->image, p->part.at + p->part.got, &gap, &file);
    run = run < left ? run : left;
    if (gap)
        return fill_known(p, NULL, run);
    if (file >= s->head_n)
        return fill_read(p, file, run);
    return fill_known(p, s->head + file, run < s->head_n - file ? run : s->head_n - file);
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

/* All that is left of the range. A range of a source that has several is asked for again where it broke. */
static enum gb_pull_outcome bring(struct part *p) {
    struct gb_pull_patience patience = {.most = FAILURES_MAX};
    struct gb_fetch_part *part = &p->part;
    enum gb_pull_outcome outcome = GB_PULL_OK;
    uint64_t before = part->got;

    while (part->got < part->bytes && !p->ended) {
        if (gb_fetch_ends(part->fetch))
            return GB_PULL_STOPPED;
        outcome = step(p);
        if (outcome == GB_PULL_OK)
            continue;
        if (outcome != GB_PULL_BROKEN || !p->s->way->ranged)
            return outcome;
        gb_upload_pause(part->upload, true);
        if (!again(part->fetch, p->conn, &patience, part->got - before >= PROGRESS_BYTES))
            return gb_fetch_ends(part->fetch) ? GB_PULL_STOPPED : GB_PULL_FAILED;
        before = part->got;
        part->error = GB_ERROR_INIT;
        part->resumed++;
    }
    return GB_PULL_OK;
}

/* A source that tells no length, or none that binds it, may have more than its header says. */
static enum gb_pull_outcome expect_end(struct part *p) {
    const struct gb_source *s = p->s;
    enum gb_pull_outcome outcome = GB_PULL_OK;
    struct gb_fetch_part *part = &p->part;
    uint64_t at = s->image.file_bytes;
    size_t got = 0;
    char byte;

    if (s->way->ranged || s->image.open)
        return GB_PULL_OK;
    if (s->head_n > at)
        got = 1;
    else if (!s->way->kind->has(p->conn, at))
        outcome = s->way->kind->wait(p->conn, at, GB_UNLIMITED, &part->error);
    if (outcome == GB_PULL_OK && got == 0)
        outcome = s->way->kind->read(p->conn, at, &byte, 1, &got, &part->error);
    if (outcome != GB_PULL_OK || got == 0)
        return outcome;
    gb_image_too_long(&s->image, &part->error);
    return GB_PULL_FAILED;
}

static enum gb_pull_outcome bring_part(struct gb_fetch_part *part) {
    struct part *p = (struct part *)part;
    enum gb_pull_outcome outcome = bring(p);

    return outcome == GB_PULL_OK ? expect_end(p) : outcome;
}

/* The first part has the connection that opened the source. */
static int make_parts(struct gb_source *s, struct part *parts, unsigned n, const uint64_t *at, const uint64_t *bytes) {
    unsigned i;

    for (i = 0; i < n; i++) {
        parts[i] = (struct part){
            .part = {.fetch = &s->fetch, .bring = bring_part, .at = at[i], .bytes = bytes[i]}, .s = s, .own = i > 0};
        parts[i].conn = i == 0 ? s->conn : s->way->kind->conn_new(s->way);
        if (!parts[i].conn)
            return -1;
    }
    return 0;
}

static enum gb_pull_outcome bring_all(struct gb_source *s, struct gb_error *err) {
    struct part parts[GB_PULL_CONNECTIONS_MAX] = {{.own = false}};
    struct gb_fetch_part *list[GB_PULL_CONNECTIONS_MAX];
    uint64_t at[GB_PULL_CONNECTIONS_MAX];
    uint64_t bytes[GB_PULL_CONNECTIONS_MAX];
    unsigned n = gb_fetch_cut(s->image.bytes, s->in_order ? 1 : s->connections, at, bytes);
    enum gb_pull_outcome outcome;
    unsigned i;

    if (n == 0) { /* the memory has no bytes, but the file may have some too many */
        parts[0] = (struct part){.part = {.fetch = &s->fetch}, .s = s, .conn = s->conn};
        outcome = expect_end(&parts[0]);
        if (outcome != GB_PULL_OK)
            gb_error_move(err, &parts[0].part.error);
        return outcome;
    }
    for (i = 0; i < GB_PULL_CONNECTIONS_MAX; i++)
        list[i] = &parts[i].part;
    outcome = make_parts(s, parts, n, at, bytes) < 0 ? no_memory(err) : gb_fetch_bring(&s->fetch, list, n, err);
    for (i = 0; i < n; i++)
        if (parts[i].own)
            s->way->kind->conn_free(parts[i].conn);
    return outcome;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Digests of what came in order. */
static int compare_hashes(struct gb_source *s, struct gb_error *err) {
    char expected[GB_BASE64_SIZE_MAX];
    char actual[GB_BASE64_SIZE_MAX];
    struct gb_digest digest;
    char said[512];
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (!s->hash[i])
            continue;
        gb_hash_get(s->hash[i], &digest);
        if (gb_digest_equal(&digest, &s->digests.digest[i]))
            continue;
        gb_digest_text(&s->digests.digest[i], expected);
        gb_digest_text(&digest, actual);
        snprintf(said, sizeof(said), "%s: expected %s, it has %s", gb_digest_name((enum gb_digest_alg)i), expected,
                 actual);
        return gb_fetch_mismatch(s->way->name, said, err);
    }
    return 0;
}

static uint64_t run_of_file(const void *table, uint64_t at, bool *ret_left_out) {
    return gb_table_run(table, at, ret_left_out);
}

static void unref_table(void *table) {
    gb_table_unref(table);
}

/* Digests of other files are computed from the memory: without the gaps of a table, and with the header that is not in
 * memory. */
static int complete(struct gb_source *s, struct gb_error *err) {
    struct gb_multipart_expected expected = {.head = s->head, .head_n = (size_t)s->image.skip};

    if (!s->in_order)
        expected.digests = s->digests;
    if (s->image.table)
        expected.choice = (struct gb_scan_choice){run_of_file, gb_table_ref(s->image.table), unref_table};
    return gb_fetch_complete(&s->fetch, &expected, s->way->name, err);
}

/* Whether the file has a digest that its source told. */
static bool is_verified(const struct gb_source *s) {
    bool has = false;
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++)
        has = has || (!s->way->contradicts && s->digests.given & s->way->told.given & 1u << i &&
                      gb_digest_equal(&s->digests.digest[i], &s->way->told.digest[i]));
    return has;
}

static void describe(const struct gb_source *s, struct gb_upload_params *ret) {
    const struct gb_image *image = &s->image;

    *ret = (struct gb_upload_params){.buffer = s->to, .bytes = image->bytes, .wait_ms = s->wait_ms};
    ret->buffer.dtype = image->dtype;
    if (image->open) {
        ret->open_ended = true;
        ret->bytes = INT64_MAX;
        return;
    }
    ret->buffer.bytes = image->bytes;
    ret->buffer.shape = image->shape;
    ret->buffer.has_shape = true;
    ret->scattered = image->scattered;
    ret->view = image->view;
}

/* --- raw bytes whose end is not known ----------------------------------------------------------------------------- */

/* A commit is waited for even by a fetch that is to end. */
static void wait_to_the_end(struct gb_fetch_part *part) {
    struct pollfd fd = {.fd = part->wake, .events = POLLIN};
    eventfd_t n;

    if (poll(&fd, 1, -1) > 0)
        (void)eventfd_read(part->wake, &n);
}

static enum gb_pull_outcome commit_growing(struct part *p) {
    struct gb_fetch_part *part = &p->part;
    struct gb_source *s = p->s;
    struct gb_transfer_times times;
    struct gb_buffer_rec rec;
    bool created;
    int r;

    if (compare_hashes(s, &part->error) < 0)
        return GB_PULL_FAILED;
    if (!gb_fetch_commits(&s->fetch))
        return GB_PULL_STOPPED;
    gb_upload_mark(part->upload, &s->fetch.call->written.base.mark);
    if (gb_upload_end(part->upload, &part->error) < 0)
        return GB_PULL_FAILED;
    while ((r = gb_upload_result(part->upload, &rec, &created, &times, &part->error)) == 0)
        wait_to_the_end(part);
    if (r < 0)
        return GB_PULL_FAILED;
    s->fetch.numbers.bytes = part->got;
    s->fetch.numbers.verified = is_verified(s);
    gb_fetch_take_result(&s->fetch, &rec, created, &times);
    return GB_PULL_OK;
}

static enum gb_pull_outcome run_growing(struct gb_source *s, struct part *p) {
    struct gb_fetch_part *part = &p->part;
    struct gb_upload_params params;
    enum gb_pull_outcome outcome;

    describe(s, &params);
    params.waker = (struct gb_waker){gb_fetch_part_wake, part};
    params.check = gb_fetch_check(&s->fetch);
    if (gb_upload_begin(gb_pulls_core(s->fetch.pulls), &params, &part->upload, &part->error) < 0) {
        params.check.free_arg(params.check.arg);
        return GB_PULL_FAILED;
    }
    s->fetch.numbers.connections = 1;
    outcome = bring(p);
    if (outcome == GB_PULL_OK)
        outcome = commit_growing(p);
    gb_upload_free(part->upload);
    return outcome;
}

static enum gb_pull_outcome bring_growing(struct gb_source *s, struct gb_error *err) {
    struct part p = {.part = {.fetch = &s->fetch, .bytes = INT64_MAX}, .s = s, .conn = s->conn};
    enum gb_pull_outcome outcome;

    p.part.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p.part.wake < 0) {
        gb_error_set(err, GB_ERR_SATURATED, "no descriptor is left for the copy; try again later");
        return GB_PULL_FAILED;
    }
    outcome = run_growing(s, &p);
    close(p.part.wake);
    s->fetch.numbers.received_bytes += p.part.received;
    if (outcome != GB_PULL_OK)
        gb_error_move(err, &p.part.error);
    return outcome;
}

/* --- attempts ----------------------------------------------------------------------------------------------------- */

static enum gb_pull_outcome bring_sized(struct gb_source *s, struct gb_error *err) {
    struct gb_upload_params params;
    enum gb_pull_outcome outcome;

    describe(s, &params);
    if (gb_fetch_begin(&s->fetch, &params, err) < 0)
        return GB_PULL_FAILED;
    outcome = bring_all(s, err);
    if (outcome == GB_PULL_OK && s->way->kind->check)
        outcome = s->way->kind->check(s->way, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (compare_hashes(s, err) < 0)
        return GB_PULL_FAILED;
    if (!gb_fetch_commits(&s->fetch))
        return GB_PULL_STOPPED;
    s->fetch.numbers.verified = is_verified(s);
    return complete(s, err) < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

static enum gb_pull_outcome attempt(struct gb_source *s, struct gb_error *err) {
    struct gb_pull_numbers *numbers = &s->fetch.numbers;
    enum gb_pull_outcome outcome;

    atomic_store(&s->fetch.call->moved_bytes, 0);
    atomic_store(&s->fetch.call->total_bytes, GB_UNLIMITED);
    outcome = open_way(s, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    strcpy(numbers->tag, s->way->tag);
    outcome = plan(s, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    numbers->bytes = s->image.open ? 0 : s->image.file_bytes;
    atomic_store(&s->fetch.call->total_bytes, s->image.open ? GB_UNLIMITED : s->image.file_bytes);
    return s->image.open ? bring_growing(s, err) : bring_sized(s, err);
}

/* Drops what an attempt has made. */
static void clear(struct gb_source *s) {
    unsigned i;

    gb_fetch_give_up(&s->fetch);
    s->way->kind->conn_free(s->conn);
    s->conn = NULL;
    gb_image_done(&s->image);
    s->image = (struct gb_image){.table = NULL};
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        gb_hash_free(s->hash[i]);
        s->hash[i] = NULL;
    }
    s->head_n = 0;
}

/* Whether an attempt that ended so is followed by another one. */
static bool begins_again(struct gb_source *s, enum gb_pull_outcome outcome) {
    struct gb_pull_patience patience = {.most = GB_PULL_BEGIN_AGAIN_MAX, .failures = s->fetch.numbers.begun_again};

    if (outcome != GB_PULL_BROKEN && (outcome != GB_PULL_CHANGED || s->if_match))
        return false;
    if (outcome == GB_PULL_BROKEN && s->conn && s->conn->silent)
        return false;
    return gb_fetch_again(&s->fetch, &patience, s->conn ? s->conn->retry_after_s : 0);
}

static int run(struct gb_fetch *fetch, struct gb_error *err) {
    struct gb_source *s = (struct gb_source *)fetch;
    struct gb_error why = GB_ERROR_INIT;
    enum gb_pull_outcome outcome;

    outcome = attempt(s, &why);
    while (begins_again(s, outcome)) {
        clear(s);
        why = GB_ERROR_INIT;
        fetch->numbers.begun_again++;
        outcome = attempt(s, &why);
    }
    if (outcome == GB_PULL_OK)
        fetch->multipart[0] = '\0';
    clear(s);
    free(s->head);
    s->head = NULL;
    if (why.code == GB_ERR_DIGEST_MISMATCH && s->asked.given == 0) {
        why.code = GB_ERR_SOURCE_REFUSED; /* it contradicts itself */
        gb_error_append(&why, why.code, "; the source told this digest, and 'digest' in the request replaces it");
    }
    return outcome == GB_PULL_OK ? 0 : gb_error_move(err, &why);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static void gone(struct gb_fetch *fetch) {
    struct gb_source *s = (struct gb_source *)fetch;

    if (s->way)
        s->way->kind->free(s->way);
    gb_text_unref(s->to.labels);
    gb_fetch_done(fetch);
    free(s->head);
    free(s->if_match);
    free(s);
}

static const struct gb_fetch_role role = {run, gone};

static struct gb_source *source_new(struct gb_pulls *pulls, const struct gb_source_params *params,
                                    struct gb_pull_call *call, struct gb_error *err) {
    struct gb_source *s = calloc(1, sizeof(*s));
    struct gb_error why = GB_ERROR_INIT;

    if (!s) {
        if (params->check.free_arg)
            params->check.free_arg(params->check.arg);
        no_memory(err);
        return NULL;
    }
    s->is = params->is;
    s->connections = params->connections;
    s->asked = params->digests;
    s->to = params->to;
    s->to.labels = params->to.labels ? gb_text_ref(params->to.labels) : NULL;
    s->wait_ms = params->wait_ms;
    if (gb_fetch_init(&s->fetch, pulls, &role, &params->check, call, &why) == 0) {
        s->way = params->url ? gb_url_new(&s->fetch, params) : gb_file_new(&s->fetch, params);
        s->if_match = params->if_match ? strdup(params->if_match) : NULL;
        if (s->way && (!params->if_match || s->if_match))
            return s;
        no_memory(&why);
    }
    gb_fetch_unref(&s->fetch);
    gb_error_move(err, &why);
    return NULL;
}

void gb_source_start(struct gb_pulls *pulls, const struct gb_source_params *params, struct gb_pull_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_source *s = source_new(pulls, params, call, &err);

    if (s)
        gb_fetch_submit(&s->fetch);
    else
        gb_call_finish(&call->written.base, &err);
}
