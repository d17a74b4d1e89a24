/* Monotonic and wall-clock time, RFC 3339 written and read, and durations that people write. A text is read as a whole
 * or refused. All folders call it. */
#include "base/clock.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/encoding.h"
#include "base/text.h"

uint64_t gb_clock_ns(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * GB_NS_PER_S + (uint64_t)ts.tv_nsec;
}

int64_t gb_wall_us(void) {
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* --- times written ------------------------------------------------------------------------------------------------ */

/* Writes the date. A reply has several times, and gmtime_r() takes a lock and reads the time zone for each. Years are
 * counted from March on, so that a leap day is the last of its year. */
static char *put_date(char *at, uint64_t days_since_1970) {
    uint64_t days = days_since_1970 + 719468; /* since the first of March of the year 0 */
    uint64_t of_400 = days % 146097;
    uint64_t year = (of_400 - of_400 / 1460 + of_400 / 36524 - of_400 / 146096) / 365;
    uint64_t of_year = of_400 - (365 * year + year / 4 - year / 100);
    uint64_t month = (5 * of_year + 2) / 153; /* 0 is March */
    uint64_t day = of_year - (153 * month + 2) / 5 + 1;

    at = gb_digits_padded(at, days / 146097 * 400 + year + (month >= 10), 4);
    *at++ = '-';
    at = gb_digits_padded(at, month < 10 ? month + 3 : month - 9, 2);
    *at++ = '-';
    return gb_digits_padded(at, day, 2);
}

char *gb_rfc3339(int64_t wall_us, char *out) {
    uint64_t ms = wall_us > 0 ? (uint64_t)wall_us / 1000 : 0;
    uint64_t seconds = ms / 1000;
    char *at = put_date(out, seconds / 86400);

    *at++ = 'T';
    at = gb_digits_padded(at, seconds / 3600 % 24, 2);
    *at++ = ':';
    at = gb_digits_padded(at, seconds / 60 % 60, 2);
    *at++ = ':';
    at = gb_digits_padded(at, seconds % 60, 2);
    *at++ = '.';
    at = gb_digits_padded(at, ms % 1000, 3);
    *at++ = 'Z';
    *at = '\0';
    return out;
}

/* --- times and durations read ------------------------------------------------------------------------------------- */

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
