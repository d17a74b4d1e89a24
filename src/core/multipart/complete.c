/* What comes before an intake's commit: is everything there, and what was expected? */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

/* Its memory is read while the intake is in state READING. Whoever ends it meanwhile cuts this off; the memory stays until
 * then. */
struct inspection {
    struct gb_reading reading; /* first */
    struct gb_intake *intake;  /* a reference */
    struct gb_upload *carrier; /* a reference */
    struct gb_buffer_check check;
    struct gb_digest_set expected;
};

/* --- the commit --------------------------------------------------------------------------------------------------- */

/* Under the lock: takes check. */
static void feed_locked(struct gb_intake *intake, const struct gb_buffer_check *check) {
    intake->state = GB_INTAKE_COMPLETING;
    gb_upload_fed(intake->carrier, check, &intake->call->mark, gb_ranges_crc(&intake->ranges));
}

static void commit(struct gb_intake *intake, struct gb_upload *carrier) {
    struct gb_error err = GB_ERROR_INIT;

    (void)gb_upload_end(carrier, &err); /* what went wrong stands in it */
    gb_intake_look(intake);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void inspection_free(struct inspection *n) {
    if (!n)
        return;
    gb_reading_done(&n->reading);
    if (n->check.free_arg)
        n->check.free_arg(n->check.arg);
    if (n->carrier)
        gb_transfer_unref(&n->carrier->t);
    gb_intake_unref(n->intake);
    free(n);
}

static int compare(struct inspection *n, struct gb_error *err) {
    char expected[GB_BASE64_SIZE_MAX];
    char actual[GB_BASE64_SIZE_MAX];
    struct gb_digest digest;
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (!n->reading.hash[i])
            continue;
        gb_hash_get(n->reading.hash[i], &digest);
        if (gb_digest_equal(&digest, &n->expected.digest[i]))
            continue;
        gb_digest_text(&n->expected.digest[i], expected);
        gb_digest_text(&digest, actual);
        return gb_error_set(err, GB_ERR_DIGEST_MISMATCH,
                            "%s: expected %s, the upload has %s; send the wrong parts again, or delete it",
                            gb_digest_name((enum gb_digest_alg)i), expected, actual);
    }
    return 0;
}

static void read_end(struct gb_reading *reading, const struct gb_error *error) {
    struct inspection *n = (struct inspection *)reading;
    struct gb_intake *intake = n->intake;
    struct gb_core *core = intake->core;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_call *call = NULL;
    bool good;

    if (error)
        err = *error;
    good = !error && compare(n, &err) == 0;
    gb_download_free(reading->download, true); /* the memory is the carrier's alone again */
    reading->download = NULL;
    pthread_mutex_lock(&intake->lock);
    intake->reading = NULL;
    if (intake->state != GB_INTAKE_READING) {
        good = false; /* it was ended */
    } else if (good) {
        feed_locked(intake, &n->check);
        n->check = (struct gb_buffer_check){0};
    } else {
        intake->state = GB_INTAKE_OPEN;
        call = intake->call;
        intake->call = NULL;
    }
    intake->touched_ns = gb_clock_ns();
    pthread_mutex_unlock(&intake->lock);
    if (good)
        commit(intake, n->carrier);
    if (call)
        gb_intake_finish_call(intake, call, &err);
    inspection_free(n);
    gb_core_leave(core);
}

static struct inspection *inspection_new(struct gb_intake *intake, const struct gb_digest_set *expected,
                                         struct gb_error *err) {
    struct inspection *n = calloc(1, sizeof(*n));

    if (!n) {
        gb_no_memory(err);
        return NULL;
    }
    n->intake = gb_intake_ref(intake);
    n->expected = *expected;
    if (gb_reading_init(&n->reading, intake->core, GB_READING_WRITE, expected->given, err) == 0) {
        n->reading.end = read_end;
        return n;
    }
    inspection_free(n);
    return NULL;
}

static int open_memory(struct inspection *n, struct gb_error *err) {
    struct gb_upload *u = n->carrier;
    struct gb_download *d = gb_download_of(u->t.session, u->t.stream, gb_content_ref(u->content), u->kind, u->bytes,
                                           gb_reading_wake, &n->reading);

    if (!d) {
        gb_content_drop(u->content, NULL, NULL); /* never the last: the carrier has one */
        return gb_no_memory(err);
    }
    d->silent = true;
    /* Managed memory that is in the CPU's hands: nobody else may read it. */
    d->direct = d->direct || u->attached;
    n->reading.download = d;
    n->reading.left = u->bytes;
    return gb_download_start(d, 0, u->bytes, err);
}

