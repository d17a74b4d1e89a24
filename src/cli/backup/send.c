#include "cli/backup/send.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "cli/backup/ahead.h"
#include "cli/backup/crew.h"
#include "cli/backup/s3.h"
#include "cli/backup/store.h"

enum state { WAITING, OPENING, OPEN, ENDED };

/* One file on its way. Threads take its parts in order; the one that moves the last of them ends the file. */
struct way {
    const struct gb_backup_file *file;
    enum state state;
    size_t count; /* of parts */
    size_t next;  /* to be taken */
    size_t left;  /* that are not there yet */
    struct gb_s3_part *parts;
    struct gb_s3_upload upload;
    int fd; /* in a folder */
};

struct send {
    struct gb_crew crew;
    const struct gb_origin *origin;
    uint64_t part_bytes;
    struct way *ways;
    size_t count;
    size_t first; /* those before it have ended, or all their parts are taken */
    struct gb_send_result result;
};

static int differs(const struct gb_backup_file *file, uint32_t crc, struct gpubuf_error *err) {
    return gb_backup_fail(err, GPUBUF_CHECK_FAILED,
                          "the bytes of buffer %.200s (file %s) have CRC32C %08" PRIx32
                          ", and the checkpoint says %08" PRIx32,
                          file->buffer, file->file, crc, file->crc);
}

/* --- in parts ----------------------------------------------------------------------------------------------------- */

static uint64_t part_of(const struct send *send, const struct way *way, size_t number) {
    uint64_t left = way->file->bytes - send->part_bytes * number;

    return left < send->part_bytes ? left : send->part_bytes;
}

