/* Times and durations that people write: RFC 3339, and numbers with a unit. A text is read as a whole or refused. */
#include "base/timestamp.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

#define US_PER_S 1000000LL
#define YEARS_100_S 3153600000ULL

/* The rest of the text, and the values read from it. */
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

/* Reads the offset. Returns false without one, or for one that RFC 3339 does not permit. */
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

enum gb_timestamp gb_timestamp_parse(const char *text, size_t len, int64_t *ret_us) {
    struct scan s = {.at = text, .left = len};
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
        return GB_TIMESTAMP_MALFORMED;
    if (!zone(&s, &zone_s))
        return GB_TIMESTAMP_NO_ZONE;
    made = given;
    us += ((int64_t)timegm(&made) - zone_s) * US_PER_S;
    if (!possible(&given, &made) || us < 0)
        return GB_TIMESTAMP_IMPOSSIBLE;
    *ret_us = us;
    return GB_TIMESTAMP_OK;
}

int gb_duration_parse(const char *text, size_t len, uint64_t *ret_s) {
    static const struct {
        char letter;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    uint64_t unit = 1;
    uint64_t value;
    size_t i;

    for (i = 0; len > 0 && i < sizeof(units) / sizeof(units[0]); i++) {
        if (text[len - 1] == units[i].letter) {
            unit = units[i].seconds;
            len--;
            break;
        }
    }
    if (gb_parse_u64(text, len, &value) != GB_PARSE_OK || value > YEARS_100_S / unit)
        return -1;
    *ret_s = value * unit;
    return 0;
}
