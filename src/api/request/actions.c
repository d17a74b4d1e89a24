#include "api/request/actions.h"

#include <string.h>

#include "api/request/json.h"
#include "pull/pull.h"

/* Reads "session/buffer", or "buffer" of the same session. */
static int read_from(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    const char *text;
    const char *slash;
    int r = gb_json_string(body, "from", &text, err);

    if (r < 0)
        return -1;
    if (r == 0)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "give 'from': the buffer to copy, as \"session/buffer\" or, within the session, \"buffer\"");
    if (gb_pull_url_is(text))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a URL as the source goes with POST .../copy alone, and not in a batch");
    slash = strchr(text, '/');
    params->from_session = params->session;
    if (slash && gb_name_parse("from (its session)", text, (size_t)(slash - text), &params->from_session, err) < 0)
        return -1;
    text = slash ? slash + 1 : text;
    return gb_name_parse(slash ? "from (its buffer)" : "from", text, strlen(text), &params->from, err);
}

static int read_pattern(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    uint64_t width = 1;
    int r = gb_json_u64(body, "width", &width, err);

    if (r < 0)
        return -1;
    if (width != 1 && width != 2 && width != 4 && width != 8)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'width' must be 1, 2, 4 or 8 bytes, and is %llu",
                            (unsigned long long)width);
    params->width = (unsigned)width;
    r = gb_json_pattern(body, "pattern", params->width, &params->pattern, err);
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'pattern': the number that is to fill the bytes");
    return r < 0 ? -1 : 0;
}

static int read_side(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    const char *side = NULL;
    int r = gb_json_string(body, "side", &side, err);

    if (r <= 0)
        return r;
    params->side_named = true;
    params->to_host_side = strcmp(side, "host") == 0;
    if (!params->to_host_side && strcmp(side, "device") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'side' must be host or device");
    return 0;
}

/* The fields that copy and fill share. */
static int read_target(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    int r;

    if (params->stream.s[0] == '\0')
        strcpy(params->stream.s, "default");
    if (gb_json_u64(body, "offset", &params->offset, err) < 0 ||
        gb_json_name(body, "stream", &params->stream, err) < 0 ||
        gb_json_bool(body, "in_place", &params->in_place, err) < 0 || read_side(body, params, err) < 0)
        return -1;
    r = gb_json_u64(body, "bytes", &params->bytes, err);
    params->has_bytes = r > 0;
    return r < 0 ? -1 : 0;
}

int gb_action_read_write(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    int r;

    if (params->copy)
        r = read_from(body, params, err) < 0 ? -1 : gb_json_u64(body, "from_offset", &params->from_offset, err);
    else
        r = read_pattern(body, params, err);
    return r < 0 ? -1 : read_target(body, params, err);
}

int gb_action_read_tag(const json_t *object, const char *field, const char **ret, struct gb_error *err) {
    int r = gb_json_string(object, field, ret, err);
    const char *at = *ret;

    if (r <= 0)
        return r;
    if (*at++ == '"') {
        while (*at > ' ' && *at <= '~' && *at != '"')
            at++;
        if (at - *ret > 1 && at - *ret < GB_PULL_TAG_SIZE - 1 && strcmp(at, "\"") == 0)
            return 1;
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "the field '%s' must be one entity tag as the source's .../data gives it, with its quotes: "
                        "\"\\\"1.1.a1544387\\\"\"",
                        field);
}

/* Reads the field `key`: host, device or, where that makes sense, all. */
int gb_action_read_sides(const json_t *body, const char *key, bool all, struct gb_sides *ret, struct gb_error *err) {
    const char *word = "";
    struct gb_sides sides;
    int r = gb_json_string(body, key, &word, err);
    bool both = all && strcmp(word, "all") == 0;

    if (r < 0)
        return -1;
    sides = (struct gb_sides){.host = both || strcmp(word, "host") == 0, .device = both || strcmp(word, "device") == 0};
    if (!sides.host && !sides.device)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give '%s': %s", key,
                            all ? "host, device or all" : "host or device");
    *ret = sides;
    return 0;
}
