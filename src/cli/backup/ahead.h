/* A file of a checkpoint in order, for an upload in one stream: a thread reads on while the caller sends. */
#ifndef GB_CLI_BACKUP_AHEAD_H
#define GB_CLI_BACKUP_AHEAD_H

#include <pthread.h>

#include "cli/backup/origin.h"

#define GB_AHEAD_PIECES 2 /* one is sent, and one is read */
/* A piece of a folder's file stays in the processor's cache until it is sent; each of the daemon's is a request. */
#define GB_AHEAD_FOLDER_BYTES ((uint64_t)1 << 20)
#define GB_AHEAD_DAEMON_BYTES ((uint64_t)16 << 20)

/* Guarded by the lock, but for the piece that is being read, which is the thread's, and the first one that is here,
 * which is the caller's. */
struct gb_ahead {
    const struct gb_origin *origin;
    uint64_t piece_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    bool ending;
    const struct gb_backup_file *file; /* NULL: nothing is to be read */
    uint64_t at;                       /* bytes that were read, or are being read */
    bool reading;
    unsigned read; /* pieces */
    unsigned given_back;
    bool taken;                /* the caller has a piece that it has not given back */
    struct gpubuf_error error; /* why no more is read */
    struct gb_piece pieces[GB_AHEAD_PIECES];
    const char *data[GB_AHEAD_PIECES];
    uint64_t bytes[GB_AHEAD_PIECES];
};

/* The clients are the caller's, one for each piece. 0, or -1 with err. ahead needs gb_ahead_done() after 0. */
int gb_ahead_init(struct gb_ahead *ahead, const struct gb_origin *origin, gpubuf_client *const *clients,
                  struct gpubuf_error *err);
/* Waits for a read that runs. */
void gb_ahead_done(struct gb_ahead *ahead);

/* Begins a file at its first byte, also the same one anew. Waits for a read that runs. */
void gb_ahead_begin(struct gb_ahead *ahead, const struct gb_backup_file *file);
/* Waits for the next piece: how many bytes it has, 0 behind the end of the file, -1 with err. It stays until the next
 * call of this. The caller asks no more after -1 or 0. */
int64_t gb_ahead_next(struct gb_ahead *ahead, const char **ret, struct gpubuf_error *err);

#endif
