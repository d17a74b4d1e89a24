#include "core/buffer/transaction_disk.h"

/* The bytes that the buffer is to have. NULL: a mirrored buffer that was never written. */
static const struct gb_content *bytes_of(const struct gb_transaction *c) {
    const struct gb_buffer *b = c->buffer;

    if (c->content)
        return c->content;
    if (!c->rec.mirrored)
        return b->content;
    return gb_side_current(c->rec.head, GB_SIDE_DEVICE) ? b->sides[GB_SIDE_DEVICE] : b->sides[GB_SIDE_HOST];
}

/* The bytes are on disk already, as safe as they are to be. */
static bool has_bytes(const struct gb_transaction *c) {
    const struct gb_stored *stored = c->buffer->stored;

    if (c->warms)
        return stored && stored->block;
    if (stored && stored->in_host)
        return false;
    /* A load has no better bytes than the disk has, until it has ended. */
    return stored && stored->rec.generation == c->rec.generation && (c->spills || !stored->spilled) &&
           (c->buffer->rec.state == GB_BUFFER_STORED || !atomic_load(&stored->damaged));
}

/* Host memory alone has the bytes. NULL: it has not. */
static struct gb_host_block *block_of(const struct gb_transaction *c) {
    const struct gb_stored *stored = c->buffer->stored;

    return !c->brings && c->rec.state == GB_BUFFER_STORED && stored && stored->in_host ? stored->block : NULL;
}

static void plan_persist_locked(struct gb_transaction *c) {
    const struct gb_content *content = c->brings ? NULL : bytes_of(c);

    c->persist.session = c->session;
    c->persist.content = content ? gb_content_ref((struct gb_content *)(uintptr_t)content) : NULL;
    c->persist.block = gb_host_block_ref(block_of(c));
    c->persist.rec = &c->rec;
    c->persist.spills = c->spills;
    c->persist.strictly = c->strictly;
    c->persist.tee = c->tee && gb_tee_buffer_id(c->tee) == c->rec.id ? c->tee : NULL;
    if (!c->spills) {
        c->persist.data = c->kept;
        c->kept = NULL;
    }
}

int gb_transaction_plan_disk_locked(struct gb_transaction *c, struct gb_error *err) {
    const struct gb_buffer *b = c->buffer;
    const struct gb_stored *stored = b->stored;
    enum gb_durability was = b->live ? b->rec.durability : GB_DURABILITY_NONE;
    bool stores = c->rec.durability == GB_DURABILITY_SYNC || c->stores || c->with_others;

    c->persist = (struct gb_persist){.stored = NULL};
    c->durable = was == GB_DURABILITY_SYNC || (was != GB_DURABILITY_NONE && c->removes);
    c->forgets = c->drops = c->persists = c->asked = false;
    c->stored_more = 0;
    if (c->removes)
        return 0;
    c->forgets = stored && !stored->spilled && c->rec.durability == GB_DURABILITY_NONE;
    c->drops = stored && stored->spilled && stored->rec.generation != c->rec.generation;
    c->durable |= stores || c->forgets || c->brings;
    c->persists =
        c->brings || ((stores || c->spills) && (c->rec.state == GB_BUFFER_READY || block_of(c)) && !has_bytes(c));
    if (!c->persists)
        return 0;
    c->stored_more = c->warms ? 0 : gb_buffer_more_stored(b, c->rec.bytes);
    if (gb_quota_take_stored_locked(c->session, c->stored_more, err) < 0) {
        c->stored_more = 0;
        return -1;
    }
    plan_persist_locked(c);
    return 0;
}

bool gb_transaction_writes(const struct gb_transaction *c) {
    return c->persists && !c->spills;
}

bool gb_transaction_is_new_locked(const struct gb_transaction *c) {
    return !c->removes && (!c->buffer->live || c->rec.generation != c->buffer->rec.generation);
}

/* That of a member whose bytes were to be stored later. */
int gb_transaction_write_too_locked(struct gb_transaction *c, struct gb_error *err) {
    if (c->persists || c->rec.durability == GB_DURABILITY_NONE || !gb_transaction_is_new_locked(c))
        return 0;
    c->with_others = true;
    return gb_transaction_plan_disk_locked(c, err);
}

void gb_transaction_drop_disk_locked(struct gb_transaction *c) {
    gb_quota_give_stored_locked(c->session, c->stored_more);
    c->stored_more = 0;
}

void gb_transaction_take_checksum_locked(struct gb_transaction *c) {
    const struct gb_content *content = bytes_of(c);

    if (!c->persist.stored || c->persist.stored->in_host ||
        (content && (content->pin_writers > 0 || content->tainted || content->owner)))
        return;
    c->rec.has_crc32c = true;
    c->rec.crc32c = c->persist.stored->rec.crc32c;
}

struct gb_store_edit gb_transaction_edit(struct gb_transaction *c) {
    c->asked = true;
    return (struct gb_store_edit){.rec = &c->rec,
                                  .removes = c->removes,
                                  .durable = c->durable,
                                  .forgets = c->forgets,
                                  .stored = c->persist.stored ? &c->persist.stored->rec : NULL,
                                  .data = c->persist.data};
}

void gb_transaction_publish_stored_locked(struct gb_transaction *c) {
    struct gb_buffer *b = c->buffer;

    gb_transaction_drop_disk_locked(c);
    if (c->warms) {
        gb_buffer_warm_locked(b, c->persist.stored);
        c->persist.stored = NULL;
    } else if (c->persist.stored || c->forgets || c->drops || c->removes) {
        gb_buffer_set_stored_locked(c->session, b, c->persist.stored);
        c->persist.stored = NULL;
    }
    c->rec.stored_generation = b->stored && !b->stored->spilled ? b->stored->rec.generation : 0;
}

/* Where another member's bytes could not be written the database was never asked. */
void gb_transaction_end_disk(struct gb_transaction *c, const struct gb_error *error) {
    if (c->persists)
        gb_persist_done(&c->persist, error->code == GB_OK, c->asked && error->code == GB_ERR_STORAGE_FAILED);
}
