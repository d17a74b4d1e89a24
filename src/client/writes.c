/* Writes that the device makes, and reads of what stands there. */
#include "client/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PULL_S (7 * 86400) /* a copy from another daemon may take */

/* What wrote a buffer tells by its status whether it made it. */
static int written(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_how *how,
                   struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    int r = gbc_call(client, request, how, gbc_record_buffer, ret, err);

    if (r == 0 && ret && client->answer.status == 201)
        ret->created = true;
    return r;
}

/* A daemon that copies from another one answers when all is there. */
static void put_source(struct gbc_request *request, json_t *body, const struct gpubuf_copy_params *params) {
    const char *text = params->from ? params->from : "";
    json_t *from;

    if (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0) {
        gbc_put_text(&request->wrong, body, "from", text);
        gbc_put_text(&request->wrong, body, "from_if_match", params->source_if_match);
        return;
    }
    from = json_object();
    gbc_put_text(&request->wrong, from, "url", text);
    gbc_put_text(&request->wrong, from, "token", params->source_token);
    gbc_put_text(&request->wrong, from, "if_match", params->source_if_match);
    if (params->source_connections > 0)
        gbc_put_opt(&request->wrong, from, "parts", gpubuf_some(params->source_connections));
    gbc_put_some(&request->wrong, body, "from", from);
    request->wait_s = PULL_S;
}

int gpubuf_buffer_copy(gpubuf_client *client, const char *session, const char *buffer,
                       const struct gpubuf_copy_params *params, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/copy", session, buffer);
    gbc_how(&request, how);
    put_source(&request, body, params);
    if (params->from_offset > 0)
        gbc_put_opt(&request.wrong, body, "from_offset", gpubuf_some(params->from_offset));
    gbc_put_opt(&request.wrong, body, "offset", params->offset);
    gbc_put_opt(&request.wrong, body, "bytes", params->bytes);
    gbc_put_text(&request.wrong, body, "stream", params->stream);
    gbc_put_text(&request.wrong, body, "side", params->side);
    gbc_put_true(&request.wrong, body, "in_place", params->in_place);
    gbc_json(&request, body);
    return written(client, &request, how, ret, err);
}

int gpubuf_buffer_fill(gpubuf_client *client, const char *session, const char *buffer,
                       const struct gpubuf_fill_params *params, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();
    char pattern[24];

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/fill", session, buffer);
    gbc_how(&request, how);
    snprintf(pattern, sizeof(pattern), "0x%" PRIx64, params->pattern);
    gbc_put_text(&request.wrong, body, "pattern", pattern);
    if (params->width > 0)
        gbc_put_opt(&request.wrong, body, "width", gpubuf_some(params->width));
    gbc_put_opt(&request.wrong, body, "offset", params->offset);
    gbc_put_opt(&request.wrong, body, "bytes", params->bytes);
    gbc_put_text(&request.wrong, body, "stream", params->stream);
    gbc_put_text(&request.wrong, body, "side", params->side);
    gbc_put_true(&request.wrong, body, "in_place", params->in_place);
    gbc_json(&request, body);
    return written(client, &request, how, ret, err);
}

static json_t *verify_json(struct gbc_request *request, const struct gpubuf_verify_params *params) {
    json_t *body = json_object();
    json_t *algorithms = json_array();
    json_t *digest = json_object();

    if (params->sha256)
        gbc_add_text(&request->wrong, algorithms, "sha-256");
    if (params->sha512)
        gbc_add_text(&request->wrong, algorithms, "sha-512");
    gbc_put_text(&request->wrong, digest, "sha-256", params->expect_sha256);
    gbc_put_text(&request->wrong, digest, "sha-512", params->expect_sha512);
    gbc_put_some(&request->wrong, body, "algorithms", algorithms);
    gbc_put_some(&request->wrong, body, "digest", digest);
    return body;
}

int gpubuf_buffer_verify(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_verify_params *params, const struct gpubuf_how *how,
                         struct gpubuf_verified *ret, struct gpubuf_error *err) {
    static const struct gpubuf_verify_params none;
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/verify", session, buffer);
    gbc_how(&request, how);
    gbc_query(&request, "stream", params ? params->stream : NULL);
    gbc_json(&request, verify_json(&request, params ? params : &none));
    return gbc_call(client, &request, how, gbc_record_verified, ret, err);
}

int gpubuf_buffer_sync(gpubuf_client *client, const char *session, const char *buffer, const char *to,
                       const char *stream, const struct gpubuf_how *how, struct gpubuf_buffer *ret,
                       struct gpubuf_error *err) {
    struct gbc_request request;
    json_t *body = json_object();

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/sync", session, buffer);
    gbc_how(&request, how);
    gbc_put_text(&request.wrong, body, "to", to ? to : "");
    gbc_put_text(&request.wrong, body, "stream", stream);
    gbc_json(&request, body);
    return gbc_call(client, &request, how, gbc_record_buffer, ret, err);
}
