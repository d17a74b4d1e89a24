#include "cli/backup/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "cli/backup/store.h"

#define ROOM ((size_t)4 << 20)
#define LOOK_MS 100

int gb_fetch_init(struct gb_fetch *fetch, struct gb_web *web, const struct gb_backup_file *file,
                  atomic_uint_fast64_t *done, struct gpubuf_error *err) {
    *fetch = (struct gb_fetch){.web = web, .file = file, .done = done, .fd = -1};
    fetch->at = gb_place_at(web->place, file->object);
    if (web->place->kind != GB_PLACE_FOLDER) {
        fetch->data = malloc(ROOM);
        fetch->multi = curl_multi_init();
    }
    if (fetch->at == NULL || (web->place->kind != GB_PLACE_FOLDER && (fetch->data == NULL || fetch->multi == NULL)))
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    return 0;
}

static void leave(struct gb_fetch *fetch) {
    if (fetch->running)
        curl_multi_remove_handle(fetch->multi, fetch->web->easy);
    fetch->running = false;
    fetch->paused = false;
    gb_web_reply_done(&fetch->reply);
}

void gb_fetch_done(struct gb_fetch *fetch) {
    leave(fetch);
    curl_multi_cleanup(fetch->multi);
    if (fetch->fd >= 0)
        close(fetch->fd);
    free(fetch->data);
    free(fetch->at);
}

/* --- what is wrong with an object --------------------------------------------------------------------------------- */

static int missing(struct gb_fetch *fetch) {
    gb_backup_fail(&fetch->error, GPUBUF_INPUT_FAILED, "%s lacks the object %s, which has buffer %.200s",
                   fetch->web->place->name, fetch->file->object, fetch->file->buffer);
    fetch->error.status = 404;
    return -1;
}

static int of_other_size(struct gb_fetch *fetch, uint64_t bytes) {
    return gb_backup_fail(&fetch->error, GPUBUF_CHECK_FAILED,
                          "%s: the object %s, which has buffer %.200s, has %" PRIu64
                          " bytes, and the backup says %" PRIu64,
                          fetch->web->place->name, fetch->file->object, fetch->file->buffer, bytes, fetch->file->bytes);
}

static int damaged(struct gb_fetch *fetch) {
    return gb_backup_fail(&fetch->error, GPUBUF_CHECK_FAILED,
                          "%s: the object %s, which has buffer %.200s, is damaged: its CRC32C is %08" PRIx32
                          ", and the backup says %08" PRIx32,
                          fetch->web->place->name, fetch->file->object, fetch->file->buffer, fetch->crc,
                          fetch->file->crc);
}

/* --- from a folder ------------------------------------------------------------------------------------------------ */

static int open_object(struct gb_fetch *fetch) {
    struct stat info;

    fetch->fd = open(fetch->at, O_RDONLY | O_CLOEXEC);
    if (fetch->fd < 0)
        return errno == ENOENT ? missing(fetch)
                               : gb_store_errno(fetch->web->place, fetch->file->object, "read", &fetch->error);
    if (fstat(fetch->fd, &info) == 0 && (uint64_t)info.st_size != fetch->file->bytes)
        return of_other_size(fetch, (uint64_t)info.st_size);
    return 0;
}

static int64_t read_folder(struct gb_fetch *fetch, void *data, size_t size) {
    ssize_t n;

    if (fetch->fd < 0 && open_object(fetch) < 0)
        return -1;
    do
        n = pread(fetch->fd, data, size, (off_t)fetch->given);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        gb_store_errno(fetch->web->place, fetch->file->object, "read", &fetch->error);
    return n == 0 ? of_other_size(fetch, fetch->given) : n;
}

/* --- from a server ------------------------------------------------------------------------------------------------ */

/* The header of an answer that has the object, or its rest, says how long that is. */
static int check_length(struct gb_fetch *fetch) {
    uint64_t before = fetch->reply.status == 206 ? fetch->file->bytes - fetch->came : fetch->file->bytes;

    if (fetch->reply.length != GPUBUF_UNKNOWN && fetch->came == 0 && fetch->reply.length != before)
        return of_other_size(fetch, fetch->reply.length);
    return 0;
}

