#include "http/message/problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/message/response.h"

/* The bytes of a target that are shown; a client that sent a longer one knows it. */
#define INSTANCE_MAX 300

/* The error of the native layer. The host backend reports what CUDA would, in the same member. */
static void write_native(struct gb_json_writer *out, const struct gb_error *error) {
    bool device = strcmp(error->native_domain, "cuda") == 0 || strcmp(error->native_domain, "host") == 0;

    gb_json_open(out, device ? "cuda" : "native", '{');
    gb_json_put_untrusted(out, "name", error->native_name, SIZE_MAX);
    gb_json_put_i64(out, "code", error->native_code);
    gb_json_put_untrusted(out, "call", error->call, SIZE_MAX);
    gb_json_put_string(out, "domain", error->native_domain);
    if (error->native_text)
        gb_json_put_untrusted(out, "message", error->native_text, SIZE_MAX);
    gb_json_close(out, '}');
}

void gb_problem_open(struct gb_json_writer *out, const struct gb_error *error, const char *type, const char *instance,
                     const char *id) {
    char urn[96];

    snprintf(urn, sizeof(urn), "urn:gpubuf:error:%s", gb_code_slug(error->code));
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "type", type ? type : urn);
    gb_json_put_string(out, "title", gb_code_title(error->code));
    gb_json_put_i64(out, "status", gb_code_status(error->code));
    gb_json_put_untrusted(out, "detail", error->detail, SIZE_MAX);
    gb_json_put_untrusted(out, "instance", instance, INSTANCE_MAX);
    gb_json_put_string(out, "code", gb_code_slug(error->code));
    gb_json_put_bool(out, "retryable", gb_error_retryable(error));
    gb_json_put_string(out, "request_id", id);
}

static void write_document(struct gb_json_writer *out, const struct gb_http_request *request,
                           const struct gb_http_response *response, const struct gb_error *error) {
    gb_problem_open(out, error, response->problem_type, request->shown.s ? request->shown.s : request->target.s,
                    request->id);
    if (error->has_numbers) {
        gb_json_put_u64(out, "limit_bytes", error->limit_bytes);
        gb_json_put_u64(out, "used_bytes", error->used_bytes);
        gb_json_put_u64(out, "requested_bytes", error->requested_bytes);
    }
    if (error->native_domain[0])
        write_native(out, error);
    if (response->problem_members)
        gb_json_put_members(out, response->problem_members, response->problem_members_len);
    gb_json_close(out, '}');
    gb_json_end(out);
}

void gb_http_problem(struct gb_http_response *response, const struct gb_http_request *request,
                     const struct gb_error *error) {
    struct gb_json_writer out = {0};

    free(response->body);
    response->body = NULL;
    response->body_len = 0;
    gb_http_response_close(response);
    gb_http_response_canned(response, NULL);
    gb_http_response_source(response, NULL, 0);
    response->status = gb_code_status(error->code);
    if (response->status == 401)
        gb_http_response_header(response, NULL, "WWW-Authenticate", "Bearer realm=\"gpubufd\"");
    if (!gb_response_has(response, "Retry-After") &&
        (response->status == 503 || error->code == GB_ERR_BUFFER_BUSY || error->code == GB_ERR_UPLOAD_BUSY ||
         error->code == GB_ERR_KEY_IN_USE))
        gb_http_response_header(response, NULL, "Retry-After", "1");
    /* Without memory for the text the status still goes out. */
    write_document(&out, request, response, error);
    if (out.failed) {
        gb_json_done(&out);
        return;
    }
    gb_http_response_problem(response, NULL, NULL, 0);
    gb_http_response_header(response, NULL, "Content-Type", "application/problem+json");
    gb_http_response_header(response, NULL, "Cache-Control", "no-store");
    gb_http_response_take(response, out.s, out.used);
}
