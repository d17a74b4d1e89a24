/* `gpubufd recover`: files of bytes that no row names, and the rows that their headers make. It removes no file;
 * without --apply nothing changes; no daemon runs meanwhile. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/map.h"
#include "daemon/commands/bytes.h"
#include "daemon/commands/command.h"
#include "disk/offline.h"

enum verdict {
    GB_RECOVERABLE,
    GB_RECOVERED,
    GB_DAMAGED, /* why says how */
    GB_OLDER,   /* another file has a newer generation of the buffer */
    GB_REFUSED  /* why says what is in its way */
};

/* A file that no row names. */
struct stray {
    enum gb_disk_place place;
    struct gb_disk_name name;
    uint64_t bytes;
    struct gb_disk_header header; /* unless known is false, as the next three */
    struct gb_name session;       /* that the buffer gets; see give_names */
    struct gb_name buffer;
    char key[2 * GB_NAME_MAX + 2]; /* give_names's */
    bool known;
    uint32_t *blocks; /* malloc'd; NULL: the bytes are not whole */
    enum verdict verdict;
    struct gb_error why;
};

struct recover {
    bool apply;
    bool take_over;
    struct gb_bytes bytes;
    char uuid[GB_STORE_UUID_SIZE]; /* of the database; "": there is no database yet */
    struct gb_store *store;        /* with apply */
    struct gb_known known;
    struct gb_disk *disk;
    bool foreign; /* the marker is missing, or names another database */
    struct stray *strays;
    size_t count;
    size_t room;
    int64_t last_session_id;
    uint32_t run; /* for entity tags */
    struct gb_quota quota;
};

/* A restore of a checkpoint linked the file. */
static inline bool is_linked(const struct stray *stray) {
    return (stray->name.generation & GB_DISK_LINKED) != 0;
}

static const struct gb_command_verb verbs[] = {
    {"[--apply] [--take-over] [OPTION...]",
     "Lists the files of bytes that the database does not name, those in orphans/ too, with what their headers say, "
     "while no daemon runs. With --apply it makes the records of their buffers and sessions again, of each buffer "
     "from its newest whole file. It removes nothing. Exits with 1 if a file is damaged or refused"}};

enum own { APPLY, TAKE_OVER, OWNS };

static const struct gb_command_option owns[OWNS] = {
    [APPLY] = {"--apply", "", "makes the records; without it nothing changes", 1},
    [TAKE_OVER] =
        {"--take-over", "",
         "with --apply: the folder belongs to this database from now on, where it was another's or has no marker", 1},
};

static const enum gb_option_id of_daemon[] = {GB_OPTION_ID_state_dir, GB_OPTION_ID_data_dir, GB_OPTION_ID_quota_bytes,
                                              GB_OPTION_ID_quota_buffers, GB_OPTION_ID_config};

static const struct gb_command about = {.word = "recover",
                                        .verbs = verbs,
                                        .verb_count = 1,
                                        .options = owns,
                                        .option_count = OWNS,
                                        .of_daemon = of_daemon,
                                        .of_daemon_count = sizeof(of_daemon) / sizeof(of_daemon[0])};

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Gives names to the files whose headers are known: that of the header, and where a file was linked and the name is
 * another buffer's, "restored." and the buffer's number. No two buffers get the same, unless they had it one after the
 * other. */

/* How well the name is known. */
enum rank {
    OWN,     /* the header is the buffer's */
    LIKELY,  /* it was restored in place of the buffer that the header is of */
    GUESSED, /* it was restored as another buffer, perhaps in another session */
    RANKS
};

