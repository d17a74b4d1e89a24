/* Calls that are one request on the client's own connection. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/client.h"
#include "client/io.h"

/* --- the answer, as it is shown ----------------------------------------------------------------------------------- */

void gbc_answer_clear(gpubuf_client *client) {
    client->answer = (struct gpubuf_answer){.body = "",
                                            .content_type = "",
                                            .location = "",
                                            .recv_ms = -1,
                                            .queue_ms = -1,
                                            .copy_ms = -1,
                                            .total_ms = -1,
                                            .took_ms = -1};
}

/* "recv;dur=0.269, queue;dur=0.000" */
static double timing(const char *all, const char *name) {
    size_t n = strlen(name);
    const char *at = all;

    while ((at = strstr(at, name)) != NULL) {
        bool whole = at == all || at[-1] == ' ' || at[-1] == ',';

        if (whole && strncmp(at + n, ";dur=", 5) == 0)
            return strtod(at + n + 5, NULL);
        at += n;
    }
    return -1;
}

void gbc_answer_fill(gpubuf_client *client) {
    const struct gbc_reply *reply = gbc_reply_of(client->conn);
    struct gpubuf_answer *answer = &client->answer;

    gbc_answer_clear(client);
    answer->status = reply->status;
    if (reply->body.data && !reply->body.failed) {
        answer->body = reply->body.data;
        answer->bytes = reply->body.bytes;
    }
    if (reply->type.data)
        answer->content_type = reply->type.data;
    if (reply->location.data)
        answer->location = reply->location.data;
    gbc_copy(answer->etag, sizeof(answer->etag), reply->etag);
    answer->recv_ms = timing(reply->timing, "recv");
    answer->queue_ms = timing(reply->timing, "queue");
    answer->copy_ms = timing(reply->timing, "copy");
    answer->total_ms = timing(reply->timing, "total");
    answer->took_ms = gbc_took_ms(client->conn);
    answer->upload_offset = reply->upload_offset;
    answer->upload_complete = reply->upload_complete;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

int gbc_ask(gpubuf_client *client, struct gbc_request *request, struct gpubuf_error *err) {
    int r = gbc_perform(client->conn, request, err);

    gbc_answer_fill(client);
    return r;
}

int gbc_parse(const struct gbc_text *text, gbc_record_fn *record, void *ret, struct gpubuf_error *err) {
    json_error_t why = {.text = "no body"};
    json_t *object = text->bytes > 0 ? json_loadb(text->data, text->bytes, 0, &why) : NULL;
    int r = 0;

    if (!object && json_error_code(&why) == json_error_numeric_overflow)
        r = gbc_error_set(err, GPUBUF_BAD_ANSWER,
                          "the answer has a number beyond 2^63 - 1 (%s); a newer gpubufd sends none", why.text);
    else if (!object)
        r = gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer is not JSON: %s", why.text);
    else if (record(object, ret) < 0)
        r = gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer is not what a gpubufd says to this request");
    json_decref(object);
    return r;
}

static int take_operation(const json_t *object, void *ret) {
    const char *id = json_string_value(json_object_get(object, "id"));

    gbc_copy(ret, GPUBUF_ID_SIZE, id);
    return id ? 0 : -1;
}

/* Room for any record, so that a reply is checked even if the caller passes no ret. */
union any_record {
    struct gpubuf_buffer buffer;
    struct gpubuf_tensors tensors;
};

int gbc_take(gpubuf_client *client, const struct gpubuf_how *how, gbc_record_fn *record, void *ret,
             struct gpubuf_error *err) {
    const struct gbc_reply *reply = gbc_reply_of(client->conn);
    union any_record unwanted;

    if (how && how->ret_operation)
        how->ret_operation[0] = '\0';
    if (reply->status == 304 && how && how->if_none_match)
        return GPUBUF_UNCHANGED;
    if (reply->status == 202 && how && how->async)
        return gbc_parse(&reply->body, take_operation, how->ret_operation, err);
    if (reply->status >= 300)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer has the status %d, for which nobody asked",
                             reply->status);
    if (!record)
        return 0;
    return gbc_parse(&reply->body, record, ret ? ret : &unwanted, err);
}

int gbc_call(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_how *how, gbc_record_fn *record,
             void *ret, struct gpubuf_error *err) {
    int r = gbc_ask(client, request, err);

    gbc_request_done(request);
    return r < 0 ? -1 : gbc_take(client, how, record, ret, err);
}

/* N of "Prefer: wait=N", which the daemon takes before it answers; 0: there is none. */
static uint32_t wait_of(const char *header) {
    const char *wait = strncasecmp(header, "Prefer:", 7) == 0 ? strcasestr(header, "wait=") : NULL;
    unsigned long s = wait && wait[5] >= '0' && wait[5] <= '9' ? strtoul(wait + 5, NULL, 10) : 0;

    return s < UINT32_MAX / 1000 ? (uint32_t)s : UINT32_MAX / 1000;
}

/* Fills a request of the caller's own making; what is wrong with it is told by gbc_perform(). */
static void request_of(struct gbc_request *request, const char *method, const char *target,
                       const char *const *headers) {
    gbc_request_init(request, method, "");
    gbc_text_add(&request->target, target, strlen(target));
    if (target[0] != '/' || strpbrk(target, " \r\n"))
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no target: it begins with / and has no blanks",
                      target);
    if (method[0] == '\0' || strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != strlen(method))
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "\"%s\" is no method", method);
    for (; headers && *headers; headers++) {
        if (strpbrk(*headers, "\r\n") || !strchr(*headers, ':'))
            gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "a header is one line \"Name: value\"");
        if (strncasecmp(*headers, "Idempotency-Key:", 16) == 0)
            request->keyed = true;
        if (strncasecmp(*headers, "If-", 3) == 0)
            request->conditional = true;
        request->wait_s += wait_of(*headers);
        gbc_text_add(&request->headers, *headers, strlen(*headers) + 1);
    }
}

int gpubuf_request(gpubuf_client *client, const char *method, const char *target, const char *const *headers,
                   const void *body, size_t bytes, struct gpubuf_error *err) {
    struct gbc_request request;
    int r;

    gbc_error_init(err);
    request_of(&request, method, target, headers);
    request.body = body;
    request.body_bytes = bytes;
    r = gbc_ask(client, &request, err);
    gbc_request_done(&request);
    return r;
}

int gpubuf_request_from(gpubuf_client *client, const char *method, const char *target, const char *const *headers,
                        struct gpubuf_source source, struct gpubuf_error *err) {
    struct gbc_progress progress;
    struct gbc_request request;
    struct gbc_reader reader;
    int r;

    gbc_error_init(err);
    gbc_progress_init(&progress, NULL, NULL, source.bytes);
    if (gbc_reader_init(&reader, source, &progress, false, err) < 0)
        return -1;
    request_of(&request, method, target, headers);
    request.up = &reader.up;
    r = gbc_ask(client, &request, err);
    gbc_request_done(&request);
    return r;
}
