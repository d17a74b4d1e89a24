/* What the commands share that look at stored bytes while no daemon runs: where they are, and what the database says
 * of them. */
#ifndef GB_DAEMON_COMMANDS_BYTES_H
#define GB_DAEMON_COMMANDS_BYTES_H

#include "daemon/daemon.h"
#include "disk/offline.h"
#include "store/store.h"

/* The places, and the lock that keeps daemons away. */
struct gb_bytes {
    char *state_dir;
    char *database;
    char *data_dir;
    int lock_fd; /* -1: given away */
};

/* Finds the folders that the options name, and takes the lock. makes: the state directory may be new. ret is zeroed on
 * entry and to be ended also after an error. INVALID_ARGUMENT for options that name no folder; INTERNAL while a daemon
 * runs. */
int gb_bytes_open(const struct gb_options *options, bool makes, struct gb_bytes *ret, struct gb_error *err);
void gb_bytes_done(struct gb_bytes *bytes);

struct gb_known_session {
    int64_t id;
    struct gb_name name;
};

struct gb_known_buffer {
    int64_t id;
    int64_t session_id;
    struct gb_name name;
    bool has_stored;
    struct gb_stored_rec stored; /* its blocks are malloc'd */
};

/* By id. */
struct gb_known {
    struct gb_known_session *sessions;
    size_t session_count;
    size_t session_room;
    struct gb_known_buffer *buffers;
    size_t buffer_count;
    size_t buffer_room;
    struct gb_known_buffer **by_name; /* of session and buffer; made by the first gb_known_has */
};

/* Adds all rows of the database; ret is zeroed on entry, and to be ended also after an error. */
int gb_known_load(struct gb_known *ret, struct gb_store *store, struct gb_error *err);
/* One more session, of a higher id than the others: a visitor of GB_STORE_SESSIONS, arg is the struct gb_known. */
int gb_known_add_session(void *arg, const void *session, struct gb_error *err);
void gb_known_done(struct gb_known *known);

struct gb_known_buffer *gb_known_buffer_of(const struct gb_known *known, int64_t id);
/* "" for an id that there is not. */
const char *gb_known_session_of(const struct gb_known *known, int64_t id);
/* There is a buffer of that name. Before the first question all rows are added. */
bool gb_known_has(struct gb_known *known, const char *session, const char *buffer);
/* A row names the file. */
bool gb_known_names(const struct gb_known *known, const struct gb_disk_name *name);

/* Reads all bytes of an open file into the checksums of its blocks, as many as gb_stored_block_count says. *ret_crc32c
 * is of all. */
int gb_bytes_sum(struct gb_disk_reader *file, uint64_t bytes, uint32_t *blocks, uint32_t *ret_crc32c,
                 struct gb_error *err);

#endif