static enum rank rank_of(const struct stray *stray) {
    if (!is_linked(stray))
        return OWN;
    return stray->header.name.buffer_id == stray->name.buffer_id ? LIKELY : GUESSED;
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Files of one buffer stand together, the one that knows its name best first, then the newest. The last buffers are
 * first, and files without a header last. */
static int by_rank_and_number(const void *one, const void *other) {
    const struct stray *a = *(const struct stray *const *)one;
    const struct stray *b = *(const struct stray *const *)other;
    int r = compare(b->known, a->known);

    if (r == 0)
        r = compare(b->name.buffer_id, a->name.buffer_id);
    if (r == 0 && a->known)
        r = compare(rank_of(a), rank_of(b));
    return r != 0 ? r : compare(gb_disk_name_generation(&b->name), gb_disk_name_generation(&a->name));
}

struct naming {
    struct recover *recover;
    struct stray **list;
    size_t count;
    struct gb_map taken; /* by the keys of strays */
};

static void set_key(struct stray *stray) {
    snprintf(stray->key, sizeof(stray->key), "%s/%s", stray->session.s, stray->buffer.s);
}

/* The best one of a buffer: its name is free, or another is made. What is the buffer's own is never changed. */
static int name_first(struct naming *naming, struct stray *stray, struct gb_error *err) {
    stray->session = stray->header.session;
    stray->buffer = stray->header.buffer;
    set_key(stray);
    if (rank_of(stray) != OWN && (gb_map_get(&naming->taken, stray->key) ||
                                  gb_known_has(&naming->recover->known, stray->session.s, stray->buffer.s))) {
        snprintf(stray->buffer.s, sizeof(stray->buffer.s), "restored.%" PRId64, stray->name.buffer_id);
        set_key(stray);
    }
    return gb_map_put(&naming->taken, stray->key, stray) == 0 ? 0 : gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
}

static int name_rank(struct naming *naming, enum rank rank, struct gb_error *err) {
    const struct stray *first = NULL;
    size_t i;

    for (i = 0; i < naming->count && naming->list[i]->known; i++) {
        struct stray *stray = naming->list[i];

        if (!first || first->name.buffer_id != stray->name.buffer_id) {
            first = stray;
            if (rank_of(first) == rank && name_first(naming, stray, err) < 0)
                return -1;
        } else if (rank_of(first) == rank) {
            stray->session = first->session;
            stray->buffer = first->buffer;
        }
    }
    return 0;
}

static int give_names(struct recover *recover, struct gb_error *err) {
    struct naming naming = {.recover = recover, .count = recover->count};
    unsigned rank;
    size_t i;
    int r = 0;

    naming.list = calloc(recover->count + 1, sizeof(struct stray *));
    if (!naming.list)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (i = 0; i < recover->count; i++)
        naming.list[i] = &recover->strays[i];
    qsort(naming.list, naming.count, sizeof(struct stray *), by_rank_and_number);
    for (rank = OWN; rank < RANKS && r == 0; rank++)
        r = name_rank(&naming, (enum rank)rank, err);
    gb_map_done(&naming.taken);
    free(naming.list);
    return r;
}

/* --- records: waiting for the database ---------------------------------------------------------------------------- */

struct wait {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    struct gb_error error;
};

static void ended(void *arg, const struct gb_error *error) {
    struct wait *w = arg;

    pthread_mutex_lock(&w->lock);
    w->done = true;
    if (error)
        w->error = *error;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static int wait_for(struct wait *w, struct gb_error *err) {
    pthread_mutex_lock(&w->lock);
    while (!w->done)
        pthread_cond_wait(&w->cond, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return w->error.code == GB_OK ? 0 : gb_error_move(err, &w->error);
}

#define WAIT_INIT                                                                                                      \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER }

/* --- the session -------------------------------------------------------------------------------------------------- */

static int64_t session_of(const struct recover *r, const char *name) {
    size_t i;

    for (i = 0; i < r->known.session_count; i++) {
        if (strcmp(r->known.sessions[i].name.s, name) == 0)
            return r->known.sessions[i].id;
    }
    return 0;
}

/* It has no labels and never expires: the headers know neither. Returns its id, or -1. */
static int64_t make_session(struct recover *r, const struct gb_name *name, struct gb_error *err) {
    struct wait w = WAIT_INIT;
    struct gb_session_rec rec = {
        .id = r->last_session_id + 1, .name = *name, .quota = r->quota, .version = 1, .created_at_us = gb_wall_us()};

    rec.updated_at_us = rec.created_at_us;
    gb_store_put_session(r->store, &rec, NULL, ended, &w);
    if (wait_for(&w, err) < 0 || gb_known_add_session(&r->known, &rec, err) < 0)
        return -1;
    return ++r->last_session_id;
}

/* --- the buffer --------------------------------------------------------------------------------------------------- */

static int put_rows(struct recover *r, const struct stray *stray, int64_t session, struct gb_error *err) {
    const struct gb_disk_header *h = &stray->header;
    struct wait w = WAIT_INIT;
    struct gb_buffer_rec rec = {.id = stray->name.buffer_id,
                                .session_id = session,
                                .bytes = h->bytes,
                                .shape = h->shape,
                                .dtype = h->dtype,
                                .kind = h->kind,
                                .state = GB_BUFFER_READY,
                                .head = GB_HEAD_UNINITIALIZED,
                                .durability = GB_DURABILITY_SYNC,
                                .run = r->run,
                                .crc32c = h->crc32c,
                                .has_crc32c = true,
                                .generation = gb_disk_name_generation(&stray->name),
                                .version = 1,
                                .created_at_us = gb_wall_us(),
                                .sealed = h->sealed,
                                .name = stray->buffer,
                                .pool = {"default"},
                                .stream = {"default"}};
    const struct gb_stored_rec stored = {.buffer_id = rec.id,
                                         .generation = rec.generation,
                                         .run = r->run,
                                         .file_generation = stray->name.generation,
                                         .file_tag = stray->name.run,
                                         .bytes = h->bytes,
                                         .dtype = h->dtype,
                                         .shape = h->shape,
                                         .crc32c = h->crc32c,
                                         .blocks = stray->blocks};
    const struct gb_store_edit edit = {.rec = &rec, .durable = true, .stored = &stored};
    int result;

    rec.updated_at_us = rec.created_at_us;
    if (gb_labels_make(h->labels, &rec.labels, err) < 0)
        return -1;
    gb_store_edit_buffers(r->store, &edit, 1, NULL, ended, &w);
    result = wait_for(&w, err);
    gb_buffer_rec_done(&rec);
    return result;
}

/* The file is where a row can name it before the row does. */
static int adopt(struct recover *r, struct stray *stray, struct gb_error *err) {
    int64_t session = session_of(r, stray->session.s);

    if (session == 0)
        session = make_session(r, &stray->session, err);
    if (session < 0)
        return -1;
    if (stray->place == GB_DISK_IN_ORPHANS && gb_disk_take_back(r->disk, &stray->name, err) < 0)
        return -1;
    stray->place = GB_DISK_IN_DATA;
    return put_rows(r, stray, session, err);
}

/* Makes the session, unless it is there, and the buffer's rows, and waits until they are on disk. The verdict becomes
 * RECOVERED or REFUSED. */
static void make_records(struct recover *recover, struct stray *stray) {
    stray->verdict = adopt(recover, stray, &stray->why) == 0 ? GB_RECOVERED : GB_REFUSED;
}

/* --- the database ------------------------------------------------------------------------------------------------- */

static int read_store(struct recover *r, struct gb_error *err) {
    const struct gb_store_config config = {
        .path = r->bytes.database, .queue_max = 1024, .locked = true, .lock_fd = r->bytes.lock_fd};
    struct gb_store_ids last;

    r->bytes.lock_fd = -1;
    if (gb_store_open(&config, &r->store, err) < 0 || gb_store_uuid(r->store, r->uuid, err) < 0 ||
        gb_store_last_ids(r->store, &last, err) < 0)
        return -1;
    r->last_session_id = last.session;
    return gb_known_load(&r->known, r->store, err);
}

/* Without --apply nothing is made: a database that is not there is empty. */
static int inspect(struct recover *r, struct gb_error *err) {
    struct gb_store *database = NULL;
    int result = -1;

    if (access(r->bytes.database, F_OK) != 0)
        return 0;
    if (gb_store_inspect(r->bytes.database, &database, err) == 0 && gb_store_uuid(database, r->uuid, err) == 0)
        result = gb_known_load(&r->known, database, err);
    gb_store_close(database);
    return result;
}

/* --- the files ---------------------------------------------------------------------------------------------------- */

static int add_stray(struct recover *r, enum gb_disk_place place, const struct gb_disk_name *name, uint64_t bytes,
                     struct gb_error *err) {
    size_t room = r->room > 0 ? 2 * r->room : 16;

    if (name->generation == 0 || gb_known_names(&r->known, name)) /* 0: an upload that broke off, or spilled bytes */
        return 0;
    if (r->count == r->room) {
        struct stray *bigger = realloc(r->strays, room * sizeof(*bigger));

        if (!bigger)
            return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        r->strays = bigger;
        r->room = room;
    }
    r->strays[r->count++] = (struct stray){.place = place, .name = *name, .bytes = bytes};
    return 0;
}

static int see_data(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err) {
    return add_stray(arg, GB_DISK_IN_DATA, name, bytes, err);
}

static int see_orphan(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err) {
    return add_stray(arg, GB_DISK_IN_ORPHANS, name, bytes, err);
}

/* Reads the header and all bytes. */
static int read_stray(struct recover *r, struct stray *stray, struct gb_error *err) {
    struct gb_disk_reader *file = NULL;
    uint32_t *blocks;
    uint32_t crc;
    int result = gb_disk_examine(r->disk, stray->place, &stray->name, stray->bytes, &stray->header, &file, err);

    if (result < 0)
        return -1;
    stray->known = true;
    blocks = calloc(gb_stored_block_count(stray->bytes) + 1, sizeof(*blocks));
    if (!blocks)
        result = gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    else
        result = gb_bytes_sum(file, stray->bytes, blocks, &crc, err);
    if (result == 0 && crc != stray->header.crc32c)
        result = gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "its bytes have the checksum %08x and should have %08x", crc,
                              stray->header.crc32c);
    gb_disk_read_close(file);
    if (result == 0)
        stray->blocks = blocks;
    else
        free(blocks);
    return result;
}

/* Files of one buffer stand together, whole ones first, the newest first. Those without a header are last. */
static int by_buffer(const void *one, const void *other) {
    const struct stray *a = one;
    const struct stray *b = other;
    int r = compare(b->known, a->known);

    if (r == 0 && a->known)
        r = strcmp(a->session.s, b->session.s);
    if (r == 0 && a->known)
        r = strcmp(a->buffer.s, b->buffer.s);
    if (r == 0)
        r = compare(b->blocks != NULL, a->blocks != NULL);
    if (r == 0)
        r = compare(b->name.buffer_id, a->name.buffer_id);
    if (r == 0)
        r = compare(gb_disk_name_generation(&b->name), gb_disk_name_generation(&a->name));
    return r != 0 ? r : compare(b->name.run, a->name.run);
}

static bool same_buffer(const struct stray *a, const struct stray *b) {
    return a->known && b->known && strcmp(a->session.s, b->session.s) == 0 && strcmp(a->buffer.s, b->buffer.s) == 0;
}

/* What the database has is never replaced. */
static int check_free(struct recover *r, const struct stray *stray, struct gb_error *err) {
    const struct gb_known_buffer *same_id = gb_known_buffer_of(&r->known, stray->name.buffer_id);

    if (gb_known_has(&r->known, stray->session.s, stray->buffer.s))
        return gb_error_set(err, GB_ERR_BUFFER_EXISTS, "the database has a buffer of that name; delete it first");
    if (same_id)
        return gb_error_set(err, GB_ERR_BUFFER_EXISTS, "its number %lld is that of buffer \"%s\" of session \"%s\"",
                            (long long)same_id->id, same_id->name.s,
                            gb_known_session_of(&r->known, same_id->session_id));
    return 0;
}

static void judge(struct recover *r, size_t i) {
    struct stray *stray = &r->strays[i];
    const struct stray *before = i > 0 ? &r->strays[i - 1] : NULL;

    if (!stray->blocks)
        stray->verdict = GB_DAMAGED;
    else if (before && same_buffer(before, stray))
        stray->verdict = GB_OLDER;
    else if (check_free(r, stray, &stray->why) < 0)
        stray->verdict = GB_REFUSED;
}

static int by_number(const void *one, const void *other) {
    const struct stray *const *a = one;
    const struct stray *const *b = other;
    int r = compare((*a)->name.buffer_id, (*b)->name.buffer_id);

    return r != 0 ? r : compare(*a > *b, 0);
}

/* The same number cannot be given to two buffers. */
static int refuse_twins(struct recover *r, struct gb_error *err) {
    struct stray **list = calloc(r->count + 1, sizeof(struct stray *));
    size_t n = 0;
    size_t i;

    if (!list)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (i = 0; i < r->count; i++) {
        if (r->strays[i].verdict == GB_RECOVERABLE)
            list[n++] = &r->strays[i];
    }
    qsort(list, n, sizeof(struct stray *), by_number);
    for (i = 1; i < n; i++) {
        if (list[i]->name.buffer_id != list[i - 1]->name.buffer_id)
            continue;
        list[i]->verdict = GB_REFUSED;
        gb_error_set(&list[i]->why, GB_ERR_BUFFER_EXISTS, "its number %lld is that of \"%s\" of session \"%s\", too",
                     (long long)list[i]->name.buffer_id, list[i - 1]->buffer.s, list[i - 1]->session.s);
    }
    free(list);
    return 0;
}

static int read_files(struct recover *r, struct gb_error *err) {
    size_t i;

    if (gb_disk_visit(r->disk, GB_DISK_IN_DATA, see_data, r, err) < 0 ||
        gb_disk_visit(r->disk, GB_DISK_IN_ORPHANS, see_orphan, r, err) < 0)
        return -1;
    for (i = 0; i < r->count; i++)
        read_stray(r, &r->strays[i], &r->strays[i].why);
    if (give_names(r, err) < 0)
        return -1;
    if (r->count > 0)
        qsort(r->strays, r->count, sizeof(r->strays[0]), by_buffer);
    for (i = 0; i < r->count; i++)
        judge(r, i);
    return refuse_twins(r, err);
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static void print(const struct stray *stray) {
    static const char *const words[] = {[GB_RECOVERABLE] = "recoverable",
                                        [GB_RECOVERED] = "recovered",
                                        [GB_DAMAGED] = "damaged",
                                        [GB_OLDER] = "older",
                                        [GB_REFUSED] = "refused"};
    const struct gb_disk_header *h = &stray->header;
    char shape[GB_SHAPE_TEXT_SIZE];
    char file[GB_DISK_FILE_SIZE];

    gb_disk_file_text(stray->place, &stray->name, file);
    printf("%-11s ", words[stray->verdict]);
    if (stray->known) {
        gb_shape_text(&h->shape, shape);
        printf("%s/%s generation %lld, %llu bytes, %s [%s], %s: ", stray->session.s, stray->buffer.s,
               (long long)gb_disk_name_generation(&stray->name), (unsigned long long)h->bytes, gb_dtype_name(h->dtype),
               shape, stray->blocks ? "checksum right" : "checksum wrong");
    }
    if (stray->known && is_linked(stray)) {
        printf("restored from %s/%s of a checkpoint: ", h->session.s, h->buffer.s);
    }
    printf("%s%s%s\n", file, stray->why.code != GB_OK ? ": " : "", stray->why.detail);
}

/* Returns how many files are damaged or refused. */
static size_t report(const struct recover *r) {
    size_t numbers[GB_REFUSED + 1] = {0};
    size_t i;

    for (i = 0; i < r->count; i++) {
        print(&r->strays[i]);
        numbers[r->strays[i].verdict]++;
    }
    printf("%zu files without a record: %zu %s, %zu older, %zu damaged, %zu refused\n", r->count,
           numbers[r->apply ? GB_RECOVERED : GB_RECOVERABLE], r->apply ? "recovered" : "recoverable", numbers[GB_OLDER],
           numbers[GB_DAMAGED], numbers[GB_REFUSED]);
    if (r->foreign && !r->apply)
        printf("the folder belongs to another database, or has no marker: --apply needs --take-over\n");
    return numbers[GB_DAMAGED] + numbers[GB_REFUSED];
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int check_owner(struct recover *r, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    r->foreign = gb_disk_check_owner(r->disk, &why) < 0;
    if (!r->foreign || !r->apply || r->take_over)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "%.200s. With --take-over it belongs to the database in %.200s from now on, and to no other",
                        why.detail, r->bytes.state_dir);
}

static int apply(struct recover *r, struct gb_error *err) {
    size_t i;

    if (gb_random(&r->run, sizeof(r->run), err) < 0)
        return -1;
    for (i = 0; i < r->count; i++) {
        if (r->strays[i].verdict == GB_RECOVERABLE)
            make_records(r, &r->strays[i]);
    }
    return r->foreign ? gb_disk_take_over(r->disk, err) : 0;
}

/* The folder cannot belong to a database that is not there yet, which is therefore not made. */
static int check_before(struct recover *r, struct gb_error *err) {
    int result;

    if (!r->apply || r->take_over || access(r->bytes.database, F_OK) == 0)
        return 0;
    if (gb_disk_open_offline(r->bytes.data_dir, "", &r->disk, err) < 0)
        return -1;
    result = check_owner(r, err);
    gb_disk_close(r->disk);
    r->disk = NULL;
    return result;
}

static int run(struct recover *r, const struct gb_options *options, struct gb_error *err) {
    r->quota = (struct gb_quota){
        .bytes = options->quota_bytes,
        .buffers = options->quota_buffers,
        .pinned_bytes = GB_UNLIMITED,
        .stored_bytes = GB_UNLIMITED,
    };
    if (gb_bytes_open(options, r->apply, &r->bytes, err) < 0 || check_before(r, err) < 0 ||
        (r->apply ? read_store(r, err) : inspect(r, err)) < 0 ||
        gb_disk_open_offline(r->bytes.data_dir, r->uuid, &r->disk, err) < 0 || check_owner(r, err) < 0 ||
        read_files(r, err) < 0)
        return -1;
    return r->apply ? apply(r, err) : 0;
}

enum gb_exit gb_recover_command(struct gb_options *options, int argc, char **argv) {
    struct recover r = {.bytes = {.lock_fd = -1}};
    struct gb_command_line line = {.most = 0};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_exit status = GB_EXIT_OK;
    int result = gb_command_read(&about, options, argc, argv, &line, &err);
    size_t i;

    r.apply = line.own[APPLY];
    r.take_over = line.own[TAKE_OVER];
    if (result == 0 && options->help) {
        gb_command_help(stdout, &about, GB_COMMAND_ALL);
        goto out;
    }
    if (result == 0 && r.take_over && !r.apply)
        result = gb_error_set(&err, GB_ERR_INVALID_ARGUMENT, "--take-over goes with --apply");
    if (result != 0 || gb_options_finish(options, &err) != 0) {
        status = gb_command_usage_error(&about, &err);
        goto out;
    }
    if (run(&r, options, &err) == 0) {
        status = report(&r) > 0 ? GB_EXIT_FINDINGS : GB_EXIT_OK;
    } else {
        fprintf(stderr, "gpubufd: %s\n", err.detail);
        status = err.code == GB_ERR_INVALID_ARGUMENT ? GB_EXIT_CONFIG : GB_EXIT_SOFTWARE;
    }

out:
    for (i = 0; i < r.count; i++)
        free(r.strays[i].blocks);
    free(r.strays);
    gb_known_done(&r.known);
    gb_disk_close(r.disk);
    gb_store_close(r.store);
    gb_bytes_done(&r.bytes);
    return status;
}
