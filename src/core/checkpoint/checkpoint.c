/* The table of checkpoints: complete ones, and those that are being made, put and removed. The folder on the disk is
 * the truth, and is read at the start. create.c, restore.c and files.c change the table; handlers read it. */
#include "core/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/map.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/public/access.h"
#include "core/runtime/runtime.h"

/* The table of checkpoints. */

struct gb_checkpoints {
    pthread_mutex_t lock;
    bool known;                 /* the folders were read */
    struct gb_map by_name;      /* struct gb_checkpoint */
    struct gb_idlist by_number; /* see place_locked */
    uint64_t swept_ns;          /* the housekeeper's alone */
};

/* --- table -------------------------------------------------------------------------------------------------------- */

/* The table of checkpoints. */

struct gb_checkpoints *gb_checkpoints_new(void) {
    struct gb_checkpoints *table = calloc(1, sizeof(*table));

    if (table)
        gb_mutex_init(&table->lock);
    return table;
}

static void checkpoint_free(struct gb_checkpoint *c) {
    free(c->sums);
    free(c->came);
    free(c);
}

void gb_checkpoints_free(struct gb_checkpoints *table) {
    struct gb_checkpoint *c;
    size_t at = 0;

    if (!table)
        return;
    while ((c = gb_map_next(&table->by_name, &at)))
        checkpoint_free(c);
    gb_map_done(&table->by_name);
    gb_idlist_done(&table->by_number);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

/* The number is the moment in us, or the next that is free: lists have this order, also after a restart. */
static int64_t number_of(const struct gb_checkpoints *table, int64_t moment_us) {
    int64_t number = moment_us > 0 ? moment_us : 1;
    int64_t there;

    while (gb_idlist_after(&table->by_number, number - 1, &there) && there == number)
        number++;
    return number;
}

/* Its former place is free, so that no memory is needed. */
static void place_locked(struct gb_checkpoints *table, struct gb_checkpoint *c, int64_t moment_us) {
    gb_idlist_take(&table->by_number, c->view.number);
    c->view.number = number_of(table, moment_us);
    gb_idlist_put(&table->by_number, c->view.number, c);
}

static struct gb_checkpoint *add_locked(struct gb_checkpoints *table, const struct gb_name *name,
                                        const struct gb_name *session, enum gb_checkpoint_state state) {
    struct gb_checkpoint *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->view.name = *name;
    c->view.session = *session;
    c->view.number = number_of(table, gb_wall_us());
    c->state = state;
    if (gb_idlist_put(&table->by_number, c->view.number, c) == 0) {
        if (gb_map_put(&table->by_name, c->view.name.s, c) == 0)
            return c;
        gb_idlist_take(&table->by_number, c->view.number);
    }
    free(c);
    return NULL;
}

static void drop_locked(struct gb_checkpoints *table, struct gb_checkpoint *c) {
    gb_map_take(&table->by_name, c->view.name.s);
    gb_idlist_take(&table->by_number, c->view.number);
    checkpoint_free(c);
}

static bool shows(const struct gb_checkpoint *c) {
    return c->state == GB_CHECKPOINT_INCOMPLETE || c->state == GB_CHECKPOINT_COMPLETE;
}

/* A checkpoint that clients see. NULL with CHECKPOINT_NOT_FOUND, or with STORAGE_UNAVAILABLE before the folder was
 * read. */
static struct gb_checkpoint *checkpoints_find_locked(struct gb_checkpoints *table, const struct gb_name *name,
                                                     struct gb_error *err) {
    struct gb_checkpoint *c = gb_map_get(&table->by_name, name->s);

    if (c && shows(c))
        return c;
    if (table->known)
        gb_error_set(err, GB_ERR_CHECKPOINT_NOT_FOUND, "there is no checkpoint named \"%s\"", name->s);
    else
        gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE, "the folder of the checkpoints is not there");
    return NULL;
}

