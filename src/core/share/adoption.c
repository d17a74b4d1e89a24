#include "core/share/adoption.h"

#include <stdlib.h>

#include "core/share/adopt.h"

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void adoption_unref(struct gb_adoption *adoption) {
    if (atomic_fetch_sub(&adoption->refs, 1) != 1)
        return;
    gb_holder_unref(adoption->holder);
    gb_session_unref(adoption->session);
    free(adoption);
}

/* The table's lock is held. */
static int enter(struct gb_leases *table, struct gb_adoption *adoption, struct gb_error *err) {
    const struct gb_core_config *config = &adoption->core->config;
    struct gb_holder *holder = adoption->holder;
    uint64_t max = config->adopted_max ? config->adopted_max : GB_ADOPTED_MAX;
    uint64_t bytes = config->adopted_bytes_max ? config->adopted_bytes_max : GB_ADOPTED_BYTES_MAX;
    uint64_t mine = config->holder_adopted_max ? config->holder_adopted_max : GB_HOLDER_ADOPTED_MAX;

    if (holder->ended)
        return gb_error_set(err, GB_ERR_CANCELLED, "the connection has ended, and with it what it would own");
    if (holder->adopted >= mine)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "this connection has %llu adopted buffers, the permitted number; delete one first, or use "
                            "another connection",
                            (unsigned long long)holder->adopted);
    if (table->adopted >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "there are %llu adopted buffers, the permitted number (--max-adopted)",
                            (unsigned long long)table->adopted);
    if (adoption->host_bytes > bytes || table->adopted_bytes > bytes - adoption->host_bytes) {
        gb_error_set(err, GB_ERR_LIMIT_REACHED,
                     "%llu bytes of other processes' memory are adopted, and %llu is the permitted number "
                     "(--max-adopted-bytes); delete adopted buffers first",
                     (unsigned long long)table->adopted_bytes, (unsigned long long)bytes);
        gb_error_numbers(err, bytes, table->adopted_bytes, adoption->host_bytes);
        return -1;
    }
    TAILQ_INSERT_TAIL(&holder->adoptions, adoption, of_holder);
    adoption->listed = true;
    holder->adopted++;
    table->adopted++;
    table->adopted_bytes += adoption->host_bytes;
    return 0;
}

int gb_adoption_new_locked(struct gb_session *session, struct gb_holder *holder, const struct gb_name *buffer,
                           uint64_t host_bytes, struct gb_content *content, struct gb_error *err) {
    struct gb_adoption *adoption = calloc(1, sizeof(*adoption));
    struct gb_leases *table = session->core->leases;
    int r;

    if (!adoption)
        return gb_no_memory(err);
    atomic_init(&adoption->refs, 2);
    adoption->core = session->core;
    adoption->holder = holder;
    adoption->buffer = *buffer;
    adoption->host_bytes = host_bytes;
    pthread_mutex_lock(&table->lock);
    r = enter(table, adoption, err);
    pthread_mutex_unlock(&table->lock);
    if (r < 0) {
        free(adoption);
        return -1;
    }
    gb_holder_ref(holder);
    adoption->session = gb_session_ref(session);
    session->adopted++;
    content->owner = adoption;
    content->on_freed = gb_adoption_over;
    return 0;
}

uint64_t gb_leases_adopted(struct gb_leases *leases) {
    uint64_t n;

    pthread_mutex_lock(&leases->lock);
    n = leases->adopted;
    pthread_mutex_unlock(&leases->lock);
    return n;
}

/* Whether the list's reference is the caller's now. */
static bool unlist(struct gb_adoption *adoption) {
    bool listed = adoption->listed;

    if (listed)
        TAILQ_REMOVE(&adoption->holder->adoptions, adoption, of_holder);
    adoption->listed = false;
    return listed;
}

void gb_adoption_over(void *arg) {
    struct gb_adoption *adoption = arg;
    struct gb_leases *table;
    bool listed;

    if (!adoption)
        return;
    table = adoption->core->leases;
    pthread_mutex_lock(&adoption->session->lock);
    adoption->session->adopted--;
    pthread_mutex_unlock(&adoption->session->lock);
    gb_session_touch(adoption->session); /* until now it was in use */
    pthread_mutex_lock(&table->lock);
    listed = unlist(adoption);
    adoption->holder->adopted--;
    table->adopted--;
    table->adopted_bytes -= adoption->host_bytes;
    pthread_mutex_unlock(&table->lock);
    gb_core_changed(adoption->core);
    if (listed)
        adoption_unref(adoption);
    adoption_unref(adoption);
}

/* --- the owner goes ----------------------------------------------------------------------------------------------- */

/* An adoption that the holder's end has not reached yet, with the list's reference. */
static struct gb_adoption *next_of(struct gb_holder *holder) {
    struct gb_leases *table = holder->core->leases;
    struct gb_adoption *adoption;

    pthread_mutex_lock(&table->lock);
    holder->ended = true;
    adoption = TAILQ_FIRST(&holder->adoptions);
    if (adoption)
        unlist(adoption);
    pthread_mutex_unlock(&table->lock);
    return adoption;
}

/* Takes the owner's memory from the buffer. Returns the contents to be dropped. */
static struct gb_content *take_locked(struct gb_session *s, struct gb_buffer *b, const struct gb_adoption *adoption) {
    int side;

    for (side = 0; side < GB_SIDES; side++) {
        if (b->sides[side] && b->sides[side]->owner == adoption)
            return gb_buffer_lose_side_locked(s, b, side);
    }
    return b->content && b->content->owner == adoption ? gb_buffer_lose_locked(s, b) : NULL;
}

static void cut(struct gb_adoption *adoption) {
    struct gb_session *s = adoption->session;
    struct gb_content *lost = NULL;
    struct gb_content *next;
    struct gb_buffer_rec rec;
    struct gb_notice notice;
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    adoption->cut = true;
    b = gb_map_get(&s->buffers, adoption->buffer.s);
    if (b && b->live)
        lost = take_locked(s, b, adoption);
    if (lost) {
        gb_buffer_look_locked(b, &rec);
        notice = gb_notice_of_buffer(s, &rec,
                                     rec.state == GB_BUFFER_LOST ? GB_NOTICE_BUFFER_LOST : GB_NOTICE_BUFFER_CHANGED);
        gb_notice_post(s->core, &notice);
    }
    pthread_mutex_unlock(&s->lock);
    for (; lost; lost = next) { /* this may be a thread that must not wait for a device */
        next = lost->next;
        gb_content_drop_later(lost);
    }
    gb_core_changed(adoption->core);
    adoption_unref(adoption);
}

void gb_adoptions_end(struct gb_holder *holder) {
    struct gb_adoption *adoption;

    while ((adoption = next_of(holder)))
        cut(adoption);
}
