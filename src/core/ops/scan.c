/* A scan is a reading of what a buffer is now. */
#include <stdlib.h>

#include "base/container.h"
#include "core/buffer/guard.h"
#include "core/buffer/transaction.h"
#include "core/download/hash_reader.h"
#include "core/ops/scan.h"

struct scan {
    struct gb_hash_reader reader; /* first */
    struct gb_core *core;
    struct gb_session *session;
    struct gb_scan_call *call;
    struct gb_transaction transaction;
};

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void release(struct scan *s) {
    gb_hash_reader_done(&s->reader);
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

/* Only the bytes that were read get their checksum. */
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

    /* What a dead device took while the database was busy stays taken. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(s->session, b, &transaction->rec, b->content);
}

/* Whether it went in or not: what was read is true. */
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
    gb_download_free(reader->download, true); /* writers need not wait for the database */
    reader->download = NULL;
    if (reader->sums && !call->had_crc32c)
        fill_in(s);
    else
        finish(s, NULL);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static void result_done(struct gb_call *call) {
    gb_buffer_rec_done(&gb_container_of(call, struct gb_scan_call, base)->buffer);
}

static int open_bytes(struct scan *s, const struct gb_scan_params *p, struct gb_error *err) {
    struct gb_hash_reader *r = &s->reader;
    const struct gb_buffer_rec *rec;

    if (gb_core_alive(s->core, err) < 0)
        return -1;
    s->session = gb_session_use(s->core, &p->session, err);
    if (!s->session || gb_download_open_in(s->session, &p->name, &p->stream, (struct gb_waker){gb_hash_reader_wake, r},
                                           &r->download, err) < 0)
        return -1;
    r->download->silent = true;
    rec = gb_download_record(r->download);
    gb_buffer_rec_set(&s->call->buffer, rec);
    s->call->base.free_result = result_done;
    s->call->had_crc32c = rec->has_crc32c;
    r->left = rec->bytes;
    if (p->check.check && p->check.check(p->check.arg, rec, err) < 0)
        return -1;
    return gb_download_start(r->download, 0, rec->bytes, err);
}

static struct scan *make(struct gb_core *core, const struct gb_scan_params *p, struct gb_scan_call *call,
                         struct gb_error *err) {
    struct scan *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_no_memory(err);
        return NULL;
    }
    s->core = core;
    s->call = call;
    if (gb_hash_reader_init(&s->reader, core, GB_HASH_READER_LOOK, p->digests, err) == 0 &&
        gb_hash_reader_head(&s->reader, p->head, p->head_n, err) == 0 && open_bytes(s, p, err) == 0) {
        s->reader.sums = p->verify;
        s->reader.end = read_end;
        return s;
    }
    release(s);
    return NULL;
}

void gb_buffer_scan(struct gb_core *core, const struct gb_scan_params *params, struct gb_scan_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct scan *s = make(core, params, call, &err);

    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
    if (!s) {
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_core_enter(core);
    gb_hash_reader_start(&s->reader);
}