/* Copies sizes and checksums, so that a read of a file does not read the manifest. Returns NULL if memory is
 * exhausted. */
static struct gb_checkpoint_sum *sums_of(const struct gb_manifest *manifest) {
    struct gb_checkpoint_sum *sums = malloc((manifest->count + 1) * sizeof(*sums));
    size_t i;

    for (i = 0; sums && i < manifest->count; i++)
        sums[i] =
            (struct gb_checkpoint_sum){.size = manifest->entries[i].size, .crc32c = manifest->entries[i].file_crc32c};
    return sums;
}

static void fill_locked(struct gb_checkpoints *table, struct gb_checkpoint *c, const struct gb_manifest *manifest,
                        struct gb_checkpoint_sum *sums) {
    free(c->sums);
    free(c->came);
    c->came = NULL;
    c->came_count = 0;
    c->sums = sums;
    c->manifest_damage = GB_OK;
    c->view.damaged_files = 0;
    c->state = GB_CHECKPOINT_COMPLETE;
    c->view.session = manifest->session;
    c->view.complete = true;
    c->view.as_of_us = manifest->as_of_us;
    c->view.buffers = manifest->count;
    c->view.bytes = manifest->bytes;
    place_locked(table, c, manifest->as_of_us);
}

/* --- the start ---------------------------------------------------------------------------------------------------- */

/* One whose manifest is damaged is shown as incomplete: it can be deleted, or be brought again. The daemon does not
 * delete it by itself. What says nothing of the manifest may pass. */
static int judge_manifest(const struct gb_error *why, enum gb_code *ret_damage, struct gb_error *err) {
    bool medium = why->code == GB_ERR_STORAGE_FAILED && why->native_code == EIO;

    if (!gb_damage_is(why) && !medium)
        return gb_error_move(err, why);
    *ret_damage = GB_ERR_CONTENT_DAMAGED;
    return 0;
}

/* Takes sums. */
static struct gb_checkpoint *see_locked(struct gb_checkpoints *table, const struct gb_name *name,
                                        const struct gb_name *session, int64_t changed_us, enum gb_code damage,
                                        const struct gb_manifest *manifest, struct gb_checkpoint_sum *sums) {
    struct gb_checkpoint *c = gb_map_get(&table->by_name, name->s); /* of an earlier try */

    if (!c) {
        c = add_locked(table, name, session, GB_CHECKPOINT_INCOMPLETE);
        if (c) {
            c->has_files = true;
            c->changed_us = changed_us;
            c->manifest_damage = damage;
            c->view.damaged_files = damage != GB_OK;
            place_locked(table, c, changed_us);
        }
        if (c && sums) {
            fill_locked(table, c, manifest, sums);
            return c;
        }
    }
    free(sums);
    return c;
}

