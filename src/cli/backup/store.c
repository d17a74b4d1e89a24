#include "cli/backup/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)64 << 20)

char *gb_store_crc_text(uint32_t crc, char *ret) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t bits = (uint64_t)crc << 4; /* 36 bits are six digits */
    int i;

    for (i = 0; i < 6; i++)
        ret[i] = digits[bits >> (6 * (5 - i)) & 63];
    memcpy(ret + 6, "==", 3);
    return ret;
}

int gb_store_errno(const struct gb_place *place, const char *object, const char *what, struct gpubuf_error *err) {
    return gb_backup_fail(err, GPUBUF_OUTPUT_FAILED, "%s/%s cannot be %s: %s", place->name, object, what,
                          strerror(errno));
}

/* --- a folder ----------------------------------------------------------------------------------------------------- */

/* Makes the folder and those above it. */
static int make_folders(char *path) {
    char *at = path;

    while (at != NULL) {
        at = strchr(at + 1, '/');
        if (at != NULL)
            *at = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return -1;
        if (at != NULL)
            *at = '/';
    }
    return 0;
}

int gb_store_prepare(const struct gb_place *place, struct gpubuf_error *err) {
    char *path;
    int rc;

    if (place->kind != GB_PLACE_FOLDER)
        return 0;
    path = gb_place_at(place, "objects");
    if (path == NULL)
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    rc = make_folders(path) < 0 ? gb_store_errno(place, "objects", "made", err) : 0;
    free(path);
    return rc;
}

static int look_folder(const struct gb_place *place, const char *path, const struct gb_backup_file *file, bool *ret,
                       struct gpubuf_error *err) {
    struct stat info;

    if (stat(path, &info) < 0) {
        *ret = false;
        return errno == ENOENT ? 0 : gb_store_errno(place, file->object, "looked at", err);
    }
    *ret = S_ISREG(info.st_mode) && (uint64_t)info.st_size == file->bytes;
    return 0;
}

int gb_store_sync_folder(const struct gb_place *place, const char *object, struct gpubuf_error *err) {
    char *path = gb_place_at(place, object);
    int fd = -1;
    int rc = 0;

    if (path != NULL) {
        *strrchr(path, '/') = '\0';
        fd = open(path[0] != '\0' ? path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL)) /* a file system without such a thing says EINVAL */
        rc = gb_store_errno(place, object, "synced", err);
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

static int write_text(int fd, const char *text) {
    size_t left = strlen(text);

    while (left > 0) {
        ssize_t n = write(fd, text, left);

        if (n < 0 && errno != EINTR)
            return -1;
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    return fsync(fd);
}

static int put_folder(const struct gb_place *place, const char *path, const char *object, const char *text,
                      struct gpubuf_error *err) {
    char *temporary;
    int rc = -1;
    int fd;

    if (asprintf(&temporary, "%s.part", path) < 0)
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd >= 0) {
        rc = write_text(fd, text);
        close(fd);
    }
    if (rc < 0 || rename(temporary, path) < 0)
        rc = gb_store_errno(place, object, "written", err);
    free(temporary);
    return rc < 0 ? -1 : gb_store_sync_folder(place, object, err);
}

static int read_text(int fd, char **ret, size_t *ret_bytes) {
    struct stat info;
    char *text = NULL;
    ssize_t n = 0;
    size_t at;

    if (fstat(fd, &info) < 0)
        return -1;
    if ((size_t)info.st_size > TEXT_MAX || (text = malloc((size_t)info.st_size + 1)) == NULL) {
        errno = (size_t)info.st_size > TEXT_MAX ? EFBIG : ENOMEM;
        return -1;
    }
    for (at = 0; at < (size_t)info.st_size; at += (size_t)n) {
        n = read(fd, text + at, (size_t)info.st_size - at);
        if (n <= 0)
            break;
    }
    if (n < 0) {
        free(text);
        return -1;
    }
    text[at] = '\0';
    *ret = text;
    *ret_bytes = at;
    return 0;
}

static int get_folder(const struct gb_place *place, const char *path, const char *object, char **ret, size_t *ret_bytes,
                      struct gpubuf_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = 0;

    *ret = NULL;
    if (fd < 0)
        return errno == ENOENT ? 0 : gb_store_errno(place, object, "read", err);
    if (read_text(fd, ret, ret_bytes) < 0)
        rc = gb_store_errno(place, object, "read", err);
    close(fd);
    return rc;
}

/* --- a server ----------------------------------------------------------------------------------------------------- */

static int look_web(struct gb_web *web, const char *url, const struct gb_backup_file *file, bool *ret,
                    struct gpubuf_error *err) {
    static const char *const headers[] = {"x-amz-checksum-mode: ENABLED", NULL};
    const struct gb_web_request request = {.method = "HEAD",
                                           .object = file->object,
                                           .url = url,
                                           .headers = web->place->kind == GB_PLACE_S3 ? headers : NULL};
    struct gb_web_reply reply;
    char crc[9];
    int rc = gb_web_ask(web, &request, &reply, err);

    *ret = rc == 0 && reply.status == 200 && reply.length == file->bytes &&
           (strlen(reply.crc32c) != 8 || strcmp(reply.crc32c, gb_store_crc_text(file->crc, crc)) == 0);
    gb_web_reply_done(&reply);
    if (rc < 0 && web->place->kind == GB_PLACE_HTTP && (err->status == 405 || err->status == 501))
        rc = 0; /* it cannot say: what may be there is written again */
    return rc;
}

static int put_web(struct gb_web *web, const char *url, const char *object, const char *text,
                   struct gpubuf_error *err) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    const struct gb_web_request request = {
        .method = "PUT", .object = object, .url = url, .headers = headers, .body = text, .bytes = strlen(text)};
    struct gb_web_reply reply;
    int rc = gb_web_ask(web, &request, &reply, err);

    gb_web_reply_done(&reply);
    return rc;
}

