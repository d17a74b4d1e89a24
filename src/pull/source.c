/* What the source is: its URL, and what it says of itself, which is the record of the buffer and the version of its
 * bytes. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pull/internal.h"

#define RECORD_MAX (1u << 20)
#define LOOKS_MAX 4 /* while a writer replaces it between two requests */

/* --- URLs --------------------------------------------------------------------------------------------------------- */

bool gb_pull_url_is(const char *text) {
    return strstr(text, "://") != NULL;
}

static int invalid(const char *text, const char *why, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the URL %.160s %s", text, why);
}

/* Reads http[s]://HOST[:PORT] and what follows it. ret->path is the caller's. */
static int read_url(const char *text, struct gb_http_url *ret, struct gb_error *err) {
    int r = strlen(text) > GB_PULL_URL_MAX ? -1 : gb_http_url_read(text, ret);

    if (r == -2)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    if (r < 0)
        return invalid(text, "is malformed, or has more than 1024 bytes", err);
    if (!ret->user && ret->origin[0] != '\0')
        return 0;
    if (ret->user)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "a URL with a name or a password: give the source's token as \"token\" beside the URL");
    else
        invalid(text, "is none of http or https with a host", err);
    free(ret->path);
    return -1;
}

/* /v1/sessions/S/buffers/B */
static bool read_path(const char *path, struct gb_pull_url *ret) {
    static const char sessions[] = "/v1/sessions/";
    static const char buffers[] = "/buffers/";
    const char *session = path + sizeof(sessions) - 1;
    const char *slash;

    if (strncmp(path, sessions, sizeof(sessions) - 1) != 0)
        return false;
    slash = strchr(session, '/');
    if (!slash || strncmp(slash, buffers, sizeof(buffers) - 1) != 0)
        return false;
    path = slash + sizeof(buffers) - 1;
    return gb_name_parse("session", session, (size_t)(slash - session), &ret->session, NULL) == 0 &&
           gb_name_parse("buffer", path, strlen(path), &ret->buffer, NULL) == 0;
}

int gb_pull_url_read(const char *text, struct gb_pull_url *ret, struct gb_error *err) {
    struct gb_http_url url;
    int r = 0;

    *ret = (struct gb_pull_url){.origin = ""};
    if (read_url(text, &url, err) < 0)
        return -1;
    strcpy(ret->origin, url.origin);
    if (url.more || !read_path(url.path, ret))
        r = invalid(text, "names no buffer: give http[s]://HOST[:PORT]/v1/sessions/SESSION/buffers/BUFFER", err);
    free(url.path);
    return r;
}

int gb_pull_origin_read(const char *text, char ret[GB_PULL_ORIGIN_SIZE], struct gb_error *err) {
    struct gb_http_url url;
    int r = 0;

    if (read_url(text, &url, err) < 0)
        return -1;
    strcpy(ret, url.origin);
    if (url.more || strcmp(url.path, "/") != 0)
        r = invalid(text, "has more than http[s]://HOST[:PORT]", err);
    free(url.path);
    return r;
}

/* --- the record --------------------------------------------------------------------------------------------------- */

static int malformed(const char *what, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED,
                        "the source answers with no record of a buffer: %s; is it a gpubufd?", what);
}

static int read_shape(const json_t *list, struct gb_pull_source *ret, struct gb_error *err) {
    size_t i;

    if (!json_is_array(list) || json_array_size(list) > GB_DIMS_MAX)
        return malformed("its shape", err);
    ret->shape.dims = (unsigned)json_array_size(list);
    for (i = 0; i < json_array_size(list); i++) {
        json_int_t n = json_integer_value(json_array_get(list, i));

        if (!json_is_integer(json_array_get(list, i)) || n < 0)
            return malformed("its shape", err);
        ret->shape.dim[i] = (uint64_t)n;
    }
    return 0;
}

static int read_labels(const json_t *labels, struct gb_pull_source *ret, struct gb_error *err) {
    char *text;
    int r;

    if (!json_is_object(labels))
        return malformed("its labels", err);
    text = json_dumps(labels, JSON_COMPACT);
    if (!text || strlen(text) >= GB_LABELS_MAX) {
        free(text);
        return malformed("its labels are too long", err);
    }
    r = gb_labels_make(text, &ret->labels, err);
    free(text);
    return r;
}

