/* The bytes of an upload: into the memory itself where the CPU reaches it, else through slots. */
#include "base/clock.h"
#include "base/crc32c.h"
#include "core/upload/upload.h"

/* A slot that fills is its upload's for as long; after that it is sent with what it has, if others wait. Bytes that only drip
 * would keep it for minutes otherwise, and a few such clients all of the slots. */
#define HOLD_NS (200 * GB_NS_PER_MS)

/* At once where the CPU reaches the memory: as much as the server lets the socket gather, and still in the cache for the checksum. */
#define ROOM_BYTES (1u << 20)

static size_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* A slot to fill; false: wait for wake. While copies are under way the end of one wakes, so no place in the line is needed. */
static bool begin_slot_locked(struct gb_upload *u) {
    struct gb_staged_copy *f = NULL;
    unsigned i;

    for (i = 0; i < GB_UPLOAD_COPIES && !f; i++) {
        if (!u->copies[i].busy)
            f = &u->copies[i];
    }
    if (!f)
        return false;
    f->slot = u->in_flight > 0 ? gb_slots_try(&u->t.core->slots) : gb_core_transfer_slot_locked(&u->t);
    if (!f->slot)
        return false;
    f->busy = true;
    f->bytes = 0;
    f->summed = 0;
    u->filling = f;
    u->filling_ns = gb_clock_ns();
    u->filling_max = u->params.scattered ? gb_scatter_slot(u) : u->t.core->slots.slot_bytes;
    return true;
}

static int room_locked(struct gb_upload *u, void **ret_ptr, struct gb_error *err) {
    uint64_t left = u->params.bytes - u->filled;

    if (gb_core_transfer_check_locked(&u->t, err) < 0)
        return -1;
    if (left == 0 || u->ended)
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "the payload has %llu bytes and no more",
                            (unsigned long long)u->params.bytes);
    if (!u->open)
        return 0;
    if (u->direct && u->params.scattered)
        return gb_scatter_room_locked(u, ret_ptr, err);
    if (u->direct) {
        *ret_ptr = (char *)u->content->ptr + u->at + u->filled;
        u->room = least(left, ROOM_BYTES);
        u->touched = true;
        return 1;
    }
    if (!u->filling && !begin_slot_locked(u))
        return 0;
    *ret_ptr = (char *)u->filling->slot + u->filling->bytes;
    u->room = least(left, u->filling_max - u->filling->bytes);
    return 1;
}

int gb_upload_room(struct gb_upload *upload, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r;

    if (!upload->filling)
        gb_upload_reap(upload);
    pthread_mutex_lock(&upload->t.lock);
    upload->room = 0;
    r = room_locked(upload, ret_ptr, err);
    upload->t.want_wake = r == 0;
    if (r > 0)
        *ret_n = upload->room;
    pthread_mutex_unlock(&upload->t.lock);
    if (r == 0)
        gb_upload_watch_first(upload);
    return r;
}

int gb_upload_fill(struct gb_upload *upload, size_t n, struct gb_error *err) {
    struct gb_staged_copy *f = upload->filling;
    char *at;

    if (n > upload->room)
        return gb_error_set(err, GB_ERR_INTERNAL, "%zu bytes were filled into a room of %zu", n, upload->room);
    if (upload->params.scattered)
        at = upload->scratch + upload->scratch_n;
    else
        at = (char *)upload->content->ptr + upload->at + upload->filled;
    upload->filled += n;
    upload->room -= n;
    if (!f) {
        upload->crc = gb_crc32c(upload->crc, at, n);
        if (upload->params.scattered)
            gb_scatter_fill(upload, n);
        return 0;
    }
    f->bytes += n;
    gb_upload_sum(upload);
    if (f->bytes == upload->filling_max || upload->filled == upload->params.bytes)
        return n > 0 ? gb_upload_send(upload, err) : 0;
    return 0;
}

int gb_upload_flush(struct gb_upload *upload, struct gb_error *err) {
    upload->room = 0;
    return upload->filling && upload->filling->bytes > 0 ? gb_upload_send(upload, err) : 0;
}

void gb_upload_pause(struct gb_upload *upload, bool stalled) {
    struct gb_staged_copy *f = upload->filling;

    if (stalled)
        (void)gb_upload_watch_rest(upload, NULL); /* what goes wrong stands in the transfer */
    if (!f || !gb_slots_wanted(&upload->t.core->slots))
        return;
    if (f->bytes > 0 && !stalled && gb_clock_ns() - upload->filling_ns < HOLD_NS)
        return;
    upload->room = 0;
    if (f->bytes > 0) {
        (void)gb_upload_send(upload, NULL);
        return;
    }
    upload->filling = NULL;
    gb_staged_copy_release(f);
    pthread_mutex_lock(&upload->t.lock);
    f->busy = false;
    pthread_mutex_unlock(&upload->t.lock);
}
