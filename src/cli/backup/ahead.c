#include "cli/backup/ahead.h"

#include <string.h>

static bool has_work_locked(const struct gb_ahead *ahead) {
    return ahead->file != NULL && ahead->error.code == GPUBUF_OK && ahead->at < ahead->file->bytes &&
           ahead->read - ahead->given_back < GB_AHEAD_PIECES;
}

/* The lock is held, and is given up meanwhile. */
static void read_locked(struct gb_ahead *ahead) {
    const struct gb_backup_file *file = ahead->file;
    unsigned i = ahead->read % GB_AHEAD_PIECES;
    uint64_t left = file->bytes - ahead->at;
    uint64_t bytes = left < ahead->piece_bytes ? left : ahead->piece_bytes;
    struct gpubuf_error err;
    int rc;

    ahead->reading = true;
    pthread_mutex_unlock(&ahead->lock);
    memset(&err, 0, sizeof err);
    rc = gb_origin_read(ahead->origin, &ahead->pieces[i], file, ahead->at, bytes, &ahead->data[i], &err);
    pthread_mutex_lock(&ahead->lock);
    ahead->reading = false;
    ahead->bytes[i] = bytes;
    ahead->at += bytes;
    if (rc < 0)
        ahead->error = err;
    else
        ahead->read++;
    pthread_cond_broadcast(&ahead->changed);
}

static void *run(void *arg) {
    struct gb_ahead *ahead = arg;

    pthread_mutex_lock(&ahead->lock);
    while (!ahead->ending) {
        if (has_work_locked(ahead))
            read_locked(ahead);
        else
            pthread_cond_wait(&ahead->changed, &ahead->lock);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

int gb_ahead_init(struct gb_ahead *ahead, const struct gb_origin *origin, gpubuf_client *const *clients,
                  struct gpubuf_error *err) {
    unsigned i;

    memset(ahead, 0, sizeof *ahead);
    ahead->origin = origin;
    ahead->piece_bytes = origin->folder >= 0 ? GB_AHEAD_FOLDER_BYTES : GB_AHEAD_DAEMON_BYTES;
    for (i = 0; i < GB_AHEAD_PIECES; i++)
        ahead->pieces[i].client = clients[i];
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->changed, NULL);
    ahead->started = pthread_create(&ahead->thread, NULL, run, ahead) == 0;
    if (ahead->started)
        return 0;
    gb_ahead_done(ahead);
    return gb_backup_fail(err, GPUBUF_NO_MEMORY, "no thread can be started");
}

void gb_ahead_done(struct gb_ahead *ahead) {
    unsigned i;

    if (ahead->started) {
        pthread_mutex_lock(&ahead->lock);
        ahead->ending = true;
        pthread_cond_broadcast(&ahead->changed);
        pthread_mutex_unlock(&ahead->lock);
        pthread_join(ahead->thread, NULL);
    }
    for (i = 0; i < GB_AHEAD_PIECES; i++)
        gb_piece_done(&ahead->pieces[i]);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->lock);
    memset(ahead, 0, sizeof *ahead);
}

void gb_ahead_begin(struct gb_ahead *ahead, const struct gb_backup_file *file) {
    pthread_mutex_lock(&ahead->lock);
    ahead->file = NULL; /* no further read begins */
    while (ahead->reading)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    memset(&ahead->error, 0, sizeof ahead->error);
    ahead->file = file;
    ahead->at = 0;
    ahead->read = ahead->given_back = 0;
    ahead->taken = false;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
}

int64_t gb_ahead_next(struct gb_ahead *ahead, const char **ret, struct gpubuf_error *err) {
    int64_t n;
    unsigned i;

    pthread_mutex_lock(&ahead->lock);
    ahead->given_back += ahead->taken;
    ahead->taken = false;
    pthread_cond_broadcast(&ahead->changed);
    while (ahead->read == ahead->given_back && ahead->error.code == GPUBUF_OK &&
           (ahead->reading || ahead->at < ahead->file->bytes))
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    i = ahead->given_back % GB_AHEAD_PIECES;
    if (ahead->read > ahead->given_back) {
        ahead->taken = true;
        *ret = ahead->data[i];
        n = (int64_t)ahead->bytes[i];
    } else if (ahead->error.code != GPUBUF_OK) {
        *err = ahead->error;
        n = -1;
    } else {
        n = 0;
    }
    pthread_mutex_unlock(&ahead->lock);
    return n;
}