static int see(void *arg, const struct gb_name *name, bool complete, const struct gb_name *session, int64_t changed_us,
               struct gb_error *err) {
    struct gb_core *core = arg;
    struct gb_checkpoints *table = core->checkpoints;
    struct gb_manifest manifest = {.count = 0};
    struct gb_checkpoint_sum *sums = NULL;
    struct gb_error why = GB_ERROR_INIT;
    enum gb_code damage = GB_OK;
    struct gb_checkpoint *c;

    if (complete && gb_disk_checkpoint_manifest(core->config.disk, name, &manifest, &why) < 0) {
        if (judge_manifest(&why, &damage, err) < 0)
            return -1;
        complete = false;
    }
    if (complete) {
        sums = sums_of(&manifest);
        if (!sums) {
            gb_manifest_done(&manifest);
            return gb_no_memory(err);
        }
    }
    pthread_mutex_lock(&table->lock);
    c = see_locked(table, name, session, changed_us, damage, &manifest, sums);
    pthread_mutex_unlock(&table->lock);
    gb_manifest_done(&manifest);
    return c ? 0 : gb_no_memory(err);
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

#define MAKES "checkpoint made"
#define REMOVES "checkpoint removed"

bool gb_checkpoints_intend(struct gb_core *core, const struct gb_store_mark *mark, bool makes,
                           const struct gb_name *name, int64_t as_of_us, gb_store_done_fn *done, void *arg) {
    char note[GB_KEY_INTENT_MAX + 1];

    if (!mark)
        return false;
    snprintf(note, sizeof(note), "%s %" PRId64 " %s", makes ? MAKES : REMOVES, as_of_us, name->s);
    gb_key_intend(core, mark, note, done, arg);
    return true;
}

/* The folder of that name and moment is there, or it is not. */
static bool carried_out(void *arg, const char *note) {
    struct gb_checkpoints *table = arg;
    bool makes = strncmp(note, MAKES, strlen(MAKES)) == 0;
    const char *at = note + strlen(makes ? MAKES : REMOVES);
    const struct gb_checkpoint *c;
    char *name;
    int64_t as_of_us = strtoll(at, &name, 10);
    bool there;

    pthread_mutex_lock(&table->lock);
    c = *name == ' ' ? gb_map_get(&table->by_name, name + 1) : NULL;
    there = c && c->view.as_of_us == as_of_us;
    pthread_mutex_unlock(&table->lock);
    return there == makes;
}

/* The tick tries again to read what could not be read now. */
static bool may_pass(enum gb_code code) {
    return code == GB_ERR_STORAGE_UNAVAILABLE || code == GB_ERR_STORAGE_FAILED || code == GB_ERR_SATURATED;
}

int gb_checkpoints_start(struct gb_core *core, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (!core->config.disk)
        return 0;
    if (gb_disk_checkpoints(core->config.disk, see, core, &why) < 0)
        return may_pass(why.code) ? 0 : gb_error_move(err, &why);
    pthread_mutex_lock(&core->checkpoints->lock);
    core->checkpoints->known = true;
    pthread_mutex_unlock(&core->checkpoints->lock);
    gb_keys_resolve_intents(core, "checkpoint ", carried_out, core->checkpoints);
    return 0;
}

/* --- tick --------------------------------------------------------------------------------------------------------- */

static int exists(const struct gb_checkpoint *c, struct gb_error *err) {
    const char *how = c->state == GB_CHECKPOINT_MAKING  ? " is just being made"
                      : c->state == GB_CHECKPOINT_GOING ? " is just being deleted"
                                                        : "";

    return gb_error_set(err, GB_ERR_CHECKPOINT_EXISTS,
                        "a checkpoint named \"%s\"%s%s; choose another name, or delete it", c->view.name.s,
                        how[0] ? "" : " is there", how);
}

/* session "": those of which no manifest has said yet whose they are. */
static int check_count_locked(const struct gb_checkpoints *table, const struct gb_name *session, struct gb_error *err) {
    const struct gb_checkpoint *c;
    unsigned count = 0;
    size_t at = 0;

    while ((c = gb_map_next(&table->by_name, &at)))
        count += gb_name_equal(&c->view.session, session);
    if (count < GB_CHECKPOINTS_MAX)
        return 0;
    if (!session->s[0])
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "%u checkpoints have files and no manifest yet, the permitted number; complete or delete "
                            "one",
                            GB_CHECKPOINTS_MAX);
    return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                        "session \"%s\" has %u checkpoints, the permitted number; delete one", session->s,
                        GB_CHECKPOINTS_MAX);
}

static int reserve_locked(struct gb_checkpoints *table, const struct gb_name *name, const struct gb_name *session,
                          enum gb_checkpoint_state state, struct gb_error *err) {
    const struct gb_checkpoint *c = gb_map_get(&table->by_name, name->s);

    if (c)
        return exists(c, err);
    if (!table->known)
        return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE, "the folder of the checkpoints is not there");
    if (check_count_locked(table, session, err) < 0)
        return -1;
    return add_locked(table, name, session, state) ? 0 : gb_no_memory(err);
}

