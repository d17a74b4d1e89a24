#include "core/buffer/guard.h"

#include <stdio.h>

/* The oldest pin on the buffer, for writing if so asked for; NULL if there is none. *ret_others: how many besides
 * it. */
static const struct gb_pin *oldest(const struct gb_buffer *b, bool writers, unsigned *ret_others) {
    const struct gb_pin *found = NULL;
    const struct gb_pin *pin;
    unsigned count = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (!c || (writers ? c->pin_writers : c->pin_count) == 0)
            continue;
        count += writers ? c->pin_writers : c->pin_count;
        TAILQ_FOREACH(pin, &c->pins, link) {
            if ((pin->write || !writers) && (!found || pin->id < found->id))
                found = pin;
            if (pin->write || !writers)
                break;
        }
    }
    *ret_others = count > 0 ? count - 1 : 0;
    return found;
}

static int refuse(const struct gb_buffer *b, const struct gb_pin *pin, unsigned others, const char *instead,
                  struct gb_error *err) {
    char more[32] = "";

    if (others > 0)
        snprintf(more, sizeof(more), " and %u more", others);
    if (pin->ttl_s > 0)
        return gb_error_set(err, GB_ERR_MAPPED, "\"%s\" is exported by lease %lld (for %llu s, for %s)%s: %s", b->name,
                            (long long)pin->id, (unsigned long long)pin->ttl_s, pin->write ? "writing" : "reading",
                            more, instead);
    return gb_error_set(err, GB_ERR_MAPPED, "\"%s\" is mapped by lease %lld (process %ld of user %ld, for %s)%s: %s",
                        b->name, (long long)pin->id, (long)pin->pid, (long)pin->uid, pin->write ? "writing" : "reading",
                        more, instead);
}

int gb_guard_check_unmapped_locked(const struct gb_buffer *b, const char *instead, struct gb_error *err) {
    unsigned others;
    const struct gb_pin *pin = b->rec.leases > 0 ? oldest(b, false, &others) : NULL;

    return pin ? refuse(b, pin, others, instead, err) : 0;
}

bool gb_guard_mapped_by_locked(const struct gb_content *c, uint64_t holder) {
    const struct gb_pin *pin;

    TAILQ_FOREACH(pin, &c->pins, link) {
        if (pin->holder != holder)
            return false;
    }
    return true;
}

int gb_guard_check_writers_locked(const struct gb_buffer *b, struct gb_error *err) {
    unsigned others;
    const struct gb_pin *pin = b->rec.leases > 0 ? oldest(b, true, &others) : NULL;

    if (pin)
        return refuse(b, pin, others, "wait until it has ended", err);
    if (!b->rec.tainted)
        return 0;
    return gb_error_set(
        err, GB_ERR_ESCAPED,
        "a lease for writing \"%s\" was ended from outside, and its process may write on: upload it whole "
        "again, without in_place",
        b->name);
}

int gb_guard_check_unsealed_locked(const struct gb_buffer *b, struct gb_error *err) {
    if (!b->rec.sealed)
        return 0;
    return gb_error_set(err, GB_ERR_SEALED,
                        "\"%s\" is sealed: its bytes never change. Use another name, or delete it first", b->name);
}

int gb_guard_check_session_locked(const struct gb_session *s, struct gb_error *err) {
    if (s->leases == 0)
        return 0;
    return gb_error_set(err, GB_ERR_MAPPED,
                        "other processes map bytes of session \"%s\" (leases: %llu); wait until they have ended",
                        gb_session_told(s)->s, (unsigned long long)s->leases);
}

uint64_t gb_guard_mapped_bytes_locked(const struct gb_buffer *b) {
    uint64_t bytes = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        bytes += c && c->pin_count > 0 ? c->bytes : 0;
    }
    return bytes;
}

/* A side that is not current is written anew before it is read. */
static bool stale(const struct gb_buffer *b, int i) {
    return b->rec.mirrored && ((i == GB_SIDE_HOST && b->rec.head == GB_HEAD_DEVICE) ||
                               (i == GB_SIDE_DEVICE && b->rec.head == GB_HEAD_HOST));
}

static bool has_foreign_side(const struct gb_buffer *b) {
    return (b->sides[GB_SIDE_HOST] && b->sides[GB_SIDE_HOST]->owner) ||
           (b->sides[GB_SIDE_DEVICE] && b->sides[GB_SIDE_DEVICE]->owner);
}

void gb_guard_count_locked(struct gb_buffer *b) {
    int i;

    b->rec.leases = 0;
    b->rec.mapped_for_writing = false;
    b->rec.tainted = false;
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        b->rec.leases += c ? c->pin_count : 0;
        b->rec.mapped_for_writing |= c && c->pin_writers > 0;
        b->rec.tainted |= c && c->tainted && !stale(b, i);
    }
    if (b->rec.mirrored && b->rec.state != GB_BUFFER_LOST)
        b->rec.adopted = has_foreign_side(b);
}

void gb_guard_tell_locked(const struct gb_buffer *b, struct gb_buffer_rec *ret) {
    ret->leases = b->rec.leases;
    ret->mapped_for_writing = b->rec.mapped_for_writing;
    ret->tainted = b->rec.tainted;
    if (b->rec.mirrored)
        ret->adopted = b->rec.adopted;
    gb_buffer_look_sides_locked(b, ret->sides);
}

int gb_adopted_check_locked(const struct gb_buffer *b, const char *what, struct gb_error *err) {
    if (has_foreign_side(b))
        return gb_error_set(err, GB_ERR_ADOPTED, "one side of \"%s\" is memory of another process: %s", b->name, what);
    if (!b->content || !b->content->owner)
        return 0;
    return gb_error_set(err, GB_ERR_ADOPTED, "the bytes of \"%s\" are in memory of another process: %s", b->name, what);
}

int gb_lost(const struct gb_buffer *b, struct gb_error *err) {
    if (b->rec.adopted)
        return gb_error_set(err, GB_ERR_CONTENT_LOST,
                            "the bytes of \"%s\" were in memory of another process, whose connection has ended; adopt "
                            "or upload it again",
                            b->name);
    return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes of \"%s\" are lost; upload it again", b->name);
}

int gb_guard_check_settled_locked(const struct gb_buffer *b, const char *adopted, struct gb_error *err) {
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_lost(b, err);
    if (gb_adopted_check_locked(b, adopted, err) < 0)
        return -1;
    return gb_guard_check_writers_locked(b, err);
}
