#include "cli/backup/s3.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/backup/store.h"

static int no_memory(struct gpubuf_error *err) {
    return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
}

/* Makes a request; url is the caller's no longer, NULL: there was no memory for it. */
static int ask(struct gb_web *web, struct gb_web_request request, char *url, struct gb_web_reply *ret,
               struct gpubuf_error *err) {
    int rc;

    *ret = (struct gb_web_reply){0};
    request.url = url;
    rc = url != NULL ? gb_web_ask(web, &request, ret, err) : no_memory(err);
    free(url);
    return rc;
}

static char *url_of(const char *base, const char *format, ...) __attribute__((format(printf, 2, 3)));

static char *url_of(const char *base, const char *format, ...) {
    char *query = NULL;
    char *url = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&query, format, args) < 0)
        query = NULL;
    va_end(args);
    if (query == NULL || asprintf(&url, "%s%s", base, query) < 0)
        url = NULL;
    free(query);
    return url;
}

static char *escaped(const char *text) {
    size_t size = strlen(text) * 3 + 1;
    char *ret = malloc(size);

    if (ret != NULL)
        gpubuf_escape(text, ret, size);
    return ret;
}

static uint64_t part_size(const struct gb_backup_file *file, uint64_t part_bytes, size_t number) {
    uint64_t at = part_bytes * number;

    return file->bytes - at < part_bytes ? file->bytes - at : part_bytes;
}

/* --- to go on with one -------------------------------------------------------------------------------------------- */

/* Digits of base 64 back into a checksum: false where the text is none. */
static bool crc_of(const char *text, uint32_t *ret) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t bits = 0;
    int i;

    if (text == NULL || strlen(text) != 8)
        return false;
    for (i = 0; i < 6; i++) {
        const char *at = strchr(digits, text[i]);

        if (at == NULL || *at == '\0')
            return false;
        bits = bits << 6 | (uint64_t)(at - digits);
    }
    *ret = (uint32_t)(bits >> 4);
    return true;
}

/* The id of the newest unfinished upload of that very key, malloc'd. NULL: there is none, or the store does not say. */
static char *find_upload(struct gb_web *web, const struct gb_backup_file *file) {
    struct gpubuf_error why;
    struct gb_web_reply reply = {0};
    const char *at;
    char *found = NULL;
    char *prefix = NULL;
    char *key = NULL;
    char *each;

    if (asprintf(&key, "%s%s", web->place->prefix, file->object) < 0)
        key = NULL;
    prefix = key != NULL ? escaped(key) : NULL;
    if (prefix != NULL && ask(web, (struct gb_web_request){.method = "GET", .object = "the list of unfinished uploads"},
                              url_of(web->place->bucket, "?prefix=%s&uploads=", prefix), &reply, &why) == 0) {
        for (at = reply.text; (each = gb_web_xml(at, "Upload", &at)) != NULL; free(each)) {
            char *its_key = gb_web_xml(each, "Key", NULL);

            if (its_key != NULL && strcmp(its_key, key) == 0) {
                free(found);
                found = gb_web_xml(each, "UploadId", NULL);
            }
            free(its_key);
        }
    }
    gb_web_reply_done(&reply);
    free(prefix);
    free(key);
    return found;
}

/* A part counts if it has the size that it would have now, and a checksum. */
static void take_part(const char *text, const struct gb_backup_file *file, uint64_t part_bytes,
                      struct gb_s3_part *parts, size_t count) {
    char *number = gb_web_xml(text, "PartNumber", NULL);
    char *size = gb_web_xml(text, "Size", NULL);
    char *etag = gb_web_xml(text, "ETag", NULL);
    char *crc = gb_web_xml(text, "ChecksumCRC32C", NULL);
    size_t n = number != NULL ? strtoul(number, NULL, 10) : 0;
    uint32_t sum;

    if (n > 0 && n <= count && size != NULL && etag != NULL && strlen(etag) < sizeof parts->etag &&
        strtoull(size, NULL, 10) == part_size(file, part_bytes, n - 1) && crc_of(crc, &sum)) {
        parts[n - 1] = (struct gb_s3_part){.there = true, .crc = sum};
        snprintf(parts[n - 1].etag, sizeof parts->etag, "%s", etag);
    }
    free(number);
    free(size);
    free(etag);
    free(crc);
}

