/* Reads the files of a checkpoint and compares them with its manifest, in steps. */
#ifndef GB_CORE_CHECKPOINT_FILES_H
#define GB_CORE_CHECKPOINT_FILES_H

#include "core/checkpoint/checkpoint.h"

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
