#include "api/request/query_time.h"

#include "base/text.h"
#include "base/timestamp.h"

#define US_PER_S 1000000LL
#define YEARS_100_S 3153600000ULL

static int absolute(const char *name, const struct gb_http_text *text, int64_t now_us, int64_t *ret,
                    struct gb_error *err) {
    switch (gb_timestamp_parse(text->s, text->len, ret)) {
    case GB_TIMESTAMP_MALFORMED:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%s must be a time such as 2026-01-02T03:04:05Z, or seconds before now such as -3600",
                            name);
    case GB_TIMESTAMP_NO_ZONE:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%s must end in its zone: Z, or an offset such as +01:00 (in a URL: %%2B01:00)", name);
    case GB_TIMESTAMP_IMPOSSIBLE:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is not a time that there is since 1970", name);
    case GB_TIMESTAMP_OK:
        break;
    }
    /* Rounding up to a step would give the last year of four digits a fifth. */
    if (*ret > now_us && *ret - now_us > (int64_t)YEARS_100_S * US_PER_S)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is more than a hundred years ahead", name);
    return 0;
}

int gb_query_time(const struct gb_http_request *request, const char *name, int64_t now_us, int64_t *ret,
                  struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);
    uint64_t ago_s;
    int64_t value;

    if (!text)
        return 0;
    if (text->len > 0 && text->s[0] == '-') {
        if (gb_parse_u64(text->s + 1, text->len - 1, &ago_s) != GB_PARSE_OK || ago_s > YEARS_100_S)
            return gb_error_set(
                err, GB_ERR_INVALID_ARGUMENT,
                "%s must be a time such as 2026-01-02T03:04:05Z, or whole seconds before now such as -3600, "
                "at most a hundred years",
                name);
        value = now_us - (int64_t)ago_s * US_PER_S;
        *ret = value > 0 ? value : 0;
        return 1;
    }
    return absolute(name, text, now_us, ret, err) < 0 ? -1 : 1;
}