static void inspect(struct inspection *n) {
    struct gb_error err = GB_ERROR_INIT;

    gb_core_enter(n->intake->core);
    if (open_memory(n, &err) < 0)
        read_end(&n->reading, &err);
    else
        gb_reading_start(&n->reading);
}

/* --- complete ----------------------------------------------------------------------------------------------------- */

/* As the commit will ask again: but here nothing is lost yet. */
static int ask_check(struct gb_intake *intake, const struct gb_buffer_check *check, struct gb_error *err) {
    struct gb_session *s = intake->session;
    struct gb_buffer *b;
    int r;

    if (!check || !check->check)
        return 0;
    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &intake->buffer, NULL);
    r = check->check(check->arg, b ? &b->rec : NULL, err);
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* 1: it may be committed; 0: bytes are missing; -1. */
static int completable_locked(struct gb_intake *intake, const struct gb_intake_expected *expected,
                              struct gb_error *err) {
    uint32_t crc;

    if (intake->state == GB_INTAKE_LEAD)
        return 0;
    if (!intake->sealed && gb_intake_check_locked(intake, err) < 0)
        return -1;
    if (intake->sealed && intake->state != GB_INTAKE_OPEN)
        return gb_intake_check_locked(intake, err);
    if (intake->ranges.bytes < intake->bytes)
        return 0;
    if (intake->turn || intake->running > 0)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "another request still writes to it");
    crc = gb_ranges_crc(&intake->ranges);
    if (expected && expected->has_crc32c && expected->crc32c != crc)
        return gb_error_set(err, GB_ERR_DIGEST_MISMATCH,
                            "the bytes that arrived have the CRC32C %08x and %08x was expected; send the wrong parts "
                            "again, or delete the upload",
                            crc, expected->crc32c);
    return 1;
}

/* n: NULL when nothing is to be read. From 1 on check and n are the intake's. */
static int start(struct gb_intake *intake, const struct gb_buffer_check *check,
                 const struct gb_intake_expected *expected, struct inspection *n, struct gb_call *call,
                 struct gb_error *err) {
    struct gb_upload *carrier = NULL;
    int r;

    pthread_mutex_lock(&intake->lock);
    r = completable_locked(intake, expected, err);
    if (r > 0) {
        intake->call = call;
        carrier = intake->carrier;
        gb_transfer_ref(&carrier->t);
    }
    if (r > 0 && n) {
        intake->state = GB_INTAKE_READING;
        intake->reading = &n->reading;
        n->carrier = carrier;
        n->check = check ? *check : (struct gb_buffer_check){0};
    } else if (r > 0) {
        feed_locked(intake, check);
    }
    pthread_mutex_unlock(&intake->lock);
    if (r <= 0)
        return r;
    if (n) {
        inspect(n);
    } else {
        commit(intake, carrier);
        gb_transfer_unref(&carrier->t);
    }
    return 1;
}

void gb_intake_complete(struct gb_core *core, const struct gb_name *session, const char *id,
                        const struct gb_buffer_check *check, const struct gb_intake_expected *expected,
                        struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_intake *intake;
    struct inspection *n = NULL;
    int r;

    gb_core_enter(core);
    intake = gb_intake_find(core, session, id, true, &err);
    r = intake ? ask_check(intake, check, &err) : -1;
    if (r == 0 && expected && expected->digests.given) {
        n = inspection_new(intake, &expected->digests, &err);
        r = n ? 0 : -1;
    }
    if (r == 0)
        r = start(intake, check, expected, n, call, &err);
    if (r <= 0) {
        inspection_free(n);
        if (check && check->free_arg)
            check->free_arg(check->arg);
    }
    if (r <= 0 && intake) {
        gb_intake_finish_call(intake, call, r < 0 ? &err : NULL);
    } else if (r <= 0) {
        gb_call_finish(call, &err);
        gb_core_leave(core);
    }
    gb_intake_unref(intake);
}
