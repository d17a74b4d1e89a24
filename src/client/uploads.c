/* Uploads in several requests: in parts, and appended to. */
#include "client/list.h"
#include "client/put.h"

#include <stdio.h>

GBC_LIST_DONE(upload)

int gpubuf_upload_list(gpubuf_client *client, const char *session, const struct gpubuf_page *page,
                       struct gpubuf_upload_list *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/uploads", session);
    return GBC_LIST(client, &request, page, gbc_record_upload, ret, err);
}

int gpubuf_upload_create(gpubuf_client *client, const char *session, const char *buffer,
                         const struct gpubuf_buffer_params *params, const struct gpubuf_how *how,
                         struct gpubuf_upload *ret, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/uploads", session);
    gbc_how(&request, how);
    gbc_json(&request, gbc_buffer_json(&request, "buffer", buffer ? buffer : "", params));
    return gbc_call(client, &request, how, gbc_record_upload, ret, err);
}

int gpubuf_upload_get(gpubuf_client *client, const char *session, const char *id, struct gpubuf_upload *ret,
                      struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "GET", "/v1/sessions/%/uploads/%", session, id);
    return gbc_call(client, &request, NULL, gbc_record_upload, ret, err);
}

int gpubuf_upload_delete(gpubuf_client *client, const char *session, const char *id, struct gpubuf_error *err) {
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "DELETE", "/v1/sessions/%/uploads/%", session, id);
    return gbc_call(client, &request, NULL, NULL, NULL, err);
}

int gpubuf_upload_part(gpubuf_client *client, const char *session, const char *id, uint64_t offset, bool replace,
                       struct gpubuf_source source, struct gpubuf_part *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    struct gbc_reader reader;

    gbc_error_init(err);
    if (gbc_reader_init(&reader, source, NULL, false, err) < 0)
        return -1;
    if (reader.up.bytes == GPUBUF_UNKNOWN)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "a part says how many bytes it has");
    gbc_request_init(&request, "PUT", "/v1/sessions/%/uploads/%/parts", session, id);
    gbc_query_u64(&request, "offset", offset);
    gbc_query_true(&request, "replace", replace);
    request.up = &reader.up;
    return gbc_call(client, &request, NULL, gbc_record_part, ret, err);
}

static int made(gpubuf_client *client, struct gbc_request *request, const struct gpubuf_how *how,
                struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    int r = gbc_call(client, request, how, gbc_record_buffer, ret, err);

    if (r == 0 && ret && client->answer.status == 201)
        ret->created = true;
    return r;
}

int gpubuf_upload_complete(gpubuf_client *client, const char *session, const char *id, struct gpubuf_opt crc32c,
                           const struct gpubuf_how *how, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    char text[16];

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/uploads/%/complete", session, id);
    gbc_how(&request, how);
    snprintf(text, sizeof(text), "%08x", (unsigned)crc32c.value);
    gbc_json(&request, crc32c.set ? gbc_json_of("crc32c", json_string_nocheck(text)) : json_object());
    return made(client, &request, how, ret, err);
}

/* --- appended to -------------------------------------------------------------------------------------------------- */

int gpubuf_upload_begin(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_source source,
                        uint64_t total, const struct gpubuf_put_params *params, char ret_id[GPUBUF_ID_SIZE],
                        struct gpubuf_error *err) {
    struct gpubuf_upload upload;
    struct gbc_request request;
    struct gbc_reader reader;
    char length[24];

    gbc_error_init(err);
    if (gbc_reader_init(&reader, source, NULL, false, err) < 0)
        return -1;
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/data", session, buffer);
    if (params) {
        gbc_how(&request, &params->how);
        gbc_put_query(&request, params);
    }
    snprintf(length, sizeof(length), "%llu", (unsigned long long)total);
    gbc_header(&request, "Upload-Complete", "?0");
    gbc_header(&request, "Upload-Length", total == GPUBUF_UNKNOWN ? NULL : length);
    request.up = &reader.up;
    if (gbc_call(client, &request, NULL, gbc_record_upload, &upload, err) < 0)
        return -1;
    gbc_copy(ret_id, GPUBUF_ID_SIZE, upload.id);
    return 0;
}

int gpubuf_upload_append(gpubuf_client *client, const char *session, const char *id, uint64_t offset, bool complete,
                         struct gpubuf_source source, struct gpubuf_buffer *ret, struct gpubuf_error *err) {
    struct gbc_request request;
    struct gbc_reader reader;
    char text[24];

    gbc_error_init(err);
    if (gbc_reader_init(&reader, source, NULL, false, err) < 0)
        return -1;
    gbc_request_init(&request, "PATCH", "/v1/sessions/%/uploads/%", session, id);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)offset);
    gbc_header(&request, "Upload-Offset", text);
    gbc_header(&request, "Upload-Complete", complete ? "?1" : "?0");
    request.body_type = "application/partial-upload";
    request.up = &reader.up;
    if (!complete) /* 204 */
        return gbc_call(client, &request, NULL, NULL, NULL, err);
    return made(client, &request, NULL, ret, err);
}

int gpubuf_upload_offset(gpubuf_client *client, const char *session, const char *id, uint64_t *ret_offset,
                         bool *ret_complete, struct gpubuf_error *err) {
    const struct gbc_reply *reply = gbc_reply_of(client->conn);
    struct gbc_request request;

    gbc_error_init(err);
    gbc_request_init(&request, "HEAD", "/v1/sessions/%/uploads/%", session, id);
    if (gbc_call(client, &request, NULL, NULL, NULL, err) < 0) {
        /* A HEAD has no body that could say why. */
        if (reply->status >= 400 && reply->status < 500)
            gpubuf_upload_get(client, session, id, NULL, err);
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "a HEAD was refused, and then a GET was not");
    }
    if (!reply->upload_offset.set)
        return gbc_error_set(err, GPUBUF_BAD_ANSWER, "the answer has no Upload-Offset");
    if (ret_offset)
        *ret_offset = reply->upload_offset.value;
    if (ret_complete)
        *ret_complete = reply->upload_complete;
    return 0;
}
