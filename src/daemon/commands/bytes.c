/* Stored bytes while no daemon runs: the places that the options name, the lock, and the database's rows in memory, by
 * id and by name. fsck and recover call this. */
#include "daemon/commands/bytes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "daemon/state_dir.h"

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

/* --- places ------------------------------------------------------------------------------------------------------- */

int gb_bytes_open(const struct gb_options *options, bool makes, struct gb_bytes *ret, struct gb_error *err) {
    ret->lock_fd = -1;
    if (strcmp(options->data_dir, "none") == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--data-dir none names no folder of stored bytes; give the one that the daemon had");
    ret->state_dir = makes ? gb_state_dir(options->state_dir, err) : gb_state_dir_find(options->state_dir, err);
    if (!ret->state_dir)
        return -1;
    ret->database = gb_state_path(ret->state_dir, "gpubufd.db");
    ret->data_dir = options->data_dir[0] != '\0' ? strdup(options->data_dir) : gb_state_path(ret->state_dir, "data");
    if (!ret->database || !ret->data_dir)
        return no_memory(err);
    return gb_store_lock(ret->database, &ret->lock_fd, err);
}

void gb_bytes_done(struct gb_bytes *bytes) {
    if (bytes->lock_fd >= 0)
        close(bytes->lock_fd);
    free(bytes->state_dir);
    free(bytes->database);
    free(bytes->data_dir);
    *bytes = (struct gb_bytes){.lock_fd = -1};
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Room for one more. Returns 0 or -1. */
static int grow(void **items, size_t count, size_t *room, size_t size, struct gb_error *err) {
    size_t more = *room > 0 ? 2 * *room : 64;
    void *bigger;

    if (count < *room)
        return 0;
    bigger = realloc(*items, more * size);
    if (!bigger)
        return no_memory(err);
    *items = bigger;
    *room = more;
    return 0;
}

int gb_known_add_session(void *arg, const void *session, struct gb_error *err) {
    const struct gb_session_rec *rec = session;
    struct gb_known *known = arg;

    if (grow((void **)&known->sessions, known->session_count, &known->session_room, sizeof(known->sessions[0]), err) <
        0)
        return -1;
    known->sessions[known->session_count++] = (struct gb_known_session){.id = rec->id, .name = rec->name};
    return 0;
}

static int add_buffer(void *arg, const void *buffer, struct gb_error *err) {
    const struct gb_buffer_rec *rec = buffer;
    struct gb_known *known = arg;

    if (grow((void **)&known->buffers, known->buffer_count, &known->buffer_room, sizeof(known->buffers[0]), err) < 0)
        return -1;
    known->buffers[known->buffer_count++] =
        (struct gb_known_buffer){.id = rec->id, .session_id = rec->session_id, .name = rec->name};
    return 0;
}

static int add_stored(void *arg, const void *stored, struct gb_error *err) {
    const struct gb_stored_rec *rec = stored;
    struct gb_known_buffer *b = gb_known_buffer_of(arg, rec->buffer_id);
    size_t bytes = gb_stored_block_count(rec->bytes) * sizeof(rec->blocks[0]);
    uint32_t *blocks;

    if (!b || b->has_stored)
        return gb_error_set(err, GB_ERR_INTERNAL, "the database has stored bytes of buffer %lld, which it has not",
                            (long long)rec->buffer_id);
    blocks = malloc(bytes + 1);
    if (!blocks)
        return no_memory(err);
    if (bytes > 0)
        memcpy(blocks, rec->blocks, bytes);
    b->has_stored = true;
    b->stored = *rec;
    b->stored.blocks = blocks;
    return 0;
}

int gb_known_load(struct gb_known *ret, struct gb_store *store, struct gb_error *err) {
    if (gb_store_load(store, GB_STORE_SESSIONS, gb_known_add_session, ret, err) < 0 ||
        gb_store_load(store, GB_STORE_BUFFERS, add_buffer, ret, err) < 0)
        return -1;
    return gb_store_load(store, GB_STORE_STORED, add_stored, ret, err);
}

void gb_known_done(struct gb_known *known) {
    size_t i;

    for (i = 0; i < known->buffer_count; i++)
        free((uint32_t *)(uintptr_t)known->buffers[i].stored.blocks);
    free(known->buffers);
    free(known->sessions);
    free(known->by_name);
    *known = (struct gb_known){0};
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

static int by_id(const void *key, const void *item) {
    int64_t a = *(const int64_t *)key;
    int64_t b = *(const int64_t *)item; /* the first member of both */

    return (a > b) - (a < b);
}

struct gb_known_buffer *gb_known_buffer_of(const struct gb_known *known, int64_t id) {
    if (known->buffer_count == 0)
        return NULL;
    return bsearch(&id, known->buffers, known->buffer_count, sizeof(known->buffers[0]), by_id);
}

const char *gb_known_session_of(const struct gb_known *known, int64_t id) {
    const struct gb_known_session *found = NULL;

    if (known->session_count > 0)
        found = bsearch(&id, known->sessions, known->session_count, sizeof(known->sessions[0]), by_id);
    return found ? found->name.s : "";
}

struct question {
    const struct gb_known *known;
    const char *session;
    const char *buffer;
};

static int compare_names(const void *one, const void *other, void *arg) {
    const struct gb_known_buffer *const *a = one;
    const struct gb_known_buffer *const *b = other;
    int r = strcmp(gb_known_session_of(arg, (*a)->session_id), gb_known_session_of(arg, (*b)->session_id));

    return r != 0 ? r : strcmp((*a)->name.s, (*b)->name.s);
}

static int compare_question(const void *key, const void *item) {
    const struct question *q = key;
    const struct gb_known_buffer *const *b = item;
    int r = strcmp(q->session, gb_known_session_of(q->known, (*b)->session_id));

    return r != 0 ? r : strcmp(q->buffer, (*b)->name.s);
}

/* If memory is exhausted, every name counts as taken: nothing is replaced. */
bool gb_known_has(struct gb_known *known, const char *session, const char *buffer) {
    const struct question question = {known, session, buffer};
    size_t i;

    if (known->buffer_count == 0)
        return false;
    if (!known->by_name) {
        known->by_name = calloc(known->buffer_count, sizeof(struct gb_known_buffer *));
        if (!known->by_name)
            return true;
        for (i = 0; i < known->buffer_count; i++)
            known->by_name[i] = &known->buffers[i];
        qsort_r(known->by_name, known->buffer_count, sizeof(struct gb_known_buffer *), compare_names, known);
    }
    return bsearch(&question, known->by_name, known->buffer_count, sizeof(struct gb_known_buffer *), compare_question);
}

bool gb_known_names(const struct gb_known *known, const struct gb_disk_name *name) {
    const struct gb_known_buffer *b = gb_known_buffer_of(known, name->buffer_id);

    return b && b->has_stored && !gb_stored_inline(&b->stored) && b->stored.file_generation == name->generation &&
           b->stored.file_tag == name->run;
}

int gb_bytes_sum(struct gb_disk_reader *file, uint64_t bytes, uint32_t *blocks, uint32_t *ret_crc32c,
                 struct gb_error *err) {
    unsigned char *room = aligned_alloc(GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES);
    uint32_t crc = 0;
    uint64_t at;
    int r = room ? 0 : no_memory(err);

    for (at = 0; at < bytes && r == 0; at += GB_STORED_BLOCK_BYTES) {
        size_t n = bytes - at < GB_STORED_BLOCK_BYTES ? (size_t)(bytes - at) : GB_STORED_BLOCK_BYTES;

        r = gb_disk_read(file, room, n, at, err);
        if (r < 0)
            break;
        blocks[at / GB_STORED_BLOCK_BYTES] = gb_crc32c(0, room, n);
        crc = gb_crc32c(crc, room, n);
    }
    free(room);
    *ret_crc32c = crc;
    return r;
}