static int check_disk(struct gb_core *core, struct gb_error *err) {
    if (!core->config.disk)
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
                            "the daemon has no folder for checkpoints: start it with --data-dir");
    return gb_disks_start(core, err);
}

int gb_checkpoints_reserve(struct gb_core *core, const struct gb_name *name, const struct gb_name *session,
                           struct gb_error *err) {
    struct gb_checkpoints *table = core->checkpoints;
    int r;

    if (check_disk(core, err) < 0)
        return -1;
    pthread_mutex_lock(&table->lock);
    r = reserve_locked(table, name, session, GB_CHECKPOINT_MAKING, err);
    pthread_mutex_unlock(&table->lock);
    return r;
}

int gb_checkpoints_complete(struct gb_core *core, const struct gb_manifest *manifest, const struct gb_name *name,
                            struct gb_checkpoint_view *ret_view, struct gb_error *err) {
    struct gb_checkpoints *table = core->checkpoints;
    struct gb_checkpoint_sum *sums = sums_of(manifest);
    struct gb_checkpoint *c;

    if (!sums)
        return gb_no_memory(err);
    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    fill_locked(table, c, manifest, sums);
    *ret_view = c->view;
    pthread_mutex_unlock(&table->lock);
    gb_core_changed(core);
    return 0;
}

void gb_checkpoints_drop(struct gb_core *core, const struct gb_name *name) {
    struct gb_checkpoints *table = core->checkpoints;
    struct gb_checkpoint *c;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    if (c)
        drop_locked(table, c);
    pthread_mutex_unlock(&table->lock);
}

int gb_checkpoints_look(struct gb_core *core, const struct gb_name *name, bool complete, struct gb_checkpoint_view *ret,
                        struct gb_error *err) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    int r = -1;

    if (!core->config.disk)
        return gb_error_set(err, GB_ERR_CHECKPOINT_NOT_FOUND, "there is no checkpoint named \"%s\"", name->s);
    pthread_mutex_lock(&table->lock);
    c = checkpoints_find_locked(table, name, err);
    if (c && complete && !c->view.complete)
        gb_error_set(err, GB_ERR_CHECKPOINT_INCOMPLETE,
                     "the checkpoint \"%s\" has no manifest yet: bring the rest of its files, manifest.json last",
                     name->s);
    else if (c)
        r = 0;
    if (r == 0)
        *ret = c->view;
    pthread_mutex_unlock(&table->lock);
    return r;
}

int gb_checkpoints_still(struct gb_core *core, const struct gb_checkpoint_view *view, struct gb_error *err) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    bool still;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, view->name.s);
    still = c && c->state == GB_CHECKPOINT_COMPLETE && c->view.number == view->number;
    pthread_mutex_unlock(&table->lock);
    return still ? 0
                 : gb_error_set(err, GB_ERR_CHECKPOINT_NOT_FOUND, "the checkpoint \"%s\" was deleted meanwhile",
                                view->name.s);
}

bool gb_checkpoints_sum(struct gb_core *core, const struct gb_name *name, size_t index, struct gb_checkpoint_sum *ret) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    bool found;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    found = c && c->state == GB_CHECKPOINT_COMPLETE && index < c->view.buffers;
    if (found)
        *ret = c->sums[index];
    pthread_mutex_unlock(&table->lock);
    return found;
}

/* --- files that clients bring ------------------------------------------------------------------------------------- */

static int put_begin_locked(struct gb_checkpoints *table, const struct gb_checkpoint_put_params *params, bool manifest,
                            struct gb_error *err) {
    struct gb_checkpoint *c = gb_map_get(&table->by_name, params->name.s);

    if (!c) {
        if (reserve_locked(table, &params->name, &params->session, GB_CHECKPOINT_INCOMPLETE, err) < 0)
            return -1;
        c = gb_map_get(&table->by_name, params->name.s);
    }
    if (c->state != GB_CHECKPOINT_INCOMPLETE ||
        (params->session.s[0] && !gb_name_equal(&params->session, &c->view.session)))
        return exists(c, err);
    if (c->completing || (manifest && c->puts > 0))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the manifest comes last: wait until the other files are there");
    c->puts++;
    c->completing = manifest;
    c->changed_us = gb_wall_us();
    return 0;
}

