/* Scrubs: passes over all files of bytes that compare their checksums, at a limited rate. Damage is reported, and bytes
 * that memory still has are stored again. A pass runs on the scrubber's thread, which the core starts; handlers begin
 * passes. */
#include "core/durable/scrub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/checkpoint/checkpoint.h"
#include "core/durable/stored.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"

/* A pass. All functions are called on the scrubber's thread, and without a lock. */

struct gb_scrub {
    struct gb_core *core;
    unsigned char *room;   /* aligned; of GB_STORED_BLOCK_BYTES */
    struct gb_idlist read; /* files of several names that were read in this pass, and are sound: by their inodes */
};

/* Opening a file counts as that many bytes, so that many small files take no more of the CPU than few large ones. */
#define GB_SCRUB_OPENING_BYTES (256u * 1024u)

/* --- heal --------------------------------------------------------------------------------------------------------- */

/* Damaged files are written again from memory. The buffer keeps its generation and its entity tags: the bytes are those
 * that it had, which their checksum shows. */

struct heal {
    struct gb_buffer_op base;
    struct gb_stored *stored; /* the damaged one; a reference */
};

static struct heal *heal_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct heal, base);
}

static int check_locked(const struct heal *heal, const struct gb_buffer *b, struct gb_error *err) {
    if (b->stored != heal->stored || b->rec.state != GB_BUFFER_READY ||
        b->rec.generation != heal->stored->rec.generation)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "memory has not the bytes of generation %lld",
                            (long long)heal->stored->rec.generation);
    return gb_guard_check_complete_locked(b, "they are never written to disk", err);
}

