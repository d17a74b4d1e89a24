/* Leases in memory: holders, the table, and what a content has of them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/buffer/guard.h"
#include "core/share/adoption.h"

/* --- holders ------------------------------------------------------------------------------------------------------ */

void gb_holder_ref(struct gb_holder *holder) {
    atomic_fetch_add(&holder->refs, 1);
}

void gb_holder_unref(struct gb_holder *holder) {
    if (holder && atomic_fetch_sub(&holder->refs, 1) == 1)
        free(holder);
}

int gb_holder_new(struct gb_core *core, pid_t pid, uid_t uid, gid_t gid, struct gb_holder **ret, struct gb_error *err) {
    struct gb_holder *holder = calloc(1, sizeof(*holder));

    if (!holder)
        return gb_no_memory(err);
    atomic_init(&holder->refs, 1);
    holder->core = core;
    holder->id = atomic_fetch_add(&core->leases->last_holder, 1) + 1;
    holder->pid = pid;
    holder->uid = uid;
    holder->gid = gid;
    TAILQ_INIT(&holder->leases);
    TAILQ_INIT(&holder->adoptions);
    *ret = holder;
    return 0;
}

uint64_t gb_holder_id(const struct gb_holder *holder) {
    return holder->id;
}

bool gb_holder_maps(struct gb_holder *holder) {
    struct gb_leases *table = holder->core->leases;
    bool maps;

    pthread_mutex_lock(&table->lock);
    maps = holder->count > 0 || holder->adopted > 0;
    pthread_mutex_unlock(&table->lock);
    return maps;
}

/* A lease that the holder's end has not reached yet, with a reference. */
static struct gb_lease *next_of(struct gb_holder *holder) {
    struct gb_leases *table = holder->core->leases;
    struct gb_lease *lease;

    pthread_mutex_lock(&table->lock);
    holder->ended = true;
    lease = TAILQ_FIRST(&holder->leases);
    if (lease) {
        TAILQ_REMOVE(&holder->leases, lease, of_holder);
        lease->listed = false;
        gb_lease_ref(lease);
    }
    pthread_mutex_unlock(&table->lock);
    return lease;
}

void gb_holder_end(struct gb_holder *holder) {
    struct gb_lease *lease;

    if (!holder)
        return;
    while ((lease = next_of(holder))) {
        gb_lease_close(lease, false);
        gb_lease_unref(lease);
    }
    gb_adoptions_end(holder);
    gb_holder_unref(holder);
}

/* --- one lease ---------------------------------------------------------------------------------------------------- */

struct gb_lease *gb_lease_ref(struct gb_lease *lease) {
    atomic_fetch_add(&lease->refs, 1);
    return lease;
}

void gb_lease_unref(struct gb_lease *lease) {
    if (!lease || atomic_fetch_sub(&lease->refs, 1) != 1)
        return;
    gb_holder_unref(lease->holder);
    if (lease->transaction)
        gb_transaction_done(&lease->transaction->transaction);
    free(lease->transaction);
    gb_session_unref(lease->session);
    free(lease);
}

static bool has(const struct gb_buffer *b, const struct gb_content *c) {
    int i;

    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        if (gb_buffer_content_at(b, i) == c)
            return true;
    }
    return false;
}

struct gb_buffer *gb_lease_buffer_locked(const struct gb_lease *lease) {
    struct gb_buffer *b = gb_map_get(&lease->session->buffers, lease->buffer.s);

    return b && b->live && b->id == lease->buffer_id && has(b, lease->content) ? b : NULL;
}

struct gb_buffer *gb_lease_current_locked(const struct gb_lease *lease, enum gb_head *ret_head) {
    struct gb_buffer *b = gb_lease_buffer_locked(lease);
    enum gb_side side;

    if (!b || b->rec.state != GB_BUFFER_READY)
        return NULL;
    *ret_head = b->rec.head;
    if (!b->rec.mirrored)
        return b;
    side = b->sides[GB_SIDE_HOST] == lease->content ? GB_SIDE_HOST : GB_SIDE_DEVICE;
    *ret_head = gb_mirror_move(b->rec.head, gb_mirror_write(side, false)).next;
    return *ret_head == b->rec.head || b->rec.head == GB_HEAD_SYNCED ? b : NULL;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

struct gb_leases *gb_leases_new(void) {
    struct gb_leases *leases = calloc(1, sizeof(*leases));

