/* The files of a checkpoint, out to a client. */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/request/media.h"
#include "api/resources/checkpoints.h"
#include "api/route.h"
#include "base/encoding.h"
#include "http/message/fields.h"

struct file {
    struct gb_http_source source; /* first */
    struct gb_checkpoint_read *read;
    struct gb_checkpoint_view view;
    bool begun;
    uint64_t left;
};

/* --- the body ----------------------------------------------------------------------------------------------------- */

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    return gb_checkpoint_read_next(((struct file *)source)->read, ret_ptr, ret_n, err);
}

static void source_sent(struct gb_http_source *source, size_t n) {
    gb_checkpoint_read_sent(((struct file *)source)->read, n);
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct file *f = (struct file *)source;

    (void)complete;
    gb_checkpoint_read_free(f->read);
    free(f);
}

static void state_free(void *state) {
    source_free(state, false);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- the head ----------------------------------------------------------------------------------------------------- */

static int add_headers(const struct gb_http_request *request, const struct gb_checkpoint_file *head,
                       struct gb_http_response *response, struct gb_error *err) {
    const char *file = request->param[1].s;
    bool json = strcmp(strrchr(file, '.'), ".json") == 0;
    uint32_t crc = htobe32(head->crc32c);
    char text[GB_BASE64_SIZE(sizeof(crc))];
    int r =
        gb_http_response_header(response, err, "Content-Type", "%s", json ? "application/json" : GB_MEDIA_SAFETENSORS);

    r |= gb_http_response_header(response, err, "Accept-Ranges", "bytes");
    if (!head->has_crc32c)
        return r;
    gb_base64_write(&crc, sizeof(crc), false, text);
    r |= gb_http_response_header(response, err, "Repr-Digest", "crc32c=:%s:", text);
    return r | gb_http_response_header(response, err, "Gpubuf-Crc32c", "%08" PRIx32, head->crc32c);
}

/* Several ranges are answered with the whole. */
static int choose_range(const struct gb_http_request *request, const char *tag, uint64_t size, struct gb_range *ret,
                        struct gb_http_response *response, struct gb_error *err) {
    const char *range = gb_http_header(request, "Range");
    const char *if_range = gb_http_header(request, "If-Range");
    struct gb_range_set set;
    enum gb_range_kind kind;

    if (request->method == GB_HTTP_HEAD || (if_range && !gb_etag_if_range(if_range, tag)))
        range = NULL;
    kind = gb_range_parse(range, size, &set);
    *ret = (struct gb_range){.first = 0, .length = size};
    if (kind == GB_RANGE_UNSATISFIABLE) {
        gb_http_response_header(response, err, "Content-Range", "bytes */%" PRIu64, size);
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE, "the file has %" PRIu64 " bytes", size);
    }
    if (kind == GB_RANGE_WHOLE || set.count > 1)
        return 0;
    *ret = set.range[0];
    response->status = 206;
    return gb_http_response_header(response, err, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, ret->first,
                                   ret->first + ret->length - 1, size);
}

static enum gb_step send(struct gb_http_request *request, struct gb_http_response *response) {
    struct file *f = request->state;

    f->source = (struct gb_http_source){.next = source_next, .sent = source_sent, .free = source_free};
    request->state = NULL;
    request->state_free = NULL;
    gb_http_response_source(response, &f->source, f->left);
    return GB_STEP_REPLY;
}

/* The file is open. Returns 1 to send, 0 when the response is complete, or -1. */
static int begin(struct gb_http_request *request, const struct gb_checkpoint_file *head,
                 struct gb_http_response *response, struct gb_error *err) {
    struct file *f = request->state;
    char tag[GB_ETAG_SIZE] = "";
    struct gb_range range;
    int r = 1;

    /* A file that may still be brought anew has no tag. */
    if (head->has_crc32c) {
        snprintf(tag, sizeof(tag), "k%" PRIx64 ".%08" PRIx32 ".%" PRIx64, (uint64_t)f->view.as_of_us, head->crc32c,
                 head->size);
        r = gb_conditions_get(request, tag, response, err);
    }
    if (r > 0 && (choose_range(request, tag, head->size, &range, response, err) < 0 ||
                  add_headers(request, head, response, err) < 0))
        return -1;
    if (r > 0) {
        f->left = range.length;
        if (request->method != GB_HTTP_HEAD && range.length > 0)
            gb_checkpoint_read_start(f->read, range.first, range.length);
    }
    return r;
}

static enum gb_step fail(struct gb_http_response *response, const struct gb_error *err) {
    if (err->code != GB_ERR_RANGE_NOT_SATISFIABLE)
        gb_http_response_done(response);
    return GB_STEP_ERROR;
}

/* Waits for the file, then for its first block, so that a failure still becomes the status. */
static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct file *f = request->state;
    struct gb_checkpoint_file head;
    const void *block;
    size_t n;
    int r = gb_checkpoint_read_head(f->read, &head, err);

    if (r > 0 && !f->begun) {
        r = begin(request, &head, response, err);
        if (r == 0)
            return GB_STEP_REPLY;
        f->begun = true;
    }
    if (r > 0 && (request->method == GB_HTTP_HEAD || f->left == 0))
        return send(request, response);
    if (r > 0)
        r = gb_checkpoint_read_next(f->read, &block, &n, err);
    if (r > 0)
        return send(request, response);
    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the disk did not give the first bytes in the permitted time");
    return fail(response, err);
}

enum gb_step gb_api_checkpoint_file_get(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    enum gb_scope scope = request->method == GB_HTTP_HEAD ? GB_SCOPE_VERIFY : GB_SCOPE_READ;
    struct file *f;

    f = calloc(1, sizeof(*f));
    if (!f) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the download; try again later");
        return GB_STEP_ERROR;
    }
    request->state = f;
    request->state_free = state_free;
    if (gb_path_checkpoint(request, scope, &f->view, err) < 0 ||
        gb_checkpoint_read_open(gb_api_of(request)->core, &f->view.name, request->param[1].s,
                                (struct gb_waker){wake, request}, &f->read, err) < 0)
        return GB_STEP_ERROR;
    request->resume = resume;
    return resume(request, response, err);
}
