/* The table of checkpoints, by name. Their folders are the truth, and are read at the start. */
#ifndef GB_CORE_CHECKPOINT_CHECKPOINT_H
#define GB_CORE_CHECKPOINT_CHECKPOINT_H

#include "core/public/durable.h"
#include "core/runtime/runtime.h"

enum gb_checkpoint_state {
    GB_CHECKPOINT_MAKING,     /* by this daemon; nothing of it shows */
    GB_CHECKPOINT_INCOMPLETE, /* clients bring it */
    GB_CHECKPOINT_COMPLETE,
    GB_CHECKPOINT_GOING /* it is being deleted, and clients do not see it */
};

/* Size and checksum of a file, as the manifest says. */
struct gb_checkpoint_sum {
    uint64_t size;
    uint32_t crc32c;
    enum gb_code damage; /* the damage found by the latest reading; GB_OK: none */
};

/* The file of that index is the manifest. */
#define GB_CHECKPOINT_OF_MANIFEST SIZE_MAX

/* A file that a client brought to this process. */
struct gb_checkpoint_came {
    unsigned names; /* how many times a file got this name, or was about to */
    bool known;
    struct gb_checkpoint_sum sum;
};

/* Guarded by the table's lock. */
struct gb_checkpoint {
    struct gb_checkpoint_view view;
    enum gb_checkpoint_state state;
    unsigned puts;      /* files that clients are putting now */
    bool completing;    /* one of them is the manifest */
    bool has_files;     /* of an incomplete one: some have come */
    int64_t changed_us; /* when a file last came, of an incomplete one */
    struct gb_checkpoint_sum *sums;
    enum gb_code manifest_damage;
    struct gb_checkpoint_came *came; /* of an incomplete one, by the file's index */
    size_t came_count;
};

struct gb_checkpoints *gb_checkpoints_new(void); /* NULL when memory is exhausted */
void gb_checkpoints_free(struct gb_checkpoints *checkpoints);

/* Reads the folders, at the start, or as soon as the disk is there. [blocks] */
int gb_checkpoints_start(struct gb_core *core, struct gb_error *err);
/* Once a second. [blocks for the disk] */
void gb_checkpoints_tick(struct gb_core *core);

/* --- for the files of this folder --------------------------------------------------------------------------------- */

/* Takes the name for one that is to be made. CHECKPOINT_EXISTS, LIMIT_REACHED, STORAGE_UNAVAILABLE if what is there is
 * not known yet, UNSUPPORTED without a data folder. */
int gb_checkpoints_reserve(struct gb_core *core, const struct gb_name *name, const struct gb_name *session,
                           struct gb_error *err);
/* The checkpoint is complete now, with that manifest. *ret_view: as clients see it. */
int gb_checkpoints_complete(struct gb_core *core, const struct gb_manifest *manifest, const struct gb_name *name,
                            struct gb_checkpoint_view *ret_view, struct gb_error *err);
/* Forgets it. */
void gb_checkpoints_drop(struct gb_core *core, const struct gb_name *name);
/* CHECKPOINT_NOT_FOUND; with complete also CHECKPOINT_INCOMPLETE. */
int gb_checkpoints_look(struct gb_core *core, const struct gb_name *name, bool complete, struct gb_checkpoint_view *ret,
                        struct gb_error *err);
/* Returns 0 if it is still the one of that view, and complete; else -1 with CHECKPOINT_NOT_FOUND. */
int gb_checkpoints_still(struct gb_core *core, const struct gb_checkpoint_view *view, struct gb_error *err);
/* Reads the manifest's entry of the file `index`. Returns false if it has none. */
bool gb_checkpoints_sum(struct gb_core *core, const struct gb_name *name, size_t index, struct gb_checkpoint_sum *ret);
/* What a look at the file `index` has come to: GB_OK, CONTENT_DAMAGED or CONTENT_LOST. Returns false if the checkpoint
 * of that view is not there any more. */
bool gb_checkpoints_judge(struct gb_core *core, const struct gb_checkpoint_view *view, size_t index, enum gb_code code);
/* Posts a notice of the damage. buffer: NULL for the manifest. often: a client may cause it again and again. */
void gb_checkpoints_tell_damage(struct gb_core *core, const struct gb_checkpoint_view *view, size_t index,
                                const struct gb_name *buffer, bool often);
