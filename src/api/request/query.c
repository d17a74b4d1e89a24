#include "api/request/query.h"

#include "base/text.h"
#include "core/core.h"

int gb_query_bool(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);

    if (!text)
        return 0;
    if (text->len == 0 || gb_parse_bool(text->s, text->len, ret) != GB_PARSE_OK)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must be true or false", name);
    return 1;
}

int gb_query_flag(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);

    if (!text || text->len > 0)
        return gb_query_bool(request, name, ret, err);
    *ret = true;
    return 1;
}

int gb_query_u64(const struct gb_http_request *request, const char *name, uint64_t *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);
    uint64_t value;
    enum gb_parse r;

    if (!text)
        return 0;
    r = gb_parse_u64(text->s, text->len, &value);
    if (r == GB_PARSE_NEGATIVE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must not be negative", name);
    if (r == GB_PARSE_OVERFLOW || (r == GB_PARSE_OK && value > INT64_MAX))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is larger than 2^63 - 1", name);
    if (r != GB_PARSE_OK)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must be a whole number", name);
    *ret = value;
    return 1;
}

int gb_query_name(const struct gb_http_request *request, const char *name, struct gb_name *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);

    if (!text)
        return 0;
    return gb_name_parse(name, text->s, text->len, ret, err) < 0 ? -1 : 1;
}

int gb_param_name(const struct gb_http_request *request, unsigned n, const char *what, struct gb_name *ret,
                  struct gb_error *err) {
    return gb_name_parse(what, request->param[n].s, request->param[n].len, ret, err);
}

int gb_query_limit(const struct gb_http_request *request, unsigned *ret_limit, struct gb_error *err) {
    const struct gb_http_text *limit = gb_http_query(request, "limit");

    *ret_limit = GB_PAGE_LIMIT;
    return limit ? gb_limit_parse(limit->s, limit->len, ret_limit, err) : 0;
}

int gb_page_read(const struct gb_http_request *request, struct gb_page *ret, struct gb_error *err) {
    const struct gb_http_text *cursor = gb_http_query(request, "cursor");
    struct gb_page page = {.after = 0};

    if (cursor && gb_cursor_parse(cursor->s, cursor->len, &page.after, err) < 0)
        return -1;
    if (gb_query_limit(request, &page.limit, err) < 0)
        return -1;
    *ret = page;
    return 0;
}