/* Marks the parts that are there. -1 where they cannot be listed, and a new upload is to be begun. */
static int list_parts(struct gb_web *web, const struct gb_backup_file *file, uint64_t part_bytes,
                      struct gb_s3_part *parts, size_t count, struct gb_s3_upload *upload) {
    char *base = gb_place_at(web->place, file->object);
    unsigned long after = 0;
    bool more = base != NULL;
    int rc = base != NULL ? 0 : -1;

    while (rc == 0 && more) {
        struct gb_web_reply reply = {0};
        struct gpubuf_error why;
        const char *at;
        char *text;

        rc = ask(web, (struct gb_web_request){.method = "GET", .object = file->object},
                 url_of(base, "?part-number-marker=%lu&uploadId=%s", after, upload->id), &reply, &why);
        rc = rc == 0 && reply.status == 200 && reply.text != NULL ? 0 : -1;
        for (at = reply.text; rc == 0 && (text = gb_web_xml(at, "Part", &at)) != NULL; free(text))
            take_part(text, file, part_bytes, parts, count);
        if (rc == 0) {
            upload->in_parts = strstr(reply.text, "<ChecksumType>FULL_OBJECT</ChecksumType>") == NULL;
            more = strstr(reply.text, "<IsTruncated>true</IsTruncated>") != NULL;
            text = gb_web_xml(reply.text, "NextPartNumberMarker", NULL);
            more = more && text != NULL && strtoul(text, NULL, 10) > after;
            after = text != NULL ? strtoul(text, NULL, 10) : after;
            free(text);
        }
        gb_web_reply_done(&reply);
    }
    free(base);
    return rc;
}

/* --- begin -------------------------------------------------------------------------------------------------------- */

static int create(struct gb_web *web, const struct gb_backup_file *file, bool in_parts, struct gb_s3_upload *ret,
                  struct gpubuf_error *err) {
    const char *const whole[] = {"Content-Type: application/octet-stream", "x-amz-checksum-algorithm: CRC32C",
                                 "x-amz-checksum-type: FULL_OBJECT", NULL};
    const char *const parts[] = {whole[0], whole[1], NULL};
    char *base = gb_place_at(web->place, file->object);
    struct gb_web_reply reply;
    char *id;
    int rc = ask(web,
                 (struct gb_web_request){
                     .method = "POST", .object = file->object, .headers = in_parts ? parts : whole, .body = ""},
                 base != NULL ? url_of(base, "?uploads=") : NULL, &reply, err);

    free(base);
    id = rc == 0 ? gb_web_xml(reply.text, "UploadId", NULL) : NULL;
    gb_web_reply_done(&reply);
    if (rc < 0)
        return -1;
    ret->id = id != NULL ? escaped(id) : NULL;
    ret->in_parts = in_parts;
    free(id);
    if (ret->id == NULL)
        return gb_backup_fail(err, GPUBUF_OUTPUT_FAILED, "%s: the store began an upload of %s and gave no UploadId",
                              web->place->name, file->object);
    return 0;
}

