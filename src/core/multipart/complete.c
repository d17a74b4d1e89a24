/* The checks before a multipart upload's commit: all bytes are there, and they have the expected digests. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

/* Reads the memory of a multipart upload in state HASHING. The end of the multipart upload cuts the reading off; the
 * memory stays until then. */
struct inspection {
    struct gb_hash_reader reader;   /* first */
    struct gb_multipart *multipart; /* a reference */
    struct gb_upload *target;       /* a reference */
    struct gb_buffer_check check;
    struct gb_digest_set expected;
};

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void inspection_free(struct inspection *n) {
    if (!n)
        return;
    gb_hash_reader_done(&n->reader);
    if (n->check.free_arg)
        n->check.free_arg(n->check.arg);
    if (n->target)
        gb_core_transfer_unref(&n->target->t);
    gb_multipart_unref(n->multipart);
    free(n);
}

static int compare(struct inspection *n, struct gb_error *err) {
    char expected[GB_BASE64_SIZE_MAX];
    char actual[GB_BASE64_SIZE_MAX];
    struct gb_digest digest;
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (!n->reader.hash[i])
            continue;
        gb_hash_get(n->reader.hash[i], &digest);
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

static void read_end(struct gb_hash_reader *reader, const struct gb_error *error) {
    struct inspection *n = (struct inspection *)reader;
    struct gb_multipart *multipart = n->multipart;
    struct gb_core *core = multipart->core;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_multipart_call *call = NULL;
    bool good;

    if (error)
        err = *error;
    good = !error && compare(n, &err) == 0;
    gb_download_free(reader->download, true); /* the memory is the target's alone again */
    reader->download = NULL;
    pthread_mutex_lock(&multipart->lock);
    multipart->reader = NULL;
    if (multipart->state != GB_MULTIPART_HASHING) {
        good = false; /* it was ended */
    } else if (good) {
        gb_multipart_feed_locked(multipart, &n->check);
        n->check = (struct gb_buffer_check){0};
    } else {
        multipart->state = GB_MULTIPART_OPEN;
        call = multipart->call;
        multipart->call = NULL;
    }
    multipart->touched_ns = gb_clock_ns();
    pthread_mutex_unlock(&multipart->lock);
    if (good)
        gb_multipart_commit(multipart, n->target);
    if (call)
        gb_multipart_finish_call(multipart, call, &err);
    inspection_free(n);
    gb_core_leave(core);
}

static struct inspection *inspection_new(struct gb_multipart *multipart, const struct gb_digest_set *expected,
                                         struct gb_error *err) {
    struct inspection *n = calloc(1, sizeof(*n));

    if (!n) {
        gb_no_memory(err);
        return NULL;
    }
    n->multipart = gb_multipart_ref(multipart);
    n->expected = *expected;
    if (gb_hash_reader_init(&n->reader, multipart->core, GB_HASH_READER_WRITE, expected->given, err) == 0) {
        n->reader.end = read_end;
        return n;
    }
    inspection_free(n);
    return NULL;
}

static int open_memory(struct inspection *n, struct gb_error *err) {
    struct gb_upload *u = n->target;
    struct gb_download *d = gb_download_of(u->t.session, u->t.stream, gb_content_ref(u->content), u->plan.kind,
                                           u->plan.bytes, (struct gb_waker){gb_hash_reader_wake, &n->reader});

    if (!d) {
        gb_content_drop(u->content, NULL, NULL); /* never the last: the target has one */
        return gb_no_memory(err);
    }
    d->silent = true;
    /* Managed memory that is in the CPU's hands: no copy may read it. */
    d->direct = d->direct || u->attached;
    n->reader.download = d;
    n->reader.left = u->plan.bytes;
    return gb_download_start(d, 0, u->plan.bytes, err);
}

static void inspect(struct inspection *n) {
    struct gb_error err = GB_ERROR_INIT;

    gb_core_enter(n->multipart->core);
    if (open_memory(n, &err) < 0)
        read_end(&n->reader, &err);
    else
        gb_hash_reader_start(&n->reader);
}

/* --- complete ----------------------------------------------------------------------------------------------------- */

/* As the commit will ask again: but here nothing is lost yet. */
static int ask_check(struct gb_multipart *multipart, const struct gb_buffer_check *check, struct gb_error *err) {
    struct gb_session *s = multipart->session;
    struct gb_buffer *b;
    int r;

    if (!check || !check->check)
        return 0;
    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &multipart->buffer, NULL);
    r = gb_buffer_check_locked(check, b, err);
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* 1: it may be committed; 0: bytes are missing; -1. */
static int completable_locked(struct gb_multipart *multipart, const struct gb_multipart_expected *expected,
                              struct gb_error *err) {
    uint32_t crc;

    if (multipart->state == GB_MULTIPART_HEADER)
        return 0;
    if (!multipart->sealed && gb_multipart_check_locked(multipart, err) < 0)
        return -1;
    if (multipart->sealed && multipart->state != GB_MULTIPART_OPEN)
        return gb_multipart_check_locked(multipart, err);
    if (multipart->ranges.bytes < multipart->bytes)
        return 0;
    if (multipart->append_locked || multipart->running > 0)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "another request still writes to it");
    crc = gb_ranges_crc(&multipart->ranges);
    if (expected && expected->has_crc32c && expected->crc32c != crc)
        return gb_error_set(err, GB_ERR_DIGEST_MISMATCH,
                            "the bytes that arrived have the CRC32C %08x and %08x was expected; send the wrong parts "
                            "again, or delete the upload",
                            crc, expected->crc32c);
    return 1;
}

