/* `gpubufd fsck`: what its files share. */
#ifndef GB_DAEMON_FSCK_H
#define GB_DAEMON_FSCK_H

#include "base/json_writer.h"
#include "daemon/bytes.h"

struct gb_fsck {
    bool quick;
    bool json;
    struct gb_bytes bytes;
    struct gb_inspection *database;
    struct gb_known known;
    struct gb_disk *disk;
    struct gb_json_writer out; /* with json: the findings */
    uint64_t findings;
    uint64_t buffers; /* with stored bytes */
    uint64_t checkpoints;
    uint64_t files; /* of both */
    uint64_t read_bytes;
    uint64_t unnamed; /* files that no row names */
    uint64_t unfinished;
    uint64_t orphans;
    uint64_t damaged; /* in DIR/damaged */
    void *read;       /* inodes of files of several names that were read and are sound: tsearch(3) */
};

/* Prints what was found. b NULL: of no buffer. file: "" where there is none. */
void gb_fsck_tell(struct gb_fsck *f, const char *kind, const struct gb_known_buffer *b, const char *file,
                  const char *detail);
/* The word for a file that cannot be read for that reason. */
const char *gb_fsck_kind(const struct gb_error *why);

/* A file of that inode (0: of one name alone) was read, and is sound. */
bool gb_fsck_was_read(const struct gb_fsck *f, uint64_t inode);
void gb_fsck_note_read(struct gb_fsck *f, uint64_t inode);

/* fsck_checkpoints.c */
int gb_fsck_checkpoints(struct gb_fsck *f, struct gb_error *err);

#endif