int gb_s3_begin(struct gb_web *web, const struct gb_backup_file *file, uint64_t part_bytes, struct gb_s3_part *parts,
                size_t count, struct gb_s3_upload *ret, struct gpubuf_error *err) {
    char *id = find_upload(web, file);

    memset(ret, 0, sizeof *ret);
    if (id != NULL) {
        ret->id = escaped(id);
        free(id);
        if (ret->id != NULL && list_parts(web, file, part_bytes, parts, count, ret) == 0)
            return 0;
        gb_s3_upload_done(ret);
        memset(parts, 0, count * sizeof *parts);
    }
    if (create(web, file, false, ret, err) == 0)
        return 0;
    if (err->status != 400 && err->status != 501) /* of a store that has no checksum of whole objects */
        return -1;
    return create(web, file, true, ret, err);
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

int gb_s3_put_part(struct gb_web *web, const struct gb_backup_file *file, const struct gb_s3_upload *upload,
                   size_t number, const void *data, uint64_t bytes, struct gb_s3_part *part, struct gpubuf_error *err) {
    char *base = gb_place_at(web->place, file->object);
    const char *headers[] = {NULL, NULL};
    struct gb_web_reply reply;
    char line[48];
    char crc[9];
    int rc;

    snprintf(line, sizeof line, "x-amz-checksum-crc32c: %s", gb_store_crc_text(part->crc, crc));
    headers[0] = line;
    rc = ask(web,
             (struct gb_web_request){
                 .method = "PUT", .object = file->object, .headers = headers, .body = data, .bytes = bytes},
             base != NULL ? url_of(base, "?partNumber=%zu&uploadId=%s", number + 1, upload->id) : NULL, &reply, err);
    free(base);
    if (rc == 0 && reply.etag[0] == '\0')
        rc = gb_backup_fail(err, GPUBUF_OUTPUT_FAILED, "%s: the store took part %zu of %s and gave no ETag",
                            web->place->name, number + 1, file->object);
    if (rc == 0) {
        part->there = true;
        snprintf(part->etag, sizeof part->etag, "%s", reply.etag);
    }
    gb_web_reply_done(&reply);
    return rc;
}

static char *parts_xml(const struct gb_s3_part *parts, size_t count) {
    size_t bytes = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &bytes);
    char crc[9];
    size_t i;

    if (out == NULL)
        return NULL;
    fputs("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", out);
    for (i = 0; i < count; i++)
        fprintf(out, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag><ChecksumCRC32C>%s</ChecksumCRC32C></Part>",
                i + 1, parts[i].etag, gb_store_crc_text(parts[i].crc, crc));
    fputs("</CompleteMultipartUpload>", out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

int gb_s3_complete(struct gb_web *web, const struct gb_backup_file *file, const struct gb_s3_upload *upload,
                   const struct gb_s3_part *parts, size_t count, struct gpubuf_error *err) {
    char *base = gb_place_at(web->place, file->object);
    char *text = parts_xml(parts, count);
    struct gb_web_reply reply = {0};
    char line[48];
    char crc[9];
    const char *const whole[] = {"Content-Type: application/xml", line, "x-amz-checksum-type: FULL_OBJECT", NULL};
    const char *const in_parts[] = {whole[0], NULL};
    int rc;

    snprintf(line, sizeof line, "x-amz-checksum-crc32c: %s", gb_store_crc_text(file->crc, crc));
    if (base == NULL || text == NULL)
        rc = no_memory(err);
    else
        rc = ask(web,
                 (struct gb_web_request){.method = "POST",
                                         .object = file->object,
                                         .headers = upload->in_parts ? in_parts : whole,
                                         .body = text,
                                         .bytes = strlen(text)},
                 url_of(base, "?uploadId=%s", upload->id), &reply, err);
    free(base);
    free(text);
    gb_web_reply_done(&reply);
    return rc;
}

void gb_s3_abort(struct gb_web *web, const struct gb_backup_file *file, const struct gb_s3_upload *upload) {
    char *base = gb_place_at(web->place, file->object);
    struct gb_web_reply reply;
    struct gpubuf_error why;
    bool before = web->even_so;

    web->even_so = true;
    if (base != NULL) {
        ask(web, (struct gb_web_request){.method = "DELETE", .object = file->object},
            url_of(base, "?uploadId=%s", upload->id), &reply, &why);
        gb_web_reply_done(&reply);
    }
    web->even_so = before;
    free(base);
}

int gb_s3_put(struct gb_web *web, const struct gb_backup_file *file, const void *data, struct gpubuf_error *err) {
    const char *headers[] = {"Content-Type: application/octet-stream", NULL, NULL};
    struct gb_web_reply reply;
    char line[48];
    char crc[9];
    int rc;

    snprintf(line, sizeof line, "x-amz-checksum-crc32c: %s", gb_store_crc_text(file->crc, crc));
    headers[1] = line;
    rc = ask(web,
             (struct gb_web_request){
                 .method = "PUT", .object = file->object, .headers = headers, .body = data, .bytes = file->bytes},
             gb_place_at(web->place, file->object), &reply, err);
    gb_web_reply_done(&reply);
    return rc;
}

void gb_s3_upload_done(struct gb_s3_upload *upload) {
    free(upload->id);
    memset(upload, 0, sizeof *upload);
}
