/* The files of checkpoints. Many are those of buffers, too, and were read with them. */
#include "core/buffer/damage.h"
#include "core/checkpoint/check.h"
#include "core/scrub/pass.h"

struct walk {
    struct gb_scrub *scrub;
    struct gb_checkpoint_view view;
    struct gb_manifest manifest;
    struct gb_checkpoint_check check;
};

/* The next complete one. */
static bool next(struct gb_core *core, int64_t *number, struct gb_checkpoint_view *ret) {
    while (gb_checkpoints_next(core, *number, NULL, ret)) {
        *number = ret->number;
        if (ret->complete)
            return true;
    }
    return false;
}

/* One that was deleted meanwhile does not matter any more. */
static void found_damage(struct walk *walk, size_t index, const struct gb_error *why) {
    struct gb_core *core = walk->scrub->core;
    const struct gb_name *buffer = index < walk->manifest.count ? &walk->manifest.entries[index].buffer : NULL;

    if (!gb_checkpoints_judge(core, &walk->view, index, why->code))
        return;
    gb_scrub_count_damage(core);
    gb_checkpoints_tell_damage(core, &walk->view, index, buffer, false);
}

/* Reads the file block by block, at the pass's pace. As gb_checkpoint_check_step, but never 2. */
static int read_file(struct walk *walk, struct gb_error *err) {
    struct gb_core *core = walk->scrub->core;
    struct gb_checkpoint_check *check = &walk->check;
    int r;

    if (gb_scrub_wait(core, GB_SCRUB_OPENING_BYTES, err) < 0)
        return -1;
    check->at = 0;
    do {
        uint64_t before = check->at;

        r = gb_checkpoint_check_step(check, err);
        if (check->at > before && gb_scrub_took(core, check->at - before, r < 0 ? NULL : err) < 0)
            return -1;
    } while (r == 2);
    return r;
}

static int scrub_file(struct walk *walk, struct gb_error *err) {
    struct gb_scrub *scrub = walk->scrub;
    size_t index = walk->check.index;
    uint64_t inode = gb_disk_checkpoint_shared(scrub->core->config.disk, &walk->view.name, index);
    struct gb_error why = GB_ERROR_INIT;
    int r = 0;

    if (gb_scrub_was_read(scrub, inode)) {
        walk->check.index++;
    } else {
        read_file(walk, &why);
        r = gb_scrub_judge(scrub->core, &why, err);
    }
    if (r > 0)
        found_damage(walk, index, &why);
    if (r != 0 || why.code != GB_OK)
        return r < 0 ? -1 : 0;
    gb_scrub_note_sound(scrub, inode);
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
        r = scrub_file(walk, err);
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
    r = gb_scrub_judge(core, &why, err);
    if (r > 0)
        found_damage(walk, GB_CHECKPOINT_OF_MANIFEST, &why);
    return r < 0 ? -1 : 0;
}

int gb_scrub_checkpoints(struct gb_scrub *scrub, struct gb_error *err) {
    struct walk walk = {.scrub = scrub};
    int64_t number = 0;
    int r = 0;

    while (r == 0 && next(scrub->core, &number, &walk.view))
        r = scrub_one(&walk, err);
    return r;
}