int gb_checkpoints_put_begin(struct gb_core *core, const struct gb_checkpoint_put_params *params, bool manifest,
                             struct gb_error *err) {
    struct gb_checkpoints *table = core->checkpoints;
    int r;

    if (check_disk(core, err) < 0)
        return -1;
    pthread_mutex_lock(&table->lock);
    r = put_begin_locked(table, params, manifest, err);
    pthread_mutex_unlock(&table->lock);
    return r;
}

int gb_checkpoints_check_count(struct gb_core *core, const struct gb_name *name, const struct gb_name *session,
                               struct gb_error *err) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    int r = 0;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    if (!gb_name_equal(&c->view.session, session))
        r = check_count_locked(table, session, err);
    pthread_mutex_unlock(&table->lock);
    return r;
}

/* True: nothing was brought, so that the checkpoint goes. */
static bool leave_locked(struct gb_checkpoint *c, bool manifest, bool brought) {
    c->puts--;
    if (manifest)
        c->completing = false;
    c->has_files |= brought;
    if (c->puts > 0 || c->has_files || c->state != GB_CHECKPOINT_INCOMPLETE)
        return false;
    c->state = GB_CHECKPOINT_GOING;
    return true;
}

void gb_checkpoints_put_end(struct gb_core *core, const struct gb_name *name, bool manifest, bool brought) {
    struct gb_checkpoints *table = core->checkpoints;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_checkpoint *c;
    bool goes;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    goes = leave_locked(c, manifest, brought);
    pthread_mutex_unlock(&table->lock);
    if (!goes)
        return;
    if (gb_disk_checkpoint_remove(core->config.disk, name, &err) == 0) {
        gb_checkpoints_drop(core, name);
        return;
    }
    pthread_mutex_lock(&table->lock);
    c->state = GB_CHECKPOINT_INCOMPLETE; /* until the sweep */
    pthread_mutex_unlock(&table->lock);
}

/* Grows with the files, which come about in their order. NULL for one far behind them, and without memory. */
static struct gb_checkpoint_came *came_locked(struct gb_checkpoint *c, size_t index) {
    size_t count = 2 * c->came_count + 64;

    if (index >= c->came_count && index < count) {
        struct gb_checkpoint_came *more = realloc(c->came, count * sizeof(*more));

        if (!more)
            return NULL;
        memset(more + c->came_count, 0, (count - c->came_count) * sizeof(*more));
        c->came = more;
        c->came_count = count;
    }
    return index < c->came_count ? &c->came[index] : NULL;
}

unsigned gb_checkpoints_naming(struct gb_core *core, const struct gb_name *name, size_t index) {
    struct gb_checkpoints *table = core->checkpoints;
    struct gb_checkpoint_came *came;
    unsigned naming = 0;

    pthread_mutex_lock(&table->lock);
    came = came_locked(gb_map_get(&table->by_name, name->s), index);
    if (came) {
        came->known = false;
        naming = ++came->names;
    }
    pthread_mutex_unlock(&table->lock);
    return naming;
}

void gb_checkpoints_named(struct gb_core *core, const struct gb_name *name, size_t index, unsigned naming,
                          const struct gb_checkpoint_sum *sum) {
    struct gb_checkpoints *table = core->checkpoints;
    struct gb_checkpoint *c;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    if (index < c->came_count) {
        c->came[index].known = c->came[index].names == naming;
        c->came[index].sum = *sum;
    }
    pthread_mutex_unlock(&table->lock);
}

