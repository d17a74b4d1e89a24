/* The bytes of an upload: into the memory itself where the CPU reaches it, else through slots. */
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/process.h"
#include "core/upload/upload.h"

/* A slot that fills belongs to its upload for this long. After that it is sent with what it holds, if others wait: slow
 * clients would keep slots for minutes otherwise, and a few of them would keep them all. */
#define HOLD_NS (200 * GB_NS_PER_MS)

/* Room at once where the CPU reaches the memory: as much as the server lets the socket gather, and still in the cache
 * when it is summed up. */
#define ROOM_BYTES (1u << 20)

static size_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static size_t at_once(const struct gb_upload *u) {
    return u->role->room_bytes > 0 ? u->role->room_bytes : ROOM_BYTES;
}

static char *ptr_of(const struct gb_upload *u, uint64_t at) {
    return (char *)u->content->ptr + gb_upload_offset(u, at);
}

/* --- pages that are not there yet --------------------------------------------------------------------------------- */

static void touch(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, touch);

    gb_pages_make(u->touch_at, u->touch_n);
    pthread_mutex_lock(&u->t.lock);
    u->pages = GB_UPLOAD_PAGES_THERE;
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

/* Clearing a huge page takes the time of a thousand requests, and a client has it cleared with one byte. So the first
 * bytes wait until a computing lane has done that: the thread of the connection has others to serve. Returns false if
 * they wait. */
static bool has_pages_locked(struct gb_upload *u, char *at, size_t n) {
    if (u->pages == GB_UPLOAD_PAGES_UNSEEN && (!u->t.device->rec.cpu_access || gb_pages_present(at, n)))
        u->pages = GB_UPLOAD_PAGES_THERE;
    if (u->pages == GB_UPLOAD_PAGES_UNSEEN) {
        u->pages = GB_UPLOAD_PAGES_COMING;
        u->touch_at = at;
        u->touch_n = n;
        u->touch.run = touch;
        gb_core_transfer_ref(&u->t);
        gb_lane_post(gb_core_compute_lane(u->t.core), &u->touch);
    }
    return u->pages == GB_UPLOAD_PAGES_THERE;
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static int too_long(const struct gb_upload *u, struct gb_error *err) {
    if (u->plan.open_ended && u->plan.partial)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the buffer has %llu bytes from offset %llu on, and the body has more",
                            (unsigned long long)u->plan.payload, (unsigned long long)u->plan.at);
    return gb_error_set(err, GB_ERR_BODY_TOO_LARGE,
                        u->role->grows ? "the upload may bring %llu bytes, and the body has more"
                                       : "the payload has %llu bytes and no more",
                        (unsigned long long)u->plan.payload);
}

static int room_locked(struct gb_upload *u, void **ret_ptr, struct gb_error *err) {
    uint64_t left = gb_upload_reach(u) - u->filled;
    struct gb_staged_copy *f;

    if (gb_upload_alive_locked(u, err) < 0)
        return -1;
    if (left == 0 || u->state > GB_UPLOAD_OPEN)
        return too_long(u, err);
    if (u->state != GB_UPLOAD_OPEN)
        return 0;
    if (u->plan.direct && u->plan.scattered)
        return gb_scatter_room_locked(u, ret_ptr, err);
    if (u->plan.direct) {
        *ret_ptr = ptr_of(u, u->filled);
        if (!has_pages_locked(u, *ret_ptr, least(left, at_once(u))))
            return 0;
        u->room = least(left, at_once(u));
        u->touched = true;
        return 1;
    }
    if (!u->pipe.filling && !gb_upload_begin_slot_locked(u))
        return 0;
    f = u->pipe.filling;
    *ret_ptr = (char *)f->slot + f->bytes;
    u->room = least(left, u->pipe.filling_max - f->bytes);
    return 1;
}

int gb_upload_room(struct gb_upload *upload, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r;

    if (!upload->pipe.filling)
        gb_upload_reap(upload);
    if (upload->role->grows && gb_upload_grow(upload, err) < 0)
        return -1;
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

bool gb_upload_room_ahead(struct gb_upload *u, unsigned number, void **ret_ptr, size_t *ret_n) {
    size_t each = u->plan.direct ? at_once(u) : u->pipe.filling_max;
    uint64_t at = u->filled + u->room + (number - 1) * (uint64_t)each;
    bool given;

    if (at >= gb_upload_reach(u) || u->plan.scattered || u->room == 0)
        return false;
    if (u->plan.direct) {
        *ret_ptr = ptr_of(u, at);
        *ret_n = least(gb_upload_reach(u) - at, each);
        return true;
    }
    pthread_mutex_lock(&u->t.lock);
    given = u->pipe.filling->bytes + u->room == each && gb_upload_begin_ahead_locked(u, number);
    pthread_mutex_unlock(&u->t.lock);
    if (!given)
        return false;
    *ret_ptr = u->pipe.ahead[number - 1]->slot;
    *ret_n = least(gb_upload_reach(u) - at, each);
    return true;
}

/* Where the room is that was given last; not of one whose bytes are scattered. */
static const char *room_ptr(const struct gb_upload *u) {
    const struct gb_staged_copy *f = u->pipe.filling;

    return f ? (char *)f->slot + f->bytes : ptr_of(u, u->filled);
}

int gb_upload_fill(struct gb_upload *upload, size_t n, struct gb_error *err) {
    uint64_t at = upload->filled;

    if (n > upload->room)
        return gb_error_set(err, GB_ERR_INTERNAL, "%zu bytes were filled into a room of %zu", n, upload->room);
    if (upload->disk.kept)
        gb_write_through_keep(upload, room_ptr(upload), n);
    upload->filled += n;
    upload->room -= n;
    if (upload->pipe.filling)
        return gb_upload_fill_slot(upload, n, err);
    if (upload->plan.scattered) {
        upload->crc = gb_crc32c(upload->crc, upload->scratch + upload->scratch_n, n);
        gb_scatter_fill(upload, n);
    } else {
        if (!upload->role->summed)
            upload->crc = gb_crc32c(upload->crc, ptr_of(upload, at), n);
        if (upload->disk.tee)
            gb_write_through_filled(upload);
    }
    return 0;
}

int gb_upload_copy_in(struct gb_upload *upload, const void *bytes, size_t n, size_t *done, struct gb_error *err) {
    size_t size;
    void *room;
    int r;

    while (*done < n) {
        r = gb_upload_room(upload, &room, &size, err);
        if (r <= 0)
            return r;
        size = least(size, n - *done);
        memcpy(room, (const char *)bytes + *done, size);
        if (gb_upload_fill(upload, size, err) < 0)
            return -1;
        *done += size;
    }
    return 1;
}

void gb_upload_pause(struct gb_upload *upload, bool stalled) {
    struct gb_staged_copy *f = upload->pipe.filling;

    if (stalled)
        (void)gb_upload_watch_rest(upload, NULL); /* a failure is recorded in the upload */
    if (!f || !gb_slots_wanted(&upload->t.core->slots))
        return;
    if (f->bytes > 0 && !stalled && gb_clock_ns() - upload->pipe.filling_ns < HOLD_NS)
        return;
    upload->room = 0;
    if (f->bytes > 0)
        (void)gb_upload_flush(upload, NULL);
    else
        gb_upload_drop_slot(upload);
}
