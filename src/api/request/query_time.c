#include "api/request/query_time.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/parse.h"

#define US_PER_S 1000000LL
#define YEARS_100_S 3153600000ULL

/* The rest of the text, and what was read of it. */
struct scan {
    const char *at;
    size_t left;
    bool bad;
};

static int digits(struct scan *s, size_t n) {
    int value = 0;

    if (s->left < n)
        s->bad = true;
    for (; n > 0 && !s->bad; n--, s->at++, s->left--) {
        s->bad = !isdigit((unsigned char)*s->at);
        value = value * 10 + (*s->at - '0');
    }
    return value;
}

static bool take(struct scan *s, const char *one_of) {
    if (s->bad || s->left == 0 || *s->at == '\0' || !strchr(one_of, *s->at))
        return false;
    s->at++;
    s->left--;
    return true;
}

static void need(struct scan *s, const char *one_of) {
    if (!take(s, one_of))
        s->bad = true;
}

/* Reads microseconds; further digits are cut. */
static int64_t fraction(struct scan *s) {
    int64_t us = 0;
    int64_t unit = US_PER_S / 10;
    bool any = false;

    if (!take(s, "."))
        return 0;
    for (; !s->bad && s->left > 0 && isdigit((unsigned char)*s->at); s->at++, s->left--, unit /= 10) {
        us += (*s->at - '0') * unit;
        any = true;
    }
    s->bad |= !any;
    return us;
}

/* Reads the offset. Returns false when there is none, or none that RFC 3339 permits. */
static bool zone(struct scan *s, int64_t *ret_s) {
    bool behind;
    int hours;
    int minutes;

    *ret_s = 0;
    if (take(s, "Zz"))
        return s->left == 0;
    behind = s->left > 0 && *s->at == '-';
    if (!take(s, "+- "))
        return false;
    hours = digits(s, 2);
    need(s, ":");
    minutes = digits(s, 2);
    *ret_s = (behind ? -1 : 1) * (int64_t)(hours * 3600 + minutes * 60);
    return !s->bad && s->left == 0 && hours < 24 && minutes < 60;
}

static bool possible(const struct tm *given, const struct tm *made) {
    return given->tm_year == made->tm_year && given->tm_mon == made->tm_mon && given->tm_mday == made->tm_mday &&
           given->tm_hour == made->tm_hour && given->tm_min == made->tm_min && given->tm_sec == made->tm_sec;
}

static int absolute(const char *name, const struct gb_http_text *text, int64_t now_us, int64_t *ret,
                    struct gb_error *err) {
    struct scan s = {.at = text->s, .left = text->len};
    struct tm given = {.tm_year = digits(&s, 4) - 1900};
    struct tm made;
    int64_t zone_s;
    int64_t us;

    need(&s, "-");
    given.tm_mon = digits(&s, 2) - 1;
    need(&s, "-");
    given.tm_mday = digits(&s, 2);
    need(&s, "Tt ");
    given.tm_hour = digits(&s, 2);
    need(&s, ":");
    given.tm_min = digits(&s, 2);
    need(&s, ":");
    given.tm_sec = digits(&s, 2);
    us = fraction(&s);
    if (s.bad)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%s must be a time such as 2026-01-02T03:04:05Z, or seconds before now such as -3600",
                            name);
    if (!zone(&s, &zone_s))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%s must end in its zone: Z, or an offset such as +01:00 (in a URL: %%2B01:00)", name);
    made = given;
    *ret = ((int64_t)timegm(&made) - zone_s) * US_PER_S + us;
    if (!possible(&given, &made) || *ret < 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is not a time that there is since 1970", name);
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