static int read_members(const json_t *root, struct gb_pull_source *ret, struct gb_error *err) {
    const char *dtype = json_string_value(json_object_get(root, "dtype"));
    json_int_t generation = json_integer_value(json_object_get(root, "generation"));
    json_int_t bytes = json_integer_value(json_object_get(root, "bytes"));
    uint64_t of_shape;

    if (!json_is_integer(json_object_get(root, "bytes")) || bytes < 0)
        return malformed("its bytes", err);
    if (!dtype || gb_dtype_parse(dtype, strlen(dtype), &ret->dtype, NULL) < 0)
        return malformed("its dtype is not known here", err);
    if (read_shape(json_object_get(root, "shape"), ret, err) < 0)
        return -1;
    if (gb_shape_bytes(&ret->shape, ret->dtype, &of_shape, NULL) < 0 || of_shape != (uint64_t)bytes)
        return malformed("its shape and its bytes contradict each other", err);
    ret->bytes = (uint64_t)bytes;
    ret->generation = generation > 0 ? (uint64_t)generation : 0;
    ret->sealed = json_is_true(json_object_get(root, "sealed"));
    return read_labels(json_object_get(root, "labels"), ret, err);
}

int gb_pull_record_read(const char *text, size_t n, struct gb_pull_source *ret, struct gb_error *err) {
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    int r;

    if (!json_is_object(root)) {
        json_decref(root);
        return malformed("it is no JSON object", err);
    }
    r = read_members(root, ret, err);
    json_decref(root);
    return r;
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

static enum gb_pull_outcome look_at_record(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                           struct gb_pull_source *ret, struct gb_error *err) {
    struct gb_pull_ask ask = {.place = place, .method = "GET"};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;
    char *body;
    size_t n;
    int r;

    outcome = gb_pull_request(conn, &ask, &head, err);
    if (outcome == GB_PULL_OK && head.status != 200)
        outcome = gb_pull_refusal(conn, &ask, &head, err);
    if (outcome == GB_PULL_OK)
        outcome = gb_pull_body(conn, &head, RECORD_MAX, &body, &n, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    r = gb_pull_record_read(body, n, ret, err);
    free(body);
    return r < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

/* A refused HEAD has no words: GET says why. */
static enum gb_pull_outcome ask_why(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                    struct gb_error *err) {
    struct gb_pull_ask ask = {.place = place, .method = "GET", .data = true};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;

    outcome = gb_pull_request(conn, &ask, &head, err);
    if (outcome == GB_PULL_OK && head.status != 200)
        return gb_pull_refusal(conn, &ask, &head, err);
    gb_pull_conn_close(conn);
    return outcome == GB_PULL_OK ? GB_PULL_CHANGED : outcome;
}

static enum gb_pull_outcome look_at_bytes(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                          struct gb_pull_source *ret, struct gb_error *err) {
    struct gb_pull_ask ask = {.place = place, .method = "HEAD", .data = true};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;

    outcome = gb_pull_request(conn, &ask, &head, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (head.closes)
        gb_pull_conn_close(conn);
    if (head.status != 200)
        return ask_why(conn, place, err);
    if (head.tag[0] == '\0' || !head.has_length || head.coded) {
        malformed("its bytes have no entity tag, or no length", err);
        return GB_PULL_FAILED;
    }
    if (head.length != ret->bytes || !head.has_generation || head.generation != ret->generation)
        return GB_PULL_CHANGED;
    strcpy(ret->tag, head.tag);
    ret->has_crc32c = head.has_crc32c;
    ret->crc32c = head.crc32c;
    ret->registered = head.registered;
    return GB_PULL_OK;
}

enum gb_pull_outcome gb_pull_look(struct gb_pull_conn *conn, const struct gb_pull_place *place,
                                  struct gb_pull_source *ret, struct gb_error *err) {
    enum gb_pull_outcome outcome = GB_PULL_CHANGED;
    unsigned looks;

    for (looks = 0; looks < LOOKS_MAX && outcome == GB_PULL_CHANGED; looks++) {
        gb_text_unref(ret->labels);
        *ret = (struct gb_pull_source){.bytes = 0};
        outcome = look_at_record(conn, place, ret, err);
        if (outcome == GB_PULL_OK)
            outcome = look_at_bytes(conn, place, ret, err);
    }
    if (outcome == GB_PULL_CHANGED)
        gb_error_set(err, GB_ERR_SOURCE_CHANGED, "the source %s is replaced faster than it can be looked at",
                     place->origin);
    return outcome;
}

bool gb_pull_same_bytes(const struct gb_pull_source *a, const struct gb_pull_source *b, bool has_digest) {
    if (!a->sealed || !b->sealed || a->bytes != b->bytes || a->dtype != b->dtype ||
        !gb_shape_equal(&a->shape, &b->shape))
        return false;
    return a->has_crc32c && b->has_crc32c ? a->crc32c == b->crc32c : has_digest;
}
