/* POST /v1/sessions/{session}/buffers/{buffer}/verify: compares the bytes with their checksum or digests. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/async.h"
#include "api/middleware/conditional.h"
#include "api/middleware/digest_set.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/path_params.h"
#include "api/request/query.h"
#include "api/request/wait.h"
#include "api/route.h"

static int read_algorithms(const json_t *body, unsigned *ret, struct gb_error *err) {
    const json_t *list = json_object_get(body, "algorithms");
    enum gb_digest_alg alg;
    json_t *value;
    size_t i;

    if (list && !json_is_array(list))
        return gb_error_set(err, GB_ERR_WRONG_TYPE, "the field 'algorithms' must be a list such as [\"sha-256\"]");
    json_array_foreach(list, i, value) {
        if (!json_is_string(value))
            return gb_error_set(err, GB_ERR_WRONG_TYPE, "an algorithm must be a string");
        if (!gb_digest_find(json_string_value(value), json_string_length(value), &alg))
            return gb_digest_unknown(json_string_value(value), err);
        *ret |= 1u << alg;
    }
    return 0;
}

static int read_body(const struct gb_http_request *request, unsigned *ret_algs, struct gb_digest_set *expected,
                     struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "digest algorithms", true, &body, err) < 0)
        return -1;
    r = gb_digest_set_read(body, expected, err) < 0 || read_algorithms(body, ret_algs, err) < 0 ? -1 : 0;
    *ret_algs |= expected->given;
    json_decref(body);
    return r;
}

static void render(struct gb_json_writer *out, const struct gb_scan_call *call, unsigned algs, bool compared,
                   bool match) {
    char text[GB_BASE64_SIZE_MAX];
    char crc[9];
    unsigned i;

    gb_json_open(out, NULL, '{');
    if (compared)
        gb_json_put_bool(out, "match", match);
    else
        gb_json_put_null(out, "match"); /* there was no checksum to compare with */
    snprintf(crc, sizeof(crc), "%08" PRIx32, call->crc32c);
    gb_json_put_string(out, "crc32c", crc);
    snprintf(crc, sizeof(crc), "%08" PRIx32, call->buffer.crc32c);
    if (call->had_crc32c)
        gb_json_put_string(out, "stored_crc32c", crc);
    else
        gb_json_put_null(out, "stored_crc32c");
    gb_json_put_i64(out, "generation", call->buffer.generation);
    gb_json_put_u64(out, "bytes", call->buffer.bytes);
    gb_json_open(out, "digest", '{');
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (!(algs & 1u << i))
            continue;
        gb_digest_text(&call->digest[i], text);
        gb_json_put_string(out, gb_digest_name((enum gb_digest_alg)i), text);
    }
    gb_json_close(out, '}');
    gb_json_close(out, '}');
}

/* The body is read a second time. It was valid before, and lives as long as the request. */
static enum gb_step reply_verified(struct gb_http_request *request, const void *result,
                                   struct gb_http_response *response, struct gb_error *err) {
    const struct gb_scan_call *call = result;
    struct gb_digest_set expected = {.given = 0};
    bool match = !call->had_crc32c || call->crc32c == call->buffer.crc32c;
    struct gb_json_writer out = {0};
    char etag[GB_ETAG_SIZE];
    unsigned algs = 0;
    unsigned i;

    if (read_body(request, &algs, &expected, err) < 0 ||
        gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_data(&call->buffer, GB_FORM_RAW, etag)) < 0)
        return GB_STEP_ERROR;
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (expected.given & 1u << i)
            match = match && gb_digest_equal(&expected.digest[i], &call->digest[i]);
    }
    render(&out, call, algs, call->had_crc32c || expected.given, match);
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_buffer_verify(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_scan_params params = {.verify = true, .stream = {"default"}};
    struct gb_conditions *conditions;
    struct gb_digest_set expected = {.given = 0};
    struct gb_scan_call *call;

    if (gb_path_names(request, "buffer name", &params.session, &params.name, err) < 0 ||
        gb_query_name(request, "stream", &params.stream, err) < 0 ||
        read_body(request, &params.digests, &expected, err) < 0 || gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        gb_conditions_free(conditions);
        return GB_STEP_ERROR;
    }
    params.check = gb_conditions_buffer_check(conditions);
    gb_buffer_scan(gb_api_of(request)->core, &params, call);
    return gb_async_end(request, response, reply_verified, gb_sync_deadline_ns(request), err);
}