/* Bytes read from memory must have the checksum that was written. */
static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct heal *heal = heal_of(transaction);

    if (gb_buffer_op_check_locked(&heal->base, b, err) < 0 || check_locked(heal, b, err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->rec.has_crc32c = true;
    transaction->rec.crc32c = heal->stored->rec.crc32c;
    transaction->spills = heal->stored->spilled ? GB_SPILL_DISK : GB_SPILL_NEVER;
    transaction->unrecorded = heal->stored->spilled;
    transaction->stores = !heal->stored->spilled;
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct heal *heal = heal_of(transaction);
    struct gb_session *s = transaction->session;
    struct gb_notice notice;

    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(s, b, &transaction->rec, b->content);
    gb_buffer_copy_locked(b, &heal->base.call->buffer);
    heal->base.call->copied = true;
    atomic_store(&heal->stored->set_aside, true);
    notice = gb_notice_of_buffer(s, &transaction->rec, GB_NOTICE_BUFFER_HEALED);
    gb_notice_post(s->core, &notice);
}

static void heal_end(struct gb_transaction *transaction) {
    struct heal *heal = heal_of(transaction);

    gb_stored_unref(heal->stored);
    gb_buffer_op_end(&heal->base, &transaction->error);
}

/* Writes the stored bytes of the buffer again, from memory, if it still has them there: a new file in the same
 * generation. The damaged one goes to DIR/damaged. call->copied: it was done. Takes its own references. Errors:
 * CONTENT_LOST if memory has not these bytes; those of gb_buffer_store. */
static void scrub_heal(struct gb_session *session, const struct gb_name *buffer, struct gb_stored *stored,
                       struct gb_buffer_call *call) {
    struct heal *heal = gb_buffer_op_new_in(sizeof(*heal), gb_session_ref(session), buffer, NULL, call);

    if (!heal)
        return;
    heal->stored = gb_stored_ref(stored);
    heal->base.transaction.validate_locked = validate_locked;
    heal->base.transaction.publish_locked = publish_locked;
    heal->base.transaction.end = heal_end;
    heal->base.transaction.upkeep = true;
    gb_transaction_start(&heal->base.transaction);
}

/* --- scrub -------------------------------------------------------------------------------------------------------- */

/* Scrubs: each file of buffers' bytes is read and compared with the checksums of its blocks, at a bounded rate; then
 * those of checkpoints. The thread holds no lock while it reads or waits. */

/* A pass that cannot begin, or breaks off, is tried again no sooner. */
#define RETRY_S 3600

struct waiter {
    struct gb_scrub_call *call;
    struct waiter *next;
};

struct gb_scrubber {
    pthread_mutex_t lock;   /* a leaf, for all below */
    pthread_cond_t changed; /* over, the pace, healing */
    pthread_t thread;
    bool made; /* the thread is to be joined */
    bool over; /* the daemon stops */
    bool healing;
    struct gb_pace pace;
    struct gb_scrub_numbers numbers;
    size_t listed_count; /* of the pass */
    struct gb_scrub_find listed[GB_SCRUB_LISTED];
    struct waiter *waiters;
    uint64_t tried_ns; /* the housekeeper's alone */
};

struct gb_scrubber *gb_scrubber_new(void) {
    struct gb_scrubber *scrubber = calloc(1, sizeof(*scrubber));

    if (!scrubber)
        return NULL;
    gb_mutex_init(&scrubber->lock);
    gb_cond_init(&scrubber->changed);
    return scrubber;
}

void gb_scrubber_free(struct gb_scrubber *scrubber) {
    if (!scrubber)
        return;
    pthread_cond_destroy(&scrubber->changed);
    pthread_mutex_destroy(&scrubber->lock);
    free(scrubber);
}

/* --- one file ----------------------------------------------------------------------------------------------------- */

/* Returns false if the daemon stops. */
static bool wait_for_pace(struct gb_scrubber *scrubber, uint64_t n) {
    bool over;

    pthread_mutex_lock(&scrubber->lock);
    gb_pace_take(&scrubber->pace, gb_clock_ns(), n);
    for (;;) {
        uint64_t now_ns = gb_clock_ns();
        struct timespec until;

        if (scrubber->over || scrubber->pace.due_ns < now_ns + GB_NS_PER_MS)
            break;
        until = gb_after_ms((scrubber->pace.due_ns - now_ns) / GB_NS_PER_MS);
        pthread_cond_timedwait(&scrubber->changed, &scrubber->lock, &until);
    }
    over = scrubber->over;
    pthread_mutex_unlock(&scrubber->lock);
    return !over;
}

static int stopping(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
}

/* Waits as long as that many bytes take at the rate. Returns 0; -1 with DRAINING if the daemon stops. */
static int scrub_wait(struct gb_core *core, uint64_t bytes, struct gb_error *err) {
    return wait_for_pace(core->scrubber, bytes) ? 0 : stopping(err);
}

/* As scrub_wait, and counts the bytes as read from the disk. */
static int scrub_took(struct gb_core *core, uint64_t bytes, struct gb_error *err) {
    struct gb_scrubber *scrubber = core->scrubber;

    pthread_mutex_lock(&scrubber->lock);
    scrubber->numbers.pass.bytes += bytes;
    scrubber->numbers.bytes += bytes;
    pthread_mutex_unlock(&scrubber->lock);
    return scrub_wait(core, bytes, err);
}

static int read_block(struct gb_core *core, struct gb_stored *stored, struct gb_disk_reader *file, size_t index,
                      unsigned char *room, struct gb_error *err) {
    uint64_t at = (uint64_t)index * GB_STORED_BLOCK_BYTES;
    uint64_t left = stored->rec.bytes - at;
    size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;

    if (gb_disk_read(file, room, n, at, err) < 0)
        return -1;
    if (gb_stored_check_block(stored, index, gb_crc32c(0, room, n), err) < 0) {
        scrub_took(core, n, NULL);
        return -1;
    }
    return scrub_took(core, n, err);
}

static int read_file(struct gb_core *core, struct gb_stored *stored, unsigned char *room, struct gb_error *err) {
    size_t count = gb_stored_block_count(stored->rec.bytes);
    struct gb_disk_reader *file = NULL;
    size_t i;
    int r = gb_disk_read_open(core->config.disk, &stored->name, stored->rec.bytes, &file, err);

    if (r == 0)
        r = scrub_wait(core, GB_SCRUB_OPENING_BYTES, err);
    for (i = 0; i < count && r == 0; i++)
        r = read_block(core, stored, file, i, room, err);
    gb_disk_read_close(file);
    return r;
}

/* Returns true if the file of that inode was read in this pass. 0: a file of one name, which is not noted. */
static bool scrub_was_read(const struct gb_scrub *scrub, uint64_t inode) {
    int64_t found;

    return inode > 0 && gb_idlist_after(&scrub->read, (int64_t)inode - 1, &found) && found == (int64_t)inode;
}

/* Notes a sound file. If memory is exhausted, it is read once more. */
static void scrub_note_sound(struct gb_scrub *scrub, uint64_t inode) {
    if (inode > 0 && !scrub_was_read(scrub, inode))
        gb_idlist_put(&scrub->read, (int64_t)inode, scrub);
}

/* Bytes that the medium does not return count as damaged. */
static void take_for_damage(struct gb_error *error) {
    struct gb_error why = *error;

    if (why.code != GB_ERR_STORAGE_FAILED || why.native_code != EIO)
        return;
    *error = GB_ERROR_INIT;
    gb_error_set(error, GB_ERR_CONTENT_DAMAGED, "%.200s", why.detail);
}

/* Counts a file by the result of its reading, *why, which is GB_OK for a sound one. Returns 1 if it is damaged, 0 if
 * not, or -1 if the pass is to end. */
static int scrub_judge(struct gb_core *core, struct gb_error *why, struct gb_error *err) {
    struct gb_scrubber *scrubber = core->scrubber;
    bool damaged;

    take_for_damage(why);
    if (why->code == GB_ERR_DRAINING || why->code == GB_ERR_STORAGE_UNAVAILABLE)
        return gb_error_move(err, why);
    damaged = gb_damage_is(why);
    pthread_mutex_lock(&scrubber->lock);
    scrubber->numbers.pass.files++;
    scrubber->numbers.pass.skipped += why->code != GB_OK && !damaged;
    pthread_mutex_unlock(&scrubber->lock);
    return damaged;
}

/* Counts a damaged file. */
static void scrub_count_damage(struct gb_core *core) {
    struct gb_scrubber *scrubber = core->scrubber;

    pthread_mutex_lock(&scrubber->lock);
    scrubber->numbers.pass.damaged++;
    scrubber->numbers.damaged++;
    pthread_mutex_unlock(&scrubber->lock);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

static void healed(void *arg) {
    struct gb_scrubber *scrubber = arg;

    pthread_mutex_lock(&scrubber->lock);
    scrubber->healing = false;
    pthread_cond_broadcast(&scrubber->changed);
    pthread_mutex_unlock(&scrubber->lock);
}

/* Does not hold up the end of the daemon, which ends the call. find NULL: a damage that is not listed. */
static void heal_buffer(struct gb_session *session, const struct gb_name *name, struct gb_stored *stored,
                        struct gb_scrub_find *find) {
    struct gb_scrubber *scrubber = session->core->scrubber;
    struct gb_buffer_call *call = gb_call_new(sizeof(*call), healed, scrubber);

    if (!call)
        return;
    scrubber->healing = true; /* this thread alone sets it */
    scrub_heal(session, name, stored, call);
    pthread_mutex_lock(&scrubber->lock);
    while (scrubber->healing && !scrubber->over)
        pthread_cond_wait(&scrubber->changed, &scrubber->lock);
    if (!scrubber->healing && call->base.error.code == GB_OK) {
        scrubber->numbers.pass.healed++;
        scrubber->numbers.healed++;
        if (find)
            find->healed = true;
    }
    pthread_mutex_unlock(&scrubber->lock);
    gb_call_unref(&call->base);
}

static struct gb_scrub_find *note_find_locked(struct gb_scrubber *scrubber, const struct gb_session *session,
                                              const struct gb_name *name, const struct gb_error *error) {
    struct gb_scrub_find *find = &scrubber->listed[scrubber->listed_count];

    scrubber->numbers.pass.damaged++;
    scrubber->numbers.damaged++;
    if (scrubber->listed_count == GB_SCRUB_LISTED)
        return NULL;
    *find = (struct gb_scrub_find){*gb_session_name(session), *name, error->code, false};
    scrubber->listed_count++;
    return find;
}

/* Bytes that were replaced meanwhile do not matter any more. */
static void found_damage(struct gb_session *session, const struct gb_name *name, struct gb_stored *stored,
                         const struct gb_error *error) {
    struct gb_scrubber *scrubber = session->core->scrubber;
    struct gb_scrub_find *find;
    const struct gb_buffer *b;
    bool in_memory = false;
    bool current;

    pthread_mutex_lock(&session->lock);
    b = gb_buffer_find_locked(session, name, NULL);
    current = b && b->stored == stored;
    if (current) {
        in_memory = b->rec.state == GB_BUFFER_READY && b->rec.generation == stored->rec.generation;
        gb_stored_note_damage(stored);
    }
    pthread_mutex_unlock(&session->lock);
    if (!current)
        return;
    pthread_mutex_lock(&scrubber->lock);
    find = note_find_locked(scrubber, session, name, error);
    pthread_mutex_unlock(&scrubber->lock);
    gb_damage_report(session, name, stored, error, false);
    if (in_memory)
        heal_buffer(session, name, stored, find);
}

/* Returns -1 if the pass is to end. */
static int scrub_file(struct gb_scrub *scrub, struct gb_session *session, const struct gb_name *name,
                      struct gb_stored *stored, struct gb_error *err) {
    uint64_t inode = gb_disk_shared(scrub->core->config.disk, &stored->name);
    struct gb_error why = GB_ERROR_INIT;
    int r;

    if (scrub_was_read(scrub, inode)) {
        gb_stored_note_whole(stored);
        return 0;
    }
    read_file(scrub->core, stored, scrub->room, &why);
    r = scrub_judge(scrub->core, &why, err);
    if (why.code == GB_OK) {
        gb_stored_note_whole(stored); /* the file may have been put right */
        scrub_note_sound(scrub, inode);
    }
    if (r > 0)
        found_damage(session, name, stored, &why);
    return r < 0 ? -1 : 0;
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* The files of checkpoints. Many are those of buffers, too, and were read with them. */

struct walk {
    struct gb_scrub *scrub;
    struct gb_checkpoint_view view;
    struct gb_manifest manifest;
    struct gb_checkpoint_check check;
};

/* The next complete checkpoint. */
static bool next(struct gb_core *core, int64_t *number, struct gb_checkpoint_view *ret) {
    while (gb_checkpoints_next(core, *number, NULL, ret)) {
        *number = ret->number;
        if (ret->complete)
            return true;
    }
    return false;
}

/* Reports damage, unless the checkpoint was deleted meanwhile. */
static void found_damage_in_checkpoint(struct walk *walk, size_t index, const struct gb_error *why) {
    struct gb_core *core = walk->scrub->core;
    const struct gb_name *buffer = index < walk->manifest.count ? &walk->manifest.entries[index].buffer : NULL;

    if (!gb_checkpoints_judge(core, &walk->view, index, why->code))
        return;
    scrub_count_damage(core);
    gb_checkpoints_tell_damage(core, &walk->view, index, buffer, false);
}

/* Reads the file block by block, at the pass's pace. As gb_checkpoint_check_step, but never 2. */
static int read_checkpoint_file(struct walk *walk, struct gb_error *err) {
    struct gb_core *core = walk->scrub->core;
    struct gb_checkpoint_check *check = &walk->check;
    int r;

    if (scrub_wait(core, GB_SCRUB_OPENING_BYTES, err) < 0)
        return -1;
    check->at = 0;
    do {
        uint64_t before = check->at;

        r = gb_checkpoint_check_step(check, err);
        if (check->at > before && scrub_took(core, check->at - before, r < 0 ? NULL : err) < 0)
            return -1;
    } while (r == 2);
    return r;
}

static int scrub_checkpoint_file(struct walk *walk, struct gb_error *err) {
    struct gb_scrub *scrub = walk->scrub;
    size_t index = walk->check.index;
    uint64_t inode = gb_disk_checkpoint_shared(scrub->core->config.disk, &walk->view.name, index);
    struct gb_error why = GB_ERROR_INIT;
    int r = 0;

    if (scrub_was_read(scrub, inode)) {
        walk->check.index++;
    } else {
        read_checkpoint_file(walk, &why);
        r = scrub_judge(scrub->core, &why, err);
    }
    if (r > 0)
        found_damage_in_checkpoint(walk, index, &why);
    if (r != 0 || why.code != GB_OK)
        return r < 0 ? -1 : 0;
    scrub_note_sound(scrub, inode);
    gb_checkpoints_judge(scrub->core, &walk->view, index, GB_OK);
    return 0;
}

static int scrub_files(struct walk *walk, struct gb_error *err) {
    struct gb_core *core = walk->scrub->core;
    int r = 0;

    gb_checkpoints_judge(core, &walk->view, GB_CHECKPOINT_OF_MANIFEST, GB_OK);
    walk->check = (struct gb_checkpoint_check){
        .disk = core->config.disk, .manifest = &walk->manifest, .name = walk->view.name, .steps = 1};
    while (r == 0 && walk->check.index < walk->manifest.count)
        r = scrub_checkpoint_file(walk, err);
    gb_checkpoint_check_done(&walk->check);
    return r;
}

static int scrub_one(struct walk *walk, struct gb_error *err) {
    struct gb_core *core = walk->scrub->core;
    struct gb_error why = GB_ERROR_INIT;
    int r;

    if (gb_disk_checkpoint_manifest(core->config.disk, &walk->view.name, &walk->manifest, &why) == 0) {
        r = scrub_files(walk, err);
        gb_manifest_done(&walk->manifest);
        return r;
    }
    if (why.code == GB_ERR_CHECKPOINT_NOT_FOUND)
        why.code = GB_ERR_CONTENT_LOST;
    r = scrub_judge(core, &why, err);
    if (r > 0)
        found_damage_in_checkpoint(walk, GB_CHECKPOINT_OF_MANIFEST, &why);
    return r < 0 ? -1 : 0;
}

/* Reads the files of all complete checkpoints, but for those that were read. Returns -1 if the pass is to end. */
static int scrub_checkpoints(struct gb_scrub *scrub, struct gb_error *err) {
    struct walk walk = {.scrub = scrub};
    int64_t number = 0;
    int r = 0;

    while (r == 0 && next(scrub->core, &number, &walk.view))
        r = scrub_one(&walk, err);
    return r;
}

/* --- a pass ------------------------------------------------------------------------------------------------------- */

/* The next buffer that has a file: its name, and a reference to the stored bytes; NULL at the end. */
static struct gb_stored *next_file(struct gb_session *session, int64_t *id, struct gb_name *ret_name) {
    struct gb_stored *stored = NULL;
    const struct gb_buffer *b;

    pthread_mutex_lock(&session->lock);
    while (!stored && (b = gb_idlist_after(&session->buffers_by_id, *id, id))) {
        if (!b->live || b->deleting || !b->stored || !gb_stored_has_file(b->stored))
            continue;
        stored = gb_stored_ref(b->stored);
        strcpy(ret_name->s, b->name);
    }
    pthread_mutex_unlock(&session->lock);
    return stored;
}

static int scrub_session(struct gb_scrub *scrub, struct gb_session *session, struct gb_error *err) {
    struct gb_stored *stored;
    struct gb_name name;
    int64_t id = 0;
    int r = 0;

    while (r == 0 && (stored = next_file(session, &id, &name))) {
        r = scrub_file(scrub, session, &name, stored, err);
        gb_stored_unref(stored);
    }
    return r;
}

static int pass(struct gb_scrub *scrub, struct gb_error *err) {
    struct gb_session *s;
    int64_t id = 0;
    int r = 0;

    while (r == 0 && (s = gb_session_after(scrub->core, id))) {
        id = s->id;
        r = scrub_session(scrub, s, err);
        gb_session_unref(s);
    }
    return r < 0 ? -1 : scrub_checkpoints(scrub, err);
}

/* The list of damages is guarded by the scrubber's lock. */
static void fill_calls_locked(const struct gb_scrubber *scrubber) {
    const struct waiter *waiter;

    for (waiter = scrubber->waiters; waiter; waiter = waiter->next) {
        waiter->call->pass = scrubber->numbers.pass;
        waiter->call->listed_count = scrubber->listed_count;
        memcpy(waiter->call->listed, scrubber->listed, scrubber->listed_count * sizeof(scrubber->listed[0]));
    }
}

static void finish_calls(struct waiter *waiter, const struct gb_error *error) {
    struct waiter *next;

    for (; waiter; waiter = next) {
        next = waiter->next;
        gb_call_finish(&waiter->call->base, error);
        free(waiter);
    }
}

/* error NULL: the pass came to its end. The scrubber is not touched after its lock is given back. */
static void end(struct gb_core *core, const struct gb_error *error) {
    struct gb_scrubber *scrubber = core->scrubber;
    struct waiter *waiters;

    if (!error)
        gb_disk_note_scrub(core->config.disk);
    pthread_mutex_lock(&scrubber->lock);
    scrubber->numbers.running = false;
    if (!error)
        scrubber->numbers.last_ended_us = gb_wall_us();
    fill_calls_locked(scrubber);
    waiters = scrubber->waiters;
    scrubber->waiters = NULL;
    pthread_mutex_unlock(&scrubber->lock);
    finish_calls(waiters, error);
    gb_core_leave(core);
}

static void *run(void *arg) {
    struct gb_core *core = arg;
    struct gb_scrub scrub = {.core = core, .room = aligned_alloc(GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES)};
    struct gb_error err = GB_ERROR_INIT;
    int r = scrub.room ? pass(&scrub, &err) : gb_no_memory(&err);

    gb_idlist_done(&scrub.read);
    free(scrub.room);
    end(core, r < 0 ? &err : NULL);
    return NULL;
}

/* --- beginning and stopping --------------------------------------------------------------------------------------- */

/* A thread whose pass has ended has next to nothing left to do. */
static void reap_locked(struct gb_scrubber *scrubber) {
    if (!scrubber->made || scrubber->numbers.running)
        return;
    pthread_join(scrubber->thread, NULL);
    scrubber->made = false;
}

static int begin_locked(struct gb_core *core, uint64_t rate, struct gb_error *err) {
    struct gb_scrubber *scrubber = core->scrubber;

    if (scrubber->over)
        return stopping(err);
    if (scrubber->numbers.running) {
        if (rate > 0)
            scrubber->pace = (struct gb_pace){.rate = rate};
        pthread_cond_broadcast(&scrubber->changed);
        return 0;
    }
    reap_locked(scrubber);
    gb_core_enter(core);
    scrubber->pace = (struct gb_pace){.rate = rate > 0 ? rate : core->config.scrub_rate};
    scrubber->numbers.pass = (struct gb_scrub_pass){.began_us = gb_wall_us()};
    scrubber->listed_count = 0;
    scrubber->numbers.running = scrubber->numbers.known = true;
    if (gb_thread_start(&scrubber->thread, "gb-scrub", run, core, err) == 0) {
        scrubber->made = true;
        return 0;
    }
    scrubber->numbers.running = false;
    gb_core_leave(core);
    return -1;
}

static int check(const struct gb_core *core, uint64_t rate, struct gb_error *err) {
    if (gb_disks_check_durability(core, GB_DURABILITY_BEHIND, err) < 0)
        return -1;
    if (rate > 0 || core->config.scrub_rate > 0)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "the daemon was started with --scrub-rate 0: say how many bytes a second are read, as "
                        "{\"rate\":32000000}");
}

void gb_storage_scrub(struct gb_core *core, uint64_t rate, struct gb_scrub_call *call) {
    struct gb_scrubber *scrubber = core->scrubber;
    struct waiter *waiter = malloc(sizeof(*waiter));
    struct gb_error err = GB_ERROR_INIT;
    int r = waiter ? check(core, rate, &err) : gb_no_memory(&err);

    if (r == 0) {
        pthread_mutex_lock(&scrubber->lock);
        r = begin_locked(core, rate, &err);
        if (r == 0) {
            *waiter = (struct waiter){call, scrubber->waiters};
            scrubber->waiters = waiter;
        }
        pthread_mutex_unlock(&scrubber->lock);
    }
    if (r == 0)
        return;
    free(waiter);
    gb_call_finish(&call->base, &err);
}

static bool has_files(struct gb_core *core) {
    struct gb_stored *stored = NULL;
    struct gb_session *s;
    struct gb_name name;
    int64_t session_id = 0;

    while (!stored && (s = gb_session_after(core, session_id))) {
        int64_t id = 0;

        session_id = s->id;
        stored = next_file(s, &id, &name);
        gb_session_unref(s);
    }
    gb_stored_unref(stored);
    return stored != NULL;
}

/* Since the latest pass, or since the folder was made. */
static bool is_due(struct gb_core *core) {
    struct gb_scrubber *scrubber = core->scrubber;
    uint64_t interval_s = core->config.scrub_interval_s;
    uint64_t retry_ns = (interval_s < RETRY_S ? interval_s : RETRY_S) * GB_NS_PER_S;
    uint64_t now_ns = gb_clock_ns();
    struct gb_disk_times times;
    struct gb_error why;
    int64_t since_us;

    if (interval_s == 0 || core->config.scrub_rate == 0 ||
        (scrubber->tried_ns > 0 && now_ns - scrubber->tried_ns < retry_ns) ||
        gb_disk_state_of(core->config.disk, &why) == GB_DISK_UNAVAILABLE)
        return false;
    gb_disk_times(core->config.disk, &times);
    since_us = times.scrubbed_us > 0 ? times.scrubbed_us : times.made_us;
    /* A pass that ended in a time to come had a wrong clock. */
    if (gb_wall_us() >= since_us && gb_wall_us() - since_us < (int64_t)interval_s * 1000000)
        return false;
    scrubber->tried_ns = now_ns;
    return has_files(core) || gb_checkpoints_any(core);
}

void gb_scrub_tick(struct gb_core *core) {
    struct gb_scrubber *scrubber = core->scrubber;
    bool due;

    if (!core->config.disk)
        return;
    due = is_due(core);
    pthread_mutex_lock(&scrubber->lock);
    reap_locked(scrubber);
    if (due && !scrubber->numbers.running)
        begin_locked(core, 0, NULL);
    pthread_mutex_unlock(&scrubber->lock);
}

void gb_scrub_stop(struct gb_core *core) {
    struct gb_scrubber *scrubber = core->scrubber;
    bool made;

    if (!scrubber)
        return;
    pthread_mutex_lock(&scrubber->lock);
    scrubber->over = true;
    pthread_cond_broadcast(&scrubber->changed);
    made = scrubber->made;
    scrubber->made = false;
    pthread_mutex_unlock(&scrubber->lock);
    if (made)
        pthread_join(scrubber->thread, NULL);
}

void gb_scrub_stat(struct gb_core *core, struct gb_scrub_numbers *ret) {
    struct gb_scrubber *scrubber = core->scrubber;
    struct gb_disk_times times = {0};

    pthread_mutex_lock(&scrubber->lock);
    *ret = scrubber->numbers;
    pthread_mutex_unlock(&scrubber->lock);
    if (ret->last_ended_us > 0 || !core->config.disk)
        return;
    gb_disk_times(core->config.disk, &times);
    ret->last_ended_us = times.scrubbed_us;
}

/* --- pace --------------------------------------------------------------------------------------------------------- */

uint64_t gb_pace_take(struct gb_pace *pace, uint64_t now_ns, uint64_t n) {
    if (pace->rate == 0)
        return 0;
    if (pace->due_ns < now_ns)
        pace->due_ns = now_ns;
    pace->due_ns += n * GB_NS_PER_S / pace->rate;
    return pace->due_ns - now_ns;
}