/* n: NULL when nothing is to be read. From 1 on check and n are the multipart upload's. */
static int start(struct gb_multipart *multipart, const struct gb_buffer_check *check,
                 const struct gb_multipart_expected *expected, struct inspection *n, struct gb_multipart_call *call,
                 struct gb_error *err) {
    struct gb_upload *target = NULL;
    int r;

    pthread_mutex_lock(&multipart->lock);
    r = completable_locked(multipart, expected, err);
    if (r > 0) {
        multipart->call = call;
        target = multipart->target;
        gb_core_transfer_ref(&target->t);
    }
    if (r > 0 && n) {
        multipart->state = GB_MULTIPART_HASHING;
        multipart->reader = &n->reader;
        n->target = target;
        n->check = check ? *check : (struct gb_buffer_check){0};
    } else if (r > 0) {
        gb_multipart_feed_locked(multipart, check);
    }
    pthread_mutex_unlock(&multipart->lock);
    if (r <= 0)
        return r;
    if (n) {
        inspect(n);
    } else {
        gb_multipart_commit(multipart, target);
        gb_core_transfer_unref(&target->t);
    }
    return 1;
}

void gb_multipart_complete(struct gb_core *core, const struct gb_name *session, const char *id,
                           const struct gb_buffer_check *check, const struct gb_multipart_expected *expected,
                           struct gb_multipart_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_multipart *multipart;
    struct inspection *n = NULL;
    int r;

    gb_core_enter(core);
    multipart = gb_multipart_find(core, session, id, true, &err);
    r = multipart ? ask_check(multipart, check, &err) : -1;
    if (r == 0 && expected && expected->digests.given) {
        n = inspection_new(multipart, &expected->digests, &err);
        r = n ? 0 : -1;
    }
    if (r == 0)
        r = start(multipart, check, expected, n, call, &err);
    if (r <= 0) {
        inspection_free(n);
        if (check && check->free_arg)
            check->free_arg(check->arg);
    }
    if (r <= 0 && multipart) {
        gb_multipart_finish_call(multipart, call, r < 0 ? &err : NULL);
    } else if (r <= 0) {
        gb_call_finish(&call->base, &err);
        gb_core_leave(core);
    }
    gb_multipart_unref(multipart);
}