/* The next one behind the number that shows, of that session (NULL: of any). */
bool gb_checkpoints_next(struct gb_core *core, int64_t number, const struct gb_name *session,
                         struct gb_checkpoint_view *ret);
/* There is a complete one. */
bool gb_checkpoints_any(struct gb_core *core);
/* A file is brought: the checkpoint is made unless it exists. manifest: no other file may be. */
int gb_checkpoints_put_begin(struct gb_core *core, const struct gb_checkpoint_put_params *params, bool manifest,
                             struct gb_error *err);
/* brought: the file is there. A checkpoint that has none by then is removed. [blocks for the disk, unless brought] */
void gb_checkpoints_put_end(struct gb_core *core, const struct gb_name *name, bool manifest, bool brought);
/* LIMIT_REACHED if the session has as many as are permitted beside this one. */
int gb_checkpoints_check_count(struct gb_core *core, const struct gb_name *name, const struct gb_name *session,
                               struct gb_error *err);
/* The file that is brought is about to get its name: what is known of the file `index` is so no longer. Returns what
 * gb_checkpoints_named wants. */
unsigned gb_checkpoints_naming(struct gb_core *core, const struct gb_name *name, size_t index);
/* It has its name, and is on disk. If another upload of the file has got the name meanwhile, nothing is known. */
void gb_checkpoints_named(struct gb_core *core, const struct gb_name *name, size_t index, unsigned naming,
                          const struct gb_checkpoint_sum *sum);
/* What was computed while the file came. Returns false if nothing is known, as of a file that came to an earlier
 * process. */
bool gb_checkpoints_came(struct gb_core *core, const struct gb_name *name, size_t index, struct gb_checkpoint_sum *ret);

/* A keyed request is about to make the checkpoint of that moment, or to remove it: the intent goes to the database, and
 * done runs when it is there. Returns false, and done does not run, if the mark is NULL. */
bool gb_checkpoints_intend(struct gb_core *core, const struct gb_store_mark *mark, bool makes,
                           const struct gb_name *name, int64_t as_of_us, gb_store_done_fn *done, void *arg);

/* Posts a notice about a checkpoint. session: NULL for its own. */
void gb_checkpoints_tell(struct gb_core *core, enum gb_notice_type type, const struct gb_checkpoint_view *view,
                         const struct gb_name *session);

/* Returns 0 if it is the name of a file of a checkpoint, else -1 with INVALID_ARGUMENT. */
int gb_checkpoint_check_file(const char *file, struct gb_error *err);

/* Reads a complete one's manifest. [blocks] */
int gb_checkpoint_manifest(struct gb_core *core, const struct gb_name *name, struct gb_manifest *ret,
                           struct gb_error *err);

/* Counts a buffer that was left out, and keeps the first ones for the reply. */
void gb_checkpoint_skip(struct gb_sweep_skip listed[GB_SWEEP_LISTED], size_t *listed_count, uint64_t *count,
                        const struct gb_name *name, enum gb_code code);

/* --- files of a checkpoint ---------------------------------------------------------------------------------------- */

struct gb_checkpoint_check {
    struct gb_core *core; /* not NULL: a file that came to this process is not read again */
    struct gb_disk *disk;
    const struct gb_manifest *manifest; /* borrowed */
    struct gb_name name;                /* of the folder */
    size_t index;                       /* of the file that is read */
    struct gb_disk_reader *reader;
    uint64_t at;
    uint32_t crc;
    unsigned char *block; /* aligned */
    unsigned steps;       /* blocks that one step reads; 0: some megabytes */
};

/* Reads some blocks. Returns 2: more of this file follows; 1: the file `index - 1` is sound; 0: all were read; -1
 * with CONTENT_DAMAGED, CONTENT_LOST and the like: the file `index - 1` is not. [blocks] */
int gb_checkpoint_check_step(struct gb_checkpoint_check *check, struct gb_error *err);
void gb_checkpoint_check_done(struct gb_checkpoint_check *check); /* a zeroed one is accepted */

#endif
