/* A scan is a reading of what a buffer is now. */
#include <stdlib.h>

#include "core/buffer/guard.h"
#include "core/buffer/transaction.h"
#include "core/download/hash_reader.h"

struct scan {
    struct gb_reading reading; /* first */
    struct gb_core *core;
    struct gb_session *session;
    struct gb_call *call;
    struct gb_change change;
};

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void release(struct scan *s) {
    gb_reading_done(&s->reading);
    gb_session_unref(s->session);
    free(s);
}

static void finish(struct scan *s, const struct gb_error *error) {
    struct gb_core *core = s->core;
    struct gb_call *call = s->call;

    release(s);
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

    if (!b || gb_mapped_check_writers_locked(b, NULL) < 0 || b->id != read->id ||
        b->rec.generation != read->generation || b->rec.has_crc32c || b->rec.adopted || b->in_place ||
        b->rec.state != GB_BUFFER_READY)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile");
    change->rec = b->rec;
    change->rec.has_crc32c = true;
    change->rec.crc32c = s->reading.crc;
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

static void read_end(struct gb_reading *reading, const struct gb_error *error) {
    struct scan *s = (struct scan *)reading;
    struct gb_call *call = s->call;
    unsigned i;

    if (error) {
        finish(s, error);
        return;
    }
    call->scan.crc32c = reading->crc;
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (reading->hash[i])
            gb_hash_get(reading->hash[i], &call->scan.digest[i]);
    }
    gb_download_free(reading->download, true); /* nobody need wait for the database to write again */
    reading->download = NULL;
    if (reading->sums && !call->scan.had_crc32c)
        fill_in(s);
    else
        finish(s, NULL);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static int open_bytes(struct scan *s, const struct gb_scan_params *p, struct gb_error *err) {
    struct gb_reading *r = &s->reading;
    const struct gb_buffer_rec *rec;

    if (gb_core_alive(s->core, err) < 0)
        return -1;
    s->session = gb_session_use(s->core, &p->session, err);
    if (!s->session ||
        gb_download_open(s->core, &p->session, &p->name, &p->stream, gb_reading_wake, r, &r->download, err) < 0)
        return -1;
    r->download->silent = true;
    rec = gb_download_record(r->download);
    s->call->buffer = *rec;
    s->call->scan.had_crc32c = rec->has_crc32c;
    r->left = rec->bytes;
    if (p->check.check && p->check.check(p->check.arg, rec, err) < 0)
        return -1;
    return gb_download_start(r->download, 0, rec->bytes, err);
}

static struct scan *make(struct gb_core *core, const struct gb_scan_params *p, struct gb_call *call,
                         struct gb_error *err) {
    struct scan *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_no_memory(err);
        return NULL;
    }
    s->core = core;
    s->call = call;
    if (gb_reading_init(&s->reading, core, GB_READING_LOOK, p->digests, err) == 0 &&
        gb_reading_head(&s->reading, p->head, p->head_n, err) == 0 && open_bytes(s, p, err) == 0) {
        s->reading.sums = p->verify;
        s->reading.end = read_end;
        return s;
    }
    release(s);
    return NULL;
}

void gb_buffer_scan(struct gb_core *core, const struct gb_scan_params *params, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct scan *s = make(core, params, call, &err);

    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
    if (!s) {
        gb_call_finish(call, &err);
        return;
    }
    gb_core_enter(core);
    gb_reading_start(&s->reading);
}