static size_t on_data(char *data, size_t one, size_t bytes, void *arg) {
    struct gb_fetch *fetch = arg;
    size_t all = bytes;
    size_t n;

    (void)one;
    if (fetch->reply.status != 200 && fetch->reply.status != 206) { /* what the server says of an error */
        char *longer = fetch->reply.bytes < ROOM ? realloc(fetch->reply.text, fetch->reply.bytes + bytes + 1) : NULL;

        if (longer == NULL)
            return 0;
        memcpy(longer + fetch->reply.bytes, data, bytes);
        fetch->reply.bytes += bytes;
        longer[fetch->reply.bytes] = '\0';
        fetch->reply.text = longer;
        return bytes;
    }
    if (fetch->skip == GPUBUF_UNKNOWN) { /* the first bytes of an answer */
        if (check_length(fetch) < 0)
            return 0;
        fetch->skip = fetch->reply.status == 206 ? 0 : fetch->came;
    }
    n = fetch->skip < bytes ? (size_t)fetch->skip : bytes;
    if (fetch->held + bytes - n > ROOM) {
        fetch->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    fetch->skip -= n;
    data += n;
    bytes -= n;
    if (bytes > fetch->file->bytes - fetch->came)
        return 0;
    memcpy(fetch->data + fetch->held, data, bytes);
    fetch->held += bytes;
    fetch->came += bytes;
    return all;
}

static int start(struct gb_fetch *fetch) {
    fetch->headers[0] = fetch->headers[1] = NULL;
    if (fetch->came > 0) {
        snprintf(fetch->range, sizeof fetch->range, "Range: bytes=%" PRIu64 "-", fetch->came);
        fetch->headers[0] = fetch->range;
    }
    fetch->request = (struct gb_web_request){
        .method = "GET", .object = fetch->file->object, .url = fetch->at, .headers = fetch->headers};
    gb_web_reply_done(&fetch->reply);
    if (gb_web_set(fetch->web, &fetch->request, &fetch->reply, &fetch->error) < 0)
        return -1;
    fetch->skip = GPUBUF_UNKNOWN; /* not known before the status is */
    curl_easy_setopt(fetch->web->easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(fetch->web->easy, CURLOPT_WRITEDATA, fetch);
    if (curl_multi_add_handle(fetch->multi, fetch->web->easy) != CURLM_OK)
        return gb_backup_fail(&fetch->error, GPUBUF_NO_MEMORY, "out of memory");
    fetch->running = true;
    return 0;
}

/* The transfer has ended: 0 if the object is whole or is to be asked for again, -1 with the error otherwise. */
static int ended(struct gb_fetch *fetch, CURLcode code) {
    int rc;

    if (fetch->error.code != GPUBUF_OK) {
        leave(fetch);
        return -1;
    }
    rc = gb_web_judge(fetch->web, &fetch->request, &fetch->reply, code, &fetch->error);
    if (rc == 0 && fetch->reply.status == 404)
        rc = missing(fetch);
    else if (rc == 0 && fetch->came < fetch->file->bytes)
        rc = of_other_size(fetch, fetch->came);
    leave(fetch);
    if (rc == 0 || !fetch->error.retryable || ++fetch->tried >= GB_WEB_TRIES)
        return rc;
    rc = gb_web_pause(fetch->web, fetch->tried, fetch->error.retry_after_s, &fetch->error);
    if (rc == 0)
        memset(&fetch->error, 0, sizeof fetch->error);
    return rc;
}

/* Lets libcurl go on until something is held. */
static int go_on(struct gb_fetch *fetch) {
    int running = 0;
    CURLMsg *message;
    int left;

    if (!fetch->running && start(fetch) < 0)
        return -1;
    if (fetch->paused) {
        fetch->paused = false;
        curl_easy_pause(fetch->web->easy, CURLPAUSE_CONT);
    }
    if (curl_multi_perform(fetch->multi, &running) != CURLM_OK)
        return gb_backup_fail(&fetch->error, GPUBUF_NO_MEMORY, "libcurl cannot go on");
    while ((message = curl_multi_info_read(fetch->multi, &left)) != NULL)
        if (message->msg == CURLMSG_DONE)
            return ended(fetch, message->data.result);
    if (gb_web_stopped(fetch->web))
        return gb_backup_fail(&fetch->error, GPUBUF_INTERRUPTED, "interrupted");
    if (fetch->held == 0)
        curl_multi_poll(fetch->multi, NULL, 0, LOOK_MS, NULL);
    return 0;
}

static int64_t read_web(struct gb_fetch *fetch, void *data, size_t size) {
    if (fetch->taken == fetch->held) {
        fetch->taken = fetch->held = 0;
        while (fetch->held == 0)
            if (go_on(fetch) < 0)
                return -1;
    }
    size = size < fetch->held - fetch->taken ? size : fetch->held - fetch->taken;
    memcpy(data, fetch->data + fetch->taken, size);
    fetch->taken += size;
    return (int64_t)size;
}

/* --- either ------------------------------------------------------------------------------------------------------- */

int64_t gb_fetch_read(void *arg, void *data, size_t size) {
    struct gb_fetch *fetch = arg;
    uint64_t left = fetch->file->bytes - fetch->given;
    int64_t n;

    errno = 0; /* what failed is in fetch->error */
    if (left == 0)
        return 0;
    if (gb_web_stopped(fetch->web))
        return gb_backup_fail(&fetch->error, GPUBUF_INTERRUPTED, "interrupted");
    size = size < left ? size : (size_t)left;
    n = fetch->web->place->kind == GB_PLACE_FOLDER ? read_folder(fetch, data, size) : read_web(fetch, data, size);
    errno = 0;
    if (n < 0)
        return -1;
    fetch->crc = gb_crc32c(fetch->crc, data, (size_t)n);
    fetch->given += (uint64_t)n;
    atomic_fetch_add(fetch->done, (uint64_t)n);
    if (fetch->given == fetch->file->bytes && fetch->crc != fetch->file->crc)
        return damaged(fetch);
    return n;
}