static int write_part(struct gb_worker *worker, struct way *way, uint64_t offset, const char *data, uint64_t bytes,
                      struct gpubuf_error *err) {
    while (bytes > 0) {
        ssize_t n = pwrite(way->fd, data, bytes, (off_t)offset);

        if (n < 0 && errno != EINTR)
            return gb_store_errno(worker->crew->place, way->file->object, "written", err);
        data += n > 0 ? n : 0;
        offset += n > 0 ? (uint64_t)n : 0;
        bytes -= n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

static int move_part(struct gb_worker *worker, struct gb_piece *piece, struct send *send, struct way *way,
                     size_t number, struct gpubuf_error *err) {
    uint64_t offset = send->part_bytes * number;
    uint64_t bytes = part_of(send, way, number);
    struct gb_s3_part *part = &way->parts[number];
    const char *data;

    if (gb_origin_read(send->origin, piece, way->file, offset, bytes, &data, err) < 0)
        return -1;
    part->crc = gb_crc32c(0, data, bytes);
    if (worker->crew->place->kind == GB_PLACE_FOLDER)
        return write_part(worker, way, offset, data, bytes, err);
    if (way->count > 1)
        return gb_s3_put_part(&worker->web, way->file, &way->upload, number, data, bytes, part, err);
    return part->crc == way->file->crc ? gb_s3_put(&worker->web, way->file, data, err)
                                       : differs(way->file, part->crc, err);
}

/* --- in one stream ------------------------------------------------------------------------------------------------ */

/* What libcurl reads from while it sends. */
struct stream {
    struct gb_worker *worker;
    struct gb_ahead *ahead;
    const struct gb_backup_file *file;
    const char *data; /* of the piece that is sent */
    uint64_t left;    /* of it */
    uint64_t at;      /* bytes of the pieces that were taken */
    uint32_t crc;
    struct gpubuf_error error;
};

static int next_piece(struct stream *stream) {
    int64_t n = gb_ahead_next(stream->ahead, &stream->data, &stream->error);

    if (n < 0)
        return -1;
    stream->left = (uint64_t)n;
    stream->at += stream->left;
    stream->crc = gb_crc32c(stream->crc, stream->data, stream->left);
    atomic_fetch_add(&stream->worker->crew->done, stream->left);
    if (stream->at == stream->file->bytes && stream->crc != stream->file->crc) /* the end is never sent */
        return differs(stream->file, stream->crc, &stream->error);
    return 0;
}

static int64_t read_stream(void *arg, void *data, size_t size) {
    struct stream *stream = arg;

    if (stream->left == 0 && stream->at == stream->file->bytes)
        return 0;
    if (stream->left == 0 && next_piece(stream) < 0)
        return -1;
    size = size < stream->left ? size : (size_t)stream->left;
    memcpy(data, stream->data, size);
    stream->data += size;
    stream->left -= size;
    return (int64_t)size;
}

static int rewind_stream(void *arg) {
    struct stream *stream = arg;

    atomic_fetch_sub(&stream->worker->crew->done, stream->at);
    stream->at = stream->left = 0;
    stream->crc = 0;
    memset(&stream->error, 0, sizeof stream->error);
    gb_ahead_begin(stream->ahead, stream->file);
    return 0;
}

static int move_stream(struct gb_worker *worker, struct gb_ahead *ahead, const struct gb_backup_file *file,
                       struct gpubuf_error *err) {
    static const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    struct stream stream = {.worker = worker, .ahead = ahead, .file = file};
    char *url = gb_place_at(worker->crew->place, file->object);
    const struct gb_web_request request = {.method = "PUT",
                                           .object = file->object,
                                           .url = url,
                                           .headers = headers,
                                           .read = read_stream,
                                           .rewind = rewind_stream,
                                           .arg = &stream,
                                           .bytes = file->bytes};
    struct gb_web_reply reply = {0};
    int rc = url != NULL ? gb_web_ask(&worker->web, &request, &reply, err)
                         : gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");

    if (rc < 0 && stream.error.code != GPUBUF_OK && err->code != GPUBUF_INTERRUPTED)
        *err = stream.error;
    gb_web_reply_done(&reply);
    free(url);
    return rc;
}

/* --- begin and end of a file -------------------------------------------------------------------------------------- */

static char *temporary_of(const struct gb_place *place, const struct gb_backup_file *file) {
    char name[GB_BACKUP_OBJECT_SIZE + 8];

    snprintf(name, sizeof name, "%s.part", file->object);
    return gb_place_at(place, name);
}

static int open_file(struct gb_worker *worker, struct way *way, struct gpubuf_error *err) {
    char *path = temporary_of(worker->crew->place, way->file);

    way->fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    free(path);
    if (way->fd < 0 || ftruncate(way->fd, (off_t)way->file->bytes) < 0)
        return gb_store_errno(worker->crew->place, way->file->object, "written", err);
    return 0;
}

/* A file system over a network may say what it could not write when the file is closed. */
static int close_file(struct gb_worker *worker, struct way *way, struct gpubuf_error *err) {
    char *from = temporary_of(worker->crew->place, way->file);
    char *to = gb_place_at(worker->crew->place, way->file->object);
    int rc = from != NULL && to != NULL ? fsync(way->fd) : -1;

    if (rc == 0) {
        rc = close(way->fd);
        way->fd = -1;
    }
    if (rc == 0)
        rc = rename(from, to);
    if (rc < 0)
        gb_store_errno(worker->crew->place, way->file->object, "written", err);
    if (rc < 0 && way->fd < 0 && from != NULL)
        unlink(from);
    free(from);
    free(to);
    return rc;
}

/* Looks whether the file is there already; if not, begins it. */
static int begin(struct gb_worker *worker, struct send *send, struct way *way, bool *ret_there,
                 struct gpubuf_error *err) {
    enum gb_place_kind kind = worker->crew->place->kind;
    size_t i;

    if (gb_store_look(&worker->web, way->file, ret_there, err) < 0)
        return -1;
    if (*ret_there)
        return 0;
    way->count = kind == GB_PLACE_HTTP ? 1 : (way->file->bytes + send->part_bytes - 1) / send->part_bytes;
    if (kind == GB_PLACE_S3 && way->count > GB_S3_PARTS_MAX)
        return gb_backup_fail(
            err, GPUBUF_BAD_ARGUMENT,
            "the file of buffer %.200s would be %zu parts, and S3 takes %d; give a larger --part-bytes",
            way->file->buffer, way->count, GB_S3_PARTS_MAX);
    way->parts = calloc(way->count, sizeof *way->parts);
    if (way->parts == NULL)
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    if (kind == GB_PLACE_FOLDER && open_file(worker, way, err) < 0)
        return -1;
    if (kind == GB_PLACE_S3 && way->count > 1 &&
        gb_s3_begin(&worker->web, way->file, send->part_bytes, way->parts, way->count, &way->upload, err) < 0)
        return -1;
    way->left = way->count;
    for (i = 0; i < way->count; i++)
        if (way->parts[i].there) {
            way->left--;
            atomic_fetch_add(&worker->crew->done, part_of(send, way, i));
        }
    return 0;
}

/* All parts are there: their checksums joined are the file's, or the object does not appear. */
static int end(struct gb_worker *worker, struct send *send, struct way *way, struct gpubuf_error *err) {
    enum gb_place_kind kind = worker->crew->place->kind;
    struct gpubuf_error why;
    bool there = false;
    uint32_t crc = 0;
    size_t i;

    if (kind == GB_PLACE_HTTP || (kind == GB_PLACE_S3 && way->count == 1))
        return 0;
    for (i = 0; i < way->count; i++)
        crc = gb_crc32c_join(crc, way->parts[i].crc, part_of(send, way, i));
    if (crc != way->file->crc)
        return differs(way->file, crc, err);
    if (kind == GB_PLACE_FOLDER)
        return close_file(worker, way, err);
    if (gb_s3_complete(&worker->web, way->file, &way->upload, way->parts, way->count, err) == 0)
        return 0;
    /* The answer to a first request may have been lost, and the second finds no upload. */
    if (err->status == 404 && gb_store_look(&worker->web, way->file, &there, &why) == 0 && there)
        return 0;
    return -1;
}

/* --- the threads -------------------------------------------------------------------------------------------------- */

/* The next thing to do: a way that is to be begun, or a part of one, where *ret_part is its number. NULL: nothing is
 * left. Called with the lock; waits while other threads begin the only ways that are left. */
static struct way *take(struct send *send, bool *ret_begin, size_t *ret_part) {
    size_t i;

    while (!atomic_load(&send->crew.stopped)) {
        bool opening = false;

        for (i = send->first; i < send->count; i++) {
            struct way *way = &send->ways[i];

            if (way->state == WAITING) {
                way->state = OPENING;
                *ret_begin = true;
                return way;
            }
            opening |= way->state == OPENING;
            while (way->state == OPEN && way->next < way->count && way->parts[way->next].there)
                way->next++;
            if (way->state == OPEN && way->next < way->count) {
                *ret_begin = false;
                *ret_part = way->next++;
                return way;
            }
            if (i == send->first && way->state != OPENING)
                send->first++;
        }
        if (!opening)
            return NULL;
        pthread_cond_wait(&send->crew.changed, &send->crew.lock);
    }
    return NULL;
}

static void count(struct send *send, struct way *way, bool there) {
    *(there ? &send->result.kept_files : &send->result.sent_files) += 1;
    *(there ? &send->result.kept_bytes : &send->result.sent_bytes) += way->file->bytes;
    way->state = ENDED;
}

static int end_way(struct gb_worker *worker, struct send *send, struct way *way, struct gpubuf_error *err) {
    int rc = end(worker, send, way, err);

    pthread_mutex_lock(&send->crew.lock);
    if (rc == 0)
        count(send, way, false);
    pthread_mutex_unlock(&send->crew.lock);
    return rc;
}

static int begin_way(struct gb_worker *worker, struct send *send, struct way *way, struct gpubuf_error *err) {
    bool there = false;
    bool whole;
    int rc = begin(worker, send, way, &there, err);

    pthread_mutex_lock(&send->crew.lock);
    whole = rc == 0 && !there && way->left == 0; /* all of its parts stood there */
    if (rc == 0 && there)
        count(send, way, true);
    else if (rc == 0)
        way->state = OPEN;
    pthread_cond_broadcast(&send->crew.changed);
    pthread_mutex_unlock(&send->crew.lock);
    if (there)
        atomic_fetch_add(&send->crew.done, way->file->bytes);
    return whole ? end_way(worker, send, way, err) : rc;
}

static int move(struct gb_worker *worker, struct gb_ahead *ahead, struct send *send, struct way *way, size_t number,
                struct gpubuf_error *err) {
    bool last;
    int rc;

    if (worker->crew->place->kind == GB_PLACE_HTTP) {
        rc = move_stream(worker, ahead, way->file, err);
    } else {
        rc = move_part(worker, &ahead->pieces[0], send, way, number, err);
        if (rc == 0)
            atomic_fetch_add(&send->crew.done, part_of(send, way, number));
    }
    if (rc < 0)
        return -1;
    pthread_mutex_lock(&send->crew.lock);
    last = --way->left == 0;
    pthread_mutex_unlock(&send->crew.lock);
    return last ? end_way(worker, send, way, err) : 0;
}

static int work_on(struct gb_worker *worker, struct gb_ahead *ahead, struct send *send, struct gpubuf_error *err) {
    size_t part = 0;
    bool begins = false;
    struct way *way;

    for (;;) {
        pthread_mutex_lock(&send->crew.lock);
        way = take(send, &begins, &part);
        pthread_mutex_unlock(&send->crew.lock);
        if (way == NULL)
            return atomic_load(&send->crew.stopped) ? gb_backup_fail(err, GPUBUF_INTERRUPTED, "interrupted") : 0;
        if ((begins ? begin_way(worker, send, way, err) : move(worker, ahead, send, way, part, err)) < 0)
            return -1;
    }
}

static int work(struct gb_worker *worker, void *arg, struct gpubuf_error *err) {
    struct send *send = arg;
    struct gb_ahead ahead;
    int rc;

    if (gb_ahead_init(&ahead, send->origin, worker->clients, err) < 0)
        return -1;
    rc = work_on(worker, &ahead, send, err);
    gb_ahead_done(&ahead);
    return rc;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* The parts of a broken upload stay where another run can go on: after a connection that was lost, or a signal other
 * than Ctrl-C. The user's own end, and a refusal, leave nothing. */
static bool gives_up(const struct send *send, int rc, const struct gpubuf_error *err) {
    int signal_number = atomic_load(&send->crew.cli->interrupted);

    if (rc == 0)
        return false;
    return signal_number != 0 ? signal_number == SIGINT : err->status >= 400 && !err->retryable;
}

static void tidy(struct send *send, bool give_up) {
    struct gpubuf_error why;
    struct gb_web web;
    bool can = gb_web_init(&web, send->crew.cli, send->crew.place, NULL, &why) == 0;
    size_t i;

    for (i = 0; i < send->count; i++) {
        struct way *way = &send->ways[i];

        if (give_up && can && way->upload.id != NULL && way->state != ENDED)
            gb_s3_abort(&web, way->file, &way->upload);
        if (way->fd >= 0)
            close(way->fd);
        if (way->fd >= 0 && way->state != ENDED) {
            char *path = temporary_of(send->crew.place, way->file);

            if (path != NULL)
                unlink(path);
            free(path);
        }
        gb_s3_upload_done(&way->upload);
        free(way->parts);
    }
    gb_web_done(&web);
    free(send->ways);
}

int gb_send(struct gb_cli *cli, const struct gb_origin *origin, const struct gb_place *place,
            const struct gb_backup_manifest *manifest, uint64_t part_bytes, struct gb_send_result *ret,
            struct gpubuf_error *err) {
    struct send send = {.origin = origin, .part_bytes = part_bytes, .count = manifest->count};
    unsigned threads;
    size_t i;
    int rc;

    if (gb_crew_size(cli, &threads, err) < 0)
        return -1;
    send.ways = calloc(manifest->count + 1, sizeof *send.ways);
    if (send.ways == NULL)
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    for (i = 0; i < manifest->count; i++)
        send.ways[i] = (struct way){.file = &manifest->files[i], .fd = -1};
    send.crew.cli = cli;
    send.crew.place = place;
    send.crew.work = work;
    send.crew.arg = &send;
    send.crew.label = origin->checkpoint;
    send.crew.total = manifest->bytes;
    rc = gb_crew_run(&send.crew, threads, err);
    *ret = send.result;
    tidy(&send, gives_up(&send, rc, err));
    return rc;
}
