/* A pass, for the files that make it up: scrub.c has the thread and the files of buffers, checkpoints.c those of
 * checkpoints. All functions are called on the scrubber's thread, and without a lock. */
#ifndef GB_CORE_SCRUB_PASS_H
#define GB_CORE_SCRUB_PASS_H

#include "core/scrub/scrub.h"

struct gb_scrub {
    struct gb_core *core;
    unsigned char *room;   /* aligned; of GB_STORED_BLOCK_BYTES */
    struct gb_idlist read; /* files of several names that were read in this pass, and are sound: by their inodes */
};

/* What the opening of a file counts for: many small files are not to take more of the CPU than few large ones. */
#define GB_SCRUB_OPENING_BYTES (256u * 1024u)

/* Waits as long as so many bytes take. DRAINING if the daemon stops. */
int gb_scrub_wait(struct gb_core *core, uint64_t bytes, struct gb_error *err);
/* The same; they were read from the disk. */
int gb_scrub_took(struct gb_core *core, uint64_t bytes, struct gb_error *err);

/* The file of that inode (0: of one name alone) was read. */
bool gb_scrub_was_read(const struct gb_scrub *scrub, uint64_t inode);
/* It was read and is sound. Where memory is exhausted it is read once more. */
void gb_scrub_note_sound(struct gb_scrub *scrub, uint64_t inode);

/* What reading a file came to; *why is GB_OK for a sound one. Counts the file. Returns 1 if it is damaged, 0 if not,
 * or -1 if the pass is to end. */
int gb_scrub_judge(struct gb_core *core, struct gb_error *why, struct gb_error *err);
/* What was found to be damaged still counts. */
void gb_scrub_count_damage(struct gb_core *core);

/* checkpoints.c: reads the files of all complete checkpoints, but for those that were read. Returns -1 if the pass is
 * to end. */
int gb_scrub_checkpoints(struct gb_scrub *scrub, struct gb_error *err);

#endif