bool gb_checkpoints_came(struct gb_core *core, const struct gb_name *name, size_t index,
                         struct gb_checkpoint_sum *ret) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    bool known;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    known = c && index < c->came_count && c->came[index].known;
    if (known)
        *ret = c->came[index].sum;
    pthread_mutex_unlock(&table->lock);
    return known;
}

size_t gb_checkpoint_brought(struct gb_core *core, const struct gb_name *name, size_t *index,
                             struct gb_checkpoint_brought *ret, size_t room) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    size_t found = 0;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    for (; c && *index < c->came_count && found < room; ++*index) {
        const struct gb_checkpoint_came *came = &c->came[*index];

        if (!came->known)
            continue;
        gb_manifest_file(*index, ret[found].file);
        ret[found].size = came->sum.size;
        ret[found++].crc32c = came->sum.crc32c;
    }
    pthread_mutex_unlock(&table->lock);
    return found;
}

/* --- views -------------------------------------------------------------------------------------------------------- */

int gb_checkpoint_get(struct gb_core *core, const struct gb_name *name, struct gb_checkpoint_view *ret,
                      struct gb_error *err) {
    return gb_checkpoints_look(core, name, false, ret, err);
}

bool gb_checkpoints_next(struct gb_core *core, int64_t number, const struct gb_name *session,
                         struct gb_checkpoint_view *ret) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    bool found = false;

    pthread_mutex_lock(&table->lock);
    while (!found && (c = gb_idlist_after(&table->by_number, number, &number))) {
        found = shows(c) && (!session || gb_name_equal(session, &c->view.session));
        if (found)
            *ret = c->view;
    }
    pthread_mutex_unlock(&table->lock);
    return found;
}

bool gb_checkpoints_any(struct gb_core *core) {
    struct gb_checkpoint_view view = {.number = 0};

    while (gb_checkpoints_next(core, view.number, NULL, &view)) {
        if (view.complete)
            return true;
    }
    return false;
}

int gb_checkpoint_list(struct gb_core *core, struct gb_page *page, const struct gb_name *session,
                       int (*visit)(void *arg, const struct gb_checkpoint_view *view, struct gb_error *err), void *arg,
                       struct gb_error *err) {
    struct gb_checkpoint_view view;
    int64_t after = page->after;
    unsigned count = 0;

    while (gb_checkpoints_next(core, after, session, &view)) {
        if (count++ == page->limit) {
            page->more = true;
            break;
        }
        if (visit(arg, &view, err) < 0)
            return -1;
        after = view.number;
    }
    return 0;
}

void gb_checkpoints_tell(struct gb_core *core, enum gb_notice_type type, const struct gb_checkpoint_view *view,
                         const struct gb_name *session) {
    struct gb_notice notice = gb_notice_new(type);

    notice.session = session ? *session : view->session;
    notice.has_bytes = true;
    notice.bytes = view->bytes;
    notice.count = view->buffers;
    snprintf(notice.detail, sizeof(notice.detail), "%.127s", view->name.s);
    gb_notice_post(core, &notice);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

static void name_file(size_t index, char ret[GB_MANIFEST_FILE_SIZE]) {
    if (index == GB_CHECKPOINT_OF_MANIFEST)
        strcpy(ret, GB_CHECKPOINT_MANIFEST);
    else
        gb_manifest_file(index, ret);
}

bool gb_checkpoints_judge(struct gb_core *core, const struct gb_checkpoint_view *view, size_t index,
                          enum gb_code code) {
    struct gb_checkpoints *table = core->checkpoints;
    struct gb_checkpoint *c;
    enum gb_code *damage;
    bool found;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, view->name.s);
    found = c && c->state == GB_CHECKPOINT_COMPLETE && c->view.number == view->number &&
            (index == GB_CHECKPOINT_OF_MANIFEST || index < c->view.buffers);
    if (found) {
        damage = index == GB_CHECKPOINT_OF_MANIFEST ? &c->manifest_damage : &c->sums[index].damage;
        c->view.damaged_files += (code != GB_OK) - (*damage != GB_OK);
        *damage = code;
    }
    pthread_mutex_unlock(&table->lock);
    return found;
}