    if (!leases)
        return NULL;
    gb_mutex_init(&leases->lock);
    leases->last_id = gb_wall_us();
    return leases;
}

void gb_leases_free(struct gb_leases *leases) {
    if (!leases)
        return;
    gb_idlist_done(&leases->by_id);
    pthread_mutex_destroy(&leases->lock);
    free(leases);
}

void gb_leases_end(struct gb_core *core) {
    struct gb_lease *lease;
    int64_t id = 0;

    do {
        pthread_mutex_lock(&core->leases->lock);
        lease = gb_idlist_after(&core->leases->by_id, id, &id);
        if (lease)
            gb_lease_ref(lease);
        pthread_mutex_unlock(&core->leases->lock);
        if (lease)
            gb_lease_close(lease, false);
        gb_lease_unref(lease);
    } while (lease);
}

/* The table's lock is held. */
static int enter(struct gb_leases *table, struct gb_lease *lease, struct gb_error *err) {
    const struct gb_core_config *config = &lease->core->config;
    struct gb_holder *holder = lease->holder;
    uint64_t max = config->leases_max ? config->leases_max : GB_LEASES_MAX;
    uint64_t mine = config->holder_leases_max ? config->holder_leases_max : GB_HOLDER_LEASES_MAX;

    if (holder->ended)
        return gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended, and its leases with it");
    if (holder->count >= mine)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "this connection has %llu leases, the permitted number; end one first",
                            (unsigned long long)holder->count);
    if (table->by_id.count >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "there are %zu leases, the permitted number",
                            table->by_id.count);
    if (lease->pin.ttl_s > 0 && table->exports >= GB_EXPORTS_MAX)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "there are %llu exports, the permitted number; end one, or wait until one's time is over",
                            (unsigned long long)table->exports);
    if (gb_idlist_put(&table->by_id, table->last_id + 1, lease) < 0)
        return gb_no_memory(err);
    lease->pin.id = ++table->last_id;
    TAILQ_INSERT_TAIL(&holder->leases, lease, of_holder);
    lease->listed = true;
    holder->count++;
    table->exports += lease->pin.ttl_s > 0;
    table->timed += gb_lease_span_s(lease) > 0;
    return 0;
}

int gb_lease_enroll_locked(struct gb_lease *lease, struct gb_error *err) {
    struct gb_leases *table = lease->core->leases;
    struct gb_content *c = lease->content;
    int r;

    pthread_mutex_lock(&table->lock);
    r = enter(table, lease, err);
    pthread_mutex_unlock(&table->lock);
    if (r < 0)
        return -1;
    lease->since_us = gb_wall_us();
    gb_content_pin_locked(c, &lease->pin);
    lease->session->leases++;
    gb_guard_count_locked(gb_lease_buffer_locked(lease));
    return 0;
}

static void leave(struct gb_leases *table, struct gb_lease *lease) {
    pthread_mutex_lock(&table->lock);
    gb_idlist_take(&table->by_id, lease->pin.id);
    if (lease->listed)
        TAILQ_REMOVE(&lease->holder->leases, lease, of_holder);
    lease->listed = false;
    lease->holder->count--;
    table->exports -= lease->pin.ttl_s > 0;
    table->timed -= gb_lease_span_s(lease) > 0;
    pthread_mutex_unlock(&table->lock);
}

/* Drops a reference that is not the last. */
static bool drop_one(struct gb_content *c) {
    unsigned n = atomic_load(&c->refs);

    while (n > 1 && !atomic_compare_exchange_weak(&c->refs, &n, n - 1))
        ;
    return n > 1;
}

bool gb_lease_withdraw_locked(struct gb_lease *lease) {
    struct gb_content *c = lease->content;
    struct gb_buffer *b;

    leave(lease->core->leases, lease);
    gb_content_unpin_locked(c, &lease->pin);
    lease->session->leases--;
    lease->step = GB_LEASE_OVER;
    b = gb_lease_buffer_locked(lease);
    if (b)
        gb_guard_count_locked(b);
    /* At once: a count of references under this lock then equals the number of users. */
    return drop_one(c);
}

/* --- notices ------------------------------------------------------------------------------------------------------ */

void gb_notice_post_lease(const struct gb_lease *lease, enum gb_notice_type type) {
    struct gb_notice n = gb_notice_of(lease->session, type);

    n.buffer = lease->buffer;
    n.lease = lease->pin.id;
    snprintf(n.detail, sizeof(n.detail), "%s", lease->pin.write ? "for writing" : "for reading");
    gb_notice_post(lease->core, &n);
}
