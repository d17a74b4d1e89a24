#include "core/buffer/guard.h"

#include <stdio.h>

#include "core/share/lease_internal.h"

/* The oldest lease of the buffer, for writing if so asked for; NULL when there is none. *ret_others: how many besides it. */
static const struct gb_lease *oldest(const struct gb_buffer *b, bool writers, unsigned *ret_others) {
    const struct gb_lease *found = NULL;
    const struct gb_lease *lease;
    unsigned count = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (!c || (writers ? c->lease_writers : c->lease_count) == 0)
            continue;
        count += writers ? c->lease_writers : c->lease_count;
        TAILQ_FOREACH(lease, &c->leases, of_content) {
            if ((lease->write || !writers) && (!found || lease->id < found->id))
                found = lease;
            if (lease->write || !writers)
                break;
        }
    }
    *ret_others = count > 0 ? count - 1 : 0;
    return found;
}

static int refuse(const struct gb_buffer *b, const struct gb_lease *lease, unsigned others, const char *instead,
                  struct gb_error *err) {
    char more[32] = "";

    if (others > 0)
        snprintf(more, sizeof(more), " and %u more", others);
    if (lease->ttl_s > 0)
        return gb_error_set(err, GB_ERR_MAPPED, "\"%s\" is exported by lease %lld (for %llu s, for %s)%s: %s", b->name,
                            (long long)lease->id, (unsigned long long)lease->ttl_s,
                            lease->write ? "writing" : "reading", more, instead);
    return gb_error_set(err, GB_ERR_MAPPED, "\"%s\" is mapped by lease %lld (process %ld of user %ld, for %s)%s: %s",
                        b->name, (long long)lease->id, (long)lease->holder->pid, (long)lease->holder->uid,
                        lease->write ? "writing" : "reading", more, instead);
}

int gb_guard_check_unmapped_locked(const struct gb_buffer *b, const char *instead, struct gb_error *err) {
    unsigned others;
    const struct gb_lease *lease = b->rec.leases > 0 ? oldest(b, false, &others) : NULL;

    return lease ? refuse(b, lease, others, instead, err) : 0;
}

bool gb_guard_mapped_by_locked(const struct gb_content *c, uint64_t holder) {
    const struct gb_lease *lease;

    TAILQ_FOREACH(lease, &c->leases, of_content) {
        if (lease->holder->id != holder)
            return false;
    }
    return true;
}

int gb_guard_check_writers_locked(const struct gb_buffer *b, struct gb_error *err) {
    unsigned others;
    const struct gb_lease *lease = b->rec.leases > 0 ? oldest(b, true, &others) : NULL;

    if (lease)
        return refuse(b, lease, others, "wait until it has ended", err);
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
                        s->name.s, (unsigned long long)s->leases);
}

uint64_t gb_guard_mapped_bytes_locked(const struct gb_buffer *b) {
    uint64_t bytes = 0;
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        bytes += c && c->lease_count > 0 ? c->bytes : 0;
    }
    return bytes;
}

/* A side that is not current is written anew before anybody reads it. */
static bool stale(const struct gb_buffer *b, int i) {
    return b->rec.mirrored && ((i == GB_SIDE_HOST && b->rec.head == GB_HEAD_DEVICE) ||
                               (i == GB_SIDE_DEVICE && b->rec.head == GB_HEAD_HOST));
}

void gb_guard_count_locked(struct gb_buffer *b) {
    int i;

    b->rec.leases = 0;
    b->rec.mapped_for_writing = false;
    b->rec.tainted = false;
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        b->rec.leases += c ? c->lease_count : 0;
        b->rec.mapped_for_writing |= c && c->lease_writers > 0;
        b->rec.tainted |= c && c->tainted && !stale(b, i);
    }
}

void gb_guard_tell_locked(const struct gb_buffer *b, struct gb_buffer_rec *ret) {
    ret->leases = b->rec.leases;
    ret->mapped_for_writing = b->rec.mapped_for_writing;
    ret->tainted = b->rec.tainted;
}

void gb_guard_detached_locked(struct gb_content *c) {
    if (c->lease_count == 0)
        return;
    c->held = true;
    c->session->held_bytes += c->bytes;
    atomic_fetch_add(&c->session->core->leases.held_bytes, c->bytes);
}