void gb_checkpoints_tell_damage(struct gb_core *core, const struct gb_checkpoint_view *view, size_t index,
                                const struct gb_name *buffer, bool often) {
    struct gb_notice notice = gb_notice_new(GB_NOTICE_CHECKPOINT_DAMAGED);
    char file[GB_MANIFEST_FILE_SIZE];

    name_file(index, file);
    notice.session = view->session;
    if (buffer)
        notice.buffer = *buffer;
    snprintf(notice.detail, sizeof(notice.detail), "%s of %.80s", file, view->name.s);
    if (often)
        gb_notice_post_limited(core, &notice);
    else
        gb_notice_post(core, &notice);
}

static void tell_damage(struct gb_checkpoint_damage *ret, size_t index, enum gb_code code) {
    name_file(index, ret->file);
    ret->code = code;
}

size_t gb_checkpoint_damages(struct gb_core *core, const struct gb_name *name,
                             struct gb_checkpoint_damage ret[GB_SWEEP_LISTED]) {
    struct gb_checkpoints *table = core->checkpoints;
    const struct gb_checkpoint *c;
    size_t count = 0;
    size_t i;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, name->s);
    if (c && c->manifest_damage != GB_OK)
        tell_damage(&ret[count++], GB_CHECKPOINT_OF_MANIFEST, c->manifest_damage);
    for (i = 0; c && count < c->view.damaged_files && count < GB_SWEEP_LISTED; i++) {
        if (c->sums[i].damage != GB_OK)
            tell_damage(&ret[count++], i, c->sums[i].damage);
    }
    pthread_mutex_unlock(&table->lock);
    return count;
}

int gb_checkpoint_check_file(const char *file, struct gb_error *err) {
    size_t index;

    if (strcmp(file, GB_CHECKPOINT_MANIFEST) == 0 || strcmp(file, GB_CHECKPOINT_INDEX) == 0 ||
        gb_manifest_file_parse(file, &index))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "a checkpoint has the files 00001.safetensors and so on, " GB_CHECKPOINT_INDEX
                        " and " GB_CHECKPOINT_MANIFEST);
}

int gb_checkpoint_manifest(struct gb_core *core, const struct gb_name *name, struct gb_manifest *ret,
                           struct gb_error *err) {
    struct gb_checkpoint_view view;

    return gb_checkpoints_look(core, name, true, &view, err) < 0
               ? -1
               : gb_disk_checkpoint_manifest(core->config.disk, name, ret, err);
}

void gb_checkpoint_skip(struct gb_sweep_skip listed[GB_SWEEP_LISTED], size_t *listed_count, uint64_t *count,
                        const struct gb_name *name, enum gb_code code) {
    if (*listed_count < GB_SWEEP_LISTED)
        listed[(*listed_count)++] = (struct gb_sweep_skip){.name = *name, .code = code};
    ++*count;
}

/* --- remove ------------------------------------------------------------------------------------------------------- */

/* Checkpoints that go: on request, and those that clients have begun to bring and left. */

#define SWEEP_NS (3600 * GB_NS_PER_S)
#define ORPHAN_TTL_S (24 * 3600)

struct removal {
    struct gb_task task;
    struct gb_core *core;
    struct gb_checkpoint_view view;
    enum gb_checkpoint_state before;
    struct gb_call *call; /* NULL: its time has ended */
    struct gb_error refused;
};

static void take_back(struct gb_checkpoints *table, const struct removal *removal) {
    struct gb_checkpoint *c;

    pthread_mutex_lock(&table->lock);
    c = gb_map_get(&table->by_name, removal->view.name.s);
    c->state = removal->before;
    pthread_mutex_unlock(&table->lock);
}

