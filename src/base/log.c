/* The log: lines with a time, a level, an event and fields, as text or JSON. Text of clients is escaped here. Only the
 * daemon layer calls it. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "base/lines.h"
#include "base/text.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};

#define VALUE_MAX 512

int gb_log_priority(enum gb_log_level level) {
    static const int priorities[] = {3, 4, 6, 7};

    return priorities[level];
}

/* Writes the line as JSON into a buffer that has room for all but a long text, which is cut. Returns its length. */
static size_t write_json(char *line, size_t size, enum gb_log_level level, const char *event, const char *stamp,
                         const char *text, const struct gb_log_field *fields, size_t count) {
    struct gb_json_writer out = gb_json_fixed(line, size);
    size_t i;

    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "time", stamp);
    gb_json_put_string(&out, "level", level_names[level]);
    gb_json_put_string(&out, "event", event);
    for (i = 0; i < count; i++) {
        if (fields[i].value)
            gb_json_put_untrusted(&out, fields[i].name, fields[i].value, VALUE_MAX);
    }
    gb_json_put_untrusted(&out, "message", text, size - out.used - sizeof(",\"message\":\"\"}\n"));
    gb_json_close(&out, '}');
    gb_json_end(&out);
    return out.used;
}

/* A value with blanks stands between quotes. Returns the bytes added. */
static size_t add_field(char *at, size_t room, const struct gb_log_field *field) {
    char value[VALUE_MAX + 1];
    const char *quote;

    gb_escape(value, sizeof(value), field->value);
    quote = value[strcspn(value, " \"=")] || !value[0] ? "\"" : "";
    return (size_t)snprintf(at, room, " %s=%s%s%s", field->name, quote, value, quote);
}

static size_t write_text(char *line, size_t size, enum gb_log_level level, const char *event, const char *stamp,
                         const char *text, const struct gb_log_field *fields, size_t count) {
    size_t n = (size_t)snprintf(line, size, "%s %-7s %s: %s", stamp, level_names[level], event, text);
    size_t i;

    for (i = 0; i < count && n < size - 1; i++) {
        if (fields[i].value)
            n += add_field(line + n, size - n, &fields[i]);
    }
    if (n > size - 2)
        n = size - 2;
    line[n++] = '\n';
    return n;
}

static void send_line(const struct gb_log *log, enum gb_log_level level, const char *line, size_t n) {
    char prefixed[GB_LINE_MAX + 4];
    size_t prefix = log->journal ? 3 : 0;

    if (log->lines) {
        gb_lines_put(log->lines, gb_log_priority(level), line, n);
        return;
    }
    if (prefix > 0)
        snprintf(prefixed, sizeof(prefixed), "<%d>", gb_log_priority(level));
    memcpy(prefixed + prefix, line, n);
    /* One write, so that lines of several threads do not mix. A failure cannot be reported anywhere. */
    if (write(log->fd, prefixed, n + prefix) < 0)
        return;
}

void gb_log_fields(const struct gb_log *log, enum gb_log_level level, const char *event, const char *text,
                   const struct gb_log_field *fields, size_t count) {
    char stamp[GB_RFC3339_SIZE];
    char shown[3900];
    char line[GB_LINE_MAX - 8]; /* room for what others put before it */
    size_t n;

    if (level > log->level)
        return;
    /* All lines are escaped here, so that no byte that a client chose reaches a terminal or begins a line. */
    gb_escape(shown, sizeof(shown), text);
    gb_rfc3339(gb_wall_us(), stamp);
    n = log->json ? write_json(line, sizeof(line), level, event, stamp, shown, fields, count)
                  : write_text(line, sizeof(line), level, event, stamp, shown, fields, count);
    send_line(log, level, line, n);
}

void gb_log(const struct gb_log *log, enum gb_log_level level, const char *event, const char *fmt, ...) {
    char said[3000];
    va_list ap;

    if (level > log->level)
        return;
    va_start(ap, fmt);
    vsnprintf(said, sizeof(said), fmt, ap);
    va_end(ap);
    gb_log_fields(log, level, event, said, NULL, 0);
}

int gb_log_level_parse(const char *word, enum gb_log_level *ret_level) {
    int i;

    for (i = 0; i < 4; i++) {
        if (strcmp(word, level_names[i]) == 0) {
            *ret_level = (enum gb_log_level)i;
            return 0;
        }
    }
    return -1;
}