static int get_web(struct gb_web *web, const char *url, const char *object, char **ret, size_t *ret_bytes,
                   struct gpubuf_error *err) {
    const struct gb_web_request request = {.method = "GET", .object = object, .url = url};
    struct gb_web_reply reply;
    int rc = gb_web_ask(web, &request, &reply, err);

    *ret = NULL;
    if (rc == 0 && reply.status == 200) {
        *ret = reply.text != NULL ? reply.text : strdup("");
        *ret_bytes = reply.bytes;
        reply.text = NULL;
    }
    gb_web_reply_done(&reply);
    return rc;
}

static int remove_web(struct gb_web *web, const char *url, const char *object, struct gpubuf_error *err) {
    const struct gb_web_request request = {.method = "DELETE", .object = object, .url = url};
    struct gb_web_reply reply;
    int rc = gb_web_ask(web, &request, &reply, err);

    gb_web_reply_done(&reply);
    return rc;
}

/* --- either ------------------------------------------------------------------------------------------------------- */

static char *at_of(const struct gb_place *place, const char *object, struct gpubuf_error *err) {
    char *at = gb_place_at(place, object);

    if (at == NULL)
        gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    return at;
}

int gb_store_look(struct gb_web *web, const struct gb_backup_file *file, bool *ret, struct gpubuf_error *err) {
    char *at = at_of(web->place, file->object, err);
    int rc;

    if (at == NULL)
        return -1;
    rc = web->place->kind == GB_PLACE_FOLDER ? look_folder(web->place, at, file, ret, err)
                                             : look_web(web, at, file, ret, err);
    free(at);
    return rc;
}

int gb_store_put(struct gb_web *web, const char *object, const char *text, struct gpubuf_error *err) {
    char *at = at_of(web->place, object, err);
    int rc;

    if (at == NULL)
        return -1;
    rc = web->place->kind == GB_PLACE_FOLDER ? put_folder(web->place, at, object, text, err)
                                             : put_web(web, at, object, text, err);
    free(at);
    return rc;
}

int gb_store_get(struct gb_web *web, const char *object, char **ret, size_t *ret_bytes, struct gpubuf_error *err) {
    char *at = at_of(web->place, object, err);
    int rc;

    if (at == NULL)
        return -1;
    rc = web->place->kind == GB_PLACE_FOLDER ? get_folder(web->place, at, object, ret, ret_bytes, err)
                                             : get_web(web, at, object, ret, ret_bytes, err);
    free(at);
    return rc;
}

int gb_store_remove(struct gb_web *web, const char *object, struct gpubuf_error *err) {
    char *at = at_of(web->place, object, err);
    int rc = 0;

    if (at == NULL)
        return -1;
    if (web->place->kind != GB_PLACE_FOLDER)
        rc = remove_web(web, at, object, err);
    else if (unlink(at) < 0 && errno != ENOENT)
        rc = gb_store_errno(web->place, object, "removed", err);
    free(at);
    return rc;
}