static void remove_folder(struct gb_task *task) {
    struct removal *removal = gb_container_of(task, struct removal, task);
    struct gb_core *core = removal->core;
    struct gb_error err = removal->refused;

    if (err.code != GB_OK || gb_disk_checkpoint_remove(core->config.disk, &removal->view.name, &err) < 0) {
        take_back(core->checkpoints, removal);
    } else {
        gb_checkpoints_drop(core, &removal->view.name);
        gb_checkpoints_tell(core, GB_NOTICE_CHECKPOINT_DELETED, &removal->view, NULL);
    }
    gb_core_changed(core);
    if (removal->call)
        gb_call_finish(removal->call, &err);
    free(removal);
    gb_core_leave(core);
}

/* The key is marked, or is not to be. */
static void marked(void *arg, const struct gb_error *error) {
    struct removal *removal = arg;

    if (error)
        removal->refused = *error;
    gb_disks_post(removal->core, &removal->task);
}

/* before_us: only if no file has come since. */
static int begin_removal_locked(struct gb_checkpoints *table, struct removal *removal, int64_t before_us,
                                struct gb_error *err) {
    struct gb_checkpoint *c = checkpoints_find_locked(table, &removal->view.name, err);

    if (!c)
        return -1;
    if (c->puts > 0 || c->changed_us > before_us)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "a client brings a file of the checkpoint just now; try again");
    removal->view = c->view;
    removal->before = c->state;
    c->state = GB_CHECKPOINT_GOING;
    return 0;
}

static int start_removal(struct gb_core *core, const struct gb_name *name, int64_t before_us, struct gb_call *call,
                         struct gb_error *err) {
    struct removal *removal = calloc(1, sizeof(*removal));
    int r;

    if (!removal)
        return gb_no_memory(err);
    removal->core = core;
    removal->call = call;
    removal->view.name = *name;
    removal->task.run = remove_folder;
    r = gb_disks_start(core, err);
    pthread_mutex_lock(&core->checkpoints->lock);
    if (r == 0)
        r = begin_removal_locked(core->checkpoints, removal, before_us, err);
    pthread_mutex_unlock(&core->checkpoints->lock);
    if (r < 0) {
        free(removal);
        return -1;
    }
    gb_core_enter(core);
    if (!gb_checkpoints_intend(core, gb_call_mark(call), false, &removal->view.name, removal->view.as_of_us, marked,
                               removal))
        gb_disks_post(core, &removal->task);
    return 0;
}

void gb_checkpoint_delete(struct gb_core *core, const struct gb_name *name, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;

    if (start_removal(core, name, INT64_MAX, call, &err) < 0)
        gb_call_finish(call, &err);
}

/* Those that clients have begun to bring and left. */
static void sweep(struct gb_core *core) {
    uint64_t ttl_s = core->config.orphan_ttl_s > 0 ? core->config.orphan_ttl_s : ORPHAN_TTL_S;
    int64_t before_us = gb_store_seen_since(core->store, (int64_t)ttl_s * 1000000);
    struct gb_checkpoint_view view;
    int64_t after = 0;

    while (gb_checkpoints_next(core, after, NULL, &view)) {
        after = view.number;
        if (!view.complete && view.damaged_files == 0)
            start_removal(core, &view.name, before_us, NULL, NULL);
    }
}

void gb_checkpoints_tick(struct gb_core *core) {
    struct gb_checkpoints *table = core->checkpoints;
    uint64_t now_ns = gb_clock_ns();
    bool known;

    if (!core->config.disk)
        return;
    pthread_mutex_lock(&table->lock);
    known = table->known;
    pthread_mutex_unlock(&table->lock);
    if (!known)
        gb_checkpoints_start(core, NULL);
    if (table->swept_ns > 0 && now_ns - table->swept_ns < SWEEP_NS)
        return;
    table->swept_ns = now_ns;
    sweep(core);
}
