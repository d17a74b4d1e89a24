/* `gpubufd recover`: what its files share. */
#ifndef GB_DAEMON_RECOVER_H
#define GB_DAEMON_RECOVER_H

#include "daemon/bytes.h"

enum gb_verdict {
    GB_RECOVERABLE,
    GB_RECOVERED,
    GB_DAMAGED, /* why says how */
    GB_OLDER,   /* another file has a newer generation of the buffer */
    GB_REFUSED  /* why says what is in its way */
};

/* A file that no row names. */
struct gb_stray {
    enum gb_disk_place place;
    struct gb_disk_name name;
    uint64_t bytes;
    struct gb_disk_header header; /* unless known is false, as the next three */
    struct gb_name session;       /* that the buffer gets; see gb_recover_name */
    struct gb_name buffer;
    char key[2 * GB_NAME_MAX + 2]; /* gb_recover_name's */
    bool known;
    uint32_t *blocks; /* malloc'd; NULL: the bytes are not whole */
    enum gb_verdict verdict;
    struct gb_error why;
};

struct gb_recover {
    bool apply;
    bool take_over;
    struct gb_bytes bytes;
    char uuid[GB_STORE_UUID_SIZE]; /* of the database; "": there is none yet */
    struct gb_store *store;        /* with apply */
    struct gb_known known;
    struct gb_disk *disk;
    bool foreign; /* the marker is missing, or names another database */
    struct gb_stray *strays;
    size_t count;
    size_t room;
    int64_t last_session_id;
    uint32_t run; /* for entity tags */
    struct gb_quota quota;
};

/* A restore of a checkpoint linked the file. */
static inline bool gb_stray_linked(const struct gb_stray *stray) {
    return (stray->name.generation & GB_DISK_LINKED) != 0;
}

/* recover_names.c: gives names to the files whose headers are known: that of the header, and where a file was linked
 * and the name is another buffer's, "restored." and the buffer's number. No two buffers get the same, unless they had
 * it one after the other. */
int gb_recover_name(struct gb_recover *recover, struct gb_error *err);

/* recover_apply.c: makes the session, unless it is there, and the buffer's rows, and waits until they are on disk. The
 * verdict becomes RECOVERED or REFUSED. */
void gb_recover_adopt(struct gb_recover *recover, struct gb_stray *stray);

#endif
